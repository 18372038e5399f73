"""A recording's windows summed up: text, language, coverage, warnings. The same for the pipeline and in one process."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from susurrus.models.cues import Timed, seconds, uncovered
from susurrus.models.results import join_text


class Piece(Protocol):
    """A finished window: `results.Segment`, or the message of that name."""

    @property
    def text(self) -> str:
        """As decoded."""

    @property
    def cues(self) -> Sequence[Timed]:
        """The timed pieces of the text, on the recording's time line."""

    @property
    def speech(self) -> Sequence[Timed]:
        """Where somebody speaks."""

    @property
    def language(self) -> str:
        """Code; empty where nothing was decoded."""

    @property
    def language_probability(self) -> float:
        """0 to 1."""

    @property
    def language_probabilities(self) -> Mapping[str, float]:
        """Code -> probability, best first."""

    @property
    def warnings(self) -> Sequence[str]:
        """One sentence each."""


@dataclass(frozen=True, slots=True)
class Summary:
    """What the windows of a recording say together."""

    text: str
    language: str
    """The one in which most of the speech was decoded; empty when there was none."""
    language_probability: float
    language_probabilities: dict[str, float]
    speech_s: float
    """Seconds in which somebody speaks."""
    coverage: float
    """Share of those that lie within cues; 1.0 without speech."""
    warnings: tuple[str, ...]


def summarise(pieces: Iterable[Piece]) -> Summary:
    """Sum up windows, given in order."""
    pieces = list(pieces)
    spoken, missed = 0.0, 0.0
    by_language: defaultdict[str, float] = defaultdict(float)
    for piece in pieces:
        spoken += seconds(piece.speech)
        missed += seconds(uncovered(piece.cues, piece.speech))
        if piece.language and piece.text:
            by_language[piece.language] += seconds(piece.speech)
    language = max(by_language, key=by_language.__getitem__, default="")
    latest = next((piece for piece in reversed(pieces) if piece.language == language and piece.text), None)
    return Summary(
        text=join_text(piece.text for piece in pieces),
        language=language,
        language_probability=latest.language_probability if latest else 0.0,
        language_probabilities=dict(latest.language_probabilities) if latest else {},
        speech_s=spoken,
        coverage=1.0 - missed / spoken if spoken > 0 else 1.0,
        warnings=tuple(warning for piece in pieces for warning in piece.warnings),
    )
