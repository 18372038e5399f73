"""Which known mistake a wrong log-mel is: each is computed by the formula, and the one that gives the same is named.

The formula is that of openai/whisper `audio.py` (`log_mel_spectrogram`), in float64; the mel scales are those of
librosa `filters.mel` (Slaney's, and HTK's: 2595 log10(1 + f / 700)).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from susurrus.models.comparison.pipeline import Float32Array
from susurrus.models.dimensions import AudioParameters
from susurrus.models.mel import slaney_filters

Float64Array = NDArray[np.float64]

SAME = 1e-3
"""Relative difference below which two log-mels are one: what float32 sums and a rounded filter file make."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """How samples become log-mel; the defaults are Whisper's."""

    n_fft: int | None = None
    """Samples of a frame's window; None takes the model's."""
    scale: str = "slaney"
    """`slaney`; `htk` with triangles of unit area; `htk peaks` with triangles of unit height."""
    floor: float = 1e-10
    """Power that less counts as."""
    decades: float = 8.0
    """Kept below the loudest value."""
    magnitude: bool = False
    """Whether the filters weigh magnitudes rather than powers."""
    natural: bool = False
    """Whether the logarithm is the natural one."""
    scaled: bool = True
    """Whether (x + 4) / 4 is taken at the end."""
    gain: float = 1.0
    """What the samples are multiplied by first."""
    symmetric: bool = False
    """Whether the Hann window is the symmetric one, whose last point is 0 again."""
    silence: float | None = None
    """What frames beyond the audio are filled with; None computes them."""


WHISPER = Recipe()
MISTAKES: dict[str, Recipe] = {
    "frames of 512 samples (n_fft 512), where Whisper has 400": replace(WHISPER, n_fft=512),
    "frames of 1024 samples (n_fft 1024), where Whisper has 400": replace(WHISPER, n_fft=1024),
    "HTK's mel scale, where Whisper has Slaney's": replace(WHISPER, scale="htk"),
    "HTK's mel scale with filters of unit height, where Whisper has Slaney's with unit area": replace(
        WHISPER, scale="htk peaks"
    ),
    "no floor: neither power below 1e-10 nor what is 8 decades below the loudest is raised": replace(
        WHISPER, floor=0.0, decades=np.inf
    ),
    "no floor 8 decades (80 dB) below the loudest value": replace(WHISPER, decades=np.inf),
    "frames beyond the audio that are zeros, where Whisper has the log-mel of silence": replace(WHISPER, silence=0.0),
    "magnitudes, where Whisper has powers": replace(WHISPER, magnitude=True),
    "the natural logarithm, where Whisper has log10": replace(WHISPER, natural=True),
    "no scaling at the end, where Whisper takes (x + 4) / 4": replace(WHISPER, scaled=False),
    "samples as 16-bit integers, where Whisper has -1 to 1": replace(WHISPER, gain=32768.0),
    "a symmetric Hann window, where Whisper has a periodic one": replace(WHISPER, symmetric=True),
}


def recognise(samples: Float32Array, mel: Float32Array, audio: AudioParameters) -> str | None:
    """The mistake that makes this log-mel of these samples, in words; None for another one.

    Args:
        samples: float32 (n,), at most one window.
        mel: The log-mel in question, float32 (n_mels, n_frames).
        audio: The reference's audio parameters.
    """
    if mel.shape != (audio.n_mels, audio.n_frames):
        return None
    return next((words for words, recipe in MISTAKES.items() if _same(compute(samples, audio, recipe), mel)), None)


def compute(samples: Float32Array, audio: AudioParameters, recipe: Recipe = WHISPER) -> Float64Array:
    """Log-mel by a recipe, float64 (n_mels, n_frames); -inf where it takes the logarithm of zero."""
    n_fft = recipe.n_fft or audio.n_fft
    samples = samples[: audio.n_samples]
    padded = np.pad(samples.astype(np.float64) * recipe.gain, (0, audio.n_samples - len(samples)))
    padded = np.pad(padded, n_fft // 2, mode="reflect")
    window = np.hanning(n_fft) if recipe.symmetric else np.hanning(n_fft + 1)[:-1]
    frames = np.lib.stride_tricks.sliding_window_view(padded, n_fft)[:: audio.hop_length][: audio.n_frames]
    spectrum = np.abs(np.fft.rfft(frames * window))  # (n_frames, n_freqs)
    power = _filters(recipe.scale, audio, n_fft) @ (spectrum if recipe.magnitude else np.square(spectrum)).T
    with np.errstate(divide="ignore"):
        log = np.log(power.clip(recipe.floor)) if recipe.natural else np.log10(power.clip(recipe.floor))
    log = np.maximum(log, log.max() - recipe.decades)
    mel: Float64Array = (log + 4) / 4 if recipe.scaled else log
    if recipe.silence is not None:
        reach = n_fft // 2 - 1  # samples that a frame sees to either side
        mel[:, (len(samples) - 1 + reach) // audio.hop_length + 1 :] = recipe.silence
    return mel


def _filters(scale: str, audio: AudioParameters, n_fft: int) -> Float64Array:
    """The filter bank, float64 (n_mels, n_fft // 2 + 1)."""
    if scale == "slaney":
        return slaney_filters(audio.sample_rate, n_fft, audio.n_mels).astype(np.float64)
    top = 2595 * np.log10(1 + audio.sample_rate / 2 / 700)
    corners = 700 * (10 ** (np.linspace(0, top, audio.n_mels + 2) / 2595) - 1)  # Hz
    low, centre, high = (corners[i : i + audio.n_mels, None] for i in range(3))
    bins = np.arange(n_fft // 2 + 1) * (audio.sample_rate / n_fft)
    triangles = np.maximum(0, np.minimum((bins - low) / (centre - low), (high - bins) / (high - centre)))
    return triangles if scale == "htk peaks" else np.asarray(triangles * (2 / (high - low)))


def _same(wanted: Float64Array, found: Float32Array) -> bool:
    """Whether two log-mels are one, minus infinity included."""
    finite = np.isfinite(wanted)
    if not finite.any() or not np.array_equal(finite, np.isfinite(found)):
        return False
    difference = np.sqrt(np.square(wanted[finite] - found[finite]).mean())
    return bool(difference <= SAME * (wanted[finite].std() or 1.0))
