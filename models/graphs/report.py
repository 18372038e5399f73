"""What is inside one ONNX file, external weights unread: contract, operators, share of integers."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import helper

from susurrus.models.errors import ModelError

# Operators that multiply by a weight -> which input is that weight.
_WEIGHT_INPUT = {
    "Attention": 1,
    "DynamicQuantizeMatMul": 1,
    "FusedMatMul": 1,
    "Gemm": 1,
    "MatMul": 1,
    "MatMulInteger": 1,
    "MatMulIntegerToFloat": 1,
    "MatMulNBits": 1,
    "QAttention": 1,
    "QGemm": 3,
    "QLinearMatMul": 3,
}
_FLOAT_PRODUCTS = {"FusedMatMul", "Gemm", "MatMul"}
_SAME_VALUES = {
    "Cast",
    "Identity",
    "Reshape",
    "Transpose",
    "Unsqueeze",
}  # a weight seen through these is that weight


@dataclass(frozen=True, slots=True)
class Port:
    """An input or output of a graph."""

    name: str
    type: str
    """NumPy's name of the element type."""
    shape: tuple[int | str, ...]
    """A name where the length is free."""

    def __str__(self) -> str:
        return f"{self.name}  {self.type} [{', '.join(map(str, self.shape))}]"


@dataclass(slots=True)
class GraphReport:
    """What is inside one ONNX file."""

    file: str
    size: int
    """Bytes of the file itself."""
    opsets: dict[str, int]
    """Operator domain to version; the standard one is "ai.onnx"."""
    metadata: dict[str, str]
    inputs: list[Port]
    outputs: list[Port]
    nodes: dict[str, int]
    """Operator to how often it occurs, subgraphs included; most frequent first."""
    weight_bytes: int
    """Bytes of all constants, those in external files included."""
    integer_bytes: int
    """Bytes of those that are integers of at most 8 bits."""
    products: int
    """Weights that hidden states are multiplied by."""
    integer_products: int
    """Those multiplied as integers."""
    integer_share: float
    """The same in numbers of those weights: 1.0 is a multiplication in integers throughout."""
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Tensor:
    type: str
    shape: tuple[int, ...]

    @property
    def small_integer(self) -> bool:
        return self.type in {"int8", "uint8", "int4", "uint4", "int2", "uint2"}

    @property
    def bytes(self) -> int:
        bits = re.search(r"\d+", self.type)
        return (prod(self.shape) * int(bits[0] if bits else 8) + 7) // 8


@dataclass(frozen=True, slots=True)
class _Weight:
    integer: bool  # multiplied as integers
    stored: bool  # stored as integers
    count: int  # of its elements


def inspect_file(path: Path, name: str = "") -> GraphReport:
    """Report on one ONNX file.

    Args:
        path: The file; weights that lie beside it are not read.
        name: What to call it; empty takes the path.

    Raises:
        ModelError: If it cannot be read or is not ONNX.
    """
    try:
        model = onnx.load(path, load_external_data=False)
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}") from error
    except (DecodeError, ValueError) as error:
        raise ModelError(f"{path} is damaged or no ONNX file: {error}") from error
    if not model.ir_version or not model.graph.node:
        raise ModelError(f"{path} is damaged or no ONNX file: it has no graph")
    graphs = list(_graphs(model.graph))
    counts = Counter(node.op_type for graph in graphs for node in graph.node)
    tensors = {name: tensor for graph in graphs for name, tensor in _constants(graph)}
    weights = list(_weights(graphs, tensors))
    return GraphReport(
        file=name or str(path),
        size=path.stat().st_size,
        opsets={opset.domain or "ai.onnx": opset.version for opset in model.opset_import},
        metadata={entry.key: entry.value for entry in model.metadata_props},
        inputs=[_port(value) for value in model.graph.input if value.name not in tensors],
        outputs=[_port(value) for value in model.graph.output],
        nodes=dict(sorted(counts.items(), key=lambda item: (-item[1], item[0]))),
        weight_bytes=sum(tensor.bytes for tensor in tensors.values()),
        integer_bytes=sum(tensor.bytes for tensor in tensors.values() if tensor.small_integer),
        products=len(weights),
        integer_products=sum(weight.integer for weight in weights),
        integer_share=sum(w.count for w in weights if w.integer) / (sum(w.count for w in weights) or 1),
        warnings=[*_warnings(counts, weights), *_external_warnings(path, graphs)],
    )


