"""The two kinds of model directory: our own graphs, and the three files that Optimum exports.

Both give the same two objects, an encoder and a decoder session, so that nothing behind them asks which it is.
"""

from __future__ import annotations

from pathlib import Path

from susurrus.models.providers import CPU
from susurrus.models.sessions import Decoder, Encoder


def load_encoder(directory: Path, *, precision: str = "int8", threads: int = 0, provider: str = CPU) -> Encoder:
    """The encoder of a model directory; see `sessions.Encoder`."""
    return Encoder(directory, precision=precision, threads=threads, provider=provider)


def load_decoder(directory: Path, *, precision: str = "int8", threads: int = 0, provider: str = CPU) -> Decoder:
    """The decoder of a model directory; see `sessions.Decoder`."""
    return Decoder(directory, precision=precision, threads=threads, provider=provider)
