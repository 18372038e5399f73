"""What this project wants to reach beside its peers, held against `results.json`.

Ratios of medians of one interleaved run; sizes in MB.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tests.bench.roster import FULL_CONTEXT, OURS
from tests.bench.spread import ratio

Results = Mapping[str, Any]

BATCHED = "faster-whisper, batched"


@dataclass(frozen=True, slots=True)
class Goal:
    """A bound, and what was measured."""

    what: str
    bound: float
    unit: str
    """What the bound is a multiple of, or `MB`, or `%`."""
    measured: float | None
    """None: not measured, or the peer did not take part."""

    @property
    def is_met(self) -> bool | None:
        """None when nothing was measured."""
        return None if self.measured is None else self.measured <= self.bound


def goals(tasks: Results) -> Iterator[Goal]:
    """All of them, in the order of the tasks."""
    openvino, faster = "of OpenVINO GenAI", "of faster-whisper"

    def compare(
        what: str, task: str, bound: float, peer: str, *, unit: str, own: str = OURS, field: str = "total_s"
    ) -> Goal:
        return Goal(what, bound, unit, _ratio(tasks, task, field, own, peer))

    yield compare("11 s, warm, through the actors", "short", 0.42, "openvino", unit=openvino)
    yield compare("11 s, warm, through the actors", "short", 0.22, "faster-whisper", unit=faster)
    yield compare("3 s, warm, through the actors", "small", 0.30, "openvino", unit=openvino)
    yield compare("11 s with the whole context of 30 s", "short", 1.0, "openvino", unit=openvino, own=FULL_CONTEXT)
    yield compare("first text of the 11 s", "short", 0.42, "openvino", unit=openvino, field="first_s")
    cold = "11 s, from process start to"
    yield compare(f"{cold} the first text", "cold", 0.45, "faster-whisper", unit=faster, field="first_s")
    yield compare(f"{cold} exit", "cold", 0.45, "faster-whisper", unit=faster)
    yield compare("long recording", "long", 0.50, "openvino", unit=openvino)
    yield compare("long recording", "long", 0.42, BATCHED, unit=f"{faster}, batched")
    yield Goal("long recording, word error rate", 9.3, "%", _wer(tasks, OURS))
    yield Goal("memory of all processes, 11 s", 300.0, "MB", _row(tasks, "short", OURS).get("peak_mb"))
    yield Goal("memory of all processes, long recording", 400.0, "MB", _row(tasks, "long", OURS).get("peak_mb"))
    yield Goal("model files", 82.0, "MB", tasks.get("disk", {}).get(OURS))
    yield from _level(tasks)


def _level(tasks: Results) -> Iterator[Goal]:
    """180 minutes against 5: time of a minute, memory."""
    points = {point["minutes"]: point for point in tasks.get("growth", {}).get("points", ())}
    few, much = points.get(5), points.get(180)
    time = memory = None
    if few and much:
        time = (much["total_s"][0] / 180) / (few["total_s"][0] / 5)
        memory = much["peak_mb"] / few["peak_mb"]
    yield Goal("a minute of 180 min", 1.1, "of one of 5 min", time)
    yield Goal("memory, 180 min", 1.1, "of that of 5 min", memory)


def _row(tasks: Results, task: str, label: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = tasks.get(task, {}).get("rows", {}).get(label, {})
    return found


def _ratio(tasks: Results, task: str, field: str, ours: str, theirs: str) -> float | None:
    return ratio(_row(tasks, task, ours).get(field, ()), _row(tasks, task, theirs).get(field, ()))


def _wer(tasks: Results, label: str) -> float | None:
    row = _row(tasks, "long", label)
    return 100 * row["edits"] / row["words"] if row.get("words") else None
