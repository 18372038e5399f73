"""Sockets as ports: what an actor, the hub or a client sends and receives messages through.

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
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import zmq

from susurrus.protocol.codec import (
    MAX_ARRAY_BYTES,
    MAX_FRAMES,
    MAX_TEXT_BODY_BYTES,
    Frame,
    Received,
    decode,
    encode,
    new_id,
)
from susurrus.protocol.errors import ProtocolError
from susurrus.protocol.messages import Message, SendPort
from susurrus.protocol.monitor import Troubles
from susurrus.protocol.records import record

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
HUB_TOPIC = b"hub/"
"""Topic of events that belong to no job. Topics are prefixes: the slash keeps job 1 apart from job 12."""
MAX_TOPIC_BYTES = 64


def job_topic(job: bytes) -> bytes:
    """Topic of one job's events: `job/<id in hex>/`."""
    return b"job/%s/" % job.hex().encode()


def topic_of(message: Message) -> bytes:
    """Topic that an event is published under."""
    job = getattr(message, "job", None)
    return HUB_TOPIC if job is None else job_topic(job)


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


class ReceivePort(Port):
    """An actor's inbox for arrays (PULL, bound). `send_port` is its address, to be told in Ready."""

    def __init__(self, context: zmq.Context[Any], transport: Transport, identity: Identity) -> None:
        super().__init__(context, zmq.PULL, transport, identity, hwm=DATA_HWM, max_frame_bytes=MAX_ARRAY_BYTES)
        self._bind(f"{identity.name[:8]}-{identity.instance.hex()[:8]}")

    @property
    def send_port(self) -> SendPort:
        """Where the upstream sends to; another one after every restart."""
        return SendPort(self.endpoint, self.identity.instance)

    def receive(self, timeout: float | None = 0.0) -> Received | None:
        """The next message; its arrays are read-only views of libzmq's memory.

        Args:
            timeout: Seconds to wait; 0 not at all, None for ever.

        Raises:
            ProtocolError: The next message was bad; it is gone.
        """
        frames = self._receive_frames(timeout, MAX_FRAMES, copy=False)
        return None if frames is None else decode(frames)


class Outlet(Port):
    """The sending end of another actor's ReceivePort (PUSH, connected)."""

    def __init__(self, context: zmq.Context[Any], transport: Transport, identity: Identity, port: SendPort) -> None:
        super().__init__(context, zmq.PUSH, transport, identity, hwm=DATA_HWM)
        self.port = port
        self._connect(port.endpoint)

    def send(self, message: Message, *, parent: bytes = b"") -> bool:
        """Queue a message; False when the queue is full. Its arrays must not be written to afterwards.

        True does not mean that it arrived: what is queued dies with either process.

        Raises:
            ProtocolError: The message cannot travel.
        """
        return self._send(self._encode(message, parent))


class HubPort(Port):
    """The hub's end of all lines (ROUTER, bound). A peer is known by its instance."""

    has_remote = False
    """Whether it is bound to the network as well: then each message tells whose it is."""

    def __init__(self, context: zmq.Context[Any], transport: Transport, identity: Identity) -> None:
        super().__init__(context, zmq.ROUTER, transport, identity, hwm=CONTROL_HWM)
        self._client = ""
        self.socket.router_mandatory = True  # without it a message to a vanished peer is dropped silently
        self._bind("hub")

    def receive(self, timeout: float | None = 0.0) -> tuple[bytes, Received] | None:
        """The next message and the instance of its sender.

        Args:
            timeout: Seconds to wait; 0 not at all, None for ever.

        Raises:
            ProtocolError: The next message was bad or speaks for another instance; it is gone. `peer` is set.
        """
        frames = self._receive_frames(timeout, 1 + MAX_FRAMES)
        if frames is None:
            return None
        peer = bytes(frames[0])
        try:
            received = replace(decode(frames[1:]), client=self._client)
        except ProtocolError as error:
            error.peer = peer
            raise
        if received.header.instance != peer:
            text = "the line belongs to another instance"
            raise ProtocolError("wrong_instance", text, header=received.header, peer=peer)
        return peer, received

    def _receive_frame(self, *, copy: bool) -> Frame:
        """As any port does; keeps in mind which client on another machine the frame is from."""
        if not self.has_remote:
            return super()._receive_frame(copy=copy)
        frame = self.socket.recv(zmq.DONTWAIT, copy=False)
        self._client = ""
        with suppress(zmq.ZMQError):  # a frame from this machine has no such property
            self._client = str(frame.get("User-Id"))
        return frame.bytes

    def send(self, peer: bytes, message: Message, *, parent: bytes = b"") -> bool:
        """Queue a message for one peer; False when the peer is gone or does not read.

        Raises:
            ProtocolError: The message cannot travel.
        """
        return self._send([peer, *self._encode(message, parent)])


