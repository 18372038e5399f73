"""What transcription gives back, in one process: partials while a window is decoded, segments, the transcript."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """The whole text of one window as far as it is decoded."""

    text: str
    """Whole characters only."""
    stable: int
    """`text[:stable]` begins every later hypothesis of the window at this temperature: all but what the newest token
    added, which the next one may still make into another word."""
    tokens: tuple[int, ...]
    """Token ids sampled so far, timestamps included, without the prompt and the end token."""
    temperature: float
    """At which they are sampled. A hypothesis of a higher one starts anew: the cooler text was not good enough."""


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of time."""

    start: float
    """Seconds."""
    end: float
    """Seconds."""


@dataclass(frozen=True, slots=True)
class Word:
    """One word with the marks that stick to it."""

    start: float
    """Seconds."""
    end: float
    """Seconds."""
    text: str
    """The words of a cue join to its text: the space before a word is part of it."""
    probability: float
    """Mean probability of its tokens."""


@dataclass(frozen=True, slots=True)
class Cue:
    """A timed piece of a window's text, what subtitles show at once: the field's "segment" with start and end."""

    start: float
    """Seconds."""
    end: float
    """Seconds; after `start`."""
    text: str
    """As decoded: the leading space that separates it from the text before is part of it."""
    tokens: tuple[int, ...]
    """Text tokens, timestamps left out."""
    words: tuple[Word, ...] = ()
    """Empty unless word times were asked for."""


@dataclass(frozen=True, slots=True)
class DecodedWindow:
    """The finished text of one window. Times are seconds from the start of the window."""

    text: str
    tokens: tuple[int, ...]
    """Everything sampled, timestamps included."""
    cues: tuple[Cue, ...]
    """Their texts join to `text`."""
    language: str
    """Whisper language code."""
    language_probability: float
    """Softmax over the language tokens; 1.0 where the caller named the language."""
    language_probabilities: Mapping[str, float]
    """The most probable languages of what was heard so far, best first; empty for an English-only model."""
    temperature: float
    """At which the text was sampled: above 0 when cooler tries were not good enough."""
    avg_logprob: float
    """Mean log-probability of the sampled tokens, the end included."""
    compression_ratio: float
    """Bytes of the text over its zlib-compressed bytes: high for text that repeats itself."""
    no_speech_prob: float
    """Probability of `<|nospeech|>` right after `<|startoftranscript|>`."""
    truncated: bool
    """The token limit came before the end token."""
    warnings: tuple[str, ...] = ()
    """One sentence each: prompt cut to fit, language doubtful."""


NOTHING = DecodedWindow(
    text="",
    tokens=(),
    cues=(),
    language="",
    language_probability=0.0,
    language_probabilities={},
    temperature=0.0,
    avg_logprob=0.0,
    compression_ratio=0.0,
    no_speech_prob=0.0,
    truncated=False,
)
"""What a window is in which nobody speaks: it is not decoded."""


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
    """A finished window. Times are seconds from the start of the recording."""

    window: int
    start: float
    """Seconds."""
    end: float
    """Seconds."""
    speech: tuple[Span, ...]
    """Where in the window somebody speaks; empty for a window that was not decoded."""
    decoded: DecodedWindow
    """What was understood, with its cues on the recording's time line."""

    @property
    def text(self) -> str:
        """As decoded: the leading space that separates it from the text before is part of it."""
        return self.decoded.text

    @property
    def cues(self) -> tuple[Cue, ...]:
        """The timed pieces of the text."""
        return self.decoded.cues

    @property
    def language(self) -> str:
        """Whisper language code; empty for a window that was not decoded."""
        return self.decoded.language

    @property
    def language_probability(self) -> float:
        """1.0 where the caller named the language."""
        return self.decoded.language_probability

    @property
    def language_probabilities(self) -> Mapping[str, float]:
        """The most probable languages of what was heard so far, best first."""
        return self.decoded.language_probabilities

    @property
    def warnings(self) -> tuple[str, ...]:
        """One sentence each."""
        return self.decoded.warnings


@dataclass(frozen=True, slots=True)
class Transcript:
    """The whole recording."""

    text: str
    segments: tuple[Segment, ...]
    language: str
    """The one most of the speech is in; empty when there was no speech: unknown."""
    language_probability: float
    language_probabilities: Mapping[str, float]
    """The most probable languages, best first."""
    duration: float
    """Seconds of audio read."""
    speech_s: float
    """Seconds of it in which somebody speaks."""
    coverage: float
    """Share of those that lie within cues; 1.0 without speech."""
    warnings: tuple[str, ...]
    """One sentence each: damaged file, audio too short, prompt cut."""
    timings: dict[str, float]
    """Seconds of work: `frontend`, `encoder`, `decoder`."""


def join_text(pieces: Iterable[str]) -> str:
    """Text of consecutive windows as one string.

    Whisper's tokens carry the space before a word, so pieces are joined as they are; only the space at the very
    start goes.
    """
    return "".join(pieces).removeprefix(" ")
