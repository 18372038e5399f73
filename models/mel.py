"""Log-mel spectrogram, as Whisper was trained on it.

Written from openai/whisper `whisper/audio.py` (`log_mel_spectrogram`) and the Slaney mel scale of M. Slaney,
"Auditory Toolbox", Interval Research technical report 1998-010. Both references pad the *samples* with zeros
to 30 s before the transform. Here the frames beyond the audio are not computed: their exact value is returned
as one number.
"""

import json
from pathlib import Path
from typing import Self

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from susurrus.models.blas import one_blas_thread
from susurrus.models.config import MODEL_FILE, ModelConfig
from susurrus.models.dimensions import AudioParameters
from susurrus.models.errors import ModelError

FILTERS_FILE = "mel_filters.json"

_FLOOR = np.float32(1e-10)  # power below this counts as this: log10 gives -10
_RANGE = np.float32(8)  # decades kept below the loudest value of the window
_CHUNK = 256  # frames at once: the temporaries of one chunk (2 MB) stay in the cache


class LogMel:
    """Turns one window of audio into Whisper's log-mel frames.

    The discrete Fourier transform is a matrix product with precomputed twiddle factors, the Hann window
    included. A real frame folds twice, so the tables hold a quarter of the factors: about its middle, where
    the cosines meet x[k] + x[n_fft - k] and the sines x[k] - x[n_fft - k]; and about a quarter of the
    sample rate, where bins f and n_fft / 2 - f differ in the sign of the odd k only.

    The sums run in float64. In float32 the rounding of a loud low tone reaches the bins 80 dB below it:
    errors were up to 6e-5 on recordings of speech and 4e-4 on quiet noise beside a large DC offset, not
    2e-7. Float64 without the second fold takes 1.4 times as long.

    Args:
        audio: The model's audio parameters.
        filters: The mel filter bank, float32 (n_mels, n_freqs).

    Raises:
        ModelError: `n_fft` is odd, or the filter bank's shape is not what the parameters say.
    """

    def __init__(self, audio: AudioParameters, filters: NDArray[np.float32]) -> None:
        if audio.n_fft % 2:
            raise ModelError(f"n_fft is {audio.n_fft} in the model's configuration: it has to be even")
        if filters.shape != (audio.n_mels, audio.n_freqs):
            raise ModelError(
                f"mel filters have shape {filters.shape}, the model's configuration says "
                f"{(audio.n_mels, audio.n_freqs)}: provision the model again"
            )
        self.audio = audio
        self._filters = np.ascontiguousarray(filters, dtype=np.float32)  # (n_mels, n_freqs)
        self._cosines, self._sines = _twiddle_tables(audio.n_fft)

    @classmethod
    def from_directory(cls, directory: Path) -> Self:
        """Builds it from `model.json` and `mel_filters.json` in `directory`.

        Of an Optimum export from its JSON files; its filters, where it brings none, are computed.

        Raises:
            ModelError: A file is missing, damaged, or the two do not belong together.
        """
        audio = ModelConfig.from_directory(directory).audio
        path = directory / FILTERS_FILE
        if not path.exists() and not (directory / MODEL_FILE).exists():
            return cls(audio, slaney_filters(audio.sample_rate, audio.n_fft, audio.n_mels))
        return cls(audio, load_filters(path, audio))

    def __call__(self, samples: NDArray[np.float32]) -> tuple[NDArray[np.float32], float]:
        """Computes the frames that audio touches.

        Args:
            samples: float32 (n,), n at most `audio.n_samples`, full scale is +-1.

        Returns:
            The frames, float32 (n_mels, n_frames_with_audio), and the value that every element of the
            window's other frames has, for `pad_frames`.

        Raises:
            ValueError: `samples` is not one-dimensional, or longer than the window.
        """
        if samples.ndim != 1 or len(samples) > self.audio.n_samples:
            raise ValueError(f"samples of shape {samples.shape}: expected (n,), n <= {self.audio.n_samples}")
        with one_blas_thread():
            mel = self._mel_power(samples)
        np.maximum(mel, _FLOOR, out=mel)
        np.log10(mel, out=mel)
        # The silent frames take part in the reference's maximum, with log10(floor).
        loudest = np.maximum(mel.max(initial=-np.inf), np.log10(_FLOOR))
        floor = np.maximum(loudest - _RANGE, np.log10(_FLOOR))
        np.maximum(mel, floor, out=mel)
        mel += 4
        mel /= 4
        return mel, float((floor + 4) / 4)

    def n_frames(self, n_samples: int) -> int:
        """The number of frames that hold any of the first `n_samples` samples of the window.

        Frame t is centred on sample t * hop and reaches n_fft / 2 - 1 samples to either side (the Hann
        window's first point, one further to the left, is 0).
        """
        if n_samples == 0:
            return 0
        reach = self.audio.n_fft // 2 - 1
        return min(self.audio.n_frames, (n_samples - 1 + reach) // self.audio.hop_length + 1)

    def _mel_power(self, samples: NDArray[np.float32]) -> NDArray[np.float32]:
        """Mel-weighted power, float32 (n_mels, n_frames): the filters times |DFT|^2 of every frame."""
        hop, n_fft = self.audio.hop_length, self.audio.n_fft
        n_frames = self.n_frames(len(samples))
        padded = _pad(samples, self.audio.n_samples, n_fft // 2, (n_frames - 1) * hop + n_fft)
        mel = np.empty((self.audio.n_mels, n_frames), np.float32)
        step = padded.strides[0]
        for first in range(0, n_frames, _CHUNK):
            n = min(_CHUNK, n_frames - first)
            frames = as_strided(padded[first * hop :], (n, n_fft), (hop * step, step), writeable=False)
            np.matmul(self._filters, self._power(frames).T, out=mel[:, first : first + n])
        return mel

    def _power(self, frames: NDArray[np.float32]) -> NDArray[np.float32]:
        """|DFT|^2 of float32 (n, n_fft) frames, float32 (n, n_freqs)."""
        half = frames.shape[1] // 2
        left, right = (
            frames[:, 1 : half + 1],
            frames[:, : half - 1 : -1],
        )  # x[k], x[n_fft - k] of k = 1 .. half
        real_odd, real_even = (
            np.add(left[:, i::2], right[:, i::2], dtype=np.float64) @ table for i, table in enumerate(self._cosines)
        )
        imaginary_odd, imaginary_even = (
            np.subtract(left[:, i::2], right[:, i::2], dtype=np.float64) @ table for i, table in enumerate(self._sines)
        )
        power = np.empty((len(frames), half + 1), np.float32)
        n_low = real_even.shape[1]
        power[:, :n_low] = np.square(real_even + real_odd) + np.square(imaginary_even + imaginary_odd)
        power[:, : half - n_low : -1] = np.square(real_even - real_odd) + np.square(imaginary_even - imaginary_odd)
        return power


def pad_frames(mel: NDArray[np.float32], silence: float, n_frames: int) -> NDArray[np.float32]:
    """Completes what `LogMel` returned to float32 (n_mels, n_frames), as the reference's 30 s window is."""
    padded = np.full((mel.shape[0], n_frames), silence, np.float32)
    kept = min(n_frames, mel.shape[1])
    padded[:, :kept] = mel[:, :kept]
    return padded


def load_filters(path: Path, audio: AudioParameters) -> NDArray[np.float32]:
    """Reads a filter bank, float32 (n_mels, n_freqs), from `mel_filters.json`: ours, or the bare rows of numbers.

    Raises:
        ModelError: The file is missing or damaged, or made for other audio parameters.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        wanted = (audio.sample_rate, audio.n_fft, audio.n_mels)
        bare = isinstance(document, list)
        made_for = wanted if bare else tuple(int(document[key]) for key in ("sample_rate", "n_fft", "n_mels"))
        filters = np.array(document if bare else document["filters"], dtype=np.float32)
    except OSError as error:
        raise ModelError(f"{path}: {error.strerror or error}: provision the model again") from error
    except (ValueError, TypeError, KeyError) as error:
        raise ModelError(f"{path}: not a mel filter file: provision the model again") from error
    if made_for != wanted or filters.ndim != 2 or not np.isfinite(filters).all():
        raise ModelError(f"{path}: made for another model than the folder's configuration: provision it again")
    return filters


def slaney_filters(sample_rate: int, n_fft: int, n_mels: int) -> NDArray[np.float32]:
    """The filter bank Whisper uses: triangles on Slaney's mel scale, each of unit area.

    Args:
        sample_rate: In Hz; the triangles span 0 to sample_rate / 2.
        n_fft: Length of the transform in samples.
        n_mels: Number of filters.

    Returns:
        float32 (n_mels, n_fft // 2 + 1).
    """
    bins = np.arange(n_fft // 2 + 1) * (sample_rate / n_fft)  # Hz, (n_freqs,)
    corners = _mel_to_hz(np.linspace(0, _hz_to_mel(sample_rate / 2), n_mels + 2))
    low, centre, high = (corners[i : i + n_mels, None] for i in range(3))  # Hz, (n_mels, 1) each
    triangles = np.minimum((bins - low) / (centre - low), (high - bins) / (high - centre))
    filters = np.maximum(0, triangles) * (2 / (high - low))
    return filters.astype(np.float32)


# Slaney's scale is linear to 1 kHz (66.7 Hz per mel) and logarithmic from there (27 mels per factor 6.4).
_BREAK_HZ = 1000.0
_BREAK_MEL = 15.0
_MELS_PER_NEPER = 27 / np.log(6.4)


def _hz_to_mel(hz: float) -> float:
    if hz < _BREAK_HZ:
        return hz * _BREAK_MEL / _BREAK_HZ
    return float(_BREAK_MEL + np.log(hz / _BREAK_HZ) * _MELS_PER_NEPER)


def _mel_to_hz(mel: NDArray[np.float64]) -> NDArray[np.float64]:
    linear = mel * _BREAK_HZ / _BREAK_MEL
    return np.where(mel < _BREAK_MEL, linear, _BREAK_HZ * np.exp((mel - _BREAK_MEL) / _MELS_PER_NEPER))


def _twiddle_tables(n_fft: int) -> tuple[list[NDArray[np.float64]], list[NDArray[np.float64]]]:
    """Cosines and sines of the lower half of the bins, times the periodic Hann window.

    Returns:
        Two pairs of float64 (n_fft / 4, n_freqs / 2), rounded up: rows of the odd k, rows of the even k, of
        k = 1 .. n_fft / 2. (The window is 0 at k = 0.)
    """
    k = np.arange(1, n_fft // 2 + 1)
    window = 0.5 - 0.5 * np.cos(2 * np.pi * k / n_fft)
    window[-1] /= 2  # the fold adds the middle sample to itself
    angles = 2 * np.pi / n_fft * np.outer(k, np.arange(n_fft // 4 + 1))
    cosines, sines = window[:, None] * np.cos(angles), window[:, None] * np.sin(angles)
    return [np.ascontiguousarray(cosines[i::2]) for i in (0, 1)], [np.ascontiguousarray(sines[i::2]) for i in (0, 1)]


def _pad(samples: NDArray[np.float32], window: int, margin: int, length: int) -> NDArray[np.float32]:
    """The first `length` samples of the zero-padded `window` with a reflected `margin` on either side."""
    padded = np.zeros(max(length, 0), np.float32)
    body = samples[: max(length - margin, 0)]
    padded[margin : margin + len(body)] = body
    head = samples[1 : margin + 1]
    padded[margin - len(head) : margin] = head[::-1]
    beyond = length - margin - window  # samples right of the window's end that a frame reaches
    if beyond > 0:
        inside = padded[margin + window - 1 - beyond : margin + window - 1]
        padded[margin + window :] = inside[::-1]
    return padded
