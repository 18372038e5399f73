"""Messages of every type with any values that their declarations allow."""

from __future__ import annotations

import dataclasses
import types
import typing
from typing import Any

from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from susurrus.protocol import Float32Array
from susurrus.protocol.checks import ID_BYTES, INT_LIMIT
from susurrus.protocol.messages import message_types
from susurrus.protocol.schema import MAY_BE_EMPTY

if typing.TYPE_CHECKING:
    from susurrus.protocol import Message

TYPES = message_types()
IDS = st.binary(min_size=ID_BYTES, max_size=ID_BYTES)
TEXTS = st.text(max_size=20)
"""Any Unicode text; lone surrogates are not text."""
_SCALARS: dict[Any, st.SearchStrategy[Any]] = {
    bool: st.booleans(),
    int: st.integers(0, INT_LIMIT - 1),
    float: st.floats(allow_nan=False, allow_infinity=False),
    str: TEXTS,
    bytes: IDS,
    types.NoneType: st.none(),
}


def messages(name: str) -> st.SearchStrategy[Message]:
    """Messages of one type, by its name on the wire."""
    return typing.cast("st.SearchStrategy[Message]", _instances(TYPES[name]))


def _instances(declaration: type) -> st.SearchStrategy[Any]:
    hints = typing.get_type_hints(declaration)
    names = [field.name for field in dataclasses.fields(declaration)]
    return st.builds(declaration, **{name: _values(declaration.__name__, name, hints[name]) for name in names})


def _values(owner: str, name: str, hint: Any) -> st.SearchStrategy[Any]:
    return st.just(b"") | IDS if (owner, name) in MAY_BE_EMPTY else _of_hint(hint)


def _of_hint(hint: Any) -> st.SearchStrategy[Any]:
    """Values of a type hint, read anew here and not by the codec's plans."""
    if hint in _SCALARS:
        return _SCALARS[hint]
    if dataclasses.is_dataclass(hint):
        return _instances(typing.cast("type", hint))
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Float32Array:
        shapes = arrays.array_shapes(min_dims=1, max_dims=4, max_side=5)
        return arrays.arrays("<f4", shapes, elements=st.floats(width=32))
    if origin is tuple:
        return st.lists(_of_hint(arguments[0]), max_size=3).map(tuple)
    if origin is dict:
        return st.dictionaries(TEXTS, _of_hint(arguments[1]), max_size=3)
    return st.one_of([_of_hint(argument) for argument in arguments])  # a union
