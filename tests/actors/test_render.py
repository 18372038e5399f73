"""What a person sees and a pipe gets: event histories played through the real renderers."""

from __future__ import annotations

import dataclasses
import errno
import io
import json
import os
import re
import subprocess
import sys
import unicodedata
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.console import Console, ConsoleDimensions

from susurrus.actors.json_lines import JsonRenderer, to_json
from susurrus.actors.render import PlainRenderer, make_renderer
from susurrus.actors.screen import FRAME_S, TerminalRenderer
from susurrus.actors.terminal import Output, OutputClosedError, cell_count, neutralise, wrap
from susurrus.actors.view import JobEvent, TranscriptView
from susurrus.models.errors import SusurrusError
from susurrus.protocol import (
    Beat,
    Cancelled,
    Done,
    Failed,
    JobState,
    Partial,
    Segment,
    Snapshot,
    Started,
    Stopped,
    Welcome,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from susurrus.actors.render import Renderer
    from susurrus.protocol import Event

untimed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
JOB = bytes(range(16))
OTHER = bytes(16)
TIMINGS = {"frontend": 0.1, "encoder": 0.5, "decoder": 1.0, "first_partial": 0.7, "total": 2.0}
ENGLISH = (
    " And so my fellow Americans, ask not what your country can do for you,",
    "",
    " ask what you can do for your country.",
)
WILD = (  # wide characters, emoji sequences, marks, right to left, a word longer than a row, an attack
    "这是一个很长的中文句子没有空格。所以必须在任何字符之间换行。「引号」",
    " 👨‍👩‍👧‍👦 🇯🇵 ❤️ e\u0301 Zu\u0308rich",
    " مرحبا بالعالم",
    " Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamtengesellschaft  ",
    " \x1b[31m\x1b]52;c;AAAA\x07\x9b2J\u202eevil\r\n",
)


def history(texts: Sequence[str], job: bytes = JOB, *, step: int = 3, warnings: tuple[str, ...] = ()) -> list[JobEvent]:
    """A job whose hypotheses grow by `step` characters and of which the last `step` may still change."""
    duration = 30.0 * len(texts)
    events: list[JobEvent] = [Started(job, 0, "clip.wav", duration)]
    for window, text in enumerate(texts):
        start, end = 30.0 * window, 30.0 * window + 30
        events += [
            Partial(job, window, 1, start, end, text[:length], max(0, length - step), ())
            for length in range(step, len(text) + step, step)
        ]
        events.append(Segment(job, window, 1, start, end, text, (), "en", 0.98, False, 0.1, 0.2))
    text = "".join(texts).removeprefix(" ")
    events.append(Done(job, 0, text, "en", 0.98, duration, TIMINGS, complete=True, warnings=warnings))
    return [replace(event, seq=seq) for seq, event in enumerate(events, start=1)]


def play(renderer: Renderer, events: Iterable[Event], view: TranscriptView | None = None) -> TranscriptView:
    if view is None:
        view = TranscriptView()
        view.apply_snapshot(Snapshot(()))
    for event in events:
        renderer.on_change(view, view.apply(event))
    return view


# --- a terminal ---------------------------------------------------------------------------------------------


@dataclass
class Line:
    """One row of the screen."""

    cells: list[tuple[str, bool]] = field(default_factory=list)  # (character or "" behind a wide one, dim)
    goes_on: bool = False  # the terminal wrapped it

    @property
    def text(self) -> str:
        """Its characters."""
        return "".join(character for character, _ in self.cells)


class Screen(io.StringIO):
    """A terminal with scrollback that wraps anew when its width changes. It knows few codes."""

    def __init__(self, width: int, height: int = 24) -> None:
        super().__init__()
        self.width, self.height = width, height
        self.lines, self.x, self.y, self.dim = [Line()], 0, 0, False

    @property
    def rows(self) -> list[str]:
        """All rows, scrollback included."""
        return [line.text.rstrip() for line in self.lines]

    @property
    def dim_text(self) -> str:
        """All characters painted dim."""
        return "".join(character for line in self.lines for character, dim in line.cells if dim)

    def write(self, text: str) -> int:
        """Do what a terminal does with this text."""
        for code in re.findall(r"\x1b\[[0-9;]*[A-Za-z]|[^\x1b]", text):
            self._obey(code)
        assert "\x1b" not in re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", text)
        return len(text)

    def _obey(self, code: str) -> None:
        top = max(0, len(self.lines) - self.height)
        match code[0], code[-1]:
            case "\x1b", "A":
                self.y = max(top, self.y - int(code[2:-1]))
            case "\x1b", "B":
                self.y = min(top + self.height - 1, self.y + int(code[2:-1]))
                assert self.y < len(self.lines), "went below what was painted"
            case "\x1b", "K":
                del self.lines[self.y].cells[self.x :]
                self.lines[self.y].goes_on = False
            case "\x1b", "m":
                self.dim = code == "\x1b[2m"
            case "\r", _:
                self.x = 0
            case "\n", _:
                self._feed(goes_on=False)
            case _:
                self._put(code)

    def _feed(self, *, goes_on: bool) -> None:
        self.lines[self.y].goes_on = goes_on
        self.x, self.y = 0, self.y + 1
        if self.y == len(self.lines):
            self.lines.append(Line())

    def _put(self, character: str) -> None:
        assert unicodedata.category(character) != "Cc", repr(character)
        width = cell_count(character)
        if width and self.x + width > self.width:
            self._feed(goes_on=True)
        cells = self.lines[self.y].cells
        if width == 0 and cells:
            cells[-1] = (cells[-1][0] + character, self.dim)
            return
        cells[self.x : self.x + width] = [(character, self.dim), ("", self.dim)][:width]
        self.x += width

    def resize(self, width: int) -> None:
        """Wrap all lines anew; the cursor stays with its line."""
        whole: list[Line] = []
        cursor = 0
        for number, line in enumerate(self.lines):
            if not (number and self.lines[number - 1].goes_on):
                whole.append(Line())
            if number == self.y:
                assert self.x == 0, "the cursor rests at a row's start"
                cursor = len(whole) - 1
            whole[-1].cells += line.cells
        self.width, self.lines = width, []
        for number, line in enumerate(whole):
            if number == cursor:
                self.y = len(self.lines)
            for start in range(0, max(1, len(line.cells)), width):
                part = line.cells[start : start + width]
                self.lines.append(Line(part, goes_on=start + width < len(line.cells)))


class Terminal:
    """A renderer on a screen of its own, with a clock of its own."""

    def __init__(self, width: int = 80, height: int = 24, *, headings: bool = False) -> None:
        self.screen = Screen(width, height)
        self.stderr = io.StringIO()
        self.time = 0.0
        self.console = Console(file=self.screen, force_terminal=True, width=width, height=height)
        self.renderer = TerminalRenderer(
            self.console, Console(file=self.stderr, width=80), headings=headings, now=self.now
        )

    def now(self) -> float:
        """The clock."""
        self.time += FRAME_S  # a frame later at every look: every change is painted
        return self.time

    def resize(self, width: int) -> None:
        """Another width, for both sides."""
        self.screen.resize(width)
        self.console.size = ConsoleDimensions(width, self.console.height)


def squeezed(rows: Iterable[str]) -> str:
    """Text without its spaces: what stays when it is laid out in rows."""
    return "".join(rows).replace(" ", "")


@pytest.mark.parametrize(
    ("texts", "width"), [(ENGLISH, 3), (ENGLISH, 20), (ENGLISH, 80), (WILD, 10), (WILD, 20), (WILD, 80)]
)
def test_the_final_screen_is_exactly_the_transcript(texts: tuple[str, ...], width: int) -> None:
    terminal = Terminal(width)
    play(terminal.renderer, history(texts))
    terminal.renderer.close()
    assert squeezed(terminal.screen.rows) == squeezed([neutralise("".join(texts))])
    assert terminal.screen.dim_text == ""
    assert terminal.screen.rows[-1] == "", "the shell's prompt begins at a row's start"


def test_rows_are_broken_between_words() -> None:
    terminal = Terminal(20)
    play(terminal.renderer, history([" one two three four five six seven", " eight"]))
    assert terminal.screen.rows == ["one two three four", "five six seven eight"[:14], "eight", ""]


def test_while_it_runs_the_screen_is_committed_text_then_what_may_change_dim_then_the_bar() -> None:
    terminal = Terminal(40)
    committed = ""
    view = TranscriptView()
    view.apply_snapshot(Snapshot(()))
    for event in history(ENGLISH)[1:-1]:
        play(terminal.renderer, [event] if event.seq > 2 else history(ENGLISH)[:2], view)
        *rows, bar = terminal.screen.rows
        if isinstance(event, Segment):
            committed += event.text
            assert squeezed(rows) == squeezed([committed])
        if isinstance(event, Partial):
            assert squeezed(rows) == squeezed([committed, event.text])
            changing = squeezed([event.text[event.stable :]])
            assert squeezed([terminal.screen.dim_text]).startswith(changing + "─")
        assert re.fullmatch(r"━*─* \d:\d\d / 1:30", bar)


def test_the_bar_shows_how_much_audio_has_its_text() -> None:
    terminal = Terminal(80)
    play(terminal.renderer, history([" a", " b", " c"])[:5])
    assert terminal.screen.rows[-1] == "━" * 20 + "─" * 10 + " 1:00 / 1:30"


def test_without_a_known_duration_the_position_stands_alone() -> None:
    terminal = Terminal(80)
    play(terminal.renderer, [Started(JOB, 1, "-", None)])
    assert terminal.screen.rows == ["0:00"]


texts_of_words = st.lists(st.text("ab 世é。「", max_size=30), max_size=4)


@settings(untimed, max_examples=40)
@given(texts_of_words, st.lists(st.integers(4, 60), min_size=1, max_size=4))
def test_nothing_is_lost_or_doubled_when_the_terminal_changes_its_width(texts: list[str], widths: list[int]) -> None:
    terminal = Terminal(30, height=500)
    view = None
    for number, event in enumerate(history(texts, step=5)):
        view = play(terminal.renderer, [event], view)
        if number % 3 == 2 and widths:
            terminal.resize(widths.pop())
    assert squeezed(terminal.screen.rows) == squeezed(texts)


def test_a_hypothesis_taller_than_the_screen_leaves_nothing_in_the_scrollback() -> None:
    terminal = Terminal(20, height=6)
    play(terminal.renderer, history([" many words " * 20]))
    assert squeezed(terminal.screen.rows) == "manywords" * 20


def test_a_long_transcript_is_printed_once_and_the_live_area_stays_small() -> None:
    terminal = Terminal(20)
    texts = [f" This is sentence number {number}." for number in range(300)]
    events = history(texts, step=20)
    view = play(terminal.renderer, events[:-400])
    before = len(terminal.screen.rows)
    play(terminal.renderer, events[-400:], view)
    assert before > 250
    assert squeezed(terminal.screen.rows) == squeezed(texts)


def test_hypotheses_are_painted_at_most_once_in_a_frame_and_the_last_one_always() -> None:
    terminal = Terminal(80)
    clock = [0.0]
    terminal.renderer._now = lambda: clock[0]
    events = history(ENGLISH)
    view = play(terminal.renderer, events[:4])
    assert terminal.screen.rows[0] != neutralise(ENGLISH[0][:9]).strip()
    assert terminal.renderer.timeout() == FRAME_S
    clock[0] = FRAME_S
    assert terminal.renderer.timeout() == 0.0
    terminal.renderer.on_change(view, ())
    assert terminal.screen.rows[0] == ENGLISH[0][:9].strip()
    assert terminal.renderer.timeout() is None


def test_committed_text_does_not_wait_for_the_frame() -> None:
    terminal = Terminal(80)
    terminal.renderer._now = lambda: 0.0
    play(terminal.renderer, history([" Hello"])[:-1])
    assert terminal.screen.rows[0] == "Hello"
    assert terminal.renderer.timeout() is None


def test_several_files_are_shown_one_after_another_under_their_names() -> None:
    first, second = history([" one"], JOB), history([" two"], OTHER)
    terminal = Terminal(headings=True)
    play(terminal.renderer, [*first[:-1], *second, first[-1]])
    assert terminal.screen.rows == ["clip.wav", "one", "clip.wav", "two", ""]
    assert terminal.screen.dim_text == "clip.wav" * 2


def test_one_file_has_no_heading() -> None:
    terminal = Terminal()
    play(terminal.renderer, history([" one"]))
    assert terminal.screen.rows == ["one", ""]


def test_warnings_and_timings_go_to_standard_error() -> None:
    terminal = Terminal()
    play(terminal.renderer, history([" one"], warnings=("it is damaged",)))
    assert terminal.stderr.getvalue() == (
        "warning: clip.wav: it is damaged\n"
        "30.0 s of audio in 2.0 s (15.0x): frontend 0.10 s, encoder 0.50 s, decoder 1.00 s; "
        "first text after 0.70 s; language en (98%)\n"
    )


def test_an_error_message_does_not_mix_with_the_live_area() -> None:
    terminal = Terminal()
    events = history([" one two"])
    view = play(terminal.renderer, events[:3])
    terminal.renderer.error("oh\x1b[2J")
    assert terminal.screen.rows == ["", ""] or squeezed(terminal.screen.rows) == ""
    assert terminal.stderr.getvalue() == "error: oh␛[2J\n"
    play(terminal.renderer, events[3:], view)
    assert terminal.screen.rows[:2] == ["one two", ""]


def test_an_interrupted_job_leaves_the_text_that_could_not_change() -> None:
    started = history([" one two", " three four"])[:-3]  # its last hypothesis is " three fo", the last 3 not stable
    ends: list[list[Event]] = [[], [Cancelled(JOB, 9)], [Failed(JOB, "stopped", "the pipeline ended", 9)]]
    for end in ends:
        terminal = Terminal()
        play(terminal.renderer, [*started, *end])
        terminal.renderer.close()
        terminal.renderer.close()
        assert squeezed(terminal.screen.rows) == "onetwo" + "three"


def test_a_late_viewer_sees_the_text_so_far_and_what_follows() -> None:
    events = history(ENGLISH)
    segments = tuple(event for event in events[:-10] if isinstance(event, Segment))
    state = JobState(JOB, len(events) - 10, "clip.wav", "running", 90.0, segments, None, None)
    terminal, view = Terminal(), TranscriptView()
    terminal.renderer.on_change(view, view.apply_snapshot(Snapshot((state,))))
    play(terminal.renderer, events[-10:], view)
    assert squeezed(terminal.screen.rows) == squeezed(ENGLISH)


# --- pipes --------------------------------------------------------------------------------------------------


class Pipe(io.StringIO):
    """A stream that remembers what its reader had at each flush."""

    def __init__(self) -> None:
        super().__init__()
        self.flushed: list[str] = []

    def flush(self) -> None:
        """Hand over."""
        if not self.closed:
            self.flushed.append(self.getvalue())


def plain(events: Iterable[Event], **wishes: bool) -> tuple[str, str]:
    out, err = io.StringIO(), io.StringIO()
    renderer = make_renderer(out, err, **wishes)  # type: ignore[arg-type]  # none of them is about what was shown
    assert isinstance(renderer, PlainRenderer)
    play(renderer, events)
    renderer.close()
    return out.getvalue(), err.getvalue()


def test_a_pipe_gets_the_text_and_one_line_end_and_nothing_else() -> None:
    assert plain(history(ENGLISH)) == ("".join(ENGLISH)[1:] + "\n", "")


def test_committed_text_is_handed_over_as_it_comes() -> None:
    out = Pipe()
    play(PlainRenderer(Output(out), Output(io.StringIO())), history([" one", " two"])[:-1])
    assert out.flushed == ["one", "one two"]


def test_every_transcript_ends_its_line_and_silence_is_an_empty_one() -> None:
    events = [*history([" one"], JOB), *history([""], OTHER), *history([" two"], b"2" * 16)]
    assert plain(events)[0] == "one\n\ntwo\n"


def test_transcripts_do_not_mix_though_their_events_do() -> None:
    first, second = history([" one", " three"], JOB), history([" two"], OTHER)
    assert plain([*first[:4], *second, *first[4:]])[0] == "one three\ntwo\n"


def test_a_failed_file_is_one_line_on_standard_error_and_the_next_goes_on() -> None:
    failed: list[Event] = [Started(JOB, 1, "bad.wav", None), Failed(JOB, "audio", "bad.wav: no\naudio", 2)]
    assert plain([*failed, *history([" two"], OTHER)]) == ("two\n", "error: bad.wav: no audio\n")


def test_a_queued_job_that_is_cancelled_says_nothing() -> None:
    assert plain([Cancelled(JOB, 1), *history([" two"], OTHER)]) == ("two\n", "")


def test_warnings_are_told_always_and_timings_on_demand() -> None:
    events = history([" one"], warnings=("clip.wav is damaged",))
    assert plain(events)[1] == "warning: clip.wav is damaged\n"
    lines = plain(events, progress=True)[1].splitlines()
    assert lines[:2] == ["clip.wav: 0:30 / 0:30", "warning: clip.wav is damaged"]
    assert lines[2].startswith("30.0 s of audio in 2.0 s")


def test_quiet_is_the_text_and_errors() -> None:
    failed: list[Event] = [Started(OTHER, 1, "bad.wav", None), Failed(OTHER, "audio", "bad.wav: no", 2)]
    events = [*history([" one"], warnings=("damaged",)), *failed]
    assert plain(events, quiet=True, progress=True) == ("one\n", "error: bad.wav: no\n")


def test_a_pipeline_that_broke_is_told_once() -> None:
    broken = Stopped("pipeline", "decoder", "the decoder died")
    failed = Failed(JOB, "stopped", "the decoder died", 2)
    assert plain([broken])[1] == "error: the decoder died\n"
    assert plain([Started(JOB, 1, "a", None), failed, broken])[1] == "error: the decoder died\n"
    assert plain([Stopped("pipeline", "", "")])[1] == ""


def test_a_pipe_without_a_reader_ends_quietly() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as stream:
        with pytest.raises(OutputClosedError):
            play(PlainRenderer(Output(stream), Output(None, required=False)), history([" one"]))
        stream.write("what the interpreter flushes at exit does no harm any more")


def closed(stream: io.StringIO) -> io.StringIO:
    stream.close()
    return stream


@pytest.mark.parametrize("stream", [None, closed(io.StringIO())])
def test_a_closed_standard_output_is_no_crash(stream: io.StringIO | None) -> None:
    with pytest.raises(OutputClosedError):
        play(PlainRenderer(Output(stream), Output(None, required=False)), history([" one"]))


class FullDisk(io.StringIO):
    """A file for which there is no room."""

    def flush(self) -> None:
        """Fail as the system does."""
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_is_an_error_in_one_line() -> None:
    with pytest.raises(SusurrusError, match="No space left on device"):
        play(PlainRenderer(Output(FullDisk()), Output(None, required=False)), history([" one"]))


def test_a_lost_standard_error_stops_nothing() -> None:
    out = io.StringIO()
    renderer = PlainRenderer(Output(out), Output(FullDisk(), required=False), progress=True)
    play(renderer, history([" one"], warnings=("damaged",)))
    assert out.getvalue() == "one\n"


def test_output_is_utf8_whatever_the_locale_says() -> None:
    program = (
        "import sys; from susurrus.actors.terminal import Output; "
        "out = Output(sys.stdout); out.say('h\\u00e9 \\u4e16\\ud800'); Output(sys.stderr).say('\\u4e16')"
    )
    environment = {**os.environ, "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"}
    ran = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, check=True)
    assert ran.stdout.decode() == "hé 世\N{REPLACEMENT CHARACTER}\n"
    assert ran.stderr.decode() == "世\n"


