"""Whether this machine computes what the INT8 graphs ask for: each kind of layer against exact arithmetic.

The graphs are made for the purpose and opened as the model's are. Their numbers are the worst there are: the largest
weights and activations of INT8 side by side, whose sums a kernel that adds in 16 bits gets wrong by a third.
"""

import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from susurrus.models.dimensions import Dimensions
from susurrus.models.graphs.builder import Graph, WeightsFile
from susurrus.models.graphs.contract import Contract, TensorSpec, self_test_contract
from susurrus.models.graphs.decoder import self_test_graph
from susurrus.models.graphs.layers import BlockInt8Layers, DynamicInt8Layers, Layers
from susurrus.models.graphs.self_test import float_cross_attention, relative_error, self_test_inputs
from susurrus.models.runtime import open_session

FloatArray = NDArray[np.float32]

ROUNDING = 1e-3
"""Largest relative error of a product that is right: its numbers are stored almost without a rest."""
_WIDTH = 512  # values that are summed up: Base's
_ROWS = (1, 4, 300)  # kernels differ: for one position, for a few, for many


def product_error(layers: Layers) -> float:
    """The largest relative error of linear layers over extreme numbers; NaN where something is not a number.

    Args:
        layers: Of the encoder (`DynamicInt8Layers`) or the decoder (`BlockInt8Layers`).
    """
    rng = np.random.default_rng(1)
    signs = rng.choice([-1, 1], (64, _WIDTH)).astype(np.float32)
    signs[0], signs[1] = 1, -1
    state = TensorSpec(np.float32, ("B", "S", _WIDTH))
    contract = Contract({"x": state}, {"y": TensorSpec(np.float32, ("B", "S", len(signs)))})
    with tempfile.TemporaryDirectory(prefix="int8-", ignore_cleanup_errors=True) as folder:
        with WeightsFile(Path(folder) / "weights.bin") as weights:
            graph = Graph("product", contract, weights)
            layers.linear(graph, "x", "y", signs, np.zeros(len(signs), np.float32))
        graph.save(Path(folder) / "product.onnx")
        session = open_session(Path(folder) / "product.onnx", contract, 1)
        return max(relative_error(session.run(None, {"x": x})[0], x @ signs.T) for x in _activations(signs))


def _activations(signs: FloatArray) -> list[FloatArray]:
    """All of them 255 in uint8; and 255 and 0 in the order of the weights' signs.

    One and -127/128 are 255 steps apart, of which zero is one: both are stored without a rest.
    """
    both = np.where(signs > 0, 1, -127 / 128).astype(np.float32)
    return [np.resize(values, (1, rows, _WIDTH)) for rows in _ROWS for values in (np.ones_like(both), both)]


def cross_attention_error() -> float:
    """The relative error of cross-attention over an int8 cache; NaN where something is not a number.

    Raises:
        ModelError: This version of ONNX Runtime cannot load the graph.
    """
    dimensions = Dimensions(
        n_mels=80,
        n_audio_ctx=1500,
        n_audio_state=_WIDTH,
        n_audio_head=8,
        n_audio_layer=6,
        n_vocab=51865,
        n_text_ctx=448,
        n_text_state=_WIDTH,
        n_text_head=8,
        n_text_layer=6,
    )  # Base's
    with tempfile.TemporaryDirectory(prefix="int8-", ignore_cleanup_errors=True) as folder:
        with WeightsFile(Path(folder) / "weights.bin") as weights:
            graph = self_test_graph(dimensions, weights)
        graph.save(Path(folder) / "self_test.onnx")
        contract = self_test_contract(dimensions)
        inputs = self_test_inputs(contract)
        found = open_session(Path(folder) / "self_test.onnx", contract, 1).run(["attended"], inputs)[0]
    return relative_error(found, float_cross_attention(inputs, dimensions.n_text_head))


def encoder_error() -> float:
    """`product_error` of the encoder's layers."""
    return product_error(DynamicInt8Layers())


def decoder_error() -> float:
    """`product_error` of the decoder's layers."""
    return product_error(BlockInt8Layers())
