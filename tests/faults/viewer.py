"""A subscriber as a test wants it: what it was sent and what it makes of it lie open."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

import zmq

from susurrus.actors import Pipeline
from susurrus.actors.io import receive_all
from susurrus.actors.view import TranscriptView
from susurrus.protocol import (
    Accepted,
    BadFrames,
    Beat,
    Connection,
    Event,
    HubLine,
    Identity,
    Snapshot,
    SnapshotRequest,
    Subscriber,
    Welcome,
)
from tests.actors.fakes import PATIENCE_S


class Viewer:
    """Subscribes, takes a snapshot, follows; asks again when something is missing. Forgets nothing."""

    def __init__(self, connection: Connection, context: zmq.Context[Any] | None = None) -> None:
        """Connect; nothing is waited for.

        Args:
            connection: of the pipeline.
            context: for many viewers in one; by default one of its own.
        """
        self.view = TranscriptView()
        self.events: list[Event] = []
        """All that came, as it came."""
        self.accepted: list[bytes] = []
        """Jobs that the hub has accepted from us."""
        self.snapshots = 0
        self._welcomed = False
        self._asked = False
        self._bad_frames = BadFrames()
        identity = Identity.new("viewer")
        with ExitStack() as resources:
            if context is None:
                context = zmq.Context()
                resources.callback(context.term)
            subscriber = Subscriber(context, connection.transport, identity, connection.events)
            self._subscriber = resources.enter_context(subscriber)
            self.line = resources.enter_context(HubLine(context, connection.transport, identity, connection.hub))
            self._poller = zmq.Poller()
            self._poller.register(self._subscriber.socket, zmq.POLLIN)
            self._poller.register(self.line.socket, zmq.POLLIN)
            self._resources = resources.pop_all()

    @classmethod
    def of(cls, pipeline: Pipeline) -> Self:
        """One that is live."""
        viewer = cls(pipeline.connection)
        viewer.wait(lambda: viewer.is_live)
        return viewer

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Leave."""
        self._resources.close()

    @property
    def is_live(self) -> bool:
        """Whether it knows how things stand, and will miss nothing unnoticed."""
        return self._welcomed and not self.view.needs_snapshot

    def wait_for_end(self, job: bytes) -> None:
        """Until a job's last event has taken effect."""
        self.wait(lambda: job in self.view.jobs and self.view.jobs[job].end is not None)

    def wait(self, until: Callable[[], bool]) -> None:
        """Take in what comes until something holds, as long as anything is told of any job."""
        heard = time.monotonic()
        while not until():
            assert time.monotonic() < heard + PATIENCE_S, self.view
            self._poller.poll(50)
            for received in receive_all(self._subscriber, self._bad_frames):
                message = received.message
                self._welcomed = self._welcomed or isinstance(message, Welcome)
                if isinstance(message, Event):
                    heard = heard if isinstance(message, Beat) else time.monotonic()
                    self.events.append(message)
                    self.view.apply(message)
            for received in receive_all(self.line, self._bad_frames):
                match received.message:
                    case Snapshot() as snapshot:
                        self._asked = False
                        self.snapshots += 1
                        self.view.apply_snapshot(snapshot)
                    case Accepted(job=job):
                        self.accepted.append(job)
                    case _:
                        pass
            if self._welcomed and self.view.needs_snapshot and not self._asked:
                self._asked = True
                self.line.send(SnapshotRequest())
