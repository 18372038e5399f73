"""Whatever arrives, `decode` raises ProtocolError or gives a sound message, and nothing else happens."""

from __future__ import annotations

import dataclasses
import random
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgpack  # type: ignore[import-untyped]  # ships no types
import pytest

from susurrus.protocol import Message, ProtocolError, SendPort, codec, decode
from susurrus.protocol.schema import plan_of

if TYPE_CHECKING:
    from collections.abc import Callable

FLIPS = 300


def refusal(frames: list[Any]) -> ProtocolError:
    with pytest.raises(ProtocolError) as caught:
        decode(frames)
    assert "\n" not in str(caught.value)
    return caught.value


def test_every_truncation_is_refused(sample: Message, frames_of: Callable[..., list[Any]]) -> None:
    frames = frames_of(sample)
    for index, frame in enumerate(frames):
        for size in range(len(frame)):
            refusal([*frames[:index], frame[:size]])
            refusal([*frames[:index], frame[:size], *frames[index + 1 :]])


def test_a_missing_or_doubled_frame_is_refused(sample: Message, frames_of: Callable[..., list[Any]]) -> None:
    frames = frames_of(sample)
    for index, frame in enumerate(frames):
        refusal(frames[:index] + frames[index + 1 :])
        refusal([*frames[:index], frame, *frames[index:]])


def test_flipped_bits_raise_nothing_but_protocol_errors(sample: Message, frames_of: Callable[..., list[Any]]) -> None:
    dice = random.Random(sample.TYPE)  # noqa: S311  seeded on purpose
    clean = frames_of(sample)
    for _ in range(FLIPS):
        frames = [bytearray(frame) for frame in clean]
        for _ in range(dice.randint(1, 4)):
            frame = dice.choice(frames[1:])
            frame[dice.randrange(len(frame))] ^= 1 << dice.randrange(8)
        with suppress(ProtocolError):
            assert isinstance(decode([bytes(frame) for frame in frames]).message, type(sample) | Message)


def test_random_frames_raise_nothing_but_protocol_errors() -> None:
    dice = random.Random(27)  # noqa: S311  seeded on purpose
    for _ in range(3000):
        frames = [dice.randbytes(dice.randrange(60)) for _ in range(dice.randrange(9))]
        refusal(frames)
        if len(frames) > 2:
            refusal([codec.TAG, *frames[1:]])


@pytest.mark.parametrize(
    ("tag", "code"),
    [
        (b"SUSU02", "version"),
        (b"SUSU00", "version"),
        (b"SUSU99", "version"),
        (b"SUSUxx", "bad_tag"),
        (b"susu01", "bad_tag"),
        (b"MDPW01", "bad_tag"),
        (b"SUSU1", "bad_tag"),
        (b"", "bad_tag"),
        (b"SUSU011", "too_large"),
    ],
)
def test_another_protocol_or_major_version_is_told_apart(
    tag: bytes, code: str, frames_of: Callable[..., list[Any]], samples: dict[str, Message]
) -> None:
    error = refusal([tag, *frames_of(samples["ping"])[1:]])
    assert error.code == code
    if tag == b"SUSU02":
        assert "2.x" in str(error)
        assert codec.VERSION in str(error)


def test_the_tag_is_checked_before_anything_is_unpacked(
    monkeypatch: pytest.MonkeyPatch, frames_of: Callable[..., list[Any]], samples: dict[str, Message]
) -> None:
    frames = frames_of(samples["ping"])
    monkeypatch.setattr(msgpack, "unpackb", lambda *_a, **_k: pytest.fail("unpacked"))
    refusal([b"SUSU02", *frames[1:]])


def test_a_newer_minor_version_with_more_fields_is_understood(
    sample: Message, frames_of: Callable[..., list[Any]], plain: Callable[[Message], Any]
) -> None:
    more = {"mood": {"deep": [1, {"er": None}]}}
    received = decode(frames_of(sample, header={"minor": 9, **more}, body=more))
    assert plain(received.message) == plain(sample)
    assert received.header.minor == 9


def test_every_missing_field_is_refused_but_those_an_older_peer_does_not_know(
    sample: Message, frames_of: Callable[..., list[Any]]
) -> None:
    plan = plan_of(type(sample))
    later = {field.name: field for field in dataclasses.fields(type(sample)) if "since" in field.metadata}  # type: ignore[arg-type]
    for field in plan.header:
        assert refusal(frames_of(sample, header={field.name: ...})).code == "bad_header"
    for field in plan.body:
        if field.name in later:
            message = decode(frames_of(sample, body={field.name: ...})).message
            absent = later[field.name]
            default = absent.default if absent.default is not dataclasses.MISSING else {}
            assert getattr(message, field.name) == default
            continue
        error = refusal(frames_of(sample, body={field.name: ...}))
        assert error.code == "bad_body"
        assert f"{field.name}: missing" in str(error)


