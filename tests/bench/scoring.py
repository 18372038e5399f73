"""What is wrong with one transcript: words, times, text where nobody speaks, words lost where windows meet."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.bench.cases import Case
from tests.bench.corpus import normaliser, optional

WITHOUT_SPACES = frozenset({"ja", "zh", "yue", "ko", "th", "lo", "my", "km"})
"""Languages whose characters are compared, not words: written without spaces, or (Korean) with spaces at will."""
NEAR_WORDS = 3
"""So many words from the border of a window are near it: about a second."""
LONG_GAP_S = 2.0
"""After so much silence a cue has to begin anew."""
OVERHANG_S = 0.5
"""A cue may begin so much before the speech and end so much after it."""
_TOLERANCE_S = 0.011  # half a frame of rounding is no error

Row = dict[str, Any]
"""What `peers.py` writes for one clip."""


@dataclass(slots=True)
class Score:
    """One transcript, or several added up."""

    clips: int = 0
    seconds: float = 0.0
    """Of audio."""
    units: int = 0
    """Words, or characters, in the references."""
    substitutions: int = 0
    deletions: int = 0
    insertions: int = 0
    invented: int = 0
    """Words where nobody speaks."""
    invented_clips: int = 0
    borders: int = 0
    """Where two windows meet."""
    border_deletions: int = 0
    border_insertions: int = 0
    times_wrong: int = 0
    """Segments that end after the recording, do not end after they start, or start before the one before ends."""
    cues_in_silence_s: float = 0.0
    """Seconds of segments that lie where nobody speaks; of the recordings of which that is known."""
    start_errors: list[float] = field(default_factory=list)
    """Seconds from the start of speech after a long silence to the nearest start of a segment."""
    languages_wrong: int = 0
    failed: int = 0
    work_s: float = 0.0
    """Seconds that the engine took."""
    speech_s: float = 0.0
    """As the engine says, where it does."""
    covered_s: float = 0.0

    @property
    def edits(self) -> int:
        """Substitutions, deletions and insertions."""
        return self.substitutions + self.deletions + self.insertions

    @property
    def rate(self) -> float:
        """Error rate; not a number without references."""
        return self.edits / self.units if self.units else float("nan")


def total(scores: Iterable[Score]) -> Score:
    """All of them added up."""
    whole = Score()
    for score in scores:
        for name in Score.__dataclass_fields__:
            setattr(whole, name, getattr(whole, name) + getattr(score, name))
    return whole


def score(case: Case, row: Row) -> Score:
    """Compare one transcript with what is known of its recording."""
    found = Score(clips=1, seconds=case.duration, work_s=row["seconds"], failed=int("error" in row))
    segments = row["segments"]
    found.times_wrong = times_wrong(segments, case.duration)
    if case.spoken:
        found.cues_in_silence_s = seconds_in_silence(segments, case.spoken)
        found.start_errors = start_errors(segments, case.spoken)
    if case.expected_language is not None:
        found.languages_wrong = int(row.get("language") != case.expected_language)
    if "speech_s" in row:
        found.speech_s, found.covered_s = row["speech_s"], row["speech_s"] * row["coverage"]
    if case.text == "":
        found.invented = len(units(row["text"], row.get("language")))
        found.invented_clips = int(found.invented > 0)
    elif case.text is not None:
        _compare(found, case, row)
    return found


def scored_language(case: Case) -> str | None:
    """The language a case's text is in."""
    return case.expected_language or case.language


def units(text: str, language: str | None) -> list[str]:
    """Normalised words; characters in a language without spaces."""
    normalised = normaliser(language)(text)
    if language in {"zh", "yue"}:
        normalised = _simplified().convert(normalised)
    parts = normalised.split()
    return list("".join(parts)) if language in WITHOUT_SPACES else parts


@cache
def _simplified() -> Any:
    """Converts traditional to simplified characters."""
    return optional("opencc", "opencc").OpenCC("t2s")


def prefix_distances(reference: Sequence[str], hypothesis: Sequence[str]) -> NDArray[np.int64]:
    """Edit distances of the hypothesis to the prefixes of the reference, the empty one first: (n_reference + 1,)."""
    steps = np.arange(len(reference) + 1)
    distances = steps
    for row, unit in enumerate(hypothesis, start=1):
        differs = np.array([other != unit for other in reference], np.int64)
        best = np.empty_like(distances)
        best[0] = row
        best[1:] = np.minimum(distances[:-1] + differs, distances[1:] + 1)
        distances = np.minimum.accumulate(best - steps) + steps  # a deletion is a step to the right
    return distances


