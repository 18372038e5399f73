"""What processes cost: memory, processor time, files. Linux only."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from tests.bench.sampling import MB

INTERVAL_S = 0.05
SHARE = 0.02
"""Of the time of one processor that looking at memory may cost a turn whose time counts: the kernel adds up pages."""

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def tree(pid: int) -> list[psutil.Process]:
    """A process and all that it has started, as far as they live."""
    try:
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def cpu_seconds(pid: int) -> float:
    """Processor time, user and system, of a process, of those that it has started, and of those of them that ended."""
    total = 0.0
    for process in tree(pid):
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


def proportional_mb(pids: Sequence[int]) -> float:
    """Memory of processes together, MB; what several share is counted once (PSS of proc(5))."""
    total = 0
    for pid in pids:
        with suppress(OSError):  # it has gone
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
            total += next((int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:")), 0)
    return total * 1024 / MB


class Peak:
    """The most memory that a tree of processes is seen to have, from entering the context until it is left.

    Args:
        pid: root of the tree; it has all its processes already.
        share: of the time of a processor that looking may cost; it is done less often then.
        look: what tells the size, MB.
    """

    def __init__(self, pid: int, share: float, look: Callable[[Sequence[int]], float] = proportional_mb) -> None:
        self.mb = 0.0
        self._pids = [process.pid for process in tree(pid)]
        self._share, self._look = share, look
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="peak")

    def _run(self) -> None:
        while not self._stop.is_set():
            took = self.look()
            self._stop.wait(max(INTERVAL_S - took, took / self._share - took))

    def look(self) -> float:
        """Look once; how long that took, seconds."""
        started = time.perf_counter()
        self.mb = max(self.mb, self._look(self._pids))
        return time.perf_counter() - started

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        self.look()


def wait_until_quiet(pids: Sequence[int], *, patience_s: float = 2.0, interval_s: float = 0.1) -> bool:
    """Wait until none of these trees works, or patience is over: engines' threads spin on for a while after an answer.

    Returns whether it is quiet: less than a tenth of a processor is used.
    """
    deadline = time.monotonic() + patience_s
    before = sum(map(cpu_seconds, pids))
    while True:
        time.sleep(interval_s)
        after = sum(map(cpu_seconds, pids))
        if after - before <= max(_TICK_S, 0.1 * interval_s):
            return True
        if time.monotonic() > deadline:
            return False
        before = after


def size_mb(path: Path) -> float:
    """Of a file, or of all files in a folder, MB; nothing is nothing."""
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return sum(file.stat().st_size for file in files) / MB
