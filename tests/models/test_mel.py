"""Our log-mel against openai-whisper and transformers (golden frames) and against the formula in float64."""

import json
import math
import runpy
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from susurrus.models.dimensions import AudioParameters
from susurrus.models.errors import ModelError
from susurrus.models.mel import LogMel, load_filters, pad_frames, slaney_filters

GOLDEN = Path(__file__).parent.parent / "golden"
MAKE_MEL = runpy.run_path(str(GOLDEN / "make_mel.py"))
TOLERANCE = 1e-4

AUDIO = AudioParameters(n_mels=80)


def log_mel(audio: AudioParameters = AUDIO) -> LogMel:
    return LogMel(audio, slaney_filters(audio.sample_rate, audio.n_fft, audio.n_mels))


def window(samples: NDArray[np.float32], audio: AudioParameters = AUDIO) -> NDArray[np.float32]:
    mel, silence = log_mel(audio)(samples)
    return pad_frames(mel, silence, audio.n_frames)


def brute_force(samples: NDArray[np.float32], audio: AudioParameters = AUDIO) -> NDArray[np.float64]:
    """The reference's steps in float64: pad the samples, reflect, window, FFT, filters, logarithm, clamp."""
    padded = np.pad(samples.astype(np.float64), (0, audio.n_samples - len(samples)))
    padded = np.pad(padded, audio.n_fft // 2, mode="reflect")
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(audio.n_fft) / audio.n_fft)
    frames = np.lib.stride_tricks.sliding_window_view(padded, audio.n_fft)[:: audio.hop_length]
    power = np.abs(np.fft.rfft(frames[: audio.n_frames] * hann)) ** 2
    filters = brute_force_filters(audio.sample_rate, audio.n_fft, audio.n_mels)
    log = np.log10(np.maximum(filters @ power.T, 1e-10))
    return np.asarray((np.maximum(log, log.max() - 8) + 4) / 4)


