"""Plans made from the message dataclasses: the type hints are the only declaration and drive both directions.

A plan turns a message into plain values (None, bool, int, float, str, bytes, list, dict) and back, and checks
every value on both ways. It follows the declaration, never the data: a hostile message cannot choose how deep
it recurses. Nothing here knows msgpack or sockets. Reasons name fields and types, never contents, so they may
be logged.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from typing import TYPE_CHECKING, Any

from susurrus.protocol.checks import SCALARS, RefusedError, identifier_or_empty, integers, of_type, refuse_deep, text
from susurrus.protocol.records import record
from susurrus.protocol.values import Message

if TYPE_CHECKING:
    from collections.abc import Callable
    from collections.abc import Set as AbstractSet

HEADER_FIELDS = ("job", "window", "attempt", "seq")
"""Fields of a message that travel in the frame's header."""
MAY_BE_EMPTY = frozenset({("Rejected", "job"), ("Header", "parent")})
"""Ids that may be absent: a submit that could not be read names no job, and a first message has no parent."""

_MISSING = object()


@record
class Field:
    """One field: how its value becomes plain and how it comes back. Both raise RefusedError."""

    name: str
    pack: Callable[[Any], Any]
    unpack: Callable[[Any], Any]
    default: Callable[[], Any] | None = None
    """Makes the value of a field that a later minor version added, when an older peer does not send it."""

    def is_default(self, value: Any) -> bool:
        """Whether the receiver would put this value in; True is not 1 here."""
        if self.default is None:
            return False
        default = self.default()
        return type(value) is type(default) and bool(value == default)


@record
class Plan:
    """How one message type travels."""

    message: type[Message]
    header: tuple[Field, ...]
    body: tuple[Field, ...]
    arrays: tuple[tuple[str, str], ...]
    """Name and dtype (numpy's little-endian string, `<f4`) of each array field."""


def plan_of(message: type[Message]) -> Plan:
    """The plan of one message type.

    Raises:
        TypeError: The declaration has a type that cannot travel.
    """
    dtypes = {name: _array_dtype(hint) for name, hint in _hints(message).items()}
    fields = fields_of(message, without={name for name, dtype in dtypes.items() if dtype is not None})
    return Plan(
        message,
        header=tuple(field for field in fields if field.name in HEADER_FIELDS),
        body=tuple(field for field in fields if field.name not in HEADER_FIELDS),
        arrays=tuple((name, dtype) for name, dtype in dtypes.items() if dtype is not None),
    )


def fields_of(declaration: type, *, without: AbstractSet[str] = frozenset()) -> tuple[Field, ...]:
    """Every field of a dataclass but those in `without`, in order.

    Raises:
        TypeError: The declaration has a type that cannot travel.
    """
    defaults = {field.name: _default(field) for field in dataclasses.fields(declaration)}
    return tuple(
        Field(name, identifier_or_empty, identifier_or_empty)
        if (declaration.__name__, name) in MAY_BE_EMPTY
        else Field(name, *_converters(hint), defaults[name])
        for name, hint in _hints(declaration).items()
        if name not in without
    )


def pack_fields(fields: tuple[Field, ...], value: object) -> dict[str, Any]:
    """Plain values of the fields of a dataclass instance.

    Left out is what a later minor version added and has its default: the receiver puts that in.

    Raises:
        RefusedError: A field's value does not fit its declaration.
    """
    packed = {}
    name = ""
    try:
        for field in fields:
            name = field.name
            given = getattr(value, name)
            if not field.is_default(given):
                packed[name] = field.pack(given)
    except RefusedError as error:
        raise RefusedError(f"{name}: {error}") from None
    return packed


def unpack_fields(fields: tuple[Field, ...], packed: dict[str, Any]) -> dict[str, Any]:
    """The fields' values out of a received map; what else the map has is ignored (a newer minor version).

    Raises:
        RefusedError: A field is missing or its value does not fit its declaration.
    """
    values = {}
    name = ""
    try:
        for field in fields:
            name = field.name
            if field.default is not None and name not in packed:
                values[name] = field.default()
            else:
                values[name] = field.unpack(packed.get(name, _MISSING))
    except RefusedError as error:
        if name not in packed:
            raise RefusedError(f"{name}: missing") from None
        raise RefusedError(f"{name}: {error}") from None
    return values


