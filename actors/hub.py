"""The hub: wires the actors together, keeps the ledger, publishes every event. No audio, no model.

One thread runs it and owns its sockets. Whatever else wants something from it (the pipeline's owner, the threads that
wait for a child's end) puts an order into its queue and wakes it.
"""

from __future__ import annotations

import logging
import queue
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import zmq

from susurrus.actors.announcements import Announcements
from susurrus.actors.audience import Audience
from susurrus.actors.io import Context, Wakeup, receive_all, wait_for
from susurrus.actors.journals import Journals, OpenJournal
from susurrus.actors.ledger import JobReport, Ledger
from susurrus.actors.line import Line, Station
from susurrus.actors.recovery import CONSOLE, Crew, Recovery
from susurrus.actors.vitals import pipeline_status
from susurrus.actors.watch import Limits
from susurrus.models.errors import SusurrusError
from susurrus.protocol import (
    Accepted,
    AudioEnd,
    BadFrames,
    Beat,
    Cancel,
    Credit,
    Error,
    Event,
    Failed,
    Hello,
    HubPort,
    Identity,
    Message,
    Partial,
    Pong,
    ProtocolError,
    Publisher,
    Ready,
    Redo,
    Rejected,
    Segment,
    SnapshotRequest,
    Started,
    Status,
    StatusRequest,
    Stop,
    Stopped,
    Submit,
    Transport,
    Welcome,
    Window,
    Working,
    fit_snapshot,
)

if TYPE_CHECKING:
    from susurrus.protocol import Received
    from susurrus.protocol.listen import Door

