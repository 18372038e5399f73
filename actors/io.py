"""What every I/O thread of this package needs: a way to be woken, and reading ports until they are empty."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator
from math import ceil
from typing import Any, Protocol, TypeVar

import zmq

from susurrus.protocol import BadFrames, ProtocolError

MAX_AT_ONCE = 1000
"""Messages taken in one after another: as many as a line's queue holds."""

Context = zmq.Context[Any]

T_co = TypeVar("T_co", covariant=True)


class Readable(Protocol[T_co]):
    """A port that gives what has come in, or None."""

    def receive(self) -> T_co | None:
        """The next message, if there is one. Raises ProtocolError for a bad one, which is gone then."""


def receive_all(
    port: Readable[T_co], bad_frames: BadFrames, answer: Callable[[ProtocolError], None] | None = None
) -> Iterator[T_co]:
    """What has come in, until nothing is left; a bad frame is counted and logged, and the port goes on.

    A peer that sends without end does not keep the thread from its other work: after MAX_AT_ONCE the next turn has it.

    Args:
        port: to read.
        bad_frames: counts and logs.
        answer: told of each bad frame, if somebody should be.
    """
    for _ in range(MAX_AT_ONCE):
        try:
            received = port.receive()
        except ProtocolError as error:
            bad_frames.note(error)
            if answer is not None:
                answer(error)
            continue
        if received is None:
            return
        yield received


def wait_for(poller: zmq.Poller, seconds: float | None) -> dict[Any, int]:
    """Sockets of the poller that something has come in at, after at most so many seconds; None waits for ever."""
    return dict(poller.poll(None if seconds is None else ceil(seconds * 1000)))


class Wakeup:
    """Wakes a thread that sleeps in a ZeroMQ poller: one byte through a socket pair, pollable on every platform."""

    def __init__(self) -> None:
        self.reader, self._writer = socket.socketpair()
        self.reader.setblocking(False)
        self._writer.setblocking(False)

    def set(self) -> None:
        """Wake the poller. Any thread, any signal handler; never blocks, harmless after `close`."""
        with contextlib.suppress(OSError):
            self._writer.send(b"\0")

    def clear(self) -> bool:
        """Take the pending wake-ups in (the polling thread); return whether there were any."""
        woken = False
        with contextlib.suppress(OSError):
            while self.reader.recv(4096):
                woken = True
        return woken

    def close(self) -> None:
        """Close both ends."""
        self.reader.close()
        self._writer.close()