@pytest.mark.parametrize("name", ["type", "id", "parent", "sender", "instance", "minor", "sent_ns"])
def test_every_missing_header_field_is_refused(
    name: str, frames_of: Callable[..., list[Any]], samples: dict[str, Message]
) -> None:
    assert refusal(frames_of(samples["ping"], header={name: ...})).code == "bad_header"


WRONG = [None, True, -1, 2**63, 0.5, float("nan"), float("inf"), "x", b"x", [], {}, [None], {"a": 1}]


@pytest.mark.parametrize("value", WRONG, ids=repr)
def test_a_field_of_the_wrong_type_is_refused_or_sound(
    value: object, sample: Message, frames_of: Callable[..., list[Any]]
) -> None:
    """A value that happens to fit the declaration must come out as exactly that value."""
    plan = plan_of(type(sample))
    for part, fields in (("header", plan.header), ("body", plan.body)):
        for field in fields:
            try:
                message = decode(frames_of(sample, **{part: {field.name: value}})).message
            except ProtocolError:
                continue
            got = getattr(message, field.name)
            assert (list(got) if isinstance(got, tuple) else got) == value
            assert type(got) is type(value) or isinstance(got, (tuple, float))


@pytest.mark.parametrize("value", [True, 1.0, -1, 2**63, "1", None])
def test_an_integer_must_be_an_integer(
    value: object, frames_of: Callable[..., list[Any]], samples: dict[str, Message]
) -> None:
    assert refusal(frames_of(samples["ping"], body={"number": value})).code == "bad_body"
    assert refusal(frames_of(samples["partial"], header={"window": value})).code == "bad_header"
    assert refusal(frames_of(samples["partial"], body={"tokens": [1, value]})).code == "bad_body"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf"), True, "1", 2**63])
def test_a_time_must_be_a_finite_number(
    value: object, frames_of: Callable[..., list[Any]], samples: dict[str, Message]
) -> None:
    assert refusal(frames_of(samples["partial"], body={"start": value})).code == "bad_body"


@pytest.mark.parametrize(
    "body",
    [
        b"\x82\xa6number\x01\xa6number\x02",  # the same key twice
        b"\x82\xa6number\x01\xa1x\x82\xa1a\x01\xa1a\x02",  # the same key twice, inside an unknown field
        b"\x81\x01\x02",  # an int as key
        b"\x82\xa6number\x01\xc4\x01a\x02",  # bytes as key
        b"\x81\xa6number\xd4\x05a",  # extension type
        b"\x82\xa6number\x01\xa1x\xd6\xff\x00\x00\x00\x00",  # timestamp in an unknown field
        b"\x82\xa6number\x01\xa1x\xc7\x00\x05",  # empty extension in an unknown field
        b"\x82\xa6number\x01\xa1x" + b"\x91" * 500 + b"\xc0",  # 500 levels
        b"\x82\xa6number\x01\xa1x" + b"\x81\xa1a" * 500 + b"\xc0",
        b"\x82\xa6number\x01\xa1x" + b"\x91" * 5000 + b"\xc0",  # more than msgpack takes
        b"\xdf\xff\xff\xff\xff",  # claims 2^32-1 entries
        b"\xdd\xff\xff\xff\xff",
        b"\xc6\xff\xff\xff\xff",
        b"\x81\xa6number\x01\x00",  # a byte too many
        b"\x81\xa6number\xa1\xff",  # not UTF-8
        b"\x81\xa6number\xc1",  # the byte msgpack never uses
        b"\x91\x01",
        b"\x01",
        b"\xc0",
        b"",
    ],
    ids=lambda body: body[:24].hex(),
)
def test_msgpack_that_breaks_a_rule_is_refused(
    body: bytes, frames_of: Callable[..., list[Any]], samples: dict[str, Message]
) -> None:
    frames = frames_of(samples["ping"])
    assert refusal([*frames[:2], body]).code == "bad_body"
    assert refusal([frames[0], body, frames[2]]).code in ("bad_header", "too_large")


def test_a_deep_value_in_a_nested_map_is_refused_without_recursion(
    frames_of: Callable[..., list[Any]], samples: dict[str, Message]
) -> None:
    deep: list[Any] = []
    for _ in range(400):
        deep = [deep]
    options = {"language": None, "task": "transcribe", "prompt": "", "new": deep}
    assert refusal(frames_of(samples["submit"], body={"options": options})).code == "bad_body"
    assert refusal(frames_of(samples["submit"], header={"new": deep})).code == "bad_header"


def test_only_terminal_events_may_end_a_job(frames_of: Callable[..., list[Any]], samples: dict[str, Message]) -> None:
    jobs = msgpack.unpackb(frames_of(samples["snapshot"])[2])["jobs"]
    ends: list[Any] = [{"type": "ping", "number": 1}, {"type": ["done"]}, {}, [], {"type": "done"}]
    for end in ends:
        jobs[1]["end"] = end
        assert refusal(frames_of(samples["snapshot"], body={"jobs": jobs})).code == "bad_body"


