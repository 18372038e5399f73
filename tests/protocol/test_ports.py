"""Ports over real sockets, over both transports."""

from __future__ import annotations

import stat
import subprocess
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import zmq

from susurrus.protocol import (
    HUB_TOPIC,
    BadFrames,
    EndpointError,
    Features,
    Hello,
    HubLine,
    HubPort,
    Identity,
    Outlet,
    Ping,
    Pong,
    ProtocolError,
    Publisher,
    ReceivePort,
    SendPort,
    Subscriber,
    TranscribeOptions,
    Transport,
    Welcome,
    codec,
    encode,
    job_topic,
    new_id,
    ports,
    topic_of,
)

if TYPE_CHECKING:
    from pathlib import Path

    from susurrus.protocol import Message

WAIT = 50  # seconds; a limit for failures, never waited for in a test that passes


def features(mel: Any) -> Features:
    return Features(new_id(), 0, 1, 0.0, 1.0, TranscribeOptions(), 0.0, mel)


def raw(context: zmq.Context[Any], kind: int, endpoint: str, **options: Any) -> zmq.Socket[Any]:
    """A socket that sends what it likes."""
    socket: zmq.Socket[Any] = context.socket(kind)
    socket.linger = 0
    for name, value in options.items():
        setattr(socket, name, value)
    socket.connect(endpoint)
    return socket


@pytest.fixture
def ipc(runtime_folder: Path) -> Transport:
    """The ipc transport only, for tests that connect sockets of their own."""
    return Transport.choose(runtime_folder, "ipc")


# --- arrays -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(80, 1), (80, 10), (80, 3000), (1500, 1280)], ids=str)
def test_an_array_travels_from_outlet_to_receive_port(
    shape: tuple[int, int], context: zmq.Context[Any], transport: Transport, hub: Identity, actor: Identity
) -> None:
    mel = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    with (
        ReceivePort(context, transport, actor) as inbox,
        Outlet(context, transport, hub, inbox.send_port) as out,
    ):
        assert out.send(features(mel), parent=hub.instance)
        received = inbox.receive(WAIT)
    assert received is not None
    assert isinstance(received.message, Features)
    assert (received.header.sender, received.header.parent) == ("hub", hub.instance)
    np.testing.assert_array_equal(received.message.mel, mel)  # also after the sockets are closed
    assert received.message.mel.flags.aligned
    assert not received.message.mel.flags.writeable


def test_an_empty_port_gives_none_at_once(context: zmq.Context[Any], transport: Transport, actor: Identity) -> None:
    with ReceivePort(context, transport, actor) as inbox:
        assert inbox.receive() is None
        assert inbox.receive(0.001) is None


def test_an_outlet_to_nobody_takes_a_bounded_number_of_messages(
    context: zmq.Context[Any], ipc: Transport, hub: Identity
) -> None:
    port = SendPort(f"ipc://{ipc.folder}/nobody", new_id())
    with Outlet(context, ipc, hub, port) as outlet:
        taken = [outlet.send(Ping(number)) for number in range(ports.DATA_HWM + 2)]
    assert taken == [True] * ports.DATA_HWM + [False] * 2


def test_a_restarted_actor_has_another_send_port(context: zmq.Context[Any], transport: Transport) -> None:
    first, second = Identity.new("encoder"), Identity.new("encoder")
    with ReceivePort(context, transport, first) as old, ReceivePort(context, transport, second) as new:
        assert old.send_port != new.send_port


# --- the hub's lines ----------------------------------------------------------------------------------------


def test_the_hub_answers_each_peer_on_its_own_line(
    context: zmq.Context[Any], transport: Transport, hub: Identity
) -> None:
    names = ("frontend", "encoder", "decoder")
    with HubPort(context, transport, hub) as port, ExitStack() as stack:
        lines = [stack.enter_context(HubLine(context, transport, Identity.new(name), port.endpoint)) for name in names]
        for line in lines:
            assert line.send(Hello(line.identity.name, "0.1.0", 1))
        for _ in lines:
            found = port.receive(WAIT)
            assert found is not None
            peer, received = found
            assert port.send(peer, Ping(peer[0]), parent=received.header.id)
        for line in lines:
            answer = line.receive(WAIT)
            assert answer is not None
            assert answer.message == Ping(line.identity.instance[0])


