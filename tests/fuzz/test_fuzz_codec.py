"""Messages with any values travel; frames with any bytes are refused or sound, and cost memory like their size."""

from __future__ import annotations

import random
import struct
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from susurrus.protocol import ProtocolError, decode, encode
from tests.fuzz.codec import GOLDEN, check, check_memory, generate, join, plain, split
from tests.fuzz.frames import lying_map
from tests.fuzz.messages import IDS, TEXTS, TYPES, messages

if TYPE_CHECKING:
    from pathlib import Path

    from susurrus.protocol import Message

steady = settings(
    derandomize=True,
    deadline=None,
    max_examples=25,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
PARTS, INPUTS = 6, 1000
NEWEST = max(path.parent.name for path in GOLDEN)


def each(paths: list[Path]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("path", paths, ids=[f"{path.parent.name}-{path.stem}" for path in paths])


@pytest.mark.parametrize("name", sorted(TYPES))
def test_any_message_comes_out_as_it_went_in(name: str) -> None:
    @steady
    @given(messages(name), TEXTS, IDS, st.just(b"") | IDS)
    def travels(message: Message, sender: str, instance: bytes, parent: bytes) -> None:
        frames = encode(message, sender=sender, instance=instance, parent=parent)
        received = decode([bytes(frame) for frame in frames])
        assert type(received.message) is type(message)
        assert repr(plain(received.message)) == repr(plain(message))  # as text: 1 == 1.0, but is another type
        header = received.header
        assert (header.sender, header.instance, header.parent) == (sender, instance, parent)

    travels()


@each(GOLDEN)
def test_every_truncation_of_a_golden_message_is_refused(path: Path) -> None:
    frames = split(path.read_bytes())
    assert check(join(frames)) == "accepted"
    for index, frame in enumerate(frames):
        for size in range(len(frame)):
            for rest in ([], frames[index + 1 :]):
                assert check(join([*frames[:index], frame[:size], *rest])) != "accepted"


@each([path for path in GOLDEN if path.parent.name == NEWEST and path.stem in {"ping", "partial", "features"}])
def test_every_flipped_bit_of_a_golden_header_is_refused_or_sound(path: Path) -> None:
    frames = split(path.read_bytes())
    for bit in range(8 * len(frames[1])):
        flipped = bytearray(frames[1])
        flipped[bit // 8] ^= 1 << bit % 8
        check(join([frames[0], bytes(flipped), *frames[2:]]))


@pytest.mark.parametrize("part", range(PARTS))
def test_damaged_frames_are_refused_or_sound(part: int) -> None:
    dice = random.Random(part)  # noqa: S311  seeded on purpose
    for _ in range(INPUTS):
        check(generate(dice))


@pytest.mark.parametrize("part", range(PARTS))
def test_a_message_costs_memory_in_proportion_to_its_bytes(part: int) -> None:
    dice = random.Random(100 + part)  # noqa: S311  seeded on purpose
    for _ in range(INPUTS // 20):
        check_memory(generate(dice))
        check_memory(join([*split(GOLDEN[part].read_bytes())[:2], lying_map(10_000, dice)]))


@pytest.mark.parametrize("head", [b"\xdd", b"\xdf"], ids=["lists", "maps"])
@pytest.mark.parametrize("index", [1, 2], ids=["header", "body"])
def test_nested_containers_that_claim_more_than_there_is_cost_nothing(head: bytes, index: int) -> None:
    """The parser makes room for every claimed element before it looks for the first one."""
    size = 4000 if index == 1 else 60_000
    frames = split(GOLDEN[0].read_bytes())
    claimed = head + struct.pack(">I", size // 2 - 200) + (b"\xa1a" if head == b"\xdf" else b"")
    frames[index] = (b"\x81\xa1x" + claimed * (size // len(claimed)))[:size]
    with pytest.raises(ProtocolError, match="bad_"):
        decode(frames)
    check_memory(join(frames))


def test_the_dearest_body_stays_in_the_bound() -> None:
    """An empty map is the largest thing that one byte can say."""
    frames = split(GOLDEN[0].read_bytes())
    frames[2] = b"\x81\xa1x\xdd" + struct.pack(">I", 50_000) + b"\x80" * 50_000
    check_memory(join(frames))
