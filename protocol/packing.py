"""Plain values to msgpack and back: the only module that touches msgpack.

Whatever arrives is treated as hostile: what it would cost is looked at before it is made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgpack  # type: ignore[import-untyped]  # ships no types

from susurrus.protocol.errors import ProtocolError

if TYPE_CHECKING:
    from typing import Never

MAX_CONTAINERS = 65_536
"""Maps and lists in one header or body; no snapshot of 1 MiB has as many."""

Frame = bytes | memoryview


def pack_map(values: dict[str, Any]) -> bytes:
    """The bytes of a map of plain values.

    Raises:
        UnicodeEncodeError: A text has a lone surrogate.
    """
    packed: bytes = msgpack.packb(values)
    return packed


def unpack_map(frame: Frame, code: str) -> dict[str, Any]:
    """The map in a frame.

    Raises:
        ProtocolError: `code`; the frame holds something else, too much, or less than it claims.
    """
    try:
        _refuse_incomplete(frame)
        count = _Containers()
        value = msgpack.unpackb(
            frame, object_pairs_hook=count.make_map, list_hook=count.make_list, ext_hook=_refuse_ext, max_ext_len=0
        )
    except Exception as error:  # noqa: BLE001  msgpack's errors have no common base, as it says
        raise ProtocolError(code, f"not msgpack as it should be ({type(error).__name__})") from None
    if type(value) is not dict:
        raise ProtocolError(code, f"a map expected, not {type(value).__name__}")
    return value


def _refuse_incomplete(frame: Frame) -> None:
    """Raise unless every element that a list or map claims is there, without making any.

    msgpack makes room for what is claimed: some hundred nested lists in 3 kB would cost 13 MB before the end is met.
    """
    size = len(frame) if isinstance(frame, bytes) else frame.nbytes
    unpacker = msgpack.Unpacker(read_size=max(size, 1), max_buffer_size=max(size, 1))
    unpacker.feed(frame)
    unpacker.skip()


def _refuse_ext(_code: int, _data: bytes) -> Never:
    raise ValueError("an extension type")


class _Containers:
    """Counts the maps and lists of one frame while msgpack makes them.

    One costs its sender a byte and the receiver sixty: a body of a million would keep the hub busy for seconds.
    """

    def __init__(self) -> None:
        self._left = MAX_CONTAINERS

    def _count(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise ValueError("too many maps and lists")

    def make_list(self, values: list[Any]) -> list[Any]:
        """The list, if it is not one too many."""
        self._count()
        return values

    def make_map(self, pairs: list[tuple[Any, Any]]) -> dict[str, Any]:
        """A map whose keys are distinct strings; msgpack itself lets the last of two equal keys win."""
        self._count()
        result = dict(pairs)
        if len(result) != len(pairs) or any(type(key) is not str for key in result):
            raise ValueError("keys that are not distinct strings")
        return result
