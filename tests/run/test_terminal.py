"""What a person at a terminal sees: real pseudo-terminals, drawn by an emulator that is not ours (pyte)."""

from __future__ import annotations

import os
import pty
import re
import signal
import termios
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyte
import pytest

from susurrus.actors import exits

if TYPE_CHECKING:
    from tests.run.conftest import Cli, Running


class Terminal:
    """A terminal of a given size with a process on it."""

    def __init__(self, columns: int, rows: int = 24) -> None:
        self.screen = pyte.HistoryScreen(columns, rows, history=1000)
        self.frames: list[list[str]] = []
        """All rows, scrolled off ones included, after every change of what is shown, or all that came at once."""
        self._stream = pyte.ByteStream(self.screen)
        self._ours, self.theirs = pty.openpty()
        termios.tcsetwinsize(self.theirs, (rows, columns))

    def start(self, cli: Cli, *arguments: str | Path, stderr: int | None = None) -> Running:
        """Run the command line on it, with standard error on it too unless that goes elsewhere."""
        run = cli.start(
            *arguments,
            env={"TERM": "xterm-256color"},
            stdin=self.theirs,
            stdout=self.theirs,
            stderr=self.theirs if stderr is None else stderr,
        )
        os.close(self.theirs)
        return run

    def press_ctrl_c(self) -> None:
        """Type it and draw until it is echoed.

        The kernel throws away what was written and not yet read when it takes the key: that must not be later output.
        As nobody's controlling terminal it sends no signal.
        """
        os.write(self._ours, b"\x03")
        data = b""
        while b"^C" not in data:
            data = os.read(self._ours, 65536)
            self._stream.feed(data)

    def watch(self, until: Callable[[list[str]], bool] = lambda _rows: False) -> list[str]:
        """Draw what comes until a frame is wanted or nobody writes any more; return the last frame."""
        while not (self.frames and until(self.frames[-1])):
            try:
                data = os.read(self._ours, 65536)
            except OSError:  # EIO: all of the other side are gone
                data = b""
            if not data:
                os.close(self._ours)
                break
            # A change begins and ends with a carriage return: of several that are read together each is a frame.
            for change in re.split(rb"(?<=\r)(?=\r)", data):
                self._stream.feed(change)
                self.frames.append(self._rows())
        return self.frames[-1] if self.frames else []

    def _rows(self) -> list[str]:
        width = self.screen.columns
        above = ["".join(line[x].data for x in range(width)) for line in self.screen.history.top]
        rows = [row.rstrip() for row in (*above, *self.screen.display)]
        while rows and not rows[-1]:
            rows.pop()
        return rows


def words(rows: list[str]) -> str:
    return " ".join(" ".join(rows).split())


@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (20, 10)])
def test_text_grows_in_place_and_stays_as_it_was_said(
    cli: Cli, jfk: Path, texts: dict[str, str], columns: int, rows: int
) -> None:
    terminal = Terminal(columns, rows)
    run = terminal.start(cli, "--wav", jfk)
    last = terminal.watch()
    assert run.finish().code == 0
    text = texts["jfk.wav"]
    # Nothing but the text, each word once, then the timings.
    assert words(last).startswith(text + " 11.0 s of audio in")
    assert all(len(row) <= columns for row in last)
    # On the way: the text so far and the bar, never anything else.
    sizes = []
    for frame in terminal.frames:
        if not any(re.search("[━─]|of audio", row) for row in frame):
            continue  # read in the middle of a write: the bar is painted last
        shown = words([row for row in frame if not re.search("[━─]|of audio|: frontend|^0:", row)])
        if text.startswith(shown):
            sizes.append(len(shown))
    assert any(0 < size < len(text) for size in sizes)
    assert sizes == sorted(sizes)
    assert not terminal.screen.cursor.hidden


def test_several_files_each_have_their_name_and_errors_do_not_mix_with_text(
    cli: Cli, jfk: Path, austen: Path, broken: Path, texts: dict[str, str]
) -> None:
    terminal = Terminal(80)
    run = terminal.start(cli, "--wav", austen, "--wav", broken, "--wav", jfk)
    last = terminal.watch()
    assert run.finish().code == exits.INPUT
    shown = words(last)
    places = [shown.index(part) for part in (str(austen), f"error: {broken}: ", str(jfk), texts["jfk.wav"])]
    assert places == sorted(places)
    assert not [row for row in last if re.search("[━─]", row)]


def test_ctrl_c_leaves_the_text_so_far_and_one_line(cli: Cli, endless_wav: Path) -> None:
    terminal = Terminal(80)
    run = terminal.start(cli, "--wav", endless_wav)
    terminal.watch(until=lambda frame: "country" in words(frame))
    terminal.press_ctrl_c()
    run.signal(signal.SIGINT, group=True)
    last = terminal.watch()
    assert run.finish().code == exits.INTERRUPTED
    assert re.fullmatch(r"And so my fellow Americans,? ask .* error: interrupted", words(last))
    assert last[-1] == "error: interrupted"
    assert not [row for row in last if re.search("[━─]", row)]
    assert terminal.screen.cursor.x == 0


def test_log_lines_and_text_keep_to_their_own_rows(cli: Cli, jfk: Path, texts: dict[str, str]) -> None:
    terminal = Terminal(80)
    run = terminal.start(cli, "-vv", "--wav", jfk)
    last = terminal.watch()
    assert run.finish().code == 0
    assert texts["jfk.wav"] in words(last)
    assert not [row for row in last if re.search("[━─]", row)]
