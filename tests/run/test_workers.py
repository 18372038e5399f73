"""`--workers`: several files at once, shown as if they were done one after another."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

import pytest

from susurrus.actors import exits

if TYPE_CHECKING:
    from pathlib import Path

    from tests.run.conftest import Cli


def test_files_are_shown_in_their_order_and_every_process_of_every_lane_is_in_the_trace(
    cli: Cli, jfk: Path, broken: Path, tmp_path: Path
) -> None:
    """The first file is the longest: the others are finished before it."""
    files: list[str | Path] = [jfk, jfk.with_name("six.wav"), broken, jfk.with_name("austen.wav"), "-"]
    lanes = {"encoder", "decoder", "encoder-2", "decoder-2"}
    options = ("-v", "--workers", "2", "--threads", "1", "--trace", tmp_path / "trace")
    run = cli.start(*options, *files, stdin=subprocess.PIPE)
    for _ in ("frontend", *lanes):  # without standard input all may be done before the second lane has loaded
        run.wait_for_log("actor ready")
    run.feed(jfk.with_name("six.wav").read_bytes())
    done = run.finish()
    with jfk.with_name("six.wav").open("rb") as audio:
        alone = cli("--threads", "1", "--quiet", *files, stdin=audio)
    assert (done.code, done.out) == (alone.code, alone.out)
    assert [line for line in done.err.splitlines() if line.startswith("error: ")] == alone.err.splitlines()
    assert done.code == exits.INPUT
    assert [len(line) > 0 for line in done.out.splitlines()] == [True] * 4
    events = json.loads((tmp_path / "trace" / "trace.json").read_text())["traceEvents"]
    processes = {event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert processes == {"run", "frontend", *lanes, "console"}
    assert {path.name for path in (tmp_path / "trace").iterdir()} >= {"jfk", "six", "austen"}


@pytest.mark.parametrize("wrong", ["-1", "1000"])
def test_workers_that_cannot_be_are_refused_in_one_line(cli: Cli, six: Path, wrong: str) -> None:
    done = cli("--workers", wrong, six)
    assert (done.code, done.out) == (exits.INPUT, "")
    (line,) = done.err.splitlines()
    assert line.startswith(f"error: --workers {wrong}: give 1 to ")
