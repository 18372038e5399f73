"""What the audio decoders have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

_MOST_SAMPLES = 1 << 20  # of all channels in one block: bounds the memory of 192 kHz and many channels


@dataclass(frozen=True, slots=True)
class Decoded:
    """An input whose header has been read."""

    rate: int
    """Sampling rate in Hz."""
    duration: float | None
    """Seconds, None where nothing says it."""
    blocks: Iterator[NDArray[np.floating]]
    """float32 or float64 (n, channels) each, full scale +-1, about a second. Raises `Broken`."""
    resumable: bool = False
    """Whether another decoder may find more after this one broke."""


class Undecodable(Exception):  # noqa: N818  a verdict of one decoder, which the next may not share
    """A decoder cannot open an input.

    Args:
        reason: Half a sentence for people.
        final: No other decoder should try.
    """

    def __init__(self, reason: str, *, final: bool = False) -> None:
        super().__init__(reason)
        self.final = final


class Broken(Exception):  # noqa: N818  the part before it is good
    """A decoder cannot go on: what it gave so far is all it can give. The text is half a sentence."""


def block_frames(rate: int, channels: int) -> int:
    """Frames (samples of all channels) in a block: one second, less where that would be much memory."""
    return max(1, min(rate, _MOST_SAMPLES // channels))


def to_float(samples: NDArray[Any]) -> NDArray[np.floating]:
    """Integers become float32 of full scale +-1 (unsigned ones are centred); floats stay what they are."""
    dtype = samples.dtype
    if dtype.kind == "f":
        return samples.astype(dtype.newbyteorder("="), copy=False)
    scale = np.float32(2.0 ** (1 - 8 * dtype.itemsize))
    floats = samples.astype(np.float32) * scale
    return floats - np.float32(1) if dtype.kind == "u" else floats
