"""Where the bytes of an audio file come from: a path, a FIFO or a binary stream, read as a `ByteStream`."""

from __future__ import annotations

import io
import os
import stat
import time
from typing import TYPE_CHECKING, Any, BinaryIO

from susurrus.models.errors import AudioError

if TYPE_CHECKING:
    from pathlib import Path

FIFO_SECONDS = 5.0
"""How long a FIFO given as a path may stay without a writer. With a writer it is waited for like any pipe."""


def shown_name(name: str | Path) -> str:
    r"""A file's name for a message of one line: what does not print is escaped, as `\n`."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in str(name))


class ByteStream(io.RawIOBase):
    """A binary stream that gives what has arrived, and takes back what was read too far.

    Args:
        raw: What to read. Its `read1` is preferred, so that a pipe's bytes are given as they come.
        owned: Whether `close` closes `raw` too.
    """

    def __init__(self, raw: BinaryIO | io.FileIO, *, owned: bool) -> None:
        super().__init__()
        self._raw = raw
        self._owned = owned
        self._read = getattr(raw, "read1", raw.read)
        self._seekable = raw.seekable()
        self._pending = b""

    def readable(self) -> bool:
        """Always."""
        return True

    def seekable(self) -> bool:
        """Whether `seek` works: a regular file or a buffer, not a pipe."""
        return self._seekable

    def read(self, size: int = -1) -> bytes:
        """Between 1 and `size` bytes, or none at the end. Waits for the first of them.

        Raises:
            AudioError: The stream is in non-blocking mode, or gives text.
            OSError: The system could not read.
        """
        if self._pending:
            data, self._pending = self._pending[:size], self._pending[size:]
            return data
        data = self._read(size)
        if not isinstance(data, bytes):
            raise AudioError(f"a stream that gives {type(data).__name__}, not bytes: open it as blocking binary")
        return data

    def read_exactly(self, size: int) -> bytes:
        """`size` bytes, fewer only where the stream ends."""
        parts = []
        while size > 0 and (data := self.read(min(size, 1 << 20))):
            parts.append(data)
            size -= len(data)
        return b"".join(parts)

    def readinto(self, buffer: Any) -> int:
        """Fills `buffer`, less only where the stream ends: libsndfile takes a short read for the end."""
        data = self.read_exactly(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def push_back(self, data: bytes) -> None:
        """Puts bytes before those that are read next."""
        self._pending = data + self._pending

    def peek(self, size: int) -> bytes:
        """The next `size` bytes, fewer only where the stream ends, without reading past them."""
        data = self.read_exactly(size)
        self.push_back(data)
        return data

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """As of any file; what was put back is forgotten.

        A place before the start, where damaged headers point, is the start: an error would be lost in a
        library.
        """
        if whence == os.SEEK_CUR:
            offset += self.tell()
            whence = os.SEEK_SET
        if whence == os.SEEK_SET:
            offset = max(0, offset)
        self._pending = b""
        return self._raw.seek(offset, whence)

    def tell(self) -> int:
        """The position of the next byte that `read` gives."""
        return self._raw.tell() - len(self._pending)

    def descriptor(self) -> int | None:
        """The file descriptor, where a C library can read from it at the position of the last `seek`."""
        return self._raw.fileno() if isinstance(self._raw, io.FileIO) and os.name == "posix" else None

    def remaining(self) -> int | None:
        """Bytes to the end, where that is known."""
        if not self._seekable:
            return None
        here = self.tell()
        end = self.seek(0, os.SEEK_END)
        self.seek(here)
        return end - here

    def close(self) -> None:
        """Closes `raw` where it is owned."""
        if not self.closed and self._owned:
            self._raw.close()
        super().close()


def open_path(path: Path, name: str) -> ByteStream:
    """Opens a file, or a FIFO that somebody writes, without ever hanging on it.

    Args:
        path: Where it is.
        name: How messages name it.

    Raises:
        AudioError: There is nothing readable at `path`.
    """
    # Non-blocking, because opening a FIFO waits for its writer otherwise.
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    try:
        descriptor = os.open(path, flags)
    except (OSError, ValueError) as error:  # ValueError: a null byte in the name
        raise AudioError(f"{name}: {_reason(error, path)}") from error
    try:
        return _open_descriptor(descriptor, name)
    except BaseException:
        os.close(descriptor)
        raise


def open_stream(stream: BinaryIO) -> ByteStream:
    """Reads an open binary stream, from where it stands. Closing it remains the caller's task."""
    return ByteStream(stream, owned=False)


def _open_descriptor(descriptor: int, name: str) -> ByteStream:
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return ByteStream(io.FileIO(descriptor), owned=True)
    if stat.S_ISFIFO(mode):
        return _open_fifo(descriptor, name)
    kind = "a folder" if stat.S_ISDIR(mode) else "a device"
    raise AudioError(f"{name}: {kind}, not a file: name the audio file itself")


def _open_fifo(descriptor: int, name: str) -> ByteStream:
    data = _await_writer(descriptor, time.monotonic() + FIFO_SECONDS)
    if data is None:
        raise AudioError(f"{name}: a named pipe that nobody writes to: start its writer first, or name a file")
    os.set_blocking(descriptor, True)
    stream = ByteStream(io.FileIO(descriptor), owned=True)
    stream.push_back(data)
    return stream


def _await_writer(descriptor: int, deadline: float) -> bytes | None:
    """First bytes of a non-blocking FIFO, none yet if its writer is silent; None if it has no writer."""
    while True:
        try:
            if data := os.read(descriptor, 1 << 16):
                return data
        except BlockingIOError:
            return b""
        if time.monotonic() > deadline:
            return None
        time.sleep(0.02)  # without a writer a FIFO is at its end, and the end cannot be waited on


def _reason(error: OSError | ValueError, path: Path) -> str:
    if isinstance(error, FileNotFoundError):
        return "no such file"
    if isinstance(error, PermissionError):
        return "a folder, not a file" if path.is_dir() else "no permission to read it"
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
