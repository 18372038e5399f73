"""Writes what Optimum exports, from the weights of `tests/models/tiny.py`: three graphs of standard operators.

The graphs are made to be unkind in the ways in which exports were: batch and heads are folded into one axis, and the
decoder with a past has no causal mask, because it was traced with one token.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from susurrus.models.dimensions import Dimensions
from susurrus.models.languages import LANGUAGES
from susurrus.models.vocabulary import TIMESTAMPS
from tests.models.tiny import (
    CHUNK_LENGTH,
    DIMENSIONS,
    SPECIAL,
    VOCABULARY,
    byte_tokens,
    hugging_face_tensors,
    safetensors_bytes,
)

OPSET = 17
N_VOCAB_V3 = 51866

Tensors = Mapping[str, NDArray[Any]]
Value = str  # name of a value in a graph


def vocabulary_v3() -> list[str]:
    """As many tokens as large-v3, a hundred languages among them; its words are `w0`, `w1`, ..."""
    languages = [f"<|{code}|>" for code in LANGUAGES]
    special = [SPECIAL[0], SPECIAL[1], *languages, *SPECIAL[4:]]
    n_words = N_VOCAB_V3 - 256 - len(special) - len(TIMESTAMPS)
    return [*byte_tokens(), *(f"Ġw{index}" for index in range(n_words)), *special, *TIMESTAMPS]


DIMENSIONS_V3 = replace(DIMENSIONS, n_mels=128, n_vocab=N_VOCAB_V3, n_audio_layer=1, n_text_layer=1)


def write_json_files(
    folder: Path,
    dimensions: Dimensions = DIMENSIONS,
    vocabulary: Sequence[str] = VOCABULARY,
    *,
    chunk_length: int = CHUNK_LENGTH,
    never: Sequence[int] = (1, 2),
) -> None:
    """The files of a Hugging Face checkpoint without its weights; the timestamps are left out of `tokenizer.json`."""
    eot = vocabulary.index(SPECIAL[0])
    added = [{"id": index, "content": vocabulary[index]} for index in range(eot, len(vocabulary) - len(TIMESTAMPS))]
    text = {token: index for index, token in enumerate(vocabulary[:eot])}
    contents: dict[str, dict[str, Any]] = {
        "config.json": {
            "model_type": "whisper",
            "num_mel_bins": dimensions.n_mels,
            "max_source_positions": dimensions.n_audio_ctx,
            "d_model": dimensions.n_audio_state,
            "encoder_attention_heads": dimensions.n_audio_head,
            "encoder_layers": dimensions.n_audio_layer,
            "vocab_size": dimensions.n_vocab,
            "max_target_positions": dimensions.n_text_ctx,
            "decoder_attention_heads": dimensions.n_text_head,
            "decoder_layers": dimensions.n_text_layer,
        },
        "generation_config.json": {"suppress_tokens": list(never), "begin_suppress_tokens": [220]},
        "preprocessor_config.json": {"feature_size": dimensions.n_mels, "chunk_length": chunk_length},
        "tokenizer.json": {"model": {"type": "BPE", "vocab": text, "merges": []}, "added_tokens": added},
    }
    for name, content in contents.items():
        (folder / name).write_text(json.dumps(content), encoding="utf-8")


def write_checkpoint(folder: Path, tensors: Tensors, dimensions: Dimensions = DIMENSIONS, **facts: Any) -> Path:
    """A checkpoint with these weights as transformers saves it; `facts` are those of `write_json_files`."""
    folder.mkdir(exist_ok=True)
    write_json_files(folder, dimensions, **facts)
    (folder / "model.safetensors").write_bytes(safetensors_bytes(hugging_face_tensors(tensors, dimensions)))
    return folder


def write_export(folder: Path, tensors: Tensors, dimensions: Dimensions = DIMENSIONS, **facts: Any) -> Path:
    """An export of the same; `facts` are those of `write_json_files`."""
    folder.mkdir(exist_ok=True)
    write_json_files(folder, dimensions, **facts)
    onnx.save(encoder_model(tensors, dimensions), folder / "encoder_model.onnx")
    onnx.save(decoder_model(tensors, dimensions, past=False), folder / "decoder_model.onnx")
    onnx.save(decoder_model(tensors, dimensions, past=True), folder / "decoder_with_past_model.onnx")
    return folder


def merge_decoders(folder: Path) -> None:
    """Both decoders in one file, behind `use_cache_branch`; the two files go."""
    paths = [folder / "decoder_with_past_model.onnx", folder / "decoder_model.onnx"]
    following, first = (onnx.load(path).graph for path in paths)
    outputs = [output.name for output in first.output]
    for graph, prefix in ((following, "following"), (first, "first")):
        inputs = {port.name for port in graph.input}
        there = {port.name for port in graph.output}
        for name in outputs:  # caches of the encoder are handed through
            if name not in there:
                graph.node.append(helper.make_node("Identity", [name.replace("present", "past_key_values")], [name]))
        for weight in graph.initializer:
            weight.name = f"{prefix}/{weight.name}"
        for node in graph.node:
            node.input[:] = [name if name in inputs or not name else f"{prefix}/{name}" for name in node.input]
            node.output[:] = [f"{prefix}/{name}" for name in node.output]
    shapes = {output.name: output.type for output in first.output}
    ports = {port.name: port for port in (*following.input, *first.input)}
    branches = {
        f"{branch}_branch": helper.make_graph(
            graph.node,
            branch,
            [],
            [helper.make_value_info(f"{prefix}/{name}", shapes[name]) for name in outputs],
            list(graph.initializer),
        )
        for branch, prefix, graph in (("then", "following", following), ("else", "first", first))
    }
    switch = helper.make_tensor_value_info("use_cache_branch", TensorProto.BOOL, [1])
    choice = helper.make_node("If", ["use_cache_branch"], outputs, **branches)
    merged = helper.make_graph([choice], "merged", [*ports.values(), switch], list(first.output))
    for path in paths:
        path.unlink()
    onnx.save(_model(merged), folder / "decoder_model_merged.onnx")


def edit(path: Path, change: Callable[[onnx.GraphProto], None]) -> None:
    """Changes a graph in place."""
    model = onnx.load(path)
    change(model.graph)
    onnx.save(model, path)


def rename(path: Path, names: Callable[[str], str]) -> None:
    """Gives the inputs and outputs of a graph other names."""

    def change(graph: onnx.GraphProto) -> None:
        ports = {port.name: names(port.name) for port in (*graph.input, *graph.output)}
        for port in (*graph.input, *graph.output):
            port.name = ports[port.name]
        for node in graph.node:
            node.input[:] = [ports.get(name, name) for name in node.input]
            node.output[:] = [ports.get(name, name) for name in node.output]

    edit(path, change)


class Net:
    """A graph that is being written. Weights are found by their canonical names."""

    def __init__(self, tensors: Tensors) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, onnx.TensorProto] = {}
        self._tensors = tensors

    def __call__(self, operator: str, *inputs: Value, **attributes: Any) -> Value:
        """The output of an operator."""
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, list(inputs), [name], **attributes))
        return name

    def constant(self, values: Any, dtype: type[np.generic] = np.int64) -> Value:
        """A constant."""
        return self.weight(f"c{len(self.weights)}", np.array(values, dtype))

    def weight(self, name: str, values: NDArray[Any] | None = None) -> Value:
        """A weight, float32 where it is one of the model's."""
        if name not in self.weights:
            array = self._tensors[name].astype(np.float32) if values is None else values
            self.weights[name] = numpy_helper.from_array(array, name)
        return name

    def linear(self, x: Value, name: str, part: slice = slice(None)) -> Value:
        """A linear layer, or some of its outputs."""
        weight, bias = (self._tensors[f"{name}/{kind}"][part].astype(np.float32) for kind in ("weight", "bias"))
        product = self("MatMul", x, self.weight(f"{name}/weight/{part.start}", np.ascontiguousarray(weight.T)))
        return self("Add", product, self.weight(f"{name}/bias/{part.start}", bias))

    def norm(self, x: Value, name: str) -> Value:
        """Layer normalisation."""
        gamma, beta = (self.weight(f"{name}/layer_norm/{kind}") for kind in ("gamma", "beta"))
        return self("LayerNormalization", x, gamma, beta, epsilon=1e-5)

    def gelu(self, x: Value) -> Value:
        """Multiplies by the normal distribution function."""
        erf = self("Erf", self("Mul", x, self.constant(sqrt(0.5), np.float32)))
        return self(
            "Mul", x, self("Add", self("Mul", erf, self.constant(0.5, np.float32)), self.constant(0.5, np.float32))
        )

    def feed_forward(self, x: Value, name: str) -> Value:
        """Two linear layers, and the way around them."""
        inner = self.gelu(self.linear(self.norm(x, f"{name}/ffn"), f"{name}/ffn/linear_0"))
        return self("Add", x, self.linear(inner, f"{name}/ffn/linear_1"))

    def project(self, x: Value, name: str, count: int, heads: int) -> list[Value]:
        """Queries, keys, values, whichever are stacked in one layer, [B, heads, n, size] each."""
        width = len(self._tensors[f"{name}/weight"]) // count
        found = []
        for part in (slice(index * width, (index + 1) * width) for index in range(count)):
            shaped = self("Reshape", self.linear(x, name, part), self.constant([0, 0, heads, width // heads]))
            found.append(self("Transpose", shaped, perm=[0, 2, 1, 3]))
        return found

    def attend(self, query: Value, key: Value, value: Value, heads: int, mask: Value = "") -> Value:
        """[B, heads, n, size] each -> [B, n, heads size], with batch and heads folded into one axis in between."""
        batch, size = (self("Gather", self("Shape", query), self.constant([axis])) for axis in (0, 3))
        any_length, all_heads = self.constant([-1]), self.constant([heads])
        folded = self("Concat", self("Mul", batch, all_heads), any_length, size, axis=0)
        query, key, value = (self("Reshape", x, folded) for x in (query, key, value))
        scale = self("Sqrt", self("Cast", size, to=TensorProto.FLOAT))
        scores = self("Div", self("MatMul", query, self("Transpose", key, perm=[0, 2, 1])), scale)
        weights = self("Softmax", self("Add", scores, mask) if mask else scores, axis=-1)
        unfolded = self("Concat", batch, all_heads, any_length, size, axis=0)
        attended = self("Reshape", self("MatMul", weights, value), unfolded)
        together = self("Concat", self.constant([0, 0]), self("Mul", all_heads, size), axis=0)
        return self("Reshape", self("Transpose", attended, perm=[0, 2, 1, 3]), together)

    def model(self, inputs: Mapping[str, Any], outputs: Mapping[str, tuple[Value, Any]]) -> onnx.ModelProto:
        """The graph, once its outputs are given their names."""
        for name, (value, _) in outputs.items():
            self.nodes.append(helper.make_node("Identity", [value], [name]))
        ports = [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in inputs.items()]
        results = [helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n, (_, shape) in outputs.items()]
        return _model(helper.make_graph(self.nodes, "main_graph", ports, results, list(self.weights.values())))


def _model(graph: onnx.GraphProto) -> onnx.ModelProto:
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8, producer_name="tests")


def encoder_model(tensors: Tensors, size: Dimensions) -> onnx.ModelProto:
    """`input_features` -> `last_hidden_state`."""
    net, width, heads = Net(tensors), size.n_audio_state, size.n_audio_head
    x = "input_features"
    for name, stride in (("encoder/conv1", 1), ("encoder/conv2", 2)):
        weights = (net.weight(f"{name}/{kind}") for kind in ("weight", "bias"))
        x = net.gelu(net("Conv", x, *weights, pads=[1, 1], strides=[stride]))
    x = net("Add", net("Transpose", x, perm=[0, 2, 1]), net.weight("encoder/position_encodings/encodings"))
    for layer in (f"encoder/layer_{index}" for index in range(size.n_audio_layer)):
        q, k, v = net.project(net.norm(x, f"{layer}/self_attention"), f"{layer}/self_attention/linear_0", 3, heads)
        x = net("Add", x, net.linear(net.attend(q, k, v, heads), f"{layer}/self_attention/linear_1"))
        x = net.feed_forward(x, layer)
    hidden_states = net.norm(x, "encoder")
    return net.model(
        {"input_features": (TensorProto.FLOAT, ["batch_size", size.n_mels, 2 * size.n_audio_ctx])},
        {"last_hidden_state": (hidden_states, ["batch_size", size.n_audio_ctx, width])},
    )


def decoder_model(tensors: Tensors, size: Dimensions, *, past: bool) -> onnx.ModelProto:
    """The first step, or the ones with a past."""
    net = Net(tensors)
    inputs: dict[str, Any] = {"input_ids": (TensorProto.INT64, ["batch_size", 1 if past else "length"])}
    if past:
        inputs |= dict.fromkeys(_caches(size, "past_key_values"), (TensorProto.FLOAT, _cache_shape(size)))
    else:
        inputs["encoder_hidden_states"] = (TensorProto.FLOAT, ["batch_size", "encoder_length", size.n_text_state])
    embedding = net.weight("decoder/embeddings/weight")
    count = net("Gather", net("Shape", "input_ids"), net.constant(1))
    start = net("Gather", net("Shape", "past_key_values.0.decoder.key"), net.constant(2)) if past else net.constant(0)
    positions = net("Range", start, net("Add", start, count), net.constant(1))
    places = net("Gather", net.weight("decoder/position_encodings/encodings"), positions)
    x = net("Add", net("Gather", embedding, "input_ids"), places)
    mask = "" if past else _causal_mask(net, positions)
    present: list[Value] = []
    for layer in range(size.n_text_layer):
        x, caches = _decoder_layer(net, x, layer, size.n_text_head, past=past, mask=mask)
        present += caches
    logits = net("MatMul", net.norm(x, "decoder"), net("Transpose", embedding, perm=[1, 0]))
    names = [name for name in _caches(size, "present") if not (past and "encoder" in name)]
    outputs = {name: (value, _cache_shape(size)) for name, value in zip(names, present, strict=True)}
    return net.model(inputs, {"logits": (logits, ["batch_size", "length", size.n_vocab]), **outputs})


def _decoder_layer(
    net: Net, x: Value, layer: int, heads: int, *, past: bool, mask: Value
) -> tuple[Value, tuple[Value, ...]]:
    """What goes into the next layer, and the caches that are returned."""
    name, before = f"decoder/layer_{layer}", f"past_key_values.{layer}"
    q, k, v = net.project(net.norm(x, f"{name}/self_attention"), f"{name}/self_attention/linear_0", 3, heads)
    if past:
        k, v = (net("Concat", f"{before}.decoder.{n}", new, axis=2) for n, new in (("key", k), ("value", v)))
    x = net("Add", x, net.linear(net.attend(q, k, v, heads, mask), f"{name}/self_attention/linear_1"))
    (query,) = net.project(net.norm(x, f"{name}/attention"), f"{name}/attention/linear_0", 1, heads)
    if past:
        keys, values = f"{before}.encoder.key", f"{before}.encoder.value"
    else:
        keys, values = net.project("encoder_hidden_states", f"{name}/attention/linear_1", 2, heads)
    x = net("Add", x, net.linear(net.attend(query, keys, values, heads), f"{name}/attention/linear_2"))
    return net.feed_forward(x, name), (k, v) if past else (k, v, keys, values)


def _caches(size: Dimensions, prefix: str) -> list[str]:
    sides = [f"{side}.{kind}" for side in ("decoder", "encoder") for kind in ("key", "value")]
    return [f"{prefix}.{layer}.{side}" for layer in range(size.n_text_layer) for side in sides]


def _cache_shape(size: Dimensions) -> list[int | str]:
    return ["batch_size", size.n_text_head, "cached", size.head_size]


def _causal_mask(net: Net, positions: Value) -> Value:
    """[n, n]: minus much where the key comes after the query."""
    keys = net("Unsqueeze", positions, net.constant([0]))
    later = net("Greater", keys, net("Unsqueeze", positions, net.constant([1])))
    return net("Mul", net("Cast", later, to=TensorProto.FLOAT), net.constant(-1e9, np.float32))
