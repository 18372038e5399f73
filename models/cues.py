"""From sampled tokens to cues: reading the timestamps, keeping times inside the speech, measuring coverage.

References: `transcribe` in whisper/transcribe.py (openai-whisper), the part that slices tokens at timestamps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from susurrus.models.results import Cue, Span

if TYPE_CHECKING:
    from susurrus.models.tokenizer import Tokenizer

MIN_CUE_SECONDS = 0.02
"""One step of Whisper's clock: no cue is shorter, so that its end is after its start."""


class Timed(Protocol):
    """Anything with a start and an end in seconds."""

    @property
    def start(self) -> float:
        """Seconds."""

    @property
    def end(self) -> float:
        """Seconds."""


def read_cues(tokens: Iterable[int], tokenizer: Tokenizer, *, step: float, duration: float) -> tuple[Cue, ...]:
    """Slice tokens at their timestamps.

    A cue begins at the last timestamp before its text, or where the cue before ended, and ends at the first after it,
    or with the window. The cues' texts join to the text of all tokens; half a character goes to the cue that completes
    it.

    Args:
        tokens: sampled in one window, timestamps included.
        tokenizer: of the model.
        step: seconds from one timestamp to the next.
        duration: seconds of audio in the window.
    """
    begin, eot = tokenizer.special.timestamp_begin, tokenizer.special.eot
    text = tokenizer.incremental()
    cues: list[Cue] = []
    start, words, said = 0.0, list[int](), ""
    for token in tokens:
        if token < eot:
            words.append(token)
            said += text.push(token)
        elif token >= begin:
            time = (token - begin) * step
            if said:
                cues.append(Cue(start, time, said, tuple(words)))
                words, said = [], ""
            start = time
    if said:
        cues.append(Cue(start, duration, said, tuple(words)))
    return tuple(cues)


def fit_cues(cues: Iterable[Cue], speech: Sequence[Timed], duration: float) -> tuple[Cue, ...]:
    """Keep cues in order, inside the window, and off the silence around the speech they hold.

    Whisper lets a cue begin with the silence before it or end after the audio does.

    Args:
        cues: in order; times as sampled.
        speech: where somebody speaks, in order; may be empty.
        duration: seconds of audio in the window.
    """
    fitted: list[Cue] = []
    earliest = 0.0
    for cue in cues:
        start, end = max(cue.start, earliest), min(cue.end, duration)
        heard = [span for span in speech if span.start < end and span.end > start]
        if heard:
            start, end = max(start, heard[0].start), min(end, heard[-1].end)
        start = min(start, max(0.0, duration - MIN_CUE_SECONDS))
        end = max(end, min(start + MIN_CUE_SECONDS, duration))
        fitted.append(replace(cue, start=start, end=end))
        earliest = end
    return tuple(fitted)


def shift_cues(cues: Iterable[Cue], by: float, until: float) -> tuple[Cue, ...]:
    """The same cues on another time line: `by` seconds later, none after `until`."""
    return tuple(
        replace(
            cue,
            start=min(cue.start + by, until),
            end=min(cue.end + by, until),
            words=tuple(
                replace(word, start=min(word.start + by, until), end=min(word.end + by, until)) for word in cue.words
            ),
        )
        for cue in cues
    )


def uncovered(cues: Sequence[Timed], speech: Sequence[Timed]) -> Iterator[Span]:
    """The stretches of speech that lie in no cue. Both sequences are in order."""
    for span in speech:
        start = span.start
        for cue in cues:
            if cue.end <= start or cue.start >= span.end:
                continue
            if cue.start > start:
                yield Span(start, cue.start)
            start = max(start, cue.end)
        if start < span.end:
            yield Span(start, span.end)


def seconds(spans: Iterable[Timed]) -> float:
    """Their length in all."""
    return sum(span.end - span.start for span in spans)
