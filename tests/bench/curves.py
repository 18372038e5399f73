"""What an endurance run has shown: judged, as a table, as a picture."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.bench.corpus import optional
from tests.bench.sampling import COLUMNS, Series, least, trend

WARM_UP = 0.2
"""Share of a phase's work that is not judged: allocators keep what the largest window so far needed."""
MB_PER_UNIT = 0.5
"""Private memory that may be added for 100 jobs, or an hour of audio. The hub's ledger remembers the ids of its last
16384 jobs, 0.02 MB for 100 of them; the rest is what the least-squares line makes of an allocator's steps of a
megabyte. To keep every window's log-mel, 32 kB a second, would be 16 MB for 100 jobs of 5 s, and 115 MB for an hour."""

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Phase:
    """One kind of load: from its first job to its last."""

    name: str
    unit: str
    """What work is counted in: `100 jobs` or `hour of audio`."""
    jobs: int
    work: float
    """In the unit."""
    seconds: float
    audio_s: float
    series: Mapping[str, Series]
    """By process."""
    proportional: Mapping[str, float]
    """PSS in MB at the end, by process."""
    failures: Sequence[str] = ()
    """What jobs that did not end with their text said."""
    left: Sequence[str] = ()
    """What was there at the end and not at the start, in words."""

    def rows(self) -> Iterator[Row]:
        """A row for each process, numbers of the time after warm-up."""
        for name, whole in self.series.items():
            series = whole.behind(whole["work"][0] + WARM_UP * self.work)
            trends = {column: trend(series, column) for column in ("resident", "private")}
            yield {
                "process": name,
                "resident_mb": round(trends["resident"].last, 1),
                "private_mb": round(trends["private"].last, 1),
                "pss_mb": round(self.proportional[name], 1),
                "resident_mb_per_hour": round(trends["resident"].per_hour, 2),
                "private_mb_per_hour": round(trends["private"].per_hour, 2),
                "private_mb_per_unit": round(trends["private"].per_work, 3),
                "private_mb_change": round(trends["private"].last - trends["private"].first, 2),
                "descriptors": least(series, "descriptors"),
                "threads": least(series, "threads"),
                "cpu_s": round(float(whole["cpu"][-1] - whole["cpu"][0]), 1),
            }

    def faults(self) -> Iterator[str]:
        """What is not as it should be, in words."""
        yield from (f"{self.name}: {failure}" for failure in self.failures)
        yield from (f"{self.name}: {thing}" for thing in self.left)
        for row in self.rows():
            if row["private_mb_per_unit"] > MB_PER_UNIT:
                grows = f"grows by {row['private_mb_per_unit']} MB for each {self.unit}"
                yield f"{self.name}: {row['process']} {grows}; {MB_PER_UNIT} may be"
            for column in ("descriptors", "threads"):
                first, last = row[column]
                if last > first:
                    yield f"{self.name}: {row['process']} had {first:g} {column} after warm-up, {last:g} at the end"

    def to_json(self) -> Row:
        """All numbers, and about 200 samples of each process."""
        return {
            "phase": self.name,
            "jobs": self.jobs,
            "seconds": round(self.seconds, 1),
            "audio_s": round(self.audio_s, 1),
            "unit": self.unit,
            "processes": list(self.rows()),
            "faults": list(self.faults()),
            "columns": COLUMNS,
            "samples": {name: _thinned(series) for name, series in self.series.items()},
        }


def _thinned(series: Series, n: int = 200) -> list[list[float]]:
    thinned: list[list[float]] = np.round(series.values[:: max(1, len(series.values) // n)], 2).tolist()
    return thinned


def table(phase: Phase) -> list[str]:
    """Lines for people."""
    speed = phase.audio_s / phase.seconds
    head = (
        f"{phase.name}: {phase.jobs} jobs, {phase.audio_s / 3600:.2f} h of audio in {phase.seconds:.0f} s, {speed:.1f}x"
    )
    title = ("process", "resident", "private", "PSS", "MB/hour", f"MB/{phase.unit}", "descriptors", "threads", "CPU s")
    return [head, "", "| " + " | ".join(title) + " |", "|---" * len(title) + "|", *map(_line, phase.rows()), ""]


def _line(row: Row) -> str:
    levels = (f"{row[column][0]:g} → {row[column][1]:g}" for column in ("descriptors", "threads"))
    sizes = (f"{row[column]:.0f}" for column in ("resident_mb", "private_mb", "pss_mb"))
    slopes = (f"{row['private_mb_per_hour']:+.1f}", f"{row['private_mb_per_unit']:+.2f}")
    return f"| {' | '.join((row['process'], *sizes, *slopes, *levels, format(row['cpu_s'], '.0f')))} |"


def plot(phases: Sequence[Phase], path: Path) -> None:
    """Draw memory and descriptors of every process over time.

    Raises:
        BenchError: matplotlib is not installed.
    """
    matplotlib = optional("matplotlib", "matplotlib")
    matplotlib.use("Agg")
    pyplot = optional("matplotlib.pyplot", "matplotlib")
    figure, (above, below) = pyplot.subplots(
        2, 1, sharex=True, figsize=(8, 5), height_ratios=(3, 1), layout="constrained"
    )
    for index, phase in enumerate(phases):
        for color, (name, series) in enumerate(phase.series.items()):
            style = {"color": f"C{color}", "label": name if index == 0 else None, "linewidth": 1.2}
            above.plot(series["time"] / 60, series["private"], **style)
            below.plot(series["time"] / 60, series["descriptors"], **style)
        begin, end = (next(iter(phase.series.values()))["time"][edge] / 60 for edge in (0, -1))
        for axes in (above, below):
            axes.axvspan(begin, end, color="0.5", alpha=0.06 + 0.08 * (index % 2), linewidth=0)
        above.annotate(
            phase.name, ((begin + end) / 2, 1.01), xycoords=("data", "axes fraction"), ha="center", fontsize=8
        )
    above.set_ylabel("private memory, MB")
    below.set_ylabel("descriptors")
    below.set_xlabel("minutes")
    above.set_ylim(0, 1.15 * above.get_ylim()[1])
    below.set_ylim(bottom=0)
    above.legend(loc="upper left", ncols=5, fontsize=8, frameon=False)
    figure.savefig(path, dpi=100)