BEAT_S = 1.0
LAST_EVENTS_S = 0.5  # for the last events to leave; a subscriber that does not read costs no more

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a pipeline ended."""

    code: str
    """Empty for an orderly end."""
    text: str


class Hub:
    """Event loop over the hub's sockets.

    `run` returns after `stop` or when an actor is lost too often; `outcome` then says why. Sockets are made by the
    constructor and used by `run` alone, so the two may be called on different threads, one after the other.
    """

    def __init__(
        self,
        context: Context,
        transport: Transport,
        on_ready: Callable[[], None],
        *,
        lanes: int = 1,
        waits_for_console: bool = False,
        limits: Limits | None = None,
        open_journal: OpenJournal | None = None,
    ) -> None:
        """Bind the sockets.

        Args:
            context: of the pipeline, never the host's.
            transport: where sockets are bound.
            on_ready: called on the hub's thread once the whole line is ready.
            lanes: how many there are, each with an encoder and a decoder; so many recordings of a group are read side
                by side.
            waits_for_console: start no job before a console has said Hello: it must not miss the first events.
            limits: what is put up with before an actor is killed and started again.
            open_journal: finds or makes the journal that a job asks for.

        Raises:
            EndpointError: a socket cannot be bound.
        """
        self.identity = Identity.new("hub")
        self.transport = transport
        self.port = HubPort(context, transport, self.identity)
        self.publisher = Publisher(context, transport, self.identity)
        self.door: Door | None = None
        """Set before `run` by who lets clients on other machines in; `close` closes it."""
        self.outcome = Outcome("", "")
        self.limits = limits or Limits()
        self.on_status: Callable[[Status], None] | None = None
        """Set before `run` by who wants to know about once a second how the pipeline is; on the hub's thread."""
        self._on_ready = on_ready
        self._began = time.monotonic()
        self._model = ""
        self._journals = Journals(open_journal)
        self._ledger = Ledger(abreast=lanes)
        self._line = Line(self.port.send, self.limits, lanes)
        self._recovery = Recovery(self._line, self._ledger, self.limits, end=self._end, fail=self._fail)
        self._orders: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._wakeup = Wakeup()
        self._bad_frames = BadFrames()
        self._running = True
        self._may_start = False
        self._lacks_console = waits_for_console
        self.console_pids: set[int] = set()
        """Processes of our own consoles that have said Hello: they subscribe, and the last event will reach them."""
        self._audience = Audience(self.port.send)
        self._announcements = Announcements(
            self.publisher, self._line, self._journals, self._audience, self._on_journal_lost
        )
        self._leaving = False  # as soon as it has shown all there is
        self._beats = 0
        self._next_beat = self._last_turn = time.monotonic()

    def use(self, crew: Crew) -> None:
        """Take the crew that can replace lost actors; before `run`."""
        self._recovery.crew = crew

    # --- any thread ---

    def stop(self, code: str = "", text: str = "") -> None:
        """Order the end. The first reason given stays."""
        self._order(lambda: self._end(code, text))

    def allow_jobs(self) -> None:
        """Order that jobs may start: every model file is what it should be."""
        self._order(self._allow_jobs)

    def actor_ended(self, name: str, how: str) -> None:
        """Tell that an actor's process is gone.

        Args:
            name: of the actor.
            how: it ended, such as `was killed by SIGKILL`.
        """
        self._order(lambda: self._on_lost(name, how))

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
        doors = self.door.sockets if self.door is not None else []
        for socket in (self.port.socket, self.publisher.socket, self._wakeup.reader, *doors):
            poller.register(socket, zmq.POLLIN)
        try:
            self._last_turn = time.monotonic()
            while self._running:
                wait_for(poller, max(0.0, min([self._next_beat, *self._recovery.restarts.values()]) - self._now()))
                self._turn()
            self._farewell()
        finally:
            self.close()

    def close(self) -> None:
        """Close the sockets; `run` does it at its end. Idempotent."""
        if self.door is not None:
            self.door.close()
        self.port.close(linger=LAST_EVENTS_S)
        self.publisher.close(linger=LAST_EVENTS_S)
        self._wakeup.close()
        self._journals.close_all()

    @staticmethod
    def _now() -> float:
        return time.monotonic()

    def _turn(self) -> None:
        self._notice_sleep()
        self._wakeup.clear()
        if self.door is not None:
            self.door.turn()
        for topic in self.publisher.poll_subscriptions():
            self.publisher.publish(Welcome(instance=self.identity.instance), topic=topic)
        for peer, received in receive_all(self.port, self._bad_frames, self._answer_bad_frame):
            if received.client:
                self._handle_remote(peer, received)
            else:
                self._handle(peer, received.message)
        while not self._orders.empty():
            self._orders.get()()
        self._line.flush()
        self._recovery.restart_due()
        if self._recovery.reissue():
            self._dispatch()
        self._ledger.statistics.running(is_any=self._ledger.is_busy, now=self._now())
        if self._now() >= self._next_beat:
            self._beat()

    @property
    def _interval(self) -> float:
        """Seconds between two beats, which are the pings too."""
        return min(BEAT_S, self.limits.ping_s)

    def _notice_sleep(self) -> None:
        """A hub that was stopped, or a machine that slept, has seen nothing: nobody is to blame for silence.

        It may be stopped in the middle of a turn: so who is looked for is judged by the time at which it began.
        """
        now = self._now()
        if now - self._last_turn > 2 * self._interval:
            self._recovery.slept(now)
        self._last_turn = now

    def _beat(self) -> None:
        """What is done about once a second: a beat for subscribers, pings, a look for what is lost or too late."""
        now = self._now()
        self._beats, self._next_beat = self._beats + 1, now + self._interval
        self.publisher.publish(Beat(number=self._beats, latest=self._ledger.latest()))
        self._line.ping()
        if self.on_status is not None:
            self.on_status(self._status())
        for job in self._ledger.expired(now):
            self._fail(job, "deadline", "its deadline is over: give it more time, or a faster model")
        self._recovery.look(self._last_turn)

    def _status(self) -> Status:
        """How everything is at this moment."""
        return pipeline_status(
            self._line,
            self._ledger,
            self._recovery,
            model=self._model,
            began=self._began,
            now=self._now(),
            bad_frames=self._bad_frames.count,
            subscribers=self.publisher.subscriptions,
        )

    def _end(self, code: str, text: str) -> None:
        """End; in order only once our own console has said that it has all there is, as often as it is lost."""
        if self._running and not code and (self._audience.is_here or self._recovery.is_console_away):
            self._leaving = True
            self._audience.ask()
        elif self._running:
            self._running = False
            self.outcome = Outcome(code, text)

    def _farewell(self) -> None:
        """Every open job gets its terminal event, every actor its Stop, every subscriber the last event of all."""
        self._announcements.publish(self._ledger.fail_all("stopped", self.outcome.text or "the pipeline was stopped"))
        self.publisher.publish(Stopped(name="pipeline", code=self.outcome.code, text=self.outcome.text))
        self._line.tell_all(Stop())

    # --- messages ---

    def _handle(self, peer: bytes, message: Message) -> None:
        match message:
            case Submit():
                self._submit(peer, message)
            case Cancel():
                self._end_job(message.job, self._ledger.cancel(message.job))
            case SnapshotRequest():
                self.port.send(peer, fit_snapshot(self._ledger.snapshot()))
            case StatusRequest():
                self.port.send(peer, self._status())
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
                self.port.send(peer, Rejected(job=message.job, code="not_allowed", text=text))
            case Submit() | Cancel() | SnapshotRequest() | StatusRequest():
                log.info("from another machine", extra={"client": received.client, "type": message.TYPE})
                self._handle(peer, message)
            case _:
                pass

    def _submit(self, peer: bytes, message: Submit) -> None:
        """A journal is opened first: what it holds is committed already."""
        answer: Accepted | Rejected
        if self._ledger.knows(message.job):
            answer = Accepted(job=message.job)
        else:
            try:
                answer = self._ledger.submit(message, self._now(), self._journals.open(message))
            except SusurrusError as error:
                answer = Rejected(job=message.job, code="journal", text=str(error))
        if isinstance(answer, Rejected):
            self._journals.close(message.job)
            self._ledger.statistics.rejected()
        self.port.send(peer, answer)
        self._dispatch()

    def _answer_bad_frame(self, error: ProtocolError) -> None:
        """Who waits for an answer to what we do not understand gets one; so does who speaks another version."""
        if error.code == "version":
            self.port.send(error.peer, Rejected(job=b"", code="version", text=str(error)))
        elif error.code == "unknown_type" and error.header is not None and error.header.reply_to is not None:
            self.port.send(error.peer, Error(code=error.code, text=str(error)))

    def _on_hello(self, peer: bytes, message: Hello) -> None:
        """A station is taken once; a second actor of that name is told so."""
        if message.name == CONSOLE:
            self._on_console(peer, message)
        elif message.name in self._line.stations:
            self._line[message.name].watch.heard(self._now())
            if self._line.arrive(message.name, peer, message.pid):
                log.info("actor here", extra={"actor": message.name, "pid": message.pid})
            else:
                text = f"this pipeline has its {message.name} already"
                self.port.send(peer, Rejected(job=b"", code="taken", text=text))

    def _on_console(self, peer: bytes, message: Hello) -> None:
        """Our own console is there; those that attach come and go as they like."""
        crew = self._recovery.crew
        if crew is not None and crew.pids().get(CONSOLE) != message.pid:
            return
        self.console_pids.add(message.pid)
        self._lacks_console = self._recovery.is_console_away = False
        if crew is not None:
            self._audience.come(peer)
        self._dispatch()
        if self._leaving:
            self._end("", "")

    def _from_actor(self, peer: bytes, message: Message) -> None:
        """What only the actors of the line may say. A foreign or former instance is not listened to."""
        station = self._line.of(peer)
        if station is None:
            log.warning("message from a stranger dropped", extra={"type": message.TYPE})
            return
        station.watch.heard(self._now())
        match message:
            case Ready():
                self._on_actor_ready(station, message)
            case Credit():
                self._line.grant(station, message)
            case Pong():
                self._line.answered(station, message)
            case Working():
                station.working = message
            case Error():
                self._recovery.on_error(station, message)
            case Redo():
                self._recovery.redo(message)
            case Started() | Window() | Partial() | Segment() | AudioEnd() | Failed():
                self._on_report(message)
                if isinstance(message, AudioEnd | Failed):
                    station.working = None
            case _:
                pass

    def _on_actor_ready(self, station: Station, message: Ready) -> None:
        self._line.ready(station, message)
        self._model = message.model or self._model
        about = {"actor": message.name, "model": message.model, "threads": message.threads, "load_s": message.load_s}
        log.info("actor ready", extra=about)
        self._dispatch()
        if self._line.is_ready:
            self._on_ready()

    # --- jobs ---

    def _on_report(self, report: JobReport) -> None:
        events = self._ledger.apply(report, self._now())
        if isinstance(report, Failed):
            self._end_job(report.job, events)
            return
        self._announcements.publish(events)
        if isinstance(report, AudioEnd):
            self._dispatch()

    def _fail(self, job: bytes, code: str, text: str) -> None:
        self._end_job(job, self._ledger.fail(job, code, text))

    def _on_journal_lost(self, job: bytes, text: str) -> None:
        self._order(partial(self._fail, job, "journal", text))

    def _end_job(self, job: bytes, events: list[Event]) -> None:
        """Publish a job's early end and have the actors drop what is left of it."""
        self._announcements.publish(events)
        if events:
            self._line.tell_all(Cancel(job=job))
            self._dispatch()

    def _on_lost(self, name: str, how: str) -> None:
        if name == CONSOLE:
            self._audience.go()
        if self._running:
            self._recovery.on_lost(name, how)

    def _on_shown(self, peer: bytes, answer: Pong) -> None:
        """Our own console says how far it has come."""
        if self._audience.answers(peer, answer.number) and self._leaving:
            self._audience.go()
            self._end("", "")
        self._dispatch()

    def _allow_jobs(self) -> None:
        self._may_start = True
        self._dispatch()

    def _dispatch(self) -> None:
        """Give the frontend what it may read: the queue stays in the ledger."""
        frontend = self._line.frontend
        if not self._may_start or self._lacks_console or self._recovery.has_lost_work or not frontend.ready:
            return
        if self._audience.is_behind:
            return
        while (work := self._ledger.next_to_read()) is not None:
            self._line.tell(frontend, work)
