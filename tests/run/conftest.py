"""The command line as people have it: real processes on real pipes, files and terminals.

Nothing here sleeps: a test waits for a line, a byte or an end, and DEADLINE_S only keeps a broken build from hanging.
"""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import psutil
import pytest
import soundfile

from susurrus.actors.line import STATIONS

ROOT = Path(__file__).parents[2]
RUN = ROOT / "run.py"
DEADLINE_S = 100.0
POLL_S = 0.02  # between two looks at what does not tell by itself


def wait_until(holds: Callable[[], bool], what: str) -> None:
    """Look until something holds that nobody tells of."""
    deadline = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < deadline, f"it did not come: {what}"
        threading.Event().wait(POLL_S)


class Finished(NamedTuple):
    """What a process leaves."""

    code: int
    out: str
    err: str

    @property
    def events(self) -> list[dict[str, Any]]:
        """The lines of `--json`."""
        return [json.loads(line) for line in self.out.splitlines()]

    def of_type(self, kind: str) -> list[dict[str, Any]]:
        """The events of one type."""
        return [event for event in self.events if event["type"] == kind]

    @property
    def dones(self) -> dict[str, dict[str, Any]]:
        """The done event of each input, by its name."""
        names = {event["job"]: event["name"] for event in self.events if event["type"] == "started"}
        return {names[event["job"]]: event for event in self.of_type("done")}


class Lines:
    """What comes out of a pipe, taken by a thread of its own so that the pipe is never full."""

    def __init__(self, pipe: IO[bytes]) -> None:
        assert isinstance(pipe, io.BufferedReader)
        self._pipe = pipe
        self._data = bytearray()
        self._seen = 0
        self._ended = False
        self._news = threading.Condition()
        self._thread = threading.Thread(target=self._take, daemon=True)
        self._thread.start()

    def _take(self) -> None:
        data = b"-"
        while data:
            data = self._pipe.read1(65536)
            with self._news:
                self._data += data
                self._ended = not data
                self._news.notify_all()

    def wait_for(self, wanted: Callable[[str], bool]) -> str:
        """The next line, among those not looked at yet, that is wanted."""
        with self._news:
            while True:
                while (end := self._data.find(b"\n", self._seen) + 1) > 0:
                    line = self._data[self._seen : end].decode()
                    self._seen = end
                    if wanted(line):
                        return line
                self._wait()

    def wait_for_text(self) -> None:
        """Until there is anything at all, be it half a line."""
        with self._news:
            while not self._data:
                self._wait()

    def _wait(self) -> None:
        assert not self._ended, f"ended without it: {self.text}"
        assert self._news.wait(DEADLINE_S), f"it did not come: {self.text}"

    @property
    def text(self) -> str:
        """All of it so far. Strict: output is UTF-8 whatever happens."""
        return self._data.decode()

    def finish(self) -> str:
        """All of it, once the other end is closed."""
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive(), "somebody still holds the other end of the pipe"
        self._pipe.close()
        return self.text


