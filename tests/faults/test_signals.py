"""How run.py ends when it is told to, and what it leaves behind: nothing.

Moments are chosen by a seed and found by events, never by a clock. With PYTHONPROFILEIMPORTTIME every process of the
pipeline writes a line to standard error for each import, so "after line n" is any moment from the first imports of
run.py to the last of its actors.
"""

from __future__ import annotations

import random
import signal
import subprocess
from pathlib import Path

import numpy as np
import psutil
import pytest
import soundfile

from susurrus.actors import exits
from susurrus.actors.line import STATIONS
from tests.actors.fakes import RATE, sounds
from tests.faults.conftest import TinyCli
from tests.run.conftest import DEADLINE_S, Finished, Running

DICE = random.Random(42)  # noqa: S311 - moments, not secrets
EVERY_IMPORT = {"PYTHONPROFILEIMPORTTIME": "1"}
# run.py's handler stands once argparse is imported; before it the interpreter itself answers Ctrl-C.
FIRST_MOMENT, LAST_MOMENT = 10, 250


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty minutes: nobody is so slow that a run has ended before it is interrupted."""
    path = tmp_path_factory.mktemp("long") / "long.wav"
    soundfile.write(path, np.tile(sounds(40.0, 8), 30), RATE)
    return path


@pytest.fixture(scope="module")
def beginning(long: Path) -> bytes:
    """The first ten seconds of it: text comes, and standard input goes on."""
    return long.read_bytes()[: 44 + 10 * 2 * RATE]


def gone(processes: list[psutil.Process]) -> bool:
    _, alive = psutil.wait_procs(processes, timeout=DEADLINE_S)
    return not alive


def said(done: Finished) -> list[str]:
    """What it said on standard error besides the import times and what is always said."""
    return [line for line in done.err.splitlines() if not line.startswith(("import time:", "warning: there is only"))]


def ended_by(run: Running, signum: int = signal.SIGINT, *, group: bool = False) -> Finished:
    """Send a signal; all it started must be gone by its own end."""
    family = psutil.Process(run.process.pid).children(recursive=True)
    run.signal(signum, group=group)
    done = run.finish()
    assert gone(family)
    assert "Traceback" not in done.err
    assert "KeyboardInterrupt" not in done.err
    return done


def started_and_at(moment: int, cli: TinyCli, recording: Path, command: tuple[str, ...]) -> Running:
    """A run that has made so many imports."""
    run = cli.start(*cli.plain, recording, command=command, env=EVERY_IMPORT)
    assert run.err is not None
    run.err.wait_for(lambda line: line.endswith(" argparse\n"))
    for _ in range(moment):
        run.err.wait_for(lambda _line: True)
    return run


MOMENTS = sorted(DICE.sample(range(FIRST_MOMENT, LAST_MOMENT), 12))
PARTIALS = sorted(DICE.sample(range(1, 200), 8))


@pytest.mark.fault(45)
@pytest.mark.parametrize(("moment", "installed"), [(moment, n % 3 == 0) for n, moment in enumerate(MOMENTS)])
def test_ctrl_c_during_imports_and_loading_ends_all(cli: TinyCli, long: Path, moment: int, *, installed: bool) -> None:
    command = cli.installed_command if installed else cli.command
    done = ended_by(started_and_at(moment, cli, long, command), group=True)
    assert done.code == exits.INTERRUPTED
    assert len(said(done)) <= 1


@pytest.mark.fault(45)
@pytest.mark.parametrize(("n_partials", "group"), [(moment, n % 4 != 0) for n, moment in enumerate(PARTIALS)])
def test_ctrl_c_while_decoding_ends_all_and_tells_of_it(
    cli: TinyCli, long: Path, n_partials: int, *, group: bool
) -> None:
    """To the group as a terminal does it; now and then to the parent alone, as a program does."""
    run = cli.start(*cli.json, long)
    for _ in range(n_partials):
        run.wait_for_event("partial")
    done = ended_by(run, group=group)
    assert done.code == exits.INTERRUPTED
    assert done.of_type("stopped")[0]["code"] == "interrupted"
    assert len(said(done)) <= 1


@pytest.mark.fault(45)
def test_the_text_so_far_is_printed_at_ctrl_c(cli: TinyCli, beginning: bytes) -> None:
    run = cli.start(*cli.plain, "--wav", "-", stdin=subprocess.PIPE)
    run.feed(beginning)
    assert run.out is not None
    run.out.wait_for_text()
    done = ended_by(run, group=True)
    assert done.code == exits.INTERRUPTED
    assert done.out.startswith("w")
    assert done.out.endswith("\n")


@pytest.mark.fault(46)
@pytest.mark.parametrize("moment", [MOMENTS[0], MOMENTS[-1]])
def test_sigterm_during_imports_and_loading_ends_all(cli: TinyCli, long: Path, moment: int) -> None:
    done = ended_by(started_and_at(moment, cli, long, cli.command), signal.SIGTERM)
    assert done.code in (exits.TERMINATED, -signal.SIGTERM)  # before there is anything to end, the system does it
    assert len(said(done)) <= 1


@pytest.mark.fault(46)
@pytest.mark.parametrize(
    ("signum", "code"),
    [("SIGINT", exits.INTERRUPTED), ("SIGTERM", exits.TERMINATED), ("SIGHUP", exits.HUNG_UP)],
)
def test_a_signal_while_it_waits_for_standard_input_ends_all(cli: TinyCli, signum: str, code: int) -> None:
    run = cli.start_waiting(*cli.plain)
    done = ended_by(run, getattr(signal, signum))
    assert (done.code, done.out) == (code, "")


@pytest.mark.fault(46)
def test_a_second_ctrl_c_ends_what_does_not_end_by_itself(cli: TinyCli, beginning: bytes) -> None:
    run = cli.start(*cli.json, "--wav", "-", stdin=subprocess.PIPE)
    run.feed(beginning)
    run.wait_for_event("partial")
    family = run.actors()
    for name in STATIONS:
        family[name].suspend()
    run.signal(signal.SIGINT)
    run.wait_for_event("stopped")
    run.signal(signal.SIGINT)
    done = run.finish()
    assert gone(list(family.values()))
    assert done.code == exits.INTERRUPTED
    assert len(said(done)) <= 1


@pytest.mark.fault(46)
def test_ctrl_c_three_times_leaves_no_process(cli: TinyCli, beginning: bytes, tmp_path: Path) -> None:
    run = cli.start(*cli.json, "--wav", "-", stdin=subprocess.PIPE)
    run.feed(beginning)
    run.wait_for_event("partial")
    family = list(run.actors().values())
    for _ in range(3):
        run.signal(signal.SIGINT, group=True)
    done = run.finish()
    assert gone(family)
    assert done.code == exits.INTERRUPTED
    assert "Traceback" not in done.err
    cli(*cli.plain, tmp_path / "none.wav")  # who is that impatient may leave a folder; the next run removes it


@pytest.mark.fault(13)
def test_when_the_pipeline_is_killed_its_actors_end_and_an_attached_console_says_so(
    cli: TinyCli, beginning: bytes, tmp_path: Path
) -> None:
    run = cli.start_waiting(*cli.json)
    run.feed(beginning)
    run.wait_for_event("partial")
    watching = cli.start("--json", "--attach", command=cli.here)
    watching.wait_for_event("snapshot")
    family = list(run.actors().values())
    run.signal(signal.SIGKILL)
    assert gone(family)
    watched = watching.finish()
    assert watched.code == exits.PIPELINE
    assert "killed" in watched.err
    assert watched.err.count("\n") == 1
    run.finish()
    assert cli.leftovers()  # nobody was left to remove the folder
    cli(*cli.plain, tmp_path / "none.wav")  # the next run does, see the fixture


@pytest.mark.fault(19, 46)
def test_a_stopped_console_does_not_keep_ctrl_c_from_ending_all(cli: TinyCli, beginning: bytes) -> None:
    run = cli.start_waiting(*cli.json)
    run.feed(beginning)
    run.wait_for_event("partial")
    run.actors()["console"].suspend()
    assert ended_by(run, group=True).code == exits.INTERRUPTED


@pytest.mark.fault(19, 46)
def test_a_console_that_stops_before_the_last_text_does_not_keep_ctrl_c_from_ending_all(
    cli: TinyCli, beginning: bytes
) -> None:
    run = cli.start_waiting(*cli.json)
    run.feed(beginning)
    run.wait_for_event("segment")
    run.actors()["console"].suspend()
    watching = cli.start("--json", "--attach", command=cli.here)
    watching.wait_for_event("snapshot")
    run.stdin.close()
    watching.wait_for_event("done")  # all is said, and the pipeline waits for its console
    assert ended_by(run, group=True).code == exits.INTERRUPTED
    watching.finish()
