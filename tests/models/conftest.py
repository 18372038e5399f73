"""Fixtures of the model's tests: a tiny checkpoint, and the model directory built from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.models.tiny import build_tiny, random_tensors, write_ctranslate2


@pytest.fixture(scope="session")
def tiny_source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny checkpoint with random weights, CTranslate2's layout."""
    return write_ctranslate2(tmp_path_factory.mktemp("tiny_source"), random_tensors())


@pytest.fixture(scope="session")
def tiny(tiny_source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model directory built from it, INT8 and float32; nobody writes into it."""
    directory = tmp_path_factory.mktemp("tiny") / "tiny"
    build_tiny(tiny_source, directory)
    return directory
