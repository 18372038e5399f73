"""How far apart the times of the same words are, in this project and in others.

    python -m tests.bench.words CORPUS --cache FOLDER --clips 30 --engine ours faster-whisper-1 openai-whisper
        --python-of faster-whisper=/path/to/python --model faster-whisper=FOLDER --model openai-whisper=base.pt

Every engine hears the first 30 s of the same clips and writes its own text; words that both texts have in the same
place are compared, for the first engine with each other one. Transcripts are kept in the cache folder.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from pathlib import Path

import numpy as np

from susurrus.models import SusurrusError
from tests.bench.cases import SAMPLE_RATE, Case, corpus_cases, write_jobs
from tests.bench.corpus import BenchError, fingerprint
from tests.bench.engines import KINDS, Engine, pairs, read_rows, run

SECONDS = 30
FAR = 0.1
"""Seconds beyond which two times are counted as different."""

Word = tuple[str, float, float, float]
"""Text, start and end in seconds, probability."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """How far apart one engine's words are from another's."""

    starts: tuple[float, ...]
    """Of words that both have: seconds, the first engine's less the other's."""
    ends: tuple[float, ...]
    words: int
    """All of the first engine's."""

    def __str__(self) -> str:
        if not self.starts:
            return f"0 of {self.words}" + " | " * 6
        columns = []
        for differences in (self.starts, self.ends):
            apart = np.abs(differences)
            far = 100 * float((apart > FAR + 1e-6).mean())  # times are multiples of 0.02 s, rounded
            columns += [f"{np.median(apart):.3f}", f"{np.quantile(apart, 0.9):.3f}", f"{far:.1f} %"]
        return f"{len(self.starts)} of {self.words} | {' | '.join(columns)}"


def same_words(ours: Sequence[Word], theirs: Sequence[Word]) -> Iterator[tuple[Word, Word]]:
    """Words that two transcripts have in the same place, case and punctuation overlooked."""
    spelled = [[re.sub(r"\W", "", word[0]).lower() for word in words] for words in (ours, theirs)]
    for block in SequenceMatcher(None, spelled[0], spelled[1], autojunk=False).get_matching_blocks():
        yield from zip(ours[block.a :][: block.size], theirs[block.b :][: block.size], strict=True)


def agreement(ours: Sequence[Sequence[Word]], theirs: Sequence[Sequence[Word]]) -> Agreement:
    """Of the words of several clips."""
    both = [pair for one, other in zip(ours, theirs, strict=True) for pair in same_words(one, other)]
    return Agreement(
        tuple(one[1] - other[1] for one, other in both),
        tuple(one[2] - other[2] for one, other in both),
        sum(map(len, ours)),
    )


def chosen(cases: Sequence[Case], count: int) -> list[Case]:
    """So many of each set, spread over it, cut to the first seconds."""
    by_set: dict[str, list[Case]] = {}
    for case in cases:
        by_set.setdefault(case.set, []).append(case)
    taken = []
    for found in by_set.values():
        n = min(count, len(found))
        taken += [found[len(found) * place // n] for place in range(n)]
    return [replace(case, samples=case.samples[: SECONDS * SAMPLE_RATE]) for case in taken]


def words_of(engine: Engine, cases: Sequence[Case], cache: Path) -> list[list[Word]]:
    """Words of each case.

    Raises:
        BenchError: a transcript is missing, or has no words.
    """
    rows = read_rows(engine, cache)
    found = [rows.get((case.name, fingerprint(case.samples)), {}) for case in cases]
    missing = [case.name for case, row in zip(cases, found, strict=True) if "words" not in row]
    if missing:
        raise BenchError(f"{engine.label}: {len(missing)} clips have no words, the first is {missing[0]}")
    return [row["words"] for row in found]


def table(cases: Sequence[Case], words: Mapping[str, list[list[Word]]]) -> str:
    """Markdown: the first engine against each other one, English and other languages."""
    first, *others = words
    times = [f"{edge}: {column}" for edge in ("start", "end") for column in ("median s", "p90", f"> {FAR} s")]
    rows = [
        f"| {first} against | clips | same words | {' | '.join(times)} |",
        "| --- |" + " ---: |" * 8,
    ]
    groups = {
        "all": range(len(cases)),
        "English": [i for i, case in enumerate(cases) if case.language == "en"],
        "other languages": [i for i, case in enumerate(cases) if case.language != "en"],
    }
    for other in others:
        for group, places in groups.items():
            if not places:
                continue
            found = agreement([words[first][i] for i in places], [words[other][i] for i in places])
            rows.append(f"| {other}, {group} | {len(places)} | {found} |")
    return "\n".join(rows)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.words", description=__doc__)
    add = parser.add_argument
    add("corpus", type=Path, help="folder with a manifest.jsonl")
    add("--set", nargs="+", default=[], help="sets of the manifest (default: all)")
    add("--clips", type=int, default=30, help="how many of each set, spread over it (default: 30)")
    add("--cache", type=Path, required=True, help="folder for samples and transcripts")
    engines = ["ours", "faster-whisper-1", "openai-whisper"]
    add("--engine", nargs="+", default=engines, help=f"NAME[:option=value...] with NAME of {', '.join(KINDS)}")
    add("--model", action="append", default=[], metavar="ENGINE=MODEL", help="weights of an engine (default: base)")
    add("--python-of", action="append", default=[], metavar="ENGINE=PYTHON", help="interpreter that has the engine")
    add("--threads", type=int, default=2)
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Transcribe and print."""
    options = _parser().parse_args(arguments)
    try:
        cases = chosen(list(corpus_cases(options.corpus, options.set)), options.clips)
        models, pythons = pairs(options.model, "--model"), pairs(options.python_of, "--python-of")
        options.cache.mkdir(parents=True, exist_ok=True)
        jobs = write_jobs(cases, options.cache)
        words = {}
        for label in options.engine:
            named = f"{label}:word_timestamps=True"
            if label.startswith("openai-whisper"):
                named += ":alignment_heads=base"
            engine = Engine.parse(named)
            output = engine.output(options.cache)
            run(engine, jobs, output, models=models, pythons=pythons, threads=options.threads)
            words[label] = words_of(engine, cases, options.cache)
    except (BenchError, SusurrusError) as error:
        sys.exit(f"error: {error}")
    print(table(cases, words))
    return 0


if __name__ == "__main__":
    sys.exit(main())
