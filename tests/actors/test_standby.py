"""Actors that wait to be told what they are: who starts them, who needs them not, and what becomes of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from susurrus.actors import standby
from susurrus.actors.children import Command

PATIENCE_S = 60
ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="processes are copied on Linux alone")


@pytest.fixture
def clip(tmp_path: Path) -> str:
    """A file that a command line may name."""
    path = tmp_path / "clip.wav"
    path.write_bytes(b"")
    return str(path)


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The actors that are started: names, nothing else."""
    names: list[str] = []

    def start(_arguments: list[str], command: Command) -> None:
        names.append(command.name)

    monkeypatch.setattr(standby, "can_fork", lambda: False)
    monkeypatch.setattr(standby, "start_process", start)
    monkeypatch.setattr(standby, "_waiting", {})
    monkeypatch.setattr("atexit.register", lambda _what: None)
    return names


@pytest.mark.parametrize("words", [["{}"], ["--wav", "{}"], ["--wav={}", "--json"], ["-f", "srt", "no such", "{}"]])
def test_a_command_line_that_names_a_file_starts_all(waiting: list[str], clip: str, words: list[str]) -> None:
    standby.begin([word.format(clip) for word in words])
    assert sorted(waiting) == ["console", "decoder", "encoder", "frontend"]


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["no such.wav"],
        ["--help", "{}"],
        ["--version", "{}"],
        ["--doctor", "{}"],
        ["--attach", "{}"],
        ["--status={}"],
        ["--serve", "--trace", "{}"],
        ["--connect", "{}"],
        ["--connection", "{}", "{}"],
        ["-", "{}"],
    ],
)
def test_one_that_starts_no_pipeline_or_hands_on_standard_input_starts_none(
    waiting: list[str], clip: str, words: list[str]
) -> None:
    standby.begin([word.format(clip) for word in words])
    assert waiting == []


def test_where_no_process_can_be_started_nobody_waits(
    waiting: list[str], clip: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_arguments: list[str], _command: Command) -> None:
        raise OSError(24, "too many open files")

    monkeypatch.setattr(standby, "start_process", fail)
    standby.begin([clip])
    assert (waiting, standby.take(sys.executable, "encoder", [], Command("encoder"))) == ([], None)


def test_another_interpreter_or_inherited_descriptors_take_a_process_of_their_own() -> None:
    assert standby.take("/another/python", "encoder", [], Command("encoder")) is None
    assert standby.take(sys.executable, "frontend", [], Command("frontend", pass_fds=(7,))) is None


TAKE_ONE = """
import sys
from susurrus.actors import standby
from susurrus.actors.children import Command
standby.can_fork = {can_fork}
standby.begin([{clip!r}])
others = dict(standby._waiting)
assert len(others) == 4
frontend = standby.take(sys.executable, "frontend", ["--connection", "no/such/file"], Command("frontend"))
assert frontend is others.pop("frontend")
text = frontend.stderr.read().decode()
print(frontend.wait(), text.strip())
assert all(process.poll() is None for process in others.values())
standby.dismiss()
print(sorted(process.returncode for process in others.values()))
"""


@pytest.mark.parametrize("can_fork", [pytest.param("standby.can_fork", marks=ON_LINUX), "lambda: False"])
def test_who_is_taken_becomes_that_actor_and_the_others_are_ended(can_fork: str, clip: str) -> None:
    program = TAKE_ONE.format(can_fork=can_fork, clip=clip)
    run = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, timeout=PATIENCE_S)
    taken, ended = run.stdout.decode().splitlines()
    assert taken.startswith("4 error: no/such/file: ")
    assert ended == ("[-9, -9, -9]" if sys.platform != "win32" else "[1, 1, 1]")
    assert run.stderr == b""


ORPHANS = """
import os
from susurrus.actors import standby
{fork}
standby.begin([{clip!r}])
print(*[process.pid for process in standby._waiting.values()], flush=True)
os._exit(0)
"""


@pytest.mark.parametrize("fork", [pytest.param("", marks=ON_LINUX), "standby.can_fork = lambda: False"])
def test_whose_parent_dies_before_they_are_told_anything_end(fork: str, clip: str) -> None:
    program = ORPHANS.format(fork=fork, clip=clip)
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as run:
        assert run.stdout is not None
        assert len(run.stdout.readline().split()) == 4
        assert run.stdout.read() == b"", "the console has this pipe too: it is empty at its end, when all have ended"


@ON_LINUX
def test_a_process_with_other_threads_is_not_copied() -> None:
    program = """
import threading
from susurrus.actors.forked import can_fork
assert can_fork()
end = threading.Event()
thread = threading.Thread(target=end.wait)
thread.start()
assert not can_fork()
end.set()
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=PATIENCE_S)


COPY = """
import os, signal, subprocess, sys, time
from susurrus.actors.children import Command
from susurrus.actors.forked import fork_process

def live():
    sys.stderr.write(sys.stdin.readline())
    sys.stderr.flush()
    print("to nobody", flush=True)
    time.sleep(600)

copy = fork_process(Command("frontend"), live)
try:
    copy.wait(0.01)
except subprocess.TimeoutExpired:
    print("lives")
os.write(copy.stdin.fileno(), b"word\\n")
print(copy.stderr.readline().decode().strip(), open(f"/proc/{copy.pid}/comm").read().strip())
print(copy.poll(), sorted(os.listdir(f"/proc/{copy.pid}/fd")))
copy.send_signal(signal.SIGTERM)
print(copy.wait(), copy.poll(), copy.wait(1))
copy.kill()
broken = fork_process(Command("encoder"), lambda: 1 / 0)
print(broken.stderr.read().decode().splitlines()[-1], broken.wait())
"""


@ON_LINUX
def test_a_copy_has_its_own_streams_a_name_and_an_exit_code() -> None:
    run = subprocess.run([sys.executable, "-c", COPY], check=True, capture_output=True, timeout=PATIENCE_S)
    assert run.stdout.decode().splitlines() == [
        "lives",
        "word frontend",
        "None ['0', '1', '2']",
        "-15 -15 -15",
        "ZeroDivisionError: division by zero 1",
    ]
    assert run.stderr == b""
