"""The hub: wires the actors together, keeps the ledger, publishes every event. No audio, no model.

Here are its sockets, its turns and its end. What it makes of a message is `reception`'s, what becomes of a job is
`dispatcher`'s, what is done about a loss is `recovery`'s.

One thread runs it and owns its sockets. Whatever else wants something from it (the pipeline's owner, the threads that
wait for a child's end) puts an order into its queue and wakes it.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import zmq

from susurrus.actors.audience import Audience
from susurrus.actors.dispatcher import Dispatcher
from susurrus.actors.io import Context, Wakeup, receive_all, wait_for
from susurrus.actors.journals import OpenJournal
from susurrus.actors.ledger import Ledger
from susurrus.actors.line import Line
from susurrus.actors.reception import Reception
from susurrus.actors.recovery import CONSOLE, Crew, Recovery
from susurrus.actors.vitals import pipeline_status
from susurrus.actors.watch import Limits
from susurrus.protocol import BadFrames, Beat, HubPort, Identity, Publisher, Status, Stop, Stopped, Transport, Welcome

if TYPE_CHECKING:
    from susurrus.protocol.listen import Door

BEAT_S = 1.0
LAST_EVENTS_S = 0.5  # for the last events to leave; a subscriber that does not read costs no more


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
        self._began = time.monotonic()
        self._ledger = Ledger(abreast=lanes)
        self._line = Line(self.port.send, self.limits, lanes)
        self._orders: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._wakeup = Wakeup()
        self._bad_frames = BadFrames()
        self._running = True
        self._audience = Audience(self.port.send, is_missing=waits_for_console)
        self._dispatcher = Dispatcher(
            self._ledger,
            self._line,
            self._audience,
            self.publisher,
            open_journal=open_journal,
            later=self._order,
            is_held=lambda: self._recovery.has_lost_work,
        )
        self._recovery = Recovery(self._line, self._ledger, self.limits, end=self._end, fail=self._dispatcher.fail)
        self._reception = Reception(
            self.port.send,
            self._line,
            self._ledger,
            self._recovery,
            self._dispatcher,
            audience=self._audience,
            status=self._status,
            on_ready=on_ready,
            end=lambda: self._end("", ""),
        )
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
        self._order(self._dispatcher.allow)

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
                wait_for(poller, max(0.0, min([self._next_beat, *self._recovery.restarts.values()]) - time.monotonic()))
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
        self._dispatcher.close()

    def _turn(self) -> None:
        self._notice_sleep()
        self._wakeup.clear()
        if self.door is not None:
            self.door.turn()
        for topic in self.publisher.poll_subscriptions():
            self.publisher.publish(Welcome(instance=self.identity.instance), topic=topic)
        for peer, received in receive_all(self.port, self._bad_frames, self._reception.answer_bad_frame):
            self._reception.take(peer, received)
        while not self._orders.empty():
            self._orders.get()()
        self._line.flush()
        self._recovery.restart_due()
        if self._recovery.reissue():
            self._dispatcher.dispatch()
        self._ledger.statistics.running(is_any=self._ledger.is_busy, now=time.monotonic())
        if time.monotonic() >= self._next_beat:
            self._beat()

    @property
    def console_pids(self) -> set[int]:
        """Processes of our own consoles that have said Hello: the last event will reach them."""
        return self._audience.pids

    @property
    def _interval(self) -> float:
        """Seconds between two beats, which are the pings too."""
        return min(BEAT_S, self.limits.ping_s)

    def _notice_sleep(self) -> None:
        """A hub that was stopped, or a machine that slept, has seen nothing: nobody is to blame for silence.

        It may be stopped in the middle of a turn: so who is looked for is judged by the time at which it began.
        """
        now = time.monotonic()
        if now - self._last_turn > 2 * self._interval:
            self._recovery.slept(now)
        self._last_turn = now

    def _beat(self) -> None:
        """What is done about once a second: a beat for subscribers, pings, a look for what is lost or too late."""
        now = time.monotonic()
        self._beats, self._next_beat = self._beats + 1, now + self._interval
        self.publisher.publish(Beat(number=self._beats, latest=self._ledger.latest()))
        self._line.ping()
        if self.on_status is not None:
            self.on_status(self._status())
        self._dispatcher.fail_late(now)
        self._recovery.look(self._last_turn)

    def _status(self) -> Status:
        """How everything is at this moment."""
        return pipeline_status(
            self._line,
            self._ledger,
            self._recovery,
            model=self._reception.model,
            began=self._began,
            now=time.monotonic(),
            bad_frames=self._bad_frames.count,
            subscribers=self.publisher.subscriptions,
        )

    def _on_lost(self, name: str, how: str) -> None:
        if name == CONSOLE:
            self._audience.go()
        if self._running:
            self._recovery.on_lost(name, how)

    def _end(self, code: str, text: str) -> None:
        """End; in order only once our own console has said that it has all there is, as often as it is lost."""
        if self._running and not code and (self._audience.is_here or self._recovery.is_console_away):
            self._audience.is_last = True
            self._audience.ask()
        elif self._running:
            self._running = False
            self.outcome = Outcome(code, text)

    def _farewell(self) -> None:
        """Every open job gets its terminal event, every actor its Stop, every subscriber the last event of all."""
        self._dispatcher.fail_all(self.outcome.text or "the pipeline was stopped")
        self.publisher.publish(Stopped(name="pipeline", code=self.outcome.code, text=self.outcome.text))
        self._line.tell_all(Stop())
