"""Libraries that only a comparison needs, and how they read a recording."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np

from susurrus.models.comparison.pipeline import Float32Array
from susurrus.models.errors import AudioError, OptionError


def need(module: str, package: str) -> Any:
    """Imports a module that is no dependency of this project.

    Args:
        module: Its name.
        package: What installs it.

    Raises:
        OptionError: It is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise OptionError(f"{package} is not installed, which --against needs: pip install {package}") from error


def set_threads(threads: int) -> None:
    """Tells torch how many threads it may use; 0 leaves the choice to it."""
    if threads:
        need("torch", "torch").set_num_threads(threads)


def read_window(clip: Path, sample_rate: int, n_samples: int) -> Float32Array:
    """The first samples of a recording as FFmpeg reads, mixes and resamples it: float32 (n,), n at most `n_samples`.

    What `load_audio` of openai-whisper and `ffmpeg_read` of transformers ask the program for (16 bits, mono), through
    FFmpeg's libraries.

    Raises:
        AudioError: FFmpeg cannot read it.
    """
    import av  # noqa: PLC0415  # a dependency of this project, but slow to load

    resampler = av.AudioResampler(format="s16", layout="mono", rate=sample_rate)
    blocks, length = list[Any](), 0
    try:
        with av.open(str(clip)) as container:
            for frame in container.decode(audio=0):
                blocks += [part.to_ndarray()[0] for part in resampler.resample(frame)]
                length = sum(map(len, blocks))
                if length >= n_samples:
                    break
            else:
                blocks += [part.to_ndarray()[0] for part in resampler.resample(None)]
    except (av.FFmpegError, IndexError, OSError, ValueError) as error:
        raise AudioError(f"{clip}: FFmpeg cannot read it ({error}): name an audio file") from error
    joined = np.concatenate(blocks) if blocks else np.zeros(0, np.int16)
    samples: Float32Array = joined[:n_samples].astype(np.float32) / np.float32(32768)
    return samples
