"""A window's arrays in a few numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Float32Array = NDArray[np.float32]

NEAR_FLOOR = 0.05
"""A log-mel value at most so far above the floor counts as being at it."""


def mel_facts(mel: Float32Array, silence: float) -> dict[str, Any]:
    """What a log-mel holds.

    Args:
        mel: float32 (n_mels, n_frames).
        silence: value of a frame of silence in this window: the floor, 8 decades (2 units) below the loudest value.

    Returns:
        `shape`; `mean`, `std`, `min`, `max`, `nan` as of `array_facts`; `silence`; `floor_share`, of the values that
        lie at the floor; `empty_bins`, how many of the uppermost bins hold nothing in any frame.
    """
    at_floor = ~(mel > silence + NEAR_FLOOR)  # NaN holds nothing
    heard = np.flatnonzero(~at_floor.all(axis=1))
    return {
        **array_facts(mel),
        "silence": float(silence),
        "floor_share": float(at_floor.mean()),
        "empty_bins": len(mel) - (int(heard[-1]) + 1 if len(heard) else 0),
    }


def hidden_state_facts(states: Float32Array) -> dict[str, Any]:
    """What hidden states (n_audio_ctx, n_audio_state) hold: as `array_facts`, and the range of the positions' norms."""
    norms = position_norms(states)
    return {**array_facts(states), "norm_min": _number(norms.min()), "norm_max": _number(norms.max())}


def position_norms(states: Float32Array) -> Float32Array:
    """Euclidean norm of every position, float32 (n_audio_ctx,)."""
    norms: Float32Array = np.linalg.norm(states, axis=1).astype(np.float32)
    return norms


def array_facts(values: Float32Array) -> dict[str, Any]:
    """`shape`; `mean`, `std`, `min`, `max` of what is finite, null if nothing is; `nan`, how many are not finite."""
    finite = values[np.isfinite(values)].astype(np.float64)
    some = len(finite) > 0
    return {
        "shape": list(values.shape),
        "mean": float(finite.mean()) if some else None,
        "std": float(finite.std()) if some else None,
        "min": float(finite.min()) if some else None,
        "max": float(finite.max()) if some else None,
        "nan": int(values.size - finite.size),
    }


def _number(value: np.floating[Any]) -> float | None:
    """For JSON, which has no NaN."""
    return float(value) if np.isfinite(value) else None
