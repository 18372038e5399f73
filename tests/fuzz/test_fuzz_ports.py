"""Garbage on every socket: each message is one refusal, and the port goes on."""

from __future__ import annotations

import random
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
import zmq

from susurrus.protocol import (
    BadFrames,
    HubLine,
    HubPort,
    Identity,
    Ping,
    ProtocolError,
    Publisher,
    ReceivePort,
    RuntimeFolder,
    Subscriber,
    Transport,
    encode,
)
from tests.fuzz.codec import generate, split
from tests.fuzz.mutations import mutate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

WAIT = 60  # seconds; a limit for failures, never waited for in a test that passes
BATCH, BATCHES = 50, 6  # fewer in flight than any queue holds
PEER = Identity.new("peer")


@pytest.fixture
def context() -> Iterator[zmq.Context[Any]]:
    """A context of the test's own; ends only if every socket was closed."""
    with zmq.Context() as context:
        yield context


@pytest.fixture
def ipc() -> Iterator[Transport]:
    """The ipc transport in a private folder."""
    with RuntimeFolder.create() as folder:
        yield Transport.choose(folder.path, "ipc")


def raw(context: zmq.Context[Any], kind: int, **options: Any) -> zmq.Socket[Any]:
    """A socket that sends what it likes."""
    socket: zmq.Socket[Any] = context.socket(kind)
    socket.linger = 0
    for name, value in options.items():
        setattr(socket, name, value)
    return socket


def ping() -> list[Any]:
    return encode(Ping(7), sender=PEER.name, instance=PEER.instance)


def feed(send: Callable[[list[Any]], object], receive: Callable[[float], Any], seed: int) -> None:
    """Send garbage and good messages in turn, and receive just as many answers, good or bad."""
    dice = random.Random(seed)  # noqa: S311  seeded on purpose
    bad, refused = BadFrames(), 0
    for _ in range(BATCHES):
        for _ in range(BATCH):
            send(split(generate(dice)) or [b""])
        send(ping())
        for _ in range(BATCH + 1):
            try:
                received = receive(WAIT)
            except ProtocolError as error:
                bad.note(error)
                refused += 1
            else:
                assert received is not None, "the port does not go on"
        last = received[1] if isinstance(received, tuple) else received
        assert last.message == Ping(7)
    assert bad.count == refused > BATCHES * BATCH // 2


def test_the_hub_goes_on_after_garbage_from_a_peer(context: zmq.Context[Any], ipc: Transport) -> None:
    with HubPort(context, ipc, Identity.new("hub")) as hub, raw(context, zmq.DEALER, routing_id=PEER.instance) as peer:
        peer.connect(hub.endpoint)
        feed(peer.send_multipart, hub.receive, 1)
        assert hub.receive() is None
        assert hub.send(PEER.instance, Ping(1))
        assert peer.poll(1000 * WAIT)


def test_an_actors_inbox_goes_on_after_garbage(context: zmq.Context[Any], ipc: Transport) -> None:
    with ReceivePort(context, ipc, Identity.new("decoder")) as inbox, raw(context, zmq.PUSH) as peer:
        peer.connect(inbox.endpoint)
        peer.sndhwm = 0
        feed(peer.send_multipart, inbox.receive, 2)


def test_a_line_goes_on_after_garbage_from_the_hub(context: zmq.Context[Any], ipc: Transport) -> None:
    endpoint = f"ipc://{ipc.folder}/hub"
    with ExitStack() as stack:
        hub = stack.enter_context(raw(context, zmq.ROUTER, router_mandatory=True))
        hub.bind(endpoint)
        line = stack.enter_context(HubLine(context, ipc, PEER, endpoint))
        assert line.send(Ping(0))
        assert hub.poll(1000 * WAIT)
        hub.recv_multipart()
        feed(lambda frames: hub.send_multipart([PEER.instance, *frames]), line.receive, 3)


def test_a_subscriber_goes_on_after_garbage_events(context: zmq.Context[Any], ipc: Transport) -> None:
    endpoint = f"ipc://{ipc.folder}/events"
    with ExitStack() as stack:
        hub = stack.enter_context(raw(context, zmq.XPUB))
        hub.bind(endpoint)
        subscriber = stack.enter_context(Subscriber(context, ipc, PEER, endpoint))
        assert hub.poll(1000 * WAIT)
        hub.recv()  # the subscription
        feed(lambda frames: hub.send_multipart([b"job/x/", *frames]), subscriber.receive, 4)


def test_a_publisher_goes_on_after_garbage_subscriptions(context: zmq.Context[Any], ipc: Transport) -> None:
    dice = random.Random(5)  # noqa: S311  seeded on purpose
    with Publisher(context, ipc, Identity.new("hub")) as events, raw(context, zmq.XSUB) as peer:
        peer.connect(events.endpoint)
        for _ in range(BATCH * BATCHES):
            frames = [mutate(b"\1job/0f/", dice) for _ in range(dice.choice((1, 1, 1, 2, 5)))]
            peer.send_multipart(frames)
        peer.send(b"\1last/")
        topics: list[bytes] = []
        while b"last/" not in topics:
            assert events.socket.poll(1000 * WAIT), "the port does not go on"
            topics += events.poll_subscriptions()
        assert all(len(topic) <= 64 for topic in topics)
        events.publish(Ping(7), topic=b"last/")
        assert peer.poll(1000 * WAIT)
