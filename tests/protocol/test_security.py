"""Who gets in from another machine, with which key, and what the log says of those who do not."""

from __future__ import annotations

import logging
import os
import socket as sockets
import stat
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import zmq

from susurrus.protocol import (
    Connection,
    ConnectionFileError,
    EndpointError,
    Error,
    HubLine,
    HubPort,
    Identity,
    Pong,
    ProtocolError,
    Publisher,
    RuntimeFolder,
    Security,
    Subscriber,
    Transport,
    codec,
    decode,
    encode,
    keys,
    new_id,
    runtime,
)
from susurrus.protocol.errors import KeyFileError
from susurrus.protocol.listen import Door, Listener
from susurrus.protocol.monitor import Refusals
from susurrus.protocol.ports import BadFrames

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from susurrus.protocol import Message

WAIT = 50  # seconds; a limit for failures
NOT_KEY = "its key is not authorized"


class House:
    """A hub's two ports with a door to the network; `until` is its loop."""

    def __init__(self, resources: ExitStack, folder: Path, scheme: str = "ipc") -> None:
        self.folder = folder / "keys"
        keys.make_server_key(self.folder)
        self.context: zmq.Context[Any] = zmq.Context()
        resources.callback(self.context.term)
        runtime_folder = resources.enter_context(RuntimeFolder.create())
        self.transport = Transport.choose(runtime_folder.path, scheme)
        hub = Identity.new("hub")
        self.port = resources.enter_context(HubPort(self.context, self.transport, hub))
        self.publisher = resources.enter_context(Publisher(self.context, self.transport, hub))
        self.listener = Listener.parse("tcp://127.0.0.1:0", self.folder)
        self.door = Door(self.context, self.listener, self.port, self.publisher)
        resources.callback(self.door.close)
        self.outside: zmq.Context[Any] = zmq.Context()  # another machine has another one
        resources.callback(self.outside.term)
        self._resources = resources

    def client(self, path: Path, *, known: bool = True, server: str = "") -> Connection:
        """A client's connection file, read back."""
        public = keys.make_client(path, self.door.endpoint, server or keys.to_hex(self.listener.security.public)).public
        if known:
            keys.authorize(self.folder, keys.to_hex(public), path.stem)
        return Connection.read(path)

    def line(self, connection: Connection) -> HubLine:
        """A line that speaks at once."""
        line = HubLine(self.outside, connection.transport, Identity.new("client"), connection.hub)
        self._resources.enter_context(line)
        line.send(Pong(7))
        return line

    def until(self, ended: Callable[[], Any]) -> Any:
        """Answer at the door until there is what is waited for; what clients say meanwhile is left where it is."""
        poller = zmq.Poller()
        for socket in self.door.sockets:
            poller.register(socket, zmq.POLLIN)
        deadline = time.monotonic() + WAIT
        while time.monotonic() < deadline:
            self.door.turn()
            if found := ended():
                return found
            poller.poll(20)
        pytest.fail("it did not come")

    def refused(self, records: pytest.LogCaptureFixture, reason: str) -> Any:
        """The log record of the next refusal for that reason."""
        return self.until(
            lambda: next((record for record in records.records if getattr(record, "reason", "") == reason), None)
        )


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    """A hub that listens."""
    with ExitStack() as resources:
        yield House(resources, tmp_path)


# --- who gets in ------------------------------------------------------------------------------------------------


def test_an_authorized_client_speaks_listens_and_is_known_by_name(house: House, tmp_path: Path) -> None:
    connection = house.client(tmp_path / "laptop.json")
    with Subscriber(house.outside, connection.transport, Identity.new("client"), connection.events) as subscriber:
        assert house.until(house.publisher.poll_subscriptions) == [b""]
        house.publisher.publish(Error("x", "said to all"))
        assert house.until(subscriber.receive).message == Error("x", "said to all")
    line = house.line(connection)
    peer, received = house.until(house.port.receive)
    assert (peer, received.message, received.client) == (line.identity.instance, Pong(7), "laptop")
    assert house.port.send(peer, Pong(8))
    assert house.until(line.receive).message == Pong(8)
    assert line.trouble() == ""


