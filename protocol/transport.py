"""Where sockets bind and connect, and how they are guarded: ipc in a private folder, or tcp with CURVE.

ipc is guarded by the folder's mode: whoever cannot enter it cannot connect. A tcp port can be reached by
every user of the machine, so there every bound socket is a CURVE server with the pipeline's one server key,
and a client gets through only if it knows that server's public key. The key is told in the connection file
(mode 0600) and nowhere else: CurveZMQ never sends it. A client on another machine has a key of its own, which
the pipeline must know as well (`listen.py`). There is no tcp without CURVE here, and no ports are picked in
advance (bind first, then tell the endpoint).
"""

from __future__ import annotations

import os
import re
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self, cast

import zmq

from susurrus.protocol.errors import EndpointError
from susurrus.protocol.records import record

if TYPE_CHECKING:
    from typing import Any

Scheme = Literal["ipc", "tcp", "remote"]
"""`tcp` is the loopback, between the processes of this machine; `remote` a client's way to another one."""
TRANSPORT_VARIABLE = "SUSURRUS_TRANSPORT"
"""Environment variable: `ipc` or `tcp`."""
LOOPBACK = "tcp://127.0.0.1:"
SOCKET_PATH_LIMIT = zmq.IPC_PATH_MAX_LEN or 107
"""Bytes of the longest ipc path: 107 on Linux, 103 on macOS."""
HEARTBEAT_MS = 5000
"""Between two ZMTP pings on connections over a network, and how long an answer may take at most."""

# Nothing but host and port: libzmq takes more, such as a source address before a semicolon.
_LOOPBACK_ENDPOINT = re.compile(r"tcp://127\.0\.0\.1:[0-9]{1,5}")
_ENDPOINT = re.compile(r"tcp://([A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?|\[[0-9A-Fa-f:.]{2,45}\]):([0-9]{1,5})")


def parse_tcp(endpoint: str) -> tuple[str, int]:
    """Host and port of `tcp://HOST:PORT`; the host is a name, an IPv4 address, or an IPv6 address in brackets.

    Raises:
        EndpointError: It is none.
    """
    found = _ENDPOINT.fullmatch(endpoint)
    if found is None or int(found[2]) > 65535:
        raise EndpointError(f"{endpoint!r}: give tcp://HOST:PORT, an IPv6 address in brackets")
    return found[1], int(found[2])


@record
class Security:
    """A CURVE key pair, Z85 text of 40 bytes each; both empty over ipc."""

    public: bytes = field(default=b"", repr=False)
    """Of a server: what a client must know to be let in. Of a client: what the server must know."""
    secret: bytes = field(default=b"", repr=False)
    """Of a server: what a socket needs to bind; empty for those who only connect."""

    @classmethod
    def generate(cls) -> Self:
        """A new key pair."""
        return cls(*zmq.curve_keypair())


