"""This project beside its peers: times, memory, processor time, word error rates, in one interleaved run.

    python -m tests.bench CORPUS --peers peers.toml --output results
    python -m tests.bench CORPUS --peers peers.toml --output results --only growth

Every engine lives in a process of its own; one works, the others sleep. What is in the output's `results.json` already
is kept, so a run that was stopped goes on, and tables and plots are of all that is there. README.md says the rest.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from susurrus.models import SusurrusError, ensure_model
from susurrus.models.cpu import processor
from tests.bench.corpus import BenchError
from tests.bench.figures import draw
from tests.bench.fleet import Fleet
from tests.bench.footprint import size_mb
from tests.bench.page import fill, page
from tests.bench.roster import OURS, Entry, missing, read_roster
from tests.bench.tasks import TASKS, Setting

BUSY = 0.5  # load average above which times mean little
NOT_BY_DEFAULT = {"growth"}

Results = dict[str, Any]


def run(setting: Setting, results: Results, todo: Sequence[str], path: Path) -> None:
    """Do the tasks and keep each as soon as it is done; one that cannot be done is told of."""
    began = time.monotonic()
    for name in todo:
        started = time.monotonic()
        setting.fleet.say(f"{name} ...")
        when = {"time": datetime.now(UTC).isoformat(timespec="minutes"), "command": command()}
        when["load_before"] = f"{os.getloadavg()[0]:.2f}"
        try:
            part = TASKS[name](setting)
        except (BenchError, SusurrusError) as error:
            setting.fleet.say(f"{name} is passed over: {error}")
            continue
        results["tasks"][name] = part | when | {"took_s": round(time.monotonic() - started)}
        results["load_s"] |= {key: round(value, 3) for key, value in setting.fleet.load_s.items()}
        much = 0.01 * (time.monotonic() - began)
        results["restless"] = {key: round(used, 2) for key, used in setting.fleet.restless.items() if used > much}
        path.write_text(json.dumps(results, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
        setting.fleet.say(f"{name}: {results['tasks'][name]['took_s']} s")


def who(options: argparse.Namespace) -> tuple[list[Entry], dict[str, str]]:
    """Engines that take part, and a line for each that cannot, by name.

    Raises:
        BenchError: the file of peers is wrong, or names none of those asked for.
    """
    entries = read_roster(options.peers, options.model)
    names = [entry.name for entry in entries]
    if wrong := [name for name in options.engine if name not in names]:
        raise BenchError(f"--engine {wrong[0]}: there are {', '.join(names)}")
    wanted = [entry for entry in entries if entry.name == OURS or not options.engine or entry.name in options.engine]
    reasons = {entry.name: line for entry in wanted if (line := missing(entry))}
    return [entry for entry in wanted if entry.name not in reasons], reasons


def disk(entries: Sequence[Entry]) -> dict[str, float]:
    """Model files of every engine, MB: of ours the default arithmetic's."""
    sizes = {entry.name: size_mb(Path(entry.model)) for entry in entries if entry.name != OURS}
    folder = ensure_model(entries[0].model)
    return {OURS: round(size_mb(folder) - size_mb(folder / "float32"), 1)} | {k: round(v, 1) for k, v in sizes.items()}


def about(options: argparse.Namespace) -> Results:
    """Of the machine and what is installed."""
    found = processor()
    return {
        "processor": f"{found.name}, {found.simd}",
        "processors": len(os.sched_getaffinity(0)),
        "threads": options.threads,
        "python": platform.python_version(),
        "onnxruntime": version("onnxruntime"),
    }


def command() -> str:
    """What was asked for, without folders."""
    return " ".join(["python -m tests.bench", *(Path(word).name for word in sys.argv[1:])])


def tasks_to_do(options: argparse.Namespace, done: Sequence[str]) -> list[str]:
    """Names of tasks, in order.

    Raises:
        BenchError: there is no such task.
    """
    for name in (*options.only, *options.again):
        if name not in TASKS:
            raise BenchError(f"{name}: no such task; there are {', '.join(TASKS)}")
    wanted = options.only or [name for name in TASKS if name not in NOT_BY_DEFAULT]
    return [name for name in TASKS if name in {*wanted, *options.again} and (name not in done or name in options.again)]