# --- JSON ---------------------------------------------------------------------------------------------------


def json_lines(renderer: JsonRenderer, out: io.StringIO, events: Iterable[Event]) -> list[dict[str, object]]:
    play(renderer, events)
    renderer.close()
    return [json.loads(line) for line in out.getvalue().split("\n")[:-1]]


def test_every_event_is_one_line_with_its_type_and_all_its_fields() -> None:
    events = [*history(WILD), Stopped("pipeline", "", "")]
    out = io.StringIO()
    renderer = make_renderer(out, io.StringIO(), as_json=True)
    assert isinstance(renderer, JsonRenderer)
    lines = json_lines(renderer, out, [Welcome(JOB), Beat(1, {}), *events, events[3]])
    assert [line["type"] for line in lines] == [event.TYPE for event in events]
    for line, event in zip(lines, events, strict=True):
        names = [field.name for field in dataclasses.fields(event)]
        assert set(line) == {"type", *names}
        for name in names:
            value = getattr(event, name)
            value = value.hex() if isinstance(value, bytes) else list(value) if isinstance(value, tuple) else value
            assert line[name] == value


def test_json_carries_text_as_text_but_nothing_a_terminal_acts_on() -> None:
    line = to_json(Failed(JOB, "audio", "世 \x1b \x07 \x7f \x9b \u202e \u2028 \ud800", 1))
    assert "世" in line
    assert not [c for c in line if unicodedata.category(c) in ("Cc", "Cs", "Zl") or c == "\u202e"]
    assert json.loads(line)["text"] == "世 \x1b \x07 \x7f \x9b \u202e \u2028 \ud800"


