"""Whisper in plain numpy, float64: what the graphs are compared with. Written from openai/whisper `model.py`."""

from __future__ import annotations

from math import erf, sqrt
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from susurrus.models.context import AudioContext
    from susurrus.models.dimensions import Dimensions

_erf = np.vectorize(erf, otypes=[np.float64])


class NumpyWhisper:
    """The network; `tensor` gives a weight by its canonical name."""

    def __init__(self, dimensions: Dimensions, tensor: Callable[[str], NDArray[Any]]) -> None:
        self._dimensions = dimensions
        self._stored = tensor

    def encode(self, mel: NDArray[Any], context: AudioContext | None = None) -> NDArray[Any]:
        """(n_mels, T) -> hidden states (T / 2, width), or of a context's positions alone.

        A key that stands for several positions is there as many times.
        """
        x = gelu(self._convolve(mel.astype(np.float64), "encoder/conv1", 1))
        x = gelu(self._convolve(x, "encoder/conv2", 2)).T
        x += self._tensor("encoder/position_encodings/encodings")[: len(x)]
        x = x if context is None else x[context.positions]
        copies = np.ones(len(x), np.int64) if context is None else context.counts
        for layer in range(self._dimensions.n_audio_layer):
            name, heads = f"encoder/layer_{layer}", self._dimensions.n_audio_head
            x = x + self._self_attention(x, f"{name}/self_attention", heads, causal=False, copies=copies)
            x = x + self._feed_forward(x, f"{name}/ffn")
        return self._norm(x, "encoder")

    def decode(self, tokens: Sequence[int], hidden_states: NDArray[Any]) -> NDArray[Any]:
        """Logits after every token, (len(tokens), n_vocab)."""
        return self._decode(tokens, hidden_states)[0]

    def scores(self, tokens: Sequence[int], hidden_states: NDArray[Any]) -> NDArray[Any]:
        """Scaled products of cross-attention, before the softmax: (n_text_layer, n_text_head, len(tokens), T / 2)."""
        return self._decode(tokens, hidden_states)[1]

    def _decode(self, tokens: Sequence[int], hidden_states: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        embedding = self._tensor("decoder/embeddings/weight")
        x = embedding[list(tokens)] + self._tensor("decoder/position_encodings/encodings")[: len(tokens)]
        heads, scores = self._dimensions.n_text_head, []
        for layer in range(self._dimensions.n_text_layer):
            name = f"decoder/layer_{layer}"
            x = x + self._self_attention(x, f"{name}/self_attention", heads, causal=True)
            query = self._linear(self._norm(x, f"{name}/attention"), f"{name}/attention/linear_0")
            key, value = np.split(self._linear(hidden_states, f"{name}/attention/linear_1"), 2, axis=1)
            scores.append(products(query, key, heads))
            x = x + self._linear(attend(query, key, value, heads, causal=False), f"{name}/attention/linear_2")
            x = x + self._feed_forward(x, f"{name}/ffn")
        return self._norm(x, "decoder") @ embedding.T, np.stack(scores)

    def _tensor(self, name: str) -> NDArray[np.float64]:
        return np.asarray(self._stored(name), np.float64)

    def _convolve(self, x: NDArray[Any], name: str, stride: int) -> NDArray[Any]:
        weight, bias = self._tensor(f"{name}/weight"), self._tensor(f"{name}/bias")
        padded = np.pad(x, ((0, 0), (1, 1)))
        starts = range(0, x.shape[1], stride)
        return np.stack([np.einsum("oik,ik->o", weight, padded[:, s : s + 3]) + bias for s in starts], axis=1)

    def _linear(self, x: NDArray[Any], name: str) -> NDArray[Any]:
        product: NDArray[Any] = x @ self._tensor(f"{name}/weight").T + self._tensor(f"{name}/bias")
        return product

    def _norm(self, x: NDArray[Any], name: str) -> NDArray[Any]:
        centred = x - x.mean(axis=1, keepdims=True)
        normal = centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + 1e-5)
        scaled: NDArray[Any] = normal * self._tensor(f"{name}/layer_norm/gamma") + self._tensor(
            f"{name}/layer_norm/beta"
        )
        return scaled

    def _self_attention(
        self, x: NDArray[Any], name: str, heads: int, *, causal: bool, copies: NDArray[np.int64] | None = None
    ) -> NDArray[Any]:
        query, key, value = np.split(self._linear(self._norm(x, name), f"{name}/linear_0"), 3, axis=1)
        if copies is not None:
            key, value = np.repeat(key, copies, axis=0), np.repeat(value, copies, axis=0)
        return self._linear(attend(query, key, value, heads, causal=causal), f"{name}/linear_1")

    def _feed_forward(self, x: NDArray[Any], name: str) -> NDArray[Any]:
        return self._linear(gelu(self._linear(self._norm(x, name), f"{name}/linear_0")), f"{name}/linear_1")


def attend(query: NDArray[Any], key: NDArray[Any], value: NDArray[Any], heads: int, *, causal: bool) -> NDArray[Any]:
    """Multi-head attention, head by head."""
    outputs = []
    for scores, v in zip(products(query, key, heads), np.split(value, heads, axis=1), strict=True):
        if causal:
            scores[np.triu_indices(len(scores), 1)] = -np.inf
        outputs.append(softmax(scores) @ v)
    return np.concatenate(outputs, axis=1)


def products(query: NDArray[Any], key: NDArray[Any], heads: int) -> NDArray[Any]:
    """Queries times keys, scaled, head by head: (heads, len(query), len(key))."""
    pairs = zip(*(np.split(x, heads, axis=1) for x in (query, key)), strict=True)
    return np.stack([q @ k.T / sqrt(q.shape[1]) for q, k in pairs])


def softmax(x: NDArray[Any]) -> NDArray[Any]:
    """Over the last axis."""
    weights = np.exp(x - x.max(axis=-1, keepdims=True))
    normal: NDArray[Any] = weights / weights.sum(axis=-1, keepdims=True)
    return normal


def gelu(x: NDArray[Any]) -> NDArray[Any]:
    """Computes x times the normal distribution function, exactly."""
    gated: NDArray[Any] = x * (1 + _erf(x / sqrt(2))) / 2
    return gated


def relative_rms(found: NDArray[Any], wanted: NDArray[Any]) -> float:
    """Root mean square of the difference, relative to that of `wanted`."""
    return float(np.sqrt(((found - wanted) ** 2).mean() / (wanted**2).mean()))
