"""From audio to log-mel windows: reading, cutting and the features of one recording, in order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from susurrus.models.dimensions import AudioParameters
from susurrus.models.errors import OptionError
from susurrus.models.mel import LogMel
from susurrus.models.results import Span
from susurrus.models.vad import SpeechDetector
from susurrus.models.windows import MIN_SECONDS, AudioWindow, WindowCutter

Float32Array = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class MelWindow:
    """At most 30 s of audio as the encoder takes it."""

    index: int
    start: float
    """Seconds from the start of the recording."""
    end: float
    """Seconds."""
    mel: Float32Array | None
    """(n_mels, n_frames) float32: the frames that hold audio; None when nobody speaks in the window."""
    silence: float
    """Value of every frame behind the last one of `mel`."""
    speech: tuple[Span, ...]
    """Where in the window somebody speaks, in seconds from the start of the recording; empty if nobody does."""


def check_samples(samples: NDArray[np.generic], sample_rate: int) -> None:
    """Refuse an array that is not audio as the model takes it.

    Raises:
        OptionError: it is not float32 (n,), or has NaN or infinity in it.
    """
    if samples.ndim != 1 or samples.dtype != np.float32:
        raise OptionError(
            f"audio array is {samples.dtype} of shape {samples.shape}: give float32 mono samples (n,) "
            f"at {sample_rate} Hz"
        )
    if not np.isfinite(samples).all():
        raise OptionError("audio array has NaN or infinity in it: give finite samples")


class Frontend:
    """Cuts one recording into windows and computes their log-mel as the audio comes in.

    `duration` and `warnings` are complete once `windows` is exhausted.

    Args:
        audio: The model's audio parameters.
        log_mel: The model's.
        vad: Whether windows without speech are told by a voice activity detector. Otherwise only digital silence is.

    Raises:
        ModelError: The detector's weights are missing or damaged.
    """

    def __init__(self, audio: AudioParameters, log_mel: LogMel, *, vad: bool = True) -> None:
        self._audio = audio
        self._log_mel = log_mel
        self._cutter = WindowCutter(audio, SpeechDetector(audio.sample_rate) if vad else None)
        self._n_samples = 0
        self.n_windows = 0
        """Cut so far."""
        self.warnings: list[str] = []

    @property
    def duration(self) -> float:
        """Seconds of audio read so far."""
        return self._n_samples / self._audio.sample_rate

    def windows(self, blocks: Iterable[Float32Array], *, skip: int = 0) -> Iterator[MelWindow]:
        """Windows of the recording, each as soon as enough audio is there to cut it.

        Args:
            blocks: float32 mono samples at the model's sample rate, shape (n,) each, any lengths.
            skip: the first so many windows are cut, but not given: they are known.
        """
        for block in blocks:
            self._n_samples += len(block)
            yield from self._kept(self._cutter.push(block), skip)
        if self.duration < MIN_SECONDS:
            self.warnings.append(f"too short to hold speech: {self.duration:.3f} s of audio, {MIN_SECONDS} s needed")
            return
        yield from self._kept(self._cutter.finish(), skip)

    def _kept(self, windows: Iterable[AudioWindow], skip: int) -> Iterator[MelWindow]:
        for window in windows:
            self.n_windows = window.index + 1
            if window.index >= skip:
                yield self._features(window)

    def _features(self, window: AudioWindow) -> MelWindow:
        rate = self._audio.sample_rate
        start, end = window.start / rate, window.end / rate
        if not window.speech:
            return MelWindow(window.index, start, end, None, 0.0, ())
        mel, silence = self._log_mel(window.samples)
        return MelWindow(window.index, start, end, mel, silence, window.speech)
