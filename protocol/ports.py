"""Sockets as ports: what an actor, the hub or a client sends and receives messages through.

What all have in common is here; the first two pairs are in `lines`, the third is in `publishing`.

    upstream   Outlet (PUSH)      -> ReceivePort (PULL)   arrays, straight from actor to actor
    hub        HubPort (ROUTER)  <-> HubLine (DEALER)     control and text, one line per actor or client
    hub        Publisher (XPUB)   => Subscriber (SUB)     numbered events; may drop, `seq` shows it

A port belongs to the one thread that made it (ZeroMQ sockets are not thread-safe). The caller owns the
`zmq.Context`; a library must not touch `Context.instance()`, which may be its host's. Nothing blocks unless
asked to: `receive` gives None when nothing came, `send` gives False when the message was not taken. A bad
frame raises ProtocolError out of `receive`, costs nothing else, and the port goes on; `BadFrames` counts and
logs them.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Self

import zmq

from susurrus.protocol.codec import MAX_TEXT_BODY_BYTES, encode, new_id
from susurrus.protocol.errors import ProtocolError
from susurrus.protocol.packing import Frame
from susurrus.protocol.records import record
from susurrus.protocol.values import Message, SendPort

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from susurrus.protocol.transport import Transport

DATA_HWM = 16
"""Messages queued on each side of a line that carries arrays. Credit keeps it at 2; this is for bugs."""
CONTROL_HWM = 1000
"""Messages queued per peer on the hub's lines: some seconds of partials while a side is not scheduled."""
EVENT_HWM = 1000
"""Events queued per subscriber; beyond it they are dropped."""


@record
class Identity:
    """Who speaks through a port."""

    name: str
    """`hub`, `frontend`, `encoder`, `decoder`, `console` or a client's own name."""
    instance: bytes
    """16 random bytes, new at every start."""

    @classmethod
    def new(cls, name: str) -> Self:
        """An identity for one run of `name`."""
        return cls(name, new_id())


class BadFrames:
    """Counts the bad frames of one process and writes one log line for each: code and sizes, no contents."""

    def __init__(self) -> None:
        self.count = 0

    def note(self, error: ProtocolError) -> None:
        """Count and log one refused message."""
        self.count += 1
        sender = ascii(error.header.sender[:32])[1:-1] if error.header is not None else None
        about = {
            "code": error.code,
            "reason": str(error),
            "sender": sender,  # its own words: no line breaks or escapes of theirs get into the log
            "peer": error.peer.hex(),
            "count": self.count,
        }
        logging.getLogger(__name__).warning("bad frame dropped", extra=about)


class Port:
    """Base of all ports: one socket with bounded queues, closed exactly once."""

    def __init__(
        self,
        context: zmq.Context[Any],
        kind: int,
        transport: Transport,
        identity: Identity,
        *,
        hwm: int,
        max_frame_bytes: int = MAX_TEXT_BODY_BYTES,
    ) -> None:
        self.identity = identity
        self.endpoint = ""
        self._transport = transport
        self._bound = False
        self.socket: zmq.Socket[Any] = context.socket(kind)
        """For a `zmq.Poller`; send and receive through the port."""
        self.socket.linger = 0  # -1 by default: one unsent message would keep the process from ending
        self.socket.sndhwm = self.socket.rcvhwm = hwm
        self.socket.maxmsgsize = max_frame_bytes

    def close(self, *, linger: float = 0.0) -> None:
        """Close the socket. Idempotent.

        Args:
            linger: Seconds that `Context.term` may wait for messages that are still queued.
        """
        if not self.socket.closed:
            self.socket.close(linger=round(linger * 1000))
            if self._bound:
                self._transport.release(self.endpoint)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _bind(self, name: str) -> None:
        try:
            self.endpoint = self._transport.bind(self.socket, name)
        except BaseException:
            self.socket.close()
            raise
        self._bound = True

    def _connect(self, endpoint: str) -> None:
        try:
            self._transport.connect(self.socket, endpoint)
        except BaseException:
            self.socket.close()
            raise
        self.endpoint = endpoint

    def _encode(self, message: Message, parent: bytes, reply_to: SendPort | None = None) -> list[Frame]:
        name, instance = self.identity.name, self.identity.instance
        return encode(message, sender=name, instance=instance, parent=parent, reply_to=reply_to)

    def _send(self, frames: Sequence[Frame]) -> bool:
        """Queue the frames; large ones are not copied. False when the queue is full or the peer unknown."""
        try:
            self.socket.send_multipart(frames, zmq.DONTWAIT, copy=False)
        except zmq.Again:
            return False
        except zmq.ZMQError as error:
            if error.errno == zmq.EHOSTUNREACH:
                return False
            raise
        return True

    def _receive_frames(self, timeout: float | None, limit: int, *, copy: bool = True) -> list[Frame] | None:
        """The next message's frames, None when none came in time; of too many only `limit` + 1 are kept."""
        if timeout != 0 and not self.socket.poll(None if timeout is None else round(timeout * 1000)):
            return None
        try:
            frames = [self._receive_frame(copy=copy)]
        except zmq.Again:
            return None
        while self.socket.getsockopt(zmq.RCVMORE):
            frame = self._receive_frame(copy=copy)
            if len(frames) <= limit:
                frames.append(frame)
        return frames

    def _receive_frame(self, *, copy: bool) -> Frame:
        frame = self.socket.recv(zmq.DONTWAIT, copy=copy)
        return frame if isinstance(frame, bytes) else frame.buffer
