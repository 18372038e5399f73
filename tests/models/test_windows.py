"""Cutting a stream of samples into windows, and telling digital silence."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from susurrus.models.config import AudioParameters
from susurrus.models.windows import AudioWindow, WindowCutter, is_silent

RATE = 16000
AUDIO = AudioParameters(n_mels=80)
SMALL = AudioParameters(n_mels=80, sample_rate=100, hop_length=10, n_fft=20)  # 3000 samples make 30 s
STEP = 1 / 32768


def noise(n: int, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal(n).astype(np.float32) * np.float32(0.1)


def cut(samples: NDArray[np.float32], piece: int, audio: AudioParameters = AUDIO) -> list[AudioWindow]:
    cutter = WindowCutter(audio)
    pieces = (samples[i : i + piece] for i in range(0, len(samples), piece))
    windows = [window for part in pieces for window in cutter.push(part)]
    return windows + cutter.finish()


@settings(deadline=None)
@given(st.integers(0, 20000), st.lists(st.integers(0, 7000), max_size=30), st.integers(0, 2**32 - 1))
def test_windows_joined_are_the_input(n: int, sizes: list[int], seed: int) -> None:
    samples = noise(n, seed)
    cutter = WindowCutter(SMALL)
    windows, at = [], 0
    for size in [*sizes, n]:
        windows += cutter.push(samples[at : at + size])
        at += size
    windows += cutter.finish()
    assert np.array_equal(np.concatenate([samples[:0], *(window.samples for window in windows)]), samples)
    assert [window.index for window in windows] == list(range(len(windows)))
    assert [window.start for window in windows] == np.cumsum([0, *(len(w.samples) for w in windows)])[:-1].tolist()
    assert all(0 < len(window.samples) <= SMALL.n_samples for window in windows)
    assert all(len(window.samples) >= 2 * SMALL.n_samples // 3 for window in windows[:-1])
    assert all(len(window.samples) >= SMALL.sample_rate for window in windows[1:])


@pytest.mark.parametrize("piece", [1, 37, 2999, 3000, 3001, 20000])
def test_the_cuts_do_not_depend_on_how_samples_arrive(piece: int) -> None:
    samples = noise(20000)
    starts = [window.start for window in cut(samples, piece, SMALL)]
    assert starts == [window.start for window in cut(samples, 777, SMALL)]


def test_a_full_window_is_not_cut() -> None:
    assert [len(window.samples) for window in cut(noise(AUDIO.n_samples), RATE)] == [AUDIO.n_samples]


@pytest.mark.parametrize("pause", [20.2, 22.5, 25.0, 28.8])
def test_the_cut_is_in_the_middle_of_a_pause(pause: float) -> None:
    samples = noise(40 * RATE)
    samples[round((pause - 0.15) * RATE) : round((pause + 0.15) * RATE)] *= 0.01
    first = cut(samples, RATE)[0]
    assert abs(len(first.samples) / RATE - pause) <= 0.06


def test_the_cut_is_where_brute_force_finds_the_least_energy() -> None:
    samples = noise(3500, 3)
    n, reach = SMALL.n_samples, 10
    energy = {
        at: float(np.sum(np.square(samples[at - reach : at + reach], dtype=np.float64)))
        for at in range(2 * n // 3, n - SMALL.sample_rate + 1)
    }
    assert len(cut(samples, 100, SMALL)[0].samples) == min(energy, key=energy.__getitem__)


def test_a_quiet_place_outside_the_last_third_is_not_used() -> None:
    samples = noise(40 * RATE)
    samples[5 * RATE : 6 * RATE] = 0
    samples[round(29.5 * RATE) : 30 * RATE] = 0
    assert 20 * RATE <= len(cut(samples, RATE)[0].samples) <= 29 * RATE


def test_silence_is_cut_as_late_as_allowed() -> None:
    assert len(cut(np.zeros(31 * RATE, np.float32), RATE)[0].samples) == 29 * RATE


@pytest.mark.parametrize("extra", [1, 100, RATE // 2, RATE])
def test_what_is_left_over_is_never_under_a_second(extra: int) -> None:
    windows = cut(noise(AUDIO.n_samples + extra), RATE)
    assert len(windows) == 2
    assert len(windows[-1].samples) >= RATE


def test_a_window_keeps_its_samples_when_more_are_pushed() -> None:
    cutter = WindowCutter(SMALL)
    samples = noise(3001)
    (window,) = cutter.push(samples)
    kept = window.samples.copy()
    cutter.push(noise(2000, 1))
    assert np.array_equal(window.samples, kept)


def test_no_audio_makes_no_window() -> None:
    cutter = WindowCutter(AUDIO)
    assert cutter.push(np.empty(0, np.float32)) == []
    assert cutter.finish() == []


def test_memory_is_one_window_however_long_the_recording() -> None:
    block = noise(RATE)
    cutter = WindowCutter(AUDIO)
    tracemalloc.start()
    for _ in range(600):
        cutter.push(block)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 12e6  # a window is 1.9 MB, the search for its pause takes some of that in float64


@pytest.mark.parametrize(
    "samples",
    [
        np.zeros(RATE),
        np.empty(0),
        np.full(RATE, 0.3),
        np.random.default_rng(0).integers(-1, 2, RATE) * STEP,
        np.random.default_rng(0).integers(-2, 3, RATE) * STEP,
    ],
    ids=["zeros", "nothing", "constant", "dither", "triangular dither"],
)
def test_digital_silence_and_dither_are_silent(samples: NDArray[np.float64]) -> None:
    assert is_silent(samples.astype(np.float32))


@pytest.mark.parametrize("peak", [3, 10, 73, 32767])
def test_the_quietest_speech_is_not_silent(peak: int) -> None:
    tone = np.round(np.sin(np.arange(RATE) / 20) * peak) * STEP
    assert not is_silent(tone.astype(np.float32))


def test_one_click_is_not_silent() -> None:
    samples = np.zeros(RATE, np.float32)
    samples[5000] = 0.5
    assert not is_silent(samples)
