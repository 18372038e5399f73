"""What transcription gives back, in one process: partials while a window is decoded, segments, the transcript."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """The whole text of one window as far as it is decoded."""

    text: str
    """Whole characters only."""
    stable: int
    """`text[:stable]` begins every later hypothesis of the window: all but what the newest token added, which the
    next one may still make into another word."""
    tokens: tuple[int, ...]
    """Token ids sampled so far, without the prompt and the end token."""


@dataclass(frozen=True, slots=True)
class DecodedWindow:
    """The finished text of one window."""

    text: str
    tokens: tuple[int, ...]
    language: str
    """Whisper language code."""
    language_probability: float
    """Softmax over the language tokens; 1.0 where nothing was detected because the caller named the language."""
    truncated: bool
    """The token limit came before the end token."""


@dataclass(frozen=True, slots=True)
class Partial:
    """A hypothesis of the window that is being decoded. Replaces the earlier ones of that window."""

    window: int
    start: float
    """Seconds."""
    end: float
    """Seconds."""
    hypothesis: Hypothesis


@dataclass(frozen=True, slots=True)
class Segment:
    """A finished window."""

    window: int
    start: float
    """Seconds."""
    end: float
    """Seconds."""
    text: str
    """As decoded: the leading space that separates it from the text before is part of it."""
    tokens: tuple[int, ...]
    language: str
    """Empty for a window without speech."""
    language_probability: float
    truncated: bool


@dataclass(frozen=True, slots=True)
class Transcript:
    """The whole recording."""

    text: str
    segments: tuple[Segment, ...]
    language: str
    """Of the first window with speech; empty when there was none."""
    language_probability: float
    duration: float
    """Seconds of audio read."""
    warnings: tuple[str, ...]
    """One sentence each: damaged file, audio too short."""
    timings: dict[str, float]
    """Seconds of work: `frontend`, `encoder`, `decoder`."""


def join_text(pieces: Iterable[str]) -> str:
    """Text of consecutive windows as one string.

    Whisper's tokens carry the space before a word, so pieces are joined as they are; only the space at the very
    start goes.
    """
    return "".join(pieces).removeprefix(" ")
