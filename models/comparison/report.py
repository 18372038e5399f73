"""The outcome of a comparison as a table for people and as an object for programs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from susurrus.models.comparison.comparison import Comparison, StageResult
from susurrus.models.comparison.diagnosis import explain, recognise_fault
from susurrus.models.comparison.differences import Difference

_STATES = {True: "agrees", False: "PARTS", None: "-"}
_HEAD = ("stage", "largest", "mean", "relative", "alone", "allowed", "")


def in_words(comparison: Comparison, clip: Path) -> Iterator[str]:
    """Yields the lines of the table, then of the verdict."""
    seconds = f"{len(comparison.reference.samples):,} samples in its first window"
    yield f"clip       {clip}: {seconds}"
    yield f"reference  {comparison.reference.pipeline.name}"
    yield f"model      {comparison.other.pipeline.name}"
    yield ""
    yield _row(_HEAD, "")
    yield from (_row(_cells(result), result.note) for result in comparison.results)
    yield ""
    yield "largest, mean, relative: each pipeline on what it computed itself; alone: relative, on the reference's own"
    yield "input; relative: root mean square of the differences over the reference's spread; allowed: of alone."
    yield ""
    yield from explain(comparison)


def as_object(comparison: Comparison, clip: Path) -> dict[str, Any]:
    """The same, for JSON: a number that is not finite is null."""
    parts_at = comparison.parts_at
    return {
        "clip": str(clip),
        "reference": comparison.reference.pipeline.name,
        "model": comparison.other.pipeline.name,
        "agree": parts_at is None,
        "parts_at": parts_at,
        "fault": recognise_fault(comparison, parts_at) if parts_at else None,
        "verdict": list(map(str.strip, explain(comparison))),
        "stages": [_stage(result) for result in comparison.results],
        "texts": {
            "reference": comparison.reference.text,
            "model": comparison.other.text if comparison.complete else None,
        },
    }


def _cells(result: StageResult) -> tuple[str, ...]:
    together, alone = result.together, result.alone
    numbers = ("", "", "") if together is None else (together.largest, together.mean, together.relative)
    rest = ("" if alone is None else alone.relative, "" if result.allowed is None else result.allowed)
    return (result.stage, *map(_number, (*numbers, *rest)), _STATES[result.agrees])


def _number(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.2g}"


def _row(cells: tuple[str, ...], note: str) -> str:
    stage, *numbers, state = cells
    return f"{stage:33}{''.join(f'{number:>9}' for number in numbers)}  {state:7} {note}".rstrip()


def _stage(result: StageResult) -> dict[str, Any]:
    fields = asdict(result)
    return {**fields, "together": _difference(result.together), "alone": _difference(result.alone)}


def _difference(difference: Difference | None) -> dict[str, Any] | None:
    if difference is None:
        return None
    fields = asdict(difference)
    return {
        key: None if isinstance(value, float) and not np.isfinite(value) else value for key, value in fields.items()
    }
