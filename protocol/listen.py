"""A pipeline's door to the network: tcp beside ipc, for clients on other machines whose keys are known.

The hub's two sockets bind a second time, on two neighbouring ports: PORT for its lines, PORT + 1 for its events. What
libzmq is told of a socket holds for what it binds afterwards, so the ipc endpoints stay as they are, guarded by their
folder, while the tcp endpoints take CURVE and nothing else. A client must know the server's public key, or its
handshake cannot be read, and its own key must be in the list of those that are let in; libzmq asks that of us by ZAP
(ZeroMQ RFC 27), a question that the hub's loop answers. If nobody answers, nobody is let in.

Whoever is refused costs a log line, which says where it came from, what was wrong and how often that was so.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import zmq
from zmq.auth.base import Authenticator
from zmq.utils import z85

from susurrus.protocol.codec import MAX_BODY_BYTES
from susurrus.protocol.errors import EndpointError, KeyFileError
from susurrus.protocol.keys import keys_folder, read_authorized, read_server_key
from susurrus.protocol.monitor import Handshakes, Refusals
from susurrus.protocol.records import record
from susurrus.protocol.transport import Security, parse_tcp, watch_over_network

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from susurrus.protocol.lines import HubPort
    from susurrus.protocol.publishing import Publisher

ZAP_DOMAIN = b"susurrus-remote"
LINE_HWM = 32
"""Answers queued for a client that does not read; each may be a snapshot of 1 MiB."""
_PAIRS_TRIED = 20
log = logging.getLogger(__name__)


@record
class Listener:
    """Where a pipeline is to be reached from other machines, and by whom."""

    host: str
    """Address of an interface of this machine; `*` for all of them."""
    port: int
    """Of the hub's lines, its events are at the next one; 0 takes two that are free."""
    security: Security
    """The key pair of this machine."""
    folder: Path
    """Where the list of the clients that are let in is."""

    @classmethod
    def parse(cls, endpoint: str, folder: Path | None = None) -> Self:
        """What `--listen tcp://HOST:PORT` means.

        Args:
            endpoint: Host and port; `*` or `0.0.0.0` is every interface.
            folder: Of the keys; None takes the user's own.

        Raises:
            EndpointError: The endpoint is none.
            KeyFileError: The server's key or the list of clients is missing, damaged, foreign or open to others.
        """
        everywhere = endpoint.startswith("tcp://*:")
        host, port = parse_tcp(endpoint.replace("*", "0.0.0.0", 1) if everywhere else endpoint)  # noqa: S104 - asked for
        if port == 65535:
            raise EndpointError(f"{endpoint!r}: the events need the port after it; give a smaller one")
        folder = folder or keys_folder()
        read_authorized(folder)
        return cls(host, port, read_server_key(folder), folder)

    def open(self, context: zmq.Context[Any], lines: HubPort, events: Publisher) -> Door:
        """Bind there as well; see `Door`."""
        return Door(context, self, lines, events)


class Door:
    """The tcp endpoints of a hub, and the answers to who may come in. Belongs to the thread of the hub's sockets."""

    def __init__(self, context: zmq.Context[Any], listener: Listener, lines: HubPort, events: Publisher) -> None:
        """Bind both sockets once more.

        Args:
            context: Of the two ports.
            listener: Where, and with which key.
            lines: The hub's lines.
            events: The hub's events.

        Raises:
            EndpointError: A port is taken, or the system refuses.
        """
        self.refusals = Refusals()
        self._zap = _Authenticator(context, listener.folder, self.refusals)
        self._watches = [Handshakes(port.socket, self.refusals) for port in (lines, events)]
        try:
            self._zap.start()
            for port in (lines, events):
                _guard(port.socket, listener)
            lines.socket.sndhwm = LINE_HWM
            self.endpoint = _bind_pair(listener, lines.socket, events.socket)
        except BaseException:
            self.close()
            raise
        lines.has_remote = True
        log.info("listening", extra={"endpoint": self.endpoint})

    @property
    def sockets(self) -> list[zmq.Socket[Any]]:
        """For the hub's poller; `turn` reads them."""
        return [self._zap.zap_socket, *(watch.monitor.socket for watch in self._watches)]

    def turn(self) -> None:
        """Answer and log what there is. Nothing that comes over the network can make it raise."""
        self._zap.answer_all()
        for watch in self._watches:
            watch.note_all()

    def close(self) -> None:
        """Let nobody in any more. Call it before the two ports are closed. Idempotent."""
        for watch in self._watches:
            watch.monitor.close()
        self._zap.stop()


def _guard(socket: zmq.Socket[Any], listener: Listener) -> None:
    """What holds for everything that the socket binds from now on."""
    socket.curve_server = True
    socket.curve_secretkey = listener.security.secret
    socket.zap_domain = ZAP_DOMAIN
    socket.zap_enforce_domain = True  # without an answer the connection fails
    socket.maxmsgsize = MAX_BODY_BYTES  # no client has more to say
    socket.ipv6 = listener.host.startswith("[")
    watch_over_network(socket)


def _bind_pair(listener: Listener, lines: zmq.Socket[Any], events: zmq.Socket[Any]) -> str:
    """Bind to two neighbouring ports and return the first one's endpoint."""
    for _ in range(1 if listener.port else _PAIRS_TRIED):
        first = _bind(lines, f"tcp://{listener.host}:{listener.port or '*'}")
        host, port = parse_tcp(first)
        try:
            _bind(events, f"tcp://{host}:{port + 1}")
        except EndpointError:
            lines.unbind(first)
            if listener.port:
                raise
        else:
            return first
    raise EndpointError(f"tcp://{listener.host}: no two free ports beside each other")


def _bind(socket: zmq.Socket[Any], address: str) -> str:
    try:
        socket.bind(address)
    except zmq.ZMQError as error:
        raise EndpointError(f"{address}: cannot be bound ({error.strerror})") from None
    return socket.getsockopt_string(zmq.LAST_ENDPOINT)


class _Authenticator(Authenticator):
    """Answers ZAP's questions out of the list of clients, which is read for each: a revoked one stays out at once."""

    def __init__(self, context: zmq.Context[Any], folder: Path, refusals: Refusals) -> None:
        silent = logging.Logger(__name__)  # noqa: LOG001 - out of everybody's reach: pyzmq logs keys
        silent.disabled = True
        super().__init__(context, log=silent)
        self._folder = folder
        self._refusals = refusals
        self._address = ""
        self._name = ""
        self.configure_curve_callback(ZAP_DOMAIN.decode(), self)

    def answer_all(self) -> None:
        while True:
            try:
                question = self.zap_socket.recv_multipart(zmq.DONTWAIT)
            except zmq.Again:
                return
            self._address = question[3].decode(errors="replace")
            _run(self.handle_zap_message(question))

    def callback(self, _domain: str, key: bytes) -> bool:
        """Whether a client (its public key, Z85) is let in."""
        try:
            self._name = read_authorized(self._folder).get(z85.decode(key), "")
        except KeyFileError as error:
            log.error("nobody is let in", extra={"reason": str(error)})  # noqa: TRY400 - no bug of ours
            self._name = ""
        if not self._name:
            self._refusals.note(self._address, "its key is not authorized")
        return bool(self._name)

    def curve_user_id(self, client_public_key: bytes) -> str:  # noqa: ARG002 - pyzmq's signature
        """The name that the client's messages carry; asked right after the key was found."""
        return self._name


def _run(coroutine: Coroutine[Any, Any, None]) -> None:
    """Run what awaits nothing: pyzmq's answers are coroutines in name only, since our callback is none."""
    with suppress(StopIteration):
        coroutine.send(None)
