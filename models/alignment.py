"""From attention to times: where in the audio each token of a text begins.

Some cross-attention heads look, for every token, at the audio that it came from. Their attention is made comparable
from token to token, smoothed and averaged, and the best monotone path through it, found by dynamic time warping, says
when each token begins.

Written from openai/whisper's `timing.py` (`find_alignment`, `median_filter`, `dtw_cpu`, `backtrace`). The warping is
Sakoe and Chiba, "Dynamic programming algorithm optimization for spoken word recognition" (1978), with steps of one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float32]
Float64Array = NDArray[np.float64]
IndexArray = NDArray[np.intp]

MEDIAN_WIDTH = 7
"""Encoder positions (0.14 s) that the median is taken over."""


def token_starts(attention: FloatArray, prompt_length: int) -> IndexArray:
    """Finds where each text token begins, and where the last one ends.

    Args:
        attention: float32 (heads, prompt + text + 1, positions): softmax over the positions that hold audio, for the
            tokens of the prompt, those of the text, and the end token.
        prompt_length: Tokens of the prompt.

    Returns:
        Encoder positions, (text + 1,), never falling.
    """
    # What a row says is asked for by the token before it: the last of the prompt looks for the first of the text.
    rows = slice(prompt_length - 1, -1)
    matrix = np.zeros((attention.shape[1] - prompt_length, attention.shape[2]))
    for head in attention:  # one by one, because a head fits into the processor's cache
        matrix += median_filter(_standardised(head)[rows], MEDIAN_WIDTH)
    tokens, positions = warp(-matrix / len(attention))
    begins = np.flatnonzero(np.diff(tokens, prepend=-1))
    starts: IndexArray = positions[begins]
    return starts


def median_filter(x: FloatArray, width: int) -> FloatArray:
    """Median of each value and its neighbours along the last axis, which is mirrored at its ends.

    Args:
        x: float32 (..., n); returned as it is when it is too short to be mirrored.
        width: How many values the median is of: odd, at least 3.
    """
    reach, n = width // 2, x.shape[-1]
    if n <= reach:
        return x
    padded = np.pad(x, [(0, 0)] * (x.ndim - 1) + [(reach, reach)], mode="reflect")
    shifted = [padded[..., start : start + n] for start in range(width)]
    # Of more than half of the values neither the least nor the greatest can be the median: both are dropped, the next
    # value comes in, until one is left. As arrays that is five times as fast as sorting.
    kept, coming = shifted[: reach + 2], shifted[reach + 2 :]
    while len(kept := _without_extremes(kept)) > 1 or coming:
        kept.append(coming.pop())
    return kept[0]


def warp(cost: Float64Array) -> tuple[IndexArray, IndexArray]:
    """Finds the cheapest path from the first cell to the last, in steps of one down, right or both.

    Args:
        cost: float64 (rows, columns), at least one of each, finite.

    Returns:
        Row and column of every cell of the path, in order. Of equally cheap steps the diagonal one is taken, then the
        one down.
    """
    n_rows, n_columns = cost.shape
    total = np.full((n_rows + 1, n_columns + 1), np.inf)  # of the cheapest path to the cell before
    total[0, 0] = 0
    sums = np.zeros((n_rows, n_columns + 1))
    np.cumsum(cost, axis=1, out=sums[:, 1:])
    for row in range(n_rows):
        # Entering the row at column k and going right to j costs best[k] + sums[j + 1] - sums[k]: the best k for every
        # j is a running minimum.
        best = np.minimum(total[row, :-1], total[row, 1:]) - sums[row, :-1]
        total[row + 1, 1:] = np.minimum.accumulate(best) + sums[row, 1:]
    return _backtrack(total)


def _backtrack(total: Float64Array) -> tuple[IndexArray, IndexArray]:
    row, column = total.shape[0] - 1, total.shape[1] - 1
    path = []
    while row and column:
        path.append((row - 1, column - 1))
        diagonal, above, left = total[row - 1, column - 1], total[row - 1, column], total[row, column - 1]
        if diagonal <= min(above, left):
            row, column = row - 1, column - 1
        elif above <= left:
            row -= 1
        else:
            column -= 1
    rows, columns = np.array(path[::-1], np.intp).T
    return rows, columns


def _standardised(attention: FloatArray) -> FloatArray:
    """Mean 0 and standard deviation 1 over the tokens, (tokens, positions), so that no position draws all of them.

    A position that all tokens look at equally, such as one whose weights are too small for float32, says nothing: 0.
    """
    centred = attention - attention.mean(axis=0)
    deviation = centred.std(axis=0)
    standardised: FloatArray = np.divide(centred, deviation, out=np.zeros_like(centred), where=deviation > 0)
    return standardised


def _without_extremes(values: list[FloatArray]) -> list[FloatArray]:
    """Of three arrays or more, element by element, all but the least and the greatest."""
    least, *others = values
    higher = []
    for value in others:
        higher.append(np.maximum(least, value))
        least = np.minimum(least, value)
    greatest, *others = higher
    inner = []
    for value in others:
        inner.append(np.minimum(greatest, value))
        greatest = np.maximum(greatest, value)
    return inner
