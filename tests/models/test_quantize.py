"""The INT8 recipe of Optimum exports, on graphs of a few kilobytes that have what an exported Whisper has."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from susurrus.models.optimum.integers import Recipe, contents
from susurrus.models.provisioning.manifest import Manifest, verify
from susurrus.models.quantize import main, quantize

WIDTH = 64
TOKENS = 500
GRAPHS = ("encoder_model.onnx", "decoder_model.onnx", "decoder_with_past_model.onnx")
OTHERS = {"config.json": "{}", "vocabulary.txt": "a\nb\n"}


@pytest.fixture(scope="module")
def float_export(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as the exporter leaves it; nobody writes into it."""
    folder = tmp_path_factory.mktemp("float é xport")
    onnx.save(encoder(), folder / GRAPHS[0])
    for name in GRAPHS[1:]:
        onnx.save(decoder(), folder / name)
    for name, text in OTHERS.items():
        (folder / name).write_text(text)
    return folder


@pytest.fixture(scope="module")
def integer_export(float_export: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, quantised by the default recipe."""
    folder = tmp_path_factory.mktemp("integers") / "out"
    quantize(float_export, folder)
    return folder


def encoder() -> Any:
    """A convolution, a linear layer, a product of two activations."""
    nodes = [
        helper.make_node("Conv", ["input_features", "kernel"], ["frames"], pads=[1, 1]),
        helper.make_node("Transpose", ["frames"], ["x"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["x", "weight"], ["y"]),
        helper.make_node("MatMul", ["y", "frames"], ["last_hidden_state"]),
    ]
    weights = {"kernel": random((WIDTH, 8, 3)), "weight": random((WIDTH, WIDTH))}
    return model(nodes, weights, ("input_features", TensorProto.FLOAT, [1, 8, None]), "last_hidden_state")


def decoder() -> Any:
    """An embedding that is the output projection too, and a linear layer between."""
    nodes = [
        helper.make_node("Gather", ["embedding", "input_ids"], ["x"]),
        helper.make_node("MatMul", ["x", "weight"], ["y"]),
        helper.make_node("Transpose", ["embedding"], ["projection"], perm=[1, 0]),
        helper.make_node("MatMul", ["y", "projection"], ["logits"]),
    ]
    weights = {"embedding": random((TOKENS, WIDTH)), "weight": random((WIDTH, WIDTH))}
    return model(nodes, weights, ("input_ids", TensorProto.INT64, [1, None]), "logits")


def merged() -> Any:
    """Both decoders behind a switch; the weights are outside of it."""
    whole = decoder()
    body = helper.make_graph(whole.graph.node, "body", [], whole.graph.output)
    switch = helper.make_node("If", ["use_cache_branch"], ["logits"], then_branch=body, else_branch=body)
    del whole.graph.node[:]
    whole.graph.node.append(switch)
    whole.graph.input.append(helper.make_tensor_value_info("use_cache_branch", TensorProto.BOOL, [1]))
    return whole


def model(nodes: list[Any], weights: dict[str, Any], given: tuple[str, int, list[int | None]], out: str) -> Any:
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info(*given)],
        [helper.make_tensor_value_info(out, TensorProto.FLOAT, [None, None, None])],
        [numpy_helper.from_array(values, name) for name, values in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def random(shape: tuple[int, ...]) -> Any:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


def logits(path: Path, **switch: Any) -> Any:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return session.run(None, {"input_ids": np.arange(7)[np.newaxis], **switch})[0]


def test_every_graph_shrinks(float_export: Path, integer_export: Path) -> None:
    for name in GRAPHS:
        assert (integer_export / name).stat().st_size < 0.5 * (float_export / name).stat().st_size


def test_convolutions_of_the_encoder_stay_float(integer_export: Path) -> None:
    found = contents(onnx.load(integer_export / GRAPHS[0]))
    assert found.operators["Conv"] == 1
    assert found.operators["MatMulInteger"] == 1
    assert "ConvInteger" not in found.operators
    assert found.float_bytes["Conv"] == 4 * WIDTH * 8 * 3


def test_products_of_two_activations_stay_float(integer_export: Path) -> None:
    assert contents(onnx.load(integer_export / GRAPHS[0])).operators["MatMul"] == 1


@pytest.mark.parametrize("name", GRAPHS[1:])
def test_the_embedding_is_never_dequantised_as_a_whole(integer_export: Path, name: str) -> None:
    session_options = onnxruntime.SessionOptions()
    session_options.optimized_model_filepath = str(integer_export.parent / name)
    session_options.log_severity_level = 3
    onnxruntime.InferenceSession(integer_export / name, session_options, providers=["CPUExecutionProvider"])
    optimized = onnx.load(integer_export.parent / name)
    weights = {tensor.name: tensor for tensor in optimized.graph.initializer}
    dequantized = [node.input[0] for node in optimized.graph.node if node.op_type == "DequantizeLinear"]
    assert not weights.keys() & set(dequantized)
    assert not [t.name for t in weights.values() if t.data_type == TensorProto.FLOAT and len(t.dims) == 2]


def test_the_embedding_is_in_the_file_once(integer_export: Path) -> None:
    tensors = onnx.load(integer_export / GRAPHS[1]).graph.initializer
    assert [list(t.dims) for t in tensors if TOKENS in t.dims] == [[TOKENS, WIDTH]]


def test_integer_logits_are_those_of_the_float_graph_but_for_rounding(float_export: Path, integer_export: Path) -> None:
    wanted, found = logits(float_export / GRAPHS[1]), logits(integer_export / GRAPHS[1])
    assert np.abs(found - wanted).max() < 0.05 * np.abs(wanted).max()


def test_integer_logits_are_close_to_those_of_the_plain_recipe(
    float_export: Path, integer_export: Path, tmp_path: Path
) -> None:
    quantize(float_export, tmp_path / "out", Recipe(plain=True))
    plain = contents(onnx.load(tmp_path / "out" / GRAPHS[1]))
    assert plain.operators["MatMul"] == 1
    wanted, found = logits(tmp_path / "out" / GRAPHS[1]), logits(integer_export / GRAPHS[1])
    assert np.abs(found - wanted).max() < 0.02 * np.abs(wanted).max()


def test_a_merged_decoder_has_integer_logits_in_both_branches(float_export: Path, tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    onnx.save(encoder(), tmp_path / "source" / GRAPHS[0])
    onnx.save(merged(), tmp_path / "source" / "decoder_model_merged.onnx")
    done = quantize(tmp_path / "source", tmp_path / "out")
    assert done["decoder_model_merged.onnx"].contents.operators["MatMulInteger"] == 4
    assert "MatMul" not in done["decoder_model_merged.onnx"].contents.operators
    wanted = logits(float_export / GRAPHS[1])
    for branch in (True, False):
        found = logits(tmp_path / "out" / "decoder_model_merged.onnx", use_cache_branch=np.array([branch]))
        assert np.abs(found - wanted).max() < 0.05 * np.abs(wanted).max()


def test_a_scale_for_each_channel_on_request(float_export: Path, tmp_path: Path) -> None:
    # seven bits as well: with eight, CPUs without VNNI saturate where every channel uses its whole range
    quantize(float_export, tmp_path / "out", Recipe(per_channel=True, reduce_range=True))
    scales = {t.name: list(t.dims) for t in onnx.load(tmp_path / "out" / GRAPHS[0]).graph.initializer}
    assert scales["weight_scale"] == [WIDTH]
    wanted, found = logits(float_export / GRAPHS[1]), logits(tmp_path / "out" / GRAPHS[1])
    assert np.abs(found - wanted).max() < 0.05 * np.abs(wanted).max()


def test_seven_bits_on_request(float_export: Path, tmp_path: Path) -> None:
    quantize(float_export, tmp_path / "out", Recipe(reduce_range=True))
    graph = onnx.load(tmp_path / "out" / GRAPHS[1]).graph
    values = next(numpy_helper.to_array(t) for t in graph.initializer if t.name == "weight_quantized")
    assert np.abs(values.astype(int)).max() <= 64


def test_all_else_is_copied_and_the_manifest_names_every_file(float_export: Path, integer_export: Path) -> None:
    for name, text in OTHERS.items():
        assert (integer_export / name).read_text() == text
    manifest = Manifest.read(integer_export)
    assert manifest.files.keys() == {*GRAPHS, *OTHERS}
    assert manifest.source.keys() == set(GRAPHS)
    assert manifest.name == float_export.name
    assert not verify(integer_export)
    assert json.loads((integer_export / "manifest.json").read_text())["layout"] == "optimum"


def test_the_same_export_gives_the_same_bytes(float_export: Path, integer_export: Path, tmp_path: Path) -> None:
    quantize(float_export, tmp_path / "again")
    assert (tmp_path / "again" / "manifest.json").read_bytes() == (integer_export / "manifest.json").read_bytes()


def test_weights_too_large_for_a_file_lie_beside_it(
    float_export: Path, integer_export: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("susurrus.models.optimum.integers._LARGEST_FILE", 0)
    quantize(float_export, tmp_path / "out")
    for name in GRAPHS:
        assert (tmp_path / "out" / f"{name}.data").is_file()
    np.testing.assert_array_equal(logits(tmp_path / "out" / GRAPHS[1]), logits(integer_export / GRAPHS[1]))
    assert not verify(tmp_path / "out")


def test_the_source_is_left_alone(float_export: Path) -> None:
    assert {path.name for path in float_export.iterdir()} == {*GRAPHS, *OTHERS}


def test_the_tables_go_to_stdout(float_export: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main([str(float_export), "--out", str(tmp_path / "out")]) == 0
    captured = capfd.readouterr()
    assert all(name in captured.out for name in GRAPHS)
    assert "Conv 6,144" in captured.out
    assert captured.err.splitlines() == [f"quantizing {name}" for name in GRAPHS]


@pytest.mark.parametrize("kind", ["folder", "file"])
def test_what_is_there_already_is_kept(
    float_export: Path, tmp_path: Path, kind: str, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    out = tmp_path if kind == "folder" else tmp_path / "mine.txt"
    assert main([str(float_export), "--out", str(out)]) == 6
    wanted = f"quantize: {out} is there already and no empty folder: name a new one by --out, or remove it\n"
    assert capfd.readouterr().err == wanted
    assert (tmp_path / "mine.txt").read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_an_empty_folder_is_filled(float_export: Path, tmp_path: Path) -> None:
    quantize(float_export, tmp_path)
    assert not verify(tmp_path)


def test_what_holds_integers_already_is_refused(
    integer_export: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main([str(integer_export), "--out", str(tmp_path / "out")]) == 3
    assert "holds integers already" in capfd.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize("fault", ["cut", "missing", "no folder"])
def test_a_damaged_export_gives_one_line_and_leaves_nothing(
    float_export: Path, tmp_path: Path, fault: str, capfd: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "source"
    if fault != "no folder":
        source.mkdir()
        for name in GRAPHS:
            (source / name).write_bytes((float_export / name).read_bytes())
    if fault == "cut":
        (source / GRAPHS[2]).write_bytes((float_export / GRAPHS[2]).read_bytes()[:1000])
    if fault == "missing":
        (source / GRAPHS[0]).unlink()
    assert main([str(source), "--out", str(tmp_path / "out")]) == 3
    (line,) = [line for line in capfd.readouterr().err.splitlines() if not line.startswith("quantizing")]
    assert line.startswith("quantize: ")
    assert str(source) in line
    assert not (tmp_path / "out").exists()
    assert {path.name for path in tmp_path.iterdir()} <= {"source"}
