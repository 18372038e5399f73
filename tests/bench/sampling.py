"""How the processes of a pipeline grow: looked at once a second, and the straight lines through what was seen."""

from __future__ import annotations

import threading
import time
from array import array
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
import psutil
from numpy.typing import NDArray

MB = 1e6
COLUMNS = ("time", "work", "resident", "private", "descriptors", "threads", "cpu", "files")
"""Seconds since the start; work done so far, in the caller's unit; resident set and what of it belongs to no file, MB;
open descriptors; threads; seconds of processor time; files in the runtime folder."""
EDGE = 0.2  # share of a series, at either end, that a median is taken of


@dataclass(frozen=True, slots=True)
class Series:
    """What was seen of one process, float64 (samples, columns) in the order of `COLUMNS`."""

    values: NDArray[np.float64]

    def __getitem__(self, column: str) -> NDArray[np.float64]:
        """One column, float64 (samples,)."""
        chosen: NDArray[np.float64] = self.values[:, COLUMNS.index(column)]
        return chosen

    def behind(self, work: float) -> Series:
        """The part in which more work than this was done."""
        return Series(self.values[self["work"] > work])


@dataclass(frozen=True, slots=True)
class Trend:
    """A column of a series in short."""

    first: float
    """Median of the first fifth of the samples."""
    last: float
    """Median of the last fifth."""
    per_hour: float
    """Slope of the least-squares line over time."""
    per_work: float
    """The same over the work done, for one unit of it."""


def slope(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    """Slope of the least-squares line through the points; 0 where all have one x."""
    centred = x - x.mean()
    spread = float(centred @ centred)
    return float(centred @ y) / spread if spread else 0.0


def trend(series: Series, column: str) -> Trend:
    """Of one column of a series of at least one sample."""
    values = series[column]
    edge = max(1, round(EDGE * len(values)))
    return Trend(
        first=float(np.median(values[:edge])),
        last=float(np.median(values[-edge:])),
        per_hour=slope(series["time"] / 3600, values),
        per_work=slope(series["work"], values),
    )


def least(series: Series, column: str) -> list[float]:
    """The smallest value in the first fifth of the samples and in the last: without those who come and go."""
    values = series[column]
    edge = max(1, round(EDGE * len(values)))
    return [float(values[:edge].min()), float(values[-edge:].min())]


class Sampler:
    """Looks at processes from a thread of its own, from entering the context until it is left.

    Samples are kept as bare numbers: this process is one of those that must not grow.
    """

    def __init__(self, find: Callable[[], Mapping[str, int]], folder: Path, interval_s: float = 1.0) -> None:
        """Nothing is looked at yet.

        Args:
            find: tells the ids of the processes, by name; asked again when one has ended.
            folder: the pipeline's runtime folder.
            interval_s: seconds between two looks.
        """
        self.work = 0.0
        """How much is done: the caller counts it, in a unit of its own."""
        self._find = find
        self._processes = {name: psutil.Process(pid) for name, pid in find().items()}
        self._rows = {name: array("d") for name in self._processes}
        self._folder = folder
        self._interval_s = interval_s
        self._began = time.monotonic()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sampler")

    def series(self) -> dict[str, Series]:
        """What was seen so far, by process."""
        return {name: Series(np.array(rows).reshape(-1, len(COLUMNS))) for name, rows in self._rows.items()}

    def look(self) -> None:
        """Look once. A process that has ended is passed over until there is another in its place."""
        now, work = time.monotonic() - self._began, self.work
        files = sum(1 for _ in self._folder.iterdir())
        for name, process in self._processes.items():
            try:
                self._rows[name].extend((now, work, *_measure(process), files))
            except psutil.NoSuchProcess:
                self._replace(name)

    def _replace(self, name: str) -> None:
        with suppress(psutil.NoSuchProcess):
            self._processes[name] = psutil.Process(self._find().get(name, 0))

    def proportional(self) -> dict[str, float]:
        """Memory in MB by process, in which what several share is divided among them (PSS): milliseconds each."""
        return {name: process.memory_full_info().pss / MB for name, process in self._processes.items()}

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            self.look()
            self._stop.wait(self._interval_s)


def _measure(process: psutil.Process) -> tuple[float, ...]:
    """The columns of one process."""
    with process.oneshot():
        memory, cpu = process.memory_info(), process.cpu_times()
        descriptors, threads = process.num_fds(), process.num_threads()
    private = memory.rss - memory.shared
    return memory.rss / MB, private / MB, descriptors, threads, cpu.user + cpu.system


def peak(pid: int) -> float:
    """The largest resident set that a process of Linux has ever had, MB: VmHWM of proc(5)."""
    lines = Path("/proc", str(pid), "status").read_text(encoding="utf-8").splitlines()
    (value,) = (line.split()[1] for line in lines if line.startswith("VmHWM:"))
    return int(value) * 1024 / MB
