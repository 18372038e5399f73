"""A pipeline of real processes: its text, its errors, its ends, and the hosts it has to live in."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from pathlib import Path
from typing import Any, cast

import numpy as np
import psutil
import pytest
import soundfile

from susurrus.actors import Client, Pipeline, PipelineError
from susurrus.actors.hub import LINE
from susurrus.actors.supervisor import Command
from susurrus.actors.view import JobEvent
from susurrus.models import ModelError, OptionError, Whisper
from susurrus.models.options import OptionFields
from susurrus.protocol import (
    Cancelled,
    Connection,
    Done,
    Failed,
    Partial,
    RuntimeFolderError,
    Segment,
    Started,
    TerminalEvent,
    Window,
    newest_live,
)
from susurrus.protocol.runtime import is_live
from tests.actors.fakes import OPTIONS, PATIENCE_S, PLAIN, RATE, sounds, with_plain
from tests.conftest import SAMPLES

LONG = 40.0  # seconds: some 50 windows, so that there is a middle of the work


@pytest.fixture(scope="module")
def pipeline(tiny: Path, runtime_parent: Path) -> Iterator[Pipeline]:
    """One that many tests use, one after another; none of them hurts it."""
    assert runtime_parent.is_dir()
    with Pipeline(tiny) as pipeline:
        assert pipeline.wait_until_ready(PATIENCE_S)
        yield pipeline


@pytest.fixture(scope="module")
def whisper(tiny: Path) -> Whisper:
    """The same model in this process."""
    return Whisper.load(tiny)


def done(events: list[JobEvent]) -> Done:
    assert isinstance(events[-1], Done), events[-1]
    return events[-1]


# --- what a job gives -------------------------------------------------------------------------------------------


def test_events_come_in_the_order_of_the_protocol(pipeline: Pipeline) -> None:
    events = list(pipeline.transcribe(sounds(9.0), **PLAIN))
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert isinstance(events[0], Started)
    assert done(events)
    assert not any(isinstance(event, Started | TerminalEvent) for event in events[1:-1])
    announced: list[int] = []
    committed: list[int] = []
    for event in events:
        if isinstance(event, Window):
            announced.append(event.window)
        elif isinstance(event, Partial):
            assert event.window == len(committed)
            assert event.window in announced
        elif isinstance(event, Segment):
            committed.append(event.window)
    assert announced == committed == list(range(len(announced)))
    assert len(announced) > 5


def test_a_partial_replaces_the_one_before_and_keeps_what_was_stable(pipeline: Pipeline) -> None:
    events = [event for event in pipeline.transcribe(sounds(3.0), **PLAIN) if isinstance(event, Partial | Segment)]
    for _, group in itertools.groupby(events, key=lambda event: event.window):
        *partials, segment = group
        assert isinstance(segment, Segment)
        assert partials
        for partial in partials:
            assert isinstance(partial, Partial)
            assert segment.text.startswith(partial.text[: partial.stable])
            assert segment.tokens[: len(partial.tokens)] == partial.tokens


@pytest.mark.parametrize(
    "wish",
    [
        {},
        {"language": "German"},
        {"language": "en", "prompt": "as it was said"},
        {"language": "de", "task": "translate"},
    ],
    ids=str,
)
def test_the_text_is_that_of_the_same_model_in_process(
    pipeline: Pipeline, whisper: Whisper, wish: OptionFields
) -> None:
    silence = np.zeros(3 * RATE, np.float32)
    samples = np.concatenate([silence, sounds(5.0, 1), silence, sounds(3.0, 2)])
    transcript = whisper.transcribe(samples, **with_plain(wish))
    events = list(pipeline.transcribe(samples, **with_plain(wish)))
    end = done(events)
    assert end.text == transcript.text != ""
    assert (end.language, end.language_probability) == (transcript.language, transcript.language_probability)
    assert end.duration == transcript.duration == 14.0
    segments = [event for event in events if isinstance(event, Segment)]
    wanted = [(s.start, s.end, s.text, s.decoded.tokens, s.language) for s in transcript.segments]
    assert [(s.start, s.end, s.text, s.tokens, s.language) for s in segments] == wanted


def test_seventy_seconds_lose_no_window(pipeline: Pipeline, whisper: Whisper, tmp_path: Path) -> None:
    samples = sounds(70.0)
    soundfile.write(tmp_path / "long.flac", samples, RATE)
    events = list(pipeline.transcribe(tmp_path / "long.flac", **PLAIN))
    assert done(events).text == whisper.transcribe(tmp_path / "long.flac", **PLAIN).text
    assert sum(isinstance(event, Segment) for event in events) > 70


def test_speech_is_understood_in_processes_as_it_is_in_one(base: Path) -> None:
    transcript = Whisper.load(base).transcribe(SAMPLES / "jfk.wav")
    with Pipeline(base) as pipeline:
        events = list(pipeline.transcribe(SAMPLES / "jfk.wav"))
    assert done(events).text == transcript.text
    assert "ask what you can do for your country" in transcript.text
    segments = [event for event in events if isinstance(event, Segment)]
    assert [segment.tokens for segment in segments] == [each.decoded.tokens for each in transcript.segments]
    cues = [(cue.start, cue.end, cue.text) for segment in segments for cue in segment.cues]
    assert cues == [(cue.start, cue.end, cue.text) for each in transcript.segments for cue in each.cues]
    assert done(events).coverage == transcript.coverage
    assert done(events).speech_s == transcript.speech_s


def test_samples_and_their_file_give_the_same(pipeline: Pipeline, tmp_path: Path) -> None:
    samples = sounds(2.5)
    path = tmp_path / "にっぽん é.wav"
    soundfile.write(path, samples, RATE, subtype="FLOAT")
    from_samples, from_file = (list(pipeline.transcribe(audio, **PLAIN)) for audio in (samples, path))
    assert done(from_samples).text == done(from_file).text
    assert isinstance(from_file[0], Started)
    assert from_file[0].name == str(path)


def test_a_path_means_what_it_means_here_though_the_working_directory_has_changed(
    pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    soundfile.write(tmp_path / "clip.wav", sounds(0.5), RATE)
    monkeypatch.chdir(tmp_path)
    assert done(list(pipeline.transcribe("clip.wav", **PLAIN))).duration == pytest.approx(0.5)


def test_samples_leave_no_file_behind(pipeline: Pipeline) -> None:
    before = set(pipeline.connection.folder.iterdir())
    events = pipeline.transcribe(sounds(0.5), **PLAIN)
    next(events)
    assert set(pipeline.connection.folder.iterdir()) - before
    list(events)
    assert set(pipeline.connection.folder.iterdir()) == before


@pytest.mark.parametrize("n_samples", [0, 1, 399])
def test_audio_too_short_for_speech_is_done_with_a_warning(pipeline: Pipeline, tmp_path: Path, n_samples: int) -> None:
    path = tmp_path / "short.wav"
    soundfile.write(path, sounds(1.0)[:n_samples], RATE)
    for audio in (path, sounds(1.0)[:n_samples]):
        end = done(list(pipeline.transcribe(audio, **PLAIN)))
        assert end.text == ""
        assert "too short" in end.warnings[0]


def test_silence_is_done_at_once_with_empty_text(pipeline: Pipeline) -> None:
    events = list(pipeline.transcribe(np.zeros(20 * RATE, np.float32), **PLAIN))
    assert (done(events).text, done(events).language, done(events).duration) == ("", "", 20.0)
    assert not any(isinstance(event, Partial) for event in events)


# --- several jobs -----------------------------------------------------------------------------------------------


def test_jobs_that_are_queued_are_done_in_their_order(pipeline: Pipeline, whisper: Whisper, tmp_path: Path) -> None:
    clips = [sounds(1.0 + index / 3, seed=index) for index in range(5)]
    with pipeline.client() as client:
        jobs = []
        for index, clip in enumerate(clips):
            path = tmp_path / f"{index}.wav"
            soundfile.write(path, clip, RATE, subtype="FLOAT")
            jobs.append(client.submit(str(path), options=OPTIONS))
        ends: dict[bytes, Done] = {}
        while len(ends) < len(jobs):
            event = client.receive(PATIENCE_S)
            assert event is not None
            assert not isinstance(event, Failed | Cancelled)
            if isinstance(event, Done):
                ends[event.job] = event
    assert list(ends) == jobs
    assert [ends[job].text for job in jobs] == [whisper.transcribe(clip, **PLAIN).text for clip in clips]


def test_threads_that_transcribe_at_the_same_time_get_each_its_own(pipeline: Pipeline, whisper: Whisper) -> None:
    clips = [sounds(1.5, seed=index) for index in range(6)]
    with ThreadPoolExecutor(6) as pool:
        texts = list(pool.map(lambda clip: done(list(pipeline.transcribe(clip, **PLAIN))).text, clips))
    assert texts == [whisper.transcribe(clip, **PLAIN).text for clip in clips]


def test_an_unreadable_file_fails_its_job_alone(pipeline: Pipeline, tmp_path: Path) -> None:
    (tmp_path / "noise.wav").write_bytes(b"RIFF\x24\0\0\0WAVEfmt \x10\0\0\0")
    for path in (tmp_path / "missing.wav", tmp_path / "noise.wav", tmp_path):
        events = list(pipeline.transcribe(path, **PLAIN))
        assert isinstance(events[-1], Failed)
        assert events[-1].code == "audio"
        assert path.name in events[-1].text
    assert done(list(pipeline.transcribe(sounds(0.5), **PLAIN)))


def test_a_name_that_is_no_text_fails_its_job_alone(pipeline: Pipeline, tmp_path: Path) -> None:
    with contextlib.suppress(OSError):
        (tmp_path / "caf\udce9.wav").write_bytes(b"")
    with pytest.raises(Exception, match="surrogate"):
        list(pipeline.transcribe(tmp_path / "caf\udce9.wav", **PLAIN))
    assert done(list(pipeline.transcribe(sounds(0.5), **PLAIN)))


def test_leaving_the_iteration_early_cancels_the_job(pipeline: Pipeline) -> None:
    events = pipeline.transcribe(sounds(LONG), **PLAIN)
    job = next(event for event in events if isinstance(event, Partial)).job
    events.close()
    next_one = list(pipeline.transcribe(sounds(0.5), **PLAIN))
    assert done(next_one)
    states = {state.job: state for state in pipeline._hub._ledger.snapshot().jobs}
    assert isinstance(states[job].end, Cancelled)


@pytest.mark.parametrize(
    "wish", [{"language": "Klingon"}, {"language": "fr"}, {"task": "summarise"}], ids=lambda wish: str(*wish.values())
)
def test_wishes_the_model_cannot_fulfil_are_refused_before_any_work(pipeline: Pipeline, wish: OptionFields) -> None:
    with pytest.raises(OptionError):
        list(pipeline.transcribe(sounds(0.5), **with_plain(wish)))


@pytest.mark.parametrize("samples", [np.zeros((9, 2), np.float32), np.zeros(9), np.array([np.nan], np.float32)])
def test_arrays_that_are_no_audio_are_refused_before_any_work(pipeline: Pipeline, samples: Any) -> None:
    with pytest.raises(OptionError, match="audio array"):
        list(pipeline.transcribe(samples, **PLAIN))


def test_nothing_is_lost_by_who_attaches_when_a_short_clip_is_submitted(pipeline: Pipeline) -> None:
    clip = sounds(0.4)
    wanted = done(list(pipeline.transcribe(clip, **PLAIN))).text
    ready = threading.Barrier(2)

    def watch() -> list[str]:
        """Attach at the same moment; see somebody else's job as a console would."""
        ready.wait()
        with Client(pipeline.connection) as watcher:
            views = watcher._view.jobs
            while not any(isinstance(view.end, Done) for view in views.values() if view.job not in known):
                watcher.receive(0.05)
            return [view.text for view in views.values() if view.job not in known]

    for _ in range(20):
        known = {state.job for state in pipeline._hub._ledger.snapshot().jobs}
        with ThreadPoolExecutor(1) as pool:
            seen = pool.submit(watch)
            ready.wait()
            events = list(pipeline.transcribe(clip, **PLAIN))
            assert done(events).text == wanted
            assert [event.text for event in events if isinstance(event, Segment)] == [f" {wanted}"]
            assert [isinstance(event, TerminalEvent) for event in events].count(True) == 1
            assert seen.result(PATIENCE_S) == [wanted]


