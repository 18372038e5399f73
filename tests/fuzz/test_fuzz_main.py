"""The nightly script: what it counts, saves and replays."""

from __future__ import annotations

import importlib
import time
from pathlib import Path

import pytest

from tests.fuzz import codec
from tests.fuzz.__main__ import TARGETS, Run, load, main, no_longer_than


@pytest.mark.parametrize("name", ["codec", "wav", "tokenizer"])
def test_a_sound_target_has_no_fault_and_leaves_nothing(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--inputs", "120", "--target", name, "--seed", "3", "--folder", str(tmp_path)]) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith(f"{name}: 120 inputs, 0 faults")
    assert "120 of 120 inputs" in shown.err
    assert list(tmp_path.iterdir()) == []


def test_a_fault_is_saved_once_and_can_be_replayed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(data: bytes) -> str:
        assert len(data) < 200, "too long"
        return "short"

    monkeypatch.setattr(codec, "check", broken)
    arguments = ["--inputs", "50", "--target", "codec", "--seed", "1", "--folder", str(tmp_path)]
    assert main(arguments) == 1
    (saved,) = tmp_path.iterdir()
    shown = capsys.readouterr()
    assert f"python -m tests.fuzz --replay {saved}" in shown.err
    assert "1 faults" in shown.out
    with pytest.raises(AssertionError, match="too long"):
        main(["--replay", str(saved)])
    monkeypatch.undo()
    assert main(["--replay", str(saved)]) == 0


def test_the_same_seed_gives_the_same_inputs(tmp_path: Path) -> None:
    runs = [Run("codec", tmp_path) for _ in range(2)]
    for run in runs:
        run.go(200, seed=9)
    assert runs[0].outcomes == runs[1].outcomes
    assert runs[0].outcomes.total() == 200


def test_what_does_not_end_is_a_fault() -> None:
    def endless() -> None:
        while True:
            time.monotonic()

    with pytest.raises(TimeoutError, match="no end"), no_longer_than(0.01):
        endless()


@pytest.mark.parametrize("name", TARGETS)
def test_every_target_has_seeds_that_it_takes(name: str) -> None:
    found = load(name)
    assert found.SEEDS
    for seed in found.SEEDS:
        assert found.check(seed) not in {"refused", "bad_header"}


def test_coverage_needs_one_target_and_atheris(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        main(["--atheris", "--folder", str(tmp_path)])

    def missing(name: str) -> object:
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(SystemExit, match=r"\[fuzz\]"):
        main(["--atheris", "--target", "wav", "--folder", str(tmp_path)])
