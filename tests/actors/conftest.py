"""Fixtures of the actors' tests: a tiny multilingual model, and a hub that says what a test tells it to."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

# Helpers are imported as tests.actors.fakes, whether pytest or python -m pytest was called.
sys.path.append(str(Path(__file__).parents[2]))

from susurrus.actors.behaviour import Behaviour
from tests.actors.fakes import House, Stage, write_tiny_model


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A multilingual model directory with random weights and windows of 1 s; nobody writes into it."""
    return write_tiny_model(tmp_path_factory.mktemp("actors"))


@pytest.fixture
def stage() -> Iterator[Callable[[Behaviour], Stage]]:
    """Makes stages: an actor in threads of this process, and the test as its hub and its downstream."""
    with ExitStack() as stages:
        yield lambda behaviour: stages.enter_context(Stage(behaviour))


@pytest.fixture
def house() -> Iterator[House]:
    """A hub in a thread of this process; the test plays actors, clients and subscribers."""
    with ExitStack() as resources:
        yield House(resources)