# --- asyncio ----------------------------------------------------------------------------------------------------


def test_asyncio_gets_the_same_events(pipeline: Pipeline) -> None:
    async def main() -> list[JobEvent]:
        async with asyncio.timeout(PATIENCE_S):
            return [event async for event in pipeline.stream(sounds(2.0), **PLAIN)]

    assert done(asyncio.run(main())).text == done(list(pipeline.transcribe(sounds(2.0), **PLAIN))).text


def test_asyncio_jobs_run_beside_each_other_and_can_be_cancelled_while_they_wait(pipeline: Pipeline) -> None:
    async def text(seed: int) -> str:
        return [event async for event in pipeline.stream(sounds(1.0, seed), **PLAIN)][-1].text  # type: ignore[union-attr]  # Done

    async def wait_in_the_queue() -> None:
        async with aclosing(cast("Any", pipeline.stream(sounds(LONG), **PLAIN))) as events:
            async for _ in events:
                queued.set()

    queued = asyncio.Event()

    async def main() -> list[str]:
        async with asyncio.timeout(PATIENCE_S):
            busy = asyncio.create_task(wait_in_the_queue())
            await queued.wait()
            waiting = asyncio.create_task(wait_in_the_queue())
            await asyncio.sleep(0)
            for task in (waiting, busy):
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            return await asyncio.gather(*(text(seed) for seed in range(3)))

    assert len(set(asyncio.run(main()))) == 3


