"""Recordings to transcribe, what is known of them, and how they reach engines in other interpreters."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from susurrus.models import SusurrusError
from tests.bench.corpus import BenchError, fingerprint, load_samples, read_corpus

Float32Array = NDArray[np.float32]

SAMPLE_RATE = 16000

_LONGEST = 4 * 3600 * SAMPLE_RATE


@dataclass(frozen=True, slots=True)
class Case:
    """One recording to transcribe and what is known of it."""

    name: str
    set: str
    samples: Float32Array
    """Mono at 16 kHz, (n,)."""
    text: str | None
    """What is said; empty: nobody speaks; None: not known."""
    language: str | None
    """What the engines are told; None lets them find out."""
    is_cut: bool = False
    """The recording stops somewhere in `text`: what is missing at its end is not an error."""
    spoken: tuple[tuple[float, float], ...] = ()
    """Where somebody speaks, seconds; empty: not known."""
    expected_language: str | None = None
    """What they should find; None: not known."""

    @property
    def duration(self) -> float:
        """Seconds."""
        return len(self.samples) / SAMPLE_RATE


def corpus_cases(folder: Path, sets: Sequence[str]) -> Iterator[Case]:
    """The recordings of a corpus that this project can read; `sets` empty takes all.

    Raises:
        BenchError: there is no manifest, or no clip in a set.
    """
    wanted: Sequence[str | None] = sets or [None]
    for name in wanted:
        for clip in read_corpus(folder, name):
            try:
                samples = load_samples(clip.path, SAMPLE_RATE, _LONGEST)
            except SusurrusError:
                continue  # what is no audio has no text either
            yield Case(clip.name, clip.set or "all", samples, clip.text, clip.language)


def write_jobs(cases: Iterable[Case], folder: Path) -> Path:
    """Write the samples of all cases and the list that `peers.py` reads; the list's path."""
    jobs = folder / "jobs.jsonl"
    lines = []
    for case in cases:
        samples = folder / "samples" / f"{case.name}.npy"
        samples.parent.mkdir(parents=True, exist_ok=True)
        np.save(samples, case.samples)
        job = {
            "name": case.name,
            "samples": str(samples),
            "language": case.language,
            "fingerprint": fingerprint(case.samples),
        }
        lines.append(json.dumps(job, ensure_ascii=False) + "\n")
    if not lines:
        raise BenchError(f"{folder}: nothing to transcribe")
    jobs.write_text("".join(lines), encoding="utf-8")
    return jobs
