"""The shell around an actor's work: one I/O thread that owns every socket, one compute thread that owns the model.

ONNX Runtime releases the GIL while it runs, so the I/O thread answers pings and sees Cancel and Stop while the compute
thread is inside a session. The two share a queue in each direction, a credit gate, the fences and the progress.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
from collections import deque
from typing import TYPE_CHECKING

import zmq

from susurrus.actors.behaviour import Behaviour, Desk, Loaded, Work, code_of, describe
from susurrus.actors.credit import CreditGate, Stopping
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
WINDOWS_GRANTED = 2  # one being worked on, one waiting: the stage before never idles and never runs ahead
HUB_CHECK_S = 2.0  # between two looks whether the hub's process lives: an actor that nobody's child is sees it so
RETRY_S = 0.05  # until the next try, when the hub does not read and its line is full

log = logging.getLogger(__name__)


class Nudge:
    """In the queue of work: there is credit, or nothing at all, but `go_on` should be asked again."""


class Shell:
    """Runs a behaviour as an actor of the pipeline that a connection names.

    `run` is the I/O thread: the main thread of an actor's process, or a thread of a host that embeds the actor.
    """

    def __init__(self, behaviour: Behaviour, connection: Connection, context: Context) -> None:
        self.gate = CreditGate()
        self.fences = Fences()
        self.progress = Progress()
        self.stopping = False
        self.refusal = ""
        """Why this actor cannot go on: the hub does not want it, or is gone; empty for an orderly end."""
        self._behaviour = behaviour
        self._connection = connection
        self._context = context
        self._identity = Identity.new(behaviour.name)
        self._work: queue.SimpleQueue[Work | Nudge | None] = queue.SimpleQueue()
        self._outgoing: queue.SimpleQueue[tuple[Message, bool]] = queue.SimpleQueue()
        self._for_hub: deque[Message] = deque()  # what could not be sent yet: the other side does not read
        self._for_next: deque[Message] = deque()
        self._unused = 0  # windows granted to upstream that have not come
        self._wakeup = Wakeup()
        self._bad_frames = BadFrames()
        self._hub: HubLine
        self._inbox: ReceivePort | None = None
        self._outlet: Outlet | None = None
        self._started = time.monotonic()

    # --- any thread ---

    def stop(self) -> None:
        """Ask the I/O thread to end. Safe in a signal handler."""
        self.stopping = True
        self._wakeup.set()

    def post(self, message: Message, *, to_hub: bool) -> None:
        """Hand a message to the I/O thread."""
        self._outgoing.put((message, to_hub))
        self._wakeup.set()

    # --- the I/O thread ---

    def run(self, *, join: bool = False) -> None:
        """Live until Stop, `stop()`, or the end of the hub's process. Nothing that a peer sends can make it raise.

        Args:
            join: wait for the compute thread at the end. A process need not: it ends anyway.

        Raises:
            EndpointError: a socket cannot be bound or connected.
        """
        transport, poller = self._connection.transport, zmq.Poller()
        compute = threading.Thread(target=self._compute, name=f"{self._behaviour.name}-compute", daemon=True)
        self._hub = HubLine(self._context, transport, self._identity, self._connection.hub)
        try:
            if self._behaviour.has_inbox:
                self._inbox = ReceivePort(self._context, transport, self._identity)
                poller.register(self._inbox.socket, zmq.POLLIN)
            poller.register(self._hub.socket, zmq.POLLIN)
            poller.register(self._wakeup.reader, zmq.POLLIN)
            self._hub.send(Hello(name=self._behaviour.name, package=VERSION, pid=os.getpid()))
            compute.start()
            self._serve(poller)
            self._hub.send(Stopped(name=self._behaviour.name, code="", text=""))
        finally:
            self._close()
            if join and compute.ident is not None:
                compute.join()

    def _serve(self, poller: zmq.Poller) -> None:
        """Turn after turn until the end. A hub that was killed says no Stop: its folder's lock is free then."""
        next_check = time.monotonic() + HUB_CHECK_S
        while not self.stopping:
            left = max(0.0, next_check - time.monotonic())
            wait_for(poller, min(left, RETRY_S) if self._for_hub or self._for_next else left)
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
        while not self._outgoing.empty():
            message, to_hub = self._outgoing.get()
            if isinstance(message, Credit):
                self._unused += message.windows
            (self._for_hub if to_hub else self._for_next).append(message)
        while self._for_next and self._send_on(self._for_next[0]):
            self._for_next.popleft()
        while self._for_hub and self._tell_hub(self._for_hub[0]):
            self._for_hub.popleft()

    def _arrived(self, window: Features | HiddenStates) -> None:
        self._unused -= 1
        self._work.put(window)

    def _send_on(self, message: Message) -> bool:
        """Downstream; False when its queue is full. What cannot travel fails its job, not the actor."""
        try:
            return self._outlet is None or self._outlet.send(message)
        except ProtocolError as error:
            self._for_hub.append(_failed(message, error))
            return True

    def _tell_hub(self, message: Message) -> bool:
        """To the hub; False when its line is full. A segment that got lost would be waited for for ever."""
        try:
            return self._hub.send(message)
        except ProtocolError as error:
            return self._hub.send(_failed(message, error))

    def _from_hub(self, message: Message) -> None:
        match message:
            case Submit() | Reissue() | Committed():
                self._work.put(message)
            case Cancel():
                self.fences.set(message.job)
                self._work.put(Nudge())
            case Fence():
                self.fences.set(message.job, message.attempt)
            case Downstream():
                self._connect(message)
            case Upstream():
                self._unused = max(0, self._unused)
                self._for_hub.append(Credit(windows=self._unused))
            case Credit():
                self.gate.grant(message.windows)
                self._work.put(Nudge())
            case Ping():
                self._hub.send(Pong(message.number, self.progress.stalled_s, self._work.qsize()))
            case Rejected():
                self.refusal = message.text
                self.stopping = True
            case Stop():
                self.stopping = True
            case _:
                pass

    def _connect(self, message: Downstream) -> None:
        self.gate.reset()
        self._for_next.clear()  # the hub has that done again
        if self._outlet is not None:
            self._outlet.close()
        self._outlet = Outlet(self._context, self._connection.transport, self._identity, message.port)

    def _close(self) -> None:
        self.stopping = True
        self.gate.close()
        self._work.put(None)
        for port in (self._hub, self._inbox, self._outlet):
            if port is not None:
                port.close(linger=LAST_WORDS_S if port is self._hub else 0.0)
        self._wakeup.close()

    # --- the compute thread ---

    def _compute(self) -> None:
        """Load, say so, then work until the end. What goes wrong is told to the hub, never raised."""
        try:
            self.progress.note()
            loaded = self._behaviour.load()
            self.post(self._ready(loaded), to_hub=True)
            if self._behaviour.has_inbox:
                self.post(Credit(windows=WINDOWS_GRANTED), to_hub=True)
            desk = Desk(self)
            while (work := self._next_work(desk)) is not None:
                if not isinstance(work, Nudge):
                    self._do(work, desk)
        except Stopping:
            return
        except Exception as error:  # noqa: BLE001 - whatever it is, the hub must hear of it
            self.post(Error(code=code_of(error), text=describe(error)), to_hub=True)
        finally:
            self._behaviour.close()

    def _next_work(self, desk: Desk) -> Work | Nudge | None:
        """What comes next in the inbox; the actor's own work fills the time until then."""
        while self._work.empty() and self._behaviour.go_on(desk):
            pass
        self.progress.rest()
        work = self._work.get()
        self.progress.note()
        return work

    def _do(self, work: Work, desk: Desk) -> None:
        """One piece of work. One bad job must not take the others with it."""
        has_arrays = isinstance(work, Features | HiddenStates)
        try:
            if isinstance(work, Committed) or not desk.is_given_up(work.job, getattr(work, "attempt", 1)):
                if isinstance(work, Features | HiddenStates):
                    desk.works_on(work.job, work.window, work.attempt)
                self._behaviour.handle(work, desk)
        except Stopping:
            raise
        except Exception as error:  # noqa: BLE001
            desk.fail(work.job, error)
        if has_arrays:
            self.post(Credit(windows=1), to_hub=True)

    def _ready(self, loaded: Loaded) -> Ready:
        return Ready(
            name=self._behaviour.name,
            inbox=None if self._inbox is None else self._inbox.send_port,
            model=loaded.model,
            sample_rate=loaded.sample_rate,
            n_mels=loaded.n_mels,
            threads=loaded.threads,
            load_s=time.monotonic() - self._started,
        )


def _failed(message: Message, error: ProtocolError) -> Message:
    """What the hub is told instead of a message that cannot travel."""
    job: bytes | None = getattr(message, "job", None)
    text = f"a {message.TYPE} cannot be sent: {error}"
    return Error(code="internal", text=text) if job is None else Failed(job=job, code="internal", text=text)
