"""Writes ONNX graphs node by node, with their weights in one external file that all graphs of a model share.

The external data layout is that of ONNX (`docs/ExternalData.md`): every tensor starts at a page boundary, so that
ONNX Runtime maps it, and processes share the pages. Equal bytes are written once, whatever their names and shapes:
the decoder's embedding and its output projection are one run of bytes.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

from susurrus.models.graphs.contract import GRAPH_FORMAT, Contract, Specs, TensorSpec

MICROSOFT = "com.microsoft"
OPSET = 20  # the first with Gelu
IR_VERSION = 10  # what ONNX Runtime 1.30, the oldest supported, reads for certain
ALIGNMENT = 4096  # bytes: one page
INLINE = 256  # bytes: smaller constants stay in the graph, where shape inference can see them


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a tensor's bytes lie in the weights file."""

    offset: int
    length: int


class WeightsFile:
    """The external data of all graphs in one folder, written front to back.

    Only one tensor is held in memory at a time. Nothing is read back; until `close` the file has a temporary name, so
    that an interrupted build leaves no file under the final one.

    Args:
        path: The final name; graphs refer to it by name, from the same folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._temporary = path.with_name(path.name + ".part")
        self._file = self._temporary.open("xb")
        self._placements: dict[bytes, Placement] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, _e: BaseException | None, _t: TracebackType | None) -> None:
        self._file.close()
        if kind is None:
            self._temporary.replace(self.path)
        else:
            self._temporary.unlink()

    def add(self, array: NDArray[Any]) -> Placement:
        """Writes the array's bytes at the next page boundary, unless the same bytes are there already."""
        raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
        digest = hashlib.blake2b(raw, digest_size=32).digest()
        if digest not in self._placements:
            offset = -(-self._file.tell() // ALIGNMENT) * ALIGNMENT
            self._file.write(b"\0" * (offset - self._file.tell()))
            self._file.write(raw)
            self._placements[digest] = Placement(offset, raw.nbytes)
        return self._placements[digest]


class Graph:
    """One graph under construction. Values are referred to by name.

    Args:
        name: The graph's name, such as `encoder`.
        contract: Its inputs, which nodes may read, and its outputs, which some node has to write.
        weights: Where tensors of `INLINE` bytes and more go.
    """

    def __init__(self, name: str, contract: Contract, weights: WeightsFile) -> None:
        self.name = name
        self.contract = contract
        self._weights = weights
        self._nodes: list[onnx.NodeProto] = []
        self._initializers: dict[str, onnx.TensorProto] = {}

    def node(self, op: str, inputs: Sequence[str], name: str, *, domain: str = "", **attributes: Any) -> str:
        """Adds a node with one output, called `name` like the node itself."""
        return self.nodes(op, inputs, [name], domain=domain, **attributes)[0]

    def nodes(
        self, op: str, inputs: Sequence[str], outputs: Sequence[str], *, domain: str = "", **attributes: Any
    ) -> Sequence[str]:
        """Adds a node with several outputs, named after the first of them."""
        node = helper.make_node(op, inputs, outputs, name=outputs[0], domain=domain, **attributes)
        self._nodes.append(node)
        return outputs

    def tensor(self, name: str, array: NDArray[Any]) -> str:
        """Adds a constant: into the weights file, or into the graph when it is small."""
        if name not in self._initializers:
            proto = TensorProto(name=name, dims=array.shape)
            proto.data_type = helper.np_dtype_to_tensor_dtype(array.dtype)
            if array.nbytes < INLINE:
                proto.raw_data = array.tobytes()
            else:
                self._refer(proto, self._weights.add(array))
            self._initializers[name] = proto
        return name

    def integers(self, values: Sequence[int] | int) -> str:
        """Adds an int64 constant, a vector or a scalar, for axes, shapes and indices."""
        label = "x".join(map(str, values)) if isinstance(values, Sequence) else f"scalar_{values}"
        return self.tensor(f"integers_{label}", np.array(values, np.int64))

    def expose(self, name: str, spec: TensorSpec) -> None:
        """Makes a value an output that the contract does not have."""
        self.contract = replace(self.contract, outputs={**self.contract.outputs, name: spec})

    def model(self, metadata: Mapping[str, str]) -> onnx.ModelProto:
        """The finished model."""
        graph = helper.make_graph(
            self._nodes,
            self.name,
            _value_infos(self.contract.inputs),
            _value_infos(self.contract.outputs),
            list(self._initializers.values()),
        )
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(MICROSOFT, 1)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="susurrus")
        helper.set_model_props(model, dict(sorted(metadata.items())))
        return model

    def save(self, path: Path, **metadata: str) -> None:
        """Writes the graph; the same graph gives the same bytes."""
        write_whole(path, self.model({"format": GRAPH_FORMAT, **metadata}).SerializeToString(deterministic=True))

    def _refer(self, proto: onnx.TensorProto, placement: Placement) -> None:
        proto.data_location = TensorProto.EXTERNAL
        for key, value in (
            ("location", self._weights.path.name),
            ("offset", str(placement.offset)),
            ("length", str(placement.length)),
        ):
            proto.external_data.add(key=key, value=value)


def write_whole(path: Path, content: bytes) -> None:
    """Writes a file that has its name only once it is whole."""
    temporary = path.with_name(f"{path.name}.part")
    temporary.write_bytes(content)
    temporary.replace(path)


def _value_infos(specs: Specs) -> list[onnx.ValueInfoProto]:
    return [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(spec.dtype)), spec.shape)
        for name, spec in specs.items()
    ]
