"""An actor as a process of its own: arguments, signals, and an end that waits for nobody."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import zmq

from susurrus.actors import exits, lifeline, standby
from susurrus.actors.behaviour import Behaviour
from susurrus.actors.logs import add_log_options, configure_logs
from susurrus.actors.trace import add_trace_option, shell_type
from susurrus.protocol import ActorSettings, Connection, WireError


def ignore_interrupts() -> None:
    """Leave Ctrl-C to run.py, which tells the actors what to do.

    The parent started us with SIGINT blocked: one that came during our imports still waits. Ignore, then unblock.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def actor_parser(name: str) -> argparse.ArgumentParser:
    """Options that every actor's command has."""
    parser = argparse.ArgumentParser(prog=f"python -m susurrus.actors.{name}")
    parser.add_argument("--connection", type=Path, required=True, metavar="FILE", help="of the pipeline to join")
    parser.add_argument("--lifeline", action="store_true", help="end when standard input does: the parent died")
    parser.add_argument("--name", default=name, help="what it is called in its pipeline (default: %(default)s)")
    add_log_options(parser)
    add_trace_option(parser)
    return parser


def main(
    name: str,
    make: Callable[[ActorSettings, argparse.Namespace], Behaviour],
    parser: argparse.ArgumentParser | None = None,
) -> NoReturn:
    """Run an actor of the pipeline's line as this process.

    Ends by `os._exit`: the compute thread may be inside a session, and what it computes nobody waits for.
    """
    import susurrus.actors.shell  # noqa: F401, PLC0415 - before standing by; the console has none

    ignore_interrupts()
    arguments = (parser or actor_parser(name)).parse_args(standby.words())
    configure_logs(arguments, arguments.name)
    if arguments.lifeline:
        lifeline.watch(sys.stdin.fileno())
    try:
        connection = Connection.read(arguments.connection)
        if not connection.is_local:
            leave(exits.PIPELINE, f"{arguments.connection}: names another machine; an actor lives beside its hub")
        behaviour = make(connection.settings, arguments)
        shell = shell_type(arguments.trace)(behaviour, connection, zmq.Context(), name=arguments.name)
        signal.signal(signal.SIGTERM, lambda _signum, _frame: shell.stop())
        shell.run()
    except WireError as error:
        leave(exits.PIPELINE, str(error))
    leave(exits.PIPELINE if shell.refusal else exits.OK, shell.refusal)


def leave(code: int, text: str = "") -> NoReturn:
    """End this process at once, with a line on standard error if there is something to say."""
    if text:
        sys.stderr.write(f"error: {text}\n")
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):  # closed, or never there
            stream.flush()
    os._exit(code)