def test_asyncio_gets_the_errors_too(pipeline: Pipeline) -> None:
    async def main() -> None:
        async for _ in pipeline.stream(sounds(0.5), language="Klingon"):
            pass

    with pytest.raises(OptionError):
        asyncio.run(main())


# --- life -------------------------------------------------------------------------------------------------------


def test_a_pipeline_is_started_once_and_says_when_it_is_ready(pipeline: Pipeline) -> None:
    assert pipeline.wait_until_ready(PATIENCE_S)
    pids = pipeline.pids()
    assert set(pids) == set(LINE)
    assert pipeline.start() is pipeline
    assert pipeline.pids() == pids


def test_another_program_finds_the_pipeline(pipeline: Pipeline) -> None:
    found = newest_live()
    assert found == pipeline.connection
    path = pipeline.connection.folder / "connection.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert Connection.read(path) == pipeline.connection


def test_an_idle_pipeline_uses_no_processor(pipeline: Pipeline) -> None:
    list(pipeline.transcribe(sounds(2.0), **PLAIN))
    children = [psutil.Process(pid) for pid in pipeline.pids().values()]
    hub = pipeline._thread
    assert hub is not None

    def used() -> float:
        total = sum(child.cpu_times().user + child.cpu_times().system for child in children)
        here = {thread.id: thread for thread in psutil.Process().threads()}[hub.native_id or 0]
        return float(total + here.user_time + here.system_time)

    shares = []
    for _ in range(3):  # the best of three: a machine that does other things can spoil one
        before, started = used(), time.monotonic()
        threading.Event().wait(1.0)
        shares.append((used() - before) / (time.monotonic() - started))
    assert min(shares) < 0.02


