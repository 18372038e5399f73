"""The bytes of every released minor version stay readable, and this version still writes them.

A file holds the frames of one message, each behind its length (4 bytes, big-endian). Files of a released
version are never changed. `SUSURRUS_WRITE_GOLDEN=1` writes the missing ones, for a new message or a new minor
version.
"""

from __future__ import annotations

import dataclasses
import os
import struct
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgpack  # type: ignore[import-untyped]  # ships no types
import pytest

from susurrus.protocol import VERSION, Message, codec, decode, encode
from susurrus.protocol.messages import message_types

if TYPE_CHECKING:
    from collections.abc import Callable

GOLDEN = Path(__file__).parent / "golden"
ID = bytes(range(0xA0, 0xB0))
PARENT = bytes(range(0xB0, 0xC0))
INSTANCE = bytes(range(0xF0, 0x100))
SENT_NS = 1_700_000_000_123_456_789
FILES = sorted(GOLDEN.glob("*/*.frames"))


def read_frames(path: Path) -> list[bytes]:
    data, frames = path.read_bytes(), []
    while data:
        (size,) = struct.unpack_from(">I", data)
        frames.append(data[4 : 4 + size])
        data = data[4 + size :]
    return frames


def as_sent(value: Any, minor: int) -> Any:
    """A message as a peer of that minor version sent it: what came later has its default."""
    if isinstance(value, tuple):
        return tuple(as_sent(item, minor) for item in value)
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return value
    kept = {
        field.name: as_sent(getattr(value, field.name), minor)
        for field in dataclasses.fields(value)
        if field.metadata.get("since", 0) <= minor
    }
    return type(value)(**kept)


@pytest.fixture
def golden_frames(monkeypatch: pytest.MonkeyPatch) -> Callable[[Message], list[bytes]]:
    """Frames as the golden files have them: nothing random, nothing of the clock."""
    monkeypatch.setattr(codec, "new_id", lambda: ID)
    monkeypatch.setattr(time, "time_ns", lambda: SENT_NS)
    return lambda message: [
        bytes(frame) for frame in encode(message, sender="tester", instance=INSTANCE, parent=PARENT)
    ]


def test_this_version_writes_the_golden_bytes(sample: Message, golden_frames: Callable[[Message], list[bytes]]) -> None:
    path = GOLDEN / VERSION / f"{sample.TYPE}.frames"
    frames = golden_frames(sample)
    if not path.exists() and os.environ.get("SUSURRUS_WRITE_GOLDEN") == "1":
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"".join(struct.pack(">I", len(frame)) + frame for frame in frames))
    assert read_frames(path) == frames


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_the_golden_bytes_of_every_version_are_understood(
    path: Path, samples: dict[str, Message], plain: Callable[[Message], dict[str, Any]]
) -> None:
    received = decode(read_frames(path))
    minor = received.header.minor
    assert plain(received.message) == plain(as_sent(samples[path.stem], minor))
    assert (received.header.sender, received.header.parent, received.header.id) == ("tester", PARENT, ID)
    assert f"{codec.MAJOR}.{minor}" == path.parent.name


def test_every_type_of_this_version_has_golden_bytes_and_nothing_else_has() -> None:
    assert {path.stem for path in (GOLDEN / VERSION).iterdir()} == message_types().keys()


def test_a_partial_is_laid_out_as_the_specification_says() -> None:
    """Read with nothing but struct and msgpack, against values written out here."""
    tag, header, body = read_frames(GOLDEN / "1.0" / "partial.frames")
    assert tag == b"SUSU01"
    assert msgpack.unpackb(header) == {
        "type": "partial",
        "id": ID,
        "parent": PARENT,
        "sender": "tester",
        "instance": INSTANCE,
        "minor": 0,
        "sent_ns": SENT_NS,
        "job": bytes(range(16)),
        "window": 2,
        "attempt": 1,
        "seq": 9,
    }
    assert msgpack.unpackb(body) == {
        "start": 60.0,
        "end": 89.5,
        "text": "And so, my fellow 🌍",
        "stable": 8,
        "tokens": [400, 370, 11, 452, 7177],
    }


def test_an_array_is_laid_out_as_the_specification_says() -> None:
    _, header, body, buffer = read_frames(GOLDEN / "1.0" / "features.frames")
    assert msgpack.unpackb(header)["arrays"] == [{"dtype": "<f4", "shape": [2, 3]}]
    assert msgpack.unpackb(body)["options"] == {
        "language": "de",
        "task": "translate",
        "prompt": "Grüße, 世界",
    }
    assert struct.unpack("<6f", buffer) == (0.0, 1.0, 2.0, 3.0, 4.0, 5.0)


def test_a_terminal_event_inside_a_snapshot_names_its_type() -> None:
    body = msgpack.unpackb(read_frames(GOLDEN / "1.0" / "snapshot.frames")[2])
    assert [job["end"] and job["end"]["type"] for job in body["jobs"]] == [None, "done"]
    assert body["jobs"][0]["partial"]["seq"] == 9
