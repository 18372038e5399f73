"""`--trace`: what a real run writes down, in a viewer's format, for the user alone, and as far as a killed one came."""

from __future__ import annotations

import csv
import json
import re
import signal
import stat
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil
import pytest
import soundfile

from susurrus.actors import exits
from susurrus.models.mel import LogMel
from tests.faults.scripted import Fault, interpreter
from tests.run.conftest import DEADLINE_S, ROOT, Cli, Finished, wait_until

Event = dict[str, Any]
PHASES = {"M", "X", "i", "b", "e", "s", "f"}


class Traced(NamedTuple):
    """A run and what it wrote."""

    run: Finished
    folder: Path

    @property
    def events(self) -> list[Event]:
        """Of `trace.json`."""
        found: list[Event] = json.loads((self.folder / "trace.json").read_bytes())["traceEvents"]
        return found

    @property
    def processes(self) -> dict[int, str]:
        """Process id -> name."""
        return {event["pid"]: event["args"]["name"] for event in self.events if event["name"] == "process_name"}

    def at(self, process: str, name: str, category: str = "") -> float:
        """When a process first did something, in milliseconds."""
        for event in self.events:
            wanted = event["name"] == name and category in ("", event.get("cat")) and event["ph"] not in "fs"
            if wanted and self.processes[event["pid"]] == process:
                return float(event["ts"]) / 1e3
        pytest.fail(f"{process} has no {name}")


@pytest.fixture(scope="module")
def traced(
    make_cli: Callable[[], Cli], jfk: Path, six: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Traced]:
    """Two recordings, looked at."""
    folder = tmp_path_factory.mktemp("traced") / "trace"
    cli = make_cli()
    try:
        yield Traced(cli("--trace", folder, "--language", "en", jfk, six), folder)
    finally:
        cli.close()


