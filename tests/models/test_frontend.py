"""From samples to log-mel windows: every sample once, in order, and silence told from speech."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from susurrus.models.audio import AudioReader
from susurrus.models.config import ModelConfig
from susurrus.models.dimensions import AudioParameters
from susurrus.models.errors import OptionError
from susurrus.models.frontend import Frontend, MelWindow, check_samples
from susurrus.models.mel import LogMel, slaney_filters
from susurrus.models.windows import MIN_SECONDS, WindowCutter, is_silent
from tests.conftest import SAMPLES

RATE = 16000


@pytest.fixture(scope="module")
def log_mel(tiny: Path) -> LogMel:
    return LogMel.from_directory(tiny)


@pytest.fixture(scope="module")
def audio(tiny: Path) -> AudioParameters:
    return ModelConfig.from_directory(tiny).audio


def tones(seconds: float) -> NDArray[np.float32]:
    n = np.arange(round(seconds * RATE))
    return (0.3 * np.sin(n * n / 3e5)).astype(np.float32)


def windows_of(
    audio: AudioParameters, log_mel: LogMel, *blocks: NDArray[np.float32], vad: bool = False
) -> tuple[list[MelWindow], Frontend]:
    frontend = Frontend(audio, log_mel, vad=vad)
    return list(frontend.windows(blocks)), frontend


@pytest.fixture(scope="module")
def jfk() -> NDArray[np.float32]:
    with AudioReader(SAMPLES / "jfk.wav", RATE) as reader:
        samples: NDArray[np.float32] = np.concatenate(list(reader))
        return samples


def test_windows_follow_one_another_from_start_to_end(audio: AudioParameters, log_mel: LogMel) -> None:
    windows, frontend = windows_of(audio, log_mel, tones(3.3))
    assert [window.index for window in windows] == list(range(len(windows)))
    assert windows[0].start == 0.0
    assert all(former.end == latter.start for former, latter in pairwise(windows))
    assert windows[-1].end == frontend.duration == pytest.approx(3.3)
    assert frontend.warnings == []


def test_each_window_has_the_log_mel_of_its_own_samples(audio: AudioParameters, log_mel: LogMel) -> None:
    samples = tones(2.6)
    windows, _ = windows_of(audio, log_mel, samples)
    assert len(windows) > 2
    for window in windows:
        mel, silence = log_mel(samples[round(window.start * RATE) : round(window.end * RATE)])
        assert window.mel is not None
        assert np.array_equal(window.mel, mel)
        assert window.silence == silence


@settings(max_examples=20, deadline=None)
@given(cuts=st.lists(st.integers(0, 3 * RATE), max_size=8))
def test_how_the_audio_comes_in_blocks_changes_nothing(tiny: Path, cuts: list[int]) -> None:
    audio, log_mel = ModelConfig.from_directory(tiny).audio, LogMel.from_directory(tiny)
    samples = tones(3.0)
    whole, _ = windows_of(audio, log_mel, samples)
    pieces, _ = windows_of(audio, log_mel, *np.split(samples, sorted(cuts)))
    assert [(w.start, w.end, w.silence) for w in pieces] == [(w.start, w.end, w.silence) for w in whole]
    for piece, wanted in zip(pieces, whole, strict=True):
        assert piece.mel is not None
        assert wanted.mel is not None
        assert np.array_equal(piece.mel, wanted.mel)


def test_a_window_is_given_before_the_audio_has_ended(audio: AudioParameters, log_mel: LogMel) -> None:
    given_so_far = 0

    def blocks() -> object:
        nonlocal given_so_far
        for _ in range(10):
            given_so_far += 1
            yield tones(0.5)

    next(iter(Frontend(audio, log_mel, vad=False).windows(blocks())))  # type: ignore[arg-type]  # a generator of blocks
    assert given_so_far < 5


@pytest.mark.parametrize("vad", [False, True])
def test_silence_has_no_features(audio: AudioParameters, log_mel: LogMel, vad: bool) -> None:
    dither = (np.random.default_rng(0).integers(-1, 2, 4 * RATE) / 32768).astype(np.float32)
    for samples in (np.zeros(4 * RATE, np.float32), dither):
        windows, frontend = windows_of(audio, log_mel, samples, vad=vad)
        assert windows
        assert all(window.mel is None and window.speech == () for window in windows)
        assert windows[-1].end == frontend.duration == 4.0


def test_a_tone_has_features_only_where_nobody_listens_for_speech(audio: AudioParameters, log_mel: LogMel) -> None:
    samples = (0.3 * np.sin(np.arange(3 * RATE) * 2 * np.pi * 440 / RATE)).astype(np.float32)
    for vad in (False, True):
        windows, _ = windows_of(audio, log_mel, samples, vad=vad)
        assert all((window.mel is None) == vad for window in windows)
        assert all((window.speech == ()) == vad for window in windows)


WHISPER = AudioParameters(n_mels=80)
WHISPER_MEL = LogMel(WHISPER, slaney_filters(WHISPER.sample_rate, WHISPER.n_fft, WHISPER.n_mels))


def test_speech_has_features_and_its_times(jfk: NDArray[np.float32]) -> None:
    samples = np.concatenate([np.zeros(4 * RATE, np.float32), jfk, np.zeros(4 * RATE, np.float32)])
    windows, _ = windows_of(WHISPER, WHISPER_MEL, samples, vad=True)
    assert [window.mel is None for window in windows] == [True, False, True]
    spoken = windows[1]
    mel, silence = WHISPER_MEL(samples[round(spoken.start * RATE) : round(spoken.end * RATE)])
    assert spoken.mel is not None
    assert np.array_equal(spoken.mel, mel)
    assert spoken.silence == silence
    assert spoken.start <= spoken.speech[0].start == pytest.approx(4.2, abs=0.3)
    assert spoken.end >= spoken.speech[-1].end == pytest.approx(14.8, abs=0.3)


def test_one_recording_after_another_is_heard_like_the_first(jfk: NDArray[np.float32]) -> None:
    first, _ = windows_of(WHISPER, WHISPER_MEL, jfk, vad=True)
    second, _ = windows_of(WHISPER, WHISPER_MEL, jfk, vad=True)
    assert [window.speech for window in first] == [window.speech for window in second]


def test_a_silence_in_the_middle_is_told_from_the_sound_around_it(audio: AudioParameters, log_mel: LogMel) -> None:
    samples = np.concatenate([tones(1.2), np.zeros(3 * RATE, np.float32), tones(1.2)])
    windows, _ = windows_of(audio, log_mel, samples)
    for window in windows:
        assert (window.mel is None) == is_silent(samples[round(window.start * RATE) : round(window.end * RATE)])
    assert {window.mel is None for window in windows} == {True, False}


@pytest.mark.parametrize("vad", [False, True])
@pytest.mark.parametrize("n_samples", [0, 1, 399, 1599])
def test_audio_too_short_to_hold_speech_gives_no_window_and_says_so(
    audio: AudioParameters, log_mel: LogMel, n_samples: int, vad: bool
) -> None:
    windows, frontend = windows_of(audio, log_mel, tones(1.0)[:n_samples], vad=vad)
    assert windows == []
    assert "too short" in frontend.warnings[0]
    assert f"{MIN_SECONDS} s" in frontend.warnings[0]
    assert frontend.duration == n_samples / RATE


def test_the_shortest_audio_that_is_decoded_gives_one_window(audio: AudioParameters, log_mel: LogMel) -> None:
    windows, frontend = windows_of(audio, log_mel, tones(MIN_SECONDS))
    assert len(windows) == 1
    assert frontend.warnings == []


def test_cutting_is_the_cutters(audio: AudioParameters, log_mel: LogMel) -> None:
    samples, cutter = tones(2.7), WindowCutter(audio)
    wanted = [*cutter.push(samples), *cutter.finish()]
    windows, _ = windows_of(audio, log_mel, samples)
    assert [round(window.start * RATE) for window in windows] == [window.start for window in wanted]


@pytest.mark.parametrize(
    ("samples", "match"),
    [
        (np.zeros(10, np.int16), "int16"),
        (np.zeros(10, np.float64), "float64"),
        (np.zeros((10, 2), np.float32), r"\(10, 2\)"),
        (np.array([0, np.nan], np.float32), "NaN"),
        (np.array([0, np.inf], np.float32), "infinity"),
    ],
)
def test_an_array_that_is_no_audio_is_refused_in_words(samples: NDArray[np.generic], match: str) -> None:
    with pytest.raises(OptionError, match=match):
        check_samples(samples, RATE)


def test_an_array_that_is_audio_passes() -> None:
    check_samples(tones(0.1), RATE)
    check_samples(np.empty(0, np.float32), RATE)


@pytest.mark.parametrize("skip", [0, 1, 3, 99])
def test_windows_that_are_known_are_cut_and_not_given(audio: AudioParameters, log_mel: LogMel, skip: int) -> None:
    whole, _ = windows_of(audio, log_mel, tones(5.0))
    frontend = Frontend(audio, log_mel, vad=False)
    rest = list(frontend.windows([tones(5.0)], skip=skip))
    assert [window.index for window in rest] == [window.index for window in whole[skip:]]
    for mine, wanted in zip(rest, whole[skip:], strict=True):
        assert (mine.start, mine.end, mine.silence) == (wanted.start, wanted.end, wanted.silence)
        np.testing.assert_array_equal(mine.mel, wanted.mel)
    assert frontend.n_windows == len(whole)
