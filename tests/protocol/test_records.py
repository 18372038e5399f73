"""A record is what `@dataclass(frozen=True, slots=True)` makes of the same declaration."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from dataclasses import FrozenInstanceError, dataclass, field
from typing import Any

import pytest

from susurrus.protocol.records import record


@record
class Made:
    """Something."""

    name: str
    size: int = 3
    parts: list[int] = field(default_factory=list)
    secret: str = field(default="", repr=False)


def usual() -> type:
    """The same declaration, by the standard library."""
    body: dict[str, Any] = {
        "__annotations__": dict(Made.__annotations__),
        "size": 3,
        "parts": field(default_factory=list),
        "secret": field(default="", repr=False),
    }
    return dataclass(frozen=True, slots=True)(type("Made", (), body))


def test_fields_defaults_and_text_are_those_of_a_dataclass() -> None:
    twin: Any = usual()
    for given in (("a",), ("a", 4), ("a", 4, [1]), ("a", 4, [1], "hidden")):
        made, other = Made(*given), twin(*given)
        assert repr(made) == repr(other)
        assert dataclasses.asdict(made) == dataclasses.asdict(other)
    assert [each.name for each in dataclasses.fields(Made)] == [each.name for each in dataclasses.fields(twin)]
    assert Made("a", parts=[1], size=4) == Made("a", 4, [1])
    assert Made("a").parts is not Made("a").parts
    assert not hasattr(Made("a"), "__dict__")


@pytest.mark.parametrize(
    ("values", "named"),
    [((), {}), ((), {"size": 1}), (("a",), {"name": "b"}), (("a",), {"other": 1}), (("a", 1, [], "", 5), {})],
)
def test_what_a_dataclass_does_not_take_a_record_does_not_take(values: tuple[Any, ...], named: dict[str, Any]) -> None:
    for kind in (Made, usual()):
        with pytest.raises(TypeError):
            kind(*values, **named)


def test_a_record_cannot_be_changed() -> None:
    made: Any = Made("a")
    with pytest.raises(FrozenInstanceError):
        made.size = 4
    with pytest.raises(FrozenInstanceError):
        del made.size
    with pytest.raises(AttributeError):
        made.other = 1
    assert made == Made("a")


def test_records_are_equal_by_type_and_values_and_hash_alike() -> None:
    @record
    class Other:
        """Has the same fields."""

        name: str
        size: int = 3

    assert Other("a") == Other("a", 3) != Other("b")
    assert hash(Other("a")) == hash(Other("a", 3))
    other: Any = Made("a")
    assert Other("a") != other


def test_records_are_replaced_copied_and_pickled() -> None:
    made = Made("a", 4, [1])
    assert dataclasses.replace(made, name="b") == Made("b", 4, [1])
    assert copy.deepcopy(made) == pickle.loads(pickle.dumps(made)) == made  # noqa: S301 - our own
    assert copy.deepcopy(made).parts is not made.parts


def test_records_are_matched_by_position_and_by_name() -> None:
    match Made("a", 4):
        case Made(name, size=size):
            assert (name, size) == ("a", 4)
