"""The two kinds of model directory: our own graphs, and the three files that Optimum exports.

Both give the same two objects, an encoder and a decoder session, so that nothing behind them asks which it is.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from susurrus.models.directories import NO_WORD_TIMES
from susurrus.models.errors import OptionError
from susurrus.models.optimum.files import is_export
from susurrus.models.providers import CPU
from susurrus.models.provisioning.manifest import DEFAULT_PRECISION
from susurrus.models.sessions import Decoder, Encoder
from susurrus.models.tokenizer import Tokenizer

if TYPE_CHECKING:
    from susurrus.models.aligner import Aligner
    from susurrus.models.optimum.decoder import ExportedDecoder
    from susurrus.models.optimum.encoder import ExportedEncoder

    AnyEncoder = Encoder | ExportedEncoder
    AnyDecoder = Decoder | ExportedDecoder


def load_encoder(directory: Path, *, precision: str | None = None, threads: int = 0, provider: str = CPU) -> AnyEncoder:
    """The encoder of a model directory; see `sessions.Encoder`.

    Args:
        directory: The model directory.
        precision: `int8` or `float32`; None takes `int8` of our own layout, and of an export what there is.
        threads: Of the session; 0 takes the CPUs this process may use.
        provider: That runs the graph, a name of `models/providers.py`.

    Raises:
        ModelError: Files are missing, damaged or of another kind.
    """
    if is_export(directory):
        from susurrus.models.optimum.encoder import ExportedEncoder  # noqa: PLC0415 - for those who have one

        return ExportedEncoder(directory, precision=precision, threads=threads, provider=provider)
    return Encoder(directory, precision=precision or DEFAULT_PRECISION, threads=threads, provider=provider)


def load_decoder(directory: Path, *, precision: str | None = None, threads: int = 0, provider: str = CPU) -> AnyDecoder:
    """The decoder of a model directory; see `sessions.Decoder`, and `load_encoder` for the arguments."""
    if is_export(directory):
        from susurrus.models.optimum.decoder import ExportedDecoder  # noqa: PLC0415 - for those who have one

        return ExportedDecoder(directory, precision=precision, threads=threads, provider=provider)
    return Decoder(directory, precision=precision or DEFAULT_PRECISION, threads=threads, provider=provider)


def load_aligner(
    directory: Path, decoder: AnyDecoder, tokenizer: Tokenizer, *, precision: str | None = None, threads: int = 0
) -> Aligner:
    """What finds word times; see `Aligner.load`.

    Raises:
        ModelError: Files are missing, damaged or of another version.
        OptionError: The model cannot tell them.
    """
    if not isinstance(decoder, Decoder):
        raise OptionError(NO_WORD_TIMES)
    from susurrus.models.aligner import Aligner  # noqa: PLC0415 - for those who want words

    return Aligner.load(directory, decoder, tokenizer, precision=precision or DEFAULT_PRECISION, threads=threads)
