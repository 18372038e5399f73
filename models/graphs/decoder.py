"""Whisper's decoder as one ONNX graph for prompt and step, with caches that are written in place.

The network is openai/whisper `whisper/model.py` (`TextDecoder`). Self-attention is ONNX Runtime's
GroupQueryAttention, which appends to a cache of full length when `past` and `present` are bound to the same memory.
Cross-attention reads an int8 cache through the same operator: the keys and values of the call itself are empty, so
that everything attended to comes from the cache, and `causal=0` lets every token of a prompt see all of it.

The B rows of a batch are about W windows. Cross-attention takes those of one window for one longer row,
[W, B / W S, D], so that one copy of the window's keys and values serves them all: as order means nothing to it, the
numbers are the same. The scales of int8 keys and values are a window's own, where the operator knows only one for all:
so the queries are multiplied by the keys' scales beforehand, and what comes out by the values'.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from susurrus.models.checkpoints.checkpoint import Checkpoint
from susurrus.models.dimensions import Dimensions
from susurrus.models.graphs.builder import MICROSOFT, Graph, WeightsFile
from susurrus.models.graphs.contract import cross_cache, decoder_contract, self_cache, self_test_contract
from susurrus.models.graphs.encoder import layer_norm, linear
from susurrus.models.graphs.layers import Layers
from susurrus.models.graphs.smoothing import Affine

_EMPTY = "empty"  # the keys and values that every cross-attention over a cache is called with
KEY_COUNTS = "key_counts"  # what is added to the scores of every key


def decoder_graph(checkpoint: Checkpoint, layers: Layers, weights: WeightsFile, *, quantized_cross: bool) -> Graph:
    """Builds the decoder. Inputs and outputs: `contract.decoder_contract`."""
    dimensions = checkpoint.dimensions
    graph = Graph("decoder", decoder_contract(dimensions, quantized_cross=quantized_cross), weights)
    network = DecoderLayers(graph, checkpoint, layers)
    x = network.embed()
    shape = graph.node("Shape", [x], "shape")
    windows = graph.node("Shape", ["cross_log_counts"], "windows", start=0, end=1)
    one_row = graph.node("Concat", [windows, graph.integers([-1, dimensions.n_text_state])], "one_row_shape", axis=0)
    add_key_counts(graph, graph.node("Reshape", [x, one_row], "one_row"))
    if quantized_cross:
        _add_empty(graph, "one_row")
    cross_attention = _quantized_attention if quantized_cross else _float_attention
    for layer in range(dimensions.n_text_layer):
        x = network.self_attention(layer, x, partial(_cached_attention, graph, layer, dimensions))
        name = f"decoder/layer_{layer}/attention"
        query = graph.node("Reshape", [network.cross_query(layer, x), one_row], f"{name}/one_row")
        cross_attention(graph, query, f"{name}/mixed", layer, dimensions)
        x = network.after_cross_attention(layer, x, graph.node("Reshape", [f"{name}/mixed", shape], f"{name}/rows"))
    edges = [graph.integers([value]) for value in (-1, np.iinfo(np.int64).max, 1)]
    last = graph.node("Slice", [x, *edges], "last")
    normal = network.norm("decoder/layer_norm", last)
    layers.project(graph, normal, "logits", checkpoint.tensor("decoder/embeddings/weight"))
    return graph


def self_test_graph(dimensions: Dimensions, weights: WeightsFile) -> Graph:
    """Builds the int8 cross-attention of one layer alone, for comparing it with float arithmetic.

    Inputs and outputs: `contract.self_test_contract`.
    """
    graph = Graph("self_test", self_test_contract(dimensions), weights)
    add_key_counts(graph, "query")
    _add_empty(graph, "query")
    _quantized_attention(graph, "query", "attended", 0, dimensions)
    return graph


@dataclass(frozen=True, slots=True)
class DecoderLayers:
    """The parts of a decoder layer; how the two attentions read their keys and values differs from graph to graph."""

    graph: Graph
    checkpoint: Checkpoint
    layers: Layers

    def embed(self) -> str:
        """Adds what the first layer takes: the embedding of `ids` plus the encoding of `positions`."""
        graph, tensor = self.graph, self.checkpoint.tensor
        table = graph.tensor("decoder/positions", tensor("decoder/position_encodings/encodings"))
        embedded = self.layers.embed(graph, "ids", "embedded", tensor("decoder/embeddings/weight"))
        return graph.node("Add", [embedded, graph.node("Gather", [table, "positions"], "encodings")], "positioned")

    def self_attention(self, layer: int, x: str, mix: Callable[[str, str], str]) -> str:
        """Adds self-attention and its residual.

        Args:
            layer: Number of the layer.
            x: Its input, [B, S, D].
            mix: Adds the attention itself, from query, key and value in one [B, S, 3 D], under the name given.
        """
        name = f"decoder/layer_{layer}/self_attention"
        qkv = self._linear(f"{name}/linear_0", self.norm(f"{name}/layer_norm", x))
        return self._residual(x, name, self._linear(f"{name}/linear_1", mix(qkv, f"{name}/mixed")))

    def cross_query(self, layer: int, x: str) -> str:
        """Adds the queries of cross-attention, [B, S, D]."""
        name = f"decoder/layer_{layer}/attention"
        return self._linear(f"{name}/linear_0", self.norm(f"{name}/layer_norm", x))

    def after_cross_attention(self, layer: int, x: str, mixed: str) -> str:
        """Adds the rest of the layer: what cross-attention gave, the feed-forward, and their residuals."""
        name = f"decoder/layer_{layer}/attention"
        x = self._residual(x, name, self._linear(f"{name}/linear_2", mixed))
        name = f"decoder/layer_{layer}/ffn"
        inner = self._linear(f"{name}/linear_0", self.norm(f"{name}/layer_norm", x))
        return self._residual(
            x, name, self._linear(f"{name}/linear_1", self.graph.node("Gelu", [inner], f"{name}/gelu"))
        )

    def norm(self, name: str, x: str) -> str:
        """Adds a LayerNorm under its name in the checkpoint."""
        norm = Affine(self.checkpoint.tensor(f"{name}/gamma"), self.checkpoint.tensor(f"{name}/beta"))
        return layer_norm(self.graph, x, name, norm)

    def _linear(self, name: str, x: str) -> str:
        affine = Affine(self.checkpoint.tensor(f"{name}/weight"), self.checkpoint.tensor(f"{name}/bias"))
        return linear(self.graph, x, name, self.layers, affine)

    def _residual(self, x: str, name: str, branch: str) -> str:
        return self.graph.node("Add", [x, branch], f"{name}/added")


def _cached_attention(graph: Graph, layer: int, dimensions: Dimensions, qkv: str, name: str) -> str:
    """Adds causal attention over a cache, to which the call's own keys and values are appended."""
    past = list(self_cache(dimensions, layer))
    heads = dimensions.n_text_head
    graph.nodes(
        "GroupQueryAttention",
        [qkv, "", "", *past, "last_position", "length"],
        [name, *(f"present_{cache}" for cache in past)],
        domain=MICROSOFT,
        num_heads=heads,
        kv_num_heads=heads,
    )
    return name


