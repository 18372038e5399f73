"""What a pipe, a file and a program get from run.py."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from susurrus.models.tokenizer import Tokenizer

if TYPE_CHECKING:
    from tests.run.conftest import Cli, Finished


def words(text: str) -> list[str]:
    return re.findall(r"[a-z']+", text.lower())


def test_a_pipe_gets_exactly_the_text_and_a_line_end(cli: Cli, jfk: Path, texts: dict[str, str]) -> None:
    assert cli("--wav", jfk) == (0, texts["jfk.wav"] + "\n", "")


def test_each_input_is_a_line_in_order_and_a_broken_one_is_told_on_stderr(
    cli: Cli, jfk: Path, austen: Path, broken: Path, texts: dict[str, str]
) -> None:
    done = cli("--quiet", "--wav", jfk, "--wav", broken, "--wav", austen)
    first, second = done.out.splitlines()
    assert first == texts["jfk.wav"]
    assert words(second) == words(texts["austen.wav"])
    (complaint,) = done.err.splitlines()
    assert complaint.startswith(f"error: {broken}: ")
    assert done.code == 2


# --- --json ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def told(make_cli: Callable[[], Cli], jfk: Path) -> Finished:
    """The events of three inputs: one window, several, and characters of several tokens each."""
    samples = jfk.parent
    inputs = [jfk, samples / "sonnet_2.mp3", samples / "common_voice_ja.mp3"]
    # In the C locale: text is UTF-8 all the same.
    return make_cli()("--json", *(word for path in inputs for word in ("--wav", path)), env={"LC_ALL": "C"})


def of_windows(told: Finished) -> list[tuple[list[dict[str, Any]], dict[str, Any]]]:
    """Partials and segment of every window."""
    partials = [(event["job"], event["window"], event) for event in told.of_type("partial")]
    return [
        ([p for job, window, p in partials if (job, window) == (segment["job"], segment["window"])], segment)
        for segment in told.of_type("segment")
    ]


def test_every_job_is_started_windows_and_texts_then_done_and_the_pipeline_stops_last(told: Finished) -> None:
    assert told.code == 0
    assert told.err == ""
    *events, last = told.events
    assert (last["type"], last["name"], last["code"]) == ("stopped", "pipeline", "")
    jobs = [[event for event in events if event["job"] == job] for job in dict.fromkeys(e["job"] for e in events)]
    assert len(jobs) == 3
    for job in jobs:
        assert [event["seq"] for event in job] == list(range(1, len(job) + 1))
        kinds = [event["type"] for event in job]
        assert kinds[:2] == ["started", "window"]
        assert kinds[-2:] == ["segment", "done"]
        assert set(kinds[2:-1]) <= {"window", "partial", "segment"}


def test_a_window_is_cut_then_grows_then_is_committed_once(told: Finished) -> None:
    cuts = [(e["job"], e["window"]) for e in told.of_type("window")]
    assert cuts == [(e["job"], e["window"]) for e in told.of_type("segment")]
    for job, events in groupby(told.of_type("segment"), lambda event: event["job"]):
        windows = list(events)
        assert [event["window"] for event in windows] == list(range(len(windows))), job
        assert [event["start"] for event in windows[1:]] == [event["end"] for event in windows[:-1]]


def test_there_is_a_partial_for_every_token_that_makes_text(told: Finished, base: Path) -> None:
    tokenizer = Tokenizer.from_directory(base)
    for partials, segment in of_windows(told):
        tokens = segment["tokens"]
        texts = [tokenizer.decode(tokens[:n]) for n in range(len(tokens) + 1)]
        growing = [n for n in range(1, len(tokens) + 1) if texts[n] != texts[n - 1]]
        assert [partial["tokens"] for partial in partials] == [tokens[:n] for n in growing]


def test_hypotheses_are_whole_and_the_text_behind_their_token_ids(told: Finished, base: Path) -> None:
    tokenizer = Tokenizer.from_directory(base)
    for partials, segment in of_windows(told):
        for event in (*partials, segment):
            assert event["text"] == tokenizer.decode(event["tokens"])
            assert "\N{REPLACEMENT CHARACTER}" not in event["text"]


def test_what_is_stable_begins_every_later_hypothesis_and_the_segment(told: Finished) -> None:
    for partials, segment in of_windows(told):
        stable = ""
        for event in (*partials, segment):
            assert event["text"].startswith(stable)
            stable = event["text"][: event.get("stable", None)]


def test_the_text_is_the_segments_joined(told: Finished) -> None:
    for done in told.of_type("done"):
        pieces = [event["text"] for event in told.of_type("segment") if event["job"] == done["job"]]
        assert re.sub(r"\s+", "", done["text"]) == re.sub(r"\s+", "", "".join(pieces))
        assert done["text"] == done["text"].strip()
        assert "  " not in done["text"]


def test_a_recording_longer_than_a_window_is_transcribed_to_its_end(told: Finished, texts: dict[str, str]) -> None:
    (done,) = (event for name, event in told.dones.items() if name.endswith("sonnet_2.mp3"))
    assert done["duration"] == pytest.approx(52.9, abs=0.2)
    assert words(done["text"])[-2:] == words(texts["sonnet_2.mp3"])[-2:]


def test_the_language_is_found_by_listening(told: Finished) -> None:
    assert [event["language"] for event in told.of_type("done")] == ["en", "en", "ja"]


# --- logs ------------------------------------------------------------------------------------------------------


def test_log_lines_are_json_and_never_hold_the_transcript(cli: Cli, jfk: Path, texts: dict[str, str]) -> None:
    done = cli("-vv", "--log-format", "json", "--json", "--wav", jfk)
    records = [json.loads(line) for line in done.err.splitlines()]
    assert {"hub", "decoder"} & {record["process"] for record in records}
    assert not [word for word in ("fellow", "Americans", "country") if word in done.err]
    assert done.of_type("done")[0]["text"] == texts["jfk.wav"]


def test_verbose_text_is_alone_on_stdout(cli: Cli, austen: Path, texts: dict[str, str]) -> None:
    done = cli("-v", "--wav", austen)
    assert words(done.out) == words(texts["austen.wav"])
    assert done.out.count("\n") == 1
    assert "ill disposed" not in done.err
    assert "s of audio in" in done.err


# --- outputs that do not work --------------------------------------------------------------------------------------


def test_a_reader_that_goes_away_ends_the_run_quietly(cli: Cli, endless_wav: Path) -> None:
    reading, writing = os.pipe()
    run = cli.start("--wav", endless_wav, stdout=writing)
    os.close(writing)
    assert os.read(reading, 1)
    os.close(reading)
    assert run.finish() == (141, "", "")


def test_a_full_disk_is_one_line_on_stderr(cli: Cli, austen: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        done = cli("--wav", austen, stdout=full)
    assert done.code != 0
    (complaint,) = done.err.splitlines()
    assert "standard output" in complaint
    assert "No space left" in complaint
