"""Children are started quietly, end with their parent by whatever cause, and are reaped for certain."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from shlex import quote

import pytest

from susurrus.actors.supervisor import KILL, Command, Supervisor, describe_exit
from tests.actors.fakes import PATIENCE_S

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="the end of a grandchild as an event: Linux")

HOST = """
import os, signal, sys
from pathlib import Path
from shlex import quote
from susurrus.actors.supervisor import Command, Supervisor

supervisor = Supervisor(Path("nowhere"), lambda name, code: None, python=sys.argv[1])
for name in ("frontend", "encoder", "decoder"):
    supervisor.start(Command(name))
print(*supervisor.pids().values(), flush=True)
if "fork" in sys.argv and os.fork() == 0:
    print("forked", os.getpid(), flush=True)
while True:
    signal.pause()
"""

CHILD = """
# Stands for the interpreter: an actor that has loaded nothing and works for ever.
import os, signal, sys
from susurrus.actors import lifeline
{before}
lifeline.watch(sys.stdin.fileno())
os.write({told}, b"ready\\n")
while True:
    signal.pause()
"""

Interpreter = Callable[..., Path]
Supervise = Callable[[Path], Supervisor]


@pytest.fixture
def interpreter(tmp_path: Path) -> Interpreter:
    """Writes what is run instead of Python: a script that ignores its arguments."""

    def write(before: str = "", told: int = 2, body: str | None = None) -> Path:
        path, program = tmp_path / "python", tmp_path / "child.py"
        program.write_text(body or CHILD.format(before=before, told=told))
        path.write_text(f'#!/bin/sh\nexec {quote(sys.executable)} {quote(str(program))} "$@"\n')
        path.chmod(0o700)
        return path

    return write


class Exits:
    """What the waiting threads tell."""

    def __init__(self) -> None:
        self.told: dict[str, int] = {}
        self._news = threading.Condition()

    def __call__(self, name: str, code: int) -> None:
        """As the supervisor calls it."""
        with self._news:
            self.told[name] = code
            self._news.notify_all()

    def wait_for(self, name: str) -> int:
        """The code of a child, once it has ended."""
        with self._news:
            assert self._news.wait_for(lambda: name in self.told, PATIENCE_S)
            return self.told[name]


@pytest.fixture
def exits() -> Exits:
    return Exits()


@pytest.fixture
def supervise(exits: Exits) -> Iterator[Callable[[Path], Supervisor]]:
    made: list[Supervisor] = []

    def make(python: Path) -> Supervisor:
        made.append(Supervisor(Path("connection.json"), exits, python=str(python)))
        return made[-1]

    yield make
    for supervisor in made:
        supervisor.close()


def lines(pipe: int, count: int) -> list[str]:
    """That many lines out of a pipe."""
    text = b""
    deadline = time.monotonic() + PATIENCE_S
    while text.count(b"\n") < count:
        assert select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))[0], f"only {text!r} came"
        chunk = os.read(pipe, 4096)
        assert chunk, f"the end came after {text!r}"
        text += chunk
    return text.decode().splitlines()


class Watched:
    """Processes whose end is an event, though they are not our children (a zombie has ended)."""

    def __init__(self, pids: list[int]) -> None:
        self._descriptors = [os.pidfd_open(pid) for pid in pids]

    def end(self, timeout: float = PATIENCE_S) -> bool:
        """Whether all of them end in time."""
        deadline = time.monotonic() + timeout
        left = set(self._descriptors)
        while left and (ended := select.select(left, [], [], max(0.0, deadline - time.monotonic()))[0]):
            left -= set(ended)
        for descriptor in self._descriptors:
            os.close(descriptor)
        return not left


def start_host(python: Path, *arguments: str) -> subprocess.Popen[bytes]:
    """A program with three children, in a process group of its own."""
    command = [sys.executable, "-c", HOST, str(python), *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)


@pytest.fixture
def host_and_children(
    interpreter: Interpreter, request: pytest.FixtureRequest
) -> Iterator[tuple[subprocess.Popen[bytes], list[int]]]:
    arguments: list[str] = getattr(request, "param", [])
    with start_host(interpreter(), *arguments) as host:
        assert host.stdout is not None
        assert host.stderr is not None
        pids = [int(pid) for pid in lines(host.stdout.fileno(), 1 + len(arguments))[0].split()]
        assert lines(host.stderr.fileno(), 3) == ["ready"] * 3
        try:
            yield host, pids
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(host.pid, signal.SIGKILL)


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGTERM])
def test_children_end_when_their_parent_does_by_whatever_cause(
    host_and_children: tuple[subprocess.Popen[bytes], list[int]], signum: signal.Signals
) -> None:
    host, children = host_and_children
    watched = Watched(children)
    host.send_signal(signum)
    host.wait()
    assert watched.end()


@pytest.mark.parametrize("host_and_children", [["fork"]], indirect=True)
def test_a_forked_copy_of_the_parent_does_not_keep_the_children_alive(
    host_and_children: tuple[subprocess.Popen[bytes], list[int]],
) -> None:
    host, children = host_and_children
    watched = Watched(children)
    host.kill()
    host.wait()
    assert watched.end()


def test_interrupts_of_the_whole_group_during_the_start_print_nothing(interpreter: Interpreter) -> None:
    # The child is interrupted before it can have installed anything, then says so, and lives on.
    before = "os.killpg(0, signal.SIGINT)\nfrom susurrus.actors.process import ignore_interrupts\nignore_interrupts()"
    host = HOST.replace("supervisor = ", "signal.signal(signal.SIGINT, lambda *_: None)\nsupervisor = ")
    python = interpreter(before)
    command = [sys.executable, "-c", host, str(python)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        watched = Watched([int(pid) for pid in lines(process.stdout.fileno(), 1)[0].split()])
        assert lines(process.stderr.fileno(), 3) == ["ready"] * 3
        os.killpg(process.pid, signal.SIGINT)
        process.kill()
        assert watched.end()
        assert process.stderr.read() == b""


def test_the_parent_keeps_its_own_signal_mask(interpreter: Interpreter, supervise: Supervise) -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    supervise(interpreter()).start(Command("encoder"))
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before


def test_the_end_of_a_child_is_told_at_once_with_its_code(
    interpreter: Interpreter, supervise: Supervise, exits: Exits
) -> None:
    supervisor = supervise(interpreter(body="raise SystemExit(7)"))
    supervisor.start(Command("encoder"))
    assert exits.wait_for("encoder") == 7
    assert supervisor.running() == []
    assert supervisor.pids() == {}


def test_a_child_that_was_killed_is_told_with_the_signal(
    interpreter: Interpreter, supervise: Supervise, exits: Exits
) -> None:
    supervisor = supervise(interpreter(body="import signal; signal.pause()"))
    supervisor.start(Command("decoder"))
    os.kill(supervisor.pids()["decoder"], signal.SIGKILL)
    assert exits.wait_for("decoder") == -signal.SIGKILL


def test_a_command_is_a_module_of_ours_with_the_connection_and_a_lifeline(
    interpreter: Interpreter, supervise: Supervise, exits: Exits, tmp_path: Path
) -> None:
    told = tmp_path / "told"
    supervisor = supervise(interpreter(body=f"import sys; open({str(told)!r}, 'w').write(chr(10).join(sys.argv[1:]))"))
    supervisor.start(Command("frontend", ("--audio-fd", "7")))
    exits.wait_for("frontend")
    wanted = [
        "-P",
        "-m",
        "susurrus.actors.frontend",
        "--connection",
        "connection.json",
        "--lifeline",
        "--audio-fd",
        "7",
    ]
    assert told.read_text().splitlines() == wanted


def test_only_the_console_has_our_standard_output(
    interpreter: Interpreter, supervise: Supervise, exits: Exits, capfd: pytest.CaptureFixture[str]
) -> None:
    supervisor = supervise(interpreter(body="import sys; print('from', sys.argv[3])"))
    supervisor.start(Command("encoder"))
    supervisor.start(Command("console", owns_terminal=True))
    exits.wait_for("encoder")
    exits.wait_for("console")
    assert capfd.readouterr().out == "from susurrus.actors.console\n"


def test_arithmetic_beside_onnx_runtime_has_one_thread(
    interpreter: Interpreter, supervise: Supervise, exits: Exits, tmp_path: Path
) -> None:
    told = tmp_path / "told"
    settings = "[os.environ[library + '_NUM_THREADS'] for library in ('OPENBLAS', 'MKL', 'OMP')]"
    body = f"import os; open({str(told)!r}, 'w').write(' '.join({settings}))"
    supervise(interpreter(body=body)).start(Command("encoder"))
    exits.wait_for("encoder")
    assert told.read_text() == "1 1 1"


def test_a_child_that_ignores_every_polite_word_is_killed_and_reaped(
    interpreter: Interpreter, supervise: Supervise, exits: Exits
) -> None:
    reader, writer = os.pipe()
    body = (
        "import os, signal\n"
        "for s in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP): signal.signal(s, signal.SIG_IGN)\n"
        f"os.write({writer}, b'deaf\\n')\n"
        "while True: signal.pause()"
    )
    supervisor = supervise(interpreter(body=body))
    supervisor.start(Command("encoder", pass_fds=(writer,)))
    assert lines(reader, 1) == ["deaf"]
    supervisor.signal(["encoder"], signal.SIGTERM)
    assert supervisor.reap(["encoder"], time.monotonic() + 0.05) == ["encoder"]
    supervisor.close()
    assert exits.wait_for("encoder") == -KILL
    for descriptor in (reader, writer):
        os.close(descriptor)


def test_signals_to_a_child_that_has_ended_are_nothing(
    interpreter: Interpreter, supervise: Supervise, exits: Exits
) -> None:
    supervisor = supervise(interpreter(body="pass"))
    supervisor.start(Command("encoder"))
    exits.wait_for("encoder")
    supervisor.signal(["encoder"], signal.SIGTERM)
    assert supervisor.reap(["encoder"], deadline=None) == []
    supervisor.close()
    supervisor.close()


def test_an_interpreter_that_is_not_there_is_an_oserror(supervise: Supervise) -> None:
    with pytest.raises(OSError, match="no-such-python"):
        supervise(Path("/no-such-python")).start(Command("encoder"))


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (0, "ended with code 0"),
        (3, "ended with code 3"),
        (-9, "was killed by SIGKILL"),
        (-11, "was killed by SIGSEGV"),
        (-40, "was killed by signal 40"),
    ],
)
def test_exit_codes_are_told_in_words(code: int, words: str) -> None:
    assert describe_exit(code) == words
