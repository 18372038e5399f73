"""Transcribe clips with one engine: run by `quality.py` in the interpreter that has the engine.

    /path/to/python -m tests.bench.peers ENGINE MODEL JOBS.jsonl OUTPUT.jsonl --threads 2 --options '{"beam_size": 1}'

A job is one line: `name`, `samples` (a .npy file: float32 mono at 16 kHz, so that all engines hear the same),
`language` (null: the engine finds it), `fingerprint`. To each the output gains a line: `name`, `fingerprint`, `text`,
`language`, `segments` (`start`, `end`, `text`, `window`: index of the stretch of audio that was decoded at once),
`words` (text, start, end, probability; with the option `word_timestamps`), `seconds` taken, for an exception `error`.
What the output holds already is not computed again.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from tests.bench.adapters import ENGINES
from tests.bench.hearing import SAMPLE_RATE, Result


def transcribed(output: Path) -> set[tuple[str, str]]:
    """Name and fingerprint of every clip that an output file holds."""
    if not output.exists():
        return set()
    rows = (json.loads(line) for line in output.read_text(encoding="utf-8").splitlines())
    return {(row["name"], row["fingerprint"]) for row in rows}


def main() -> int:
    """Add to the output a line for every job that is not in it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("engine", choices=sorted(ENGINES))
    parser.add_argument("model")
    parser.add_argument("jobs", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--options", type=json.loads, default={})
    arguments = parser.parse_args()
    jobs = [json.loads(line) for line in arguments.jobs.read_text(encoding="utf-8").splitlines()]
    done = transcribed(arguments.output)
    jobs = [job for job in jobs if (job["name"], job["fingerprint"]) not in done]
    if not jobs:
        return 0
    options = arguments.options
    engine = ENGINES[arguments.engine](arguments.model, arguments.threads, options)  # takes those of loading out

    def transcribe(samples: Any, language: str | None) -> Result:
        return engine.hear(samples, language, dict(options), lambda: None)

    transcribe(np.zeros(SAMPLE_RATE, np.float32), "en")  # the first call of a process is slower than any other
    with arguments.output.open("a", encoding="utf-8") as out:
        for job in jobs:
            started = time.perf_counter()
            try:
                result = transcribe(np.load(job["samples"]), job["language"])
            except Exception as error:  # noqa: BLE001 - an engine that fails on a clip is a finding
                result = {"text": "", "segments": [], "error": f"{type(error).__name__}: {error}"}
            seconds = round(time.perf_counter() - started, 3)
            row = {"name": job["name"], "fingerprint": job["fingerprint"], "seconds": seconds, **result}
            print(json.dumps(row, ensure_ascii=False), file=out, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
