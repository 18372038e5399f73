"""How far two pipelines may be apart at each stage and still be one.

Measured on Whisper Base against openai-whisper in float32: the worst of 16 recordings of different origins, formats,
sample rates and languages (9 for Optimum's int8, which is not smoothed); and the least that a planted fault gave of
those that were tried.

    relative difference   float32   our int8   Optimum int8   allowed        planted fault
    samples                0.014      0.014       0.014       0.03           0.036, channels that cancel
    log-mel                1e-6       1e-6        1e-6        1e-4           0.16, n_fft 512
    hidden states          4e-6       0.07        0.20        1e-4, 0.3
    keys and values        3e-7       0.08        0.12        1e-4, 0.2      3.4, swapped
    logits                 8e-6       0.08        0.26        1e-4, 0.4      0.54, positions shifted by one
    nats of a tie          0.002      0.24        1.5         0.01, 2
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from susurrus.models.comparison.pipeline import Stage


@dataclass(frozen=True, slots=True)
class Tolerances:
    """What agrees."""

    relative: Mapping[Stage, float]
    """Largest relative difference of a stage on the reference's input; see `differences.Difference`."""
    tie: float
    """Nats: how much less probable a token may be to the reference than its own, and count as just as good."""


EXACT = Tolerances(
    {
        Stage.SAMPLES: 0.03,
        Stage.MEL: 1e-4,
        Stage.ENCODER: 1e-4,
        Stage.CROSS: 1e-4,
        Stage.LOGITS: 1e-4,
    },
    tie=0.01,
)
"""Both pipelines compute in float32 throughout."""

QUANTIZED = Tolerances(
    {**EXACT.relative, Stage.ENCODER: 0.3, Stage.CROSS: 0.2, Stage.LOGITS: 0.4},
    tie=2.0,
)
"""One of them computes in int8. Samples and log-mel do not."""


def tolerances(*, exact: bool) -> Tolerances:
    """Those of two pipelines.

    Args:
        exact: Whether both compute in float32 throughout.
    """
    return EXACT if exact else QUANTIZED