def test_json_has_no_numbers_that_are_none() -> None:
    line = to_json(Started(JOB, 1, "a", float("nan")))
    assert json.loads(line, parse_constant=pytest.fail)["duration"] is None


def test_a_late_viewer_gets_a_snapshot_line_with_its_segments() -> None:
    segment = history([" one"])[-2]
    assert isinstance(segment, Segment)
    state = JobState(JOB, 3, "clip.wav", "running", 30.0, (segment,), None, None)
    (line,) = [json.loads(to_json(Snapshot((state,))))]
    assert line["jobs"][0]["segments"][0]["text"] == " one"
    assert line["jobs"][0]["job"] == JOB.hex()


# --- the choice ---------------------------------------------------------------------------------------------


class Tty(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        """Yes."""
        return True


def test_a_terminal_gets_the_live_display_unless_it_is_dumb_or_the_user_wants_quiet(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    assert isinstance(make_renderer(Tty(), Tty()), TerminalRenderer)
    assert isinstance(make_renderer(Tty(), Tty(), quiet=True), PlainRenderer)
    assert isinstance(make_renderer(io.StringIO(), Tty()), PlainRenderer)
    assert isinstance(make_renderer(None, None), PlainRenderer)
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(make_renderer(Tty(), Tty()), PlainRenderer)


def test_rich_is_imported_for_terminals_only() -> None:
    program = "import sys, susurrus.actors.render, susurrus.actors.view; sys.exit('rich' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


# --- harmless text ------------------------------------------------------------------------------------------


LEGITIMATE = "\u200fשלב\u200e 世界 e\u0301 👨‍👩‍👧"  # direction marks and joiners belong to text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2J", "␛[2J"),  # CSI
        ("\x1b]52;c;cm0gLXJm\x07", "␛]52;c;cm0gLXJm␇"),  # OSC 52 writes the clipboard
        ("\x1b]0;title\x1b\\", "␛]0;title␛\\"),
        ("\x9b31m", "\N{REPLACEMENT CHARACTER}31m"),  # CSI in one character
        ("\x9d52;c;AA\x9c", "\N{REPLACEMENT CHARACTER}52;c;AA\N{REPLACEMENT CHARACTER}"),
        ("\x1bP$q\x1b\\", "␛P$q␛\\"),  # DCS
        ("a\nb\tc", "a b c"),
        ("a\rb\x08", "a␍b␈"),
        ("\x00\x7f", "␀␡"),
        ("a\u202eb\u2066c\u2069\u202c", "abc"),
        ("a\u2028b", "a b"),
        ("\ud800", "\N{REPLACEMENT CHARACTER}"),
        (LEGITIMATE, LEGITIMATE),
    ],
)
def test_what_would_drive_a_terminal_becomes_visible_or_vanishes(text: str, shown: str) -> None:
    assert neutralise(text) == shown