# --- from hints to converters -------------------------------------------------------------------------------


def _hints(declaration: type) -> dict[str, Any]:
    """Name and resolved hint of every field, in order."""
    hints = typing.get_type_hints(declaration)
    return {field.name: hints[field.name] for field in dataclasses.fields(declaration)}


def _default(field: dataclasses.Field[Any]) -> Callable[[], Any] | None:
    """Makes the default of a field that came with a minor version; None for one that has always been there."""
    if "since" not in field.metadata:
        return None
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory
    return lambda: field.default


def _array_dtype(hint: Any) -> str | None:
    """`<f4` for Float32Array; None for what is no array."""
    return getattr(hint, "dtype", None)


def _converters(hint: Any) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """(pack, unpack) of one hint."""
    if hint in SCALARS:
        check = SCALARS[hint]
        return check, check
    if dataclasses.is_dataclass(hint):
        return _nested(typing.cast("type", hint))
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is tuple and len(arguments) == 2 and arguments[1] is ...:
        return _sequence(arguments[0])
    if origin is dict and arguments[0] is str:
        return _mapping(arguments[1])
    if origin in (types.UnionType, typing.Union):
        return _union(arguments)
    raise TypeError(f"{hint!r} cannot travel in a message")


def _union(arguments: tuple[Any, ...]) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """Converters of `X | None`, `A | B` and `A | B | None`; A and B are messages."""
    members = [member for member in arguments if member is not types.NoneType]
    pack, unpack = _converters(members[0]) if len(members) == 1 else _one_of(members)
    if len(members) == len(arguments):
        return pack, unpack
    return (
        lambda value: None if value is None else pack(value),
        lambda value: None if value is None else unpack(value),
    )


def _one_of(members: list[type[Message]]) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """Converters of a union of messages; the map has one more entry, `type`, that tells which."""
    by_class = {member: _nested(member)[0] for member in members}
    by_name = {member.TYPE: _nested(member)[1] for member in members}
    names = ", ".join(by_name)

    def pack(value: Any) -> dict[str, Any]:
        if type(value) not in by_class:
            raise RefusedError(f"one of {names} expected, not {type(value).__name__}")
        packed: dict[str, Any] = by_class[type(value)](value)
        return {"type": value.TYPE} | packed

    def unpack(value: Any) -> Any:
        name = value.get("type") if type(value) is dict else None
        if type(name) is not str or name not in by_name:
            raise RefusedError(f"one of {names} expected")
        return by_name[name](value)

    return pack, unpack


def _nested(declaration: type) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """Converters of a dataclass inside a message: a map of all its fields, HEADER_FIELDS included."""
    fields = fields_of(declaration)

    def pack(value: Any) -> dict[str, Any]:
        if type(value) is not declaration:
            raise RefusedError(f"{declaration.__name__} expected, not {type(value).__name__}")
        return pack_fields(fields, value)

    def unpack(value: Any) -> Any:
        if type(value) is not dict:
            raise RefusedError(f"a map expected, not {type(value).__name__}")
        values = unpack_fields(fields, value)
        refuse_deep(value[name] for name in value.keys() - values.keys())
        return declaration(**values)

    return pack, unpack


def _sequence(hint: Any) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """Converters of `tuple[X, ...]`; an array on the wire."""
    if hint is int:  # token ids, in every partial: two passes in C instead of one call per id
        return integers(tuple, list), integers(list, tuple)
    pack_item, unpack_item = _converters(hint)

    def pack(value: Any) -> list[Any]:
        return [pack_item(item) for item in of_type(tuple, value)]

    def unpack(value: Any) -> tuple[Any, ...]:
        return tuple([unpack_item(item) for item in of_type(list, value)])

    return pack, unpack


def _mapping(hint: Any) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """Converters of `dict[str, X]`."""
    pack_item, unpack_item = _converters(hint)

    def pack(value: Any) -> dict[str, Any]:
        return {text(key): pack_item(item) for key, item in of_type(dict, value).items()}

    def unpack(value: Any) -> dict[str, Any]:
        return {text(key): unpack_item(item) for key, item in of_type(dict, value).items()}

    return pack, unpack