def test_an_unstarted_pipeline_says_so(tiny: Path) -> None:
    pipeline = Pipeline(tiny)
    pipeline.close()
    assert not pipeline.interrupt()
    with pytest.raises(PipelineError, match="not started"):
        next(pipeline.transcribe(sounds(0.5), **PLAIN))


def test_a_closed_pipeline_stays_closed_and_says_so(tiny: Path) -> None:
    pipeline = Pipeline(tiny)
    with pipeline:
        assert done(list(pipeline.transcribe(sounds(0.5), **PLAIN)))
        client = pipeline.client()  # left open: it must not keep the pipeline from closing
    pipeline.close()
    pipeline.close()
    assert pipeline.pids() == {}
    assert not is_live(pipeline.connection.folder)
    for use in (pipeline.start, pipeline.client, lambda: next(pipeline.transcribe(sounds(0.5), **PLAIN))):
        with pytest.raises(PipelineError, match="stopped"):
            use()
    with pytest.raises(PipelineError, match="stopped"):
        client.receive()
    client.close()


def test_an_exception_inside_the_block_closes_everything_and_passes(tiny: Path) -> None:
    pipeline = Pipeline(tiny)
    events = pipeline.transcribe(sounds(LONG), **PLAIN)

    def use() -> None:
        with pipeline:
            next(events)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        use()
    assert pipeline.pids() == {}
    with pytest.raises(PipelineError, match="stopped"):
        list(events)