@untimed
@given(st.text(max_size=9), st.text(max_size=9))
def test_no_control_character_passes_wherever_the_text_is_cut(text: str, more: str) -> None:
    assert neutralise(text + more) == neutralise(text) + neutralise(more)
    assert not [c for c in neutralise(text) if unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp")]
    neutralise(text).encode()


# --- rows ---------------------------------------------------------------------------------------------------

any_text = st.text(st.sampled_from("ab  世界。「é\u0301👨‍👩‍🇯🇵ー\ufe0fก็")) | st.text().map(neutralise)


@untimed
@given(any_text, st.integers(1, 12))
def test_rows_joined_are_the_text_and_none_is_too_wide(text: str, width: int) -> None:
    rows = wrap(text, width)
    assert "".join(rows) == text
    assert all(cell_count(row.rstrip(" ")) <= width or is_one_character(row) for row in rows)


def is_one_character(row: str) -> bool:
    """Whether the row cannot be broken: some characters are wider than a very narrow terminal."""
    return len(wrap(row, 1)) == 1


@untimed
@given(any_text, any_text, st.integers(2, 12))
def test_more_text_changes_only_the_last_row(text: str, more: str, width: int) -> None:
    settled = wrap(text, width)[:-1]
    assert wrap(text + more, width)[: len(settled)] == settled
    assert settled + wrap("".join(wrap(text, width)[-1:]) + more, width) == wrap(text + more, width)


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("one two three", ["one two ", "three"]),
        ("abcdefghijkl", ["abcdefgh", "ijkl"]),
        ("a abcdefghijkl", ["a ", "abcdefgh", "ijkl"]),
        ("世界世界。世界", ["世界世", "界。世界"]),
        ("世界世「世界」", ["世界世", "「世界」"]),
        ("", [""]),
    ],
)
def test_rows_end_where_a_reader_expects(text: str, rows: list[str]) -> None:
    assert wrap(text, 8) == rows
