"""Sampled silence: which positions are computed, that the arithmetic is that of repeated keys, and what doubt costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st

from susurrus.models import Whisper
from susurrus.models.context import BLOCK, AudioContext
from susurrus.models.mel import LogMel, pad_frames
from susurrus.models.sessions import Decoder, Encoder
from tests.conftest import SAMPLES
from tests.models.numpy_whisper import NumpyWhisper, relative_rms
from tests.models.tiny import DIMENSIONS, random_tensors

if TYPE_CHECKING:
    from pathlib import Path

TOKENS = [257, 258, 5, 9, 300, 17]
SAMPLED = AudioContext(kept=19, total=50)  # of the tiny model's window of a second: 19, and 4 for the other 31


@pytest.fixture(scope="module")
def reference() -> NumpyWhisper:
    return NumpyWhisper(DIMENSIONS, random_tensors().__getitem__)


@given(frames=st.integers(0, 3000))
def test_what_is_computed_stands_for_every_position_of_the_window_once(frames: int) -> None:
    context = AudioContext.of_audio(frames, 1500, 30)
    positions, counts = context.positions, context.counts
    edges = np.concatenate([[0], np.cumsum(counts)])
    assert edges[-1] == 1500
    assert ((edges[:-1] <= positions) & (positions < edges[1:])).all()
    assert (counts[: context.kept] == 1).all()
    assert counts.max() <= BLOCK
    assert np.allclose(np.exp(context.log_counts), counts)


@given(frames=st.integers(0, 3000))
def test_audio_and_a_second_behind_it_are_computed_position_by_position(frames: int) -> None:
    context = AudioContext.of_audio(frames, 1500, 30)
    assert context.kept == 1500 or context.kept >= frames / 2 + 50
    assert context.is_full == (len(context.positions) == 1500)


@pytest.mark.parametrize("frames", [1, 2, 17, 18, 31, 90])
def test_the_convolutions_need_no_more_than_a_few_frames_of_silence(
    tiny: Path, reference: NumpyWhisper, frames: int
) -> None:
    """What is left out of the log-mel is exactly what would have been the same."""
    mel = np.random.default_rng(frames).standard_normal((80, frames)).astype(np.float32)
    context = AudioContext(min(50, frames // 2 + 5), 50)
    short = context.frames(mel, -0.7)
    assert short.shape[1] <= (100 if context.is_full else frames + 7)
    found = Encoder(tiny, precision="float32", threads=1)._run(
        short, context.rows(short.shape[1]), context.positions, context.log_counts
    )
    assert np.abs(found - reference.encode(pad_frames(mel, -0.7, 100), context)).max() < 5e-5


@pytest.mark.parametrize(("precision", "tolerance"), [("float32", 1e-5), ("int8", 0.05)])
def test_a_weighted_key_counts_as_often_as_it_says(
    tiny: Path, reference: NumpyWhisper, precision: str, tolerance: float
) -> None:
    """In cross-attention, against a window in which such keys are repeated."""
    states = np.random.default_rng(3).standard_normal((len(SAMPLED.counts), 64)).astype(np.float32)
    decoder = Decoder(tiny, precision=precision, threads=1)
    decoder.begin(states, SAMPLED.log_counts)
    found = [decoder.step([token]).copy() for token in TOKENS]
    wanted = reference.decode(TOKENS, np.repeat(states, SAMPLED.counts, axis=0))
    assert relative_rms(np.array(found), wanted) < tolerance
    decoder.begin(states)
    unweighted = [decoder.step([token]).copy() for token in TOKENS]
    assert relative_rms(np.array(unweighted), wanted) > 2 * tolerance  # it would be seen


def test_counts_of_another_length_are_refused(tiny: Path) -> None:
    with pytest.raises(ValueError, match="counts have shape"):
        Decoder(tiny, threads=1).begin(np.zeros((5, 64), np.float32), np.zeros(4, np.float32))


def test_the_full_context_is_whisper_itself(base: Path) -> None:
    samples, _ = soundfile.read(SAMPLES / "jfk.wav", dtype="float32")
    mel, silence = LogMel.from_directory(base)(samples)
    encoder = Encoder(base, threads=1)
    states, context = encoder.encode_window(mel, silence, full=True)
    assert context.is_full
    assert np.array_equal(states, encoder(pad_frames(mel, silence, 3000)))


def test_eleven_seconds_are_understood_from_less_than_half_of_the_positions(base: Path) -> None:
    samples, _ = soundfile.read(SAMPLES / "jfk.wav", dtype="float32")
    whisper = Whisper.load(base)
    mel, silence = LogMel.from_directory(base)(samples)
    states, _ = Encoder(base).encode_window(mel, silence)
    assert len(states) == 601 + 113
    sampled, full = (whisper.transcribe(samples, language="en", full_context=full) for full in (False, True))
    assert sampled.text == full.text


def test_a_window_of_doubtful_text_is_encoded_in_full_and_decoded_again(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What comes out is what comes out when the full context is asked for."""
    samples, _ = soundfile.read(SAMPLES / "jfk.wav", dtype="float32")
    whisper = Whisper.load(base)
    wanted = whisper.transcribe(samples, full_context=True)
    monkeypatch.setattr("susurrus.models.decoding.is_sound", lambda *_: False)
    asked: list[bool] = []
    encode = Encoder.encode_window

    def noted(self: Encoder, mel: np.ndarray, silence: float, *, full: bool = False) -> object:
        asked.append(full)
        return encode(self, mel, silence, full=full)

    monkeypatch.setattr(Encoder, "encode_window", noted)
    found = whisper.transcribe(samples)
    assert asked == [False, True]
    assert [segment.decoded for segment in found.segments] == [segment.decoded for segment in wanted.segments]
    assert (found.text, found.language_probabilities) == (wanted.text, wanted.language_probabilities)
