"""A handful of measurements in short."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True)
class Spread:
    """Median, least, and the quartiles."""

    n: int
    median: float
    least: float
    lower: float
    upper: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Self:
        """Of at least one value; quartiles with the ends counted in, as numpy's percentiles."""
        if len(values) == 1:
            (value,) = values
            return cls(1, value, value, value, value)
        lower, median, upper = statistics.quantiles(values, n=4, method="inclusive")
        return cls(len(values), median, min(values), lower, upper)

    @property
    def range(self) -> float:
        """Distance of the quartiles."""
        return self.upper - self.lower


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> float | None:
    """Our median over theirs; None where there is nothing to divide."""
    if not ours or not theirs:
        return None
    below = statistics.median(theirs)
    return statistics.median(ours) / below if below else None
