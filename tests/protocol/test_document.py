"""docs/protocol.md, the code and the golden files say the same."""

from __future__ import annotations

import dataclasses
import inspect
import re
import types
import typing
from pathlib import Path
from typing import Any

import pytest

import susurrus.protocol
from susurrus.protocol import (
    VERSION,
    ActorStatus,
    Cue,
    Float32Array,
    JobState,
    SendPort,
    Span,
    TranscribeOptions,
    Word,
    arrays,
    codec,
    connection,
    lines,
    packing,
    ports,
    publishing,
)
from susurrus.protocol.messages import message_types
from susurrus.protocol.schema import HEADER_FIELDS

ROOT = Path(__file__).parents[2]
DOCUMENT = (ROOT / "docs" / "protocol.md").read_text(encoding="utf-8")
NESTED = (SendPort, TranscribeOptions, JobState, Span, Word, Cue, ActorStatus)
TYPES: dict[str, type] = {**message_types(), **{declaration.__name__: declaration for declaration in NESTED}}
NAMES: dict[Any, str] = {str: "text", int: "int", float: "float", bool: "bool", bytes: "id", types.NoneType: "null"}


def chapter(title: str) -> str:
    found = re.search(rf"^## \d+\. {title}\n(.*?)(?=^## |\Z)", DOCUMENT, re.DOTALL | re.MULTILINE)
    assert found is not None
    return found[1]


def rows(text: str) -> list[list[str]]:
    """Cells of every table row that begins with a name in backticks."""
    lines = [line for line in text.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def sections() -> dict[str, str]:
    """Text below each heading of the chapter about messages."""
    parts = re.split(r"^### (.+)\n", chapter("Messages"), flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def heading(declaration: type) -> str:
    name = getattr(declaration, "TYPE", None)
    return declaration.__name__ + (f" `{name}`" if name else "")


def type_name(hint: Any) -> str:
    """A type as the document writes it."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint in NAMES:
        return NAMES[hint]
    if hint is Float32Array:
        return "float32 array"
    if origin is tuple:
        return f"list of {type_name(arguments[0])}"
    if origin is dict:
        return f"map of {type_name(arguments[1])}"
    return " or ".join(map(type_name, arguments)) if arguments else hint.__name__


def place(declaration: type, name: str, hint: Any) -> str:
    if not hasattr(declaration, "TYPE"):
        return "map"
    if hint is Float32Array:
        return "buffer"
    return "header" if name in HEADER_FIELDS else "body"


def test_the_version_is_the_same_in_document_changelog_code_and_golden_files() -> None:
    assert re.findall(r"^Version: \*\*(.+)\*\*$", DOCUMENT, re.MULTILINE) == [VERSION]
    changes = re.findall(r"^### (\d+\.\d+)$", chapter("Changelog"), re.MULTILINE)
    assert changes[0] == VERSION
    golden = {path.name for path in (ROOT / "tests" / "protocol" / "golden").iterdir()}
    assert golden == {version for version in changes if version.startswith(f"{codec.MAJOR}.")}
    assert codec.TAG.decode() in chapter("Frames")
    assert f"`{VERSION}`" in chapter("The connection file")


def test_every_message_has_its_section_and_every_section_its_message() -> None:
    assert sections().keys() == {heading(declaration) for declaration in TYPES.values()}


@pytest.mark.parametrize("name", sorted(TYPES))
def test_every_field_is_documented_with_its_type_and_place_in_order(name: str) -> None:
    declaration: Any = TYPES[name]
    hints = typing.get_type_hints(declaration)
    documented = [tuple(row[:3]) for row in rows(sections()[heading(declaration)])]
    assert documented == [
        (f"`{field.name}`", type_name(hints[field.name]), place(declaration, field.name, hints[field.name]))
        for field in dataclasses.fields(declaration)
    ]


@pytest.mark.parametrize("name", sorted(message_types()))
def test_every_message_says_who_sends_it_and_is_in_the_overview(name: str) -> None:
    message = message_types()[name]
    text = sections()[heading(message)].strip()
    assert re.match(r"(Actor|Client|Hub|Frontend|Encoder|Decoder|Anybody|Published)", text)
    assert re.search(rf"(->|=>).*\b{message.__name__}\b", chapter("Who talks to whom"))


def test_every_header_field_is_documented_in_order() -> None:
    own = [field.name for field in dataclasses.fields(codec.Header)]
    documented = [row[0].strip("`") for row in rows(chapter("Frames"))]
    assert documented == [*own, *HEADER_FIELDS, "arrays"]


def test_every_field_of_the_connection_file_is_documented(tmp_path: Path) -> None:
    transport = susurrus.protocol.Transport("ipc", tmp_path)
    written = connection.Connection(1, bytes(16), "", "", transport, 0.0)._to_json()
    assert [row[0].strip("`") for row in rows(chapter("The connection file"))] == list(written)


def test_every_limit_is_documented() -> None:
    text = chapter("Limits")
    for limit in (
        f"| header | {codec.MAX_HEADER_BYTES // 1024} KiB |",
        f"| body | {codec.MAX_BODY_BYTES // 1024} KiB |",
        f"| body of `partial`, `segment`, `done`, `snapshot` | {codec.MAX_TEXT_BODY_BYTES // 1024} KiB |",
        f"| one buffer | {codec.MAX_ARRAY_BYTES // 1024} KiB |",
        f"| buffers | {codec.MAX_ARRAYS} |",
        f"| frames, without topic or routing id | {codec.MAX_FRAMES} |",
        f"| maps and lists in one header or body | {packing.MAX_CONTAINERS} |",
        f"| topic | {publishing.MAX_TOPIC_BYTES} bytes |",
        f"| queue of a data path (high-water mark, each side) | {ports.DATA_HWM} messages |",
        f"| queue of a hub's line | {ports.CONTROL_HWM} messages |",
        f"| queue of a subscriber | {ports.EVENT_HWM} messages, then events are dropped |",
    ):
        assert limit in text
    assert {"partial", "segment", "done", "snapshot"} == codec.TEXT_TYPES


def test_every_error_code_is_documented_and_every_documented_one_exists() -> None:
    source = "".join(map(inspect.getsource, (codec, arrays, lines)))
    used = set(re.findall(r'ProtocolError\(\s*"(\w+)"', source)) | set(re.findall(r'unpack_map\([^"]+"(\w+)"', source))
    assert {row[0].strip("`") for row in rows(chapter("Errors"))} == used


def test_the_bytes_shown_are_the_golden_ones() -> None:
    data = (ROOT / "tests" / "protocol" / "golden" / "1.0" / "partial.frames").read_bytes()
    for shown in re.findall(r"^    frame \d   ((?:[0-9a-f]{2} )+)", chapter("Frames"), re.MULTILINE):
        assert bytes.fromhex(shown) in data


def test_every_public_name_is_exported_once() -> None:
    names = susurrus.protocol.__all__
    public = {
        name
        for name, value in vars(susurrus.protocol).items()
        if not name.startswith("_") and not inspect.ismodule(value)
    }
    assert sorted(names) == sorted(public)
