"""Messages to frames and back. `docs/protocol.md` describes the bytes.

    frame 0   tag       6 bytes: name and major version of the protocol
    frame 1   header    msgpack map, at most 4 KiB
    frame 2   body      msgpack map, at most 64 KiB (1 MiB for the types in TEXT_TYPES)
    frame 3.. buffers   the array fields in declared order, raw, C order, little-endian, at most 64 MiB each

Whatever arrives is treated as hostile. `decode` looks at counts and sizes first, then at the tag, then
unpacks the header, then the body, then wraps the buffers; it raises ProtocolError and nothing else. Sizes and
values are checked on the sending side too: past its limit libzmq drops a frame and the connection without
telling the sender.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from susurrus.protocol.arrays import pack_arrays, unpack_arrays
from susurrus.protocol.checks import ID_BYTES, RefusedError, refuse_deep
from susurrus.protocol.errors import ProtocolError
from susurrus.protocol.events import Done, Partial, Segment
from susurrus.protocol.messages import message_types
from susurrus.protocol.packing import Frame, pack_map, unpack_map
from susurrus.protocol.records import record
from susurrus.protocol.requests import Snapshot
from susurrus.protocol.schema import Plan, fields_of, pack_fields, plan_of, unpack_fields
from susurrus.protocol.values import Message, SendPort

if TYPE_CHECKING:
    from collections.abc import Sequence

MAJOR = 1
MINOR = 3
VERSION = f"{MAJOR}.{MINOR}"
"""Version of the protocol; the package has its own."""
TAG_NAME = b"SUSU"
TAG = TAG_NAME + b"%02d" % MAJOR

MAX_HEADER_BYTES = 4 * 1024
MAX_BODY_BYTES = 64 * 1024
MAX_TEXT_BODY_BYTES = 1024 * 1024
MAX_ARRAY_BYTES = 64 * 1024 * 1024
MAX_ARRAYS = 4
MAX_FRAMES = 3 + MAX_ARRAYS
TEXT_TYPES = frozenset({Partial.TYPE, Segment.TYPE, Done.TYPE, Snapshot.TYPE})
"""Types whose body holds text that grows with the audio."""


@record
class Header:
    """What every message carries about itself."""

    type: str
    """Name of the message type on the wire."""
    id: bytes
    """16 random bytes, new for every message."""
    parent: bytes
    """`id` of the message that caused this one, empty when none did."""
    sender: str
    """Name of the sending actor or client, for people."""
    instance: bytes
    """16 random bytes, new at every start of the sender."""
    minor: int
    """Minor version of the protocol the sender speaks."""
    sent_ns: int
    """Wall clock at sending, nanoseconds since 1970; for logs only."""
    reply_to: SendPort | None = None
    """Where an answer is expected, if at all; an empty endpoint means back through the socket it came by."""


@record
class Received:
    """One decoded message."""

    message: Message
    header: Header
    client: str = ""
    """Name of the authorized client on another machine that it came from, told by the socket and not by the sender;
    empty for a peer on this machine."""


class _Plans(dict[str, Plan]):
    """The plan of each type by its name on the wire, made at its first use: a process needs a third of them."""

    def __missing__(self, name: str) -> Plan:
        plan = self[name] = plan_of(_TYPES[name])
        return plan


_TYPES = message_types()
_PLANS = _Plans()
_HEADER_FIELDS = fields_of(Header)


def new_id() -> bytes:
    """16 random bytes for a job, a message or an instance.

    The first one is never zero: ZeroMQ keeps routing ids that begin with zero for itself.
    """
    identifier = os.urandom(ID_BYTES)
    return identifier if identifier[0] else new_id()


# --- sending ------------------------------------------------------------------------------------------------


def encode(
    message: Message,
    *,
    sender: str,
    instance: bytes,
    parent: bytes = b"",
    reply_to: SendPort | None = None,
) -> list[Frame]:
    """Frames of one message.

    Arrays are not copied: the buffers are views, and must not be written to before the message is on its way.

    Args:
        message: What to send.
        sender: Name of the sending actor or client.
        instance: The sender's 16 bytes.
        parent: `id` of the message that caused this one.
        reply_to: Where an answer is expected.

    Raises:
        ProtocolError: A field does not fit its declaration (`bad_field`), an array is not C-contiguous or of
            another dtype (`bad_array`), or a frame exceeds its limit (`too_large`).
    """
    name = getattr(message, "TYPE", "")
    plan = _PLANS[name] if name in _TYPES else None
    if plan is None or plan.message is not type(message):
        raise ProtocolError("unknown_type", f"{type(message).__name__} is not a message")
    buffers, arrays = pack_arrays(plan, message)
    about = Header(name, new_id(), parent, sender, instance, MINOR, time.time_ns(), reply_to)
    try:
        header = pack_fields(_HEADER_FIELDS, about) | pack_fields(plan.header, message)
        if reply_to is None:
            del header["reply_to"]
        if arrays:
            header["arrays"] = arrays
        packed = [pack_map(header), pack_map(pack_fields(plan.body, message))]
    except (RefusedError, UnicodeEncodeError) as error:
        reason = "text with a lone surrogate" if isinstance(error, UnicodeEncodeError) else error
        raise ProtocolError("bad_field", f"{name}: {reason}") from None
    frames: list[Frame] = [TAG, *packed, *buffers]
    _check_sizes(frames, _body_limit(name))
    return frames


def body_size(message: Message) -> int:
    """Bytes of a message's body, to be held against MAX_BODY_BYTES or MAX_TEXT_BODY_BYTES before it is sent.

    Raises:
        ProtocolError: A field does not fit its declaration.
    """
    try:
        return len(pack_map(pack_fields(_PLANS[message.TYPE].body, message)))
    except (RefusedError, UnicodeEncodeError) as error:
        raise ProtocolError("bad_field", f"{message.TYPE}: {type(error).__name__}") from None


# --- receiving ----------------------------------------------------------------------------------------------


def decode(frames: Sequence[Frame]) -> Received:
    """The message in a list of frames (without topic or routing id).

    Arrays are read-only views of the buffers; a buffer that is not aligned for its dtype is copied.

    Raises:
        ProtocolError: The frames break the protocol in any way. Its `header` is set once that was sound.
    """
    if not 3 <= len(frames) <= MAX_FRAMES:
        raise ProtocolError("bad_frames", f"{min(len(frames), MAX_FRAMES + 1)} frames")
    _check_sizes(frames, MAX_TEXT_BODY_BYTES)
    _check_tag(bytes(frames[0]))
    fields, header = _decode_header(frames[1])
    try:
        return Received(_decode_message(header, fields, frames), header)
    except ProtocolError as error:
        error.header = header
        raise


def _body_limit(name: str) -> int:
    return MAX_TEXT_BODY_BYTES if name in TEXT_TYPES else MAX_BODY_BYTES


def _check_sizes(frames: Sequence[Frame], body_limit: int) -> None:
    limits = (len(TAG), MAX_HEADER_BYTES, body_limit)
    for index, frame in enumerate(frames):
        limit = limits[index] if index < 3 else MAX_ARRAY_BYTES
        size = len(frame) if isinstance(frame, bytes) else frame.nbytes
        if size > limit:
            raise ProtocolError("too_large", f"frame {index} has {size} bytes, {limit} are allowed")


def _check_tag(tag: bytes) -> None:
    if tag == TAG:
        return
    major = tag[len(TAG_NAME) :]
    if tag.startswith(TAG_NAME) and len(tag) == len(TAG) and major.isdigit():
        raise ProtocolError("version", f"the peer speaks protocol {int(major)}.x, this side {VERSION}")
    raise ProtocolError("bad_tag", "not a frame of this protocol")


def _decode_header(frame: Frame) -> tuple[dict[str, Any], Header]:
    """The header's whole map, and what of it belongs to every message."""
    fields = unpack_map(frame, "bad_header")
    fields.setdefault("reply_to", None)
    try:
        refuse_deep(fields.values())
        return fields, Header(**unpack_fields(_HEADER_FIELDS, fields))
    except RefusedError as error:
        raise ProtocolError("bad_header", str(error)) from None


def _decode_message(header: Header, fields: dict[str, Any], frames: Sequence[Frame]) -> Message:
    if header.type not in _TYPES:
        raise ProtocolError("unknown_type", f"{header.type[:32]!r} is not in protocol {VERSION}")
    _check_sizes(frames, _body_limit(header.type))
    plan = _PLANS[header.type]
    try:
        values = unpack_fields(plan.header, fields)
    except RefusedError as error:
        raise ProtocolError("bad_header", f"{header.type}: {error}") from None
    body = unpack_map(frames[2], "bad_body")
    try:
        values |= unpack_fields(plan.body, body)
        refuse_deep(body[name] for name in body.keys() - values.keys())
    except RefusedError as error:
        raise ProtocolError("bad_body", f"{header.type}: {error}") from None
    return plan.message(**values, **unpack_arrays(plan, fields.get("arrays", []), frames[3:]))