def test_a_line_may_ask_for_an_answer(
    context: zmq.Context[Any], transport: Transport, hub: Identity, actor: Identity
) -> None:
    with HubPort(context, transport, hub) as port, HubLine(context, transport, actor, port.endpoint) as line:
        line.send(Pong(1), answer=True)
        found = port.receive(WAIT)
    assert found is not None
    assert found[1].header.reply_to == SendPort("", actor.instance)


def test_a_message_to_an_unknown_peer_is_told(context: zmq.Context[Any], transport: Transport, hub: Identity) -> None:
    with HubPort(context, transport, hub) as port:
        assert port.send(new_id(), Ping(1)) is False


def test_a_message_to_a_peer_that_left_is_told(
    context: zmq.Context[Any], transport: Transport, hub: Identity, actor: Identity
) -> None:
    with HubPort(context, transport, hub) as port:
        monitor = port.socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        line = HubLine(context, transport, actor, port.endpoint)
        line.send(Pong(1))
        assert port.receive(WAIT) is not None
        assert port.send(actor.instance, Ping(1))
        line.close()
        assert monitor.poll(WAIT * 1000)
        while port.send(actor.instance, Ping(2)):  # libzmq tells the monitor a moment before it forgets the peer
            pass
        assert sum(port.send(actor.instance, Ping(2)) for _ in range(3)) == 0
        port.socket.disable_monitor()
        monitor.close()


def test_a_line_cannot_speak_for_another_instance(context: zmq.Context[Any], ipc: Transport, hub: Identity) -> None:
    thief, victim = new_id(), new_id()
    with HubPort(context, ipc, hub) as port:
        socket = raw(context, zmq.DEALER, port.endpoint, routing_id=thief)
        socket.send_multipart(encode(Pong(1), sender="decoder", instance=victim))
        with pytest.raises(ProtocolError) as caught:
            port.receive(WAIT)
        socket.close()
    assert (caught.value.code, caught.value.peer) == ("wrong_instance", thief)


def test_a_frozen_hub_does_not_block_its_actors(context: zmq.Context[Any], ipc: Transport, actor: Identity) -> None:
    with HubLine(context, ipc, actor, f"ipc://{ipc.folder}/hub") as line:
        taken = 0
        while line.send(Ping(taken)):
            taken += 1
    assert taken == ports.CONTROL_HWM


# --- bad frames ---------------------------------------------------------------------------------------------


def hostile(good: list[Any]) -> list[list[bytes]]:
    tag, header, body = (bytes(frame) for frame in good)
    return [
        [b""],
        [b"GET / HTTP/1.1"],
        [tag, header],
        [b"SUSU02", header, body],
        [tag, header[:-1], body],
        [tag, header, body[:-1]],
        [tag, header, body, b"more"],
        [tag, header, body, *[b""] * 50],
        [tag, b"h" * 5000, body],
    ]


def test_bad_frames_cost_one_error_each_and_the_hub_goes_on(
    context: zmq.Context[Any], ipc: Transport, hub: Identity, caplog: pytest.LogCaptureFixture
) -> None:
    peer, bad_frames = new_id(), BadFrames()
    good = encode(Pong(7), sender="decoder", instance=peer)
    with HubPort(context, ipc, hub) as port:
        socket = raw(context, zmq.DEALER, port.endpoint, routing_id=peer)
        for frames in hostile(good):
            socket.send_multipart(frames)
        socket.send_multipart(good)
        for _ in hostile(good):
            with pytest.raises(ProtocolError) as caught:
                port.receive(WAIT)
            assert caught.value.peer == peer
            bad_frames.note(caught.value)
        found = port.receive(WAIT)
        assert found is not None
        assert found[1].message == Pong(7)
        socket.close()
    logs = caplog.records
    assert bad_frames.count == len(logs) == len(hostile(good))
    assert {record.message for record in logs} == {"bad frame dropped"}
    assert [record.__dict__["count"] for record in logs] == list(range(1, len(logs) + 1))
    assert not any("HTTP" in str(record.__dict__) for record in logs)