def _add_empty(graph: Graph, x: str) -> None:
    """Adds the keys and values of a call that brings none, [B, 0, D]: a slice of `x` [B, S, D], for its batch."""
    edges = [graph.integers([value]) for value in (0, 0, 1)]
    graph.node("Slice", [x, *edges], _EMPTY)


def add_key_counts(graph: Graph, query: str) -> None:
    """Adds the bias of all cross-attentions, [W, 1, S, L], from `cross_log_counts`: the same for each of S queries."""
    axes = graph.integers([1, 2])
    for_one = graph.node("Unsqueeze", ["cross_log_counts", axes], "cross_log_counts/for_one")
    queries = graph.node("Shape", [query], "queries", start=1, end=2)
    shape = [graph.integers([1, 1]), queries, graph.integers([1])]
    graph.node("Expand", [for_one, graph.node("Concat", shape, "key_counts_shape", axis=0)], KEY_COUNTS)


def _quantized_attention(graph: Graph, query: str, name: str, layer: int, dimensions: Dimensions) -> None:
    key, value, key_scale, value_scale = cross_cache(dimensions, layer, quantized=True)
    heads = dimensions.n_text_head
    unit = graph.tensor("unit_scale", np.ones(1, np.float32))
    scaled = graph.node("Mul", [query, key_scale], f"{name}/scaled_query")
    lengths, no_rotation = ["cross_last_position", "cross_length"], ["", "", ""]
    graph.nodes(
        "GroupQueryAttention",
        [scaled, _EMPTY, _EMPTY, key, value, *lengths, *no_rotation, KEY_COUNTS, "", unit, unit],
        [f"{name}/unscaled", f"present_{key}", f"present_{value}"],
        domain=MICROSOFT,
        num_heads=heads,
        kv_num_heads=heads,
        causal=0,
        kv_cache_bit_width=8,
        k_quant_type="PER_TENSOR",
        v_quant_type="PER_TENSOR",
    )
    graph.node("Mul", [f"{name}/unscaled", value_scale], name)


def _float_attention(graph: Graph, query: str, name: str, layer: int, dimensions: Dimensions) -> None:
    inputs = [query, *cross_cache(dimensions, layer, quantized=False), "", "", KEY_COUNTS]
    graph.node("MultiHeadAttention", inputs, name, domain=MICROSOFT, num_heads=dimensions.n_text_head)
