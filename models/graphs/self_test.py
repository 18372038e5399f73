"""Whether this ONNX Runtime computes cross-attention over an int8 cache as the decoder needs it."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from susurrus.models.graphs.contract import Contract

FloatArray = NDArray[np.float32]
Arrays = Mapping[str, NDArray[Any]]

TOLERANCE = 0.05
"""Largest relative error that is still rounding: a wrong mask or scale gives ten times as much."""


def self_test_inputs(contract: Contract) -> dict[str, NDArray[Any]]:
    """Makes inputs for the self-test graph: three queries on seven positions, always the same.

    Were attention limited to earlier positions, the queries' answers would differ from the right ones. Sines are random
    enough: to import NumPy's generators would take longer than the test.
    """
    sizes = {"W": 1, "S": 3, "C": 7, "L": 7}
    inputs: dict[str, NDArray[Any]] = {}
    for number, (name, spec) in enumerate(contract.inputs.items(), 1):
        shape = [sizes[side] if isinstance(side, str) else side for side in spec.shape]
        waves = np.sin(np.arange(np.prod(shape)) * (number + 0.7)).reshape(shape)
        if spec.dtype is np.int8:
            inputs[name] = np.rint(127 * waves).astype(np.int8)
        elif spec.dtype is np.int32:
            inputs[name] = np.full(shape, sizes["C"] - (name == "cross_last_position"), np.int32)
        else:
            inputs[name] = (0.015 + 0.005 * waves if "scale" in name else waves).astype(np.float32)
    return inputs


def float_cross_attention(inputs: Arrays, heads: int) -> FloatArray:
    """Computes softmax(Q K^T / sqrt(d) + log counts) V over the dequantized cache, float32 [1, S, D]."""
    query = inputs["query"].reshape(1, inputs["query"].shape[1], heads, -1).transpose(0, 2, 1, 3)  # [1, H, S, d]
    key, value = (
        inputs[f"cross_{kind}_0"] * inputs[f"cross_{kind}_scale_0"].reshape(1, heads, 1, -1)
        for kind in ("key", "value")
    )
    scores = query @ key.transpose(0, 1, 3, 2) / np.sqrt(key.shape[3]) + inputs["cross_log_counts"]
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    mixed: FloatArray = weights / weights.sum(axis=-1, keepdims=True) @ value
    return mixed.transpose(0, 2, 1, 3).reshape(inputs["query"].shape)


def relative_error(found: FloatArray, wanted: FloatArray) -> float:
    """Largest difference, relative to the largest wanted value; NaN where something is not a number."""
    return float(np.abs(found - wanted).max() / np.abs(wanted).max())
