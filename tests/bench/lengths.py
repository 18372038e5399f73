"""Recordings of any length out of those of a corpus."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path

import numpy as np
import soundfile
import soxr
from numpy.typing import NDArray

from susurrus.models import SusurrusError
from tests.bench.corpus import BenchError, Clip, load_samples

RATE = 16_000
SHORT_S = (1.0, 15.0)  # what is a short recording
PAUSE_S = 0.5
TILE_S = 300.0  # the sparse recording repeats itself after so long
SPARSE_RATE = 48_000
FLOOR = 1e-4  # a room's noise: pauses are no digital silence

Float32Array = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Recording:
    """A file and how long it plays."""

    path: Path
    seconds: float


def short_recordings(clips: Sequence[Clip], count: int, kinds: int = 50) -> list[Recording]:
    """So many short recordings: some of the corpus, spread over it, again and again in the same order.

    Raises:
        BenchError: there are none.
    """
    found = [Recording(clip.path, len(samples) / RATE) for clip, samples in _readable(clips)]
    short = [recording for recording in found if SHORT_S[0] <= recording.seconds <= SHORT_S[1]]
    if not short:
        raise BenchError(f"the corpus has no recording of {SHORT_S[0]:g} to {SHORT_S[1]:g} s")
    step = max(1, len(short) // kinds)
    return list(islice(cycle(short[::step][:kinds]), count))


def long_recordings(clips: Sequence[Clip], folder: Path, hours: float, each_s: float = 600.0) -> list[Recording]:
    """Write the corpus, one recording after another and from the start again, into files that play `hours` together."""
    pieces = _with_pauses(clips)
    total, made = round(hours * 3600 * RATE), list[Recording]()
    while total > 0:
        left = min(total, round(each_s * RATE))
        total -= left
        made.append(Recording(folder / f"long-{len(made)}.wav", left / RATE))
        with soundfile.SoundFile(made[-1].path, "w", RATE, 1, "PCM_16") as file:
            while left > 0:
                piece = next(pieces)[:left]
                file.write(piece)
                left -= len(piece)
    return made


def sparse_recording(clips: Sequence[Clip], path: Path, hours: float) -> Recording:
    """Write speech between pauses twice as long, as 16-bit stereo at 48 kHz; both channels differ in loudness."""
    tile = _sparse_tile(clips)
    left = round(hours * 3600 * SPARSE_RATE)
    with soundfile.SoundFile(path, "w", SPARSE_RATE, 2, "PCM_16") as file:
        while left > 0:
            file.write(tile[:left])
            left -= len(tile[:left])
    return Recording(path, hours * 3600)


def _sparse_tile(clips: Sequence[Clip]) -> NDArray[np.int16]:
    """Some minutes, int16 (n, 2)."""
    mono = FLOOR * np.random.default_rng(0).standard_normal(round(TILE_S * RATE)).astype(np.float32)
    at, speech = 0, _endless(clips)
    while at < len(mono):
        samples = next(speech)[: len(mono) - at]
        mono[at : at + len(samples)] += samples
        at += 3 * len(samples)
    left = (32767 * np.clip(soxr.resample(mono, RATE, SPARSE_RATE), -1.0, 1.0)).astype(np.int16)
    return np.stack([left, left // 2], axis=1)


def _with_pauses(clips: Sequence[Clip]) -> Iterator[Float32Array]:
    """The clips' samples with pauses between them, for ever."""
    pause = FLOOR * np.random.default_rng(0).standard_normal(round(PAUSE_S * RATE)).astype(np.float32)
    for samples in _endless(clips):
        yield samples
        yield pause


def _endless(clips: Sequence[Clip]) -> Iterator[Float32Array]:
    """The clips' samples, from the start again and again; none of them is kept in memory.

    Raises:
        BenchError: no clip has any.
    """
    is_any = True
    while is_any:
        is_any = False
        for _, samples in _readable(clips):
            if len(samples):
                is_any = True
                yield samples
    raise BenchError("the corpus has no recording that can be read")


def _readable(clips: Sequence[Clip], longest_s: float = 60.0) -> Iterator[tuple[Clip, Float32Array]]:
    """The clips that can be read, with the first minute of each."""
    for clip in clips:
        try:
            yield clip, load_samples(clip.path, RATE, round(longest_s * RATE))
        except SusurrusError:
            continue
