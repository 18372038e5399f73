"""Token times from attention: against exhaustive search, the filter's definition, and attention with a known answer."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from susurrus.models.alignment import MEDIAN_WIDTH, median_filter, token_starts, warp

if TYPE_CHECKING:
    from numpy.typing import NDArray


@st.composite
def costs(draw: st.DrawFn) -> NDArray[np.float64]:
    """Small matrices of small integers: sums are exact, and many paths cost the same."""
    rows, columns = draw(st.integers(1, 6)), draw(st.integers(1, 7))
    values = draw(st.lists(st.integers(-3, 3), min_size=rows * columns, max_size=rows * columns))
    return np.array(values, np.float64).reshape(rows, columns)


def least_cost(cost: NDArray[np.float64]) -> float:
    """By trying every path from the first cell to the last."""

    @cache
    def least(row: int, column: int) -> float:
        steps = ((row - 1, column), (row, column - 1), (row - 1, column - 1))
        before = [least(r, c) for r, c in steps if r >= 0 and c >= 0]
        return float(cost[row, column]) + min(before, default=0.0)

    return least(cost.shape[0] - 1, cost.shape[1] - 1)


@given(costs())
def test_no_path_is_cheaper(cost: NDArray[np.float64]) -> None:
    rows, columns = warp(cost)
    assert cost[rows, columns].sum() == least_cost(cost)


@given(costs())
def test_a_path_goes_from_corner_to_corner_in_single_steps(cost: NDArray[np.float64]) -> None:
    path = list(zip(*warp(cost), strict=True))
    assert path[0] == (0, 0)
    assert path[-1] == (cost.shape[0] - 1, cost.shape[1] - 1)
    assert all((r2 - r1, c2 - c1) in {(0, 1), (1, 0), (1, 1)} for (r1, c1), (r2, c2) in pairwise(path))


def test_large_matrices_are_warped_as_exactly() -> None:
    """Real sizes and real numbers, where sums are rounded."""
    cost = np.random.default_rng(0).standard_normal((60, 400))
    total = np.full((61, 401), np.inf)  # the textbook's recurrence
    total[0, 0] = 0
    for row in range(60):
        for column in range(400):
            before = min(total[row, column], total[row, column + 1], total[row + 1, column])
            total[row + 1, column + 1] = cost[row, column] + before
    rows, columns = warp(cost)
    assert cost[rows, columns].sum() == pytest.approx(total[-1, -1], abs=1e-9)


@given(st.lists(st.floats(-5, 5, width=32), min_size=1, max_size=30), st.sampled_from([3, 5, 7, 9]))
def test_the_median_is_the_middle_of_the_sorted_neighbours(values: list[float], width: int) -> None:
    x = np.array(values, np.float32)
    reach = width // 2
    if len(x) <= reach:
        wanted = x  # openai-whisper: too short to be mirrored
    else:
        mirrored = [*x[reach:0:-1], *x, *x[-2 : -2 - reach : -1]]
        wanted = np.array([sorted(mirrored[i : i + width])[reach] for i in range(len(x))], np.float32)
    np.testing.assert_array_equal(median_filter(x, width), wanted)


def test_the_median_is_taken_along_the_last_axis_alone() -> None:
    x = np.random.default_rng(0).standard_normal((3, 4, 20)).astype(np.float32)
    found = median_filter(x, MEDIAN_WIDTH)
    for i in range(3):
        for j in range(4):
            np.testing.assert_array_equal(found[i, j], median_filter(x[i, j], MEDIAN_WIDTH))


def attention_at(spans: list[tuple[int, int]], positions: int, *, heads: int = 2) -> NDArray[np.float32]:
    """Attention, (heads, tokens, positions), of tokens that look at a stretch each, with a little noise."""
    attention = np.random.default_rng(0).uniform(0, 0.01, (heads, len(spans), positions))
    for token, (start, end) in enumerate(spans):
        attention[:, token, start:end] += 1
    weights: NDArray[np.float32] = (attention / attention.sum(axis=-1, keepdims=True)).astype(np.float32)
    return weights


def test_tokens_begin_where_the_token_before_them_looks() -> None:
    """The last token of the prompt asks for the first of the text, and so on; the last of the text asks for the end."""
    spans = [(0, 200), (0, 200), (0, 40), (40, 90), (90, 150), (150, 200), (0, 200)]  # prompt of 3, 3 of text, the end
    assert token_starts(attention_at(spans, 200), 3).tolist() == [0, 40, 90, 150]


def test_an_empty_text_ends_where_it_begins() -> None:
    assert token_starts(attention_at([(0, 50)] * 4, 50), 3).tolist() == [0]


@pytest.mark.parametrize("positions", [1, 2, 3, 4, 8])
def test_more_tokens_than_positions_are_crowded_not_refused(positions: int) -> None:
    starts = token_starts(attention_at([(0, positions)] * 14, positions), 3)
    assert len(starts) == 11
    assert starts[0] == 0
    assert all(0 <= before <= after < positions for before, after in pairwise(starts.tolist()))


def test_a_position_that_everybody_looks_at_equally_says_nothing() -> None:
    """It has no deviation to be divided by: weights below what float32 holds are all 0."""
    attention = attention_at([(0, 90), (0, 30), (30, 60), (60, 90), (0, 90)], 120)
    attention[:, :, 90:] = 0
    starts = token_starts(attention, 2)
    assert starts.tolist() == [0, 30, 60]


def test_tokens_begin_where_openai_whisper_has_them() -> None:
    """From the attention of Whisper Base to samples/austen.wav, recorded."""
    with np.load(Path(__file__).parents[1] / "golden" / "words.npz") as golden:
        starts = token_starts(golden["attention"].astype(np.float32), int(golden["prompt"]))
        assert starts.tolist() == golden["starts"].tolist()


@given(st.integers(0, 2**32 - 1), st.integers(1, 12), st.integers(1, 60))
def test_starts_never_fall(seed: int, tokens: int, positions: int) -> None:
    attention = np.random.default_rng(seed).dirichlet(np.ones(positions), (3, tokens + 3)).astype(np.float32)
    starts = token_starts(attention, 2)
    assert len(starts) == tokens + 1
    assert (np.diff(starts) >= 0).all()
    assert starts[0] == 0
