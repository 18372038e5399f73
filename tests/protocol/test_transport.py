"""tcp is CURVE or nothing: without the key nothing gets through, and the wire shows no plain text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import zmq

from susurrus.protocol import (
    EndpointError,
    Error,
    HubLine,
    HubPort,
    Identity,
    Pong,
    Publisher,
    Security,
    Subscriber,
    Transport,
    encode,
    new_id,
)
from tests.eavesdropper import Eavesdropper

WAIT = 50  # seconds; a limit for failures
REFUSED = zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_AUTH
SECRET = "the patient complains of headaches"  # noqa: S105  a transcript, not a password


@pytest.fixture
def tcp(runtime_folder: Path) -> Transport:
    """A tcp transport with keys."""
    return Transport.choose(runtime_folder, "tcp")


@pytest.mark.parametrize("keys", ["none", "wrong server key", "a public key for a secret one"])
def test_without_the_right_key_nothing_gets_through(
    keys: str, context: zmq.Context[Any], tcp: Transport, hub: Identity, actor: Identity
) -> None:
    with HubPort(context, tcp, hub) as port:
        monitor = port.socket.get_monitor_socket(REFUSED)
        thief = context.socket(zmq.DEALER)
        thief.linger, thief.routing_id = 0, new_id()
        if keys != "none":
            public, secret = zmq.curve_keypair()
            thief.curve_publickey, thief.curve_secretkey = public, secret
            thief.curve_serverkey = public if keys == "wrong server key" else zmq.curve_public(secret)
        thief.connect(port.endpoint)
        thief.send_multipart(encode(Pong(1), sender="thief", instance=thief.routing_id))
        assert monitor.poll(WAIT * 1000), "the handshake must fail"
        with HubLine(context, tcp, actor, port.endpoint) as line:  # while the right key is let in
            line.send(Pong(2))
            found = port.receive(WAIT)
        assert found is not None
        assert found[1].message == Pong(2)
        assert port.receive() is None
        thief.close()
        port.socket.disable_monitor()
        monitor.close()


def test_a_subscriber_without_the_key_hears_nothing(
    context: zmq.Context[Any], tcp: Transport, hub: Identity, actor: Identity
) -> None:
    with Publisher(context, tcp, hub) as publisher:
        monitor = publisher.socket.get_monitor_socket(REFUSED)
        thief = context.socket(zmq.SUB)
        thief.linger = 0
        thief.subscribe(b"")
        thief.connect(publisher.endpoint)
        assert monitor.poll(WAIT * 1000)
        with Subscriber(context, tcp, actor, publisher.endpoint) as subscriber:
            assert publisher.socket.poll(WAIT * 1000)
            assert publisher.poll_subscriptions() == [b""]
            publisher.publish(Error("x", SECRET))
            assert subscriber.receive(WAIT) is not None
        assert not thief.poll(0)
        thief.close()
        publisher.socket.disable_monitor()
        monitor.close()


def test_an_eavesdropper_sees_no_plain_text(
    context: zmq.Context[Any], tcp: Transport, hub: Identity, actor: Identity
) -> None:
    with HubPort(context, tcp, hub) as port, Eavesdropper(port.endpoint) as ear:
        with HubLine(context, tcp, actor, ear.endpoint) as line:
            line.send(Error("x", SECRET))
            assert port.receive(WAIT) is not None
            port.send(actor.instance, Error("x", SECRET))
            assert line.receive(WAIT) is not None
        heard = bytes(ear.heard)
    assert b"CURVE" in heard, "the proxy must have been in between"
    for hidden in (
        SECRET.encode(),
        b"SUSU01",
        b"sender",
        actor.instance,
        tcp.security.public,
        tcp.security.secret,
    ):
        assert hidden not in heard


def test_the_eavesdropper_would_see_plain_text(context: zmq.Context[Any]) -> None:
    """The test above proves something only if this proxy hears what is not encrypted."""
    with context.socket(zmq.PULL) as inbox:
        inbox.bind("tcp://127.0.0.1:*")
        with Eavesdropper(inbox.getsockopt_string(zmq.LAST_ENDPOINT)) as ear:
            with context.socket(zmq.PUSH) as out:
                out.connect(ear.endpoint)
                out.send_string(SECRET)
                assert inbox.recv_string() == SECRET
            assert SECRET.encode() in ear.heard


def test_tcp_is_bound_to_the_loopback_only(context: zmq.Context[Any], tcp: Transport, hub: Identity) -> None:
    with HubPort(context, tcp, hub) as port:
        assert port.endpoint.startswith("tcp://127.0.0.1:")


def test_tcp_without_keys_neither_binds_nor_connects(
    context: zmq.Context[Any], runtime_folder: Path, tcp: Transport, hub: Identity
) -> None:
    bare = Transport("tcp", runtime_folder)
    client = Transport("tcp", runtime_folder, Security(tcp.security.public))
    for transport in (bare, client):
        with pytest.raises(EndpointError, match="nothing is bound"):
            HubPort(context, transport, hub)
    with pytest.raises(EndpointError, match="nothing is connected"):
        HubLine(context, bare, hub, "tcp://127.0.0.1:9")


def test_a_client_needs_only_the_public_key(
    context: zmq.Context[Any], tcp: Transport, hub: Identity, actor: Identity
) -> None:
    client = Transport("tcp", tcp.folder, Security(tcp.security.public))
    with HubPort(context, tcp, hub) as port, HubLine(context, client, actor, port.endpoint) as line:
        line.send(Pong(1))
        assert port.receive(WAIT) is not None


@pytest.mark.parametrize(
    "endpoint",
    [
        "tcp://192.0.2.1:5555",
        "tcp://0.0.0.0:5555",
        "ipc:///tmp/x",
        "tcp://127.0.0.1:5555;192.0.2.1:5555",  # libzmq takes what is before the semicolon for the source address
        "tcp://127.0.0.1:5555@192.0.2.1",
        "tcp://127.0.0.1:",
        "tcp://127.0.0.1:5555\n",
    ],
)
def test_tcp_connects_to_the_loopback_only(
    endpoint: str, context: zmq.Context[Any], tcp: Transport, hub: Identity
) -> None:
    with pytest.raises(EndpointError):
        HubLine(context, tcp, hub, endpoint)


@pytest.mark.parametrize("name", ["../x/hub", "a/b", "", ".", "..", "hub\0", "hub\n", "é", "tcp://192.0.2.1:1"])
def test_ipc_connects_to_sockets_in_its_own_folder_only(
    name: str, context: zmq.Context[Any], runtime_folder: Path, hub: Identity
) -> None:
    ipc = Transport("ipc", runtime_folder)
    for endpoint in (f"ipc://{runtime_folder}/{name}", f"ipc:///tmp/{name}", name):
        with pytest.raises(EndpointError):
            HubLine(context, ipc, hub, endpoint)


def test_a_remote_client_connects_by_tcp_with_both_keys_and_binds_nothing(
    context: zmq.Context[Any], hub: Identity
) -> None:
    server, own = Security.generate(), Security.generate()
    good = Transport("remote", Path(), Security(server.public), own)
    with pytest.raises(EndpointError, match="binds nothing"):
        HubPort(context, good, hub)
    for endpoint in ("ipc:///tmp/x", "inproc://x", "tcp://h:1;tcp://g:2", "tcp://h:99999"):
        with pytest.raises(EndpointError):
            HubLine(context, good, hub, endpoint)
    for keyless in (Transport("remote", Path(), Security(), own), Transport("remote", Path(), server)):
        with pytest.raises(EndpointError, match="nothing is connected"):
            HubLine(context, keyless, hub, "tcp://127.0.0.1:9")


def test_the_environment_chooses_the_transport(monkeypatch: pytest.MonkeyPatch, runtime_folder: Path) -> None:
    monkeypatch.delenv("SUSURRUS_TRANSPORT", raising=False)
    assert Transport.choose(runtime_folder).scheme == ("ipc" if zmq.has("ipc") else "tcp")
    monkeypatch.setenv("SUSURRUS_TRANSPORT", "tcp")
    chosen = Transport.choose(runtime_folder)
    assert chosen.scheme == "tcp"
    assert chosen.security != Transport.choose(runtime_folder).security, "new keys for every pipeline"
    monkeypatch.setenv("SUSURRUS_TRANSPORT", "pigeon")
    with pytest.raises(EndpointError, match="'pigeon': use ipc or tcp"):
        Transport.choose(runtime_folder)


def test_without_ipc_the_loopback_is_taken(monkeypatch: pytest.MonkeyPatch, runtime_folder: Path) -> None:
    monkeypatch.delenv("SUSURRUS_TRANSPORT", raising=False)
    monkeypatch.setattr(zmq, "has", lambda capability: capability != "ipc")
    assert Transport.choose(runtime_folder).scheme == "tcp"
    with pytest.raises(EndpointError, match="no ipc"):
        Transport.choose(runtime_folder, "ipc")


def test_keys_are_not_shown(tcp: Transport) -> None:
    assert tcp.security.public.decode() not in repr(tcp)
    assert tcp.security.secret.decode() not in repr(tcp)
