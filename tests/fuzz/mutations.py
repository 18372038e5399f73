"""Damage to bytes, quick enough for a million inputs: what no encoder writes, near to what one does."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random

EDGES = (0, 1, 2, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFE, 0xFFFFFFFF)
"""Integers at which a width, a sign or a meaning ends."""
_WIDTHS = ("B", "<H", ">H", "<I", ">I", "<Q", ">Q")


def mutate(data: bytes, dice: Random, most: int = 4) -> bytes:
    """The data after 1 to `most` changes."""
    changed = bytearray(data)
    for _ in range(dice.randint(1, most)):
        dice.choice(_CHANGES)(changed, dice)
    return bytes(changed)


def edge(dice: Random) -> bytes:
    """An integer of some width and byte order at or beside one of the EDGES."""
    form = dice.choice(_WIDTHS)
    value = dice.choice(EDGES) + dice.choice((-1, 0, 0, 1))
    return struct.pack(form, value % (1 << 8 * struct.calcsize(form)))


def _flip(data: bytearray, dice: Random) -> None:
    if data:
        data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)


def _set(data: bytearray, dice: Random) -> None:
    if data:
        data[dice.randrange(len(data))] = dice.randrange(256)


def _overwrite(data: bytearray, dice: Random) -> None:
    value, at = edge(dice), dice.randint(0, len(data))
    data[at : at + len(value)] = value


def _insert(data: bytearray, dice: Random) -> None:
    at = dice.randint(0, len(data))
    data[at:at] = edge(dice) if dice.random() < 0.5 else dice.randbytes(dice.randint(1, 8))


def _cut(data: bytearray, dice: Random) -> None:
    del data[dice.randint(0, len(data)) :]


def _remove(data: bytearray, dice: Random) -> None:
    at = dice.randint(0, len(data))
    del data[at : at + dice.randint(1, 16)]


def _repeat(data: bytearray, dice: Random) -> None:
    at = dice.randint(0, len(data))
    data[at:at] = data[at : at + dice.randint(1, 32)] * dice.randint(1, 4)


def _move(data: bytearray, dice: Random) -> None:
    source, target = dice.randint(0, len(data)), dice.randint(0, len(data))
    piece = data[source : source + dice.randint(1, 16)]
    data[target : target + len(piece)] = piece


_CHANGES = (_flip, _flip, _flip, _set, _set, _overwrite, _overwrite, _insert, _cut, _remove, _repeat, _move)
