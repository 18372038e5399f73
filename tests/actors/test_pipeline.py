"""A pipeline of real processes: its text, its errors, its ends, and the hosts it has to live in."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
import stat
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from pathlib import Path
from typing import Any, cast

import numpy as np
import psutil
import pytest
import soundfile

from susurrus.actors import Pipeline, PipelineError
from susurrus.actors.line import STATIONS
from susurrus.actors.supervisor import Command
from susurrus.actors.view import JobEvent
from susurrus.models import OptionError, Whisper
from susurrus.models.options import OptionFields
from susurrus.protocol import (
    Cancelled,
    Connection,
    Done,
    Failed,
    Partial,
    Segment,
    Started,
    TerminalEvent,
    Window,
    newest_live,
)
from susurrus.protocol.runtime import is_live
from tests.actors.fakes import OPTIONS, PATIENCE_S, PLAIN, RATE, sounds, with_plain
from tests.conftest import SAMPLES

LONG = np.tile(sounds(40.0), 15)
"""Some 800 windows: the work is not over before a test comes to what it is about, which happens in the middle."""


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
    events = pipeline.transcribe(LONG, **PLAIN)
    job = next(event for event in events if isinstance(event, Partial)).job
    events.close()
    next_one = list(pipeline.transcribe(sounds(0.5), **PLAIN))
    assert done(next_one)
    states = {state.job: state for state in pipeline._engine.hub._ledger.snapshot().jobs}
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
        async with aclosing(cast("Any", pipeline.stream(LONG, **PLAIN))) as events:
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
    assert set(pids) == set(STATIONS)
    assert pipeline.start() is pipeline
    assert pipeline.pids() == pids


def test_another_program_finds_the_pipeline(
    pipeline: Pipeline, runtime_parent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("susurrus.protocol.connection.candidates", lambda: [runtime_parent])  # others' may be newer
    found = newest_live()
    assert found == pipeline.connection
    path = pipeline.connection.folder / "connection.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert Connection.read(path) == pipeline.connection


def test_an_idle_pipeline_uses_no_processor(pipeline: Pipeline) -> None:
    list(pipeline.transcribe(sounds(2.0), **PLAIN))
    children = [psutil.Process(pid) for pid in pipeline.pids().values()]
    hub = pipeline._engine.thread
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


def test_a_pipeline_can_be_closed_while_another_thread_iterates(tiny: Path) -> None:
    with Pipeline(tiny) as pipeline, ThreadPoolExecutor(1) as pool:
        begun = threading.Event()

        def iterate() -> None:
            for event in pipeline.transcribe(LONG, **PLAIN):
                if isinstance(event, Partial):
                    begun.set()

        iterating = pool.submit(iterate)
        assert begun.wait(PATIENCE_S)
        pipeline.close()
        with pytest.raises(PipelineError, match="stopped"):
            iterating.result(PATIENCE_S)


# --- loss (the rest is in tests/faults) --------------------------------------------------------------------------


def test_an_actor_that_is_killed_between_two_jobs_is_replaced(tiny: Path) -> None:
    with Pipeline(tiny) as pipeline:
        before = done(list(pipeline.transcribe(sounds(0.5), **PLAIN))).text
        lost = pipeline.pids()["decoder"]
        os.kill(lost, signal.SIGTERM)
        assert done(list(pipeline.transcribe(sounds(0.5), **PLAIN))).text == before
        while pipeline.pids().get("decoder") in (None, lost):  # the job may have been done before it ended
            pipeline.raise_if_ended()


def test_a_pipeline_that_is_told_to_kill_its_actors_ends_and_says_so(tiny: Path) -> None:
    with Pipeline(tiny) as pipeline:
        events = pipeline.transcribe(LONG, **PLAIN)
        next(events)
        pipeline.kill()
        with pytest.raises(PipelineError, match="killed"):
            list(events)


def test_an_interpreter_that_is_not_there_is_an_error_and_leaves_nothing(tiny: Path) -> None:
    with pytest.raises(OSError, match="no-such-python"):
        Pipeline(tiny, python="/no-such-python").start()


# --- places -----------------------------------------------------------------------------------------------------


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


def test_a_pipeline_closes_though_its_console_never_came_so_far_as_to_subscribe(tiny: Path) -> None:
    with Pipeline(tiny, console=Command("console", ())) as pipeline:
        pass
    assert pipeline.pids() == {}