def test_too_many_frames_are_refused_without_looking_at_them(
    frames_of: Callable[..., list[Any]], samples: dict[str, Message]
) -> None:
    assert refusal(frames_of(samples["ping"]) + [b""] * 100_000).code == "bad_frames"
    for count in range(3):
        assert refusal(frames_of(samples["ping"])[:count]).code == "bad_frames"


def test_an_oversized_frame_is_refused(frames_of: Callable[..., list[Any]], samples: dict[str, Message]) -> None:
    frames = frames_of(samples["features"])
    for index, size in ((1, codec.MAX_HEADER_BYTES), (2, codec.MAX_BODY_BYTES), (3, codec.MAX_ARRAY_BYTES)):
        large = [*frames[:index], memoryview(bytes(size + 1)), *frames[index + 1 :]]
        assert refusal(large).code == "too_large"


# --- arrays -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arrays",
    [
        [{"dtype": "<f4", "shape": [2, 4]}],
        [{"dtype": "<f4", "shape": [6, 1, 2]}],
        [{"dtype": "<f4", "shape": [-2, -3]}],
        [{"dtype": "<f4", "shape": [-1, 6]}],
        [{"dtype": "<f4", "shape": [2**62, 2**62]}],
        [{"dtype": "<f4", "shape": [2**63, 2, 3]}],
        [{"dtype": "<f4", "shape": [0, 6]}],
        [{"dtype": "<f4", "shape": [6, True]}],
        [{"dtype": "<f4", "shape": [6.0]}],
        [{"dtype": "<f4", "shape": []}],
        [{"dtype": "<f4", "shape": [6, 1, 1, 1, 1]}],
        [{"dtype": "<f4", "shape": 6}],
        [{"dtype": "<f4"}],
        [{"shape": [2, 3]}],
        [{"dtype": "O", "shape": [3]}],
        [{"dtype": "|O", "shape": [3]}],
        [{"dtype": ">f4", "shape": [2, 3]}],
        [{"dtype": "<f8", "shape": [3]}],
        [{"dtype": "<i4", "shape": [2, 3]}],
        [{"dtype": "float32", "shape": [2, 3]}],
        [{"dtype": ["<f4"], "shape": [2, 3]}],
        [{"dtype": None, "shape": [2, 3]}],
        [[2, 3]],
        [None],
        [],
        [{"dtype": "<f4", "shape": [2, 3]}] * 2,
        {"dtype": "<f4", "shape": [2, 3]},
        None,
        ...,
    ],
    ids=str,
)
def test_an_array_that_is_not_what_its_header_says_is_refused(
    arrays: object, frames_of: Callable[..., list[Any]], samples: dict[str, Message]
) -> None:
    assert refusal(frames_of(samples["features"], header={"arrays": arrays})).code == "bad_array"


def test_an_array_on_a_message_that_has_none_is_refused(
    frames_of: Callable[..., list[Any]], samples: dict[str, Message]
) -> None:
    frames = frames_of(samples["ping"], header={"arrays": [{"dtype": "<f4", "shape": [1]}]})
    assert refusal([*frames, bytes(4)]).code == "bad_array"
    assert refusal(frames).code == "bad_array"
    assert refusal([*frames_of(samples["ping"]), bytes(4)]).code == "bad_array"


# --- what an answer needs -----------------------------------------------------------------------------------


@pytest.mark.parametrize("reply_to", [None, {"endpoint": "", "instance": bytes(16)}], ids=["silent", "expected"])
def test_an_unknown_type_keeps_its_header_so_that_it_can_be_answered(
    reply_to: Any, frames_of: Callable[..., list[Any]], samples: dict[str, Message]
) -> None:
    error = refusal(frames_of(samples["ping"], header={"type": "shout", "reply_to": reply_to}))
    assert error.code == "unknown_type"
    assert error.header is not None
    assert error.header.type == "shout"
    assert error.header.reply_to == (None if reply_to is None else SendPort("", bytes(16)))


def test_a_bad_body_keeps_its_header(frames_of: Callable[..., list[Any]], samples: dict[str, Message]) -> None:
    error = refusal(frames_of(samples["ping"], body={"number": "x"}))
    assert error.header is not None
    assert error.header.sender == "tester"


@pytest.mark.parametrize("reply_to", [1, [], {}, {"endpoint": "", "instance": b"short"}, {"endpoint": ""}], ids=str)
def test_a_bad_reply_address_is_refused(
    reply_to: object, frames_of: Callable[..., list[Any]], samples: dict[str, Message]
) -> None:
    assert refusal(frames_of(samples["ping"], header={"reply_to": reply_to})).code == "bad_header"