@pytest.mark.parametrize("kind", ["inbox", "line", "events"])
def test_bad_frames_cost_one_error_each_and_the_port_goes_on(
    kind: str, context: zmq.Context[Any], ipc: Transport, actor: Identity
) -> None:
    good = encode(Ping(7), sender="hub", instance=actor.instance)
    prefix: list[bytes] = {"inbox": [], "line": [actor.instance], "events": [HUB_TOPIC]}[kind]
    port: ReceivePort | HubLine | Subscriber
    if kind == "inbox":
        port = ReceivePort(context, ipc, actor)
        socket = raw(context, zmq.PUSH, port.endpoint)
    else:
        socket = context.socket(zmq.ROUTER if kind == "line" else zmq.XPUB)
        socket.linger = 0
        socket.bind(endpoint := f"ipc://{ipc.folder}/fake")
        port = (HubLine if kind == "line" else Subscriber)(context, ipc, actor, endpoint)
        if isinstance(port, HubLine):
            port.send(Pong(1))
        assert socket.recv_multipart()  # the pong or the subscription: now the line stands
    with port:
        for frames in hostile(good):
            socket.send_multipart([*prefix, *frames])
        socket.send_multipart([*prefix, *good])
        for _ in hostile(good):
            with pytest.raises(ProtocolError):
                port.receive(WAIT)
        received = port.receive(WAIT)
        assert received is not None
        assert received.message == Ping(7)
        socket.close()


def test_an_oversized_frame_costs_its_sender_the_line_and_nobody_else(
    context: zmq.Context[Any], ipc: Transport, hub: Identity, actor: Identity
) -> None:
    with HubPort(context, ipc, hub) as port, HubLine(context, ipc, actor, port.endpoint) as line:
        monitor = port.socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        socket = raw(context, zmq.DEALER, port.endpoint, reconnect_ivl=-1)
        socket.send(bytes(codec.MAX_TEXT_BODY_BYTES + 1))
        assert monitor.poll(WAIT * 1000)
        line.send(Pong(1))
        found = port.receive(WAIT)
        assert found is not None
        assert found[0] == actor.instance
        socket.close()
        port.socket.disable_monitor()
        monitor.close()


# --- events -------------------------------------------------------------------------------------------------


def subscriptions(publisher: Publisher, count: int) -> list[bytes]:
    topics: list[bytes] = []
    while len(topics) < count:
        assert publisher.socket.poll(WAIT * 1000)
        topics += publisher.poll_subscriptions()
    return topics


def test_every_new_subscriber_can_be_welcomed(
    context: zmq.Context[Any], transport: Transport, hub: Identity, actor: Identity
) -> None:
    with Publisher(context, transport, hub) as publisher:
        for _ in range(2):  # the second has the same topic, which plain XPUB would not tell
            with Subscriber(context, transport, actor, publisher.endpoint) as subscriber:
                assert subscriptions(publisher, 1) == [b""]
                assert not subscriber.is_live
                publisher.publish(Welcome(hub.instance), topic=b"")
                received = subscriber.receive(WAIT)
                assert received is not None
                assert received.message == Welcome(hub.instance)
                assert subscriber.is_live


def test_a_subscriber_of_one_job_hears_that_job_and_the_hub_only(
    context: zmq.Context[Any],
    transport: Transport,
    hub: Identity,
    actor: Identity,
    samples: dict[str, Message],
) -> None:
    job = new_id()
    mine = type(samples["cancelled"])(job, 1)  # type: ignore[call-arg]
    with Publisher(context, transport, hub) as publisher:
        topics = (job_topic(job), HUB_TOPIC)
        with Subscriber(context, transport, actor, publisher.endpoint, topics) as subscriber:
            for topic in subscriptions(publisher, 2):
                assert not subscriber.is_live
                publisher.publish(Welcome(hub.instance), topic=topic)
                assert subscriber.receive(WAIT) is not None
            assert subscriber.is_live
            for event in (samples["cancelled"], samples["partial"], mine, samples["beat"]):
                publisher.publish(event)
            heard = [subscriber.receive(WAIT) for _ in range(2)]
    assert [received and received.message for received in heard] == [mine, samples["beat"]]


def test_a_topic_is_never_the_prefix_of_another(samples: dict[str, Message]) -> None:
    jobs = [new_id() for _ in range(20)]
    topics = [HUB_TOPIC, *(job_topic(job) for job in jobs)]
    assert not [(a, b) for a in topics for b in topics if a is not b and a.startswith(b)]
    assert topic_of(samples["done"]) == b"job/000102030405060708090a0b0c0d0e0f/"
    assert topic_of(samples["beat"]) == topic_of(samples["stopped"]) == topic_of(samples["welcome"]) == b"hub/"


