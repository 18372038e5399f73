"""The shell around an actor's work: one I/O thread that owns every socket, one compute thread that owns the model.

ONNX Runtime releases the GIL while it runs, so the I/O thread answers pings and sees Cancel and Stop while the compute
thread is inside a session. The two share a queue in each direction, a credit gate, the fences and the progress.
Here is what the I/O thread does; what the other does is `compute`'s.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections import deque
from typing import TYPE_CHECKING

import zmq

from susurrus.actors.behaviour import Behaviour, Loaded
from susurrus.actors.compute import ComputeLoop, Nudge
from susurrus.actors.credit import CreditGate
from susurrus.actors.downstream import Way
from susurrus.actors.io import Wakeup, receive_all, wait_for
from susurrus.actors.progress import Fences, Progress
from susurrus.actors.version import VERSION
from susurrus.protocol import (
    BadFrames,
    Cancel,
    Committed,
    Credit,
    Downstream,
    Error,
    Failed,
    Features,
    Fence,
    Hello,
    HiddenStates,
    HubLine,
    Identity,
    Message,
    Outlet,
    Ping,
    Pong,
    ProtocolError,
    Ready,
    ReceivePort,
    Reissue,
    Rejected,
    Stop,
    Stopped,
    Submit,
    Upstream,
)

if TYPE_CHECKING:
    from susurrus.actors.io import Context
    from susurrus.protocol import Connection

LAST_WORDS_S = 0.2  # for Stopped to leave; a hub that is gone costs no more
HUB_CHECK_S = 2.0  # between two looks whether the hub's process lives: an actor that nobody's child is sees it so
HAND_OVER_S = 0.05  # it takes a tenth of a millisecond; what is later is late anyway
RETRY_S = 0.05  # until the next try, when the hub does not read and its line is full


class Shell:
    """Runs a behaviour as an actor of the pipeline that a connection names.

    `run` is the I/O thread: the main thread of an actor's process, or a thread of a host that embeds the actor.
    """

    def __init__(self, behaviour: Behaviour, connection: Connection, context: Context, *, name: str = "") -> None:
        """Nothing is bound or connected yet.

        Args:
            behaviour: what the actor does.
            connection: of the pipeline.
            context: for its sockets.
            name: of the actor, such as `encoder-2`; empty for that of its kind.
        """
        self.name = name or behaviour.name
        self.ways = {1: self._new_way()}
        """Where results go, by lane. The I/O thread adds to it."""
        self.fences = Fences()
        self.progress = Progress()
        self.stopping = False
        self.refusal = ""
        """Why this actor cannot go on: the hub does not want it, or is gone; empty for an orderly end."""
        self._behaviour = behaviour
        self._connection = connection
        self._context = context
        self._identity = Identity.new(self.name)
        self._compute = ComputeLoop(behaviour, self)
        self._outgoing: queue.SimpleQueue[tuple[Message | threading.Event, int | None]] = queue.SimpleQueue()
        self._for_hub: deque[Message] = deque()  # what could not be sent yet: the other side does not read
        self._unused = 0  # windows granted to upstream that have not come
        self._wakeup = Wakeup()
        self._bad_frames = BadFrames()
        self._hub: HubLine
        self._inbox: ReceivePort | None = None
        self._started = time.monotonic()

    # --- any thread ---

    def stop(self) -> None:
        """Ask the I/O thread to end. Safe in a signal handler."""
        self.stopping = True
        self._wakeup.set()

    def post(self, message: Message, *, lane: int | None = None) -> None:
        """Hand a message to the I/O thread: for the hub, or for the next actor of a lane."""
        self._outgoing.put((message, lane))
        self._wakeup.set()

    def hand_over(self) -> None:
        """Wait until what was posted is on its way; not long, if the I/O thread or the hub is slow."""
        event = threading.Event()
        self._outgoing.put((event, None))
        self._wakeup.set()
        event.wait(HAND_OVER_S)

    def loaded(self, loaded: Loaded) -> None:
        """Tell the hub that the model is there (compute thread)."""
        ready = Ready(
            name=self.name,
            inbox=None if self._inbox is None else self._inbox.send_port,
            model=loaded.model,
            sample_rate=loaded.sample_rate,
            n_mels=loaded.n_mels,
            threads=loaded.threads,
            load_s=time.monotonic() - self._started,
        )
        self.post(ready)

    # --- the I/O thread ---

    def run(self, *, join: bool = False) -> None:
        """Live until Stop, `stop()`, or the end of the hub's process. Nothing that a peer sends can make it raise.

        Args:
            join: wait for the compute thread at the end. A process need not: it ends anyway.

        Raises:
            EndpointError: a socket cannot be bound or connected.
        """
        transport, poller = self._connection.transport, zmq.Poller()
        compute = threading.Thread(target=self._compute.run, name=f"{self.name}-compute", daemon=True)
        self._hub = HubLine(self._context, transport, self._identity, self._connection.hub)
        try:
            if self._behaviour.has_inbox:
                self._inbox = ReceivePort(self._context, transport, self._identity)
                poller.register(self._inbox.socket, zmq.POLLIN)
            poller.register(self._hub.socket, zmq.POLLIN)
            poller.register(self._wakeup.reader, zmq.POLLIN)
            self._hub.send(Hello(name=self.name, package=VERSION, pid=os.getpid()))
            compute.start()
            self._serve(poller)
            self._hub.send(Stopped(name=self.name, code="", text=""))
        finally:
            self._close()
            if join and compute.ident is not None:
                compute.join()

    def _serve(self, poller: zmq.Poller) -> None:
        """Turn after turn until the end. A hub that was killed says no Stop: its folder's lock is free then."""
        next_check = time.monotonic() + HUB_CHECK_S
        while not self.stopping:
            left = max(0.0, next_check - time.monotonic())
            wait_for(poller, min(left, RETRY_S) if self._has_unsent else left)
            self._turn()
            if time.monotonic() >= next_check:
                next_check = time.monotonic() + HUB_CHECK_S
                if not self._connection.is_live:
                    self.refusal, self.stopping = "the pipeline ended without a word: its process was killed", True

    def _turn(self) -> None:
        """Take in what is there: the hub's words first, so that Cancel and Stop overtake work."""
        for received in receive_all(self._hub, self._bad_frames):
            self._from_hub(received.message)
        if self._inbox is not None:
            for received in receive_all(self._inbox, self._bad_frames):
                if isinstance(received.message, Features | HiddenStates):
                    self._arrived(received.message)
        self._wakeup.clear()
        awaited = self._take_outgoing()
        for way in self.ways.values():
            way.flush()
        while self._for_hub and self._tell_hub(self._for_hub[0]):
            self._for_hub.popleft()
        for event in awaited:
            event.set()

    def _take_outgoing(self) -> list[threading.Event]:
        """Sort what was posted by where it goes; who waits for it to be sent."""
        awaited: list[threading.Event] = []
        while not self._outgoing.empty():
            message, lane = self._outgoing.get()
            if isinstance(message, threading.Event):
                awaited.append(message)
                continue
            if isinstance(message, Credit):
                self._unused += message.windows
            (self._for_hub if lane is None else self.ways[lane].unsent).append(message)
        return awaited

    def _arrived(self, window: Features | HiddenStates) -> None:
        self._unused -= 1
        self._compute.put(window)

    @property
    def _has_unsent(self) -> bool:
        return bool(self._for_hub) or any(way.unsent for way in self.ways.values())

    def _way(self, lane: int) -> Way:
        if lane not in self.ways:
            self.ways[lane] = self._new_way()
        return self.ways[lane]

    def _new_way(self) -> Way:
        return Way(self._new_gate(), lambda message, error: self._for_hub.append(_failed(message, error)))

    def _new_gate(self) -> CreditGate:
        return CreditGate()

    def _tell_hub(self, message: Message) -> bool:
        """To the hub; False when its line is full. A segment that got lost would be waited for for ever."""
        try:
            return self._hub.send(message)
        except ProtocolError as error:
            return self._hub.send(_failed(message, error))

    def _from_hub(self, message: Message) -> None:
        match message:
            case Submit() | Reissue() | Committed():
                self._compute.put(message)
            case Cancel():
                self.fences.set(message.job)
                self._compute.put(Nudge())
            case Fence():
                self.fences.set(message.job, message.attempt)
                self._compute.put(Nudge())
            case Downstream():
                outlet = Outlet(self._context, self._connection.transport, self._identity, message.port)
                self._way(message.lane).connect(outlet)
            case Upstream():
                self._unused = max(0, self._unused)
                self._for_hub.append(Credit(windows=self._unused))
            case Credit():
                self._way(message.lane).gate.grant(message.windows)
                self._compute.put(Nudge())
            case Ping():
                self._hub.send(Pong(message.number, self.progress.stalled_s, self._compute.backlog))
            case Rejected():
                self.refusal = message.text
                self.stopping = True
            case Stop():
                self.stopping = True
            case _:
                pass

    def _close(self) -> None:
        self.stopping = True
        for way in self.ways.values():
            way.close()
        self._compute.put(None)
        for port in (self._hub, self._inbox):
            if port is not None:
                port.close(linger=LAST_WORDS_S if port is self._hub else 0.0)
        self._wakeup.close()


def _failed(message: Message, error: ProtocolError) -> Message:
    """What the hub is told instead of a message that cannot travel."""
    job: bytes | None = getattr(message, "job", None)
    text = f"a {message.TYPE} cannot be sent: {error}"
    return Error(code="internal", text=text) if job is None else Failed(job=job, code="internal", text=text)
