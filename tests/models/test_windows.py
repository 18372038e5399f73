"""Cutting a stream of samples into windows: at pauses, speech apart from what is none; and telling digital silence."""

import tracemalloc
from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from susurrus.models.audio import AudioReader
from susurrus.models.dimensions import AudioParameters
from susurrus.models.results import Span
from susurrus.models.vad import MIN_SPEECH, ONSET, SpeechDetector
from susurrus.models.windows import (
    GAP_SECONDS,
    LEAD_SECONDS,
    PAD_SECONDS,
    SLIVER_SECONDS,
    TAIL_SECONDS,
    AudioWindow,
    WindowCutter,
    is_silent,
)
from tests.conftest import SAMPLES

RATE = 16000
AUDIO = AudioParameters(n_mels=80)
SMALL = AudioParameters(n_mels=80, sample_rate=100, hop_length=10, n_fft=20)  # 3000 samples make 30 s
STEP = 1 / 32768


def noise(n: int, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal(n).astype(np.float32) * np.float32(0.1)


def cut(samples: NDArray[np.float32], piece: int, audio: AudioParameters = AUDIO) -> list[AudioWindow]:
    return run(WindowCutter(audio), (samples[i : i + piece] for i in range(0, len(samples), piece)))


def run(cutter: WindowCutter, pieces: Iterable[NDArray[np.float32]]) -> list[AudioWindow]:
    return [window for piece in pieces for window in cutter.push(piece)] + cutter.finish()


class Told:
    """A detector that is told what to hear, and says it as late as it likes."""

    chunk = 3  # at 100 Hz about what Silero's are at 16 kHz

    def __init__(self, probabilities: Sequence[float], lag: int = 0) -> None:
        self.probabilities = list(probabilities)
        self._lag = lag
        self._samples = self._said = 0

    def push(self, samples: NDArray[np.float32]) -> list[float]:
        """Those that are `lag` chunks old."""
        self._samples += len(samples)
        return self._say(max(self._said, self._samples // self.chunk - self._lag))

    def finish(self) -> list[float]:
        """The rest."""
        return self._say(-(-self._samples // self.chunk))

    def _say(self, end: int) -> list[float]:
        start, self._said = self._said, end
        return [self.probabilities[i] if i < len(self.probabilities) else 0.0 for i in range(start, end)]


def told(runs: Sequence[tuple[bool, float]]) -> list[float]:
    """Probabilities for stretches of seconds with and without speech."""
    return [0.9 if speech else 0.1 for speech, seconds in runs for _ in range(round(100 * seconds / Told.chunk))]


def cut_told(runs: Sequence[tuple[bool, float]], lag: int = 0, piece: int = 70) -> list[AudioWindow]:
    probabilities = told(runs)
    samples = noise(len(probabilities) * Told.chunk)
    pieces = (samples[i : i + piece] for i in range(0, len(samples), piece))
    return run(WindowCutter(SMALL, Told(probabilities, lag)), pieces)


def shape(windows: list[AudioWindow]) -> list[tuple[int, int, tuple[Span, ...]]]:
    return [(window.start, window.end, window.speech) for window in windows]


# --- the rules that hold for any speech ---

seconds = st.one_of(st.floats(0.03, 1), st.floats(0.03, 8), st.floats(2.5, 70))
recordings = st.lists(st.tuples(st.booleans(), seconds), min_size=1, max_size=12)


@settings(deadline=None)
@given(st.lists(st.floats(0, 1), max_size=3000), st.integers(0, 2), st.lists(st.integers(0, 7000), max_size=20))
def test_windows_tile_the_recording_whatever_the_detector_says(
    probabilities: list[float], missing: int, sizes: list[int]
) -> None:
    samples = noise(max(0, len(probabilities) * Told.chunk - missing))
    pieces = np.split(samples, sorted(min(size, len(samples)) for size in sizes))
    check_tiling(run(WindowCutter(SMALL, Told(probabilities)), pieces), samples)


@settings(max_examples=50, deadline=None)
@given(recordings, st.integers(0, 20), st.integers(1, 4000))
def test_windows_tile_the_recording_wherever_there_is_speech(
    runs: list[tuple[bool, float]], lag: int, piece: int
) -> None:
    windows = cut_told(runs, lag, piece)
    check_tiling(windows, noise(len(told(runs)) * Told.chunk))
    assert shape(windows) == shape(cut_told(runs))


def check_tiling(windows: list[AudioWindow], samples: NDArray[np.float32]) -> None:
    assert np.array_equal(np.concatenate([samples[:0], *(window.samples for window in windows)]), samples)
    assert [window.index for window in windows] == list(range(len(windows)))
    assert [window.start for window in windows] == np.cumsum([0, *(len(w.samples) for w in windows)])[:-1].tolist()
    assert all(0 < len(window.samples) <= SMALL.n_samples for window in windows)
    for window in windows:
        edges = [time for span in window.speech for time in (span.start, span.end)]
        assert edges == sorted(edges)
        assert all(span.start < span.end for span in window.speech)
        assert not edges or (edges[0] >= window.start / 100 and edges[-1] <= window.end / 100)


@settings(max_examples=50, deadline=None)
@given(recordings)
def test_no_speech_is_lost(runs: list[tuple[bool, float]]) -> None:
    probabilities = told(runs)
    heard = np.zeros(len(probabilities) * Told.chunk, bool)
    for window in cut_told(runs):
        for span in window.speech:
            heard[round(span.start * 100) : round(span.end * 100)] = True
    spoken = np.repeat(np.array(probabilities) >= ONSET, Told.chunk)
    edges = np.flatnonzero(np.diff(spoken.astype(int), prepend=0, append=0)).reshape(-1, 2)
    for start, end in edges.tolist():
        if end - start > MIN_SPEECH * 100:
            assert heard[start:end].all()


@settings(max_examples=50, deadline=None)
@given(recordings)
def test_silence_never_reaches_the_decoder(runs: list[tuple[bool, float]]) -> None:
    chunk = Told.chunk / 100
    for window in cut_told(runs):
        if not window.speech:
            continue
        lead = window.speech[0].start - window.start / 100
        tail = window.end / 100 - window.speech[-1].end
        assert lead < LEAD_SECONDS + SLIVER_SECONDS + chunk
        assert tail < TAIL_SECONDS + SLIVER_SECONDS + chunk
        for former, latter in pairwise(window.speech):
            assert latter.start - former.end < GAP_SECONDS


@settings(max_examples=50, deadline=None)
@given(recordings)
def test_windows_with_speech_are_as_long_as_they_may_be(runs: list[tuple[bool, float]]) -> None:
    for former, latter in pairwise(cut_told(runs)):
        if former.speech and latter.speech:  # not for a gap: because more speech was there than fits
            assert former.end - former.start >= 2 * SMALL.n_samples // 3 - TAIL_SECONDS * 100


# --- what follows from them ---


def test_a_long_gap_is_a_window_of_its_own() -> None:
    speech, gap, more = cut_told([(True, 6), (False, 6), (True, 6)])
    assert (speech.end, gap.end) == (600 + 50, 1200 - 50)
    assert [(span.start, span.end) for span in speech.speech] == [(0.0, 6.0 + PAD_SECONDS)]
    assert gap.speech == ()
    assert [(span.start, span.end) for span in more.speech] == [(12.0 - PAD_SECONDS, 18.0)]


def test_a_short_gap_stays_in_its_window() -> None:
    (window,) = cut_told([(True, 6), (False, 2.7), (True, 6)])
    assert [(span.start, span.end) for span in window.speech] == [(0.0, 6.2), (8.5, 14.7)]


def test_a_long_silence_is_windows_of_full_length() -> None:
    windows = cut_told([(False, 75), (True, 6), (False, 75)])
    assert [window.end for window in windows] == [3000, 6000, 7450, 8150, 11150, 14150, 15600]
    assert [bool(window.speech) for window in windows] == [False] * 3 + [True] + [False] * 3


def test_a_sliver_without_speech_goes_with_the_speech_beside_it() -> None:
    (window,) = cut_told([(False, 0.9), (True, 3), (False, 0.9)])
    assert [(span.start, span.end) for span in window.speech] == [(0.7, 4.1)]


def test_the_longest_pause_is_where_a_full_window_ends() -> None:
    first, second = cut_told([(True, 21), (False, 0.3), (True, 3), (False, 0.6), (True, 2), (False, 0.3), (True, 9)])
    assert 2430 <= first.end <= 2490
    assert first.speech[-1].end <= first.end / 100 <= second.speech[0].start


def test_a_pause_that_is_still_going_on_counts() -> None:
    first, second = cut_told([(True, 21), (False, 0.3), (True, 7.8), (False, 1.2), (True, 9)])
    assert 2910 <= first.end <= 3000
    assert second.speech[0].start == pytest.approx(30.3 - PAD_SECONDS)


def test_speech_is_given_once_its_end_is_known() -> None:
    cutter = WindowCutter(SMALL, Told(told([(True, 6), (False, 60)])))
    samples = noise(6600)
    before = cutter.push(samples[: round((6 + GAP_SECONDS) * 100) - 2 * Told.chunk])
    assert before == []
    assert len(cutter.push(samples[: 4 * Told.chunk])) == 1


# --- with Silero's network ---


@pytest.fixture(scope="module")
def jfk() -> NDArray[np.float32]:
    with AudioReader(SAMPLES / "jfk.wav", RATE) as reader:
        samples: NDArray[np.float32] = np.concatenate(list(reader))
        return samples


def speech_windows(*parts: NDArray[np.float32]) -> list[AudioWindow]:
    windows = run(WindowCutter(AUDIO, SpeechDetector()), parts)
    return [window for window in windows if window.speech]


@pytest.mark.parametrize("gaps", [[30.0], [5.0, 5.0, 5.0], [3.7]], ids=["30 s", "three of 5 s", "3.7 s"])
def test_speech_between_gaps_is_where_it_was(jfk: NDArray[np.float32], gaps: list[float]) -> None:
    (alone,) = speech_windows(jfk)
    parts, starts = [jfk], [0.0]
    for gap in gaps:
        parts += [np.zeros(round(gap * RATE), np.float32), jfk]
        starts.append(starts[-1] + len(jfk) / RATE + gap)
    windows = speech_windows(*parts)
    assert len(windows) == len(starts)
    for window, start in zip(windows, starts, strict=True):
        assert window.speech[0].start == pytest.approx(start + alone.speech[0].start, abs=0.3)
        assert window.speech[-1].end == pytest.approx(start + alone.speech[-1].end, abs=0.3)


def test_silence_and_dither_have_no_speech() -> None:
    dither = (np.random.default_rng(0).integers(-1, 2, 65 * RATE) * STEP).astype(np.float32)
    assert speech_windows(np.zeros(65 * RATE, np.float32)) == []
    assert speech_windows(dither) == []


# --- without a detector ---


@settings(deadline=None)
@given(st.integers(0, 20000), st.lists(st.integers(0, 20000), max_size=30), st.integers(0, 2**32 - 1))
def test_windows_tile_the_recording_without_a_detector(n: int, cuts: list[int], seed: int) -> None:
    samples = noise(n, seed)
    windows = run(WindowCutter(SMALL), np.split(samples, sorted(min(cut, n) for cut in cuts)))
    check_tiling(windows, samples)
    assert all(window.speech == (Span(window.start / 100, window.end / 100),) for window in windows)
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


def test_silence_is_cut_as_late_as_allowed_and_has_no_speech() -> None:
    windows = cut(np.zeros(31 * RATE, np.float32), RATE)
    assert [len(window.samples) for window in windows] == [29 * RATE, 2 * RATE]
    assert [window.speech for window in windows] == [(), ()]


@pytest.mark.parametrize("extra", [1, 100, RATE // 2, RATE])
def test_what_is_left_over_is_never_under_a_second(extra: int) -> None:
    windows = cut(noise(AUDIO.n_samples + extra), RATE)
    assert len(windows) == 2
    assert len(windows[-1].samples) >= RATE


def test_a_window_keeps_its_samples_when_more_are_pushed() -> None:
    cutter = WindowCutter(SMALL)
    samples = noise(3010)
    (window,) = cutter.push(samples)
    kept = window.samples.copy()
    cutter.push(noise(2000, 1))
    assert np.array_equal(window.samples, kept)


def test_no_audio_makes_no_window() -> None:
    cutter = WindowCutter(AUDIO)
    assert cutter.push(np.empty(0, np.float32)) == []
    assert cutter.finish() == []


@pytest.mark.parametrize("probability", [None, 0.0, 1.0], ids=["no detector", "silence", "speech"])
def test_memory_is_one_window_however_long_the_recording(probability: float | None) -> None:
    block = noise(RATE)

    class Constant(Told):
        chunk = 512

        def _say(self, end: int) -> list[float]:
            start, self._said = self._said, end
            return [probability or 0.0] * (end - start)

    cutter = WindowCutter(AUDIO, None if probability is None else Constant([]))
    tracemalloc.start()
    for _ in range(600):
        cutter.push(block)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 14e6  # a window is 1.9 MB, the search for its pause takes some of that in float64


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
