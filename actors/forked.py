"""Copies of this process as children, with the face of `subprocess.Popen`: pipes, an exit code, signals.

For run.py on Linux alone, which is ours and has no other threads while it does this: a host's process is never forked.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import IO, Any

from susurrus.actors.children import Command, interrupts_blocked, own_lifeline

POLL_S = 0.002


def can_fork() -> bool:
    """Whether a copy of this process is as good as a new one: Linux, one thread, and the three standard streams."""
    if sys.platform != "linux" or None in (sys.stdin, sys.stdout, sys.stderr):
        return False
    return len(os.listdir("/proc/self/task")) == 1  # noqa: PTH208 - pathlib may not be imported yet


class ForkedProcess:
    """What is used of `subprocess.Popen`. Any thread may call any method."""

    def __init__(self, pid: int, stdin: IO[bytes], stderr: IO[bytes] | None) -> None:
        self.pid = pid
        self.stdin: IO[bytes] | None = stdin
        self.stderr = stderr
        self.returncode: int | None = None
        self._reaping = threading.Lock()

    def poll(self) -> int | None:
        """The exit code; None while it runs."""
        if self.returncode is None and self._reaping.acquire(blocking=False):
            try:
                self._reap(os.WNOHANG)
            finally:
                self._reaping.release()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, once it has ended.

        Raises:
            subprocess.TimeoutExpired: It has not.
        """
        if timeout is None:
            with self._reaping:
                self._reap(0)
        else:
            deadline = time.monotonic() + timeout
            while self.poll() is None:
                if time.monotonic() >= deadline:
                    raise subprocess.TimeoutExpired(str(self.pid), timeout)
                time.sleep(POLL_S)
        assert self.returncode is not None  # noqa: S101 - for the type checker
        return self.returncode

    def send_signal(self, signum: int) -> None:
        """Send a signal unless it has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signum)

    def kill(self) -> None:
        """End it at once."""
        self.send_signal(signal.SIGKILL)

    def _reap(self, flags: int) -> None:
        if self.returncode is not None:
            return
        try:
            pid, status = os.waitpid(self.pid, flags)
        except ChildProcessError:  # somebody ignores SIGCHLD, or has reaped it
            self.returncode = 0
            return
        if pid:
            self.returncode = os.waitstatus_to_exitcode(status)


def fork_process(command: Command, live: Callable[[], Any]) -> ForkedProcess:
    """Start a copy of this process; its standard input is its lifeline, as in `start_process`.

    Args:
        command: what it is given besides.
        live: what it does; it must not return.

    Raises:
        OSError: there are no descriptors, or no processes, left.
    """
    with interrupts_blocked():
        lifeline, stdin = os.pipe()
        log, stderr = (None, None) if command.owns_terminal else os.pipe()
        pid = os.fork()
        if pid == 0:
            _live(command, lifeline, stderr, live)
        os.close(lifeline)
        process = ForkedProcess(pid, os.fdopen(stdin, "wb"), None if log is None else os.fdopen(log, "rb"))
        if stderr is not None:
            os.close(stderr)
        own_lifeline(process.stdin)
    return process


def _live(command: Command, lifeline: int, stderr: int | None, live: Callable[[], Any]) -> None:
    """Runs in the copy."""
    try:
        os.dup2(lifeline, 0)
        if not command.owns_terminal:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        if stderr is not None:
            os.dup2(stderr, 2)
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        with contextlib.suppress(OSError), open("/proc/self/comm", "w", encoding="ascii") as name:  # noqa: PTH123
            name.write(command.name[:15])  # for ps and top: its command line is the parent's
        live()
    except BaseException:  # noqa: BLE001 - nothing of it may get into what the parent was doing
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(1)
