"""A folder of recordings with reference texts, and how texts are compared.

`manifest.jsonl` has one object a line: `path` (relative to the folder), `text` (null: no reference), `language`,
optionally `set` and `duration_s`. The comparing needs `openai-whisper` for its text normalisers and `jiwer`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from susurrus.models import AudioReader

Float32Array = NDArray[np.float32]
Normaliser = Callable[[str], str]


class BenchError(Exception):
    """What the person who runs a benchmark can put right."""


@dataclass(frozen=True, slots=True)
class Clip:
    """One recording of a corpus."""

    name: str
    """Path relative to the corpus; the key by which references are found."""
    path: Path
    text: str | None
    """What is said; None where nobody wrote it down."""
    language: str | None
    """Code, or None when the manifest does not tell."""
    set: str | None = None


def read_corpus(folder: Path, set_name: str | None = None) -> list[Clip]:
    """Clips of a corpus in the manifest's order.

    Args:
        folder: holds `manifest.jsonl`.
        set_name: only clips whose `set` is this one; None takes all.

    Raises:
        BenchError: there is no manifest, or no clip in the set.
    """
    manifest = folder / "manifest.jsonl"
    if not manifest.is_file():
        raise BenchError(f"{manifest} does not exist: name a folder with a manifest.jsonl")
    rows = [json.loads(line) for line in manifest.read_text(encoding="utf-8").splitlines() if line]
    clips = [
        Clip(row["path"], folder / row["path"], row["text"], row.get("language"), row.get("set"))
        for row in rows
        if set_name is None or row.get("set") == set_name
    ]
    if not clips:
        raise BenchError(f"{manifest} has no clip of the set {set_name!r}")
    return clips


def load_samples(path: Path, sample_rate: int, limit: int) -> Float32Array:
    """The first `limit` samples of a recording, float32 mono (n,) at `sample_rate` hertz."""
    blocks: list[Float32Array] = []
    with AudioReader(path, sample_rate) as reader:
        for block in reader:
            blocks.append(block.copy())
            if sum(map(len, blocks)) >= limit:
                break
    return np.concatenate(blocks)[:limit] if blocks else np.zeros(0, np.float32)


def fingerprint(samples: Float32Array) -> str:
    """SHA-256 of the samples as 16-bit integers: equal audio, whatever the last bits of the resampling."""
    return hashlib.sha256(np.rint(samples * 32767.0).astype("<i2").tobytes()).hexdigest()


def optional(module: str, package: str) -> Any:
    """Import a module that only the benchmarks need.

    Raises:
        BenchError: it is not installed.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise BenchError(f"{package} is needed here: python -m pip install -e '.[bench]'") from error


@cache
def normaliser(language: str | None) -> Normaliser:
    """Text normaliser of openai-whisper for the language; outside English it drops case and punctuation only."""
    normalizers = optional("whisper.normalizers", "openai-whisper")
    made: Normaliser = normalizers.EnglishTextNormalizer() if language == "en" else normalizers.BasicTextNormalizer()
    return made


def same_words(first: str, second: str, language: str | None) -> bool:
    """Whether two texts are equal to a reader that overlooks case, punctuation and spelling."""
    normalise = normaliser(language)
    return normalise(first) == normalise(second)


@dataclass(frozen=True, slots=True)
class ErrorRate:
    """Word or character error rate of a set: edits over the length of all references together."""

    metric: str
    """`WER` for English sets, `CER` for all others."""
    edits: int
    length: int
    """Words or characters in the references."""
    clips: int
    """Clips that have a reference."""

    def __str__(self) -> str:
        rate = 100.0 * self.edits / max(1, self.length)
        return f"{self.metric} {rate:.2f} % ({self.edits} edits, {self.length} in {self.clips} references)"


def error_rate(clips: Sequence[Clip], texts: Iterable[str]) -> ErrorRate:
    """Error rate of `texts` against the clips' references, both normalised; clips without reference are left out."""
    jiwer = optional("jiwer", "jiwer")
    english = all(clip.language == "en" for clip in clips)
    edits = length = counted = 0
    for clip, text in zip(clips, texts, strict=True):
        if clip.text is None:
            continue
        reference, hypothesis = (_units(side, clip.language, words=english) for side in (clip.text, text))
        counted += 1
        length += len(reference)
        edits += _edits(jiwer, reference, hypothesis)
    return ErrorRate("WER" if english else "CER", edits, length, counted)


def _units(text: str, language: str | None, *, words: bool) -> list[str]:
    """Words, or characters without the spaces, which Japanese and Chinese do not write."""
    parts = normaliser(language)(text).split()
    return parts if words else list("".join(parts))


def _edits(jiwer: Any, reference: list[str], hypothesis: list[str]) -> int:
    """Substitutions, deletions and insertions; jiwer takes no empty reference."""
    if not reference:
        return len(hypothesis)
    found = jiwer.process_words(" ".join(reference), " ".join(hypothesis))
    return int(found.substitutions + found.deletions + found.insertions)