class HubLine(Port):
    """An actor's or client's line to the hub (DEALER, connected; its routing id is the instance)."""

    def __init__(self, context: zmq.Context[Any], transport: Transport, identity: Identity, endpoint: str) -> None:
        super().__init__(context, zmq.DEALER, transport, identity, hwm=CONTROL_HWM)
        self.socket.routing_id = identity.instance
        self._troubles = Troubles(self.socket) if transport.scheme == "remote" else None
        try:
            self._connect(endpoint)
        except BaseException:
            self.close()
            raise

    def trouble(self) -> str:
        """Why a remote hub cannot be talked to, as far as the socket can tell; empty when it can, or is a local one."""
        return "" if self._troubles is None else self._troubles.latest()

    def close(self, *, linger: float = 0.0) -> None:
        """Close the socket. Idempotent."""
        if self._troubles is not None:
            self._troubles.close()
        super().close(linger=linger)

    def receive(self, timeout: float | None = 0.0) -> Received | None:
        """The hub's next message.

        Args:
            timeout: Seconds to wait; 0 not at all, None for ever.

        Raises:
            ProtocolError: The next message was bad; it is gone.
        """
        frames = self._receive_frames(timeout, MAX_FRAMES)
        return None if frames is None else decode(frames)

    def send(self, message: Message, *, parent: bytes = b"", answer: bool = False) -> bool:
        """Queue a message for the hub; False when the queue is full, as with a hub that is frozen or gone.

        Args:
            message: What to send.
            parent: `id` of the message that caused it.
            answer: Whether the hub should answer even if it does not know the message.

        Raises:
            ProtocolError: The message cannot travel.
        """
        return self._send(self._encode(message, parent, SendPort("", self.identity.instance) if answer else None))


class Publisher(Port):
    """The hub's events for all who subscribe (XPUB, bound). Never blocks, drops for those who do not read."""

    def __init__(self, context: zmq.Context[Any], transport: Transport, identity: Identity) -> None:
        super().__init__(context, zmq.XPUB, transport, identity, hwm=EVENT_HWM)
        self.subscriptions = 0
        """That stand, as far as `poll_subscriptions` has seen: as many as subscribers that have one topic each."""
        self.socket.xpub_verboser = True  # every subscription and its end is told, not only the first of its topic
        self._bind("events")

    def publish(self, message: Message, *, parent: bytes = b"", topic: bytes | None = None) -> None:
        """Send an event to the subscribers of `topic`, by default the message's own.

        Raises:
            ProtocolError: The message cannot travel.
        """
        self._send([topic_of(message) if topic is None else topic, *self._encode(message, parent)])

    def poll_subscriptions(self) -> list[bytes]:
        """Topics subscribed to since the last call; the hub publishes a Welcome under each of them."""
        topics = []
        while (frames := self._receive_frames(0.0, 1)) is not None:
            if len(frames) != 1 or not 0 < len(frames[0]) <= 1 + MAX_TOPIC_BYTES:
                continue
            if frames[0][0] == 1:
                topics.append(bytes(frames[0][1:]))
                self.subscriptions += 1
            elif frames[0][0] == 0:
                self.subscriptions = max(0, self.subscriptions - 1)
        return topics


class Subscriber(Port):
    """A reader of events (SUB, connected). No topic may be the prefix of another."""

    def __init__(
        self,
        context: zmq.Context[Any],
        transport: Transport,
        identity: Identity,
        endpoint: str,
        topics: Sequence[bytes] = (b"",),
    ) -> None:
        super().__init__(context, zmq.SUB, transport, identity, hwm=EVENT_HWM)
        self._topics = tuple(topics)
        self._unproven = set(topics)
        for topic in topics:
            self.socket.subscribe(topic)
        self._connect(endpoint)

    @property
    def is_live(self) -> bool:
        """Whether all subscriptions have arrived: something was received for each, at least its Welcome.

        libzmq sends subscriptions in an order of its own when the connection stands, so a Welcome proves only
        the topic it came under.
        """
        return not self._unproven

    def receive(self, timeout: float | None = 0.0) -> Received | None:
        """The next event.

        Args:
            timeout: Seconds to wait; 0 not at all, None for ever.

        Raises:
            ProtocolError: The next event was bad; it is gone.
        """
        frames = self._receive_frames(timeout, 1 + MAX_FRAMES)
        if frames is None:
            return None
        if self._unproven:
            self._unproven -= {topic for topic in self._topics if bytes(frames[0]).startswith(topic)}
        return decode(frames[1:])
