"""The pipeline's processes: starting them, noticing their end, stopping them for certain."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from susurrus.actors import standby
from susurrus.actors.children import Command, actor_command, close_pipe, interrupts_blocked, start_process
from susurrus.actors.forked import ForkedProcess

__all__ = ["KILL", "Command", "Supervisor", "describe_exit"]

KILL = signal.SIGTERM if sys.platform == "win32" else signal.SIGKILL  # what cannot be ignored

LAST_LINES = 3  # of a child's log, that are told when it is lost
LONGEST_LINE = 400  # characters of one of them


@dataclass(slots=True)
class _Child:
    """A process and what its starting it again needs."""

    command: Command
    process: subprocess.Popen[bytes] | ForkedProcess
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
        """Start an actor as `python -m susurrus.actors.<module> --connection FILE …`, or take the one on standby.

        Raises:
            OSError: the interpreter cannot be started.
        """
        module = command.module or command.name
        arguments = ["--connection", str(self._connection_file), "--lifeline", *command.arguments]
        if module != command.name:
            arguments += ["--name", command.name]
        with interrupts_blocked():
            process = standby.take(self._python, module, arguments, command) or start_process(
                [self._python, *actor_command(module), *arguments], command
            )
            # Still blocked: a child that nobody knew of could not be ended.
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
            close_pipe(child.process.stdin)
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
                close_pipe(child.process.stdin)

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


def describe_exit(code: int) -> str:
    """A child's return code in words."""
    if code < 0:
        known = -code in set(signal.Signals)  # real-time signals have no names but the first and the last
        return f"was killed by {signal.Signals(-code).name if known else f'signal {-code}'}"
    return f"ended with code {code}"