def _words(text: str) -> list[str]:
    return [word for word in text.split(",") if word]


def _numbers(text: str) -> list[float]:
    return [float(word) for word in _words(text)]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    add = parser.add_argument
    add("corpus", type=Path, help="folder with a manifest.jsonl")
    add("--peers", type=Path, metavar="FILE.toml", help="who else takes part (tests.bench.weights writes it)")
    add("--output", type=Path, required=True, help="folder for results.json, results.md, plots and logs")
    add("--only", type=_words, default=[], metavar="TASK,...", help=f"of {', '.join(TASKS)} (default: all but growth)")
    add("--again", type=_words, default=[], metavar="TASK,...", help="do these although they are in the output")
    add("--engine", type=_words, default=[], metavar="NAME,...", help="only these peers")
    add("--rounds", type=int, default=5, help="turns of every engine (default: 5; of the long recording half as many)")
    add("--clips", type=int, default=24, help="short recordings (default: 24)")
    add("--set", default="english", help="set of the manifest that they are of (default: english)")
    add("--long", default="long/mixed_readers.opus", help="the long recording, as the manifest names it")
    add("--minutes", type=_numbers, default=[1, 5, 30, 180], metavar="N,...", help="of growth (default: 1,5,30,180)")
    add("--quick", action="store_true", help="one turn, four clips: to see whether everything works")
    add("--limit", type=float, default=100.0, help="seconds of one engine in one task; slow ones do fewer turns")
    add("--timeout", type=float, default=300.0, help="seconds after which an engine that does not answer is ended")
    add("--threads", type=int, default=2, help="of every engine (default: 2)")
    add("--model", default="base", help="model name or directory of this project (default: base)")
    add("--document", type=Path, metavar="FILE.md", help="fill the tables in here, and put the plots beside it")
    add("--busy", action="store_true", help="measure although the machine is busy")
    return parser


def measure(options: argparse.Namespace) -> None:
    """Do what the command line asks for.

    Raises:
        BenchError: it makes no sense, or the machine is busy.
    """
    path = options.output / "results.json"
    results: Results = {"about": about(options), "skipped": [], "load_s": {}, "restless": {}, "tasks": {}}
    if path.exists():
        results |= json.loads(path.read_text(encoding="utf-8"))
    todo = tasks_to_do(options, list(results["tasks"]))
    if todo and os.getloadavg()[0] > BUSY and not options.busy:
        raise BenchError(f"the load average is {os.getloadavg()[0]:.2f}: wait until it is below {BUSY}, or use --busy")
    entries, reasons = who(options)
    for line in reasons.values():
        say(line)
    results["skipped"] = list(reasons)
    options.output.mkdir(parents=True, exist_ok=True)
    results["disk"] = disk(entries)
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as folder,
        Fleet(options.threads, options.timeout, options.output, say) as fleet,
    ):
        setting = Setting(
            fleet=fleet,
            entries=entries,
            corpus=options.corpus,
            folder=Path(folder),
            threads=options.threads,
            rounds=1 if options.quick else options.rounds,
            limit_s=options.limit,
            n_clips=4 if options.quick else options.clips,
            clips_set=options.set,
            long=options.long,
            minutes=options.minutes,
        )
        run(setting, results, todo, path)
    (options.output / "results.md").write_text(page(results), encoding="utf-8")
    draw(results["tasks"], options.output)
    if options.document is not None:
        place = options.document
        plots = draw(results["tasks"], place.parent, f"{place.stem}-")
        filled = fill(place.read_text(encoding="utf-8"), results, {name: path.name for name, path in plots.items()})
        place.write_text(filled, encoding="utf-8")


def say(line: str) -> None:
    """For who waits."""
    print(line, file=sys.stderr, flush=True)


def main(arguments: list[str] | None = None) -> int:
    """Measure, write, print the table."""
    options = _parser().parse_args(arguments)
    try:
        measure(options)
    except (BenchError, SusurrusError) as error:
        sys.exit(f"error: {error}")
    print((options.output / "results.md").read_text(encoding="utf-8"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
