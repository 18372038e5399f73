"""What an actor writes down, and the putting together: private, whole as far as it goes, and no burden to anybody."""

from __future__ import annotations

import argparse
import errno
import functools
import json
import logging
import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from susurrus.actors.actor_trace import ActorTrace
from susurrus.actors.behaviour import Behaviour
from susurrus.actors.shell import Shell
from susurrus.actors.trace import add_trace_option, main, prepare, shell_type, trace_arguments, tracing, watched
from susurrus.actors.trace_journal import EVENTS, Journal, now_ns
from susurrus.actors.trace_report import put_together, read_events, read_lines, recordings, safe_name
from susurrus.actors.traced import TracedShell, _traced
from susurrus.actors.view import Change, TranscriptView
from susurrus.models.errors import OptionError, OutputError
from susurrus.protocol import Cancel, Credit, Hello, HiddenStates, Ping, Pong, new_id
from tests.actors import fakes
from tests.actors.fakes import FakeEncoder, Stage, features, hidden_states, submit


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where a trace goes."""
    prepare(tmp_path / "trace")
    return tmp_path / "trace"


@pytest.fixture
def on_stage(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    """A fake encoder that is looked at."""
    monkeypatch.setattr(fakes, "Shell", functools.partial(TracedShell, folder=folder))
    with ExitStack() as resources:
        stage = resources.enter_context(Stage(FakeEncoder()))
        stage.hear(Hello)
        stage.wire()
        yield stage


def events(folder: Path, name: str) -> list[dict[str, Any]]:
    return [event for event in read_events(folder) if event["name"] == name]


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# --- an actor ---


def test_what_an_actor_hears_does_and_sends_is_in_its_journal_in_order(on_stage: Stage, folder: Path) -> None:
    work = features(new_id(), 7)
    on_stage.upstream.send(work)
    on_stage.say(Credit(windows=1))
    assert isinstance(on_stage.result(), HiddenStates)
    on_stage.shell.stop()
    on_stage.thread.join(fakes.PATIENCE_S)
    seen = [(event["ph"], event["name"]) for event in read_events(folder) if event["ph"] != "M"]
    for earlier, later in [
        (("X", "load"), ("i", "ready")),
        (("b", "in the inbox"), ("X", "window 7")),
        (("X", "window 7"), ("e", "in the inbox")),
        (("X", "window 7"), ("X", "wait for credit")),
        (("X", "wait for credit"), ("s", "window")),
    ]:
        assert seen.index(earlier) < seen.index(later)
    (window,) = events(folder, "window 7")
    assert window["args"] == {
        **window["args"],
        "job": work.job.hex(),
        "window": 7,
        "attempt": 1,
    }
    (waiting,) = events(folder, "wait for credit")
    assert window["args"]["credit_ms"] * 1e3 == pytest.approx(waiting["dur"], rel=0.01, abs=50)
    assert window["args"]["worked_ms"] * 1e3 <= window["dur"]


def test_pings_are_not_worth_an_event(on_stage: Stage, folder: Path) -> None:
    on_stage.say(Ping(number=1))
    on_stage.hear(Pong)
    on_stage.say(Cancel(job=new_id()))
    on_stage.say(Ping(number=2))
    on_stage.hear(Pong)
    assert {event["name"] for event in read_events(folder) if event.get("cat") == "received"} >= {"cancel"}
    assert not events(folder, "ping")


def test_arrays_that_are_sent_are_written_down_for_the_user_alone(on_stage: Stage, folder: Path) -> None:
    work = features(new_id(), 3)
    on_stage.say(Credit(windows=1))
    on_stage.upstream.send(work)
    assert on_stage.result() is not None
    on_stage.hear(Credit, lambda credit: credit.windows == 1)  # the work is over
    window = folder / work.job.hex() / "window-003"
    facts = json.loads((window / "hidden_states.json").read_text())
    assert facts["shape"] == [2, 4]
    with np.load(window / "hidden_states.npz") as arrays:
        assert arrays["norms"].tolist() == [6.0, 6.0]  # four times 3
    everything = [folder, *folder.rglob("*")]
    assert {mode(path) for path in everything if path.is_dir()} == {0o700}
    assert {mode(path) for path in everything if path.is_file()} == {0o600}


def test_the_mel_is_kept_as_picture_and_as_numbers(folder: Path) -> None:
    trace = ActorTrace(folder, "frontend")
    work = features(new_id(), 0)
    trace.sent(work, now_ns())
    trace.close()
    window = folder / work.job.hex() / "window-000"
    assert (window / "mel.png").read_bytes().startswith(b"\x89PNG")
    with np.load(window / "mel.npz") as arrays:
        assert np.array_equal(arrays["mel"], work.mel)
        assert (float(arrays["silence"]), float(arrays["start"]), float(arrays["end"])) == (-1.0, 0.0, 1.0)


def test_work_that_is_done_again_does_not_overwrite_the_first_attempt(folder: Path) -> None:
    trace = ActorTrace(folder, "encoder")
    message = hidden_states(features(new_id(), 4))
    trace.sent(message, now_ns())
    trace.sent(replace(message, attempt=2), now_ns())
    trace.close()
    names = {path.name for path in (folder / message.job.hex()).iterdir()}
    assert names == {"window-004", "window-004.attempt-2"}


def test_a_trace_without_room_ends_with_one_line_and_the_job_goes_on(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    trace = ActorTrace(folder, "encoder")

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    work = features(new_id())
    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING, "susurrus"):
        patch.setattr(os, "write", full)
        with trace.works("features", work):
            trace.sent(hidden_states(work), now_ns())
            trace.sent(hidden_states(work), now_ns())
    trace.close()
    assert [record.getMessage() for record in caplog.records] == ["the trace ends here"]


def test_a_trace_whose_folder_cannot_be_made_is_none(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").touch()
    with caplog.at_level(logging.WARNING, "susurrus"):
        trace = ActorTrace(tmp_path / "file", "encoder")
        trace.sent(hidden_states(features(new_id())), now_ns())
    trace.close()
    assert len(caplog.records) == 1


def test_without_the_option_nothing_of_it_is_there() -> None:
    assert shell_type(None) is Shell
    assert Behaviour.trace is None
    parser = argparse.ArgumentParser()
    add_trace_option(parser)
    assert trace_arguments(parser.parse_args([])) == ()
    with tracing(None) as trace:
        jobs: Any = object()
        assert trace.watch(jobs) is jobs
    code = "import sys, susurrus.actors.decoder, susurrus.actors.process, susurrus.run; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "susurrus.actors.trace" in loaded
    assert not {"susurrus.models.tracing", "susurrus.actors.traced", "susurrus.actors.trace_report"} & set(loaded)


def test_children_get_the_folder_by_its_absolute_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    parser = argparse.ArgumentParser()
    add_trace_option(parser)
    arguments = parser.parse_args(["--trace", "here"])
    assert trace_arguments(arguments) == ("--trace", str(tmp_path / "here"))


def test_no_method_of_a_behaviour_is_forgotten_by_the_one_that_looks_at_it(folder: Path) -> None:
    trace = ActorTrace(folder, "encoder")
    looking = vars(type(_traced(FakeEncoder(), trace)))
    trace.close()
    methods = {name for name, value in vars(Behaviour).items() if callable(value) and not name.startswith("_")}
    assert methods <= set(looking)


def test_a_behaviour_that_is_looked_at_grants_and_keeps_windows_as_without(folder: Path) -> None:
    class Keeping(FakeEncoder):
        windows_granted = 7
        keeps_windows = True

    trace, behaviour = ActorTrace(folder, "encoder"), Keeping()
    looking = _traced(behaviour, trace)
    trace.close()
    for setting in set(Behaviour.__annotations__) - {"trace"}:
        assert getattr(looking, setting) == getattr(behaviour, setting), setting


def test_the_console_draws_as_without_and_what_it_was_shown_is_written_down(folder: Path) -> None:
    shown: list[object] = []

    class Screen:
        def on_change(self, view: TranscriptView, changes: Sequence[Change]) -> None:
            shown.append((view, changes))

        def timeout(self) -> float | None:
            return 1.5

        def error(self, text: str) -> None:
            shown.append(text)

        def close(self) -> None:
            shown.append("closed")

    screen, view, changes = Screen(), TranscriptView(), [fakes.partial(new_id(), 0)]
    assert watched(screen, None) is screen
    renderer = watched(screen, folder)
    renderer.on_change(view, changes)
    renderer.on_change(view, [])
    renderer.error("oh")
    assert renderer.timeout() == 1.5
    renderer.close()
    assert shown == [(view, changes), (view, []), "oh", "closed"]
    seen = [(event["ph"], event["name"]) for event in read_events(folder) if event["ph"] != "M"]
    assert seen == [("X", "draw"), ("i", "partial")]


# --- the folder ---


def test_a_folder_with_something_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir(mode=0o755)
    prepare(tmp_path / "old")
    assert mode(tmp_path / "old") == 0o700
    (tmp_path / "old" / "trace.json").touch()
    with pytest.raises(OptionError, match="name a new one"):
        prepare(tmp_path / "old")
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="cannot be written"):
        prepare(tmp_path / "file")


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("samples/jfk.wav", "jfk"),
        ("../../etc/passwd", "passwd"),
        ("..", "recording"),
        ("", "recording"),
        ("-", "-"),
        (".hidden", "hidden"),
        ("C:\\talks\\day 1.mp3", "day_1"),
        ("evil\n\x1b[2J.wav", "evil_2J"),
        ("Gespräch 1.5.wav", "Gespräch_1.5"),
        ("x" * 300 + ".wav", "x" * 80),
    ],
)
def test_a_recordings_folder_has_a_name_that_is_safe(name: str, safe: str) -> None:
    assert safe_name(name) == safe


def test_no_two_recordings_share_a_folder_nor_take_the_traces_own() -> None:
    names = ["a/clip.wav", "b/Clip.mp3", "events.wav", "clip-2.wav", "clip.wav"]
    found = recordings([{"args": {"job": str(index), "name": name}} for index, name in enumerate(names)])
    folders = [folder.casefold() for _, folder in found.values()]
    assert len(set(folders)) == len(names)
    assert EVENTS not in folders
    assert [name for name, _ in found.values()] == names


# --- putting together ---


def write_trace(folder: Path, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """A frontend and an encoder, processes of their own, that had one window of one recording."""
    work = features(new_id(), 2)
    for pid, (name, message) in enumerate((("frontend", work), ("encoder", hidden_states(work)))):
        with monkeypatch.context() as patch:
            patch.setattr(os, "getpid", lambda pid=pid: pid)
            trace = ActorTrace(folder, name)
        trace.hears(submit(work.job, "talks/day 1.wav"))
        if name == "encoder":
            trace.arrived(work)
            with trace.works("features", work):
                trace.sent(message, now_ns())
        else:
            trace.sent(message, now_ns())
        trace.close()
    return work.job


def test_the_parts_become_one_trace_that_can_be_put_together_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = write_trace(folder, monkeypatch)
    (page,) = put_together(folder)
    assert page == folder / "day_1" / "summary.txt"
    assert not (folder / job.hex()).exists()
    assert {path.name for path in (folder / "day_1" / "window-002").iterdir()} == {
        "mel.json",
        "mel.npz",
        "mel.png",
        "hidden_states.json",
        "hidden_states.npz",
    }
    header, row = (folder / "day_1" / "queues.tsv").read_text().splitlines()
    assert dict(zip(header.split("\t"), row.split("\t"), strict=True))["process"] == "encoder"
    first = page.read_text()
    assert first.startswith("talks/day 1.wav\n")
    late = folder / job.hex() / "window-003"
    late.mkdir(parents=True)
    (late / "mel.json").write_text("{}")
    assert put_together(folder) == [page]
    assert (folder / "day_1" / "window-003" / "mel.json").is_file()
    assert page.read_text().startswith(first.rstrip("\n"))
    json.loads((folder / "trace.json").read_text())


def test_a_line_that_a_killed_process_did_not_finish_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    whole = b'{"a": 1}\n{"b": "\xc3\xa9"}\n'
    for length in range(len(whole) + 1):
        path.write_bytes(whole[:length])
        assert read_lines(path) == [{"a": 1}, {"b": "é"}][: sum(length >= end for end in (8, len(whole) - 1))]
    assert read_lines(tmp_path / "nothing") == []


def test_events_of_all_processes_are_in_order_of_time(folder: Path) -> None:
    first, second = Journal(folder, "first"), Journal(folder, "second")
    for count in range(5):
        (second if count % 2 else first).instant(str(count), "test", now_ns())
    first.close()
    second.close()
    assert [event["name"] for event in read_events(folder) if event["ph"] == "i"] == list("01234")


def test_the_command_names_what_it_made_or_what_is_missing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(folder)]) == 6
    assert "there is no trace in it" in capsys.readouterr().err
    write_trace(folder, monkeypatch)
    assert main([str(folder)]) == 0
    assert capsys.readouterr().out == f"{folder / 'day_1' / 'summary.txt'}\n"


def test_what_ended_the_run_is_not_hidden_by_its_trace(tmp_path: Path) -> None:
    def broken() -> None:
        with tracing(tmp_path / "trace"):
            for path in (tmp_path / "trace" / EVENTS).iterdir():
                path.unlink()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        broken()


def test_the_client_is_looked_at_as_it_asks_and_gets(folder: Path) -> None:
    job, name = new_id(), "clip.wav"

    class Jobs:
        def submit(self, source: str, **how: object) -> bytes:
            assert (source, how) == ("/clip.wav", {"name": name})
            return job

        def receive(self, timeout: float | None = None) -> object:
            assert timeout is None
            return fakes.failed(job)

    folder.rmdir()
    with tracing(folder) as trace:
        watch: Callable[[Any], Any] = trace.watch
        jobs = watch(Jobs())
        assert jobs.submit("/clip.wav", name=name) == job
        assert jobs.receive() == fakes.failed(job)
    assert [event["ph"] for event in events(folder, name)] == ["b", "e"]
    assert (folder / "clip" / "summary.txt").is_file()
