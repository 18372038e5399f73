"""What a program uses to talk to a living pipeline: submit recordings, receive their events."""

from __future__ import annotations

import errno
import time
from collections import deque
from collections.abc import Callable, Generator
from contextlib import ExitStack
from types import TracebackType
from typing import Self, TypedDict

import zmq

from susurrus.actors.io import Context, Wakeup, receive_all, wait_for
from susurrus.actors.view import Change, JobEvent, TranscriptView
from susurrus.protocol import (
    BadFrames,
    Cancel,
    Connection,
    Event,
    Failed,
    HubLine,
    Identity,
    JobState,
    Rejected,
    Segment,
    Snapshot,
    SnapshotRequest,
    Stopped,
    Submit,
    Subscriber,
    TerminalEvent,
    TranscribeOptions,
    Welcome,
    new_id,
)

SILENCE_S = 3.0  # the hub beats every second: after this, look whether it lives
UNWELCOMED_S = 0.2  # the same, while there was no Welcome yet: it takes milliseconds
SNAPSHOT_PAUSE_S = 0.2
LAST_WORDS_S = 0.5  # for a Cancel to leave
STOPPED = "stopped"  # code of the Failed that open jobs get when the pipeline ends


class JobWishes(TypedDict, total=False):
    """What a job may ask for beside its source; see `Client.submit`."""

    name: str
    options: TranscribeOptions | None
    group: str
    deadline_s: float | None
    journal: str


class PipelineError(Exception):
    """The pipeline is gone, or does not take the job.

    Attributes:
        code: machine-readable reason, such as `actor_lost`, `model`, `busy` or `gone`.
    """

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


