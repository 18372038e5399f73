"""The console actor: follows a pipeline's events and shows the text as it grows.

`python -m susurrus.actors.console --connection FILE`, a child of run.py; or `run.py --attach`, in its own process.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType

import zmq

from susurrus.actors import exits, lifeline, standby
from susurrus.actors.io import Context, Wakeup, receive_all, wait_for
from susurrus.actors.render import Renderer, make_renderer
from susurrus.actors.shown import Shown
from susurrus.actors.terminal import OutputClosedError
from susurrus.actors.trace import watched
from susurrus.actors.version import VERSION
from susurrus.actors.view import Change, TranscriptView
from susurrus.models.errors import SusurrusError
from susurrus.protocol import (
    BadFrames,
    Connection,
    Event,
    Hello,
    HubLine,
    Identity,
    Ping,
    Pong,
    Snapshot,
    SnapshotRequest,
    Subscriber,
    Welcome,
    WireError,
)

SNAPSHOT_PAUSE_S = 0.2  # between two requests: a slow console must not ask for each lost event
SILENCE_S = 2.0  # the hub beats every second: after this, look whether it lives


@dataclass(frozen=True, slots=True)
class ConsoleOptions:
    """How the console shows things."""

    as_json: bool = False
    quiet: bool = False
    progress: bool = False
    headings: bool = False
    shown: Path | None = None
    """File that tells what a console before this one has shown."""
    trace: Path | None = None
    """Folder in which it is written down what the console sees."""


class Console:
    """Subscribes, takes a snapshot, follows. One thread runs it and owns sockets and renderer."""

    def __init__(self, connection: Connection, renderer: Renderer, context: Context) -> None:
        identity = Identity.new("console")
        self._connection = connection
        self._renderer = renderer
        self._view = TranscriptView()
        self._bad_frames = BadFrames()
        self._wakeup = Wakeup()
        self._exit_code: int | None = None
        self._welcomed = False
        self._greeted = False
        self._requests = self._snapshots = 0  # sent, received
        self._pings: deque[tuple[int, int]] = deque()  # number of each, and the snapshots that must come first
        self._asked = -SNAPSHOT_PAUSE_S
        self._heard = time.monotonic()
        self._events = Subscriber(context, connection.transport, identity, connection.events)
        self._hub = HubLine(context, connection.transport, identity, connection.hub)

    def stop(self, code: int) -> None:
        """Ask `run` to end with this exit code. Safe in a signal handler."""
        self._exit_code = code
        self._wakeup.set()

    def run(self) -> int:
        """Show events until the pipeline's last one; return an exit code.

        Raises:
            OutputClosedError: nobody reads our output any more.
            SusurrusError: the output cannot be written.
        """
        poller = zmq.Poller()
        for source in (self._events.socket, self._hub.socket, self._wakeup.reader):
            poller.register(source, zmq.POLLIN)
        try:
            while self._view.stopped is None and self._exit_code is None:
                wait_for(poller, self._timeout())
                reason = self._turn()
                if reason:
                    self._renderer.error(reason)
                    return exits.PIPELINE
            if self._exit_code is not None:
                return self._exit_code
            return exits.PIPELINE if self._view.stopped is not None and self._view.stopped.code else exits.OK
        finally:
            self._close()

    def _turn(self) -> str:
        """Take in everything that has come, then draw once; return why the pipeline counts as lost, if it does.

        That is judged before the drawing, which may take long: its reader may have paused, and events wait meanwhile.
        """
        self._wakeup.clear()
        changes: list[Change] = []
        for received in receive_all(self._events, self._bad_frames):
            self._heard = time.monotonic()
            self._welcomed = self._welcomed or isinstance(received.message, Welcome)
            if isinstance(received.message, Event):
                changes += self._view.apply(received.message)
        for received in receive_all(self._hub, self._bad_frames):
            if isinstance(received.message, Snapshot):
                self._snapshots += 1
                changes += self._view.apply_snapshot(received.message)
                self._say_hello()
            elif isinstance(received.message, Ping):
                self._ask_for_snapshot()
                self._pings.append((received.message.number, self._requests))
        if self._welcomed and self._view.needs_snapshot and time.monotonic() >= self._asked + SNAPSHOT_PAUSE_S:
            self._ask_for_snapshot()
        reason = self._connection.why_lost(self._hub, self._heard, SILENCE_S)
        self._renderer.on_change(self._view, changes)
        self._view.forget_ended(in_order=True)
        self._answer_pings()
        return reason

    def _ask_for_snapshot(self) -> None:
        self._asked = time.monotonic()
        self._requests += self._hub.send(SnapshotRequest())

    def _answer_pings(self) -> None:
        """The hub asks before it ends whether all is shown: only a snapshot tells of jobs of which no event came."""
        while self._pings and self._pings[0][1] <= self._snapshots:
            number, _ = self._pings.popleft()
            self._hub.send(Pong(number=number))

    def _say_hello(self) -> None:
        """From now on nothing is missed: jobs of a pipeline that has its own console may start."""
        if not self._greeted:
            self._greeted = True
            self._hub.send(Hello(name="console", package=VERSION, pid=os.getpid()))

    def _timeout(self) -> float:
        waits = [SILENCE_S, self._renderer.timeout()]
        if self._welcomed and self._view.needs_snapshot:
            waits.append(max(0.0, self._asked + SNAPSHOT_PAUSE_S - time.monotonic()))
        return min(wait for wait in waits if wait is not None)

    def _close(self) -> None:
        self._events.close()
        self._hub.close()
        self._wakeup.close()
        self._renderer.close()


def follow(connection: Connection, options: ConsoleOptions, signals: Mapping[str, int]) -> int:
    """Show a pipeline on this process's standard streams until it ends; return an exit code.

    Installs signal handlers, so it is for the main thread of processes that are ours.

    Args:
        connection: of the pipeline.
        options: how to show it.
        signals: names of the signals that end the showing, with the exit code each stands for.
    """
    shown = Shown(options.shown)
    renderer = make_renderer(
        sys.stdout,
        sys.stderr,
        as_json=options.as_json,
        quiet=options.quiet,
        progress=options.progress,
        headings=options.headings,
        shown=shown,
    )
    renderer = watched(renderer, options.trace)
    with zmq.Context() as context:
        try:
            console = Console(connection, renderer, context)
            for name, code in signals.items():
                if hasattr(signal, name):
                    signal.signal(getattr(signal, name), partial(_stop, console, code))
            return console.run()
        except OutputClosedError:
            return exits.OUTPUT_CLOSED
        except (SusurrusError, WireError) as error:
            renderer.error(str(error))
            return exits.PIPELINE
        finally:
            shown.close()


def _stop(console: Console, code: int, _signum: int, _frame: FrameType | None) -> None:
    console.stop(code)


def add_console_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say how text is shown."""
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument("--json", action="store_true", help="one event a line as JSON, partial texts included")
    shown.add_argument("--quiet", "-q", action="store_true", help="the text and errors, nothing else")


