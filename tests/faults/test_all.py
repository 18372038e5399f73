"""Every one of the fifty faults has a test, and every test here says which it is."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType, ModuleType

import pytest

from tests.faults.table import FAULTS

MODULES = sorted(path.stem for path in Path(__file__).parent.glob("test_*.py") if path != Path(__file__))


def functions_of(module: ModuleType) -> Iterator[FunctionType]:
    for name, value in vars(module).items():
        if name.startswith("test_") and isinstance(value, FunctionType):
            yield value


def numbers_of(test: FunctionType) -> set[int]:
    """Of the test itself, and of single parameters."""
    marks: list[pytest.Mark] = list(getattr(test, "pytestmark", []))
    for mark in list(marks):
        if mark.name == "parametrize":
            marks += [each for values in mark.args[1] for each in getattr(values, "marks", ())]
    return {number for mark in marks if mark.name == "fault" for number in mark.args}


@pytest.mark.parametrize("name", MODULES)
def test_every_test_says_which_fault_it_is_about(name: str) -> None:
    module = importlib.import_module(f"tests.faults.{name}")
    assert [test.__name__ for test in functions_of(module) if not numbers_of(test)] == []


def test_every_fault_has_a_test() -> None:
    modules = [importlib.import_module(f"tests.faults.{name}") for name in MODULES]
    covered = {number for module in modules for test in functions_of(module) for number in numbers_of(test)}
    assert covered == set(FAULTS) == set(range(1, 51))
