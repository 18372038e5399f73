"""Every message comes back as it was sent, and what cannot travel is refused by the sender."""

from __future__ import annotations

import dataclasses
import os
import types
import typing
from typing import TYPE_CHECKING, Any

import msgpack  # type: ignore[import-untyped]  # ships no types
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

from susurrus.protocol import (
    Beat,
    Credit,
    Done,
    Error,
    Features,
    Float32Array,
    Hello,
    HiddenStates,
    Message,
    Partial,
    ProtocolError,
    SendPort,
    Started,
    Submit,
    TranscribeOptions,
    codec,
    decode,
    encode,
    new_id,
)
from susurrus.protocol.messages import message_types
from susurrus.protocol.packing import Frame

if TYPE_CHECKING:
    from collections.abc import Callable

INSTANCE = new_id()
PARTIAL = Partial(new_id(), 0, 1, 0.0, 1.0, "text", 0, (1, 2))


def send(message: Message) -> list[Frame]:
    return encode(message, sender="tester", instance=INSTANCE)


def values_of(hint: Any) -> st.SearchStrategy[Any]:
    """Valid values of a field, made from its declaration but without the code under test."""
    scalars: dict[Any, st.SearchStrategy[Any]] = {
        bool: st.booleans(),
        int: st.integers(0, 2**63 - 1),
        float: st.floats(allow_nan=False, allow_infinity=False),
        str: st.text(max_size=40),
        bytes: st.binary(min_size=16, max_size=16),
        types.NoneType: st.none(),
    }
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint in scalars:
        return scalars[hint]
    if hint is Float32Array:
        return st_numpy.arrays("<f4", st_numpy.array_shapes(max_dims=4, max_side=4))
    if origin is tuple:
        return st.lists(values_of(arguments[0]), max_size=3).map(tuple)
    if origin is dict:
        return st.dictionaries(st.text(max_size=8), values_of(arguments[1]), max_size=3)
    if origin in (types.UnionType, typing.Union):
        return st.one_of([values_of(argument) for argument in arguments])
    return instances_of(hint)


def instances_of(declaration: Any) -> st.SearchStrategy[Any]:
    hints = typing.get_type_hints(declaration)
    return st.builds(
        declaration, **{field.name: values_of(hints[field.name]) for field in dataclasses.fields(declaration)}
    )


@pytest.mark.parametrize("name", sorted(message_types()))
def test_every_message_comes_back_as_it_was_sent(name: str, plain: Callable[[Message], dict[str, Any]]) -> None:
    @settings(max_examples=25, deadline=None, database=None)
    @given(instances_of(message_types()[name]))
    def comes_back(message: Message) -> None:
        received = decode([bytes(frame) for frame in send(message)])
        assert type(received.message) is type(message)
        assert plain(received.message) == plain(message)

    comes_back()


def test_every_type_has_a_sample(samples: dict[str, Message]) -> None:
    assert samples.keys() == message_types().keys()


def test_the_header_tells_who_sent_what_and_why() -> None:
    parent = new_id()
    reply_to = SendPort("", INSTANCE)
    frames = encode(Credit(2), sender="decoder", instance=INSTANCE, parent=parent, reply_to=reply_to)
    header = decode(frames).header
    assert (header.type, header.sender, header.instance) == ("credit", "decoder", INSTANCE)
    assert (header.parent, header.reply_to, header.minor) == (parent, reply_to, codec.MINOR)
    assert header.id != decode(send(Credit(2))).header.id


def test_job_window_attempt_and_seq_travel_in_the_header() -> None:
    _, header, body = send(PARTIAL)
    assert {"job", "window", "attempt", "seq"} <= msgpack.unpackb(header).keys()
    assert msgpack.unpackb(body).keys() <= {"start", "end", "text", "stable", "tokens", "temperature"}


def test_a_whole_number_of_seconds_arrives_as_a_float() -> None:
    message = decode(send(Started(new_id(), 1, "a.wav", 30))).message
    assert isinstance(message, Started)
    assert type(message.duration) is float


def test_a_received_array_is_a_read_only_view_of_its_buffer() -> None:
    states = np.ones((3, 4), np.float32)
    frames = send(HiddenStates(new_id(), 0, 1, 0.0, 1.0, TranscribeOptions(), 0.1, states))
    message = decode(frames).message
    assert isinstance(message, HiddenStates)
    assert np.shares_memory(message.states, states)
    with pytest.raises(ValueError, match="read-only"):
        message.states[0, 0] = 2
    with pytest.raises(ValueError, match="WRITEABLE"):
        message.states.flags.writeable = True


@pytest.mark.parametrize("offset", range(1, 4))
def test_a_buffer_at_an_odd_address_arrives_aligned(offset: int) -> None:
    mel = np.arange(6, dtype=np.float32).reshape(2, 3)
    frames = send(features(mel))
    base = np.zeros(mel.nbytes + 8, np.uint8)
    start = -base.ctypes.data % 4 + offset
    base[start : start + mel.nbytes] = np.frombuffer(frames[3], np.uint8)
    message = decode([*frames[:3], base[start : start + mel.nbytes].data]).message
    assert isinstance(message, Features)
    assert message.mel.flags.aligned
    assert not message.mel.flags.writeable
    np.testing.assert_array_equal(message.mel, mel)


# --- refused by the sender ----------------------------------------------------------------------------------