def console_options(arguments: argparse.Namespace, *, headings: bool = False) -> ConsoleOptions:
    """What the options of `add_console_options` and `-v` mean."""
    shown = getattr(arguments, "shown", None)
    trace = getattr(arguments, "trace", None)
    return ConsoleOptions(arguments.json, arguments.quiet, bool(arguments.verbose), headings, shown, trace)


def main() -> None:
    """The console as a child of run.py."""
    from susurrus.actors.logs import configure_logs  # noqa: PLC0415 - `run.py --attach` has configured them already
    from susurrus.actors.process import actor_parser, ignore_interrupts, leave  # noqa: PLC0415

    ignore_interrupts()
    parser = actor_parser("console")
    add_console_options(parser)
    parser.add_argument("--headings", action="store_true", help="show the name of each recording")
    help_text = "keep what was shown here, and go on behind it"
    parser.add_argument("--shown", type=Path, metavar="FILE", help=help_text)
    arguments = parser.parse_args(standby.words())
    configure_logs(arguments, "console")
    if arguments.lifeline:
        lifeline.watch(sys.stdin.fileno())
    try:
        connection = Connection.read(arguments.connection)
    except WireError as error:
        leave(exits.PIPELINE, str(error))
    leave(follow(connection, console_options(arguments, headings=arguments.headings), {"SIGTERM": exits.OK}))


if __name__ == "__main__":
    main()