def test_a_pipeline_can_be_closed_while_another_thread_iterates(tiny: Path) -> None:
    with Pipeline(tiny) as pipeline, ThreadPoolExecutor(1) as pool:
        begun = threading.Event()

        def iterate() -> None:
            for event in pipeline.transcribe(sounds(LONG), **PLAIN):
                if isinstance(event, Partial):
                    begun.set()

        iterating = pool.submit(iterate)
        assert begun.wait(PATIENCE_S)
        pipeline.close()
        with pytest.raises(PipelineError, match="stopped"):
            iterating.result(PATIENCE_S)


def test_a_pipeline_lives_in_any_thread(tiny: Path) -> None:
    def live() -> str:
        with Pipeline(tiny) as pipeline:
            return done(list(pipeline.transcribe(sounds(0.5), **PLAIN))).text

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(live).result(PATIENCE_S)


def test_five_pipelines_started_in_the_same_second_do_not_meet(tiny: Path, whisper: Whisper) -> None:
    def live(seed: int) -> str:
        with Pipeline(tiny, threads=1) as pipeline:
            return done(list(pipeline.transcribe(sounds(0.9, seed), **PLAIN))).text

    with ThreadPoolExecutor(5) as pool:
        texts = list(pool.map(live, range(5)))
    assert texts == [whisper.transcribe(sounds(0.9, seed), **PLAIN).text for seed in range(5)]


# --- loss -------------------------------------------------------------------------------------------------------


def test_an_actor_that_is_killed_while_it_starts_is_named(tiny: Path) -> None:
    with Pipeline(tiny) as pipeline:
        os.kill(pipeline.pids()["encoder"], signal.SIGKILL)
        with pytest.raises(PipelineError, match="encoder was killed by SIGKILL") as raised:
            pipeline.wait_until_ready()
        assert raised.value.code == "actor_lost"
        with pytest.raises(PipelineError, match="encoder was killed"):
            next(pipeline.transcribe(sounds(0.5), **PLAIN))


