"""Damaged frames of one message: other bytes, other values, other numbers of frames, and containers that lie."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import msgpack  # type: ignore[import-untyped]  # ships no types

from susurrus.protocol.codec import TAG
from tests.fuzz.mutations import EDGES, mutate

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random


def damaged(frames: Sequence[bytes], dice: Random) -> list[bytes]:
    """The frames of a message after one kind of damage."""
    return dice.choice(_WAYS)(list(frames), dice)


def _change_bytes(frames: list[bytes], dice: Random) -> list[bytes]:
    for _ in range(dice.randint(1, 2)):
        index = dice.choice((1, 2, dice.randrange(len(frames))))
        frames[index] = mutate(frames[index], dice)
    return frames


def _change_values(frames: list[bytes], dice: Random) -> list[bytes]:
    """Well-formed msgpack with other values: gets past the parser, as bit flips seldom do."""
    index = dice.choice((1, 2, 2))
    value = msgpack.unpackb(frames[index])
    for _ in range(dice.randint(1, 3)):
        _change_somewhere(value, dice)
    frames[index] = msgpack.packb(value)
    return frames


def _change_somewhere(value: Any, dice: Random) -> None:
    """Replaces, removes, renames or adds one value in a tree of maps and lists."""
    keys = list(value) if isinstance(value, dict) else list(range(len(value)))
    if keys:
        key = dice.choice(keys)
        if isinstance(value[key], (dict, list)) and dice.random() < 0.7:
            return _change_somewhere(value[key], dice)
        how = dice.random()
        if how < 0.8:
            value[key] = _like(value[key], dice) if how < 0.5 else any_value(dice)
        elif how < 0.9:
            del value[key]
        elif isinstance(value, dict):
            value[str(key) + "x"] = value.pop(key)
        return None
    if isinstance(value, dict):
        value["x"] = any_value(dice)
    else:
        value.append(any_value(dice))
    return None


def _like(value: Any, dice: Random) -> Any:
    """Another value of the same type."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return dice.choice((dice.getrandbits(dice.randint(1, 63)), *EDGES))
    if isinstance(value, float):
        return dice.choice((0, dice.uniform(-1e3, 1e3), 5e-324, 1.7e308, -0.0, 2**62))
    if isinstance(value, str):
        return _text(dice)
    if isinstance(value, bytes):
        return dice.randbytes(len(value))
    return value


def any_value(dice: Random, depth: int = 0) -> Any:
    """What msgpack can say, nested now and then."""
    makers = _LEAVES if depth > 3 else (*_LEAVES, _list, _map, _deep)
    return dice.choice(makers)(dice, depth)


def _text(dice: Random, _depth: int = 0) -> str:
    letters = "aß世🌍\0\n\x1b\u202e\ufffd\ud7ff\U0010ffff"
    return "".join(dice.choices(letters, k=dice.choice((0, 1, 5, 300))))


def _list(dice: Random, depth: int) -> list[Any]:
    return [any_value(dice, depth + 1) for _ in range(dice.randrange(4))]


def _map(dice: Random, depth: int) -> dict[Any, Any]:
    return {dice.choice(("a", "type", "job", "seq", 1, b"k")): any_value(dice, depth + 1) for _ in range(3)}


def _deep(dice: Random, _depth: int) -> Any:
    value: Any = None
    for _ in range(dice.choice((15, 16, 17, 60, 400))):
        value = {"a": value} if dice.random() < 0.3 else [value]
    return value


_LEAVES = (
    lambda _dice, _depth: None,
    lambda dice, _depth: dice.random() < 0.5,
    lambda dice, _depth: dice.choice(EDGES) + dice.choice((-1, 0, 1)),
    lambda dice, _depth: dice.getrandbits(dice.randint(1, 64)) - (1 << 63 if dice.random() < 0.2 else 0),
    lambda dice, _depth: dice.choice((0.0, -0.0, 0.5, 1e308, float("nan"), float("inf"), float("-inf"))),
    _text,
    lambda dice, _depth: dice.randbytes(dice.choice((0, 1, 15, 16, 17, 100))),
    lambda dice, _depth: msgpack.ExtType(dice.randrange(128), dice.randbytes(dice.randrange(9))),
    lambda dice, _depth: msgpack.Timestamp(dice.getrandbits(33)),
)


def _change_counts(frames: list[bytes], dice: Random) -> list[bytes]:
    """Frames left out, doubled, swapped, emptied, or too many."""
    for _ in range(dice.randint(1, 3)):
        at = dice.randint(0, len(frames))
        how = dice.randrange(4)
        if how == 0:
            del frames[at : at + 1]
        elif how == 1:
            frames[at:at] = frames[at - 1 : at] * dice.randint(1, 6)
        elif how == 2:
            frames[at : at + 1] = [b""]
        else:
            dice.shuffle(frames)
    return frames


def _change_arrays(frames: list[bytes], dice: Random) -> list[bytes]:
    """A description and a buffer that may not agree."""
    header = msgpack.unpackb(frames[1])
    sizes = (0, 1, 2, 3, 4, -1, 2**32, 2**62, 2**63)
    shape = [dice.choice(sizes) for _ in range(dice.randrange(6))]
    described = {"dtype": dice.choice(("<f4", "<f4", "<f4", ">f4", "|O", "<i4", "", None)), "shape": shape}
    header["arrays"] = [described] * dice.choice((1, 1, 1, 0, 2))
    buffers = [dice.randbytes(dice.choice((0, 4, 8, 16, 17, 24, 32, 64))) for _ in range(dice.choice((1, 1, 1, 0, 2)))]
    return [frames[0], msgpack.packb(header), frames[2], *buffers]


def _any_frames(frames: list[bytes], dice: Random) -> list[bytes]:
    made = [dice.randbytes(dice.randrange(60)) for _ in range(dice.randrange(9))]
    return [TAG, *made] if dice.random() < 0.5 else [*frames[: dice.randrange(3)], *made]


def _lie(frames: list[bytes], dice: Random) -> list[bytes]:
    """A header or body of msgpack tokens that claim more than there is, nested as deep as fits."""
    index = dice.choice((1, 2))
    frames[index] = lying_map(dice.choice((10, 100, 1000, 4000)), dice)
    return frames


def lying_map(size: int, dice: Random) -> bytes:
    """`size` bytes that begin as a map with one unknown field, and go on with containers of any claimed length."""
    heads = [b"\x80", b"\x90", b"\x91", b"\x81\xa1a", b"\xc0", b"\xc1", b"\xc7\x00\x05"]
    heads += [code + struct.pack(">H", size % 65536) for code in (b"\xdc", b"\xde")]
    for claimed in (size, size // 2, size // 8, 0xFFFFFFFF):
        heads += [code + struct.pack(">I", claimed) for code in (b"\xdd", b"\xdf", b"\xdb", b"\xc6", b"\xc9")]
    chosen = dice.choices(heads, k=dice.randint(1, 3))
    return (b"\x81\xa1x" + b"".join(dice.choices(chosen, k=size)))[:size]


_WAYS = (
    _change_bytes,
    _change_bytes,
    _change_values,
    _change_values,
    _change_counts,
    _change_arrays,
    _any_frames,
    _lie,
)
