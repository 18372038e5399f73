"""What the wire can refuse.

    WireError
    ├── ProtocolError         a frame or message that breaks the protocol; never the end of an actor
    ├── EndpointError         an endpoint that cannot be bound, or must not be connected to
    ├── ConnectionFileError   a connection file that is missing, damaged, foreign or readable by others
    ├── KeyFileError          a key file or a list of clients that is missing, damaged, foreign or open to others
    └── RuntimeFolderError    no private place for the pipeline's sockets

Every text is one line. None holds transcripts, audio or keys, so all of them may be logged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from susurrus.protocol.codec import Header


class WireError(Exception):
    """Base of everything this package raises on purpose."""


class ProtocolError(WireError):
    """A frame or message that breaks the protocol.

    Attributes:
        code: Short machine-readable reason; the table in `docs/protocol.md` lists all of them.
        header: Header of the refused message, when that much of it was sound. Its `reply_to` tells whether
            the sender waits for an answer.
        peer: Instance of the peer it came from, where the socket knows it (the hub's); else empty.
    """

    def __init__(self, code: str, text: str, *, header: Header | None = None, peer: bytes = b"") -> None:
        super().__init__(f"{code}: {text}")
        self.code = code
        self.header = header
        self.peer = peer


class EndpointError(WireError):
    """An endpoint that cannot be bound, or must not be connected to."""


class ConnectionFileError(WireError):
    """A connection file that is missing, damaged, foreign or readable by others."""


class KeyFileError(WireError):
    """A key file or a list of authorised clients that is missing, damaged, foreign or open to others."""


class RuntimeFolderError(WireError):
    """No private place for the pipeline's sockets."""
