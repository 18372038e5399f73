"""Ports of the hub's events: one publishes, whoever subscribes reads. Topics are made here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import zmq

from susurrus.protocol.codec import MAX_FRAMES, Received, decode
from susurrus.protocol.ports import EVENT_HWM, Identity, Port
from susurrus.protocol.values import Message

if TYPE_CHECKING:
    from collections.abc import Sequence

    from susurrus.protocol.transport import Transport

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
