"""One actor in a thread of the host's own process, spoken to by messages: a Dart isolate within the host.

    with EmbeddedActor(EncoderBehaviour(directory, "int8", threads=2)) as encoder:
        encoder.send(Features(...))
        hidden_states = encoder.receive().states

It is the same actor as in a pipeline, on the same wire; this module plays the hub for it and takes its results.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from types import TracebackType
from typing import Any, Self

import zmq

from susurrus.actors.behaviour import Behaviour
from susurrus.actors.client import PipelineError
from susurrus.actors.io import wait_for
from susurrus.actors.shell import Shell
from susurrus.protocol import (
    ActorSettings,
    Committed,
    Connection,
    Credit,
    Downstream,
    Error,
    Features,
    HubPort,
    Identity,
    Message,
    Outlet,
    Ready,
    ReceivePort,
    RuntimeFolder,
    Stopped,
    Transport,
    Working,
)

CREDIT = 8  # results that may wait for `receive`
CHECK_S = 1.0  # between two looks whether the actor's thread lives
HOUSEKEEPING = (Credit, Stopped, Working)  # what the actor says to its hub that means nothing to the host


class EmbeddedActor:
    """An actor that lives as long as the context it is entered in.

    `send` and `receive` belong to the thread that entered the context. The actor's own two threads, I/O and compute,
    are inside; an error of its work comes out of `receive`.
    """

    def __init__(self, behaviour: Behaviour) -> None:
        self._behaviour = behaviour
        self._outlet: Outlet | None = None
        self._peer = b""
        self.ready: Ready
        """What the actor said of itself when it had loaded."""

    def __enter__(self) -> Self:
        """Start the actor and wait until it has loaded.

        Raises:
            PipelineError: it could not load.
            WireError: there is no private place for the sockets.
        """
        with contextlib.ExitStack() as resources:
            folder = resources.enter_context(RuntimeFolder.create())
            context: zmq.Context[Any] = zmq.Context()
            resources.callback(context.term)
            transport, host = Transport.choose(folder.path), Identity.new("host")
            self._hub = resources.enter_context(HubPort(context, transport, host))
            self._results = resources.enter_context(ReceivePort(context, transport, host))
            shell = Shell(self._behaviour, self._connection(transport, host), context)
            self._thread = threading.Thread(
                target=shell.run, kwargs={"join": True}, name=self._behaviour.name, daemon=True
            )
            self._thread.start()
            resources.callback(self._thread.join)
            resources.callback(shell.stop)
            self.ready = self._wait_until_ready()
            if self.ready.inbox is not None:
                self._outlet = resources.enter_context(Outlet(context, transport, host, self.ready.inbox))
            self._hub.send(self._peer, Downstream(port=self._results.send_port))
            self._hub.send(self._peer, Credit(windows=CREDIT))
            self._resources = resources.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._resources.close()

    def send(self, message: Message) -> None:
        """Give the actor work: Features, HiddenStates, or Submit for a frontend. Waits while its inbox is full.

        Raises:
            ProtocolError: the message cannot travel.
        """
        port, send = (self._hub, self._tell) if self._outlet is None else (self._outlet, self._outlet.send)
        while not send(message):
            port.socket.poll(flags=zmq.POLLOUT)

    def receive(self, timeout: float | None = None) -> Message | None:
        """The actor's next result, or its next word to the hub (Partial, Failed, …); None when the time is over.

        Raises:
            PipelineError: the actor cannot go on.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            message = self._next(CHECK_S if deadline is None else min(CHECK_S, deadline - time.monotonic()))
            if message is not None and not isinstance(message, HOUSEKEEPING):
                return message
            if deadline is not None and time.monotonic() >= deadline:
                return None

    def _connection(self, transport: Transport, host: Identity) -> Connection:
        return Connection(
            pid=os.getpid(),
            instance=host.instance,
            hub=self._hub.endpoint,
            events="",
            transport=transport,
            started=time.time(),
            settings=ActorSettings(),
        )

    def _wait_until_ready(self) -> Ready:
        while True:
            message = self._next(CHECK_S)
            if isinstance(message, Ready):
                return message

    def _tell(self, message: Message) -> bool:
        return self._hub.send(self._peer, message)

    def _next(self, seconds: float) -> Message | None:
        """The next message on either port, results before words; None when none came in time."""
        poller = zmq.Poller()
        poller.register(self._results.socket, zmq.POLLIN)
        poller.register(self._hub.socket, zmq.POLLIN)
        ready = wait_for(poller, max(0.0, seconds))
        if self._results.socket in ready and (result := self._results.receive()) is not None:
            self._tell(Credit(windows=1))
            if isinstance(result.message, Features):  # nobody will ask for it again
                self._tell(Committed(job=result.message.job, windows=result.message.window + 1))
            return result.message
        if self._hub.socket not in ready or (word := self._hub.receive()) is None:
            if not self._thread.is_alive():
                raise PipelineError("actor_lost", f"the {self._behaviour.name}'s thread has ended")
            return None
        self._peer, message = word[0], word[1].message
        if isinstance(message, Error):
            raise PipelineError(message.code, message.text)
        return message
