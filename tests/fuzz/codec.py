"""Frames of the protocol: whatever they hold, `decode` gives a sound message or raises ProtocolError.

An input is the frames of one message, each behind its length (4 bytes, big-endian), as in the golden files.
"""

from __future__ import annotations

import dataclasses
import struct
import tracemalloc
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from susurrus.protocol import ProtocolError, decode, encode
from tests.fuzz.frames import damaged

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

    from numpy.typing import NDArray

    from susurrus.protocol import Message

Result = TypeVar("Result")
GOLDEN = sorted((Path(__file__).parents[1] / "protocol" / "golden").glob("*/*.frames"))
CODES = {"bad_frames", "too_large", "bad_tag", "version", "bad_header", "unknown_type", "bad_body", "bad_array"}
LONGEST_REASON = 400
"""Characters: a reason is for a log line, and may quote 32 characters, each escaped to ten."""
BYTES_PER_BYTE = 100
"""Most memory that a received byte may take while it is decoded: an empty map, and its place in three lists."""
_MOST_FRAMES = 12


def join(frames: Sequence[bytes]) -> bytes:
    """One input of these frames."""
    return b"".join(struct.pack(">I", len(frame)) + frame for frame in frames)


def split(data: bytes) -> list[bytes]:
    """The frames of any input: a length that is too large means the rest."""
    frames: list[bytes] = []
    while len(data) >= 4 and len(frames) < _MOST_FRAMES:
        size = struct.unpack_from(">I", data)[0]
        frames.append(data[4 : 4 + size])
        data = data[4 + size :]
    return frames


SEEDS = [path.read_bytes() for path in GOLDEN]
_SEED_FRAMES = [split(seed) for seed in SEEDS]


# --- the rule -----------------------------------------------------------------------------------------------


def check(data: bytes) -> str:
    """Decode an input; what was understood must survive another round. Returns the code, or `accepted`."""
    frames: list[Any] = split(data)
    if len(data) % 2:  # libzmq hands frames out at any address
        frames = [memoryview(b"\0" + frame)[1:] for frame in frames]
    received = attempt(decode, frames)
    if isinstance(received, ProtocolError):
        assert received.code in CODES
        assert str(received).isprintable()
        assert len(str(received)) < LONGEST_REASON
        return received.code
    for array in arrays_of(received.message):
        assert array.flags.aligned
        assert not array.flags.writeable
    header = received.header
    names = {"sender": header.sender, "instance": header.instance, "parent": header.parent}
    again = attempt(encode, received.message, **names, reply_to=header.reply_to)
    if isinstance(again, ProtocolError):
        assert again.code == "too_large"  # an int where a float belongs grows to 9 bytes
        return "accepted"
    second = decode([bytes(frame) for frame in again])
    assert plain(second.message) == plain(received.message)
    assert (second.header.sender, second.header.reply_to) == (header.sender, header.reply_to)
    return "accepted"


def attempt(work: Callable[..., Result], *values: Any, **named: Any) -> Result | ProtocolError:
    """What the work gives, or what it refuses with; anything else it raises goes on."""
    try:
        return work(*values, **named)
    except ProtocolError as error:
        return error


def check_memory(data: bytes) -> None:
    """What is allocated while an input is decoded is in proportion to its size."""
    frames = split(data)
    tracemalloc.start()
    try:
        attempt(decode, frames)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= BYTES_PER_BYTE * len(data) + (1 << 17), f"{peak} bytes for {len(data)}"


def plain(message: Message) -> dict[str, Any]:
    """A message's fields in a form that `==` compares, arrays with dtype, shape and bytes."""
    return {
        name: (value.dtype.str, value.shape, value.tobytes()) if isinstance(value, np.ndarray) else value
        for name, value in values_of(message).items()
    }


def arrays_of(message: Message) -> list[NDArray[Any]]:
    """The values of a message's array fields."""
    return [value for value in values_of(message).values() if isinstance(value, np.ndarray)]


def values_of(message: Message) -> dict[str, Any]:
    """Name and value of every field."""
    return {field.name: getattr(message, field.name) for field in dataclasses.fields(message)}  # type: ignore[arg-type]


# --- inputs -------------------------------------------------------------------------------------------------


def generate(dice: Random) -> bytes:
    """An input near to a golden message, or far from all of them."""
    return join(damaged(dice.choice(_SEED_FRAMES), dice))
