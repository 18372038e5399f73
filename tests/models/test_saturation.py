"""INT8 products are exact on every processor: the largest weights and activations do not overflow 16 bits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from susurrus.models import arithmetic, runtime, saturation
from susurrus.models.config import ModelConfig
from susurrus.models.graphs import layers
from susurrus.models.graphs.contract import encoder_contract
from susurrus.models.runtime import load_graph, open_session
from susurrus.models.saturation import PRECISION_MODE, products_saturate

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

WIDTH = 96
WEIGHTS = {
    "largest": np.full((WIDTH, 32), 127, np.int8),
    "smallest": np.full((WIDTH, 32), -127, np.int8),
    "random": np.random.default_rng(0).integers(-127, 128, (WIDTH, 32)).astype(np.int8),
}

UNIT = np.ones(64, np.float32)


def integer_product(folder: Path, weights: NDArray[np.int8], *, inside_branch: bool = False) -> Path:
    """Writes MatMulInteger(uint8 x, weights): the product of exports, plainly or in both branches of an If."""
    declared = [helper.make_tensor_value_info("x", TensorProto.UINT8, ["M", len(weights)])]
    result = helper.make_tensor_value_info("y", TensorProto.INT32, None)
    constants = [numpy_helper.from_array(weights, "w")]
    nodes = [helper.make_node("MatMulInteger", ["x", "w"], ["y"])]
    if inside_branch:
        declared.append(helper.make_tensor_value_info("condition", TensorProto.BOOL, []))
        branch = helper.make_graph(nodes, "branch", [], [result], constants)
        nodes = [helper.make_node("If", ["condition"], ["y"], then_branch=branch, else_branch=branch)]
        constants = []
    graph = helper.make_graph(nodes, "product", declared, [result], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    path = folder / "product.onnx"
    path.write_bytes(model.SerializeToString())
    return path


@pytest.mark.parametrize("rows", [1, 3, 40])
@pytest.mark.parametrize("weights", list(WEIGHTS))
def test_a_session_multiplies_extreme_integers_exactly(tmp_path: Path, weights: str, rows: int) -> None:
    stored = WEIGHTS[weights]
    session = load_graph(integer_product(tmp_path, stored), 1)
    x = np.full((rows, WIDTH), 255, np.uint8)
    x[:, 1::7] = 254
    assert np.array_equal(session.run(None, {"x": x})[0], x.astype(np.int64) @ stored.astype(np.int64))


def test_a_product_in_a_branch_is_exact_too(tmp_path: Path) -> None:
    stored = WEIGHTS["largest"]
    session = load_graph(integer_product(tmp_path, stored, inside_branch=True), 1)
    x = np.full((4, WIDTH), 255, np.uint8)
    found = session.run(None, {"x": x, "condition": np.array(True)})[0]
    assert np.array_equal(found, x.astype(np.int64) @ stored.astype(np.int64))


def test_layers_of_encoder_and_decoder_are_exact() -> None:
    assert arithmetic.encoder_error() < arithmetic.ROUNDING
    assert arithmetic.decoder_error() < arithmetic.ROUNDING


def test_the_numbers_are_such_that_saturation_would_show(monkeypatch: pytest.MonkeyPatch) -> None:
    if not products_saturate():
        pytest.skip("this processor's fast product is exact")
    monkeypatch.setattr(layers, "quantize_rows", lambda weight: (np.rint(weight * 127).astype(np.int8), UNIT / 127))
    assert arithmetic.encoder_error() > 0.1


def test_graphs_of_ours_need_no_slower_product(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "products_saturate", lambda: True)
    contract = encoder_contract(ModelConfig.from_directory(tiny).dimensions)
    options = open_session(tiny / "int8" / "encoder.onnx", contract, 1).get_session_options()
    with pytest.raises(RuntimeError, match=PRECISION_MODE):  # not there
        options.get_session_config_entry(PRECISION_MODE)


def test_no_weights_of_ours_overflow_beside_any_activations(tiny: Path) -> None:
    for stem in ("encoder", "cross_attention"):
        graph = onnx.load(tiny / "int8" / f"{stem}.onnx").graph
        stored = {tensor.name: tensor for tensor in graph.initializer}
        products = [node.input[1] for node in graph.node if node.op_type == "DynamicQuantizeMatMul"]
        assert products
        for name in products:
            weight = numpy_helper.to_array(stored[name]).astype(int)
            assert np.abs(weight[0::2] + weight[1::2]).max() * 255 < 2**15


def test_only_a_processor_that_saturates_gets_the_slower_product(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = integer_product(tmp_path, WEIGHTS["largest"])
    monkeypatch.setattr(runtime, "products_saturate", lambda: True)
    assert load_graph(path, 1).get_session_options().get_session_config_entry(PRECISION_MODE) == "1"
    monkeypatch.setattr(runtime, "products_saturate", lambda: False)
    with pytest.raises(RuntimeError, match=PRECISION_MODE):  # not there
        load_graph(path, 1).get_session_options().get_session_config_entry(PRECISION_MODE)


def test_the_probe_is_the_graph_it_says_it_is() -> None:
    model = onnx.load_from_string(saturation._PRODUCT)
    (node,) = model.graph.node
    assert (node.op_type, *node.input, *node.output) == ("MatMulInteger", "x", "w", "y")
    types = [value.type.tensor_type.elem_type for value in (*model.graph.input, *model.graph.output)]
    assert types == [TensorProto.UINT8, TensorProto.INT8, TensorProto.INT32]


def test_the_probe_agrees_with_a_session_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "products_saturate", lambda: False)
    session = load_graph(integer_product(tmp_path, WEIGHTS["largest"]), 1)
    found = session.run(None, {"x": np.full((4, WIDTH), 255, np.uint8)})[0]
    assert (found != 255 * 127 * WIDTH).any() == products_saturate()


@pytest.mark.parametrize(
    ("version", "works"), [("1.24.1", False), ("1.29.9", False), ("1.30.0", True), ("2.0.0.dev1", True)]
)
def test_an_old_onnxruntime_is_left_alone_and_warned_of_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, version: str, works: bool
) -> None:
    """Its precision mode ends the process at some graphs."""
    monkeypatch.setattr(ort, "__version__", version)
    monkeypatch.setattr(runtime, "products_saturate", lambda: True)
    monkeypatch.setattr(ort.SessionOptions, "add_session_config_entry", lambda _self, key, _value: keys.append(key))
    runtime._warn_of_saturation.cache_clear()
    keys: list[str] = []
    for _ in range(2):
        load_graph(integer_product(tmp_path, WEIGHTS["random"]), 1)
    runtime._warn_of_saturation.cache_clear()
    assert (PRECISION_MODE in keys) == works
    assert len(caplog.records) == (not works)


def test_float32_graphs_are_not_warned_of(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(ort, "__version__", "1.24.1")
    monkeypatch.setattr(runtime, "products_saturate", lambda: True)
    runtime._warn_of_saturation.cache_clear()
    load_graph(tiny / "float32" / "encoder.onnx", 1)
    assert not caplog.records
    load_graph(tiny / "int8" / "encoder.onnx", 1)
    runtime._warn_of_saturation.cache_clear()
    assert len(caplog.records) == 1
