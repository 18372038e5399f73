"""Encoder layers rewritten so that INT8 loses less; in exact arithmetic they compute the same.

Channel smoothing is SmoothQuant (Xiao et al. 2023, https://arxiv.org/abs/2211.10438, eq. 4): a channel with large
activations is divided by a number that its weights are multiplied by. A few channels of the second feed-forward
layer are so large that they leave the INT8 path altogether, as in LLM.int8() (Dettmers et al. 2022,
https://arxiv.org/abs/2208.07339, section 3.2), here with the channels fixed in advance.
"""

import io
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from susurrus.models.checkpoints.checkpoint import ENCODER_LINEARS, Checkpoint
from susurrus.models.errors import ModelError

FloatArray = NDArray[np.float32]
Calibration = Mapping[str, FloatArray]
"""Canonical name of an encoder linear layer -> largest absolute value of each of its inputs, float32 (n_inputs,)."""

ALPHA = 0.65  # SmoothQuant's alpha: how much of the activations' range moves into the weights
OUTLIERS = 16  # channels that leave the INT8 path: with 8 the error nearly doubles, 32 gain nothing
OUTLIER_GAIN = 1.25  # the split has to make the quantization step this much finer


@dataclass(frozen=True, slots=True)
class Affine:
    """A linear layer (weight (n_outputs, n_inputs), bias) or the gain and bias of a LayerNorm ((width,) both)."""

    weight: FloatArray
    bias: FloatArray

    def rows(self, which: NDArray[np.intp]) -> "Affine":
        """Keeps some outputs."""
        return Affine(self.weight[which], self.bias[which])


@dataclass(frozen=True, slots=True)
class EncoderLayer:
    """The weights of one encoder layer."""

    attention_norm: Affine
    qkv: Affine
    """Query, key and value stacked along the output axis."""
    out: Affine
    ffn_norm: Affine
    fc1: Affine
    fc2: Affine
    outlier_fc1: Affine | None = None
    """Rows of the first feed-forward layer that stay float."""
    outlier_fc2: FloatArray | None = None
    """Columns of the second that read them, (width, OUTLIERS)."""


def read_layer(checkpoint: Checkpoint, index: int) -> EncoderLayer:
    """Reads encoder layer `index`."""
    prefix = f"encoder/layer_{index}"

    def affine(part: str, weight: str = "weight", bias: str = "bias") -> Affine:
        return Affine(checkpoint.tensor(f"{prefix}/{part}/{weight}"), checkpoint.tensor(f"{prefix}/{part}/{bias}"))

    return EncoderLayer(
        attention_norm=affine("self_attention/layer_norm", "gamma", "beta"),
        qkv=affine("self_attention/linear_0"),
        out=affine("self_attention/linear_1"),
        ffn_norm=affine("ffn/layer_norm", "gamma", "beta"),
        fc1=affine("ffn/linear_0"),
        fc2=affine("ffn/linear_1"),
    )


def smooth_layer(layer: EncoderLayer, calibration: Calibration, prefix: str) -> EncoderLayer:
    """Smooths the inputs of three linear layers and splits the outliers of the fourth.

    Args:
        layer: As the checkpoint has it.
        calibration: Vectors of all four linear layers.
        prefix: The layer's canonical name, `encoder/layer_0`.
    """
    attention_norm, qkv = _through_norm(
        layer.attention_norm, layer.qkv, calibration[f"{prefix}/self_attention/linear_0"]
    )
    qkv, out = _through_values(qkv, layer.out, calibration[f"{prefix}/self_attention/linear_1"])
    ffn_norm, fc1 = _through_norm(layer.ffn_norm, layer.fc1, calibration[f"{prefix}/ffn/linear_0"])
    smoothed = replace(layer, attention_norm=attention_norm, qkv=qkv, out=out, ffn_norm=ffn_norm, fc1=fc1)
    return _split(smoothed, outlier_channels(calibration[f"{prefix}/ffn/linear_1"]))