def features(mel: Any) -> Features:
    return Features(new_id(), 0, 1, 0.0, 1.0, TranscribeOptions(), 0.0, mel)


@pytest.mark.parametrize(
    "mel",
    [
        np.asfortranarray(np.ones((3, 4), np.float32)),
        np.ones((4, 3), np.float32).T,
        np.ones((3, 8), np.float32)[:, ::2],
        np.ones((3, 4), np.float64),
        np.ones((3, 4), ">f4"),
        np.full((2, 2), None),
        np.ones((0, 4), np.float32),
        np.ones((), np.float32),
        np.ones((1,) * 5, np.float32),
        [[1.0]],
    ],
    ids=["fortran", "transposed", "strided", "float64", "bigendian", "object", "empty", "0d", "5d", "list"],
)
def test_an_array_that_would_arrive_scrambled_or_useless_is_not_sent(mel: Any) -> None:
    with pytest.raises(ProtocolError) as caught:
        send(features(mel))
    assert caught.value.code == "bad_array"


@pytest.mark.parametrize(
    "changes",
    [
        {"start": float("nan")},
        {"start": float("inf")},
        {"start": True},
        {"start": "0"},
        {"start": np.float32(1)},
        {"start": 2**64},
        {"window": True},
        {"window": -1},
        {"window": 2**63},
        {"window": 1.0},
        {"window": np.int64(1)},
        {"text": None},
        {"text": b"bytes"},
        {"text": "half a character \ud83d"},
        {"tokens": [1, 2]},
        {"tokens": (1, True)},
        {"tokens": (1, -1)},
        {"tokens": (1, 2**63)},
        {"tokens": (1, np.int64(2))},
        {"job": b"short"},
        {"job": ""},
    ],
    ids=str,
)
def test_a_value_that_does_not_fit_its_declaration_is_not_sent(changes: dict[str, Any]) -> None:
    with pytest.raises(ProtocolError, match="partial: ") as caught:
        send(dataclasses.replace(PARTIAL, **changes))
    assert caught.value.code == "bad_field"


@pytest.mark.parametrize(
    "message",
    [
        Beat(1, {"a": 1.5}),  # type: ignore[dict-item]
        Beat(1, {1: 1}),  # type: ignore[dict-item]
        Submit(new_id(), "a", "a", None),  # type: ignore[arg-type]
        Submit(new_id(), "a", "a", TranscribeOptions(language=1)),  # type: ignore[arg-type]
    ],
    ids=["float for int", "int key", "no options", "int language"],
)
def test_a_wrong_value_inside_a_field_is_not_sent(message: Message) -> None:
    with pytest.raises(ProtocolError) as caught:
        send(message)
    assert caught.value.code == "bad_field"


@pytest.mark.parametrize("value", [Message(), PARTIAL.text, TranscribeOptions()], ids=["base", "str", "options"])
def test_what_is_not_a_message_is_not_sent(value: Any) -> None:
    with pytest.raises(ProtocolError) as caught:
        send(value)
    assert caught.value.code == "unknown_type"


def test_a_class_that_borrows_a_message_name_is_not_sent() -> None:
    class Impostor(Message):
        TYPE = "credit"

    with pytest.raises(ProtocolError):
        send(Impostor())


@pytest.mark.parametrize(
    ("message", "fits"),
    [
        (Error("x", "t" * 65_000), True),
        (Error("x", "t" * 66_000), False),
        (dataclasses.replace(PARTIAL, text="t" * 1_000_000), True),
        (dataclasses.replace(PARTIAL, text="t" * 1_050_000), False),
        (Done(new_id(), 1, "ü" * 520_000, "de", 1.0, 1.0, {}, True, ()), True),
        (Done(new_id(), 1, "ü" * 530_000, "de", 1.0, 1.0, {}, True, ()), False),
    ],
    ids=["body", "body+", "partial", "partial+", "done", "done+"],
)
def test_a_message_over_its_limit_is_refused_by_the_sender(message: Message, *, fits: bool) -> None:
    if fits:
        assert decode(send(message)).message == message
    else:
        with pytest.raises(ProtocolError) as caught:
            send(message)
        assert caught.value.code == "too_large"


def test_a_header_over_its_limit_is_refused_by_the_sender() -> None:
    with pytest.raises(ProtocolError) as caught:
        encode(Credit(1), sender="s" * 5000, instance=INSTANCE)
    assert caught.value.code == "too_large"


def test_an_array_over_its_limit_is_refused_by_the_sender() -> None:
    with pytest.raises(ProtocolError) as caught:
        send(features(np.empty(codec.MAX_ARRAY_BYTES // 4 + 1, np.float32)))
    assert caught.value.code == "too_large"


def test_a_sender_without_a_proper_instance_is_refused() -> None:
    with pytest.raises(ProtocolError) as caught:
        encode(Hello("a", "0", 1), sender="a", instance=b"")
    assert caught.value.code == "bad_field"


def test_an_error_names_the_field_but_not_its_contents() -> None:
    with pytest.raises(ProtocolError) as caught:
        send(Error("code", b"the patient is"))  # type: ignore[arg-type]
    assert str(caught.value) == "bad_field: error: text: str expected, not bytes"


def test_an_id_never_begins_with_the_zero_that_routing_ids_must_not_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    draws = [bytes(16), bytes([0, *range(15)]), bytes([1, *range(15)])]
    monkeypatch.setattr(os, "urandom", lambda _n: draws.pop(0))
    assert new_id()[0] == 1