def test_a_subscriber_that_does_not_read_neither_blocks_nor_fills_the_publisher(
    context: zmq.Context[Any], ipc: Transport, hub: Identity, actor: Identity, samples: dict[str, Message]
) -> None:
    with (
        Publisher(context, ipc, hub) as publisher,
        Subscriber(context, ipc, actor, publisher.endpoint) as sleepy,
    ):
        subscriptions(publisher, 1)
        for _ in range(10 * ports.EVENT_HWM):
            publisher.publish(samples["beat"])
        assert sleepy.receive(WAIT) is not None
        heard = 1
        while sleepy.receive() is not None:
            heard += 1
    assert heard < 10 * ports.EVENT_HWM


def test_nonsense_on_the_subscription_path_is_ignored(context: zmq.Context[Any], ipc: Transport, hub: Identity) -> None:
    with Publisher(context, ipc, hub) as publisher:
        socket = raw(context, zmq.XSUB, publisher.endpoint)
        socket.send(b"\x07hello")
        socket.send(b"")
        socket.send(b"\x01" + b"long" * 100)
        socket.send(b"\x01job/")
        assert subscriptions(publisher, 1) == [b"job/"]
        socket.close()


# --- binding, closing ---------------------------------------------------------------------------------------


def test_closing_leaves_no_socket_file(
    context: zmq.Context[Any], ipc: Transport, hub: Identity, actor: Identity
) -> None:
    before = sorted(ipc.folder.iterdir())
    bound = [HubPort(context, ipc, hub), Publisher(context, ipc, hub), ReceivePort(context, ipc, actor)]
    assert sum(stat.S_ISSOCK(path.lstat().st_mode) for path in ipc.folder.iterdir()) == 3
    for port in bound:
        port.close()
        port.close()
    assert sorted(ipc.folder.iterdir()) == before


def test_a_second_bind_to_a_living_path_is_refused(context: zmq.Context[Any], ipc: Transport, hub: Identity) -> None:
    with HubPort(context, ipc, hub), pytest.raises(EndpointError, match="exists already"):
        HubPort(context, ipc, hub)


def test_a_path_too_long_for_a_socket_is_refused_with_its_name(
    context: zmq.Context[Any], tmp_path: Path, hub: Identity
) -> None:
    deep = tmp_path / ("d" * 110)
    deep.mkdir()
    with pytest.raises(EndpointError, match="dddd/hub: longer than"):
        HubPort(context, Transport("ipc", deep), hub)


@pytest.mark.parametrize(
    "endpoint",
    [
        "ipc:///tmp/elsewhere",
        "tcp://127.0.0.1:1",
        "tcp://example.org:80",
        "inproc://x",
        "",
        "ipc://{folder}/../x",
    ],
)
def test_an_endpoint_outside_the_pipeline_is_not_connected_to(
    endpoint: str, context: zmq.Context[Any], ipc: Transport, hub: Identity
) -> None:
    with pytest.raises(EndpointError):
        Outlet(context, ipc, hub, SendPort(endpoint.format(folder=ipc.folder), new_id()))


def test_unsent_messages_do_not_keep_a_process_from_ending(ipc: Transport) -> None:
    program = (
        "import sys, zmq; from pathlib import Path; from susurrus.protocol import *\n"
        "context, transport = zmq.Context(), Transport('ipc', Path(sys.argv[1]))\n"
        "line = HubLine(context, transport, Identity.new('a'), f'ipc://{sys.argv[1]}/nobody')\n"
        "assert line.send(Ping(1))\n"
        "line.close(); context.term()\n"
    )
    subprocess.run([sys.executable, "-c", program, str(ipc.folder)], check=True, timeout=WAIT)


def test_a_closing_publisher_may_linger_for_its_last_words(
    context: zmq.Context[Any],
    transport: Transport,
    hub: Identity,
    actor: Identity,
    samples: dict[str, Message],
) -> None:
    theirs = zmq.Context()
    publisher = Publisher(theirs, transport, hub)
    with Subscriber(context, transport, actor, publisher.endpoint) as subscriber:
        subscriptions(publisher, 1)
        publisher.publish(samples["stopped"])
        publisher.close(linger=WAIT)
        theirs.term()
        received = subscriber.receive(WAIT)
    assert received is not None
    assert received.message == samples["stopped"]


def test_importing_the_protocol_loads_neither_logging_nor_models() -> None:
    program = (
        "import sys, susurrus.protocol\n"
        "heavy = {'structlog', 'rich', 'onnxruntime', 'susurrus.models', 'asyncio', 'multiprocessing', 'numpy'}\n"
        "sys.exit(', '.join(sorted(heavy & sys.modules.keys())) or None)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=WAIT)
