"""Ports from one process to one other: arrays from actor to actor, control and text between the hub and its peers."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import zmq

from susurrus.protocol.codec import MAX_ARRAY_BYTES, MAX_FRAMES, Received, decode
from susurrus.protocol.errors import ProtocolError
from susurrus.protocol.packing import Frame
from susurrus.protocol.ports import CONTROL_HWM, DATA_HWM, Identity, Port
from susurrus.protocol.values import Message, SendPort

if TYPE_CHECKING:
    from susurrus.protocol.monitor import Troubles
    from susurrus.protocol.transport import Transport


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
        self._troubles: Troubles | None = None
        if transport.scheme == "remote":
            from susurrus.protocol import monitor  # noqa: PLC0415 - brings the socket module, which few need

            self._troubles = monitor.Troubles(self.socket)
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
