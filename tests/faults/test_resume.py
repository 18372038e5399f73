"""A long recording whose pipeline is killed goes on behind its last committed window, and ends with the same text."""

from __future__ import annotations

import sys
from pathlib import Path

import psutil
import pytest
import soundfile

from susurrus.actors import exits
from susurrus.actors.pipeline import Pipeline
from susurrus.models import Whisper
from susurrus.protocol import Failed, TranscribeOptions
from tests.actors.fakes import PATIENCE_S, PLAIN, RATE, sounds
from tests.faults.conftest import TinyCli
from tests.faults.scripted import Fault, interpreter
from tests.faults.worlds import small_disk
from tests.run.conftest import Running

SHORT = 3.5  # seconds: five windows or so


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Nobody changes it: its date is part of what a journal is of."""
    path = tmp_path_factory.mktemp("recording") / "long é.wav"
    soundfile.write(path, sounds(SHORT, 5), RATE, subtype="FLOAT")
    return path


@pytest.fixture(scope="module")
def pieces(tiny: Path, recording: Path) -> list[str]:
    """The texts of its windows, undisturbed."""
    return [segment.text for segment in Whisper.load(tiny).transcribe(recording, **PLAIN).segments]


@pytest.fixture
def state(cli: TinyCli, tmp_path: Path) -> Path:
    """Where this test's journals are."""
    cli.environment["SUSURRUS_STATE"] = str(tmp_path / "state")
    return tmp_path / "state" / "journals"


def start_and_kill(run: Running) -> None:
    """Kill the process that has the hub; its children must end with it."""
    family = psutil.Process(run.process.pid).children(recursive=True)
    run.process.kill()
    run.finish()
    assert psutil.wait_procs(family, timeout=PATIENCE_S)[1] == []


def hanging_at(window: int, folder: Path) -> str:
    """An interpreter whose decoder gets no further than this window."""
    return interpreter(folder / f"window-{window}", [Fault("decoder", "begin", deed="hang", window=window, times=99)])


@pytest.mark.fault(13)
def test_killed_after_each_window_it_ends_with_the_same_text(
    cli: TinyCli, recording: Path, pieces: list[str], state: Path, tmp_path: Path
) -> None:
    """One recording, as many power cuts as it has windows: each run does one window more."""
    arguments = (*cli.json, "--resume", recording)
    for window in range(1, len(pieces)):
        run = cli.start(*arguments, command=(sys.executable, "-m", "tests.faults.host", hanging_at(window, tmp_path)))
        texts = [run.wait_for_event("segment")["text"] for _ in range(window)]
        assert texts == pieces[:window]
        start_and_kill(run)
        assert len(list(state.iterdir())) == 1
    done = cli(*arguments)
    assert done.code == exits.OK
    assert [event["text"] for event in done.of_type("segment")] == pieces
    assert done.of_type("done")[0]["text"] == "".join(pieces).strip()
    assert list(state.iterdir()) == []


@pytest.mark.fault(13)
def test_a_service_that_is_killed_and_started_again_goes_on(
    cli: TinyCli, recording: Path, pieces: list[str], state: Path, tmp_path: Path
) -> None:
    service = (*cli.model, "--serve")
    first = cli.start(*service, command=(sys.executable, "-m", "tests.faults.host", hanging_at(2, tmp_path)))
    first.wait_for_log("ready: ")
    client = cli.start(*cli.json, "--connect", "--resume", recording, command=cli.here)
    assert [client.wait_for_event("segment")["text"] for _ in range(2)] == pieces[:2]
    start_and_kill(first)
    lost = client.finish()
    assert lost.code == exits.PIPELINE
    assert "killed" in lost.err
    assert lost.err.count("\n") == 2, "that, and what is said of the temperature"
    second = cli.start(*service)
    second.wait_for_log("ready: ")
    done = cli(*cli.plain, "--connect", "--resume", recording, command=cli.here)
    assert done == (exits.OK, "".join(pieces).strip() + "\n", "")
    assert list(state.iterdir()) == []
    second.process.terminate()
    assert second.finish().code == exits.TERMINATED


@pytest.mark.fault(13)
def test_a_journal_of_other_options_or_of_a_changed_recording_is_refused_and_kept(
    cli: TinyCli, tmp_path: Path, state: Path, pieces: list[str]
) -> None:
    recording = tmp_path / "mine.wav"
    soundfile.write(recording, sounds(SHORT, 5), RATE, subtype="FLOAT")
    run = cli.start(
        *(*cli.json, "--resume", recording),
        command=(sys.executable, "-m", "tests.faults.host", hanging_at(1, tmp_path)),
    )
    assert run.wait_for_event("segment")["text"] == pieces[0]
    start_and_kill(run)
    (journal,) = state.iterdir()
    kept = journal.read_bytes()
    other = cli(*cli.plain, "--resume", "--prompt", "secret words", recording)
    soundfile.write(recording, sounds(SHORT, 6), RATE, subtype="FLOAT")
    changed = cli(*cli.plain, "--resume", recording)
    for done, what in ((other, "option prompt"), (changed, "mtime_ns")):
        assert (done.code, done.out) == (exits.PIPELINE, "")
        (complaint,) = done.err.splitlines()
        assert str(journal) in complaint
        assert what in complaint
        assert "secret" not in complaint
    assert journal.read_bytes() == kept


@pytest.mark.fault(39)
def test_a_journal_on_a_full_disk_fails_its_job_and_the_pipeline_goes_on(tiny: Path, tmp_path: Path) -> None:
    options = TranscribeOptions(**PLAIN)
    recording = tmp_path / "longer.wav"
    soundfile.write(recording, sounds(4 * SHORT, 5), RATE, subtype="FLOAT")
    wanted = Whisper.load(tiny).transcribe(recording, **PLAIN).text
    with (
        small_disk(kib=64) as disk,
        Pipeline(tiny, threads=1) as pipeline,
        pipeline.client() as client,
    ):
        (disk / "ballast").write_bytes(bytes(60 * 1024))
        journal = disk / "journal.jsonl"
        job = client.submit(str(recording), options=options, journal=str(journal))
        failed = list(client.follow(job))[-1]
        assert isinstance(failed, Failed)
        assert failed.code == "journal"
        assert "No space left" in failed.text
        job = client.submit(str(recording), options=options)
        assert list(client.follow(job))[-1].text == wanted  # type: ignore[union-attr]  # Done
        (disk / "ballast").unlink()  # there is room again: what was on the disk is still good
        job = client.submit(str(recording), options=options, journal=str(journal))
        assert list(client.follow(job))[-1].text == wanted  # type: ignore[union-attr]  # Done
