"""Cutting audio of any length into windows that a model can take, at pauses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from susurrus.models.config import AudioParameters

MIN_SECONDS = 0.1
"""Audio shorter than this in all is not decoded: it is less than one spoken syllable, and Whisper, which then
sees 29.9 s of padding, answers with a word of its own."""

_REST_SECONDS = 1.0  # least audio that a cut leaves for the next window
_PAUSE_SECONDS = 0.2  # length whose energy is compared: longer than the closure of a plosive, shorter than a pause
_SILENT_SWING = 4 / 32768  # steps of 16 bits from the lowest to the highest sample


@dataclass(frozen=True, slots=True)
class AudioWindow:
    """One window of a recording."""

    index: int
    """0, 1, 2, ... in a recording."""
    start: int
    """Sample of the recording at which it starts."""
    samples: NDArray[np.float32]
    """(n,), n >= 1, at most the model's window."""


class WindowCutter:
    """Cuts a stream of samples into windows whose concatenation is the stream, sample for sample.

    A window is cut when more audio is there than fits: in the middle of the quietest 0.2 s of its last
    third, at least 1 s before its end. So no later window is shorter than 1 s, and memory is one window,
    however long the recording is. The first window alone may be shorter, when the whole recording is.

    Args:
        audio: The model's audio parameters.
    """

    def __init__(self, audio: AudioParameters) -> None:
        n = audio.n_samples
        rest = min(round(_REST_SECONDS * audio.sample_rate), n // 6)
        self._cuts = range(n - n // 3, n - rest + 1)  # where a window may end
        self._reach = min(round(_PAUSE_SECONDS * audio.sample_rate / 2), rest)
        self._buffer = np.empty(n, np.float32)
        self._filled = 0
        self._start = 0
        self._index = 0

    def push(self, samples: NDArray[np.float32]) -> list[AudioWindow]:
        """Takes the next samples, float32 (n,) with any n, and gives the windows that are complete."""
        windows = []
        while len(samples):
            if self._filled == len(self._buffer):
                windows.append(self._cut(self._quietest()))
            taken = samples[: len(self._buffer) - self._filled]
            self._buffer[self._filled : self._filled + len(taken)] = taken
            self._filled += len(taken)
            samples = samples[len(taken) :]
        return windows

    def finish(self) -> list[AudioWindow]:
        """The last window, none if there is no audio left."""
        return [self._cut(self._filled)] if self._filled else []

    def _cut(self, length: int) -> AudioWindow:
        window = AudioWindow(self._index, self._start, self._buffer[:length].copy())
        rest = self._filled - length
        self._buffer[:rest] = self._buffer[length : self._filled].copy()
        self._filled = rest
        self._index += 1
        self._start += length
        return window

    def _quietest(self) -> int:
        """The allowed cut with the least energy around it; the last of several, which makes fewer windows."""
        around = self._buffer[self._cuts.start - self._reach : self._cuts.stop - 1 + self._reach]
        energy = np.concatenate(([0.0], np.cumsum(np.square(around, dtype=np.float64))))
        moving = energy[2 * self._reach :] - energy[: -2 * self._reach]  # one for each allowed cut
        return self._cuts.stop - 1 - int(moving[::-1].argmin())


def is_silent(samples: NDArray[np.float32]) -> bool:
    """Whether samples (n,) are digital silence: zeros, a constant, or the dither of a 16-bit recorder.

    Dither moves a sample by one step of 16 bits up or down (two with a triangular distribution). Nothing
    within that is speech, and to nothing Whisper answers with what its training data often held, so it is
    not asked.
    """
    return len(samples) == 0 or bool(samples.max() - samples.min() <= _SILENT_SWING)
