"""Where every token of a finished text looks in the audio, as one ONNX graph: what word times are found from.

It is the decoder (`whisper/model.py`, `TextDecoder`) over a whole text at once, without caches of its own, up to the
cross-attention of the last alignment head; the weights are the decoder's own bytes. An int8 cross-attention cache is
turned back into float: for dozens of tokens at once that is faster than the operator that reads int8.
"""

from collections.abc import Sequence
from functools import partial

from onnx import TensorProto

from susurrus.models.checkpoints.checkpoint import Checkpoint
from susurrus.models.dimensions import Dimensions
from susurrus.models.graphs.builder import MICROSOFT, Graph, WeightsFile
from susurrus.models.graphs.contract import alignment_contract
from susurrus.models.graphs.decoder import KEY_COUNTS, DecoderLayers, add_key_counts
from susurrus.models.graphs.layers import Layers


def alignment_graph(
    checkpoint: Checkpoint,
    layers: Layers,
    weights: WeightsFile,
    *,
    heads: Sequence[tuple[int, int]],
    quantized_cross: bool,
) -> Graph:
    """Builds the graph.

    Inputs and outputs: `contract.alignment_contract`.

    Args:
        checkpoint: The weights.
        layers: How linear layers are computed.
        weights: Where tensors go.
        heads: (layer, head) pairs whose attention is wanted.
        quantized_cross: Whether the cross-attention cache is int8.
    """
    dimensions = checkpoint.dimensions
    contract = alignment_contract(dimensions, heads, quantized_cross=quantized_cross)
    graph = Graph("alignment", contract, weights)
    network = DecoderLayers(graph, checkpoint, layers)
    x = network.embed()
    add_key_counts(graph, x)
    last = max(layer for layer, _ in heads)
    scores: list[str] = []
    for layer in range(last + 1):
        x = network.self_attention(layer, x, partial(_causal_attention, graph, dimensions.n_text_head))
        query = network.cross_query(layer, x)
        key = _float_cache(graph, dimensions, "key", layer)
        if wanted := [head for where, head in heads if where == layer]:
            scores.append(_scores(graph, dimensions, query, key, wanted))
        if layer < last:
            parts = [query, key, _float_cache(graph, dimensions, "value", layer), "", "", KEY_COUNTS]
            mixed = _attention(graph, parts, f"{query}/mixed", num_heads=dimensions.n_text_head)
            x = network.after_cross_attention(layer, x, mixed)
    graph.node("Softmax", [graph.node("Concat", scores, "scores", axis=1)], "attention", axis=-1)
    return graph


def _causal_attention(graph: Graph, heads: int, qkv: str, name: str) -> str:
    parts = graph.nodes("Split", [qkv], [f"{name}/{part}" for part in "qkv"], axis=2, num_outputs=3)
    return _attention(graph, parts, name, num_heads=heads, unidirectional=1)


def _attention(graph: Graph, parts: Sequence[str], name: str, **attributes: int) -> str:
    return graph.node("MultiHeadAttention", parts, name, domain=MICROSOFT, **attributes)


def _float_cache(graph: Graph, dimensions: Dimensions, kind: str, layer: int) -> str:
    """The cache as float32: itself, or stored * scale."""
    cache, scale = f"cross_{kind}_{layer}", f"cross_{kind}_scale_{layer}"
    if scale not in graph.contract.inputs:
        return cache
    stored = graph.node("Cast", [cache], f"{cache}/stored", to=TensorProto.FLOAT)
    shape = graph.integers([0, dimensions.n_text_head, 1, dimensions.head_size])
    return graph.node("Mul", [stored, graph.node("Reshape", [scale, shape], f"{scale}/by_head")], f"{cache}/float")


def _scores(graph: Graph, dimensions: Dimensions, query: str, key: str, heads: Sequence[int]) -> str:
    """Scaled products of some heads' queries [B, S, D] and keys [B, H, C, D / H]: [B, len(heads), S, A]."""
    size = dimensions.head_size
    split = graph.node("Reshape", [query, graph.integers([0, 0, dimensions.n_text_head, size])], f"{query}/split")
    by_head = graph.node("Transpose", [split], f"{query}/by_head", perm=[0, 2, 1, 3])
    queries = graph.node("Gather", [by_head, graph.integers(heads)], f"{query}/wanted", axis=1)
    keys = graph.node("Gather", [key, graph.integers(heads)], f"{key}/wanted", axis=1)
    heard = graph.node("Slice", [keys, graph.integers([0]), "audio_length", graph.integers([2])], f"{key}/heard")
    scaling = {"transB": 1, "alpha": size**-0.5}
    return graph.node("FusedMatMul", [queries, heard], f"{query}/scores", domain=MICROSOFT, **scaling)
