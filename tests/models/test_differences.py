"""How far two arrays are apart, and which mistake a log-mel is."""

from __future__ import annotations

import numpy as np
import pytest

from susurrus.models.comparison.differences import first_difference, measure
from susurrus.models.comparison.mel_faults import MISTAKES, compute, recognise
from susurrus.models.comparison.pipeline import Stage
from susurrus.models.dimensions import AudioParameters
from susurrus.models.mel import LogMel, pad_frames, slaney_filters

AUDIO = AudioParameters(n_mels=80, chunk_length=1)


def noise(*shape: int, seed: int = 0) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def test_a_difference_is_relative_to_the_references_spread() -> None:
    wanted = noise(80, 100)
    difference = measure(Stage.MEL, wanted, wanted + np.float32(0.5))
    assert difference.largest == pytest.approx(0.5, rel=1e-5)
    assert difference.mean == pytest.approx(0.5, rel=1e-5)
    assert difference.relative == pytest.approx(0.5 / wanted.std(), rel=1e-4)


def test_one_wrong_layer_is_judged_by_itself_and_named() -> None:
    wanted = noise(6, 2, 8, 50, 64)
    found = wanted.copy()
    found[3, 1] += 0.1 * noise(8, 50, 64, seed=1)
    difference = measure(Stage.CROSS, wanted, found)
    assert difference.where == "values of layer 3"
    assert difference.relative == pytest.approx(0.1, rel=0.05)
    assert [part for part, relative in difference.parts.items() if relative] == ["values of layer 3"]


def test_one_wrong_step_is_judged_by_itself_and_named() -> None:
    wanted = noise(20, 1000)
    found = wanted.copy()
    found[7] = noise(1000, seed=1)
    assert measure(Stage.LOGITS, wanted, found).where == "step 7"


def test_what_is_added_to_all_logits_of_a_step_is_no_difference() -> None:
    wanted = noise(5, 1000)
    found = wanted + 3 * noise(5, 1)
    assert measure(Stage.LOGITS, wanted, found).relative < 1e-5


def test_samples_that_are_missing_count_as_silence() -> None:
    wanted = noise(1000)
    assert measure(Stage.SAMPLES, wanted, np.append(wanted, np.zeros(100, np.float32))).largest == 0
    assert measure(Stage.SAMPLES, wanted, wanted[:500]).relative == pytest.approx(np.sqrt(0.5), rel=0.1)


@pytest.mark.parametrize("silence", [np.zeros(0, np.float32), np.zeros(100, np.float32)])
def test_silence_equals_silence(silence: np.ndarray[tuple[int], np.dtype[np.float32]]) -> None:
    assert measure(Stage.SAMPLES, silence, silence).relative == 0


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_is_infinitely_far(value: float) -> None:
    found = noise(80, 100)
    found[3, 5:7] = value
    difference = measure(Stage.MEL, noise(80, 100), found)
    assert difference.relative == np.inf
    assert difference.problem == "2 values of 8,000 that are NaN or infinite"


def test_another_shape_is_infinitely_far() -> None:
    difference = measure(Stage.MEL, noise(80, 100), noise(128, 100))
    assert (difference.relative, difference.reshaped) == (np.inf, True)
    assert "(128, 100)" in difference.problem


@pytest.mark.parametrize(
    ("wanted", "found", "parted"),
    [
        ((1, 2, 3), (1, 2, 3), None),
        ((), (), None),
        ((1, 2, 3), (1, 5, 3), (1, 2, 5)),
        ((1, 2), (1, 2, 3), (2, 9, 3)),
        ((1, 2), (), (0, 1, 9)),
    ],
)
def test_sequences_part_where_they_first_differ(
    wanted: tuple[int, ...], found: tuple[int, ...], parted: tuple[int, int, int] | None
) -> None:
    assert first_difference(wanted, found, end=9) == parted


def speech_like() -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    """0.7 s of a swelling tone in noise, the rest of the second silent."""
    seconds = np.arange(11200) / 16000
    tone = sum(np.sin(2 * np.pi * 150 * k * seconds) / k for k in range(1, 20))
    return (0.2 * np.sin(6 * seconds) ** 2 * tone + 0.001 * noise(11200)).astype(np.float32)


def test_the_formula_without_a_mistake_is_our_log_mel() -> None:
    samples = speech_like()
    mel, silence = LogMel(AUDIO, slaney_filters(16000, 400, 80))(samples)
    assert np.abs(pad_frames(mel, silence, 100) - compute(samples, AUDIO)).max() < 1e-5
    assert recognise(samples, pad_frames(mel, silence, 100), AUDIO) is None


@pytest.mark.parametrize("mistake", MISTAKES)
def test_every_mistake_is_taken_for_itself(mistake: str) -> None:
    samples = speech_like()
    found = compute(samples, AUDIO, MISTAKES[mistake]).astype(np.float32)
    right = compute(samples, AUDIO).astype(np.float32)
    assert not measure(Stage.MEL, right, found).relative < 1e-3
    assert recognise(samples, found, AUDIO) == mistake
