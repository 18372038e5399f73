"""The report tells what a graph really computes, not what its file name says."""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from susurrus.models.errors import ModelError
from susurrus.models.graphs.report import inspect_file
from susurrus.models.inspect import inspect, main
from susurrus.models.provision import ensure_model
from susurrus.models.provisioning.manifest import verify

FLOAT, INT8 = np.float32, np.int8


def graph(nodes: Sequence[Any], constants: Mapping[str, object], name: str = "main") -> Any:
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", None])
    hidden = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 8])
    tensors = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    return helper.make_graph(nodes, name, [hidden], [output], tensors)


def save(path: Path, nodes: Sequence[Any], constants: Mapping[str, object]) -> Path:
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph(nodes, constants), opset_imports=opsets), path)
    return path


def node(operator: str, *inputs: str, output: str = "y", domain: str = "") -> Any:
    return helper.make_node(operator, list(inputs), [output], domain=domain)


PRODUCT = [node("MatMul", "x", "w")]


def test_inputs_and_outputs_have_shapes_and_types(tmp_path: Path) -> None:
    report = inspect_file(save(tmp_path / "a.onnx", PRODUCT, {"w": np.zeros((8, 4), FLOAT)}))
    assert [str(port) for port in report.inputs] == ["x  float32 [batch, 8]"]
    assert [str(port) for port in report.outputs] == ["y  float32 [batch, ?]"]
    assert report.opsets == {"ai.onnx": 20, "com.microsoft": 1}
    assert report.size == (tmp_path / "a.onnx").stat().st_size


def test_a_float_product_is_no_integer_product(tmp_path: Path) -> None:
    report = inspect_file(save(tmp_path / "a.onnx", PRODUCT, {"w": np.zeros((8, 4), FLOAT)}))
    assert (report.products, report.integer_products, report.warnings) == (1, 0, [])
    assert (report.weight_bytes, report.integer_bytes) == (8 * 4 * 4, 0)


def test_integer_products_and_bytes_are_counted(tmp_path: Path) -> None:
    nodes = [
        node("DynamicQuantizeMatMul", "x", "w", "scale", output="h", domain="com.microsoft"),
        node("MatMul", "h", "v"),
    ]
    constants = {"w": np.zeros((8, 8), INT8), "scale": np.ones(8, FLOAT), "v": np.zeros((8, 4), FLOAT)}
    report = inspect_file(save(tmp_path / "a.onnx", nodes, constants))
    assert (report.products, report.integer_products, report.warnings) == (2, 1, [])
    assert report.integer_share == 64 / (64 + 32)
    assert (report.weight_bytes, report.integer_bytes) == (64 + 32 + 128, 64)


def test_weights_stored_small_and_multiplied_as_floats_are_told(tmp_path: Path) -> None:
    nodes = [
        node("DequantizeLinear", "w", "scale", output="f"),
        node("Transpose", "f", output="t"),
        node("MatMul", "x", "t"),
    ]
    constants = {"w": np.zeros((8, 8), INT8), "scale": np.ones((), FLOAT)}
    report = inspect_file(save(tmp_path / "a.onnx", nodes, constants))
    assert (report.products, report.integer_products) == (1, 0)
    assert report.warnings == [
        "1 weights are stored as integers, multiplied as floats (DequantizeLinear before MatMul)"
    ]


def test_a_product_with_both_sides_dequantised_is_fused_by_the_runtime_and_counts_as_integer(
    tmp_path: Path,
) -> None:
    nodes = [
        node("QuantizeLinear", "x", "scale", "zero", output="q"),
        node("DequantizeLinear", "q", "scale", "zero", output="d"),
        node("DequantizeLinear", "w", "scale", output="f"),
        node("MatMul", "d", "f"),
    ]
    constants = {"w": np.zeros((8, 8), INT8), "scale": np.ones((), FLOAT), "zero": np.zeros((), INT8)}
    report = inspect_file(save(tmp_path / "a.onnx", nodes, constants))
    assert (report.products, report.integer_products, report.warnings) == (1, 1, [])


def test_integer_convolutions_are_told(tmp_path: Path) -> None:
    report = inspect_file(save(tmp_path / "a.onnx", [node("ConvInteger", "x", "w")], {"w": np.zeros((8, 8, 1), INT8)}))
    assert report.nodes == {"ConvInteger": 1}
    assert "1 ConvInteger" in report.warnings[0]


def test_a_tied_embedding_seen_through_a_transpose_is_a_weight(tmp_path: Path) -> None:
    nodes = [node("Transpose", "w", output="t"), node("MatMul", "x", "t")]
    report = inspect_file(save(tmp_path / "a.onnx", nodes, {"w": np.zeros((4, 8), FLOAT)}))
    assert report.products == 1


def test_the_branches_of_a_merged_decoder_are_looked_into(tmp_path: Path) -> None:
    branches = {
        f"{branch}_branch": graph(
            [node("MatMulInteger", "x", f"w_{branch}")], {f"w_{branch}": np.zeros((8, 4), INT8)}, name=branch
        )
        for branch in ("then", "else")
    }
    choice = helper.make_node("If", ["use_cache"], ["y"], **branches)
    report = inspect_file(save(tmp_path / "a.onnx", [choice], {"use_cache": np.True_}))
    assert report.nodes == {"MatMulInteger": 2, "If": 1}
    assert (report.products, report.integer_products) == (2, 2)
    assert report.integer_bytes == 64


