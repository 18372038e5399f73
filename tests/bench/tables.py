"""Scores of several engines as Markdown tables and as JSON."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from tests.bench.cases import Case
from tests.bench.recipes import SILENCE_SET, SPEECH_SET
from tests.bench.scoring import WITHOUT_SPACES, Score, scored_language, total

Scores = Mapping[str, Mapping[str, Score]]
"""By engine, then by name of the recording."""


def metric(case: Case) -> str:
    """What is counted in a case's language: `CER` or `WER`."""
    return "CER" if scored_language(case) in WITHOUT_SPACES else "WER"


def error_tables(cases: Sequence[Case], scores: Scores) -> str:
    """Error rates by set and by language."""
    with_text = [case for case in cases if case.text]
    by_set = _columns(with_text, scores, lambda case: f"{case.set} {metric(case)}")
    elsewhere = [case for case in with_text if scored_language(case) != "en"]
    by_language = _columns(elsewhere, scores, lambda case: f"{scored_language(case)} {metric(case)}")
    return "\n\n".join(table for table in (by_set, by_language) if table)


def trouble_table(cases: Sequence[Case], scores: Scores, lost: Mapping[str, int]) -> str:
    """Text where nobody speaks, what is lost where windows meet, and times that cannot be.

    Args:
        cases: the recordings.
        scores: of every engine.
        lost: words that longer cuts lack, by engine.
    """
    found = {label: [of[case.name] for case in cases] for label, of in scores.items()}
    silent = [case.name for case in cases if case.text == ""]
    made = [case.name for case in cases if case.set == SILENCE_SET]
    columns: dict[str, Callable[[str], str]] = {
        "invented words/min": lambda label: _per_minute(total(scores[label][name] for name in silent)),
        "silent clips with words": lambda label: _of(scores[label], silent),
        "of them made": lambda label: _of(scores[label], made),
        "words lost by longer cuts": lambda label: str(lost[label]),
        "deleted / inserted near borders": lambda label: _borders(total(found[label])),
        "speech covered": lambda label: _coverage(total(found[label])),
        "times wrong": lambda label: str(total(found[label]).times_wrong),
        "s of cues in silence": lambda label: f"{total(found[label]).cues_in_silence_s:.1f}",
        "start error, median / most": lambda label: _starts(total(found[label]).start_errors),
        "languages wrong": lambda label: str(total(found[label]).languages_wrong),
        "failed": lambda label: str(total(found[label]).failed),
    }
    return markdown(["engine", *columns], [[label, *(say(label) for say in columns.values())] for label in scores])


def markdown(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [heading, ["---"] * len(heading), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def as_json(cases: Sequence[Case], scores: Scores, lost: Mapping[str, int]) -> dict[str, Any]:
    """Everything by engine: per set and language, in all, and per recording."""
    groups: dict[str, list[str]] = {}
    for case in cases:
        groups.setdefault(f"{case.set}/{scored_language(case) or 'unknown'}", []).append(case.name)
    return {
        label: {
            "groups": {group: _fields(total(of[name] for name in names)) for group, names in groups.items()},
            "lost_in_longer_cuts": lost[label],
            "recordings": {name: _fields(score) for name, score in of.items()},
        }
        for label, of in scores.items()
    }


def _fields(score: Score) -> dict[str, Any]:
    rate = None if math.isnan(score.rate) else round(score.rate, 5)
    return {name: value for name, value in asdict(score).items() if value} | {"rate": rate}


def _columns(cases: Sequence[Case], scores: Scores, group_of: Callable[[Case], str]) -> str:
    """A table of error rates with a column for each group of cases."""
    groups: dict[str, list[Case]] = {}
    for case in cases:
        groups.setdefault(group_of(case), []).append(case)
    if not groups:
        return ""
    rows = [
        [label, *(f"{100 * total(of[case.name] for case in group).rate:.2f}" for group in groups.values())]
        for label, of in scores.items()
    ]
    units = [str(total(next(iter(scores.values()))[case.name] for case in group).units) for group in groups.values()]
    heading = ["% of words (WER) or characters (CER)", *groups]
    return markdown(heading, [*rows, ["references: words or characters", *units]])


def _per_minute(score: Score) -> str:
    return f"{60 * score.invented / score.seconds:.2f}" if score.seconds else "-"


def _of(of: Mapping[str, Score], names: Sequence[str]) -> str:
    return f"{total(of[name] for name in names).invented_clips} of {len(names)}"


def _borders(score: Score) -> str:
    return f"{score.border_deletions} / {score.border_insertions} at {score.borders}"


def _coverage(score: Score) -> str:
    return f"{100 * score.covered_s / score.speech_s:.1f} %" if score.speech_s else "-"


def _starts(errors: Sequence[float]) -> str:
    return f"{statistics.median(errors):.2f} / {max(errors):.2f}" if errors else "-"


SETS_MADE = (SILENCE_SET, SPEECH_SET)
