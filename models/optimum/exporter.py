"""Runs Optimum's exporter, quietly, and completes what it leaves out.

It writes three graphs and a fourth that holds both decoders behind a switch; that one repeats the weights of the two
others and is not kept.
"""

import logging
import os
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from susurrus.models.checkpoints.tokenizer_files import write_tokenizer_files
from susurrus.models.config import ModelConfig
from susurrus.models.dimensions import AudioParameters
from susurrus.models.errors import ModelError
from susurrus.models.graphs.build import _filters
from susurrus.models.mel import FILTERS_FILE
from susurrus.models.optimum.checkpoints import FoundCheckpoint
from susurrus.models.special_tokens import SpecialTokens
from susurrus.models.vocabulary import TIMESTAMPS, VOCABULARY_FILE, load_vocabulary

OPSETS = range(14, 21)
"""What torch's exporter writes attention in, and can write at all."""

_TASK = "automatic-speech-recognition-with-past"


def export_graphs(checkpoint: FoundCheckpoint, folder: Path, opset: int) -> None:
    """Write encoder_model, decoder_model and decoder_with_past_model, the configurations and the tokenizer.

    Args:
        checkpoint: What to export.
        folder: An existing folder.
        opset: ONNX operator set, one of `OPSETS`.

    Raises:
        ModelError: The exporter does not take the checkpoint.
    """
    positions = ModelConfig.from_hugging_face(checkpoint.folder).dimensions.n_audio_ctx
    try:
        with quiet():
            from optimum.exporters.onnx import main_export  # noqa: PLC0415  # an extra, and it takes seconds

            main_export(
                str(checkpoint.folder),
                output=folder,
                task=_TASK,
                opset=opset,
                framework="pt",
                library_name="transformers",
                local_files_only=True,
                nb_max_frames=2 * positions,
                do_validation=False,  # its parity test is an absolute one, which no real Whisper passes
            )
    except Exception as error:  # of any of four libraries
        raise ModelError(f"{checkpoint.name} cannot be exported: {one_line(error)}") from error
    for path in folder.glob("decoder_model_merged.onnx*"):
        path.unlink()


def complete(checkpoint: FoundCheckpoint, folder: Path) -> tuple[AudioParameters, SpecialTokens]:
    """Write what Optimum leaves out: vocabulary.txt, mel_filters.json, timestamps that the tokenizer lacks.

    Args:
        checkpoint: What was exported.
        folder: The export.

    Returns:
        How the model hears, and its special tokens.

    Raises:
        ModelError: The checkpoint's tokenizer or a configuration is missing, or not the weights'.
    """
    config = ModelConfig.from_hugging_face(checkpoint.folder)
    vocabulary, source = load_vocabulary(checkpoint.folder, config.dimensions.n_vocab)
    special = SpecialTokens.from_vocabulary(vocabulary, source=str(source))
    tokenizer = folder / "tokenizer.json"
    if not tokenizer.is_file() or TIMESTAMPS[0] not in tokenizer.read_text(encoding="utf-8"):
        write_tokenizer_files(vocabulary, special, folder)
    (folder / VOCABULARY_FILE).write_bytes("".join(f"{token}\n" for token in vocabulary).encode())
    (folder / FILTERS_FILE).write_text(_filters(config.audio), encoding="ascii")
    return config.audio, special


def one_line(error: Exception) -> str:
    """The first line of an exception, or what it is called."""
    return str(error).strip().partition("\n")[0] or type(error).__name__


@contextmanager
def quiet() -> Iterator[None]:
    """Keep libraries from writing: Python's warnings and logs, and what their native parts write to 1 and 2."""
    sys.stdout.flush()
    sys.stderr.flush()
    before = logging.root.manager.disable
    kept = [os.dup(descriptor) for descriptor in (1, 2)]
    with tempfile.TemporaryFile() as noise, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.disable(logging.CRITICAL)
        try:
            for descriptor in (1, 2):
                os.dup2(noise.fileno(), descriptor)
            yield
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            for descriptor, copy in zip((1, 2), kept, strict=True):
                os.dup2(copy, descriptor)
                os.close(copy)
            logging.disable(before)
