"""Cutting audio of any length into windows that a model can take: speech apart from what is none, at pauses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from susurrus.models.dimensions import AudioParameters
from susurrus.models.results import Span
from susurrus.models.vad import MIN_SPEECH, SILENT_SWING, Detector, SpeechSpans

MIN_SECONDS = 0.1
"""Audio shorter than this in all is not decoded: it is less than one spoken syllable, and Whisper, which then
sees 29.9 s of padding, answers with a word of its own."""

GAP_SECONDS = 3.0
"""A gap in the speech that is as long as this ends the window: no cue spans it, and the decoder never sees it."""
LEAD_SECONDS = 0.5
"""Audio of a window before its first speech. Under the second within which Whisper has to begin its first cue."""
TAIL_SECONDS = 0.5
"""Audio of a window after its last speech."""
SLIVER_SECONDS = 0.5
"""Less than this without speech is no window of its own, but part of the one beside it."""
PAD_SECONDS = 0.2
"""What a span of speech is widened by: the detector is late for soft beginnings, and early at soft ends."""

_REST_SECONDS = 1.0  # least audio that a cut leaves for the next window
_PAUSE_SECONDS = 0.2  # length whose energy is compared: longer than the closure of a plosive, shorter than a pause

Samples = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class AudioWindow:
    """One window of a recording."""

    index: int
    """0, 1, 2, ... in a recording."""
    start: int
    """Sample of the recording at which it starts."""
    samples: Samples
    """(n,), n >= 1, at most the model's window."""
    speech: tuple[Span, ...]
    """Where in it somebody speaks, in seconds from the start of the recording; empty if nobody does."""

    @property
    def end(self) -> int:
        """Sample of the recording behind its last one."""
        return self.start + len(self.samples)


