"""Somebody on the wire between two peers, who hears everything and says nothing."""

from __future__ import annotations

import socket as sockets
import threading
from contextlib import suppress
from typing import Self


class Eavesdropper:
    """A raw proxy in front of a port that keeps every byte that passes, in both directions."""

    def __init__(self, endpoint: str) -> None:
        self._target = ("127.0.0.1", int(endpoint.rpartition(":")[2]))
        self._listener = sockets.create_server(("127.0.0.1", 0))
        self._ends: list[sockets.socket] = []
        self._acceptor = threading.Thread(target=self._accept)
        self._pumps: list[threading.Thread] = []
        self.heard = bytearray()
        self.endpoint = f"tcp://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        self._acceptor.start()
        return self

    def __exit__(self, *_: object) -> None:
        _hang_up(self._listener)
        self._acceptor.join()  # whoever was just coming in is among the ends now
        for end in self._ends:
            _hang_up(end)
        for pump in self._pumps:
            pump.join()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                self._ends.append(near)
                far = sockets.create_connection(self._target)
                self._ends.append(far)
                for ends in ((near, far), (far, near)):
                    self._pumps.append(threading.Thread(target=self._pump, args=ends))
                    self._pumps[-1].start()

    def _pump(self, source: sockets.socket, sink: sockets.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                self.heard += data
                sink.sendall(data)
        with suppress(OSError):
            sink.shutdown(sockets.SHUT_WR)


def _hang_up(end: sockets.socket) -> None:
    """Close a socket that another thread may be waiting at."""
    with suppress(OSError):
        end.shutdown(sockets.SHUT_RDWR)
    end.close()