@record
class Transport:
    """How this pipeline's sockets bind and connect."""

    scheme: Scheme
    folder: Path
    """The private runtime folder; ipc sockets live in it."""
    security: Security = field(default_factory=Security)
    """The pipeline's."""
    client: Security = field(default_factory=Security)
    """This client's own, over `remote`."""

    @classmethod
    def choose(cls, folder: Path, scheme: str | None = None) -> Self:
        """The transport of a new pipeline, with new keys where it needs them.

        Args:
            folder: The private runtime folder.
            scheme: `ipc` or `tcp`; None takes SUSURRUS_TRANSPORT, else ipc where libzmq has it.

        Raises:
            EndpointError: Another scheme, or one that this build of libzmq does not have.
        """
        wanted = scheme or os.environ.get(TRANSPORT_VARIABLE) or ("ipc" if zmq.has("ipc") else "tcp")
        if wanted not in ("ipc", "tcp"):
            raise EndpointError(f"{TRANSPORT_VARIABLE}={wanted!r}: use ipc or tcp")
        if not zmq.has("ipc" if wanted == "ipc" else "curve"):
            raise EndpointError(f"{wanted} cannot be used: this libzmq has no {'ipc' if wanted == 'ipc' else 'CURVE'}")
        return cls(cast("Scheme", wanted), folder, Security.generate() if wanted == "tcp" else Security())

    def bind(self, socket: zmq.Socket[Any], name: str) -> str:
        """Bind and return the endpoint.

        Args:
            socket: Not yet bound.
            name: File name of the ipc socket; must be new in this folder, since a second bind to a living
                path succeeds and steals it.

        Raises:
            EndpointError: The path is too long or taken, or the system refuses.
        """
        if self.scheme == "remote":
            raise EndpointError(f"{name}: the client of a remote pipeline binds nothing")
        if self.scheme == "tcp":
            self._serve_curve(socket)
            address = LOOPBACK + "*"
        else:
            path = self.folder / name
            if len(os.fsencode(path)) > SOCKET_PATH_LIMIT:
                raise EndpointError(f"{path}: longer than the {SOCKET_PATH_LIMIT} bytes of a socket's path")
            if path.exists():
                raise EndpointError(f"{path}: exists already")
            address = f"ipc://{path}"
        try:
            socket.bind(address)
        except zmq.ZMQError as error:
            raise EndpointError(f"{address}: cannot be bound ({error})") from None
        return socket.getsockopt_string(zmq.LAST_ENDPOINT) if self.scheme == "tcp" else address

    def connect(self, socket: zmq.Socket[Any], endpoint: str) -> None:
        """Connect; succeeds even when nobody listens there (yet).

        Raises:
            EndpointError: The endpoint is not in this pipeline's folder or not on the loopback; over `remote`,
                it is not tcp.
        """
        self._check(endpoint)
        if self.scheme != "ipc":
            self._use_curve(socket)
        if self.scheme == "remote":
            socket.ipv6 = endpoint.startswith("tcp://[")
            watch_over_network(socket)
        try:
            socket.connect(endpoint)
        except (zmq.ZMQError, ValueError, TypeError) as error:  # TypeError: a NUL in it
            raise EndpointError(f"{endpoint!r}: cannot be connected to ({error})") from None

    def release(self, endpoint: str) -> None:
        """Remove the socket file of an endpoint that `bind` returned; libzmq leaves it behind."""
        if endpoint.startswith("ipc://"):
            Path(endpoint.removeprefix("ipc://")).unlink(missing_ok=True)

    def _check(self, endpoint: str) -> None:
        """Connect to nothing but what belongs to this pipeline, whatever a message says."""
        if self.scheme == "remote":
            parse_tcp(endpoint)
        elif self.scheme == "tcp" and not _LOOPBACK_ENDPOINT.fullmatch(endpoint):
            raise EndpointError(f"{endpoint!r} is no port of {LOOPBACK}")
        elif self.scheme == "ipc":
            mine = f"ipc://{self.folder}{os.sep}"
            if not endpoint.startswith(mine) or not re.fullmatch(r"[\w-]+", endpoint.removeprefix(mine), re.ASCII):
                raise EndpointError(f"{endpoint!r} is no socket in {mine}")

    def _serve_curve(self, socket: zmq.Socket[Any]) -> None:
        if not self.security.secret:
            raise EndpointError("tcp without the pipeline's CURVE key: nothing is bound")
        socket.curve_server = True
        socket.curve_secretkey = self.security.secret
        socket.zap_enforce_domain = True  # and no domain: the list of remote clients is not asked about local ones

    def _use_curve(self, socket: zmq.Socket[Any]) -> None:
        if not self.security.public or (self.scheme == "remote" and not self.client.secret):
            raise EndpointError("tcp without the pipeline's CURVE key: nothing is connected")
        own = self.client if self.scheme == "remote" else Security.generate()
        try:
            socket.curve_serverkey = self.security.public
            socket.curve_publickey, socket.curve_secretkey = own.public, own.secret
        except (zmq.ZMQError, ValueError):
            raise EndpointError("a CURVE key that is none: nothing is connected") from None


def watch_over_network(socket: zmq.Socket[Any]) -> None:
    """Have libzmq notice, for what binds or connects after this, that the other machine is gone without a word."""
    socket.heartbeat_ivl = HEARTBEAT_MS
    socket.heartbeat_timeout = 2 * HEARTBEAT_MS
    socket.handshake_ivl = 2 * HEARTBEAT_MS