@pytest.mark.parametrize("name", LINE)
def test_an_actor_that_is_killed_in_the_middle_of_a_job_is_named(tiny: Path, name: str) -> None:
    with Pipeline(tiny) as pipeline:
        events = pipeline.transcribe(sounds(LONG), **PLAIN)
        while not isinstance(next(events), Segment):
            pass
        os.kill(pipeline.pids()[name], signal.SIGKILL)
        with pytest.raises(PipelineError, match=f"{name} was killed by SIGKILL") as raised:
            list(events)
        assert raised.value.code == "actor_lost"
        pipeline.close()
        assert pipeline.pids() == {}


def test_an_actor_that_is_killed_between_two_jobs_is_named_at_the_next(tiny: Path) -> None:
    with Pipeline(tiny) as pipeline:
        assert done(list(pipeline.transcribe(sounds(0.5), **PLAIN)))
        os.kill(pipeline.pids()["decoder"], signal.SIGTERM)
        with pytest.raises(PipelineError, match="decoder ended") as raised:
            list(itertools.chain.from_iterable(pipeline.transcribe(sounds(0.5), **PLAIN) for _ in range(1000)))
        assert raised.value.code == "actor_lost"


def test_all_actors_killed_at_once_is_one_error(tiny: Path) -> None:
    with Pipeline(tiny) as pipeline:
        events = pipeline.transcribe(sounds(LONG), **PLAIN)
        next(events)
        pipeline.kill()
        with pytest.raises(PipelineError, match="was killed by SIGKILL"):
            list(events)


def damaged(model: Path, copy: Path, name: str, change: Callable[[Path], object]) -> Path:
    shutil.copytree(model, copy)
    change(copy / name)
    return copy


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("name", ["int8/weights.bin", "int8/decoder.onnx"])
def test_a_damaged_model_file_is_named_before_any_text(tiny: Path, tmp_path: Path, name: str) -> None:
    with Pipeline(damaged(tiny, tmp_path / "модель", name, flip)) as pipeline:
        with pytest.raises(PipelineError, match=Path(name).name) as raised:
            next(event for event in pipeline.transcribe(sounds(2.0), **PLAIN) if isinstance(event, Partial | Segment))
        assert raised.value.code == "model"


@pytest.mark.parametrize("name", ["int8/weights.bin", "model.json", "manifest.json"])
def test_a_missing_model_file_is_an_error_at_once(tiny: Path, tmp_path: Path, name: str) -> None:
    with pytest.raises(ModelError, match=Path(name).name):
        Pipeline(damaged(tiny, tmp_path / "model", name, Path.unlink)).start()