class Running:
    """A process that runs: `out` and `err` grow meanwhile."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.out = Lines(process.stdout) if process.stdout else None
        self.err = Lines(process.stderr) if process.stderr else None

    @property
    def stdin(self) -> IO[bytes]:
        """Its standard input."""
        assert self.process.stdin is not None
        return self.process.stdin

    def feed(self, data: bytes) -> None:
        """Write to its standard input, which stays open."""
        self.stdin.write(data)
        self.stdin.flush()

    def wait_for_event(self, kind: str) -> dict[str, Any]:
        """The next event of that type (with `--json`)."""
        assert self.out is not None
        event: dict[str, Any] = json.loads(self.out.wait_for(lambda line: json.loads(line)["type"] == kind))
        return event

    def wait_for_log(self, text: str) -> None:
        """Until a line of standard error holds this text."""
        assert self.err is not None
        self.err.wait_for(lambda line: text in line)

    def signal(self, signum: int, *, group: bool = False) -> None:
        """Send a signal to the process alone, or to all of its group as a terminal does."""
        if group:
            os.killpg(self.process.pid, signum)
        else:
            self.process.send_signal(signum)

    def actors(self) -> dict[str, psutil.Process]:
        """Its children, by the name of their actor."""
        children = psutil.Process(self.process.pid).children(recursive=True)
        return {_actor_name(child): child for child in children}

    def finish(self) -> Finished:
        """Wait for its end."""
        if self.process.stdin and not self.process.stdin.closed:
            self.process.stdin.close()
        code = self.process.wait(DEADLINE_S)
        return Finished(code, self.out.finish() if self.out else "", self.err.finish() if self.err else "")


def _actor_name(process: psutil.Process) -> str:
    words: list[str] = process.cmdline()
    forked = process.name()  # a copy of run.py has its command line, and says by its name what it is
    module = next((word for word in words if word.startswith("susurrus.actors.")), forked)
    return words[words.index("--name") + 1] if "--name" in words else module.removeprefix("susurrus.actors.")


LOOKS_HERE = """
import os, sys
from pathlib import Path
import susurrus.protocol.connection
import susurrus.run
susurrus.protocol.connection.candidates = lambda: [Path(os.environ["XDG_RUNTIME_DIR"])]
sys.exit(susurrus.run.main(sys.argv[1:]))
"""


class Cli:
    """Starts run.py with the tests' models and a runtime folder of its own, so that runs do not see each other."""

    command = (sys.executable, str(RUN))
    here = (sys.executable, "-c", LOOKS_HERE)
    """The same, with no eye for the pipelines of others: the newest one is that of this test."""
    installed_command = (str(Path(sys.executable).with_name("susurrus")),)

    def __init__(self, models: Path, runtime: Path) -> None:
        self.runtime = runtime
        self.environment = {**os.environ, "SUSURRUS_MODELS": str(models), "XDG_RUNTIME_DIR": str(runtime)}
        for name in ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "PYTHONUNBUFFERED"):
            self.environment.pop(name, None)
        self._started: list[subprocess.Popen[bytes]] = []

    def start(
        self,
        *arguments: str | Path,
        command: Sequence[str | Path] = command,
        env: Mapping[str, str | None] | None = None,
        cwd: Path = ROOT,
        stdin: int | IO[bytes] | None = subprocess.DEVNULL,
        stdout: int | IO[bytes] = subprocess.PIPE,
        stderr: int | IO[bytes] = subprocess.PIPE,
    ) -> Running:
        """Start it and return at once. A variable of `env` that is None is unset."""
        environment = {**self.environment, **(env or {})}
        process = subprocess.Popen(
            [*command, *arguments],
            env={name: value for name, value in environment.items() if value is not None},
            cwd=cwd,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )
        self._started.append(process)
        return Running(process)

    def __call__(self, *arguments: str | Path, **how: Any) -> Finished:
        """Run it to its end."""
        return self.start(*arguments, **how).finish()

    def start_waiting(self, *arguments: str | Path) -> Running:
        """Start a pipeline, with `--wav -` as its last input, and wait until its models are loaded.

        What comes after `arguments` and how long it lives is in the test's hands: it reads `stdin`.
        """
        run = self.start("-v", *arguments, "--wav", "-", stdin=subprocess.PIPE)
        for _ in STATIONS:
            run.wait_for_log("actor ready")
        return run

    def leftovers(self) -> list[Path]:
        """What is in the runtime folder: pipelines that live, or what dead ones left."""
        return list(self.runtime.iterdir())

    def close(self) -> None:
        """End what a failed test left running."""
        for process in self._started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            for pipe in (process.stdin, process.stdout, process.stderr):
                if pipe:
                    pipe.close()


@pytest.fixture(scope="session")
def make_cli(base: Path) -> Iterator[Callable[[], Cli]]:
    """Makes command lines with runtime folders of their own (short: a socket's path has 107 bytes at most)."""
    made: list[Cli] = []
    with tempfile.TemporaryDirectory(prefix="run-") as folder:

        def make() -> Cli:
            runtime = Path(folder, str(len(made)))
            runtime.mkdir(mode=0o700)
            made.append(Cli(base.parent, runtime))
            return made[-1]

        yield make


@pytest.fixture
def cli(make_cli: Callable[[], Cli]) -> Iterator[Cli]:
    """A command line; at the end of the test its runtime folder must be empty again."""
    made = make_cli()
    yield made
    made.close()
    assert made.leftovers() == []


@pytest.fixture(scope="session")
def texts() -> dict[str, str]:
    """What is said in each sample, by file name."""
    lines = (ROOT / "samples" / "manifest.jsonl").read_text().splitlines()
    return {entry["path"]: entry["text"] for entry in map(json.loads, lines)}


@pytest.fixture(scope="session")
def jfk() -> Path:
    """Eleven seconds of English at 16 kHz."""
    return ROOT / "samples" / "jfk.wav"


@pytest.fixture(scope="session")
def austen() -> Path:
    """Three seconds of English at 16 kHz."""
    return ROOT / "samples" / "austen.wav"


@pytest.fixture(scope="session")
def six() -> Path:
    """One word in 0.8 s."""
    return ROOT / "samples" / "six.wav"


@pytest.fixture(scope="session")
def long_wav(jfk: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """66 seconds: three windows."""
    samples, rate = soundfile.read(jfk, dtype="int16")
    path = tmp_path_factory.mktemp("long") / "long.wav"
    soundfile.write(path, np.tile(samples, 6), rate)
    return path


@pytest.fixture(scope="session")
def endless_wav(jfk: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eleven minutes: nobody is so slow that a run has ended before it is disturbed."""
    samples, rate = soundfile.read(jfk, dtype="int16")
    path = tmp_path_factory.mktemp("endless") / "endless.wav"
    soundfile.write(path, np.tile(samples, 60), rate)
    return path


@pytest.fixture(scope="session")
def halves(long_wav: Path) -> tuple[bytes, bytes]:
    """The file of 66 seconds in two: after the first 40 s one window can be cut, and more is to come."""
    data = long_wav.read_bytes()
    cut = 44 + 40 * 2 * 16000
    return data[:cut], data[cut:]


@pytest.fixture(scope="session")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file that is called .wav and holds words."""
    path = tmp_path_factory.mktemp("broken") / "broken.wav"
    path.write_text("this is no audio\n")
    return path
