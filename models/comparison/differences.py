"""How far two arrays or two sequences are apart, in numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

import numpy as np

from susurrus.models.comparison.pipeline import Float32Array, Stage


@dataclass(frozen=True, slots=True)
class Difference:
    """One array against the reference's."""

    largest: float
    """Of the absolute differences; infinite where a value is NaN or infinite, or the shapes differ."""
    mean: float
    """Of the absolute differences."""
    relative: float
    """Root mean square of the differences over the standard deviation of the reference, in the worst part."""
    where: str
    """The worst part; empty where all is one."""
    parts: Mapping[str, float] = field(default_factory=dict)
    """Relative difference of every part: keys and values of each layer, or steps."""
    problem: str = ""
    """Why there is no number: another shape, NaN or infinity."""
    reshaped: bool = False
    """Whether the shapes differ, so that nothing can go on from one in the place of the other."""


def measure(stage: Stage, wanted: Float32Array, found: Float32Array) -> Difference:
    """Compares a stage's array with the reference's.

    Keys and values are judged layer by layer and logits step by step, each against its own spread, so that one wrong
    layer or step is not lost among the others. The mean of a step's logits is left out of it: no probability depends
    on it.

    Args:
        stage: Which one; see `Pipeline` for the shapes.
        wanted: The reference's.
        found: The other's.
    """
    if stage is Stage.SAMPLES:  # what one pipeline has no samples for is silence to it
        length = max(len(wanted), len(found))
        wanted, found = (np.pad(samples, (0, length - len(samples))) for samples in (wanted, found))
    if wanted.shape != found.shape:
        return _problem(f"shape {found.shape}, the reference has {wanted.shape}", reshaped=True)
    if not np.isfinite(found).all():
        return _problem(f"{np.count_nonzero(~np.isfinite(found)):,} values of {found.size:,} that are NaN or infinite")
    if not wanted.size:
        return Difference(0.0, 0.0, 0.0, "")
    if stage is Stage.LOGITS:
        wanted, found = (values - values.mean(axis=1, keepdims=True) for values in (wanted, found))
    names = _parts(stage, wanted)
    pairs = zip(*(values.reshape(len(names), -1) for values in (wanted, found)), strict=True)
    largest, means, relative = zip(*(_compare(*pair) for pair in pairs), strict=True)
    parts = dict(zip(names, relative, strict=True))
    worst = max(parts, key=parts.__getitem__)
    return Difference(max(largest), float(np.mean(means)), parts[worst], worst, parts if len(parts) > 1 else {})


def first_difference(wanted: Sequence[int], found: Sequence[int], end: int) -> tuple[int, int, int] | None:
    """Position, the reference's token and the other's where two sequences part first; `end` where one stops."""
    pairs: Iterable[tuple[int, int]] = zip_longest(wanted, found, fillvalue=end)
    return next(((position, a, b) for position, (a, b) in enumerate(pairs) if a != b), None)


def _problem(text: str, *, reshaped: bool = False) -> Difference:
    return Difference(np.inf, np.inf, np.inf, "", problem=text, reshaped=reshaped)


def _parts(stage: Stage, wanted: Float32Array) -> list[str]:
    if stage is Stage.CROSS:
        return [f"{kind} of layer {layer}" for layer in range(len(wanted)) for kind in ("keys", "values")]
    if stage is Stage.LOGITS:
        return [f"step {step}" for step in range(len(wanted))]
    return [""]


def _compare(wanted: Float32Array, found: Float32Array) -> tuple[float, float, float]:
    """Largest, mean and relative difference of one part."""
    differences = np.subtract(found, wanted, dtype=np.float64)
    spread = float(wanted.std(dtype=np.float64)) or 1.0  # digital silence has none
    sizes = np.abs(differences)
    return float(sizes.max()), float(sizes.mean()), float(np.sqrt(np.square(differences).mean())) / spread