@lru_cache
def brute_force_filters(sample_rate: int, n_fft: int, n_mels: int) -> NDArray[np.float64]:
    """Slaney's filters by definition: steps of 200/3 Hz up to 1 kHz, then 27 steps for a factor of 6.4."""

    def hz(mel: float) -> float:
        return mel * 200 / 3 if mel < 15 else 1000 * 6.4 ** ((mel - 15) / 27)

    top = 15 + 27 * math.log(sample_rate / 2 / 1000, 6.4)
    edges = [hz(top * i / (n_mels + 1)) for i in range(n_mels + 2)]
    filters = np.zeros((n_mels, n_fft // 2 + 1))
    for mel, (low, centre, high) in enumerate(zip(edges, edges[1:], edges[2:], strict=False)):
        for k in range(n_fft // 2 + 1):
            f = k * sample_rate / n_fft
            height = (f - low) / (centre - low) if f < centre else (high - f) / (high - centre)
            filters[mel, k] = max(0.0, height) * 2 / (high - low)
    return filters


@pytest.mark.parametrize("n_mels", [80, 128])
def test_filters_are_slaneys(n_mels: int) -> None:
    ours = slaney_filters(16000, 400, n_mels)
    assert ours.dtype == np.float32
    np.testing.assert_allclose(ours, brute_force_filters(16000, 400, n_mels), rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize(("case", "n_mels"), MAKE_MEL["CASES"])
def test_frames_are_those_of_openai_whisper_and_of_transformers(case: str, n_mels: int) -> None:
    ours = window(MAKE_MEL["signal"](case), AudioParameters(n_mels=n_mels))
    with np.load(GOLDEN / "mel.npz") as golden:
        for reference in ("openai", "transformers"):
            frames, expected = golden[f"{case}/{n_mels}/frames"], golden[f"{case}/{n_mels}/{reference}"]
            assert np.abs(ours[:, frames] - expected).max() <= TOLERANCE


@pytest.mark.parametrize("n_samples", [1, 2, 160, 199, 200, 201, 399, 4800, 176000, 479642, 479999, 480000])
def test_every_frame_is_what_the_formula_gives_in_double_precision(n_samples: int) -> None:
    samples = MAKE_MEL["signal"](str(n_samples))
    assert np.abs(window(samples) - brute_force(samples)).max() <= 1e-6


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 16000), st.integers(0, 2**32 - 1))
def test_every_length_of_a_small_window_is_what_the_formula_gives(n_samples: int, seed: int) -> None:
    audio = AudioParameters(n_mels=80, chunk_length=1)
    samples = np.random.default_rng(seed).uniform(-1, 1, n_samples).astype(np.float32)
    assert np.abs(window(samples, audio) - brute_force(samples, audio)).max() <= 1e-6


@pytest.mark.parametrize(("n_fft", "hop"), [(512, 160), (402, 200), (320, 80)])
def test_frame_and_hop_length_are_the_models(n_fft: int, hop: int) -> None:
    audio = AudioParameters(n_mels=80, n_fft=n_fft, hop_length=hop, chunk_length=1)
    samples = np.random.default_rng(0).uniform(-1, 1, 16000).astype(np.float32)
    assert np.abs(window(samples, audio) - brute_force(samples, audio)).max() <= 1e-6


def test_a_loud_offset_does_not_blur_what_is_quiet() -> None:
    samples = (0.8 + 1e-3 * np.random.default_rng(0).standard_normal(48000)).astype(np.float32)
    assert np.abs(window(samples) - brute_force(samples)).max() <= 1e-6


@pytest.mark.parametrize("n_samples", [1, 2, 159, 160, 361, 479640])
def test_frames_beyond_the_audio_are_skipped_and_have_the_value_of_silence(n_samples: int) -> None:
    samples = MAKE_MEL["signal"](str(n_samples))
    mel, silence = log_mel()(samples)
    whole = brute_force(samples)
    assert mel.shape[1] == min(3000, math.ceil((n_samples + 199) / 160))
    np.testing.assert_allclose(whole[:, mel.shape[1] :], silence, atol=1e-6)


def test_the_value_of_silence_is_the_clamp_below_the_loudest_element() -> None:
    mel, silence = log_mel()(MAKE_MEL["signal"]("16000"))
    assert silence == pytest.approx(mel.max() - 8 / 4, abs=1e-6)
    assert mel.min() >= silence


@pytest.mark.parametrize("n_samples", [0, 1, 16000, 480000])
def test_digital_silence_is_the_floor_of_the_logarithm(n_samples: int) -> None:
    assert np.array_equal(window(np.zeros(n_samples, np.float32)), np.full((80, 3000), -1.5, np.float32))


@pytest.mark.parametrize("shape", [(480001,), (2, 100)])
def test_more_than_one_window_or_channel_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="expected"):
        log_mel()(np.zeros(shape, np.float32))


def test_filters_of_another_shape_are_refused() -> None:
    with pytest.raises(ModelError, match=r"\(128, 201\)"):
        LogMel(AUDIO, slaney_filters(16000, 400, 128))


def test_an_odd_frame_length_is_refused() -> None:
    with pytest.raises(ModelError, match="n_fft is 401"):
        LogMel(AudioParameters(n_mels=80, n_fft=401), slaney_filters(16000, 400, 80))


def filters_document(**changes: Any) -> dict[str, Any]:
    rows = slaney_filters(16000, 400, 80).tolist()
    return {"sample_rate": 16000, "n_fft": 400, "n_mels": 80, "scale": "slaney", "filters": rows} | changes


def test_filters_are_read_back_exactly(tmp_path: Path) -> None:
    path = tmp_path / "mel_filters.json"
    path.write_text(json.dumps(filters_document()))
    assert np.array_equal(load_filters(path, AUDIO), slaney_filters(16000, 400, 80))


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        "\udc80",
        json.dumps(filters_document(n_fft=512)),
        json.dumps(filters_document(filters=[[1, 2], [3]])),
        json.dumps(filters_document(filters=[["a"]])),
        json.dumps(filters_document(filters=[[math.nan] * 201] * 80)),
    ],
)
def test_a_damaged_or_foreign_filter_file_is_named(tmp_path: Path, content: str) -> None:
    path = tmp_path / "mel_filters.json"
    path.write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(ModelError, match=r"mel_filters\.json") as caught:
        load_filters(path, AUDIO)
    assert "\n" not in str(caught.value)


def test_a_missing_filter_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"mel_filters\.json: No such file"):
        load_filters(tmp_path / "mel_filters.json", AUDIO)