def test_the_ipc_endpoint_stays_guarded_by_its_folder_alone(house: House) -> None:
    with HubLine(house.context, house.transport, Identity.new("encoder"), house.port.endpoint) as line:
        line.send(Pong(1))
        _, received = house.until(house.port.receive)
    assert (received.message, received.client) == (Pong(1), "")
    assert house.door.refusals.count == 0


def test_a_local_tcp_pipeline_can_listen_too_and_its_own_actors_need_not_be_authorized(tmp_path: Path) -> None:
    with ExitStack() as resources:
        house = House(resources, tmp_path, "tcp")
        with HubLine(house.context, house.transport, Identity.new("encoder"), house.port.endpoint) as line:
            line.send(Pong(1))
            assert house.until(house.port.receive)[1].client == ""
        house.line(house.client(tmp_path / "laptop.json"))
        assert house.until(house.port.receive)[1].client == "laptop"
        thief = Transport("tcp", house.transport.folder, house.transport.security)  # the loopback's key at the door
        with HubLine(house.context, thief, Identity.new("thief"), house.door.endpoint) as line:
            line.send(Pong(2))
            house.until(lambda: house.door.refusals.count)
            assert house.port.receive() is None


def test_a_client_whose_key_is_not_in_the_list_is_refused_and_told_so(
    house: House, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    line = house.line(house.client(tmp_path / "stranger.json", known=False))
    record = house.refused(caplog, NOT_KEY)
    assert (record.levelname, record.address, record.count) == ("WARNING", "127.0.0.1", 1)
    assert "authorized" in house.until(line.trouble)
    assert house.port.receive() is None


def test_a_revoked_client_is_not_let_in_again(house: House, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    connection = house.client(tmp_path / "laptop.json")
    house.line(connection)
    house.until(house.port.receive)
    keys.revoke(house.folder, "laptop")
    house.line(connection)
    house.refused(caplog, NOT_KEY)
    assert house.port.receive() is None


def test_nobody_gets_in_while_the_list_is_open_to_others(
    house: House, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    connection = house.client(tmp_path / "laptop.json")
    (house.folder / "authorized").chmod(0o666)
    house.line(connection)
    house.refused(caplog, NOT_KEY)
    assert any("chmod 600" in getattr(record, "reason", "") for record in caplog.records)
    assert house.port.receive() is None


def test_a_client_with_another_servers_key_is_refused(
    house: House, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    other = keys.to_hex(Security.generate().public)
    line = house.line(house.client(tmp_path / "laptop.json", server=other))
    house.refused(caplog, "it does not know the server's key")
    assert "its key is not the one" in house.until(line.trouble)
    assert house.port.receive() is None


@pytest.mark.parametrize("mechanism", ["NULL", "PLAIN"])
@pytest.mark.parametrize("place", ["lines", "events"])
def test_a_peer_without_a_key_is_refused(
    mechanism: str, place: str, house: House, caplog: pytest.LogCaptureFixture
) -> None:
    host, port = house.door.endpoint.rsplit(":", 1)
    with house.outside.socket(zmq.DEALER if place == "lines" else zmq.SUB) as thief:
        thief.linger = 0
        if mechanism == "PLAIN":
            thief.plain_username, thief.plain_password = b"root", b"root"
        if place == "events":
            thief.subscribe(b"")
        thief.connect(f"{host}:{int(port) + (place == 'events')}")
        if place == "lines":
            thief.routing_id = new_id()
            thief.send_multipart(encode(Pong(1), sender="thief", instance=new_id()))
        house.until(lambda: house.door.refusals.count)
        assert "no key" in caplog.records[0].reason  # type: ignore[attr-defined]
        house.publisher.publish(Error("x", "a secret"))
        assert not thief.poll(0)
    assert house.port.receive() is None
    assert house.publisher.poll_subscriptions() == []


@pytest.mark.parametrize(
    "words",
    [b"GET / HTTP/1.1\r\n\r\n", b"\x01\x00\x03\x00hi", b"\xff" + bytes(7) + b"\x01\x7f\x01\x05\x00\x00", b"\0" * 200],
    ids=["http", "ZMTP 1", "ZMTP 2", "zeros"],
)
def test_what_speaks_no_zmtp_3_is_hung_up_on(words: bytes, house: House) -> None:
    """ZeroMQ speaks older versions of its protocol, which have no security, with those who ask for them."""
    host, port = house.door.endpoint.removeprefix("tcp://").split(":")
    with sockets.create_connection((host, int(port)), WAIT) as stranger:
        stranger.sendall(words)
        answer = b""
        try:
            while data := stranger.recv(4096):
                answer += data
        except ConnectionResetError:
            pass
    assert len(answer) <= 64, "a greeting at most"
    assert house.port.receive() is None


def test_without_the_one_who_answers_nobody_gets_in(tmp_path: Path) -> None:
    with ExitStack() as resources:
        house = House(resources, tmp_path)
        connection = house.client(tmp_path / "laptop.json")
        house.door.close()
        line = house.line(connection)
        for _ in range(WAIT * 10):
            if line.trouble():
                break
            line.socket.poll(100)
        assert line.trouble()
        assert house.port.receive() is None


def test_the_log_counts_a_client_that_tries_again_and_again_but_is_not_filled_by_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    refusals = Refusals()
    for _ in range(1000):
        refusals.note("192.0.2.1", NOT_KEY)
    refusals.note("192.0.2.2", NOT_KEY)
    told = [(record.address, record.count) for record in caplog.records]  # type: ignore[attr-defined]
    assert told == [("192.0.2.1", 2**power) for power in range(10)] + [("192.0.2.2", 1)]
    for number in range(5000):
        refusals.note(str(number), NOT_KEY)
    assert refusals.count == 6001
    assert len(refusals._counts) <= 1024


def test_no_key_is_in_the_log(house: House, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    known, unknown = house.client(tmp_path / "laptop.json"), house.client(tmp_path / "stranger.json", known=False)
    house.line(unknown)
    house.refused(caplog, NOT_KEY)
    house.line(known)
    house.until(house.port.receive)
    text = " ".join(str(vars(record)) for record in caplog.records)
    for security in (house.listener.security, known.transport.client, unknown.transport.client):
        for key in (security.public, security.secret):
            assert key.decode() not in text
            assert keys.to_hex(key) not in text


def test_a_remote_frame_over_64_kib_costs_its_sender_the_connection(house: House, tmp_path: Path) -> None:
    connection = house.client(tmp_path / "laptop.json")
    line = house.line(connection)
    house.until(house.port.receive)
    line.socket.send_multipart([codec.TAG, b"", bytes(codec.MAX_BODY_BYTES + 1)])
    house.line(connection)
    assert house.until(house.port.receive)[1].message == Pong(7)


# --- where it listens -------------------------------------------------------------------------------------------


def test_the_events_are_at_the_next_port(house: House) -> None:
    bound = house.publisher.socket.getsockopt_string(zmq.LAST_ENDPOINT)
    assert int(bound.rpartition(":")[2]) == int(house.door.endpoint.rpartition(":")[2]) + 1


def test_a_port_that_is_taken_is_named_and_nothing_stays_behind(house: House, tmp_path: Path) -> None:
    taken = Listener.parse(house.door.endpoint, house.folder)
    with ExitStack() as resources:
        context: zmq.Context[Any] = zmq.Context()
        resources.callback(context.term)  # hangs if a socket was left
        transport = Transport.choose(resources.enter_context(RuntimeFolder.create()).path)
        port = resources.enter_context(HubPort(context, transport, Identity.new("hub")))
        events = resources.enter_context(Publisher(context, transport, Identity.new("hub")))
        with pytest.raises(EndpointError, match="in use"):
            Door(context, taken, port, events)
    assert list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "endpoint",
    [
        "",
        "tcp://",
        "tcp://1.2.3.4",
        "1.2.3.4:5",
        "udp://1.2.3.4:5",
        "tcp://1.2.3.4:70000",
        "tcp://1.2.3.4:65535",  # there is no next port
        "tcp://1.2.3.4:5;6.7.8.9:1",
        "tcp://a b:1",
        "tcp://-x:1",
        "tcp://[zz]:1",
        "tcp://1.2.3.4:5\n",
        "ipc:///tmp/x",
    ],
)
def test_what_is_no_endpoint_is_refused(endpoint: str, tmp_path: Path) -> None:
    keys.make_server_key(tmp_path)
    with pytest.raises(EndpointError) as caught:
        Listener.parse(endpoint, tmp_path)
    assert "\n" not in str(caught.value)


def test_without_a_server_key_nothing_listens_and_the_command_is_named(tmp_path: Path) -> None:
    with pytest.raises(KeyFileError, match=r"python -m susurrus\.protocol\.keys server"):
        Listener.parse("tcp://127.0.0.1:0", tmp_path)


# --- keys -------------------------------------------------------------------------------------------------------


def test_keys_are_their_owners_alone_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        security = keys.make_server_key(tmp_path / "keys")
        keys.authorize(tmp_path / "keys", keys.to_hex(Security.generate().public), "laptop")
        keys.make_client(tmp_path / "c.json", "tcp://example.org:7000", keys.to_hex(security.public))
    finally:
        os.umask(before)
    made = [tmp_path / "keys" / "server.key", tmp_path / "keys" / "authorized", tmp_path / "c.json"]
    assert [stat.S_IMODE(path.stat().st_mode) for path in made] == [0o600] * 3
    assert stat.S_IMODE((tmp_path / "keys").stat().st_mode) == 0o700


def test_a_key_is_never_overwritten(tmp_path: Path) -> None:
    security = keys.make_server_key(tmp_path)
    with pytest.raises(KeyFileError, match="exists already"):
        keys.make_server_key(tmp_path)
    assert keys.read_server_key(tmp_path) == security
    path = tmp_path / "c.json"
    keys.make_client(path, "tcp://h:7000", keys.to_hex(security.public))
    whole = path.read_bytes()
    with pytest.raises(ConnectionFileError, match="exists already"):
        keys.make_client(path, "tcp://h:7000", keys.to_hex(security.public))
    assert path.read_bytes() == whole


@pytest.mark.parametrize("spoil", ["mode", "link", "half", "other", "text", "hex"])
def test_a_server_key_that_is_not_as_it_should_be_is_refused(spoil: str, tmp_path: Path) -> None:
    keys.make_server_key(tmp_path)
    path = tmp_path / "server.key"
    whole = path.read_text()
    if spoil == "mode":
        path.chmod(0o640)
    elif spoil == "link":
        path.rename(tmp_path / "elsewhere")
        path.symlink_to(tmp_path / "elsewhere")
    else:
        other = keys.to_hex(Security.generate().public)
        start = whole.index('"public": "') + len('"public": "')
        texts = {"half": whole[:50], "other": whole[:start] + other + whole[start + 64 :], "text": "[1]"}
        path.write_text(texts.get(spoil, whole.replace(whole[start : start + 64], "x" * 64)))
    with pytest.raises(KeyFileError) as caught:
        keys.read_server_key(tmp_path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("line", ["x" * 64 + " a", "ab" * 32, "ab" * 32 + " a b", "ab" * 32 + " \x1b[2J", "\xff"])
def test_a_list_with_a_line_that_is_none_lets_nobody_in(line: str, tmp_path: Path) -> None:
    keys.authorize(tmp_path, "ab" * 32, "good")
    path = tmp_path / "authorized"
    path.write_text(path.read_text() + line + "\n", encoding="latin-1")
    with pytest.raises(KeyFileError, match="line 2"):
        keys.read_authorized(tmp_path)


def test_clients_are_added_and_taken_away_by_name(tmp_path: Path) -> None:
    for name in ("a", "b"):
        keys.authorize(tmp_path, keys.to_hex(Security.generate().public), name)
    with pytest.raises(KeyFileError, match="revoke it first"):
        keys.authorize(tmp_path, keys.to_hex(Security.generate().public), "a")
    keys.revoke(tmp_path, "a")
    assert list(keys.read_authorized(tmp_path).values()) == ["b"]
    with pytest.raises(KeyFileError, match="has no a"):
        keys.revoke(tmp_path, "a")
    for bad in ("", "a b", "../a", "\x1b", "a" * 33):
        with pytest.raises(KeyFileError):
            keys.authorize(tmp_path, keys.to_hex(Security.generate().public), bad)
    with pytest.raises(KeyFileError, match="64 hexadecimal digits"):
        keys.authorize(tmp_path, "abc", "c")


def test_the_command_makes_what_the_two_sides_need(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str, code: int = 0) -> str:
        assert keys.main(["--folder", str(tmp_path / "k"), *arguments]) == code
        out, err = capsys.readouterr()
        assert err.count("\n") == 1
        assert err.startswith("error: ") == (code != 0)
        return out.strip()

    server = run("server")
    assert run("server") == server, "asking again shows the same key"
    assert keys.from_hex(server) == keys.read_server_key(tmp_path / "k").public
    line = run("client", "laptop", "--to", "tcp://example.org:7000", "--server", server).split()
    connection = Connection.read(tmp_path / "laptop.json")
    assert (connection.hub, connection.events) == ("tcp://example.org:7000", "tcp://example.org:7001")
    assert line == [keys.to_hex(connection.transport.client.public), "laptop"]
    run("authorize", *line)
    assert list(keys.read_authorized(tmp_path / "k").values()) == ["laptop"]
    run("revoke", "laptop")
    assert keys.read_authorized(tmp_path / "k") == {}
    assert run("revoke", "laptop", code=2) == ""
    assert run("client", "x", "--to", "tcp://h:1;tcp://g:2", "--server", server, code=2) == ""
    assert run("client", "x", "--to", "tcp://h:1", "--server", "abc", code=2) == ""


# --- the folder and its file ------------------------------------------------------------------------------------


def test_a_folder_that_everybody_may_rename_or_that_is_below_one_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr(runtime, "SOCKET_PATH_LIMIT", 1000)
    inner = tmp_path / "open" / "mine"
    inner.mkdir(parents=True, mode=0o700)
    assert runtime.unusable(inner) is None
    inner.parent.chmod(0o777)
    assert runtime.unusable(inner) == "others could replace a folder above it"
    inner.parent.chmod(0o1777)
    assert runtime.unusable(inner) is None


def test_a_link_to_a_folder_is_followed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = tmp_path / "mine"
    mine.mkdir(mode=0o700)
    link = tmp_path / "link"
    link.symlink_to(mine)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(link))
    monkeypatch.setattr(runtime, "SOCKET_PATH_LIMIT", 1000)
    with RuntimeFolder.create() as folder:
        assert folder.path.parent == mine, "the link may point elsewhere by the time a socket is bound"


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs to become another user")
def test_another_user_cannot_connect_to_a_socket_in_the_folder(context: zmq.Context[Any], hub: Identity) -> None:
    become = "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
    imports, knock = "import os, socket, sys\n", "socket.socket(socket.AF_UNIX).connect(sys.argv[1])"
    with RuntimeFolder.create() as folder, HubPort(context, Transport("ipc", folder.path), hub) as port:
        path = port.endpoint.removeprefix("ipc://")
        refused = subprocess.run(
            [sys.executable, "-c", imports + become + knock, path], capture_output=True, check=False
        )
        assert b"PermissionError" in refused.stderr
        subprocess.run([sys.executable, "-c", imports + knock, path], check=True)  # its owner can


# --- frames -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("container", [b"\x80", b"\x90", b"\x81\xa0\xc0"], ids=["maps", "lists", "small maps"])
def test_a_body_of_very_many_containers_is_refused_before_they_are_made(
    container: bytes, frames_of: Callable[..., list[Any]], samples: dict[str, Message]
) -> None:
    count = (codec.MAX_TEXT_BODY_BYTES - 20) // len(container)
    body = b"\x81\xa1x\xdd" + count.to_bytes(4, "big") + container * count
    with pytest.raises(ProtocolError) as caught:
        decode([*frames_of(samples["partial"])[:2], body])
    assert "ValueError" in str(caught.value), "not because a field is missing, which is seen afterwards"


def test_what_a_stranger_calls_itself_cannot_drive_the_terminal_that_shows_the_log(
    frames_of: Callable[..., list[Any]], samples: dict[str, Message], caplog: pytest.LogCaptureFixture
) -> None:
    name = "\x1b]0;owned\x07\n2026 [info] all is well"
    with pytest.raises(ProtocolError) as caught:
        decode(frames_of(samples["ping"], header={"sender": name, "type": name}))
    BadFrames().note(caught.value)
    (record,) = caplog.records
    for text in (str(record.sender), str(record.reason)):  # type: ignore[attr-defined]
        assert text.isprintable()
        assert text.isascii()
