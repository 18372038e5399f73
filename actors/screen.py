"""The transcript on a terminal: settled text scrolls as any text does, the rest is rewritten in place below.

The only module that imports rich; `render.make_renderer` imports it where a person looks at a terminal.
"""

from __future__ import annotations

import os
import time
from typing import IO, TYPE_CHECKING, NamedTuple, cast

from rich.console import Console
from rich.control import Control
from rich.segment import ControlType
from rich.text import Text

from susurrus.actors.render import Transcripts, audio_position, clock
from susurrus.actors.terminal import Output, cell_count, neutralise, wrap

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from susurrus.actors.shown import Shown
    from susurrus.actors.view import JobView

FRAME_S = 0.04  # a hypothesis is painted 25 times a second at most: the cores are the decoder's
BAR_CELLS = 30


class Row(NamedTuple):
    """One row of the screen: settled text, then text or signs that may still change."""

    plain: str = ""
    dim: str = ""


class LiveArea:
    """The last rows on the screen, rewritten in place. Every change is one write.

    The cursor rests at the start of the area's last row and stays visible: a process that is killed leaves
    the terminal as it should be.
    """

    def __init__(self, console: Console, *, reflows: bool = True) -> None:
        """Nothing is written yet.

        Args:
            console: where to.
            reflows: a terminal that gets narrower wraps the rows that no longer fit.
        """
        self._console = console
        self._reflows = reflows
        self._rows: list[Row] = []

    @property
    def width(self) -> int:
        """Cells a row may have: one less than the screen, as what a full row does differs by terminal."""
        return max(2, self._console.width - 1)

    @property
    def max_rows(self) -> int:
        """Rows the area may have: half the screen, so that it fits when the screen gets half as wide."""
        return max(2, self._console.height // 2)

    def update(self, settled: Sequence[Row], live: Sequence[Row]) -> None:
        """Print `settled` for good where the area began and show `live` below it."""
        wanted = [*settled, *live]
        same = 0  # rows that need no painting; the cursor's row is always painted
        while same < min(len(wanted), len(self._rows)) - 1 and wanted[same] == self._rows[same]:
            same += 1
        with self._console:  # collects; written at its end
            self._console.control(Control(ControlType.CARRIAGE_RETURN))  # the terminal's "^C" has moved the cursor
            self._erase_from(same)
            for index, row in enumerate(wanted[same:], start=same + 1):
                end = "" if live and index == len(wanted) else "\n"
                self._console.print(Text.assemble(row.plain, (row.dim, "dim")), end=end, soft_wrap=True)
            self._console.control(Control(ControlType.CARRIAGE_RETURN))
        self._rows = list(live)

    def clear(self) -> None:
        """Take the area off the screen, to print where it was."""
        self.update([], [])

    def _erase_from(self, row: int) -> None:
        """Empty the area from this row on, row by row, and put the cursor there.

        Not with one "erase to the end of the screen": at its top, tmux moves what that erases into history.
        """
        heights = [self._height(old) for old in self._rows[row:]]
        if up := sum(heights[:-1]):
            self._console.control(Control.move(0, -up))
        for _ in range(sum(heights) - 1):
            self._console.control(Control((ControlType.ERASE_IN_LINE, 0)), Control.move(0, 1))
        self._console.control(Control((ControlType.ERASE_IN_LINE, 0)))
        if back := max(0, sum(heights) - 1):
            self._console.control(Control.move(0, -back))

    def _height(self, row: Row) -> int:
        """Rows of the screen it takes by now: the terminal may have got narrower since it was painted."""
        return max(1, -(-cell_count(row.plain + row.dim) // self._console.width)) if self._reflows else 1


class TerminalRenderer(Transcripts):
    """Settled text plain, changing text dim, a progress bar in audio time, timings at the end.

    Only whole rows of committed text are printed for good; the last, unfinished row and the hypothesis after
    it are the live area. Warnings, errors and timings go to standard error.
    """

    def __init__(
        self,
        out: Console,
        err: Console,
        *,
        headings: bool = False,
        reflows: bool = True,
        shown: Shown | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Nothing is written yet.

        Args:
            out: standard output, a terminal.
            err: standard error, a terminal or not.
            headings: print the name above every transcript even before a second job is known.
            reflows: see LiveArea.
            shown: what a console before this one has shown.
            now: clock in seconds.
        """
        super().__init__(headings=headings, shown=shown)
        self._area = LiveArea(out, reflows=reflows)
        self._err = err
        self._now = now
        self._painted = float("-inf")
        self._waiting = False  # a frame was left out
        self._line = ""  # committed text whose row is not full yet

    @classmethod
    def on_streams(
        cls, out: Output, err: Output, *, headings: bool = False, shown: Shown | None = None
    ) -> TerminalRenderer:
        """A renderer for the process's own terminal."""
        # xterm cuts rows off where all others wrap them; it is not what draws the screen inside tmux.
        reflows = "XTERM_VERSION" not in os.environ or "TMUX" in os.environ
        return cls(
            Console(file=cast("IO[str]", out), force_terminal=True),
            Console(file=cast("IO[str]", err)),
            headings=headings,
            reflows=reflows,
            shown=shown,
        )

    def timeout(self) -> float | None:
        """Seconds until the frame that was left out may be painted."""
        return max(0.0, self._painted + FRAME_S - self._now()) if self._waiting else None

    def error(self, text: str) -> None:
        """One line on standard error; the live area comes back with the next change."""
        self._area.clear()
        super().error(text)

    def _begin(self, heading: str) -> None:
        if heading:
            self._area.update([Row("", row.rstrip()) for row in wrap(neutralise(heading), self._area.width)], [])

    def _grow(self, job: JobView, text: str) -> None:
        self._line += neutralise(text)
        self._waiting = not text and self._now() < self._painted + FRAME_S
        if not self._waiting:
            self._paint(job)

    def _unsettled(self) -> int:
        return len(self._line)

    def _end(self, job: JobView, text: str) -> None:  # noqa: ARG002 - the text is all
        rows = wrap(self._line + neutralise(text), self._area.width)
        self._line, self._waiting = "", False
        self._area.update([Row(row.rstrip(" ")) for row in rows if row], [])

    def _say(self, line: str, *, dim: bool = False) -> None:
        self._err.print(Text(neutralise(line), style="dim" if dim else ""), soft_wrap=not self._err.is_terminal)

    def _paint(self, job: JobView) -> None:
        *settled, self._line = wrap(self._line, self._area.width)
        fixed, changing = self._committed.preview(job.partial) if job.partial else ("", "")
        live = self._rows(self._line + neutralise(fixed), neutralise(changing))
        bar = self._bar(job)
        self._area.update([Row(row.rstrip(" ")) for row in settled], [*live[1 - self._area.max_rows :], bar])
        self._painted = self._now()

    def _rows(self, plain: str, dim: str) -> list[Row]:
        rows, left = [], len(plain)
        for row in wrap(plain + dim, self._area.width):
            visible = row.rstrip(" ")
            if visible:
                rows.append(Row(visible[: max(0, left)], visible[max(0, left) :]))
            left -= len(row)
        return rows

    def _bar(self, job: JobView) -> Row:
        width, label = self._area.width, audio_position(job)
        cells = min(BAR_CELLS, width - len(label) - 1)
        if not job.duration or cells < 4:
            return Row("", label if len(label) <= width else clock(job.settled_until)[:width])
        full = round(cells * min(1.0, job.settled_until / job.duration))
        return Row("━" * full, "─" * (cells - full) + " " + label)
