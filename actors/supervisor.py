"""The pipeline's processes: starting them, noticing their end, stopping them for certain."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

# An actor's arithmetic is ONNX Runtime's; BLAS threads beside it would fight it for the same cores.
ONE_BLAS_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"), "1")

KILL = signal.SIGTERM if sys.platform == "win32" else signal.SIGKILL  # what cannot be ignored


@dataclass(frozen=True, slots=True)
class Command:
    """How one actor is started."""

    name: str
    """Module under `susurrus.actors`."""
    arguments: tuple[str, ...] = ()
    """What follows `--connection FILE`."""
    owns_terminal: bool = False
    """Its standard output is ours (the console). The others have none: text goes to stdout from one place only."""
    pass_fds: tuple[int, ...] = ()
    """Descriptors it inherits besides the standard ones (POSIX)."""


LAST_LINES = 3  # of a child's log, that are told when it is lost
LONGEST_LINE = 400  # characters of one of them


@dataclass(slots=True)
class _Child:
    """A process and what its starting it again needs."""

    command: Command
    process: subprocess.Popen[bytes]
    log: deque[str] = field(default_factory=lambda: deque(maxlen=LAST_LINES))
    """The last lines it wrote on standard error. Its own thread appends, the hub's reads."""


class Supervisor:
    """Owns the child processes. All methods run on the hub's thread, but for `signal`, `running` and `pids`."""

    def __init__(
        self, connection_file: Path, on_exit: Callable[[str, int], None], *, python: str = sys.executable
    ) -> None:
        """Keep what every start needs.

        Args:
            connection_file: handed to every child.
            on_exit: called with name and return code on the child's own waiting thread the moment it is gone.
            python: interpreter of the children; a frozen host names one here.
        """
        self._connection_file = connection_file
        self._on_exit = on_exit
        self._python = python
        self._children: dict[str, _Child] = {}

    def start(self, command: Command) -> None:
        """Start an actor as `python -m susurrus.actors.<name> --connection FILE …`.

        `-P` keeps the working directory off the module path: a folder of the user's must not become our import.

        Raises:
            OSError: the interpreter cannot be started.
        """
        arguments = [self._python, "-P", "-m", f"susurrus.actors.{command.name}"]
        arguments += ["--connection", str(self._connection_file), "--lifeline", *command.arguments]
        with _interrupts_blocked():
            process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                arguments,
                stdin=subprocess.PIPE,  # the lifeline
                stdout=None if command.owns_terminal else subprocess.DEVNULL,
                stderr=None if command.owns_terminal else subprocess.PIPE,
                env={**os.environ, **ONE_BLAS_THREAD},
                pass_fds=command.pass_fds,
            )
            # Still blocked: a child that nobody knew of could not be ended.
            if process.stdin is not None:
                _lifelines.add(process.stdin)
            child = self._children[command.name] = _Child(command, process)
        threading.Thread(target=self._wait, args=(child,), name=f"wait-{command.name}", daemon=True).start()

    def restart(self, name: str) -> None:
        """Start an actor again that has ended.

        Raises:
            OSError: the interpreter cannot be started.
        """
        child = self._children[name]
        child.process.wait()
        if child.process.stdin is not None:
            _close(child.process.stdin)
        self.start(child.command)

    def kill(self, name: str) -> None:
        """End a child that does not listen any more."""
        self.signal([name], KILL)

    def last_words(self, name: str) -> str:
        """The last lines of a child's log, in one; empty for none."""
        child = self._children.get(name)
        return "" if child is None else " / ".join(child.log)

    def running(self) -> list[str]:
        """Names of the children that have not ended."""
        return [name for name, child in self._children.items() if child.process.poll() is None]

    def pids(self) -> dict[str, int]:
        """Process ids of the children that have not ended."""
        return {name: child.process.pid for name, child in self._children.items() if child.process.poll() is None}

    def exit_code(self, name: str) -> int | None:
        """Return code of a child that was reaped; None for one that runs or never did."""
        child = self._children.get(name)
        return None if child is None else child.process.returncode

    def signal(self, names: Sequence[str], signum: int) -> None:
        """Send a signal to those of the named children that still run."""
        for name in names:
            with contextlib.suppress(ProcessLookupError):
                self._children[name].process.send_signal(signum)

    def reap(self, names: Sequence[str], deadline: float | None) -> list[str]:
        """Wait until the named children have ended, or the monotonic clock shows `deadline`; return those left."""
        left = []
        for name in names:
            try:
                timeout = None if deadline is None else max(0.0, deadline - time.monotonic())
                self._children[name].process.wait(timeout)
            except subprocess.TimeoutExpired:
                left.append(name)
        return left

    def close(self) -> None:
        """Kill what still runs, reap everything, let go of the lifelines."""
        left = self.running()
        self.signal(left, KILL)
        for child in self._children.values():
            child.process.wait()
            if child.process.stdin is not None:
                _close(child.process.stdin)

    def _wait(self, child: _Child) -> None:
        """Runs on the child's own thread: hands its log on as it comes, and sees its end at once, on every platform."""
        if child.process.stderr is not None:
            with child.process.stderr as lines:
                for line in lines:
                    _hand_on(line)
                    child.log.append(line.decode(errors="replace").strip()[:LONGEST_LINE])
        self._on_exit(child.command.name, child.process.wait())


def _hand_on(line: bytes) -> None:
    """To our own standard error, if there is one that somebody reads."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        buffer = getattr(sys.stderr, "buffer", None)  # a host may have put something of its own there
        if buffer is None:
            sys.stderr.write(line.decode(errors="replace"))
        else:
            buffer.write(line)
        sys.stderr.flush()


@contextlib.contextmanager
def _interrupts_blocked() -> Generator[None, None, None]:
    """Start children with SIGINT blocked.

    The mask is inherited: a Ctrl-C during their imports stays pending instead of printing a traceback each; they
    unblock it once they ignore it.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _close(pipe: IO[bytes]) -> None:
    with contextlib.suppress(OSError):
        pipe.close()


def describe_exit(code: int) -> str:
    """A child's return code in words."""
    if code < 0:
        known = -code in set(signal.Signals)  # real-time signals have no names but the first and the last
        return f"was killed by {signal.Signals(-code).name if known else f'signal {-code}'}"
    return f"ended with code {code}"


_lifelines: weakref.WeakSet[IO[bytes]] = weakref.WeakSet()
"""The ends that this process holds."""


def _let_go() -> None:
    """Close them in a forked copy of this process, which would keep the children alive after our death."""
    for pipe in list(_lifelines):
        _close(pipe)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go)
