"""Writes mel.npz: frames of the log-mel of openai-whisper and of transformers, for made-up audio.

Run by hand, where openai-whisper and transformers are installed (neither is a dependency of this project):

    python tests/golden/make_mel.py

For every case the file holds the indices of the chosen frames, (n,) under "<case>/frames", and these frames
of the 30 s window by either reference, float32 (n_mels, n), under "<case>/openai" and "<case>/transformers".
A case is "<number of samples>/<n_mels>", or "silence/<n_mels>". test_mel.py makes the same audio by `signal`.
"""

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

RATE = 16000
WINDOW = 30 * RATE
LENGTHS = [1, 199, 200, 201, 399, *(round(seconds * RATE) for seconds in (0.3, 1, 5, 11, 29.9, 30))]
CASES = [(str(n), 80) for n in LENGTHS] + [("4800", 128), ("176000", 128), ("480000", 128), ("silence", 80)]


def signal(case: str) -> NDArray[np.float32]:
    """The audio of a case, float32 (n,): a swelling voice-like buzz in noise, first and last samples loud.

    Made of integer arithmetic and sines alone, so that it is the same under every version of NumPy.
    """
    if case == "silence":
        return np.zeros(RATE, np.float32)
    i = np.arange(int(case), dtype=np.uint64)
    mixed = (i + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)  # Knuth's multiplicative hash, twice
    mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    noise = (mixed >> np.uint64(40)).astype(np.float64) / 2**23 - 1
    seconds = i.astype(np.float64) / RATE
    buzz = sum(np.sin(2 * np.pi * 120 * k * seconds) / k for k in range(1, 30))
    samples = (0.2 * buzz + 0.02 * noise) * np.sin(2 * np.pi * 0.7 * seconds + 0.5) ** 2
    samples[:3] = 0.99
    samples[-3:] = -0.99
    return np.asarray(samples, np.float32)


def frames(n_samples: int) -> NDArray[np.int64]:
    """Frames worth comparing: the first and last of the window, some inside, those at the audio's end."""
    end = n_samples // 160
    chosen = {0, 1, 2, end // 3, end // 2, *range(end - 2, end + 4), 2998, 2999}
    return np.array(sorted(frame for frame in chosen if 0 <= frame < 3000))


def main() -> None:
    """Writes mel.npz beside this file."""
    # By name: the tests, which run this module for `signal`, do without these libraries.
    torch, transformers = import_module("torch"), import_module("transformers")
    whisper = import_module("whisper.audio")
    arrays: dict[str, Any] = {}
    for case, n_mels in CASES:
        samples = signal(case)
        chosen = frames(len(samples))
        padded = torch.zeros(WINDOW)
        padded[: len(samples)] = torch.from_numpy(samples)
        extractor = transformers.WhisperFeatureExtractor(feature_size=n_mels)
        features = extractor(samples, sampling_rate=RATE, return_tensors="np")["input_features"][0]
        key = f"{case}/{n_mels}"
        arrays[f"{key}/frames"] = chosen
        arrays[f"{key}/openai"] = whisper.log_mel_spectrogram(padded, n_mels).numpy()[:, chosen]
        arrays[f"{key}/transformers"] = features[:, chosen]
    np.savez_compressed(Path(__file__).with_name("mel.npz"), **arrays)


if __name__ == "__main__":
    main()