def table(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def test_the_text_is_as_without_and_every_recording_has_its_page(traced: Traced) -> None:
    assert (traced.run.code, traced.run.err) == (exits.OK, "")
    assert "ask what you can do for your country" in traced.run.out
    for name in ("jfk", "six"):
        page = (traced.folder / name / "summary.txt").read_text(encoding="utf-8")
        assert f"{name}.wav" in page
        assert "suspicious   nothing" in page
        assert {path.name for path in (traced.folder / name / "window-000").iterdir()} == {
            "decoding.jsonl",
            "hidden_states.json",
            "hidden_states.npz",
            "mel.json",
            "mel.npz",
            "mel.png",
            "tokens.tsv",
            "tokens.txt",
        }


def test_everything_is_for_the_user_alone(traced: Traced) -> None:
    for path in (traced.folder, *traced.folder.rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_the_mel_is_the_one_of_the_recording(traced: Traced, base: Path, jfk: Path) -> None:
    samples, _ = soundfile.read(jfk, dtype="float32")
    with np.load(traced.folder / "jfk" / "window-000" / "mel.npz") as arrays:
        start, end = round(float(arrays["start"]) * 16000), round(float(arrays["end"]) * 16000)
        mel, silence = LogMel.from_directory(base)(samples[start:end])
        assert np.allclose(arrays["mel"], mel, atol=1e-5)
        assert float(arrays["silence"]) == pytest.approx(silence, abs=1e-5)
        assert (arrays["speech"][:, 0] < arrays["speech"][:, 1]).all()


def test_the_tokens_of_the_table_spell_the_text(traced: Traced) -> None:
    rows = table(traced.folder / "jfk" / "window-000" / "tokens.tsv")
    text = "".join(row["text"] for row in rows if not row["text"].startswith("<|"))
    assert text.strip() == traced.run.out.splitlines()[0]
    assert [int(row["step"]) for row in rows] == list(range(len(rows)))
    positions = [int(row["position"]) for row in rows]
    assert positions == list(range(positions[0], positions[0] + len(rows)))
    assert all(row["id"] == row["id_1"] for row in rows)  # greedy
    assert all(float(row["ms"]) > 0 for row in rows)


def test_waiting_and_working_is_told_of_every_actor_and_window(traced: Traced) -> None:
    for name in ("jfk", "six"):
        rows = table(traced.folder / name / "queues.tsv")
        assert [row["process"] for row in rows] == ["frontend", "encoder", "decoder"]
        for row in rows:
            assert (row["window"], row["attempt"]) == ("0", "1")
            assert min(float(row[column]) for column in ("waited_ms", "worked_ms", "credit_ms")) >= 0


def test_all_events_are_as_the_format_has_them(traced: Traced) -> None:
    named = {(event["pid"], event["tid"]) for event in traced.events if event["name"] == "thread_name"}
    for event in traced.events:
        assert event["ph"] in PHASES
        assert isinstance(event["name"], str)
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        if event["ph"] == "M":
            assert event["args"]
            continue
        assert event["ts"] >= 0
        assert event["cat"]
        assert (event["pid"], event["tid"]) in named
        assert event["pid"] in traced.processes
        assert ("dur" in event) == (event["ph"] == "X")
        assert ("id" in event) == (event["ph"] in "besf")
    assert set(traced.processes.values()) >= {"run", "frontend", "encoder", "decoder", "console"}


def test_slices_of_a_thread_lie_within_each_other_or_apart(traced: Traced) -> None:
    threads: dict[tuple[int, int], list[Event]] = defaultdict(list)
    for event in traced.events:
        if event["ph"] == "X":
            threads[event["pid"], event["tid"]].append(event)
    assert threads
    for events in threads.values():
        open_ends: list[float] = []
        for event in sorted(events, key=lambda event: (event["ts"], -event["dur"])):
            while open_ends and open_ends[-1] <= event["ts"] + 0.01:
                open_ends.pop()
            end = event["ts"] + event["dur"]
            assert not open_ends or end <= open_ends[-1] + 0.01, event
            open_ends.append(end)


def test_what_waits_begins_and_ends_once(traced: Traced) -> None:
    spans: dict[tuple[str, str, str], list[Event]] = defaultdict(list)
    for event in traced.events:
        if event["ph"] in "be":
            spans[event["cat"], event["id"], event["name"]].append(event)
    assert {category for category, *_ in spans} == {"job", "queue"}
    for first, last in spans.values():  # two each
        assert (first["ph"], last["ph"]) == ("b", "e")
        assert first["ts"] <= last["ts"]


def test_arrows_lead_from_slice_to_slice_along_the_line(traced: Traced) -> None:
    ends: dict[str, dict[str, Event]] = defaultdict(dict)
    for event in traced.events:
        if event["ph"] in "sf":
            ends[event["id"]][event["ph"]] = event
    routes = set()
    for arrow in ends.values():
        start, end = arrow["s"], arrow["f"]
        assert start["ts"] <= end["ts"]
        for tip in (start, end):
            assert any(
                (each["pid"], each["tid"]) == (tip["pid"], tip["tid"])
                and each["ts"] <= tip["ts"] + 0.01
                and tip["ts"] <= each["ts"] + each["dur"] + 0.01
                for each in traced.events
                if each["ph"] == "X"
            )
        routes.add((traced.processes[start["pid"]], traced.processes[end["pid"]]))
    assert routes == {("frontend", "encoder"), ("encoder", "decoder")}


def test_events_of_all_actors_are_on_one_clock(traced: Traced) -> None:
    order = [
        traced.at("frontend", "submit", "received"),
        traced.at("frontend", "started", "sent"),
        traced.at("frontend", "window 0", "window"),
        traced.at("encoder", "in the inbox"),
        traced.at("encoder", "window 0", "window"),
        traced.at("decoder", "in the inbox"),
        traced.at("decoder", "window 0", "window"),
        traced.at("decoder", "step '<|startoftranscript|>'", "decoder"),
        traced.at("decoder", "partial", "sent"),
        traced.at("run", "partial", "received"),
        traced.at("run", "segment", "received"),
        traced.at("run", "done", "received"),
    ]
    assert order == sorted(order)


def test_a_second_trace_does_not_go_into_the_same_folder(traced: Traced, cli: Cli, six: Path) -> None:
    before = (traced.folder / "trace.json").read_bytes()
    again = cli("--trace", traced.folder, six)
    assert (again.code, again.out) == (exits.INPUT, "")
    assert "name a new one" in again.err
    assert again.err.count("\n") == 1
    assert (traced.folder / "trace.json").read_bytes() == before


def test_a_trace_is_of_a_pipeline_of_ones_own(cli: Cli, tmp_path: Path) -> None:
    refused = cli("--trace", tmp_path / "trace", "--attach")
    assert refused.code == exits.INPUT
    assert "--trace" in refused.err
    assert not (tmp_path / "trace").exists()


def test_a_pipeline_that_is_killed_leaves_a_trace_that_can_be_put_together(
    cli: Cli, halves: tuple[bytes, bytes], broken: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "trace"
    run = cli.start_waiting("--json", "--trace", folder)
    run.feed(halves[0])
    for _ in range(2):  # what goes before the second one is written down, by the decoder that has sent both
        run.wait_for_event("partial")
    (encoder,) = (folder / "events").glob("encoder-*")
    wait_until(lambda: '"window 0"' in encoder.read_text(), "what the encoder has to say of its window")
    family = list(run.actors().values())
    run.signal(signal.SIGKILL)
    _, alive = psutil.wait_procs(family, timeout=DEADLINE_S)
    assert not alive
    run.finish()
    assert not (folder / "trace.json").exists()
    command = [sys.executable, "-m", "susurrus.actors.trace", str(folder)]
    made = subprocess.run(command, capture_output=True, text=True, check=True, env=cli.environment)
    page = Path(made.stdout.strip())
    assert page.parent.parent == folder
    traced = Traced(run.finish(), folder)
    assert traced.at("decoder", "partial", "sent") >= traced.at("encoder", "window 0", "window")
    assert table(page.parent / "window-000" / "tokens.tsv")
    assert "window 0, 0.00-" in page.read_text(encoding="utf-8")
    cli("--wav", broken)  # removes the runtime folder of the one that was killed


def test_a_decoder_that_is_killed_leaves_what_it_had_and_its_successor_writes_beside_it(
    cli: Cli, tmp_path: Path
) -> None:
    folder, faults = tmp_path / "trace", tmp_path / "faults"
    python = interpreter(faults, [Fault("decoder", "token", window=0, nth=3)])
    command = (sys.executable, "-m", "tests.faults.host", python)
    done = cli("--json", "--trace", folder, ROOT / "samples" / "sonnet_2.mp3", command=command)
    assert done.code == exits.OK
    assert (faults / "decoder-0-0").exists()
    traced = Traced(done, folder)
    assert sorted(traced.processes.values()).count("decoder") == 2
    home = folder / "sonnet_2"
    (broken_off,) = (path.parent for path in home.glob("*/tokens.txt") if "broken off" in path.read_text("utf-8"))
    assert table(broken_off / "tokens.tsv")
    again = broken_off.with_name(f"{broken_off.name}.attempt-2")
    assert "taken" in (again / "tokens.txt").read_text(encoding="utf-8")
    assert "attempt 2, 0.00-" in (home / "summary.txt").read_text(encoding="utf-8")


def test_the_bug_of_the_guide_is_found_as_the_guide_has_it(cli: Cli, jfk: Path, tmp_path: Path) -> None:
    guide = (ROOT / "docs" / "debugging.md").read_text(encoding="utf-8")
    (script,) = re.findall(r"^```python\n(.*?)^```", guide, re.MULTILINE | re.DOTALL)
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, env=cli.environment, check=True)
    run = cli("--model", tmp_path / "faulty", "--trace", tmp_path / "trace", jfk)
    assert run.code == exits.OK
    assert 0 < len(run.out.split()) < 12  # of 22 words
    page = (tmp_path / "trace" / "jfk" / "summary.txt").read_text(encoding="utf-8")
    suspicious = [line for line in page.splitlines() if "SUSPICIOUS" in line]
    assert "the numbers of the task tokens are not in a row" in suspicious[0]
    assert any("s of speech come after it" in line or "tokens of text for" in line for line in suspicious)
