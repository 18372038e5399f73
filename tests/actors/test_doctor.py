"""The doctor: what it says, what it calls an error, and its exit code."""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq

from susurrus.actors import doctor, exits
from susurrus.actors.doctor import CHECKS, Finding, main
from susurrus.models import arithmetic, saturation
from susurrus.models.errors import ModelError
from susurrus.models.memory import Memory
from susurrus.protocol import RuntimeFolder


@pytest.fixture(autouse=True)
def _no_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hashing the real ones takes time; the tests that need some make them."""
    monkeypatch.setenv("SUSURRUS_MODELS", str(tmp_path / "models"))


def look(topic: str) -> Finding:
    finding = Finding(topic)
    CHECKS[topic](finding)
    return finding


def test_this_machine_is_fit_and_nothing_is_changed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main() == exits.OK
    out, err = capsys.readouterr()
    assert err == ""
    lines = out.splitlines()
    assert [line.split("  ")[0] for line in lines[: len(CHECKS)]] == [topic.replace("_", " ") for topic in CHECKS]
    assert all(line.startswith("warning: ") for line in lines[len(CHECKS) :])
    assert not list(tmp_path.iterdir())


def test_json_is_one_object_with_the_same_facts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(as_json=True) == exits.OK
    document = json.loads(capsys.readouterr().out)
    assert {"version", *CHECKS, "warnings", "errors"} == set(document)
    assert document["errors"] == []
    assert document["onnxruntime"]["providers"][-1] == "cpu"
    assert document["arithmetic"]["encoder_error"] < 1e-3


def test_a_check_that_breaks_is_an_error_and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken() -> Memory:
        raise RuntimeError("no such file")

    monkeypatch.setattr(doctor, "memory", broken)
    assert main() == exits.UNHEALTHY
    out = capsys.readouterr().out
    assert out.splitlines()[-1] == "error: memory cannot be looked at (RuntimeError: no such file)"
    assert "\nterminal" in out


@pytest.mark.parametrize(
    ("quotas", "usable", "warnings"),
    [([], 4, []), ([8.0], 4, []), ([2.5], 2, ["2.5 of 4 CPUs"]), ([0.5], 1, ["0.5 of 4 CPUs", "only one CPU"])],
)
def test_few_cpus_are_warned_of(
    monkeypatch: pytest.MonkeyPatch, quotas: list[float], usable: int, warnings: list[str]
) -> None:
    monkeypatch.setattr(doctor, "cpu_quotas", lambda: quotas)
    monkeypatch.setattr(doctor, "usable_cpus", lambda: usable)
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    finding = look("cpus")
    assert finding.facts["threads_per_session"] == usable
    assert len(finding.warnings) == len(warnings)
    assert all(part in text for part, text in zip(warnings, finding.warnings, strict=True))


def test_little_memory_is_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "memory", lambda: Memory(16.0, 8.0, 0.5))
    assert "0.5 GB" in look("memory").warnings[0]


@pytest.mark.parametrize("saturates", [True, False])
def test_a_processor_without_vnni_is_told_of_and_nothing_to_be_warned_of(
    monkeypatch: pytest.MonkeyPatch, saturates: bool
) -> None:
    monkeypatch.setattr(saturation, "products_saturate", lambda: saturates)
    finding = look("onnxruntime")
    assert finding.facts["fast_int8_is_exact"] is not saturates
    assert not finding.warnings


def test_a_broken_onnxruntime_is_an_error_with_the_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    (error,) = look("onnxruntime").errors
    assert "pip install --force-reinstall onnxruntime" in error


def test_a_missing_package_is_an_error_with_the_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        importlib.metadata, "requires", lambda _name: ["absent-package>=3", "numpy>=2", 'other; extra == "dev"']
    )
    finding = look("packages")
    assert finding.errors == ["absent-package is not installed: pip install absent-package"]
    assert "numpy" in finding.facts
    assert "other" not in finding.facts


@pytest.mark.parametrize("error", [0.4, float("nan")])
def test_wrong_products_are_an_error(monkeypatch: pytest.MonkeyPatch, error: float) -> None:
    monkeypatch.setattr(arithmetic, "encoder_error", lambda: error)
    finding = look("arithmetic")
    assert len(finding.errors) == 1
    assert "--precision float32" in finding.errors[0]
    json.dumps(finding.facts, allow_nan=False)


def test_cross_attention_that_does_not_load_is_only_slower(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> float:
        raise ModelError("self_test.onnx cannot be loaded")

    monkeypatch.setattr(arithmetic, "cross_attention_error", refuse)
    finding = look("arithmetic")
    assert not finding.errors
    assert "self_test.onnx cannot be loaded" in finding.warnings[0]


def test_a_libzmq_without_ipc_uses_tcp_and_one_without_either_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zmq, "has", lambda feature: feature == "curve")
    assert look("sockets").facts["transport"] == "tcp"
    monkeypatch.setattr(zmq, "has", lambda _feature: False)
    assert "pyzmq" in look("sockets").errors[0]


def test_a_temporary_folder_too_deep_for_sockets_is_passed_over_with_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / ("x" * 100)
    deep.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(deep))
    finding = look("runtime_folder")
    assert finding.facts["place"] not in (None, str(deep))
    assert any(str(deep) in text and "too long" in text for text in finding.warnings)


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder whose path leaves room for a socket's name."""
    with tempfile.TemporaryDirectory(prefix="t", dir="/tmp") as folder:
        yield Path(folder)


def test_no_place_for_sockets_is_an_error_with_the_fix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "candidates", lambda: [tmp_path / "absent"])
    (error,) = look("runtime_folder").errors
    assert "XDG_RUNTIME_DIR" in error


def test_pipelines_are_counted_and_what_killed_ones_left_is_told(short: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = short / "run"
    place.mkdir(mode=0o700)
    monkeypatch.setattr(doctor, "candidates", lambda: [place])
    with RuntimeFolder._create_in(place):
        gone = place / "susurrus-killed"
        gone.mkdir(mode=0o700)
        (gone / "lock").touch(mode=0o600)
        (place / "susurrus-other").mkdir(mode=0o700)  # no lock: no runtime folder
        finding = look("runtime_folder")
        assert finding.facts["pipelines"] == 1
        assert finding.facts["left_behind"] == [str(gone)]
        assert gone.exists()
    assert finding.facts["mode"] == "0700"


@pytest.fixture
def provisioned(tmp_path: Path, tiny: Path) -> Path:
    """A model of the models folder."""
    return shutil.copytree(tiny, tmp_path / "models" / "tiny")


def test_models_are_told_with_their_state(provisioned: Path) -> None:
    facts: dict[str, Any] = look("models").facts
    assert facts["folder"] == str(provisioned.parent)
    assert facts["base"] == "not provisioned yet"
    assert facts["tiny"].startswith("ready (int8, ")


def test_a_damaged_model_is_an_error_with_the_command_that_repairs_it(provisioned: Path) -> None:
    filters = provisioned / "mel_filters.json"
    content = bytearray(filters.read_bytes())
    content[100] ^= 1  # of the same size: only its hash tells
    filters.write_bytes(content)
    (error,) = look("models").errors
    assert "mel_filters.json" in error
    assert error.endswith("python -m susurrus.models.provision tiny")


def test_a_model_of_another_builder_is_only_warned_of(provisioned: Path) -> None:
    manifest = json.loads((provisioned / "manifest.json").read_bytes())
    (provisioned / "manifest.json").write_text(json.dumps({**manifest, "builder": 0}))
    finding = look("models")
    assert not finding.errors
    assert "builds it again" in finding.warnings[0]
