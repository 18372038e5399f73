"""How run.py ends when it is told to, when something of it is killed, and what it leaves behind: nothing.

Moments are chosen by a seed and found by events, never by a clock. With PYTHONPROFILEIMPORTTIME every process of the
pipeline writes a line to standard error for each import, so "after line n" is any moment from the first imports of
run.py to the last of its actors.
"""

from __future__ import annotations

import random
import signal
import subprocess
from typing import TYPE_CHECKING

import psutil
import pytest

from susurrus.actors import exits
from susurrus.actors.hub import LINE

if TYPE_CHECKING:
    from pathlib import Path

    from tests.run.conftest import Cli, Finished, Running

DICE = random.Random(42)  # noqa: S311 - moments, not secrets
EVERY_IMPORT = {"PYTHONPROFILEIMPORTTIME": "1"}
# run.py's handler stands once argparse is imported; before it the interpreter itself answers Ctrl-C.
FIRST_MOMENT, LAST_MOMENT = 60, 1500


def gone(processes: list[psutil.Process]) -> bool:
    _, alive = psutil.wait_procs(processes, timeout=10)
    return not alive


def said(done: Finished) -> list[str]:
    """What it said on standard error besides the import times."""
    return [line for line in done.err.splitlines() if not line.startswith("import time:")]


def ended_by(run: Running, signum: int = signal.SIGINT, *, group: bool = False) -> Finished:
    """Send a signal; all it started must be gone by its own end."""
    family = psutil.Process(run.process.pid).children(recursive=True)
    run.signal(signum, group=group)
    done = run.finish()
    assert gone(family)
    assert "Traceback" not in done.err
    assert "KeyboardInterrupt" not in done.err
    return done


MOMENTS = DICE.sample(range(FIRST_MOMENT, LAST_MOMENT), 12)


def started_and_at(moment: int, cli: Cli, *arguments: str | Path, command: tuple[str, ...]) -> Running:
    """A run that has made so many imports."""
    run = cli.start(*arguments, command=command, env=EVERY_IMPORT)
    assert run.err is not None
    run.err.wait_for(lambda line: line.endswith("| argparse\n"))
    for _ in range(moment):
        run.err.wait_for(lambda _line: True)
    return run


@pytest.mark.parametrize(
    ("moment", "group", "installed"),
    [(moment, n % 2 == 0, n % 3 == 0) for n, moment in enumerate(sorted(MOMENTS[:9]))],
)
def test_ctrl_c_during_imports_and_loading_ends_all(
    cli: Cli, jfk: Path, moment: int, *, group: bool, installed: bool
) -> None:
    command = cli.installed_command if installed else cli.command
    done = ended_by(started_and_at(moment, cli, "--wav", jfk, command=command), group=group)
    assert done.code == exits.INTERRUPTED
    assert len(said(done)) <= 1


@pytest.mark.parametrize("moment", sorted(MOMENTS[9:]))
def test_sigterm_during_imports_and_loading_ends_all(cli: Cli, jfk: Path, moment: int) -> None:
    done = ended_by(started_and_at(moment, cli, "--wav", jfk, command=cli.command), signal.SIGTERM)
    assert done.code in (exits.TERMINATED, -signal.SIGTERM)  # before there is anything to end, the system does it
    assert len(said(done)) <= 1


@pytest.mark.parametrize("n_partials", DICE.sample(range(1, 70), 2))
@pytest.mark.parametrize("group", [True, False], ids=["group", "parent"])
def test_ctrl_c_while_decoding_ends_all_and_prints_the_text_so_far(
    cli: Cli, long_wav: Path, n_partials: int, *, group: bool
) -> None:
    run = cli.start("--json", "--wav", long_wav)
    for _ in range(n_partials):
        run.wait_for_event("partial")
    done = ended_by(run, group=group)
    assert done.code == exits.INTERRUPTED
    assert done.of_type("stopped")[0]["code"] == "interrupted"
    assert len(said(done)) <= 1


