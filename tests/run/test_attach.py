"""A second console shows what the first one does, whenever it comes, and disturbs nothing."""

from __future__ import annotations

import json
import re
import shutil
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from susurrus.actors import exits
from susurrus.actors.status import ask
from susurrus.protocol import Connection
from tests.run.conftest import DEADLINE_S, wait_until

if TYPE_CHECKING:
    from tests.run.conftest import Cli, Running


def words(text: str) -> list[str]:
    return re.findall(r"[a-z']+", text.lower())


def connection_file(cli: Cli) -> Path:
    (path,) = cli.runtime.glob("*/connection.json")
    return path


def wait_for_subscribers(cli: Cli, count: int) -> None:
    """Until so many are there: those who attach before there is text show nothing by which one could tell."""
    connection = Connection.read(connection_file(cli))
    wait_until(lambda: ask(connection, DEADLINE_S).subscribers == count, f"{count} subscribers")


def first_segment(watching: Running) -> Any:
    """As an event, or in the snapshot of one that had subscribed but was too slow to ask for it before."""

    def segments(line: str) -> list[Any]:
        event = json.loads(line)
        jobs = event.get("jobs", ())
        return [event] if event["type"] == "segment" else [each for job in jobs for each in job["segments"]]

    assert watching.out is not None
    return segments(watching.out.wait_for(lambda line: bool(segments(line))))[0]


def test_consoles_that_come_before_in_the_middle_and_twice_end_with_the_same_text(
    cli: Cli, halves: tuple[bytes, bytes], texts: dict[str, str]
) -> None:
    run = cli.start_waiting()
    early = cli.start("--attach", command=cli.here)
    teller = cli.start("--attach", connection_file(cli), "--json")
    wait_for_subscribers(cli, 4)  # run.py and its own console, and these
    run.feed(halves[0])
    first = first_segment(teller)
    middle = cli.start("--attach", "--json", command=cli.here)
    known = middle.wait_for_event("snapshot")
    assert known["jobs"][0]["segments"] == [first]
    leaving = cli.start("--attach", "--json", command=cli.here)
    leaving.wait_for_event("snapshot")
    leaving.signal(signal.SIGINT, group=True)
    assert leaving.finish().code == exits.INTERRUPTED
    run.feed(halves[1])
    done = run.finish()
    assert done.code == exits.OK
    assert words(done.out) == 6 * words(texts["jfk.wav"])
    assert early.finish() == (exits.OK, done.out, "")
    for watching in (teller, middle):
        watched = watching.finish()
        assert (watched.code, watched.err) == (exits.OK, "")
        assert watched.of_type("done")[0]["text"] == done.out.strip()
        assert watched.events[-1]["type"] == "stopped"


def test_a_console_that_comes_after_done_shows_the_text_too(cli: Cli, austen: Path) -> None:
    run = cli.start_waiting("--json", "--wav", austen)
    text = run.wait_for_event("done")["text"]
    late = cli.start("--attach", command=cli.here)
    teller = cli.start("--attach", "--json", command=cli.here)
    assert teller.wait_for_event("snapshot")["jobs"][0]["end"]["text"] == text
    assert late.out is not None
    assert late.out.wait_for(lambda _line: True) == text + "\n"
    assert run.finish().code == exits.INPUT  # standard input was empty
    assert late.finish().code == exits.OK
    teller.finish()


LOOKS_NOWHERE = """
import sys
import susurrus.protocol.connection
import susurrus.run
susurrus.protocol.connection.candidates = lambda: []
sys.exit(susurrus.run.main(sys.argv[1:]))
"""


def test_without_a_pipeline_attaching_is_refused_in_one_line(cli: Cli, tmp_path: Path) -> None:
    # Where pipelines are looked for there may be those of other people's runs.
    alone = (sys.executable, "-c", LOOKS_NOWHERE)
    refused = [cli.start("--attach", command=alone), cli.start("--attach", tmp_path / "connection.json")]
    for done in [running.finish() for running in refused]:
        assert (done.code, done.out) == (exits.PIPELINE, "")
        assert done.err.startswith("error: ")
        assert done.err.count("\n") == 1


def test_a_connection_file_that_others_could_read_or_of_a_dead_pipeline_is_refused(
    cli: Cli, austen: Path, tmp_path: Path
) -> None:
    run = cli.start_waiting("--json", "--wav", austen)
    run.wait_for_event("started")
    kept = tmp_path / "kept.json"
    shutil.copy(connection_file(cli), kept)
    kept.chmod(0o644)
    loose = cli("--attach", kept)
    assert (loose.code, loose.out) == (exits.PIPELINE, "")
    assert "chmod 600" in loose.err
    assert loose.err.count("\n") == 1
    assert run.finish().code == exits.INPUT
    kept.chmod(0o600)
    dead = cli("--attach", kept)
    assert (dead.code, dead.out) == (exits.PIPELINE, "")
    assert dead.err.count("\n") == 1
