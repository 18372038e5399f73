"""The hub: wires the actors together, keeps the ledger, publishes every event. No audio, no model.

One thread runs it and owns its sockets. Whatever else wants something from it (the pipeline's owner, the threads that
wait for a child's end) puts an order into its queue and wakes it.
"""

from __future__ import annotations

import logging
import queue
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

import zmq

from susurrus.actors.io import Context, Wakeup, receive_all, wait_for
from susurrus.actors.ledger import JobReport, Ledger
from susurrus.protocol import (
    AudioEnd,
    BadFrames,
    Beat,
    Cancel,
    Credit,
    Downstream,
    Error,
    Event,
    Failed,
    Hello,
    HubPort,
    Identity,
    Message,
    Partial,
    ProtocolError,
    Publisher,
    Ready,
    Rejected,
    Segment,
    SendPort,
    SnapshotRequest,
    Started,
    Stop,
    Stopped,
    Submit,
    Transport,
    Welcome,
    Window,
    fit_snapshot,
)

LINE = ("frontend", "encoder", "decoder")  # a window's way, left to right
BEAT_S = 1.0
LAST_EVENTS_S = 0.5  # for the last events to leave; a subscriber that does not read costs no more

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Station:
    """One actor of the line as the hub knows it."""

    instance: bytes = b""
    """Empty until its Hello."""
    inbox: SendPort | None = None
    ready: bool = False
    credit: int = 0
    """Granted by this actor and not yet passed on to its upstream."""
    unsent: deque[Message] = field(default_factory=deque)
    """For an actor that does not read at the moment, and whose queue is full."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a pipeline ended."""

    code: str
    """Empty for an orderly end."""
    text: str


