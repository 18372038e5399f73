"""Whether a pipeline that stays stays as it is: many jobs, hours of audio, a recording of hours.

    python -m tests.bench.endurance CORPUS --jobs 500 --hours 2 --out endurance.json --plot endurance.png
    python -m tests.bench.endurance CORPUS --jobs 0 --hours 0 --recording 3 --model tiny.en

A pipeline is started as `run.py --serve`, and this process is its client. Half of the jobs come one after another, each
from a client of its own; the others four at once from one client, and so does the audio in recordings of ten minutes,
two at once. The recording of hours is compared with its first five minutes, each in a fresh pipeline. Linux only.
Exit code 1 when something grows or is left.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict
from functools import partial
from importlib.metadata import version
from itertools import takewhile
from pathlib import Path
from typing import Any

import psutil

from susurrus.actors import PipelineError
from susurrus.actors.status import ask
from susurrus.models import SusurrusError
from susurrus.protocol import Connection, WireError
from tests.bench.corpus import BenchError, Clip, read_corpus
from tests.bench.curves import Phase, plot, table
from tests.bench.lengths import TILE_S, Recording, long_recordings, short_recordings, sparse_recording
from tests.bench.loads import HOURS, JOBS, Heard, Plan, hear, one_by_one, side_by_side, watch
from tests.bench.sampling import Sampler

START_S = 120.0
MORE_MB = 30.0  # that any process may need at most for hours of a recording, above five minutes of it
MORE_TIME = 1.1  # for a minute of it

Serve = Callable[[], AbstractContextManager[Connection]]


@contextmanager
def served(model: str, threads: int, folder: Path, faults: list[str]) -> Iterator[Connection]:
    """A resident pipeline with a runtime and a temporary folder of its own; files that it leaves are noted as faults.

    Raises:
        BenchError: it does not start.
    """
    places = {name: folder / name for name in ("run", "tmp")}
    for place in places.values():
        place.mkdir(mode=0o700, exist_ok=True)
    command = [sys.executable, "-m", "susurrus.run", "--serve", "--model", model, "--threads", str(threads)]
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(places["run"]), "TMPDIR": str(places["tmp"])}
    with (folder / "serve.log").open("w+", encoding="utf-8") as log:
        process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stderr=log)
        try:
            yield Connection.read(_connection_file(process, Path(log.name)))
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()
    left = [path for place in places.values() for path in place.rglob("*")]
    faults += [f"{path.relative_to(folder)} is left after the end" for path in left]


def _connection_file(process: subprocess.Popen[bytes], log: Path) -> Path:
    """Wait until the pipeline says that it is ready, and where its connection file is."""
    deadline = time.monotonic() + START_S
    while process.poll() is None and time.monotonic() < deadline:
        if found := re.search(r"^ready: .*its connection: (.+)$", log.read_text(encoding="utf-8"), re.MULTILINE):
            return Path(found[1])
        time.sleep(0.05)
    raise BenchError(f"the pipeline is not ready: {log.read_text(encoding='utf-8').strip() or 'it says nothing'}")


def make_plans(clips: Sequence[Clip], folder: Path, jobs: int, hours: float, deadline: float) -> list[Plan]:
    """The jobs, then the hours of audio; none is begun after the deadline, monotonic seconds."""
    short, long = short_recordings(clips, jobs), long_recordings(clips, folder, hours)

    def before(recordings: Sequence[Recording]) -> Iterator[Recording]:
        return takewhile(lambda _: time.monotonic() < deadline, recordings)

    return [
        Plan("one after another", JOBS, one_by_one, before(short[: jobs // 2])),
        Plan("four at once", JOBS, partial(side_by_side, at_once=4), before(short[jobs // 2 :])),
        Plan("hours of audio", HOURS, partial(side_by_side, at_once=2), before(long)),
    ]


def run_phases(connection: Connection, plans: Sequence[Plan]) -> list[Phase]:
    """All of them through one pipeline."""
    phases = []

    def find() -> dict[str, int]:
        return {actor.name: actor.pid for actor in ask(connection).actors} | {"client": os.getpid()}

    with Sampler(find, connection.folder) as sampler:
        for plan in plans:
            phase = watch(plan, connection, sampler)
            if phase.jobs:
                phases.append(phase)
                print("\n".join(table(phase)), flush=True)
    return phases


def run_recordings(serve: Serve, clips: Sequence[Clip], folder: Path, hours: float) -> list[Heard]:
    """Five minutes, and hours: each in a fresh pipeline."""
    found = []
    for name, length in (("minutes", TILE_S / 3600), ("hours", hours)):
        recording = sparse_recording(clips, folder / f"{name}.wav", length)
        with serve() as connection:
            found.append(hear(connection, recording))
        recording.path.unlink()
        print(_describe(found[-1]), flush=True)
    return found


def _describe(heard: Heard) -> str:
    peaks = ", ".join(f"{name} {size:.0f}" for name, size in heard.peaks.items())
    return (
        f"{heard.audio_s / 60:.0f} min in {heard.seconds:.0f} s, {60 * heard.seconds / heard.audio_s:.2f} s a minute; "
        f"first text after {heard.first_text_s:.2f} s, when {heard.read_s:.0f} s of audio were read; "
        f"{heard.characters} characters; peaks in MB: {peaks}"
    )


def recording_faults(minutes: Heard, hours: Heard) -> Iterator[str]:
    """What the recording of hours has more of than it should, in words."""
    for name, size in hours.peaks.items():
        if (more := size - minutes.peaks[name]) > MORE_MB:
            yield f"{name} needs {more:.0f} MB more for {hours.audio_s / 3600:g} h; {MORE_MB:g} may be"
    if hours.read_s > hours.audio_s / 2:
        yield f"the first text came when {hours.read_s:.0f} s of {hours.audio_s:.0f} were read"
    ratio = (hours.seconds / hours.audio_s) / (minutes.seconds / minutes.audio_s)
    if ratio > MORE_TIME:
        yield f"a minute of hours took {ratio:.2f} times as long; {MORE_TIME} may be, on a quiet machine"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.endurance", description=__doc__)
    add = parser.add_argument
    add("corpus", type=Path, help="folder with a manifest.jsonl")
    add("--jobs", type=int, default=500, help="short recordings, 1 to 15 s (default: 500)")
    add("--hours", type=float, default=2.0, help="of audio, in recordings of ten minutes (default: 2)")
    add("--recording", type=float, default=0.0, metavar="HOURS", help="length of one recording, 48 kHz stereo")
    add("--minutes", type=float, default=math.inf, help="begin no job after so long, not of --recording")
    add("--model", default="base", help="model name or directory (default: base)")
    add("--threads", type=int, default=0, help="0 takes the CPUs this process may use")
    add("--out", type=Path, metavar="FILE.json", help="write all numbers")
    add("--plot", type=Path, metavar="FILE.png", help="draw memory and descriptors over time")
    return parser


def _about(options: argparse.Namespace) -> dict[str, Any]:
    return {
        "model": options.model,
        "threads": options.threads,
        "cpus": len(os.sched_getaffinity(0)),
        "load": os.getloadavg()[0],
        "python": platform.python_version(),
        "onnxruntime": version("onnxruntime"),
    }


def main(arguments: list[str] | None = None) -> int:
    """Print tables and what is wrong."""
    options = _parser().parse_args(arguments)
    about, phases, heard, faults = _about(options), list[Phase](), list[Heard](), list[str]()
    try:
        clips = read_corpus(options.corpus)
        with tempfile.TemporaryDirectory(prefix="endure-") as name:
            folder, deadline = Path(name), time.monotonic() + 60 * options.minutes
            serve = partial(served, options.model, options.threads, folder, faults)
            if options.jobs or options.hours:
                plans = make_plans(clips, folder, options.jobs, options.hours, deadline)
                with serve() as connection:
                    phases = run_phases(connection, plans)
            if options.recording:
                heard = run_recordings(serve, clips, folder, options.recording)
        faults += [fault for phase in phases for fault in phase.faults()]
        faults += recording_faults(*heard) if heard else ()
        if options.plot is not None:
            plot(phases, options.plot)
    except (BenchError, SusurrusError, WireError, PipelineError, psutil.Error) as error:
        sys.exit(f"error: {error}")
    if options.out is not None:
        found = {
            "about": about,
            "phases": [phase.to_json() for phase in phases],
            "recordings": list(map(asdict, heard)),
        }
        options.out.write_text(json.dumps({**found, "faults": faults}, indent=1) + "\n", encoding="utf-8")
    print("\n".join(f"not as it should be: {fault}" for fault in faults) or "everything is level")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