def _graphs(graph: Any) -> Iterator[Any]:
    """Walk a graph and the subgraphs of its If and Loop nodes."""
    yield graph
    for attribute in (a for node in graph.node for a in node.attribute):
        for subgraph in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
            yield from _graphs(subgraph)


def _constants(graph: Any) -> Iterator[tuple[str, _Tensor]]:
    for tensor in graph.initializer:
        yield tensor.name, _tensor(tensor)
    for node in graph.node:
        if node.op_type == "Constant" and node.attribute and node.attribute[0].HasField("t"):
            yield node.output[0], _tensor(node.attribute[0].t)


def _tensor(tensor: Any) -> _Tensor:
    return _Tensor(_type_name(tensor.data_type), tuple(tensor.dims))


def _type_name(element: int) -> str:
    try:
        return str(helper.tensor_dtype_to_np_dtype(element).name)
    except KeyError:
        return "undefined"


def _port(value: Any) -> Port:
    tensor = value.type.tensor_type
    shape = tuple(d.dim_value if d.HasField("dim_value") else d.dim_param or "?" for d in tensor.shape.dim)
    return Port(value.name, _type_name(tensor.elem_type), shape)


def _weights(graphs: Sequence[Any], tensors: Mapping[str, _Tensor]) -> Iterator[_Weight]:
    """Yield every weight that something is multiplied by."""
    makers = {output: node for graph in graphs for node in graph.node for output in node.output}
    for node in (node for graph in graphs for node in graph.node if node.op_type in _WEIGHT_INPUT):
        inputs = [_origin(name, makers) for name in node.input]
        index = _WEIGHT_INPUT[node.op_type]
        if len(inputs) <= index:
            continue
        dequantize = makers.get(inputs[index])
        if dequantize is not None and dequantize.op_type == "DequantizeLinear":
            stored = tensors.get(_origin(dequantize.input[0], makers))
            # With a dequantised activation too, the runtime fuses both into an integer product.
            fused = (maker := makers.get(inputs[0])) is not None and maker.op_type == "DequantizeLinear"
        else:
            stored, fused = tensors.get(inputs[index]), node.op_type not in _FLOAT_PRODUCTS
        if stored is not None:
            count = prod(stored.shape) * 8 // _bits(node)
            yield _Weight(fused and stored.small_integer, stored.small_integer, count)


def _bits(node: Any) -> int:
    """Bits of one element of a weight that is packed into bytes; 8 for one that is not."""
    return next((attribute.i for attribute in node.attribute if attribute.name == "bits"), 8)


def _origin(name: str, makers: Mapping[str, Any]) -> str:
    while (maker := makers.get(name)) is not None and maker.op_type in _SAME_VALUES:
        name = maker.input[0]
    return name


def _warnings(counts: Mapping[str, int], weights: Sequence[_Weight]) -> Iterator[str]:
    if count := counts.get("ConvInteger", 0):
        yield f"{count} ConvInteger: integer convolutions cost accuracy, and mobile runtimes lack them"
    if count := sum(weight.stored and not weight.integer for weight in weights):
        yield f"{count} weights are stored as integers, multiplied as floats (DequantizeLinear before MatMul)"


def _external_warnings(path: Path, graphs: Sequence[Any]) -> Iterator[str]:
    """Tell which external weights files are missing or too short."""
    ends: dict[str, int] = {}
    for tensor in (tensor for graph in graphs for tensor in graph.initializer):
        place = {entry.key: entry.value for entry in tensor.external_data}
        if location := place.get("location"):
            end = int(place.get("offset", 0)) + int(place.get("length", 0))
            ends[location] = max(end, ends.get(location, 0))
    for location, end in sorted(ends.items()):
        weights = path.parent / location
        size = weights.stat().st_size if weights.is_file() else -1
        if size < end:
            found = "is missing" if size < 0 else f"has {size} bytes, wanted {end}"
            yield f"weights file {location} {found}"
