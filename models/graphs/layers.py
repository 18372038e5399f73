"""The layers that differ between precisions; everything else of the graphs is the same code.

`FloatLayers` computes in float32. `DynamicInt8Layers` quantizes activations at run time, one scale a tensor, and is
right for many positions at once (the encoder). `BlockInt8Layers` reads 8-bit weights with a scale for each block and
is right for a few positions, where reading weights is all the work (the decoder).
"""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from susurrus.models.graphs.builder import MICROSOFT, Graph
from susurrus.models.graphs.quantization import EMBEDDING_BLOCK, LAYER_BLOCK, block_size, quantize_blocks, quantize_rows

FloatArray = NDArray[np.float32]

_INT8_COMPUTE = 4  # accuracy_level of MatMulNBits: its float32 path takes twice the time at one position, four at four


class Layers(Protocol):
    """How a linear layer and a tied embedding are computed."""

    def linear(self, graph: Graph, x: str, name: str, weight: FloatArray, bias: FloatArray) -> str:
        """Adds y = x weight^T + bias: x [..., n_inputs], weight float32 (n_outputs, n_inputs), bias (n_outputs,)."""
        ...

    def embed(self, graph: Graph, ids: str, name: str, weight: FloatArray) -> str:
        """Adds the rows of `weight`, float32 (n_vocab, width), that int64 `ids` [B, S] ask for: [B, S, width]."""
        ...

    def project(self, graph: Graph, x: str, name: str, weight: FloatArray) -> str:
        """Adds y = x weight^T with the weight that `embed` has stored already: x [B, S, width]."""
        ...


class FloatLayers:
    """Everything in float32."""

    def linear(self, graph: Graph, x: str, name: str, weight: FloatArray, bias: FloatArray) -> str:
        """See `Layers`."""
        product = graph.node("MatMul", [x, graph.tensor(f"{name}/weight", weight.T)], f"{name}/product")
        return graph.node("Add", [product, graph.tensor(f"{name}/bias", bias)], name)

    def embed(self, graph: Graph, ids: str, name: str, weight: FloatArray) -> str:
        """See `Layers`."""
        return graph.node("Gather", [graph.tensor("embeddings/weight", weight), ids], name)

    def project(self, graph: Graph, x: str, name: str, weight: FloatArray) -> str:
        """See `Layers`."""
        stored = graph.tensor("embeddings/weight", weight)
        return graph.node("FusedMatMul", [x, stored], name, domain=MICROSOFT, transB=1)


class DynamicInt8Layers(FloatLayers):
    """INT8 weights with a scale for each output; activations quantized as they come.

    The weights are signed: unsigned ones take up to twice the time. They are scaled so that no processor saturates, see
    `quantize_rows`.
    """

    def linear(self, graph: Graph, x: str, name: str, weight: FloatArray, bias: FloatArray) -> str:
        """See `Layers`."""
        stored, scales = quantize_rows(weight)
        inputs = [
            x,
            graph.tensor(f"{name}/weight", stored.T),
            graph.tensor(f"{name}/scale", scales),
            "",  # zero point: 0
            graph.tensor(f"{name}/bias", bias),
        ]
        return graph.node("DynamicQuantizeMatMul", inputs, name, domain=MICROSOFT)


class BlockInt8Layers:
    """8-bit weights in blocks, the embedding and the output projection in the same bytes."""

    def linear(self, graph: Graph, x: str, name: str, weight: FloatArray, bias: FloatArray) -> str:
        """See `Layers`."""
        stored_bias = graph.tensor(f"{name}/bias", bias)
        return _block_product(graph, x, name, weight, prefix=name, most=LAYER_BLOCK, bias=stored_bias)

    def embed(self, graph: Graph, ids: str, name: str, weight: FloatArray) -> str:
        """See `Layers`."""
        block = block_size(weight.shape[1], EMBEDDING_BLOCK)
        stored, scales = quantize_blocks(weight, block)
        rows = graph.tensor("embeddings/rows", stored.reshape(weight.shape))
        inputs = [rows, ids, graph.tensor("embeddings/scale", scales)]
        axes = {"gather_axis": 0, "quantize_axis": 1}
        return graph.node("GatherBlockQuantized", inputs, name, domain=MICROSOFT, bits=8, block_size=block, **axes)

    def project(self, graph: Graph, x: str, name: str, weight: FloatArray) -> str:
        """See `Layers`."""
        return _block_product(graph, x, name, weight, prefix="embeddings", most=EMBEDDING_BLOCK)


def _block_product(
    graph: Graph, x: str, name: str, weight: FloatArray, *, prefix: str, most: int, bias: str = ""
) -> str:
    n_outputs, n_inputs = weight.shape
    block = block_size(n_inputs, most)
    stored, scales = quantize_blocks(weight, block)
    weights = [graph.tensor(f"{prefix}/weight", stored), graph.tensor(f"{prefix}/scale", scales)]
    inputs = [x, *weights, *(["", "", bias] if bias else [])]
    return graph.node(
        "MatMulNBits",
        inputs,
        name,
        domain=MICROSOFT,
        K=n_inputs,
        N=n_outputs,
        bits=8,
        block_size=block,
        accuracy_level=_INT8_COMPUTE,
    )
