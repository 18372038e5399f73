"""The finished recording as one value that every writer takes, and as JSON.

Names in the JSON are those of openai-whisper and faster-whisper; docs/transcript.schema.json describes it.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from susurrus.models.results import Cue

if TYPE_CHECKING:
    from collections.abc import Mapping

    from susurrus.models.results import Transcript
    from susurrus.models.writers.subtitles import Layout

SEEKS_PER_SECOND = 100
"""openai-whisper's `seek` counts log-mel frames: 16000 Hz / a hop of 160 samples."""

_BREAKS = re.compile(r"[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]+")


@dataclass(frozen=True, slots=True)
class DocumentSegment:
    """One cue with the values of the window it was decoded in: what openai-whisper calls a segment."""

    cue: Cue
    """Times in seconds from the start of the recording."""
    window_start: float
    """Seconds."""
    language: str
    """Whisper language code."""
    temperature: float
    avg_logprob: float
    compression_ratio: float
    no_speech_prob: float

    @property
    def text(self) -> str:
        """On one line, without spaces around it."""
        return one_line(self.cue.text).strip()


@dataclass(frozen=True, slots=True)
class Document:
    """A finished recording."""

    name: str
    """What the user calls it."""
    text: str
    segments: tuple[DocumentSegment, ...]
    """In the order of time."""
    language: str
    """Empty when there was no speech: unknown."""
    language_probability: float
    language_probabilities: Mapping[str, float]
    """The most probable languages, as code -> probability; empty where the language was given."""
    duration: float
    """Seconds of audio read."""
    speech_s: float
    """Seconds of it in which somebody speaks."""
    coverage: float
    """Share of those that lie within cues; 1.0 without speech."""
    complete: bool
    """False: the audio is damaged, and this is what its good part says."""
    warnings: tuple[str, ...]

    @classmethod
    def from_transcript(cls, name: str, transcript: Transcript, *, complete: bool = True) -> Self:
        """What `Whisper.transcribe` gave back."""
        segments = tuple(
            DocumentSegment(
                cue=cue,
                window_start=segment.start,
                language=segment.decoded.language,
                temperature=segment.decoded.temperature,
                avg_logprob=segment.decoded.avg_logprob,
                compression_ratio=segment.decoded.compression_ratio,
                no_speech_prob=segment.decoded.no_speech_prob,
            )
            for segment in transcript.segments
            for cue in segment.cues
        )
        return cls(
            name=name,
            text=transcript.text,
            segments=segments,
            language=transcript.language,
            language_probability=transcript.language_probability,
            language_probabilities=transcript.language_probabilities,
            duration=transcript.duration,
            speech_s=transcript.speech_s,
            coverage=transcript.coverage,
            complete=complete,
            warnings=transcript.warnings,
        )

    @property
    def spoken(self) -> tuple[DocumentSegment, ...]:
        """The segments that have text."""
        return tuple(segment for segment in self.segments if segment.text)

    @property
    def has_words(self) -> bool:
        """Whether word times were asked for, as far as it shows."""
        return any(segment.cue.words for segment in self.segments)


def one_line(text: str) -> str:
    """The text with every line break, Unicode's included, made a space."""
    return _BREAKS.sub(" ", text)


def span_ms(start: float, end: float, duration: float) -> tuple[int, int]:
    """Start and end in whole milliseconds: start < end <= duration, whatever rounding does.

    WebVTT wants the end after the start; players drop a cue of no length.
    """
    last = max(1, round(1000 * duration))
    end_ms = min(max(round(1000 * end), round(1000 * start) + 1), last)
    return max(0, min(round(1000 * start), end_ms - 1)), end_ms


# --- JSON ---------------------------------------------------------------------------------------------------


def to_json(document: Document, _layout: Layout) -> str:
    """One object, a segment a line."""
    head = {
        "name": document.name,
        "text": document.text,
        "language": document.language or None,
        "language_probability": _number(document.language_probability),
        "language_probabilities": {code: _number(p) for code, p in document.language_probabilities.items()},
        "duration": _number(document.duration, 3),
        "speech_duration": _number(document.speech_s, 3),
        "coverage": _number(document.coverage),
        "complete": document.complete,
        "warnings": list(document.warnings),
    }
    fields = [f'"{key}": {_dump(value)}' for key, value in head.items()]
    segments = ",\n".join(f"  {_dump(segment)}" for segment in _segments(document))
    fields.append(f'"segments": [\n{segments}\n ]' if segments else '"segments": []')
    return "{\n " + ",\n ".join(fields) + "\n}\n"


def to_jsonl(document: Document, _layout: Layout) -> str:
    """A segment a line; nothing for a recording without text."""
    return "".join(f"{_dump(segment)}\n" for segment in _segments(document))


def _segments(document: Document) -> list[dict[str, Any]]:
    has_words = document.has_words
    return [_segment(index, segment, has_words=has_words) for index, segment in enumerate(document.segments)]


def _segment(index: int, segment: DocumentSegment, *, has_words: bool) -> dict[str, Any]:
    cue = segment.cue
    words = [
        {
            "word": word.text,
            "start": _number(word.start, 3),
            "end": _number(word.end, 3),
            "probability": _number(word.probability),
        }
        for word in cue.words
    ]
    return {
        "id": index,
        "seek": round(SEEKS_PER_SECOND * segment.window_start),
        "start": _number(cue.start, 3),
        "end": _number(cue.end, 3),
        "text": cue.text,
        "tokens": list(cue.tokens),
        "temperature": _number(segment.temperature),
        "avg_logprob": _number(segment.avg_logprob),
        "compression_ratio": _number(segment.compression_ratio),
        "no_speech_prob": _number(segment.no_speech_prob),
        "language": segment.language or None,
    } | ({"words": words} if has_words else {})


def _number(value: float, digits: int = 6) -> float | None:
    """Rounded, so that single precision does not show; strict JSON has no NaN and no infinity."""
    return round(float(value), digits) if math.isfinite(value) else None


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