class Hub:
    """Event loop over the hub's sockets.

    `run` returns after `stop` or when an actor of the line is lost; `outcome` then says why. Sockets are made by the
    constructor and used by `run` alone, so the two may be called on different threads, one after the other.
    """

    def __init__(
        self, context: Context, transport: Transport, on_ready: Callable[[], None], *, waits_for_console: bool = False
    ) -> None:
        """Bind the sockets.

        Args:
            context: of the pipeline, never the host's.
            transport: where sockets are bound.
            on_ready: called on the hub's thread once the whole line is ready.
            waits_for_console: start no job before a console has said Hello: it must not miss the first events.

        Raises:
            EndpointError: a socket cannot be bound.
        """
        self.identity = Identity.new("hub")
        self.transport = transport
        self.port = HubPort(context, transport, self.identity)
        self.publisher = Publisher(context, transport, self.identity)
        self.outcome = Outcome("", "")
        self._on_ready = on_ready
        self._ledger = Ledger()
        self._stations = {name: Station() for name in LINE}
        self._orders: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._wakeup = Wakeup()
        self._bad_frames = BadFrames()
        self._running = True
        self._may_start = False
        self._lacks_console = waits_for_console
        self.console_pids: set[int] = set()
        """Processes of consoles that have said Hello: their subscriptions are live, the last event will reach them."""
        self._reading: bytes | None = None  # the job whose audio the frontend reads
        self._beats = 0
        self._next_beat = time.monotonic() + BEAT_S

    # --- any thread ---

    def stop(self, code: str = "", text: str = "") -> None:
        """Order the end. The first reason given stays."""
        self._order(lambda: self._end(code, text))

    def allow_jobs(self) -> None:
        """Order that jobs may start: every model file is what it should be."""
        self._order(self._allow_jobs)

    def _order(self, what: Callable[[], None]) -> None:
        self._orders.put(what)
        self._wakeup.set()

    @property
    def is_running(self) -> bool:
        """Whether the end was not ordered yet, or not seen."""
        return self._running

    # --- the hub's thread ---

    def run(self) -> None:
        """Serve until the end, then tell everybody. Nothing that a peer sends can make it raise."""
        poller = zmq.Poller()
        for socket in (self.port.socket, self.publisher.socket, self._wakeup.reader):
            poller.register(socket, zmq.POLLIN)
        try:
            while self._running:
                wait_for(poller, max(0.0, self._next_beat - time.monotonic()))
                self._turn()
            self._farewell()
        finally:
            self.close()

    def close(self) -> None:
        """Close the sockets; `run` does it at its end. Idempotent."""
        self.port.close(linger=LAST_EVENTS_S)
        self.publisher.close(linger=LAST_EVENTS_S)
        self._wakeup.close()

    def _turn(self) -> None:
        self._wakeup.clear()
        for topic in self.publisher.poll_subscriptions():
            self.publisher.publish(Welcome(instance=self.identity.instance), topic=topic)
        for peer, received in receive_all(self.port, self._bad_frames, self._answer_bad_frame):
            self._handle(peer, received.message)
        while not self._orders.empty():
            self._orders.get()()
        for station in self._stations.values():
            self._flush(station)
        now = time.monotonic()
        if now >= self._next_beat:
            self._beats, self._next_beat = self._beats + 1, now + BEAT_S
            self.publisher.publish(Beat(number=self._beats, latest=self._ledger.latest()))

    def _end(self, code: str, text: str) -> None:
        if self._running:
            self._running = False
            self.outcome = Outcome(code, text)

    def _farewell(self) -> None:
        """Every open job gets its terminal event, every actor its Stop, every subscriber the last event of all."""
        self._publish(self._ledger.fail_all("stopped", self.outcome.text or "the pipeline was stopped"))
        self.publisher.publish(Stopped(name="pipeline", code=self.outcome.code, text=self.outcome.text))
        for station in self._stations.values():
            self._send(station, Stop())

    # --- messages ---

    def _handle(self, peer: bytes, message: Message) -> None:
        match message:
            case Submit():
                self.port.send(peer, self._ledger.submit(message, time.monotonic()))
                self._dispatch()
            case Cancel():
                self._end_job(message.job, self._ledger.cancel(message.job))
            case SnapshotRequest():
                self.port.send(peer, fit_snapshot(self._ledger.snapshot()))
            case Hello():
                self._on_hello(peer, message)
            case _:
                self._from_actor(peer, message)

    def _answer_bad_frame(self, error: ProtocolError) -> None:
        """Who waits for an answer to what we do not understand gets one; so does who speaks another version."""
        if error.code == "version":
            self.port.send(error.peer, Rejected(job=b"", code="version", text=str(error)))
        elif error.code == "unknown_type" and error.header is not None and error.header.reply_to is not None:
            self.port.send(error.peer, Error(code=error.code, text=str(error)))

    def _on_hello(self, peer: bytes, message: Hello) -> None:
        """A station is taken once; a second actor of that name is told so."""
        if message.name == "console":
            self.console_pids.add(message.pid)
            self._lacks_console = False
            self._dispatch()
        station = self._stations.get(message.name)
        if station is None or station.instance == peer:
            return
        if station.instance:
            text = f"this pipeline has its {message.name} already"
            self.port.send(peer, Rejected(job=b"", code="taken", text=text))
            return
        station.instance = peer
        log.info("actor here", extra={"actor": message.name, "pid": message.pid})
        self._connect_line()

    def _from_actor(self, peer: bytes, message: Message) -> None:
        """What only the actors of the line may say. A foreign or former instance is not listened to."""
        name = next((name for name, station in self._stations.items() if station.instance == peer), None)
        if name is None:
            log.warning("message from a stranger dropped", extra={"type": message.TYPE})
            return
        match message:
            case Ready():
                self._on_actor_ready(self._stations[name], message)
            case Credit():
                self._stations[name].credit += message.windows
                self._connect_line()
            case Error() | Stopped():
                self._end(message.code or "actor_lost", message.text or f"the {name} ended before the pipeline did")
            case Started() | Window() | Partial() | Segment() | AudioEnd() | Failed():
                self._on_report(message)
            case _:
                pass

    def _on_actor_ready(self, station: Station, message: Ready) -> None:
        station.ready, station.inbox = True, message.inbox
        about = {"actor": message.name, "model": message.model, "threads": message.threads, "load_s": message.load_s}
        log.info("actor ready", extra=about)
        self._connect_line()
        self._dispatch()
        if all(station.ready for station in self._stations.values()):
            self._on_ready()

    def _connect_line(self) -> None:
        """Tell each actor where its results go, and pass on the credit that its downstream has granted."""
        stations = list(self._stations.values())
        for upstream, station in pairwise(stations):
            if not upstream.instance:
                continue
            if station.inbox is not None:
                self._send(upstream, Downstream(port=station.inbox))
                station.inbox = None
            if station.ready and station.credit:
                self._send(upstream, Credit(windows=station.credit))
                station.credit = 0

    def _on_report(self, report: JobReport) -> None:
        events = self._ledger.apply(report, time.monotonic())
        if isinstance(report, Failed):
            self._end_job(report.job, events)
            return
        self._publish(events)
        if isinstance(report, AudioEnd) and report.job == self._reading:
            self._reading = None
            self._dispatch()

    def _end_job(self, job: bytes, events: list[Event]) -> None:
        """Publish a job's early end and have the actors drop what is left of it."""
        self._publish(events)
        if events:
            for station in self._stations.values():
                self._send(station, Cancel(job=job))
        if job == self._reading:
            self._reading = None
            self._dispatch()

    def _allow_jobs(self) -> None:
        self._may_start = True
        self._dispatch()

    def _dispatch(self) -> None:
        """Give the frontend the next job once it has read the one before: the queue stays in the ledger."""
        frontend = self._stations["frontend"]
        if self._reading is not None or not self._may_start or self._lacks_console or not frontend.ready:
            return
        submit = self._ledger.next_submit()
        if submit is not None:
            self._reading = submit.job
            self._send(frontend, submit)

    def _publish(self, events: list[Event]) -> None:
        for event in events:
            try:
                self.publisher.publish(event)
            except ProtocolError:  # never meant to happen, and no reason to take the other jobs down
                log.exception("event cannot be published", extra={"type": event.TYPE})

    def _send(self, station: Station, message: Message) -> None:
        """To an actor that has said Hello; one that is gone is noticed by its exit, not here."""
        if station.instance:
            station.unsent.append(message)
            self._flush(station)

    def _flush(self, station: Station) -> None:
        """Nothing gets lost for an actor that does not read: it would wait for ever for a lost Credit or Submit."""
        while station.unsent and self.port.send(station.instance, station.unsent[0]):
            station.unsent.popleft()
