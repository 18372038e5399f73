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
        self._threads = [threading.Thread(target=self._accept)]
        self.heard = bytearray()
        self.endpoint = f"tcp://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        for end in (self._listener, *self._ends):
            with suppress(OSError):
                end.shutdown(sockets.SHUT_RDWR)
            end.close()
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = sockets.create_connection(self._target)
                self._ends += [near, far]
                for ends in ((near, far), (far, near)):
                    self._threads.append(threading.Thread(target=self._pump, args=ends))
                    self._threads[-1].start()

    def _pump(self, source: sockets.socket, sink: sockets.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                self.heard += data
                sink.sendall(data)
        with suppress(OSError):
            sink.shutdown(sockets.SHUT_WR)
