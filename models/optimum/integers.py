"""Quantises one exported graph: ONNX Runtime's `quantize_dynamic`, and integer logits.

Whisper's token embedding is also its output projection. An exported decoder holds it once and transposes it for the
projection, and `quantize_dynamic` treats its two uses differently: the rows that are looked up are dequantised one by
one, but of the projection only the storage shrinks. All of the embedding becomes float32 again at every step (106 MB
for base) before it is multiplied. `use_integer_logits` multiplies the integers instead, as in every other layer, and
the tensor stays one.
"""

import logging
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto, helper

from susurrus.models.errors import ModelError

_LARGEST_FILE = 1 << 31  # bytes of a protobuf
_INTEGER = frozenset({"DequantizeLinear", "DynamicQuantizeLinear", "MatMulInteger", "ConvInteger"})
_FLOAT = frozenset({"Conv", "Erf", "Gemm", "LayerNormalization", "MatMul", "Softmax"})


@dataclass(frozen=True, slots=True)
class Recipe:
    """How weights become integers. The default is what phone builds of ONNX Runtime can run."""

    per_channel: bool = False
    """A scale for each output of a layer, not one for all."""
    reduce_range: bool = False
    """Seven bits: no sum of two products overflows 16 bits on CPUs without VNNI."""
    plain: bool = False
    """Leave what `quantize_dynamic` wrote as it is, the logits in float32."""


@dataclass(frozen=True, slots=True)
class Contents:
    """What a quantised graph is made of."""

    operators: Mapping[str, int]
    """Operator to how often it occurs, subgraphs included."""
    float_bytes: Mapping[str, int]
    """Operator to the bytes of float32 weights that it takes."""

    @property
    def integer_operators(self) -> dict[str, int]:
        """Those that make integers, take them, or make floats of them."""
        return {name: count for name, count in self.operators.items() if name in _INTEGER}

    @property
    def float_operators(self) -> dict[str, int]:
        """Those that compute with floats; operators of shapes, and sums and scales, left out."""
        return {name: count for name, count in self.operators.items() if name in _FLOAT}


def quantize_graph(source: Path, target: Path, recipe: Recipe, *, encoder: bool) -> Contents:
    """Write the quantised twin of a graph.

    Args:
        source: A float32 graph; weights may lie beside it.
        target: The file to be written.
        recipe: How.
        encoder: Only MatMul and Gemm become integers: runtimes on phones have no ConvInteger. Decoders have no
            convolutions, and the embedding's Gather is quantised too.

    Raises:
        ModelError: The file is no float32 ONNX graph.
    """
    from onnxruntime.quantization import QuantType, quantize_dynamic  # noqa: PLC0415  # half a second

    try:
        model = onnx.load(source)
    except Exception as error:  # protobuf's, onnx's and the system's
        raise ModelError(f"{source} cannot be read: {error}".partition("\n")[0]) from error
    if _INTEGER & contents(model).operators.keys():
        raise ModelError(f"{source} holds integers already: name the folder of a float32 export")
    large = sum(part.stat().st_size for part in source.parent.glob(f"{source.name}*")) > 4 * _LARGEST_FILE
    with _without_advice():
        quantize_dynamic(
            model,
            target,
            op_types_to_quantize=["MatMul", "Gemm"] if encoder else None,
            per_channel=recipe.per_channel,
            reduce_range=recipe.reduce_range,
            weight_type=QuantType.QInt8,
            use_external_data_format=large,
            extra_options={"EnableSubgraph": True},
        )
    quantized = onnx.load(target)
    if not recipe.plain and use_integer_logits(quantized):
        beside = target.with_name(f"{target.name}.data")  # the quantiser's name for it
        beside.unlink(missing_ok=True)
        onnx.save(quantized, target, save_as_external_data=large, location=beside.name)
    return contents(quantized)


def use_integer_logits(model: onnx.ModelProto) -> int:
    """Rewrite float products by a dequantised weight as integer products, in place.

    `x @ DequantizeLinear(w)` becomes `MatMulInteger(DynamicQuantizeLinear(x), w)`, times both scales.

    Returns:
        How many were rewritten: one for each decoder in the file.
    """
    graphs = list(_graphs(model.graph))
    makers = {output: node for graph in graphs for node in graph.node for output in node.output}
    axes = {tensor.name: len(tensor.dims) for graph in graphs for tensor in graph.initializer}
    count = 0
    for graph in reversed(graphs):  # the innermost first: an If is replaced together with its subgraphs
        nodes: list[Any] = []
        for node in graph.node:
            weight = makers.get(node.input[1]) if node.op_type == "MatMul" else None
            if weight is None or weight.op_type != "DequantizeLinear" or axes.get(weight.input[1]) != 0:
                nodes.append(node)
            else:
                nodes += _integer_product(node, weight)
                count += 1
        _put(graph, nodes)
    graphs = list(_graphs(model.graph))
    used = {name for graph in graphs for node in graph.node for name in node.input}
    for graph in reversed(graphs):
        _put(graph, [node for node in graph.node if node.op_type != "DequantizeLinear" or node.output[0] in used])
    return count


def _put(graph: Any, nodes: list[Any]) -> None:
    kept = [type(node).FromString(node.SerializeToString()) for node in nodes]  # or they would go with the graph's
    del graph.node[:]
    graph.node.extend(kept)


def contents(model: onnx.ModelProto) -> Contents:
    """Count operators, and the float32 weights of each."""
    graphs = list(_graphs(model.graph))
    sizes = {
        tensor.name: 4 * prod(tensor.dims)
        for graph in graphs
        for tensor in graph.initializer
        if tensor.data_type == TensorProto.FLOAT
    }
    nodes = [node for graph in graphs for node in graph.node]
    taken: Counter[str] = Counter()
    for node in nodes:
        taken[node.op_type] += sum(sizes.pop(name, 0) for name in node.input)  # a shared tensor counts once
    return Contents(dict(Counter(node.op_type for node in nodes).most_common()), dict(taken.most_common()))


def _integer_product(node: Any, weight: Any) -> list[Any]:
    """Nodes whose last one puts out what `node` did."""
    values, scale, zero = weight.input
    name = node.output[0]
    quantized, factor, offset, total, cast, factors = (f"{name}_{part}" for part in "qszicf")
    return [
        helper.make_node("DynamicQuantizeLinear", [node.input[0]], [quantized, factor, offset]),
        helper.make_node("MatMulInteger", [quantized, values, offset, zero], [total], name="product"),
        helper.make_node("Cast", [total], [cast], to=TensorProto.FLOAT),
        helper.make_node("Mul", [factor, scale], [factors]),
        helper.make_node("Mul", [cast, factors], [name]),
    ]


def _graphs(graph: Any) -> Iterator[Any]:
    """Walk a graph and the subgraphs of its If nodes."""
    yield graph
    for attribute in (a for node in graph.node for a in node.attribute if a.type == onnx.AttributeProto.GRAPH):
        yield from _graphs(attribute.g)


@contextmanager
def _without_advice() -> Iterator[None]:
    """Silence the quantiser's log: it recommends a step that would write other files."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)
