"""The whole pipeline in one process."""

from __future__ import annotations

import shutil
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import soundfile
from numpy.typing import NDArray

from susurrus.models import (
    AudioError,
    AudioReader,
    ModelConfig,
    ModelError,
    OptionError,
    Partial,
    Segment,
    Transcript,
    Whisper,
)
from susurrus.models.options import OptionFields
from susurrus.models.results import join_text
from tests.actors.fakes import PLAIN, with_plain, write_tiny_model
from tests.conftest import SAMPLES

RATE = 16000


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny multilingual model, every token of which is a word."""
    return write_tiny_model(tmp_path_factory.mktemp("whisper"), "int8", "float32")


@pytest.fixture(scope="module")
def whisper(directory: Path) -> Whisper:
    return Whisper.load(directory, threads=1)


def tones(seconds: float, seed: int = 0) -> NDArray[np.float32]:
    pitches = np.random.default_rng(seed).uniform(100, 3000, round(seconds * 8) + 1)
    n = round(seconds * RATE)
    return (0.3 * np.sin(2 * np.pi * np.cumsum(np.repeat(pitches, RATE // 8)[:n]) / RATE)).astype(np.float32)


def test_a_recording_is_partials_then_a_segment_per_window_then_the_transcript(whisper: Whisper) -> None:
    items = list(whisper.stream(tones(3.5), **PLAIN))
    transcript = items[-1]
    assert isinstance(transcript, Transcript)
    segments = [item for item in items if isinstance(item, Segment)]
    assert transcript.segments == tuple(segments)
    assert [segment.window for segment in segments] == list(range(len(segments)))
    assert len(segments) > 3
    assert transcript.text == join_text(segment.text for segment in segments)
    assert all(former.end == latter.start for former, latter in pairwise(segments))
    current = 0
    for item in items[:-1]:
        assert isinstance(item, Partial | Segment)
        assert item.window == current
        current += isinstance(item, Segment)


def test_the_last_partial_of_a_window_is_its_segment(whisper: Whisper) -> None:
    items = list(whisper.stream(tones(0.9), **PLAIN))
    partials = [item.hypothesis for item in items if isinstance(item, Partial)]
    segment = next(item for item in items if isinstance(item, Segment))
    assert partials[-1].text == segment.text
    assert segment.decoded.tokens[: len(partials[-1].tokens)] == partials[-1].tokens


def test_transcribe_gives_what_stream_ends_with_and_tells_the_partials(whisper: Whisper) -> None:
    samples = tones(1.5)
    told: list[Partial] = []
    transcript = whisper.transcribe(samples, on_partial=told.append, **PLAIN)
    items = list(whisper.stream(samples, **PLAIN))
    assert told == [item for item in items if isinstance(item, Partial)]
    last = items[-1]
    assert isinstance(last, Transcript)
    assert (transcript.text, transcript.segments) == (last.text, last.segments)


def test_a_file_gives_what_its_samples_give(whisper: Whisper, tmp_path: Path) -> None:
    samples = tones(2.2)
    path = tmp_path / "にっぽん é.wav"
    soundfile.write(path, samples, RATE, subtype="FLOAT")
    from_file, from_samples = whisper.transcribe(path, **PLAIN), whisper.transcribe(samples, **PLAIN)
    assert (from_file.text, from_file.segments) == (from_samples.text, from_samples.segments)
    assert whisper.transcribe(str(path), **PLAIN).text == from_file.text


def test_one_recording_does_not_change_the_next(whisper: Whisper) -> None:
    first, other = tones(1.7, seed=1), tones(2.9, seed=2)
    before = whisper.transcribe(first, **PLAIN).segments
    whisper.transcribe(other, **PLAIN)
    assert whisper.transcribe(first, **PLAIN).segments == before


def test_a_recording_that_was_left_early_does_not_change_the_next(whisper: Whisper) -> None:
    samples = tones(1.7)
    before = whisper.transcribe(samples, **PLAIN).segments
    stream = whisper.stream(tones(2.9, seed=2), **PLAIN)
    for _ in range(3):
        next(stream)
    stream.close()  # type: ignore[attr-defined]  # a generator, as an iterator
    assert whisper.transcribe(samples, **PLAIN).segments == before


def test_silence_is_empty_text_without_a_language(whisper: Whisper) -> None:
    transcript = whisper.transcribe(np.zeros(4 * RATE, np.float32), **PLAIN)
    assert (transcript.text, transcript.language, transcript.language_probability) == ("", "", 0.0)
    assert transcript.duration == 4.0
    assert all(segment.text == "" and segment.decoded.tokens == () for segment in transcript.segments)


def test_silence_before_speech_does_not_decide_the_language(whisper: Whisper) -> None:
    transcript = whisper.transcribe(np.concatenate([np.zeros(3 * RATE, np.float32), tones(1.0)]), **PLAIN)
    assert transcript.segments[0].language == ""
    assert transcript.language == transcript.segments[-1].language != ""


@pytest.mark.parametrize("n_samples", [0, 1, 399])
def test_audio_too_short_for_speech_is_empty_text_and_a_warning(whisper: Whisper, n_samples: int) -> None:
    transcript = whisper.transcribe(tones(1.0)[:n_samples], **PLAIN)
    assert (transcript.text, transcript.segments) == ("", ())
    assert "too short" in transcript.warnings[0]


def test_the_time_of_every_stage_is_told(whisper: Whisper) -> None:
    timings = whisper.transcribe(tones(1.5), **PLAIN).timings
    assert set(timings) == {"frontend", "encoder", "decoder"}
    assert all(seconds > 0 for seconds in timings.values())


def test_every_option_reaches_the_decoder(whisper: Whisper) -> None:
    samples = tones(0.9)
    wishes: list[OptionFields] = [
        {"language": "de"},
        {"language": "English"},
        {"language": "de", "task": "translate"},
        {"language": "de", "prompt": "as it was said"},
        {"language": "de", "hotwords": "it"},
    ]
    texts = [whisper.transcribe(samples, **with_plain(wish)).text for wish in wishes]
    assert len(set(texts)) == len(wishes)


def test_the_language_of_the_first_speech_holds_for_the_whole_recording(whisper: Whisper) -> None:
    transcript = whisper.transcribe(tones(3.5), **PLAIN)
    assert {segment.language for segment in transcript.segments} == {transcript.language}
    assert 0 < transcript.language_probability < 1.0
    assert transcript.language_probabilities[transcript.language] == transcript.language_probability


@pytest.mark.parametrize("options", [{"language": "Klingon"}, {"language": "fr"}, {"task": "x"}])
def test_options_the_model_does_not_have_are_refused(whisper: Whisper, options: OptionFields) -> None:
    with pytest.raises(OptionError):
        whisper.transcribe(tones(0.5), **with_plain(options))


def test_arrays_that_are_no_audio_are_refused(whisper: Whisper) -> None:
    with pytest.raises(OptionError, match="float64"):
        whisper.transcribe(np.zeros(RATE), **PLAIN)  # type: ignore[arg-type]  # that is the test


def test_a_file_that_is_no_audio_is_refused(whisper: Whisper, tmp_path: Path) -> None:
    with pytest.raises(AudioError, match="missing"):
        whisper.transcribe(tmp_path / "missing.wav", **PLAIN)


def test_a_model_that_is_damaged_is_not_loaded(directory: Path, tmp_path: Path) -> None:
    copy = tmp_path / "model"
    shutil.copytree(directory, copy)
    weights = copy / "int8" / "weights.bin"
    content = bytearray(weights.read_bytes())
    content[len(content) // 2] ^= 1
    weights.write_bytes(content)
    with pytest.raises(ModelError, match="weights"):
        Whisper.load(copy)


def test_both_precisions_load(directory: Path) -> None:
    whisper = Whisper.load(directory, precision="float32", threads=1)
    assert whisper.transcribe(tones(0.9), **PLAIN).text
    assert whisper.config == ModelConfig.from_directory(directory)


def test_english_speech_is_understood(base: Path) -> None:
    transcript = Whisper.load(base).transcribe(SAMPLES / "jfk.wav")
    assert transcript.language == "en"
    assert "ask what you can do for your country" in transcript.text
    assert transcript.duration == pytest.approx(11.0)


def test_an_english_model_whose_prompt_with_timestamps_is_one_token_transcribes(tiny_en: Path) -> None:
    """Speech with a pause is decoded with timestamps: no language, no task, so nothing follows the first token."""
    with AudioReader(SAMPLES / "austen.wav", 16000) as reader:
        speech: NDArray[np.float32] = np.concatenate(list(reader))
    pause = np.zeros(24000, np.float32)
    transcript = Whisper.load(tiny_en, threads=1).transcribe(np.concatenate([speech, pause, speech]))
    assert transcript.text.lower().count("young man") == 2
