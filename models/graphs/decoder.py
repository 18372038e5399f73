"""Whisper's decoder as one ONNX graph for prompt and step, with caches that are written in place.

The network is openai/whisper `whisper/model.py` (`TextDecoder`). Self-attention is ONNX Runtime's
GroupQueryAttention, which appends to a cache of full length when `past` and `present` are bound to the same memory.
Cross-attention reads an int8 cache through the same operator: the keys and values of the call itself are empty, so
that everything attended to comes from the cache, and `causal=0` lets every token of a prompt see all of it.
"""

from dataclasses import dataclass

import numpy as np

from susurrus.models.checkpoints.checkpoint import Checkpoint
from susurrus.models.config import Dimensions
from susurrus.models.graphs.builder import MICROSOFT, Graph, WeightsFile
from susurrus.models.graphs.contract import cross_cache, decoder_contract, self_cache, self_test_contract
from susurrus.models.graphs.encoder import layer_norm, linear
from susurrus.models.graphs.layers import Layers
from susurrus.models.graphs.smoothing import Affine

_EMPTY = "empty"  # the keys and values that every cross-attention over a cache is called with


def decoder_graph(checkpoint: Checkpoint, layers: Layers, weights: WeightsFile, *, quantized_cross: bool) -> Graph:
    """Builds the decoder. Inputs and outputs: `contract.decoder_contract`."""
    dimensions = checkpoint.dimensions
    graph = Graph("decoder", decoder_contract(dimensions, quantized_cross=quantized_cross), weights)
    builder = _DecoderLayers(graph, checkpoint, layers, dimensions, quantized_cross)
    embedding = checkpoint.tensor("decoder/embeddings/weight")
    table = graph.tensor("decoder/positions", checkpoint.tensor("decoder/position_encodings/encodings"))
    embedded = layers.embed(graph, "ids", "embedded", embedding)
    x = graph.node("Add", [embedded, graph.node("Gather", [table, "positions"], "encodings")], "positioned")
    if quantized_cross:
        _add_empty(graph, x)
    for layer in range(dimensions.n_text_layer):
        x = builder.add(layer, x)
    edges = [graph.integers([value]) for value in (-1, np.iinfo(np.int64).max, 1)]
    last = graph.node("Slice", [x, *edges], "last")
    normal = builder.norm("decoder/layer_norm", last)
    layers.project(graph, normal, "logits", embedding)
    return graph


def self_test_graph(dimensions: Dimensions, weights: WeightsFile) -> Graph:
    """Builds the int8 cross-attention of one layer alone, for comparing it with float arithmetic.

    Inputs and outputs: `contract.self_test_contract`.
    """
    graph = Graph("self_test", self_test_contract(dimensions), weights)
    _add_empty(graph, "query")
    _quantized_attention(graph, "query", "attended", 0, dimensions)
    return graph


@dataclass(frozen=True, slots=True)
class _DecoderLayers:
    graph: Graph
    checkpoint: Checkpoint
    layers: Layers
    dimensions: Dimensions
    quantized_cross: bool

    def add(self, layer: int, x: str) -> str:
        """Adds one layer: self-attention, cross-attention, feed-forward, each with its residual."""
        prefix = f"decoder/layer_{layer}"
        x = self._residual(x, f"{prefix}/self_attention", self._self_attention(x, f"{prefix}/self_attention", layer))
        x = self._residual(x, f"{prefix}/attention", self._cross_attention(x, f"{prefix}/attention", layer))
        return self._residual(x, f"{prefix}/ffn", self._feed_forward(x, f"{prefix}/ffn"))

    def norm(self, name: str, x: str) -> str:
        norm = Affine(self.checkpoint.tensor(f"{name}/gamma"), self.checkpoint.tensor(f"{name}/beta"))
        return layer_norm(self.graph, x, name, norm)

    def _linear(self, name: str, x: str) -> str:
        affine = Affine(self.checkpoint.tensor(f"{name}/weight"), self.checkpoint.tensor(f"{name}/bias"))
        return linear(self.graph, x, name, self.layers, affine)

    def _residual(self, x: str, name: str, branch: str) -> str:
        return self.graph.node("Add", [x, branch], f"{name}/added")

    def _self_attention(self, x: str, name: str, layer: int) -> str:
        heads = self.dimensions.n_text_head
        past = list(self_cache(self.dimensions, layer))
        qkv = self._linear(f"{name}/linear_0", self.norm(f"{name}/layer_norm", x))
        self.graph.nodes(
            "GroupQueryAttention",
            [qkv, "", "", *past, "last_position", "length"],
            [f"{name}/mixed", *(f"present_{cache}" for cache in past)],
            domain=MICROSOFT,
            num_heads=heads,
            kv_num_heads=heads,
        )
        return self._linear(f"{name}/linear_1", f"{name}/mixed")

    def _cross_attention(self, x: str, name: str, layer: int) -> str:
        query = self._linear(f"{name}/linear_0", self.norm(f"{name}/layer_norm", x))
        if self.quantized_cross:
            _quantized_attention(self.graph, query, f"{name}/mixed", layer, self.dimensions)
        else:
            _float_attention(self.graph, query, f"{name}/mixed", layer, self.dimensions)
        return self._linear(f"{name}/linear_2", f"{name}/mixed")

    def _feed_forward(self, x: str, name: str) -> str:
        inner = self._linear(f"{name}/linear_0", self.norm(f"{name}/layer_norm", x))
        return self._linear(f"{name}/linear_1", self.graph.node("Gelu", [inner], f"{name}/gelu"))


def _add_empty(graph: Graph, x: str) -> None:
    """Adds the keys and values of a call that brings none, [B, 0, D]: a slice of `x` [B, S, D], for its batch."""
    edges = [graph.integers([value]) for value in (0, 0, 1)]
    graph.node("Slice", [x, *edges], _EMPTY)


def _quantized_attention(graph: Graph, query: str, name: str, layer: int, dimensions: Dimensions) -> None:
    key, value, *scales = cross_cache(dimensions, layer, quantized=True)
    heads = dimensions.n_text_head
    graph.nodes(
        "GroupQueryAttention",
        [query, _EMPTY, _EMPTY, key, value, "cross_last_position", "cross_length", "", "", "", "", "", *scales],
        [name, f"present_{key}", f"present_{value}"],
        domain=MICROSOFT,
        num_heads=heads,
        kv_num_heads=heads,
        causal=0,
        kv_cache_bit_width=8,
        k_quant_type="PER_CHANNEL",
        v_quant_type="PER_CHANNEL",
    )


def _float_attention(graph: Graph, query: str, name: str, layer: int, dimensions: Dimensions) -> None:
    cache = cross_cache(dimensions, layer, quantized=False)
    graph.node("MultiHeadAttention", [query, *cache], name, domain=MICROSOFT, num_heads=dimensions.n_text_head)
