"""Finding speech: samples to probabilities, probabilities to spans, as the audio comes in.

The rules are those of Silero's `get_speech_timestamps` (silero-vad, utils_vad.py), as a state machine that takes one
probability at a time.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from susurrus.models.blas import one_blas_thread
from susurrus.models.silero import CHUNK, CONTEXT, SAMPLE_RATE, silero_network

ONSET = 0.5
"""Probability from which a chunk begins speech."""
OFFSET = 0.35
"""Probability below which a chunk may end it: Silero's `neg_threshold`."""
MIN_SPEECH = 0.1
"""Seconds that speech lasts at least: the vowel of a short word."""
MIN_SILENCE = 0.1
"""Seconds below `OFFSET` that end speech: longer than the closure of a plosive."""
FAINT = 0.2
"""Probability that makes speech of a recording of at most `SHORT` seconds in which there is none otherwise: a word that
was cut close. What noise, tones and clicks reach is 0.17."""
SHORT = 2.0
"""Seconds."""
SILENT_SWING = 4 / 32768
"""Steps of 16 bits from the lowest to the highest sample of digital silence, dither included."""

_LEVEL = 0.01  # root mean square that quieter audio is amplified to: the network misses speech below -50 dBFS
_MOST_GAIN = 30.0
_FALL = 0.9  # of the level in half a second: as slow as a pause, so that it is the speech's level that counts
_GROUP = 16  # chunks computed at once: half a second. Always so many, as another number would round otherwise

FloatArray = NDArray[np.float32]


class Detector(Protocol):
    """Gives every chunk of one recording the probability that somebody speaks in it."""

    chunk: int
    """Samples."""

    def push(self, samples: FloatArray) -> list[float]:
        """Takes the next samples, (n,) with any n, and gives the probabilities that are known by now, in order."""

    def finish(self) -> list[float]:
        """The probabilities of what is left; that of the last chunk is for as much as there is of it."""


class SpeechDetector:
    """Silero's network behind an energy gate.

    Half a second of digital silence is answered 0 without asking the network: it is spared the work, and nobody speaks
    there. After that the network starts anew, as at the start of a recording. Quiet audio is amplified, by its loudest
    half second of late.

    Raises:
        ModelError: The network's weights are missing or damaged.
        ValueError: The network does not know the sample rate.
    """

    chunk = CHUNK

    def __init__(self, sample_rate: int = SAMPLE_RATE) -> None:
        if sample_rate != SAMPLE_RATE:
            raise ValueError(f"the speech detector knows {SAMPLE_RATE} Hz only, not {sample_rate}")
        self._network = silero_network()
        self._state = self._network.initial_state()
        self._level = 0.0  # root mean square
        self._waiting = np.zeros(CONTEXT + _GROUP * CHUNK, np.float32)  # the context, then what no group is full of yet
        self._filled = 0

    def push(self, samples: FloatArray) -> list[float]:
        """Probabilities of the groups of chunks that are complete."""
        found: list[float] = []
        with one_blas_thread():
            while len(samples):
                taken = samples[: _GROUP * CHUNK - self._filled]
                end = CONTEXT + self._filled
                self._waiting[end : end + len(taken)] = taken
                self._filled += len(taken)
                samples = samples[len(taken) :]
                if self._filled == _GROUP * CHUNK:
                    found += self._group()
        return found

    def finish(self) -> list[float]:
        """Probabilities of the rest, the last chunk filled up with zeros."""
        n = -(-self._filled // CHUNK)
        self._waiting[CONTEXT + self._filled :] = 0
        with one_blas_thread():
            return self._group()[:n] if n else []

    def _group(self) -> list[float]:
        group = self._waiting[CONTEXT:]
        self._level = max(float(np.sqrt(np.mean(np.square(group)))), _FALL * self._level)
        if np.ptp(group) <= SILENT_SWING:
            found, self._state = [0.0] * _GROUP, self._network.initial_state()
        else:
            gain = min(max(1.0, _LEVEL / self._level), _MOST_GAIN)
            chunks = np.lib.stride_tricks.sliding_window_view(gain * self._waiting, CONTEXT + CHUNK)[::CHUNK]
            probabilities, self._state = self._network(chunks, self._state)
            found = probabilities.tolist()
        self._waiting[:CONTEXT] = self._waiting[-CONTEXT:].copy()
        self._filled = 0
        return found


class SpeechSpans:
    """Where somebody speaks, so far. Positions are samples from the start of the recording.

    Args:
        chunk: Samples that a probability is for.
        sample_rate: Hertz.
        min_speech: Seconds; shorter speech is none.
    """

    closed: list[tuple[int, int]]
    """Spans that have ended, in order. The caller removes those that it needs no longer."""
    end: int
    """Where the chunk that was pushed last ends."""

    def __init__(self, chunk: int, sample_rate: int, min_speech: float = MIN_SPEECH) -> None:
        self._chunk = chunk
        self._min_speech = min_speech * sample_rate
        self._min_silence = MIN_SILENCE * sample_rate
        self._start: int | None = None
        self._quiet: int | None = None  # start of a silence that may end the speech
        self._short = SHORT * sample_rate
        self._peak = 0.0
        self.closed = []
        self.end = 0

    @property
    def open(self) -> int | None:
        """Where the speech started that has not ended, if it is long enough to be some."""
        end = self.end if self._quiet is None else self._quiet
        return self._start if self._start is not None and end - self._start > self._min_speech else None

    @property
    def possible(self) -> int:
        """Where speech that is not among `closed` starts at the earliest."""
        return self.end if self._start is None else self._start

    def push(self, probability: float) -> None:
        """Takes the probability of the next chunk."""
        at, self.end = self.end, self.end + self._chunk
        self._peak = max(self._peak, probability)
        if probability >= ONSET:
            self._quiet = None
            if self._start is None:
                self._start = at
        elif probability < OFFSET and self._start is not None:
            if self._quiet is None:
                self._quiet = at
            if at - self._quiet >= self._min_silence:
                self._close(self._quiet)

    def finish(self, end: int) -> None:
        """Ends the recording at sample `end`, within the last chunk or behind it, and the speech with it."""
        self.end = end
        self._close(end)
        if not self.closed and end <= self._short and self._peak >= FAINT:
            self.closed.append((0, end))

    def _close(self, end: int) -> None:
        if self._start is not None and end - self._start > self._min_speech:
            self.closed.append((self._start, end))
        self._start = self._quiet = None
