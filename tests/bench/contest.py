"""Several engines on the same recordings in turns, A B A B: a change in the machine's mood meets all of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.bench.corpus import Clip, error_rate
from tests.bench.fleet import Fleet, WorkerError
from tests.bench.footprint import SHARE, Peak
from tests.bench.roster import Contestant


@dataclass(slots=True)
class Row:
    """What one engine did in one task."""

    total_s: list[float] = field(default_factory=list)
    """From a path to the whole text, each time."""
    first_s: list[float] = field(default_factory=list)
    """To the first part of it."""
    cpu_s: list[float] = field(default_factory=list)
    """Processor time."""
    texts: dict[str, str] = field(default_factory=dict)
    """The last text of every recording."""
    peak_mb: float = 0.0
    """The most memory of all its processes together (PSS) that was seen."""
    edits: int = 0
    words: int = 0
    """Of the references of the recordings that were heard."""
    note: str = ""
    """What kept it from all rounds."""

    def to_json(self) -> dict[str, Any]:
        """For `results.json`; times to the tenth of a millisecond."""
        numbers = {name: [round(value, 4) for value in getattr(self, name)] for name in ("total_s", "first_s", "cpu_s")}
        return asdict(self) | numbers | {"peak_mb": round(self.peak_mb, 1)}


@dataclass(frozen=True, slots=True)
class Rules:
    """How often and how long."""

    rounds: int
    limit_s: float
    """An engine that would need more for a task, as far as its last turn tells, does fewer rounds; one at least."""
    language: str = "en"
    timeout_s: float | None = None
    """For one answer; None: what the fleet has."""
    watches_memory: bool = False
    """In every turn, at a cost of at most a fiftieth of a processor."""


class Contest:
    """Takes down what the engines do.

    Args:
        fleet: their processes.
        contestants: in the order of their turns.
        rules: see there.
    """

    def __init__(self, fleet: Fleet, contestants: Sequence[Contestant], rules: Rules) -> None:
        self.rows = {contestant.label: Row() for contestant in contestants}
        self._fleet, self._contestants, self._rules = fleet, contestants, rules
        self._out: set[str] = set()
        self._spent = dict.fromkeys(self.rows, 0.0)
        self._planned = rules.rounds  # turns of each contestant

    def warm_up(self, audio: Path, *, watches_memory: bool = False) -> None:
        """Have everybody hear a recording once and not count it, then once more to see the memory it takes."""
        for contestant in self._still_in():
            self._turn(contestant, audio)
        for contestant in self._still_in() if watches_memory else ():
            self._turn(contestant, audio, share=1.0)

    def run(self, clips: Iterable[Clip]) -> None:
        """Have everybody hear every recording, in turns, as often as the rules say."""
        clips = list(clips)
        self._planned = self._rules.rounds * len(clips)
        for number in range(self._rules.rounds):
            for clip in clips:
                for contestant in self._still_in():
                    self._measure(contestant, clip)
            self._fleet.say(f"  round {number + 1} of {self._rules.rounds}")

    def run_together(self, clips: Sequence[Clip]) -> None:
        """Have everybody hear all recordings given at once."""
        for _ in range(self._rules.rounds):
            for contestant in self._still_in():
                fields = {"audio": [str(clip.path) for clip in clips], "language": self._rules.language}
                answer = self._ask(contestant, "hear_all", **fields)
                if answer:
                    row = self.rows[contestant.label]
                    self._count(contestant, row, answer)
                    row.texts = dict(zip((clip.name for clip in clips), answer["texts"], strict=True))

    def score(self, clips: Sequence[Clip]) -> None:
        """Compare the texts with what is said."""
        for row in self.rows.values():
            heard = [clip for clip in clips if clip.name in row.texts and clip.text is not None]
            if heard:
                found = error_rate(heard, [row.texts[clip.name] for clip in heard])
                row.edits, row.words = found.edits, found.length

    def to_json(self) -> Mapping[str, Any]:
        """Rows by label, of those who did anything; and why not, of the others."""
        return {label: row.to_json() for label, row in self.rows.items() if row.total_s or row.note}

    def _still_in(self) -> list[Contestant]:
        return [contestant for contestant in self._contestants if contestant.label not in self._out]

    def _measure(self, contestant: Contestant, clip: Clip) -> None:
        row = self.rows[contestant.label]
        answer = self._turn(contestant, clip.path, share=SHARE if self._rules.watches_memory else 0.0)
        if not answer:
            return
        row.first_s.append(answer["first_s"])
        row.texts[clip.name] = answer["text"]
        self._count(contestant, row, answer)

    def _count(self, contestant: Contestant, row: Row, answer: Mapping[str, Any]) -> None:
        row.total_s.append(answer["total_s"])
        row.cpu_s.append(answer["cpu_s"])
        self._spent[contestant.label] += answer["total_s"]
        turns = len(row.total_s)
        if turns < self._planned and self._spent[contestant.label] + answer["total_s"] > self._rules.limit_s:
            self._out.add(contestant.label)
            row.note = f"{turns} of {self._planned} turns: more would take longer than {self._rules.limit_s:.0f} s"

    def _turn(self, contestant: Contestant, audio: Path, *, share: float = 0.0) -> Mapping[str, Any]:
        """Have one recording heard; with a share of a processor for looking at memory meanwhile."""
        fields = {"audio": str(audio), "language": self._rules.language}
        if not share:
            return self._ask(contestant, "hear", **fields)
        try:
            pid = self._fleet.worker(contestant).pid
        except WorkerError as error:
            return self._drop(contestant, str(error))
        with Peak(pid, share) as peak:
            answer = self._ask(contestant, "hear", **fields)
        row = self.rows[contestant.label]
        row.peak_mb = max(row.peak_mb, peak.mb)
        return answer

    def _ask(self, contestant: Contestant, what: str, **fields: Any) -> Mapping[str, Any]:
        """The answer; empty when there is none, and then the contestant is out."""
        try:
            return self._fleet.ask(contestant, what, timeout_s=self._rules.timeout_s, **fields)
        except WorkerError as error:
            return self._drop(contestant, str(error))

    def _drop(self, contestant: Contestant, reason: str) -> Mapping[str, Any]:
        self._out.add(contestant.label)
        self.rows[contestant.label].note = reason
        self._fleet.say(f"  {contestant.label}: {reason}")
        return {}