class Client:
    """A line to a pipeline and a subscription to its events.

    Belongs to the thread that made it, which owns its sockets; only `wake` may be called from any thread. Events that
    were lost on the way (a slow reader) are made up for by a snapshot: every segment is delivered once, in order.
    """

    def __init__(self, connection: Connection) -> None:
        """Connect and wait until the subscription is live.

        Raises:
            PipelineError: there is no living pipeline behind the connection, or the system has no descriptors left.
            EndpointError: the connection names endpoints outside of its own folder.
        """
        if not connection.is_live:
            raise PipelineError("gone", "no pipeline lives behind this connection any more")
        self._connection = connection
        self._view = TranscriptView()
        self._bad_frames = BadFrames()
        self._mine: dict[bytes, int] = {}  # open jobs of ours -> segments delivered
        self._delivered: deque[JobEvent] = deque()
        self._welcomed = False
        self._heard = time.monotonic()
        self._asked = self._heard - SNAPSHOT_PAUSE_S
        with ExitStack() as resources:
            try:
                self._connect(resources)
            except (zmq.ZMQError, OSError) as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE):
                    raise
                text = "too many open files: raise the limit (ulimit -n), a client takes some 15"
                raise PipelineError("resources", text) from error
            while not self._welcomed:
                self._turn(None)
            self._resources = resources.pop_all()

    def _connect(self, resources: ExitStack) -> None:
        transport, identity = self._connection.transport, Identity.new("client")
        context: Context = zmq.Context()  # its own: a client left open must not keep a pipeline from closing
        resources.callback(context.term)
        self._wakeup = Wakeup()
        resources.callback(self._wakeup.close)
        self._events = Subscriber(context, transport, identity, self._connection.events)
        resources.callback(self._events.close)
        self._hub = HubLine(context, transport, identity, self._connection.hub)
        resources.callback(self._hub.close, linger=LAST_WORDS_S)
        self._poller = zmq.Poller()
        for source in (self._events.socket, self._hub.socket, self._wakeup.reader):
            self._poller.register(source, zmq.POLLIN)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def wake(self) -> None:
        """Make a waiting `receive` return. Any thread, any signal handler."""
        self._wakeup.set()

    def submit(
        self,
        source: str,
        *,
        name: str = "",
        options: TranscribeOptions | None = None,
        group: str = "",
        deadline_s: float | None = None,
        journal: str = "",
    ) -> bytes:
        """Ask for a transcription; return the job's id.

        Args:
            source: path as the pipeline's frontend sees it, or `-` for its standard input.
            name: what people call it; by default the source.
            options: language, task, prompt.
            group: jobs of one group are done one after another; all others side by side.
            deadline_s: seconds after which the job fails with `deadline`; None never.
            journal: file that keeps what is committed, for going on after an interruption; remove it when you have the
                text.
        """
        job = new_id()
        self._mine[job] = 0
        self._hub.send(Submit(job, source, name or source, options or TranscribeOptions(), group, deadline_s, journal))
        return job

    def cancel(self, job: bytes) -> None:
        """Ask for a job's end; its terminal event still comes."""
        self._hub.send(Cancel(job=job))

    def receive(self, timeout: float | None = None) -> JobEvent | None:
        """The next event of our jobs; None when the time is over or `wake` was called.

        Raises:
            PipelineError: the pipeline ended before our jobs did, or rejected one.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._delivered:
            self._check_stopped()  # what said so may have come together with the last events
            woken = self._turn(None if deadline is None else max(0.0, deadline - time.monotonic()))
            if woken or (deadline is not None and time.monotonic() >= deadline):
                break
        return self._delivered.popleft() if self._delivered else None

    def follow(self, job: bytes, *, is_left: Callable[[], bool] = lambda: False) -> Generator[JobEvent, None, None]:
        """Events of one job to its terminal event; leaving the iteration early cancels it.

        Args:
            job: one of ours.
            is_left: asked after every event and every `wake` whether nobody wants the rest: another way to leave.

        Raises:
            PipelineError: as `receive` does.
        """
        ended = False
        try:
            while not ended:
                event = self.receive()
                if is_left():
                    return
                if event is not None and event.job == job:
                    ended = isinstance(event, TerminalEvent)
                    yield event
        finally:
            if not ended:
                self.cancel(job)

    def close(self) -> None:
        """Close the sockets. Jobs go on unless they were cancelled. Idempotent."""
        self._resources.close()

    # --- inside ---

    def _turn(self, timeout: float | None) -> bool:
        """Wait for something to come, and take all of it in; return whether `wake` was called."""
        waits = [self._patience] if timeout is None else [self._patience, timeout]
        if self._wants_snapshot:
            waits.append(max(0.0, self._asked + SNAPSHOT_PAUSE_S - time.monotonic()))
        wait_for(self._poller, min(waits))
        woken = self._wakeup.clear()
        for received in receive_all(self._events, self._bad_frames):
            self._heard = time.monotonic()
            self._welcomed = self._welcomed or isinstance(received.message, Welcome)
            if isinstance(received.message, Event):
                self._deliver(self._view.apply(received.message))
        for received in receive_all(self._hub, self._bad_frames):
            match received.message:
                case Snapshot():
                    self._deliver(self._view.apply_snapshot(received.message))
                case Rejected():
                    self._mine.pop(received.message.job, None)
                    raise PipelineError(received.message.code, received.message.text)
                case _:
                    pass
        self._ask_for_snapshot()
        self._check_alive()
        return woken

    @property
    def _patience(self) -> float:
        """Seconds of silence before a look whether the pipeline lives."""
        return SILENCE_S if self._welcomed else UNWELCOMED_S

    @property
    def _wants_snapshot(self) -> bool:
        return self._welcomed and self._view.needs_snapshot

    def _ask_for_snapshot(self) -> None:
        if self._wants_snapshot and time.monotonic() >= self._asked + SNAPSHOT_PAUSE_S:
            self._asked = time.monotonic()
            self._hub.send(SnapshotRequest())

    def _check_stopped(self) -> None:
        stopped = self._view.stopped
        if stopped is not None:
            raise PipelineError(stopped.code or STOPPED, stopped.text or "the pipeline was stopped")

    def _check_alive(self) -> None:
        """Silence means something only once all that has come is taken in: our owner may have been away for long."""
        if self._delivered:
            return
        self._check_stopped()
        reason = self._connection.why_lost(self._hub, self._heard, self._patience)
        if reason:
            raise PipelineError("gone", reason)

    def _deliver(self, changes: list[Change]) -> None:
        for change in changes:
            if isinstance(change, Snapshot):
                for state in change.jobs:
                    self._unfold(state)
            elif not isinstance(change, Stopped):
                self._deliver_event(change)
        self._view.forget_ended()

    def _deliver_event(self, event: JobEvent) -> None:
        if event.job not in self._mine:
            return
        if isinstance(event, Failed) and event.code == STOPPED:
            return  # the pipeline's last event follows and says why: `receive` raises it
        if isinstance(event, Segment):
            self._mine[event.job] = event.window + 1
        if isinstance(event, TerminalEvent):
            del self._mine[event.job]
        self._delivered.append(event)

    def _unfold(self, state: JobState) -> None:
        """The events that a snapshot stands for, as far as they are still worth something."""
        if state.job not in self._mine:
            return
        for segment in state.segments:  # a snapshot of very much text has not all of them
            if segment.window >= self._mine[state.job]:
                self._deliver_event(segment)
        if state.partial is not None:
            self._deliver_event(state.partial)
        if state.end is not None:
            self._deliver_event(state.end)