def heard_part(reference: Sequence[str], hypothesis: Sequence[str]) -> int:
    """How much of the start of a text a recording that stops within it was heard to hold.

    The prefix with the least edits to the hypothesis; of several the one nearest to it in length.
    """
    distances = prefix_distances(reference, hypothesis)
    nearest = np.abs(np.arange(len(distances)) - len(hypothesis))
    return int(np.lexsort((nearest, distances))[0])


def edits(reference: Sequence[str], hypothesis: Sequence[str]) -> list[Any]:
    """Alignment of two lists of words by jiwer: chunks with `type` and both sides' start and end index."""
    if not reference:
        raise ValueError("jiwer aligns with a reference only")
    found = optional("jiwer", "jiwer").process_words(" ".join(reference), " ".join(hypothesis))
    return list(found.alignments[0])


def _compare(found: Score, case: Case, row: Row) -> None:
    """Count edits, and those near the borders of windows."""
    language = scored_language(case)
    reference, hypothesis = units(case.text or "", language), units(row["text"], language)
    windows = window_units(row["segments"], language)
    if case.is_cut:
        reference = reference[: max(1, heard_part(reference, hypothesis))]
    found.units = len(reference)
    for chunk in edits(reference, hypothesis):
        found.substitutions += _length(chunk) if chunk.type == "substitute" else 0
        found.deletions += _length(chunk) if chunk.type == "delete" else 0
        found.insertions += _length(chunk) if chunk.type == "insert" else 0
    ends = np.cumsum([len(window) for window in windows])[:-1]
    found.borders = len(ends)
    for chunk in edits(reference, [unit for window in windows for unit in window]) if len(ends) else []:
        first, last = chunk.hyp_start_idx - NEAR_WORDS, chunk.hyp_end_idx + NEAR_WORDS
        if any(first <= end <= last for end in ends):
            found.border_deletions += _length(chunk) if chunk.type == "delete" else 0
            found.border_insertions += _length(chunk) if chunk.type == "insert" else 0


def _length(chunk: Any) -> int:
    return int(max(chunk.ref_end_idx - chunk.ref_start_idx, chunk.hyp_end_idx - chunk.hyp_start_idx))


def window_units(segments: Sequence[Row], language: str | None) -> list[list[str]]:
    """Units of the text of every window with text."""
    texts: dict[int, str] = {}
    for segment in segments:
        texts[segment["window"]] = texts.get(segment["window"], "") + segment["text"]
    return [found for text in texts.values() if (found := units(text, language))]


def times_wrong(segments: Sequence[Row], duration: float) -> int:
    """Segments that end after the recording, do not end after they start, or start before the one before ends."""
    wrong, before = 0, 0.0
    for segment in segments:
        start, end = segment["start"], segment["end"]
        wrong += end > duration + _TOLERANCE_S or start >= end or start < before - _TOLERANCE_S
        before = end
    return wrong


def seconds_in_silence(segments: Sequence[Row], spoken: Sequence[tuple[float, float]]) -> float:
    """Seconds of segments that are further than `OVERHANG_S` from any speech."""
    outside = 0.0
    for segment in segments:
        quiet, at = 0.0, segment["start"]
        for first, last in spoken:
            quiet += max(0.0, min(segment["end"], first - OVERHANG_S) - at)
            at = max(at, last + OVERHANG_S)
        outside += quiet + max(0.0, segment["end"] - at)
    return outside


def start_errors(segments: Sequence[Row], spoken: Sequence[tuple[float, float]]) -> list[float]:
    """For every speech after a long silence: seconds to the nearest start of a segment."""
    before = [0.0, *(last for _, last in spoken)]
    starts = [first for (first, _), last in zip(spoken, before, strict=False) if first - last >= LONG_GAP_S]
    found = [segment["start"] for segment in segments]
    return [min((abs(start - other) for other in found), default=float("inf")) for start in starts]


def lost_in_longer(cases: Sequence[Case], rows: Sequence[Row]) -> dict[str, int]:
    """Of cuts of one reading: words that a shorter cut has and a longer one lacks, by name of the longer.

    The last two words of a cut are left out: it may stop within them.
    """
    lost, known = {}, set[int]()
    for case, row in sorted(zip(cases, rows, strict=True), key=lambda pair: pair[0].duration):
        reference, hypothesis = units(case.text or "", case.language), units(row["text"], case.language)
        heard = heard_part(reference, hypothesis)
        chunks = edits(reference[:heard], hypothesis) if heard else []
        present = {
            index
            for chunk in chunks
            if chunk.type in {"equal", "substitute"}
            for index in range(chunk.ref_start_idx, chunk.ref_end_idx)
        }
        lost[case.name] = len(known - present)
        known |= {index for index in present if index < heard - 2}
    return lost
