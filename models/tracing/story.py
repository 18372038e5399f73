"""The records of one window, put in order: what was heard, prompted, tried, and taken."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from susurrus.models.tracing.search import Record


@dataclass(slots=True)
class Story:
    """What the decoder did with one window; parts are empty when it was stopped before them."""

    window: Record = field(default_factory=dict)
    heard: Record = field(default_factory=dict)
    language: Record = field(default_factory=dict)
    prompt: Record = field(default_factory=dict)
    chosen: Record = field(default_factory=dict)
    timed: Record = field(default_factory=dict)
    resumed: Record = field(default_factory=dict)
    result: Record = field(default_factory=dict)
    steps: list[Record] = field(default_factory=list)
    tokens: list[Record] = field(default_factory=list)
    attempts: list[Record] = field(default_factory=list)

    @classmethod
    def from_records(cls, records: Iterable[Record]) -> Story:
        """Sort records; those of kinds that are not known here are left out."""
        story = cls()
        several: dict[str, list[Record]] = {"step": story.steps, "token": story.tokens, "attempt": story.attempts}
        single = ("window", "heard", "language", "prompt", "chosen", "timed", "resumed", "result")
        for record in records:
            kind = record.get("kind")
            if kind in several:
                several[kind].append(record)
            elif kind in single:
                setattr(story, kind, record)
        return story

    @property
    def options(self) -> dict[str, Any]:
        """What the user asked of the job."""
        options: dict[str, Any] = self.window.get("options", {})
        return options

    @property
    def speech_seconds(self) -> float:
        """How long somebody speaks in the window."""
        return float(sum(end - start for start, end in self.window.get("speech", ())))

    @property
    def prompt_spellings(self) -> list[str]:
        """The tokens of the prompt, as text."""
        return [spelling for _, spelling in self.prompt.get("tokens", ())]

    def of_attempt(self, number: int) -> list[Record]:
        """The tokens of an attempt."""
        return [token for token in self.tokens if token["attempt"] == number]

    @property
    def taken_attempt(self) -> Record:
        """The attempt that was chosen; the last one if none was, or nothing at all."""
        number = self.resumed.get("taken") or self.chosen.get("attempt")
        chosen = [attempt for attempt in self.attempts if attempt["number"] == number]
        return (chosen or self.attempts[-1:] or [{}])[0]

    @property
    def taken_tokens(self) -> list[Record]:
        """The tokens of that attempt, of all rows."""
        return self.of_attempt(self.taken_attempt.get("number", max((t["attempt"] for t in self.tokens), default=0)))