def test_a_manifest_that_is_damaged_after_the_start_ends_the_pipeline(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def verify(*_: object) -> None:
        raise ModelError("manifest.json is damaged")

    monkeypatch.setattr("susurrus.actors.pipeline.verify", verify)
    with (
        Pipeline(tiny) as pipeline,
        pytest.raises(PipelineError, match="manifest") as raised,
    ):
        list(pipeline.transcribe(sounds(0.5), **PLAIN))
    assert raised.value.code == "model"


def test_an_interpreter_that_is_not_there_is_an_error_and_leaves_nothing(tiny: Path) -> None:
    with pytest.raises(OSError, match="no-such-python"):
        Pipeline(tiny, python="/no-such-python").start()


# --- places -----------------------------------------------------------------------------------------------------


def test_a_deep_temporary_folder_with_spaces_and_accents_is_passed_over(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / ("ein Ordner é " * 9) / ("x" * 60)
    deep.mkdir(parents=True)
    monkeypatch.setenv("TMPDIR", str(deep))
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    with Pipeline(tiny) as pipeline:
        assert done(list(pipeline.transcribe(sounds(0.5), **PLAIN)))
        assert len(os.fsencode(pipeline.connection.folder)) < 60
    monkeypatch.setattr(tempfile, "tempdir", None)


@pytest.mark.parametrize("mode", [0o777, None])
def test_an_unusable_runtime_folder_is_passed_over(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int | None
) -> None:
    place = tmp_path / "run"
    if mode is not None:
        place.mkdir()
        place.chmod(mode)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(place))
    pipeline = Pipeline(tiny)
    with pipeline:
        assert place not in pipeline.connection.folder.parents
        pipeline.wait_until_ready()


def test_no_place_for_the_sockets_at_all_is_one_sentence_and_leaves_nothing(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("susurrus.protocol.runtime.candidates", lambda: [Path("/nowhere")])
    with pytest.raises(RuntimeFolderError, match="XDG_RUNTIME_DIR"):
        Pipeline(tiny).start()


def test_loopback_tcp_gives_the_same_text(tiny: Path, whisper: Whisper, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUSURRUS_TRANSPORT", "tcp")
    with Pipeline(tiny) as pipeline:
        assert pipeline.connection.hub.startswith("tcp://127.0.0.1:")
        assert pipeline.connection.transport.security.public
        events = list(pipeline.transcribe(sounds(2.5), **PLAIN))
    assert done(events).text == whisper.transcribe(sounds(2.5), **PLAIN).text


# --- processors -------------------------------------------------------------------------------------------------


def threads_of(pipeline: Pipeline) -> dict[str, int]:
    return {name: psutil.Process(pid).num_threads() for name, pid in pipeline.pids().items()}


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="CPU sets are Linux's")
def test_one_processor_means_one_thread_in_every_session(tiny: Path, capfd: pytest.CaptureFixture[str]) -> None:
    processors = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(processors)})  # not the first: pinning threads to it would fail
    try:
        with Pipeline(tiny) as pipeline:
            assert pipeline.connection.settings.threads == 1
            assert done(list(pipeline.transcribe(sounds(0.5), **PLAIN)))
            few = threads_of(pipeline)
    finally:
        os.sched_setaffinity(0, processors)
    with Pipeline(tiny, threads=3) as pipeline:
        assert pipeline.connection.settings.threads == 3
        assert done(list(pipeline.transcribe(sounds(0.5), **PLAIN)))
        many = threads_of(pipeline)
    assert many["encoder"] - few["encoder"] == 2  # of one session
    assert many["decoder"] - few["decoder"] == 2 * 2  # of two sessions, which never run at the same time
    assert many["frontend"] == few["frontend"]
    assert capfd.readouterr().err == ""


# --- hosts ------------------------------------------------------------------------------------------------------


def run_host(tmp_path: Path, script: str, *arguments: str, expect: int = 0) -> str:
    """Run a program of somebody's; give its output."""
    path = tmp_path / "host.py"
    path.write_text(textwrap.dedent(script))
    command = [sys.executable, "-W", "error", str(path), *arguments]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path)
    assert result.returncode == expect, result.stderr
    assert result.stderr == ""
    return result.stdout


@pytest.fixture
def clip(tmp_path: Path) -> Path:
    path = tmp_path / "clip.wav"
    soundfile.write(path, sounds(0.5), RATE)
    return path


def test_a_script_without_a_main_guard_can_use_a_pipeline(tiny: Path, tmp_path: Path, clip: Path) -> None:
    script = """
        import sys
        from susurrus.actors import Pipeline
        with Pipeline(__import__("pathlib").Path(sys.argv[1])) as pipeline:
            print([type(event).__name__ for event in pipeline.transcribe(sys.argv[2])][-1])
    """
    assert run_host(tmp_path, script, str(tiny), str(clip)) == "Done\n"


def test_a_daemonic_worker_can_use_a_pipeline(tiny: Path, tmp_path: Path, clip: Path) -> None:
    script = """
        import multiprocessing, sys
        from pathlib import Path
        from susurrus.actors import Pipeline

        def work(model, clip, queue):
            with Pipeline(Path(model)) as pipeline:
                queue.put([type(event).__name__ for event in pipeline.transcribe(clip)][-1])

        if __name__ == "__main__":
            context = multiprocessing.get_context("spawn")
            queue = context.Queue()
            worker = context.Process(target=work, args=(*sys.argv[1:3], queue), daemon=True)
            worker.start()
            print(queue.get(timeout=50))
            worker.join()
    """
    assert run_host(tmp_path, script, str(tiny), str(clip)) == "Done\n"


