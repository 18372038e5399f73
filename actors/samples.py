"""Samples that a program hands over as an array: spooled into a file that the frontend can read."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from susurrus.actors.job import STDIN
from susurrus.models.errors import OutputError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    AudioSource = str | Path | NDArray[np.float32]


@contextlib.contextmanager
def as_file(audio: AudioSource, folder: Path, rate: int) -> Iterator[tuple[str, str]]:
    """Path and name of the audio; samples are in the folder for as long as it takes.

    Paths are made absolute: the frontend's working directory is the one this process had at the start.

    Args:
        audio: a path, `-`, or float32 mono samples (n,) in [-1, 1].
        folder: private to the pipeline.
        rate: of the samples, Hertz.

    Raises:
        OptionError: the array is no such samples.
        OutputError: not all of them could be written.
    """
    if isinstance(audio, str | Path):
        yield STDIN if audio == STDIN else str(Path(audio).absolute()), str(audio)
        return
    from susurrus.models.frontend import check_samples  # noqa: PLC0415 - files do not need it in this process

    check_samples(audio, rate)
    path = folder / f"{secrets.token_hex(8)}.wav"
    try:
        _spool(path, audio, rate)
        yield str(path), "samples"
    finally:
        path.unlink(missing_ok=True)


def _spool(path: Path, samples: NDArray[np.float32], rate: int) -> None:
    """Write samples where the frontend can read them.

    Raises:
        OutputError: not all of them could be written.
    """
    import soundfile  # noqa: PLC0415 - files do not need it in this process

    try:
        soundfile.write(path, samples, rate, subtype="FLOAT")
        is_whole = path.stat().st_size > samples.nbytes
    except (OSError, soundfile.SoundFileError, AssertionError):  # it asserts that all was written
        is_whole = False
    if not is_whole:
        raise OutputError(f"{path.parent}: the samples cannot be written there: make room on its disk, or name a file")