def smoothing_scales(absmax: FloatArray, weight: FloatArray) -> FloatArray:
    """How much each input channel is divided by, and its weights multiplied by.

    Args:
        absmax: Largest absolute value of each input, float32 (n_inputs,).
        weight: float32 (n_outputs, n_inputs).

    Returns:
        float32 (n_inputs,), of geometric mean 1. Rounded to float16, so that the last bit of another machine's
        logarithm does not reach the file.
    """
    activations = np.log(np.maximum(absmax, 1e-5).astype(np.float64))
    weights = np.log(np.maximum(np.abs(weight).max(axis=0), 1e-5).astype(np.float64))
    scales = ALPHA * activations - (1 - ALPHA) * weights
    rounded: FloatArray = np.exp(scales - scales.mean()).astype(np.float16).astype(np.float32)
    return rounded


def outlier_channels(absmax: FloatArray) -> NDArray[np.intp]:
    """The channels to leave in float: the `OUTLIERS` largest, where that is worth it.

    The quantization step of a whole tensor follows its largest channel; without the outliers, the next one.

    Args:
        absmax: Largest absolute value of each input, float32 (n_inputs,).

    Returns:
        Ascending indices, (OUTLIERS,) or (0,).
    """
    order = np.argsort(-absmax, kind="stable")
    if len(order) <= 2 * OUTLIERS or absmax[order[0]] < OUTLIER_GAIN * absmax[order[OUTLIERS]]:
        return np.array([], np.intp)
    return np.sort(order[:OUTLIERS])


def load_calibration(name: str) -> Calibration | None:
    """Reads the calibration vectors of a known model, `calibration/<name>.npz` in this package; None without one."""
    if Path(name).name != name:  # no path out of the folder
        return None
    resource = resources.files("susurrus.models.graphs").joinpath("calibration", f"{name}.npz")
    return read_calibration(resource.read_bytes(), str(resource)) if resource.is_file() else None


def read_calibration(content: bytes, source: str) -> Calibration:
    """Reads the bytes of a calibration file.

    Raises:
        ModelError: They are not an npz of float vectors.
    """
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            vectors: dict[str, NDArray[Any]] = dict(archive)
    except (OSError, ValueError, BadZipFile, EOFError) as error:
        raise ModelError(f"{source} is not a calibration file ({error}): make it again") from error
    if any(vector.ndim != 1 or vector.dtype.kind != "f" for vector in vectors.values()):
        raise ModelError(f"{source} holds other things than vectors: make it again")
    return {name: vector.astype(np.float32) for name, vector in vectors.items()}


def calibrated_layers(checkpoint: Checkpoint) -> dict[str, int]:
    """Names of the linear layers that have calibration vectors, with their number of inputs."""
    width = checkpoint.dimensions.n_audio_state
    return {
        f"encoder/layer_{index}/{part}": inputs * width
        for index in range(checkpoint.dimensions.n_audio_layer)
        for part, (_, inputs) in ENCODER_LINEARS.items()
    }


def calibration_fits(calibration: Calibration, checkpoint: Checkpoint) -> bool:
    """Whether there is a vector of the right length for every such layer of this encoder, and for nothing else."""
    return {name: len(vector) for name, vector in calibration.items()} == calibrated_layers(checkpoint)


def _through_norm(norm: Affine, linear: Affine, absmax: FloatArray) -> tuple[Affine, Affine]:
    """Divides the output of a LayerNorm, multiplies the columns of the layer that reads it."""
    scales = smoothing_scales(absmax, linear.weight)
    return Affine(norm.weight / scales, norm.bias / scales), Affine(linear.weight * scales, linear.bias)


def _through_values(qkv: Affine, out: Affine, absmax: FloatArray) -> tuple[Affine, Affine]:
    """Divides the values, of which attention makes weighted means, multiplies the columns of its output layer."""
    scales = smoothing_scales(absmax, out.weight)
    rows = np.concatenate([np.ones(2 * len(scales), np.float32), scales])  # queries and keys stay
    return Affine(qkv.weight / rows[:, None], qkv.bias / rows), Affine(out.weight * scales, out.bias)


def _split(layer: EncoderLayer, outliers: NDArray[np.intp]) -> EncoderLayer:
    if not len(outliers):
        return layer
    kept = np.setdiff1d(np.arange(len(layer.fc1.bias)), outliers)
    return replace(
        layer,
        fc1=layer.fc1.rows(kept),
        fc2=Affine(layer.fc2.weight[:, kept], layer.fc2.bias),
        outlier_fc1=layer.fc1.rows(outliers),
        outlier_fc2=layer.fc2.weight[:, outliers],
    )