def test_the_text_so_far_is_printed_at_ctrl_c(cli: Cli, halves: tuple[bytes, bytes]) -> None:
    run = cli.start("--wav", "-", stdin=subprocess.PIPE)
    run.feed(halves[0])
    assert run.out is not None
    run.out.wait_for_text()
    done = ended_by(run, group=True)
    assert done.code == exits.INTERRUPTED
    assert done.out.startswith("And so my fellow Americans")
    assert done.out.endswith("\n")


@pytest.mark.parametrize(
    ("signum", "code"),
    [("SIGINT", exits.INTERRUPTED), ("SIGTERM", exits.TERMINATED), ("SIGHUP", exits.HUNG_UP)],
)
def test_a_signal_while_it_waits_for_standard_input_ends_all(cli: Cli, signum: str, code: int) -> None:
    run = cli.start_waiting()
    done = ended_by(run, getattr(signal, signum))
    assert (done.code, done.out) == (code, "")


def test_a_second_ctrl_c_ends_what_does_not_end_by_itself(cli: Cli, halves: tuple[bytes, bytes]) -> None:
    run = cli.start("--json", "--wav", "-", stdin=subprocess.PIPE)
    run.feed(halves[0])
    run.wait_for_event("partial")
    family = run.actors()
    for name in LINE:
        family[name].suspend()
    run.signal(signal.SIGINT)
    run.wait_for_event("stopped")
    run.signal(signal.SIGINT)
    done = run.finish()
    assert gone(list(family.values()))
    assert done.code == exits.INTERRUPTED
    assert done.err.count("\n") <= 1


def test_ctrl_c_three_times_leaves_no_process(cli: Cli, halves: tuple[bytes, bytes], broken: Path) -> None:
    run = cli.start("--json", "--wav", "-", stdin=subprocess.PIPE)
    run.feed(halves[0])
    run.wait_for_event("partial")
    family = list(run.actors().values())
    for _ in range(3):
        run.signal(signal.SIGINT, group=True)
    done = run.finish()
    assert gone(family)
    assert done.code == exits.INTERRUPTED
    assert "Traceback" not in done.err
    cli("--wav", broken)  # who is that impatient may leave a folder; the next run removes it


@pytest.mark.parametrize("name", [*LINE, "console"])
def test_an_actor_that_is_killed_ends_the_run_with_its_name(cli: Cli, halves: tuple[bytes, bytes], name: str) -> None:
    run = cli.start("--wav", "-", stdin=subprocess.PIPE)
    run.feed(halves[0])
    assert run.out is not None
    run.out.wait_for_text()
    family = run.actors()
    family[name].kill()
    done = run.finish()
    assert gone(list(family.values()))
    assert done.code == exits.PIPELINE
    (complaint,) = done.err.splitlines()
    assert f"the {name} was killed by SIGKILL" in complaint


def test_when_the_pipeline_is_killed_its_actors_end_and_an_attached_console_says_so(
    cli: Cli, halves: tuple[bytes, bytes], broken: Path
) -> None:
    run = cli.start_waiting("--json")
    run.feed(halves[0])
    run.wait_for_event("partial")
    watching = cli.start("--json", "--attach")
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
    cli("--wav", broken)  # the next run does, see the fixture


def test_a_stopped_console_does_not_keep_ctrl_c_from_ending_all(cli: Cli, halves: tuple[bytes, bytes]) -> None:
    run = cli.start_waiting("--json")
    run.feed(halves[0])
    run.wait_for_event("partial")
    run.actors()["console"].suspend()
    assert ended_by(run, group=True).code == exits.INTERRUPTED


def test_a_console_that_stops_before_the_last_text_does_not_keep_ctrl_c_from_ending_all(
    cli: Cli, halves: tuple[bytes, bytes]
) -> None:
    run = cli.start_waiting("--json")
    run.feed(halves[0])
    run.wait_for_event("segment")
    run.actors()["console"].suspend()
    watching = cli.start("--json", "--attach")
    watching.wait_for_event("snapshot")
    run.stdin.close()
    watching.wait_for_event("stopped")  # the pipeline has ended and waits for its console
    watching.finish()
    assert ended_by(run, group=True).code == exits.INTERRUPTED
