"""Progress of provisioning on a terminal. Only a program's own `main` uses it; it writes to stderr alone."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from susurrus.models.provisioning.manifest import Progress

if TYPE_CHECKING:
    from rich.progress import Progress as Bars
    from rich.progress import TaskID


@contextmanager
def terminal_progress(stream: TextIO | None = None) -> Iterator[Progress]:
    """Show what a progress callback is told: a bar on a terminal, a line a step elsewhere.

    Nothing is written, and rich is not imported, before the callback is called for the first time.

    Args:
        stream: Where to write; None is stderr.

    Yields:
        The callback to hand to `ensure_model`.
    """
    stream = stream or sys.stderr
    if stream is None:  # closed before we were started
        yield lambda _what, _done, _total: None
        return
    if not stream.isatty():
        yield _Lines(stream)
        return
    bar = _Bar(stream)
    try:
        yield bar
    finally:
        bar.stop()


class _Lines:
    """One line for every step and every remark."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._said: set[str] = set()

    def __call__(self, what: str, _done: int, _total: int) -> None:
        if what not in self._said:
            self._said.add(what)
            self._stream.write(f"{what}\n")
            self._stream.flush()


class _Bar:
    """A bar for the running step, gone when everything is done; remarks stay above it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._bars: Bars | None = None
        self._task: TaskID | None = None
        self._what = ""

    def __call__(self, what: str, done: int, total: int) -> None:
        bars = self._bars or self._start()
        if total <= 0:
            bars.console.print(what, markup=False, highlight=False)
            return
        if what != self._what or self._task is None:
            if self._task is not None:
                bars.remove_task(self._task)
            self._what, self._task = what, bars.add_task(what, total=total)
        bars.update(self._task, completed=done, total=total)

    def _start(self) -> "Bars":
        # rich takes 60 ms to import, which a run that finds everything in place does not pay.
        from rich.console import Console  # noqa: PLC0415
        from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn  # noqa: PLC0415
        from rich.progress import Progress as Bars  # noqa: PLC0415

        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TaskProgressColumn(),
            TimeRemainingColumn(),
        )
        self._bars = Bars(*columns, console=Console(file=self._stream), transient=True)
        self._bars.start()
        return self._bars

    def stop(self) -> None:
        """Take the bar off the screen."""
        if self._bars is not None:
            self._bars.stop()
