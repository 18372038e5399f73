"""What an ONNX file is made of, its weights unread: whether it is whole, and which operators it has.

The `onnx` package would read all of it, hundreds of megabytes. Numbers of fields: `onnx/onnx.proto`; encoding:
https://protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from susurrus.models.errors import ModelError

_MODEL_GRAPH = 7
_GRAPH_NODE, _GRAPH_INITIALIZER = 1, 5
_NODE_OPERATOR, _NODE_ATTRIBUTE = 4, 5
_ATTRIBUTE_GRAPHS = (6, 11)
_TENSOR_EXTERNAL_DATA = 13
_ENTRY_KEY, _ENTRY_VALUE = 1, 2

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # wire types
_WIDTHS = {_FIXED64: 8, _FIXED32: 4}

_Span = tuple[int, int]  # from byte, to byte


@dataclass(slots=True)
class Outline:
    """What was found in one ONNX file."""

    operators: set[str] = field(default_factory=set)
    """Operator types, those of subgraphs included."""
    external: set[str] = field(default_factory=set)
    """Files beside this one that hold weights of it."""


def read_outline(path: Path) -> Outline:
    """Walks through an ONNX file.

    Raises:
        ModelError: The file cannot be read, is cut off, or is no ONNX file.
    """
    outline = Outline()
    try:
        with path.open("rb") as file, closing(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)) as data:
            graphs = [span for number, span in _fields(data, (0, len(data))) if number == _MODEL_GRAPH]
            for graph in graphs:
                _walk(data, graph, outline)
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:  # an empty file cannot be mapped, and says so by a ValueError too
        raise ModelError(f"{path} is not a whole ONNX file ({error}): copy or export it again") from error
    if not outline.operators:
        raise ModelError(f"{path} is not a whole ONNX file (it has no graph): copy or export it again")
    return outline


def _walk(data: mmap.mmap, graph: _Span, outline: Outline) -> None:
    """Adds what one graph has."""
    for number, span in _fields(data, graph):
        if number == _GRAPH_NODE:
            _walk_node(data, span, outline)
        elif number == _GRAPH_INITIALIZER:
            entries = [entry for part, entry in _fields(data, span) if part == _TENSOR_EXTERNAL_DATA]
            for entry in ({part: _text(data, text) for part, text in _fields(data, entry)} for entry in entries):
                if entry.get(_ENTRY_KEY) == "location":
                    outline.external.add(entry.get(_ENTRY_VALUE, ""))


def _walk_node(data: mmap.mmap, node: _Span, outline: Outline) -> None:
    """Adds an operator, and what its subgraphs have."""
    for part, span in _fields(data, node):
        if part == _NODE_OPERATOR:
            outline.operators.add(_text(data, span))
        elif part == _NODE_ATTRIBUTE:
            for kind, subgraph in _fields(data, span):
                if kind in _ATTRIBUTE_GRAPHS:
                    _walk(data, subgraph, outline)


def _fields(data: mmap.mmap, span: _Span) -> Iterator[tuple[int, _Span]]:
    """Number and content of every field that holds bytes; the others are passed over.

    Raises:
        ValueError: A field goes beyond the end, or is of a kind that does not exist.
    """
    position, end = span
    while position < end:
        tag, position = _varint(data, position, end)
        number, kind = tag >> 3, tag & 7
        if kind == _VARINT:
            _, position = _varint(data, position, end)
            continue
        if kind == _BYTES:
            length, position = _varint(data, position, end)
        elif kind in _WIDTHS:
            length = _WIDTHS[kind]
        else:
            raise ValueError(f"field {number} has wire type {kind}")
        if position + length > end:
            raise ValueError(f"cut off: field {number} ends at byte {position + length} of {end}")
        if kind == _BYTES:
            yield number, (position, position + length)
        position += length


def _varint(data: mmap.mmap, position: int, end: int) -> tuple[int, int]:
    """A number of seven bits a byte, and where it ends."""
    value = shift = 0
    while position < end and shift < 64:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    raise ValueError(f"no number ends at byte {position}")


def _text(data: mmap.mmap, span: _Span) -> str:
    return data[slice(*span)].decode("utf-8", "replace")
