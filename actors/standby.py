"""Actors that are started before there is a pipeline for them to join.

Interpreters and imports take longer than a short recording takes to transcribe. So run.py starts its children first:
each imports what it needs, then reads the rest of its command line from standard input, by whose end it learns later
that its parent has died (see `lifeline`). One that is not needed after all reads that end, and is gone.

On Linux the children are copies of run.py, made once it has imported what most of them need: that is imported once
instead of four times, and is in memory once.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import sys
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING

from susurrus.actors.children import (
    ONE_BLAS_THREAD,
    Command,
    actor_command,
    close_pipe,
    interrupts_blocked,
    start_process,
)
from susurrus.actors.forked import ForkedProcess, can_fork, fork_process

if TYPE_CHECKING:
    from subprocess import Popen

FLAG = "--standby"
LEAST_DESCRIPTORS = 64  # a pipeline takes some 50
LINE_ACTORS = (Command("encoder"), Command("decoder"), Command("frontend"))  # the one that takes longest comes first
CONSOLE = Command("console", owns_terminal=True)
STARTS_NONE = ("--at", "--conn", "--do", "--h", "--se", "--st", "--ve", "-h")
"""Beginnings of the options with which no pipeline is started, or another's is used."""

_waiting: dict[str, Popen[bytes] | ForkedProcess] = {}


# --- the parent ---------------------------------------------------------------------------------------------------


def begin(words: Sequence[str]) -> None:
    """Start the actors that a command line will want, judged before anything is imported that could read it.

    A wrong guess costs processor time: who does not need them lets go of them by `dismiss`, or ends.
    """
    if not _has_descriptors():
        return
    starts_none = "-" in words or any(word.startswith(STARTS_NONE) for word in words)
    if starts_none or not any(os.path.exists(word.rpartition("=")[2]) for word in words):  # noqa: PTH110 - imports less
        return
    atexit.register(dismiss)
    try:
        if can_fork():
            _fork_all()
        else:
            for command in (*LINE_ACTORS, CONSOLE):
                with interrupts_blocked():
                    arguments = [sys.executable, *actor_command(command.name), FLAG]
                    _waiting[command.name] = start_process(arguments, command)
    except OSError:  # no descriptors or no memory left: whoever starts the pipeline will say so
        dismiss()


def _has_descriptors() -> bool:
    """Whether those who wait leave enough for a pipeline's sockets: ZeroMQ ends a process that runs out of them."""
    try:
        import resource  # noqa: PLC0415 - not on every system
    except ImportError:
        return True
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0] >= LEAST_DESCRIPTORS


def _fork_all() -> None:
    """The console first: it has no arrays, and is under way while NumPy is imported here for the others."""
    gc.disable()  # all that is made now stays
    import susurrus.actors.console  # noqa: PLC0415 - here, not in every child

    _fork(CONSOLE)
    os.environ.update(ONE_BLAS_THREAD)
    import numpy as np  # noqa: F401, PLC0415

    import susurrus.actors.shell  # noqa: PLC0415
    import susurrus.models.directories  # noqa: F401, PLC0415

    gc.freeze()  # a look of the collector at what is shared would make it each process's own
    for command in LINE_ACTORS:
        _fork(command)
    gc.enable()


def _fork(command: Command) -> None:
    with interrupts_blocked():
        _waiting[command.name] = fork_process(command, partial(_live, command.name))


def _live(module: str) -> None:
    """An actor's process, as `python -m susurrus.actors.<module> --standby` would be."""
    gc.enable()
    sys.argv = [f"susurrus.actors.{module}", FLAG]
    import_module(f"susurrus.actors.{module}").main()


def take(python: str, module: str, arguments: Sequence[str], command: Command) -> Popen[bytes] | ForkedProcess | None:
    """The process that waits to become this actor, told what it is; None if there is none."""
    if python != sys.executable or command.pass_fds:
        return None
    process = _waiting.pop(module, None)
    if process is None or process.stdin is None:
        return None
    try:
        os.write(process.stdin.fileno(), json.dumps(arguments).encode() + b"\n")  # shorter than a pipe holds
    except OSError:  # it has died already: the one that is started instead will say of what
        _end(process)
        return None
    return process


def dismiss() -> None:
    """End those that nobody needs."""
    while _waiting:
        _end(_waiting.popitem()[1])


def _end(process: Popen[bytes] | ForkedProcess) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stderr):
        if pipe is not None:
            close_pipe(pipe)


# --- the child ----------------------------------------------------------------------------------------------------


def words() -> list[str]:
    """The command line of this actor: its own, or the one that its parent will write to standard input."""
    if sys.argv[1:] != [FLAG]:
        return sys.argv[1:]
    line = b""
    while not line.endswith(b"\n"):
        read = os.read(sys.stdin.fileno(), 1)  # no more than the line: the lifeline reads on
        if not read:
            os._exit(0)
        line += read
    return list(json.loads(line))
