"""Execution providers: names, errors for those that are not there, the CPU in place of one that refuses."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import numpy as np
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

from susurrus.models import runtime
from susurrus.models.errors import ModelError, OptionError
from susurrus.models.providers import available_providers, check_provider, execution_providers
from susurrus.models.runtime import load_graph

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from susurrus.models.providers import Choice

OPENVINO = "OpenVINOExecutionProvider"


@pytest.fixture
def offered(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What ONNX Runtime claims to have."""
    providers = ["TensorrtExecutionProvider", "CUDAExecutionProvider", OPENVINO, "CPUExecutionProvider"]
    monkeypatch.setattr(
        ort, "get_available_providers", lambda: [*providers[:3], "AzureExecutionProvider", *providers[3:]]
    )
    return providers


def test_the_cpu_alone_is_the_cpu_alone() -> None:
    assert execution_providers("cpu") == ["CPUExecutionProvider"]
    assert execution_providers("CPU", 3) == ["CPUExecutionProvider"]
    assert available_providers()[-1] == "cpu"


@pytest.mark.usefixtures("offered")
def test_names_are_onnx_runtimes_in_short() -> None:
    assert available_providers() == ("tensorrt", "cuda", "openvino", "cpu")


@pytest.mark.parametrize("name", ["cuda", "CUDA", "Cuda"])
@pytest.mark.usefixtures("offered")
def test_the_cpu_stands_behind_every_other(name: str) -> None:
    assert execution_providers(name) == [("CUDAExecutionProvider", {}), "CPUExecutionProvider"]


@pytest.mark.parametrize("name", ["tensorrt", "trt"])
def test_what_tensorrt_does_not_take_cuda_does(name: str, offered: list[str]) -> None:
    assert execution_providers(name) == [(offered[0], {}), offered[1], offered[3]]


@pytest.mark.usefixtures("offered")
def test_a_provider_with_threads_of_its_own_is_given_their_number() -> None:
    assert execution_providers("openvino", 3) == [(OPENVINO, {"num_of_threads": "3"}), "CPUExecutionProvider"]


@pytest.mark.usefixtures("offered")
def test_nothing_is_sent_to_a_server() -> None:
    assert "azure" not in available_providers()
    with pytest.raises(OptionError, match="'azure' does not exist"):
        check_provider("azure")


@pytest.mark.parametrize("name", ["gpu", "", "cpu ", "CPUExecutionProvider"])
def test_an_unknown_name_is_answered_with_those_there_are(name: str) -> None:
    with pytest.raises(OptionError) as caught:
        check_provider(name)
    message = str(caught.value)
    assert "does not exist" in message
    assert ", ".join(available_providers()) in message
    assert "\n" not in message


def test_one_that_is_not_installed_names_the_package_that_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ort, "get_available_providers", lambda: ["CPUExecutionProvider"])
    with pytest.raises(OptionError, match=r"openvino is not installed .*has cpu.*: install onnxruntime-openvino"):
        check_provider("openvino")


def test_one_that_no_package_has_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ort, "get_available_providers", lambda: ["CPUExecutionProvider"])
    with pytest.raises(OptionError, match=r"xnnpack is not in this package .*has cpu"):
        check_provider("xnnpack")


# --- sessions -----------------------------------------------------------------------------------------------


def doubling(folder: Path) -> Path:
    """Writes y = x + x."""
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Add", ["x", "x"], ["y"])], "doubling", ports[:1], ports[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    (folder / "doubling.onnx").write_bytes(model.SerializeToString())
    return folder / "doubling.onnx"


class Sessions:
    """Stands for ONNX Runtime's session class: a provider may refuse; nodes go to the one it is told."""

    def __init__(self, refused: str = "", taker: str = "") -> None:
        self.refused = refused
        self.taker = taker
        self.asked: list[list[Choice]] = []
        self._real = ort.InferenceSession

    def __call__(
        self, path: str, options: ort.SessionOptions, *, providers: Sequence[Choice], enable_fallback: int = 1
    ) -> ort.InferenceSession:
        """Make a session on the CPU, or raise."""
        self.asked.append(list(providers))
        first = providers[0] if isinstance(providers[0], str) else providers[0][0]
        assert enable_fallback == 0 or first == "CPUExecutionProvider"  # its fallback prints to standard output
        if first == self.refused:
            raise RuntimeError("no such\n operator")
        session = self._real(path, options, providers=["CPUExecutionProvider"])
        if self.taker:
            parts = [type("Part", (), {"ep_name": self.taker})]
            session.get_provider_graph_assignment_info = lambda: parts
        return session


@pytest.fixture
def sessions(monkeypatch: pytest.MonkeyPatch, offered: list[str]) -> Sessions:
    """Takes the place of ONNX Runtime's sessions; it has OpenVINO."""
    assert OPENVINO in offered
    made = Sessions()
    monkeypatch.setattr(ort, "InferenceSession", made)
    monkeypatch.setattr(runtime, "_told", set())
    return made


def doubled(session: ort.InferenceSession) -> list[float]:
    found: list[float] = session.run(None, {"x": np.array([1, 2], np.float32)})[0].tolist()
    return found


def test_a_provider_that_refuses_the_graph_leaves_it_to_the_cpu_with_a_warning(
    tmp_path: Path, sessions: Sessions, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    sessions.refused = OPENVINO
    assert doubled(load_graph(doubling(tmp_path), 2, "openvino")) == [2, 4]
    (record,) = caplog.records
    assert (record.levelno, record.provider, record.graph) == (logging.WARNING, OPENVINO, "doubling")  # type: ignore[attr-defined]  # extra fields
    assert record.reason == "no such operator"  # type: ignore[attr-defined]  # ditto
    assert sessions.asked[-2] == [(OPENVINO, {"num_of_threads": "2"}), "CPUExecutionProvider"]
    assert capsys.readouterr().out == ""


def test_it_is_said_once_for_all_graphs(tmp_path: Path, sessions: Sessions, caplog: pytest.LogCaptureFixture) -> None:
    sessions.refused = OPENVINO
    for _ in range(3):
        load_graph(doubling(tmp_path), 1, "openvino")
    assert [record.levelno for record in caplog.records if record.levelno >= logging.WARNING] == [logging.WARNING]


@pytest.mark.usefixtures("sessions")
def test_a_provider_that_takes_no_node_is_told_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert doubled(load_graph(doubling(tmp_path), 1, "openvino")) == [2, 4]
    assert [record.reason for record in caplog.records] == ["it takes no node"]  # type: ignore[attr-defined]  # extra


def test_a_provider_that_takes_part_is_not(
    tmp_path: Path, sessions: Sessions, caplog: pytest.LogCaptureFixture
) -> None:
    sessions.taker = OPENVINO
    assert doubled(load_graph(doubling(tmp_path), 1, "openvino")) == [2, 4]
    assert not caplog.records


def test_a_damaged_file_is_the_files_fault_whatever_the_provider(
    tmp_path: Path, sessions: Sessions, caplog: pytest.LogCaptureFixture
) -> None:
    sessions.refused = OPENVINO
    path = doubling(tmp_path)
    path.write_bytes(path.read_bytes()[:20])
    with pytest.raises(ModelError, match=r"doubling\.onnx cannot be loaded .*: fetch it"):
        load_graph(path, 1, "openvino", fix="fetch it")
    assert not caplog.records


def test_an_unknown_provider_is_an_option_error_not_a_damaged_model(tmp_path: Path) -> None:
    with pytest.raises(OptionError):
        load_graph(doubling(tmp_path), 1, "gpu")
