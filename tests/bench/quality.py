"""How good the text is: error rates, text where nobody speaks, lost words and wrong times, of us and of our peers.

    python -m tests.bench.quality CORPUS --cache FOLDER --engine ours faster-whisper-1 openai-whisper
        --python-of faster-whisper=/path/to/python --model faster-whisper=FOLDER --model openai-whisper=base.pt

Every engine hears the same samples. Its transcripts are kept in the cache folder, so that a run that was stopped goes
on where it was and scores can be counted anew; `--again` forgets those of an engine.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from susurrus.models import SusurrusError
from tests.bench.cases import Case, corpus_cases, write_jobs
from tests.bench.corpus import BenchError, fingerprint
from tests.bench.engines import KINDS, Engine, pairs, read_rows, run
from tests.bench.recipes import made_cases
from tests.bench.scoring import Row, lost_in_longer, score
from tests.bench.tables import SETS_MADE, Scores, as_json, error_tables, trouble_table


def gather(corpus: Path | None, sets: Sequence[str]) -> list[Case]:
    """The recordings of the sets asked for, made ones first; no sets: all.

    Raises:
        BenchError: there is no such set.
    """
    made = [case for case in made_cases() if not sets or case.set in sets]
    found = [name for name in sets if name not in SETS_MADE]
    if corpus is None:
        if found:
            raise BenchError(f"--set {found[0]}: name the folder that has it")
        return made
    return [*made, *(corpus_cases(corpus, found) if found or not sets else ())]


def rows_of(engine: Engine, cases: Sequence[Case], cache: Path) -> list[Row]:
    """One row for every case.

    Raises:
        BenchError: a transcript is missing.
    """
    rows = read_rows(engine, cache)
    found = [rows.get((case.name, fingerprint(case.samples))) for case in cases]
    missing = [case.name for case, row in zip(cases, found, strict=True) if row is None]
    if missing:
        raise BenchError(f"{engine.label}: {len(missing)} transcripts are missing, the first is {missing[0]}")
    return [row for row in found if row is not None]


def worst(cases: Sequence[Case], scores: Scores, rows: Mapping[str, list[Row]], n: int) -> str:
    """The recordings in which the first engine has most errors more than another, with the texts."""
    first, *others = scores
    lines = []
    for other in others:
        more = {case.name: scores[first][case.name].edits - scores[other][case.name].edits for case in cases}
        lines.append(f"\n## {first} worse than {other}: {sum(more.values()):+d} edits in all\n")
        for case in sorted(cases, key=lambda case: -more[case.name])[:n]:
            if more[case.name] <= 0:
                break
            place = cases.index(case)
            lines.append(f"- {case.name} ({more[case.name]:+d})\n  - reference: {case.text}")
            lines += [f"  - {label}: {rows[label][place]['text'].strip()}" for label in (first, other)]
    return "\n".join(lines)


def report(cases: Sequence[Case], engines: Sequence[Engine], cache: Path, n_worst: int) -> tuple[str, str]:
    """Markdown and JSON of all engines."""
    rows = {engine.label: rows_of(engine, cases, cache) for engine in engines}
    scores = {
        label: {case.name: score(case, row) for case, row in zip(cases, found, strict=True)}
        for label, found in rows.items()
    }
    places = [place for place, case in enumerate(cases) if case.is_cut]
    cuts = [cases[place] for place in places]
    lost = {
        label: sum(lost_in_longer(cuts, [found[place] for place in places]).values()) for label, found in rows.items()
    }
    tables = [error_tables(cases, scores), trouble_table(cases, scores, lost)]
    if n_worst:
        tables.append(worst(cases, scores, rows, n_worst))
    return "\n\n".join(tables), json.dumps(as_json(cases, scores, lost), ensure_ascii=False, indent=1)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.quality", description=__doc__)
    add = parser.add_argument
    add("corpus", type=Path, nargs="?", help="folder with a manifest.jsonl; without, only the recordings that are made")
    add("--set", nargs="+", default=[], help=f"sets of the manifest, {' and '.join(SETS_MADE)} (default: all)")
    add("--cache", type=Path, required=True, help="folder for samples and transcripts")
    add("--engine", nargs="+", default=["ours"], help=f"NAME[:option=value...] with NAME of {', '.join(KINDS)}")
    add("--model", action="append", default=[], metavar="ENGINE=MODEL", help="weights of an engine (default: base)")
    add("--python-of", action="append", default=[], metavar="ENGINE=PYTHON", help="interpreter that has the engine")
    add("--threads", type=int, default=2)
    add("--again", nargs="+", default=[], metavar="ENGINE", help="forget this engine's transcripts first")
    add("--score-only", action="store_true", help="transcribe nothing")
    add("--worst", type=int, default=0, metavar="N", help="show where the first engine is worse than the others")
    add("--output", type=Path, help="write NAME.json and NAME.md")
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Transcribe, score, print."""
    options = _parser().parse_args(arguments)
    try:
        cases = gather(options.corpus, options.set)
        engines = [Engine.parse(label) for label in options.engine]
        models, pythons = pairs(options.model, "--model"), pairs(options.python_of, "--python-of")
        for label in options.again:
            Engine.parse(label).output(options.cache).unlink(missing_ok=True)
        if not options.score_only:
            jobs = write_jobs(cases, options.cache)
            for engine in engines:
                run(
                    engine,
                    jobs,
                    engine.output(options.cache),
                    models=models,
                    pythons=pythons,
                    threads=options.threads,
                )
        table, details = report(cases, engines, options.cache, options.worst)
    except (BenchError, SusurrusError) as error:
        sys.exit(f"error: {error}")
    print(table)
    if options.output is not None:
        options.output.with_suffix(".md").write_text(table + "\n", encoding="utf-8")
        options.output.with_suffix(".json").write_text(details + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
