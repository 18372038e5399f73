"""What libzmq tells of a socket's connections: why a client gets no further, and whom a server did not let in."""

from __future__ import annotations

import logging
import socket as sockets
from collections import OrderedDict
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import zmq

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST_REMEMBERED = 1024
"""Addresses and reasons that refusals are counted for; the oldest is forgotten first."""

_TROUBLES: dict[int, str] = {
    zmq.EVENT_CLOSED: "nobody listens there",
    zmq.EVENT_HANDSHAKE_FAILED_AUTH: "it does not know this client's key: have it authorized there",
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL: "it hung up: its key is not the one in the connection file",
    zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL: "no pipeline that takes keys listens there",
}
_FOR_CLIENTS = zmq.EVENT_HANDSHAKE_SUCCEEDED | sum(_TROUBLES)
_FOR_SERVERS = (
    zmq.EVENT_ACCEPTED
    | zmq.EVENT_DISCONNECTED
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
)


class Monitor:
    """The events of one socket. Belongs to the socket's thread, and is closed before it."""

    def __init__(self, socket: zmq.Socket[Any], events: int) -> None:
        self._watched = socket
        self.socket = socket.get_monitor_socket(events)
        """For a `zmq.Poller`."""

    def read_all(self) -> Iterator[dict[str, Any]]:
        """Events that have come in: `event`, `value` and `endpoint`."""
        from zmq.utils.monitor import recv_monitor_message  # noqa: PLC0415 - brings asyncio, which few need

        while not self.socket.closed and self.socket.poll(0):
            yield dict(recv_monitor_message(self.socket))

    def close(self) -> None:
        """Close it. Idempotent."""
        if not self.socket.closed:
            if not self._watched.closed:
                self._watched.disable_monitor()
            self.socket.close()


class Troubles:
    """Why a client's socket gets no connection: for the client's own user, who hears nothing of it from libzmq."""

    def __init__(self, socket: zmq.Socket[Any]) -> None:
        self._monitor = Monitor(socket, _FOR_CLIENTS)
        self._latest = ""

    def latest(self) -> str:
        """The latest one; empty once a connection stands."""
        for event in self._monitor.read_all():
            self._latest = _TROUBLES.get(event["event"], "")
        return self._latest

    def close(self) -> None:
        """Close the monitor. Idempotent."""
        self._monitor.close()


class Refusals:
    """Counts the connections that were not let in, and logs them: at the 1st, 2nd, 4th, 8th … of each kind.

    A client with a wrong key tries again ten times a second for as long as it runs.
    """

    def __init__(self) -> None:
        self.count = 0
        self._counts: OrderedDict[tuple[str, str], int] = OrderedDict()

    def note(self, address: str, reason: str) -> None:
        """Count one refusal, and log it if it is time to."""
        self.count += 1
        key = (address, reason)
        number = self._counts[key] = self._counts.pop(key, 0) + 1
        if len(self._counts) > MOST_REMEMBERED:
            self._counts.popitem(last=False)
        if number & (number - 1) == 0:
            about = {"address": address, "reason": reason, "count": number}
            logging.getLogger(__name__).warning("connection refused", extra=about)


class Handshakes:
    """Watches a listening socket for those who do not get so far as to show their key."""

    def __init__(self, socket: zmq.Socket[Any], refusals: Refusals) -> None:
        self.monitor = Monitor(socket, _FOR_SERVERS)
        self._refusals = refusals
        self._addresses: dict[int, str] = {}  # by descriptor
        self._reason = ""

    def note_all(self) -> None:
        """Note the refusals. Events of one connection follow each other: what went wrong, then that it was closed."""
        for event in self.monitor.read_all():
            if not event["endpoint"].startswith(b"tcp://"):
                continue
            if event["event"] == zmq.EVENT_ACCEPTED:
                self._addresses[event["value"]] = _peer_address(event["value"])
            elif event["event"] == zmq.EVENT_DISCONNECTED:
                address = self._addresses.pop(event["value"], "")
                if self._reason:
                    self._refusals.note(address or "gone already", self._reason)
                self._reason = ""
            else:
                self._reason = _describe(event)


def _describe(event: dict[str, Any]) -> str:
    if event["event"] == zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL:
        return "it left in the middle of the handshake: it has no key, or a wrong one"
    if event["value"] == zmq.PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH:
        return "it has no key"
    if event["value"] == zmq.PROTOCOL_ERROR_ZMTP_CRYPTOGRAPHIC:
        return "it does not know the server's key"
    return "it broke the rules of the handshake"


def _peer_address(descriptor: int) -> str:
    """Where a connection comes from; empty when libzmq has closed it meanwhile."""
    with suppress(OSError):
        connection = sockets.socket(fileno=descriptor)
        try:
            name = connection.getpeername()
            return str(name[0]) if isinstance(name, tuple) else ""
        finally:
            connection.detach()  # it is libzmq's
    return ""