def test_constants_in_nodes_are_weights_too(tmp_path: Path) -> None:
    constant = helper.make_node("Constant", [], ["w"], value=numpy_helper.from_array(np.zeros((8, 4), FLOAT)))
    report = inspect_file(save(tmp_path / "a.onnx", [constant, node("MatMul", "x", "w")], {}))
    assert (report.products, report.weight_bytes) == (1, 128)


@pytest.fixture
def external(tmp_path: Path) -> Path:
    """A graph whose weights lie in a file beside it."""
    model = helper.make_model(graph([node("MatMul", "x", "w")], {"w": np.zeros((8, 4), FLOAT)}))
    path = tmp_path / "decoder_model.onnx"
    onnx.save(model, path, save_as_external_data=True, location="decoder_model.onnx_data", size_threshold=0)
    return path


def test_external_weights_are_counted_without_being_there(external: Path) -> None:
    assert inspect_file(external).warnings == []
    weights = external.with_name("decoder_model.onnx_data")
    weights.write_bytes(weights.read_bytes()[:100])
    assert inspect_file(external).warnings == ["weights file decoder_model.onnx_data has 100 bytes, wanted 128"]
    weights.unlink()
    report = inspect_file(external)
    assert report.warnings == ["weights file decoder_model.onnx_data is missing"]
    assert (report.weight_bytes, report.products) == (128, 1)


def test_a_folder_of_any_exporter_is_reported_whole(external: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (external.parent / "config.json").write_text("{}")
    assert main([str(external.parent)]) == 0
    output = capsys.readouterr().out
    for part in (
        "decoder_model.onnx:",
        "config.json",
        "decoder_model.onnx_data",
        "x  float32",
        "no vocabulary there",
    ):
        assert part in output


def test_json_holds_the_same_report(external: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--json", str(external)]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["graphs"][0]["nodes"] == {"MatMul": 1}
    assert report["graphs"][0]["inputs"] == [{"name": "x", "type": "float32", "shape": ["batch", 8]}]
    assert report["special_tokens"] is None


def cut(content: bytes) -> bytes:
    return content[: len(content) * 7 // 10]


@pytest.mark.parametrize(
    "content", [b"", b"\0", b"not a graph at all", b"\xff" * 1000, b"{}", cut(bytes(range(256)) * 40)]
)
def test_a_file_that_is_no_graph_is_one_line_and_code_3(
    tmp_path: Path, content: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "модель.onnx"
    path.write_bytes(content)
    assert main([str(path)]) == 3
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith(f"inspect: {path} is damaged or no ONNX file")
    assert output.err.count("\n") == 1


def test_a_cut_graph_is_refused(tmp_path: Path) -> None:
    path = save(tmp_path / "a.onnx", [node("MatMul", "x", "w")], {"w": np.zeros((80, 40), FLOAT)})
    path.write_bytes(cut(path.read_bytes()))
    with pytest.raises(ModelError, match=r"a\.onnx is damaged"):
        inspect_file(path)


@pytest.mark.parametrize("name", ["absent", "."])
def test_nothing_to_inspect_is_one_line_and_code_3(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path / name)]) == 3
    assert capsys.readouterr().err.count("\n") == 1


def test_special_tokens_come_from_tokenizer_json_where_there_is_no_vocabulary(
    external: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [
        "a",
        "<|endoftext|>",
        "<|startoftranscript|>",
        "<|en|>",
        "<|de|>",
        "<|translate|>",
        "<|transcribe|>",
    ]
    names += ["<|startoflm|>", "<|startofprev|>", "<|nocaptions|>", "<|notimestamps|>"]
    names += [f"<|{step / 50:.2f}|>" for step in range(1501)]
    added = [{"content": name, "id": index} for index, name in enumerate(names) if index]
    tokenizer = external.with_name("tokenizer.json")
    tokenizer.write_text(json.dumps({"model": {"vocab": {"a": 0}}, "added_tokens": added}))
    special = inspect(external.parent).special_tokens
    assert special is not None
    assert (special.eot, special.transcribe, special.no_speech, special.timestamp_begin) == (1, 6, 9, 11)
    assert special.languages == {"en": 3, "de": 4}
    tokenizer.write_text("{}")
    assert main([str(external.parent)]) == 0
    assert "special tokens: " in capsys.readouterr().out


def test_a_built_model_multiplies_weights_as_integers_and_convolves_in_floats(
    tmp_path: Path,
) -> None:
    path = ensure_model("tiny.en", directory=tmp_path)
    assert verify(path) == []
    report = inspect(path)
    graphs = {graph.file: graph for graph in report.graphs}
    nodes = sum((Counter(graph.nodes) for graph in report.graphs), Counter[str]())
    assert nodes["ConvInteger"] == 0
    assert all(not graph.warnings for graph in report.graphs)
    for file in ("int8/encoder.onnx", "int8/decoder.onnx", "int8/cross_attention.onnx"):
        assert graphs[file].integer_share > 0.9  # outlier channels are float
        assert graphs[file].integer_bytes > 0.7 * graphs[file].weight_bytes  # convolutions and positions are float
    assert report.special_tokens is not None
    assert not report.special_tokens.multilingual
    assert report.files["int8/weights.bin"] == (tmp_path / "tiny.en/int8/weights.bin").stat().st_size


def test_both_commands_explain_themselves() -> None:
    for module in ("inspect", "provision"):
        command = [sys.executable, "-m", f"susurrus.models.{module}", "--help"]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (result.returncode, result.stderr) == (0, "")
        assert "Exit codes" in result.stdout
