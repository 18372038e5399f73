"""Who may say what to the hub, and what follows: clients here and elsewhere, our own console, actors of the line."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from susurrus.actors.audience import Audience
from susurrus.actors.dispatcher import Dispatcher
from susurrus.actors.ledger import Ledger
from susurrus.actors.line import Line, Send, Station
from susurrus.actors.recovery import CONSOLE, Recovery
from susurrus.protocol import (
    AudioEnd,
    Cancel,
    Credit,
    Error,
    Failed,
    Hello,
    Message,
    Partial,
    Pong,
    ProtocolError,
    Ready,
    Redo,
    Rejected,
    Segment,
    SnapshotRequest,
    Started,
    Status,
    StatusRequest,
    Submit,
    Window,
    Working,
    fit_snapshot,
)

if TYPE_CHECKING:
    from susurrus.protocol import Received

log = logging.getLogger(__name__)


class Reception:
    """Belongs to the hub's thread, as all that it works on does."""

    def __init__(
        self,
        send: Send,
        line: Line,
        ledger: Ledger,
        recovery: Recovery,
        dispatcher: Dispatcher,
        *,
        audience: Audience,
        status: Callable[[], Status],
        on_ready: Callable[[], None],
        end: Callable[[], None],
    ) -> None:
        """Nobody has said anything yet.

        Args:
            send: queues an answer for a peer of the hub.
            line: of the pipeline.
            ledger: of the pipeline.
            recovery: of the pipeline.
            dispatcher: of the pipeline.
            audience: our own console.
            status: how the pipeline is at this moment.
            on_ready: called once the whole line is ready.
            end: ends the pipeline in order.
        """
        self.model = ""
        """Name of what the actors have loaded; empty until one is ready."""
        self._send = send
        self._line = line
        self._ledger = ledger
        self._recovery = recovery
        self._dispatcher = dispatcher
        self._audience = audience
        self._status = status
        self._on_ready = on_ready
        self._end = end

    def take(self, peer: bytes, received: Received) -> None:
        """Take in a message."""
        if received.client:
            self._handle_remote(peer, received)
        else:
            self._handle(peer, received.message)

    def answer_bad_frame(self, error: ProtocolError) -> None:
        """Who waits for an answer to what we do not understand gets one; so does who speaks another version."""
        if error.code == "version":
            self._send(error.peer, Rejected(job=b"", code="version", text=str(error)))
        elif error.code == "unknown_type" and error.header is not None and error.header.reply_to is not None:
            self._send(error.peer, Error(code=error.code, text=str(error)))

    # --- clients ---

    def _handle(self, peer: bytes, message: Message) -> None:
        match message:
            case Submit():
                self._send(peer, self._dispatcher.submit(message))
                self._dispatcher.dispatch()
            case Cancel():
                self._dispatcher.cancel(message.job)
            case SnapshotRequest():
                self._send(peer, fit_snapshot(self._ledger.snapshot()))
            case StatusRequest():
                self._send(peer, self._status())
            case Hello():
                self._on_hello(peer, message)
            case Pong() if self._line.of(peer) is None:
                self._on_shown(peer, message)
            case _:
                self._from_actor(peer, message)

    def _handle_remote(self, peer: bytes, received: Received) -> None:
        """A client on another machine is a client, whatever it calls itself: it takes no actor's place."""
        message = received.message
        match message:
            case Submit() if message.source == "-" or message.journal:
                text = "a client on another machine names a file that is here, and has none written"
                self._send(peer, Rejected(job=message.job, code="not_allowed", text=text))
            case Submit() | Cancel() | SnapshotRequest() | StatusRequest():
                log.info("from another machine", extra={"client": received.client, "type": message.TYPE})
                self._handle(peer, message)
            case _:
                pass

    # --- our own console ---

    def _on_console(self, peer: bytes, message: Hello) -> None:
        """Our own console is there; those that attach come and go as they like."""
        crew = self._recovery.crew
        if crew is not None and crew.pids().get(CONSOLE) != message.pid:
            return
        self._audience.pids.add(message.pid)
        self._audience.is_missing = self._recovery.is_console_away = False
        if crew is not None:
            self._audience.come(peer)
        self._dispatcher.dispatch()
        if self._audience.is_last:
            self._end()

    def _on_shown(self, peer: bytes, answer: Pong) -> None:
        """Our own console says how far it has come."""
        if self._audience.answers(peer, answer.number) and self._audience.is_last:
            self._audience.go()
            self._end()
        self._dispatcher.dispatch()

    # --- actors ---

    def _on_hello(self, peer: bytes, message: Hello) -> None:
        """A station is taken once; a second actor of that name is told so."""
        if message.name == CONSOLE:
            self._on_console(peer, message)
        elif message.name in self._line.stations:
            self._line[message.name].watch.heard(time.monotonic())
            if self._line.arrive(message.name, peer, message.pid):
                log.info("actor here", extra={"actor": message.name, "pid": message.pid})
            else:
                text = f"this pipeline has its {message.name} already"
                self._send(peer, Rejected(job=b"", code="taken", text=text))

    def _from_actor(self, peer: bytes, message: Message) -> None:
        """What only the actors of the line may say. A foreign or former instance is not listened to."""
        station = self._line.of(peer)
        if station is None:
            log.warning("message from a stranger dropped", extra={"type": message.TYPE})
            return
        station.watch.heard(time.monotonic())
        match message:
            case Ready():
                self._on_actor_ready(station, message)
            case Credit():
                self._line.grant(station, message)
                station.has_done(self._ledger.wants)
            case Pong():
                self._line.answered(station, message)
            case Working():
                station.begins(message)
            case Error():
                self._recovery.on_error(station, message)
            case Redo():
                self._recovery.redo(message)
            case Started() | Window() | Partial() | Segment() | AudioEnd() | Failed():
                self._dispatcher.report(message)
                if isinstance(message, AudioEnd | Failed):
                    station.has_done(self._ledger.wants)
            case _:
                pass

    def _on_actor_ready(self, station: Station, message: Ready) -> None:
        self._line.ready(station, message)
        self.model = message.model or self.model
        about = {"actor": message.name, "model": message.model, "threads": message.threads, "load_s": message.load_s}
        log.info("actor ready", extra=about)
        self._dispatcher.dispatch()
        if self._line.is_ready:
            self._on_ready()
