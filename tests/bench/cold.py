"""Cold start against faster-whisper on the same weights: seconds from process start to first text and to exit.

    python -m tests.bench.cold --peer-model FOLDER --peer-python /path/to/python

The two take turns (A B A B ...), so that a change in the machine's mood meets both. faster-whisper decodes as this
project does: int8, one beam, temperature 0, no timestamps, the language given, as many threads. It has no partial text:
its first segment stands for it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 300

PEER = """
import sys
from faster_whisper import WhisperModel
folder, audio, language, threads = sys.argv[1:]
model = WhisperModel(folder, device="cpu", compute_type="int8", cpu_threads=int(threads))
segments, _ = model.transcribe(audio, language=language, beam_size=1, temperature=0.0, without_timestamps=True)
for segment in segments:
    print(segment.text, flush=True)
"""


@dataclass(frozen=True, slots=True)
class Run:
    """One process from start to exit."""

    first_s: float
    """Seconds until the first text."""
    exit_s: float
    """Seconds until the process was gone."""


class RunError(Exception):
    """A measured command failed."""


def measure(command: list[str], is_text: Callable[[str], bool]) -> Run:
    """Run a command, noting when the first line of text comes and when the process is gone.

    Raises:
        RunError: it failed, showed no text, or took longer than the time limit.
    """
    first = None
    started = time.perf_counter()
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, encoding="utf-8") as process:
        guard = threading.Timer(TIMEOUT_S, process.kill)
        guard.start()
        for line in process.stdout or ():
            if first is None and is_text(line):
                first = time.perf_counter() - started
        process.wait()
        ended = time.perf_counter() - started
        guard.cancel()
    if process.returncode or first is None:
        raise RunError(
            f"exit code {process.returncode}, {'no' if first is None else 'some'} text: {' '.join(command[:4])}"
        )
    return Run(first, ended)


def is_partial(line: str) -> bool:
    """Whether a line of `--json` is a partial text."""
    return bool(json.loads(line)["type"] == "partial")


def interleave(commands: dict[str, tuple[list[str], Callable[[str], bool]]], rounds: int) -> dict[str, list[Run]]:
    """Measure the commands in turns; one round before the first warms the page cache and is not counted."""
    runs: dict[str, list[Run]] = {name: [] for name in commands}
    for number in range(rounds + 1):
        for name, (command, is_text) in commands.items():
            run = measure(command, is_text)
            if number:
                runs[name].append(run)
    return runs


def summary(runs: dict[str, list[Run]]) -> dict[str, object]:
    """Medians, our time over the peer's, and every single run, for JSON."""
    medians = {
        name: {
            field: round(statistics.median(getattr(run, field) for run in series), 4) for field in ("first_s", "exit_s")
        }
        for name, series in runs.items()
    }
    ours, peer = medians["susurrus"], medians["faster_whisper"]
    return {
        "rounds": len(runs["susurrus"]),
        "median": medians,
        "ratio": {field: round(ours[field] / peer[field], 3) for field in ours},
        "runs": {name: [asdict(run) for run in series] for name, series in runs.items()},
    }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.cold", description=__doc__)
    add = parser.add_argument
    add("--peer-model", type=Path, required=True, help="folder of a CTranslate2 model with the same weights")
    add("--peer-python", default=sys.executable, help="interpreter that has faster-whisper (default: this one)")
    add("--audio", type=Path, default=ROOT / "samples" / "jfk.wav")
    add("--language", default="en")
    add("--model", default="base", help="model name or directory of this project (default: base)")
    add("--threads", type=int, default=2, help="of both (default: 2)")
    add("--rounds", type=int, default=7)
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Print the measurements as JSON."""
    options = _parser().parse_args(arguments)
    audio, threads = str(options.audio.resolve()), str(options.threads)
    ours = [sys.executable, "run.py", "--wav", audio, "--json", "--language", options.language]
    ours += ["--model", options.model, "--threads", threads]
    peer = [options.peer_python, "-c", PEER, str(options.peer_model.resolve()), audio, options.language, threads]
    try:
        runs = interleave({"susurrus": (ours, is_partial), "faster_whisper": (peer, bool)}, options.rounds)
    except RunError as error:
        sys.exit(f"error: {error}")
    print(json.dumps(summary(runs), indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