def test_a_host_with_zeromq_sessions_and_forks_of_its_own_can_use_a_pipeline(
    tiny: Path, tmp_path: Path, clip: Path
) -> None:
    script = """
        import os, sys
        from pathlib import Path
        import onnxruntime, zmq
        from susurrus.actors import Pipeline

        context = zmq.Context.instance()
        socket = context.socket(zmq.PUB)
        socket.bind("inproc://host")
        session = onnxruntime.InferenceSession(str(Path(sys.argv[1]) / "int8" / "self_test.onnx"))

        def last(pipeline):
            return [type(event).__name__ for event in pipeline.transcribe(sys.argv[2])][-1]

        def forked(what):
            pid = os.fork()
            if pid == 0:
                what()
                os._exit(0)
            assert os.waitpid(pid, 0)[1] == 0

        def child():
            with Pipeline(Path(sys.argv[1])) as pipeline:
                assert last(pipeline) == "Done"

        forked(child)
        with Pipeline(Path(sys.argv[1])) as pipeline:
            assert last(pipeline) == "Done"
            forked(lambda: None)
            print(last(pipeline))
        assert zmq.Context.instance() is context and not context.closed and not socket.closed
        socket.close()
        context.term()
    """
    assert run_host(tmp_path, script, str(tiny), str(clip)) == "Done\n"


def test_an_interpreter_that_exits_with_its_pipeline_open_leaves_nothing(
    tiny: Path, tmp_path: Path, clip: Path
) -> None:
    script = """
        import sys
        from pathlib import Path
        from susurrus.actors import Pipeline
        pipeline = Pipeline(Path(sys.argv[1])).start()
        events = pipeline.transcribe(sys.argv[2])
        next(events)
        print(pipeline.connection.folder, *pipeline.pids().values())
    """
    folder, *pids = run_host(tmp_path, script, str(tiny), str(clip)).split()
    assert not Path(folder).exists()
    assert len(pids) == 3
    assert not any(psutil.pid_exists(int(pid)) for pid in pids)


def test_a_host_that_is_killed_takes_its_actors_along_and_the_next_start_cleans_up(tiny: Path, tmp_path: Path) -> None:
    script = """
        import sys
        from pathlib import Path
        from susurrus.actors import Pipeline
        pipeline = Pipeline(Path(sys.argv[1])).start()
        pipeline.wait_until_ready()
        print(pipeline.connection.folder, *pipeline.pids().values(), flush=True)
        sys.stdin.read()
    """
    (tmp_path / "host.py").write_text(textwrap.dedent(script))
    command = [sys.executable, str(tmp_path / "host.py"), str(tiny)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as host:
        assert host.stdout is not None
        folder, *pids = host.stdout.readline().split()
        ends = [os.pidfd_open(int(pid)) for pid in pids]
        host.kill()
    for end in ends:
        wait_for_end(end)
    assert not is_live(Path(folder))
    with pytest.raises(PipelineError):
        Client(Connection.read(Path(folder) / "connection.json"))
    with Pipeline(tiny):
        assert not Path(folder).exists()


def wait_for_end(descriptor: int) -> None:
    """Wait for the end of a process that is nobody's child of ours."""
    import select  # noqa: PLC0415 - for Linux's pidfd alone

    assert select.select([descriptor], [], [], PATIENCE_S)[0]
    os.close(descriptor)


def test_a_pipeline_closes_though_its_console_never_came_so_far_as_to_subscribe(tiny: Path) -> None:
    with Pipeline(tiny, console=Command("console", ())) as pipeline:
        pass
    assert pipeline.pids() == {}
