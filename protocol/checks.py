"""What a single value may be: the checks of scalars and ids, the same on both ways, and of what nobody knows.

All raise RefusedError. Reasons name types, never contents, so they may be logged.
"""

from __future__ import annotations

import math
import typing
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

ID_BYTES = 16
"""Length of job, message and instance ids."""
INT_LIMIT = 2**63
"""Integers are counts and ids: 0 <= n < INT_LIMIT."""
DEPTH_LIMIT = 16
"""Nesting of a value that an unknown field may have; known fields are as deep as their declaration."""


class RefusedError(ValueError):
    """Internal: a value that does not fit its declaration. The codec turns it into a ProtocolError."""


def refuse_deep(values: Iterable[Any]) -> None:
    """Refuse values nested deeper than DEPTH_LIMIT; walks level by level, without recursion.

    Raises:
        RefusedError: There are more levels.
    """
    level = [value for value in values if type(value) in (dict, list)]
    for _ in range(DEPTH_LIMIT):
        if not level:
            return
        inner: list[Any] = []
        for value in level:
            inner.extend(value.values() if type(value) is dict else value)
        level = [value for value in inner if type(value) in (dict, list)]
    raise RefusedError(f"nested deeper than {DEPTH_LIMIT} levels")


def of_type(expected: type, value: Any) -> Any:
    """The value, if it is of this very type."""
    if type(value) is not expected:
        raise RefusedError(f"{expected.__name__} expected, not {type(value).__name__}")
    return value


def _boolean(value: Any) -> bool:
    return typing.cast("bool", of_type(bool, value))


def _integer(value: Any) -> int:
    if type(value) is not int:  # bool is an int to isinstance, not here
        raise RefusedError(f"int expected, not {type(value).__name__}")
    if not 0 <= value < INT_LIMIT:
        raise RefusedError("an integer in 0 .. 2^63-1 expected")
    return value


def integers(expected: type, result: type) -> Callable[[Any], Any]:
    """A check of many integers at once; makes a `result` of an `expected`."""

    def convert(value: Any) -> Any:
        of_type(expected, value)
        if value and (set(map(type, value)) != {int} or min(value) < 0 or max(value) >= INT_LIMIT):
            raise RefusedError("only integers in 0 .. 2^63-1 expected")
        return result(value)

    return convert


def _number(value: Any) -> float:
    if type(value) is not float:  # numpy's float64 is one; a whole number of seconds may be an int
        if not isinstance(value, float) and (type(value) is not int or abs(value) >= INT_LIMIT):
            raise RefusedError(f"float expected, not {type(value).__name__}")
        value = float(value)
    if not math.isfinite(value):
        raise RefusedError("a finite number expected")
    return typing.cast("float", value)


def text(value: Any) -> str:
    """The value, if it is text."""
    return typing.cast("str", of_type(str, value))


def _identifier(value: Any) -> bytes:
    if type(value) is not bytes or len(value) != ID_BYTES:
        raise RefusedError(f"{ID_BYTES} bytes expected")
    return value


def identifier_or_empty(value: Any) -> bytes:
    """The value, if it is an id or no bytes at all."""
    return b"" if value == b"" and type(value) is bytes else _identifier(value)


SCALARS: dict[Any, Callable[[Any], Any]] = {
    bool: _boolean,
    int: _integer,
    float: _number,
    str: text,
    bytes: _identifier,
}
