"""Starting child processes, and the pipes by which they learn that this one has died (see `lifeline`)."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import weakref
from collections.abc import Generator, Sequence
from typing import IO

from susurrus.protocol.records import record

# An actor's arithmetic is ONNX Runtime's; BLAS threads beside it would fight it for the same cores.
ONE_BLAS_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"), "1")


@record
class Command:
    """How one actor is started."""

    name: str
    """Of the actor."""
    arguments: tuple[str, ...] = ()
    """What follows `--connection FILE`."""
    module: str = ""
    """Under `susurrus.actors`; empty for that of the actor's name."""
    owns_terminal: bool = False
    """Its standard output is ours (the console). The others have none: text goes to stdout from one place only."""
    pass_fds: tuple[int, ...] = ()
    """Descriptors it inherits besides the standard ones (POSIX)."""


def actor_command(module: str) -> list[str]:
    """What follows the interpreter in the command of an actor.

    `-P` keeps the working directory off the module path: a folder of the user's must not become our import.
    """
    return ["-P", "-m", f"susurrus.actors.{module}"]


def start_process(arguments: Sequence[str], command: Command) -> subprocess.Popen[bytes]:
    """Start a child; its standard input is its lifeline.

    Args:
        arguments: the interpreter and what follows.
        command: what it is given besides.

    Raises:
        OSError: the interpreter cannot be started.
    """
    with interrupts_blocked():
        process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
            arguments,
            stdin=subprocess.PIPE,  # the lifeline
            stdout=None if command.owns_terminal else subprocess.DEVNULL,
            stderr=None if command.owns_terminal else subprocess.PIPE,
            env={**os.environ, **ONE_BLAS_THREAD},
            pass_fds=command.pass_fds,
        )
        own_lifeline(process.stdin)
    return process


def own_lifeline(pipe: IO[bytes] | None) -> None:
    """Keep in mind an end that this process holds: forked copies of it let go of theirs."""
    if pipe is not None:
        _lifelines.add(pipe)


@contextlib.contextmanager
def interrupts_blocked() -> Generator[None, None, None]:
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


def close_pipe(pipe: IO[bytes]) -> None:
    """Close one, whatever has become of its other end."""
    with contextlib.suppress(OSError):
        pipe.close()


_lifelines: weakref.WeakSet[IO[bytes]] = weakref.WeakSet()
"""The ends that this process holds."""


def _let_go() -> None:
    """Close them in a forked copy of this process, which would keep the children alive after our death."""
    for pipe in list(_lifelines):
        close_pipe(pipe)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go)