class WindowCutter:
    """Cuts a stream of samples into windows whose concatenation is the stream, sample for sample.

    A window with speech starts shortly before its first speech and is as long as the model can take, unless a gap of
    `GAP_SECONDS` ends it; if more speech is there than fits, it is cut in the longest pause of its last third, and in
    its quietest place when there is no pause. What lies between such windows are windows without speech.

    Where windows are cut depends on the samples only, not on how they arrive. Memory is one window and a second more,
    however long the recording is.

    Args:
        audio: The model's audio parameters.
        detector: Tells speech from what is none; of one recording. Without, everything but digital silence is speech.
    """

    def __init__(self, audio: AudioParameters, detector: Detector | None = None) -> None:
        def length(seconds: float) -> int:
            return min(round(seconds * audio.sample_rate), audio.n_samples // 6)

        self._rate = audio.sample_rate
        self._most = audio.n_samples
        self._gap, self._lead, self._tail = length(GAP_SECONDS), length(LEAD_SECONDS), length(TAIL_SECONDS)
        self._sliver, self._pad, self._rest = length(SLIVER_SECONDS), length(PAD_SECONDS), length(_REST_SECONDS)
        self._reach = min(length(_PAUSE_SECONDS / 2), self._rest)
        self._detect = detector is not None
        self._detector: Detector = _Everything(self._reach) if detector is None else detector
        self._speech = SpeechSpans(self._detector.chunk, self._rate, MIN_SPEECH if self._detect else 0)
        self._tape = _Tape()
        self._index = 0

    def push(self, samples: Samples) -> list[AudioWindow]:
        """Takes the next samples, float32 (n,) with any n, and gives the windows that are complete."""
        windows: list[AudioWindow] = []
        for at in range(0, len(samples), self._rate):
            piece = samples[at : at + self._rate]
            self._tape.append(piece)
            windows += self._advance(self._detector.push(piece))
        return windows

    def finish(self) -> list[AudioWindow]:
        """The last windows, none if there is no audio left."""
        probabilities = self._detector.finish()
        windows = self._advance(probabilities[:-1])
        for probability in probabilities[-1:]:
            self._speech.push(probability)
        self._speech.finish(self._tape.end)  # before the windows: the last chunk may end later than the audio
        windows += self._complete()
        if spans := self._spans():
            end = spans[-1][1] + self._tail
            windows.append(self._cut(end if self._tape.end - end >= self._sliver else self._tape.end))
        while self._tape.start < self._tape.end:
            windows.append(self._cut(min(self._tape.start + self._most, self._tape.end)))
        return windows

    def _advance(self, probabilities: list[float]) -> list[AudioWindow]:
        windows: list[AudioWindow] = []
        for probability in probabilities:
            self._speech.push(probability)
            windows += self._complete()
        return windows

    def _complete(self) -> Iterator[AudioWindow]:
        """The windows that nothing that may come can change."""
        while True:
            spans, start = self._spans(), self._tape.start
            quiet = (spans[0][0] if spans else self._speech.possible) - self._lead - start
            if quiet >= self._most or (spans and quiet >= self._sliver):
                yield self._cut(start + min(quiet, self._most))
            elif spans and self._speech.possible - spans[-1][1] >= self._gap:
                yield self._cut(min(spans[-1][1] + self._tail, start + self._most))
            elif spans and self._speech.end - start > self._most:
                yield self._cut(self._full(spans))
            else:
                return

    def _spans(self) -> list[tuple[int, int]]:
        """Speech from the end of the last window on; that which has not ended as far as it is known."""
        spans = list(self._speech.closed)
        if (start := self._speech.open) is not None:
            spans.append((start, self._speech.end))
        return [(max(start, self._tape.start), end) for start, end in spans if end > self._tape.start]

    def _full(self, spans: list[tuple[int, int]]) -> int:
        """Where to cut when more audio is there than fits: the longest pause, the last of several."""
        limit = self._tape.start + self._most
        earliest, latest = limit - self._most // 3, limit - self._rest
        pauses = [(end, start) for (_, end), (start, _) in pairwise(spans) if earliest - self._tail <= end <= latest]
        if spans[-1][1] < limit - self._reach:  # all of the speech fits
            pauses.append((spans[-1][1], self._speech.possible))
            latest = limit - self._reach
        if not pauses:
            return self._quietest(earliest, latest)
        start, end = max(reversed(pauses), key=lambda pause: pause[1] - pause[0])
        if end - start >= self._tail + self._lead:
            return min(start + self._tail, limit)
        return self._quietest(start, min(end, latest))

    def _quietest(self, first: int, last: int) -> int:
        """The cut from `first` to `last` with the least energy around it; the last of several: fewer windows."""
        around = self._tape.between(first - self._reach, last + self._reach)
        energy = np.concatenate(([0.0], np.cumsum(np.square(around, dtype=np.float64))))
        moving = energy[2 * self._reach :] - energy[: -2 * self._reach]  # one for each allowed cut
        return last - int(moving[::-1].argmin())

    def _cut(self, end: int) -> AudioWindow:
        start, spans = self._tape.start, self._spans()
        samples = self._tape.take(end)
        self._speech.closed = [span for span in self._speech.closed if span[1] > end]
        self._index += 1
        return AudioWindow(self._index - 1, start, samples, self._speech_in(start, samples, spans))

    def _speech_in(self, start: int, samples: Samples, spans: list[tuple[int, int]]) -> tuple[Span, ...]:
        """The spans that begin in a window, widened as far as the window goes, those that then touch as one."""
        if not self._detect and is_silent(samples):
            return ()
        end = start + len(samples)
        joined: list[tuple[int, int]] = []
        for first, last in ((max(a - self._pad, start), min(b + self._pad, end)) for a, b in spans if a < end):
            begin = joined.pop()[0] if joined and first <= joined[-1][1] else first
            joined.append((begin, last))
        return tuple(Span(first / self._rate, last / self._rate) for first, last in joined)


class _Everything:
    """A detector that hears speech everywhere."""

    def __init__(self, chunk: int) -> None:
        self.chunk = chunk
        self._rest = 0

    def push(self, samples: Samples) -> list[float]:
        chunks, self._rest = divmod(self._rest + len(samples), self.chunk)
        return [1.0] * chunks

    def finish(self) -> list[float]:
        return [1.0] if self._rest else []


class _Tape:
    """The samples that are in no window yet, from `start` to `end` of the recording."""

    def __init__(self) -> None:
        self.start = self.end = 0
        self._buffer = np.empty(0, np.float32)

    def append(self, samples: Samples) -> None:
        n = self.end - self.start
        if n + len(samples) > len(self._buffer):
            grown = np.empty(2 * (n + len(samples)), np.float32)
            grown[:n] = self._buffer[:n]
            self._buffer = grown
        self._buffer[n : n + len(samples)] = samples
        self.end += len(samples)

    def between(self, start: int, end: int) -> Samples:
        """A view of the samples from `start` to `end`."""
        return self._buffer[start - self.start : end - self.start]

    def take(self, end: int) -> Samples:
        """The samples up to `end`, which are on the tape no longer."""
        taken = self.between(self.start, end).copy()
        rest = self.between(end, self.end).copy()
        self._buffer[: len(rest)] = rest
        self.start = end
        return taken


def is_silent(samples: Samples) -> bool:
    """Whether samples (n,) are digital silence: zeros, a constant, or the dither of a 16-bit recorder.

    Dither moves a sample by one step of 16 bits up or down (two with a triangular distribution). Nothing
    within that is speech, and to nothing Whisper answers with what its training data often held, so it is
    not asked.
    """
    return len(samples) == 0 or bool(samples.max() - samples.min() <= SILENT_SWING)
