"""Many jobs, slow actors, the same job twice, cancelling at every moment: bounded, in order, one end each."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
import soundfile

from susurrus.actors import Client, Pipeline, PipelineError
from susurrus.actors.decoder import DecoderBehaviour
from susurrus.actors.encoder import EncoderBehaviour
from susurrus.actors.ledger import MAX_QUEUED
from susurrus.actors.status import ask
from susurrus.actors.view import JobEvent
from susurrus.protocol import Cancelled, Done, Failed, Partial, Segment, Started, Submit, TerminalEvent, Window, new_id
from tests.actors.fakes import OPTIONS, PATIENCE_S, PLAIN, RATE, sounds, with_plain
from tests.faults.conftest import QUICK, Start, text_of, transcribe
from tests.faults.scripted import Fault, release
from tests.faults.viewer import Viewer
from tests.run.conftest import wait_until

MIB = 1024 * 1024
IN_FLIGHT = EncoderBehaviour.windows_granted + DecoderBehaviour.windows_granted + 3
"""Windows between frontend and decoder at most: what each of the two receivers has granted and 1 more that it holds in
its hands, and the one that the frontend has prepared."""


@pytest.fixture(scope="module")
def pipeline(tiny: Path, runtime_parent: Path) -> Iterator[Pipeline]:
    """One for the tests that do not hurt it."""
    assert runtime_parent.is_dir()
    with Pipeline(tiny, threads=1) as pipeline:
        assert pipeline.wait_until_ready(PATIENCE_S)
        yield pipeline


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One window."""
    path = tmp_path_factory.mktemp("short") / "short.wav"
    soundfile.write(path, sounds(0.5, 3), RATE, subtype="FLOAT")
    return path


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some thirty windows."""
    path = tmp_path_factory.mktemp("long") / "long.wav"
    soundfile.write(path, sounds(24.0, 4), RATE, subtype="FLOAT")
    return path


def take(client: Client) -> JobEvent:
    event = client.receive(PATIENCE_S)
    assert event is not None
    return event


def ends_of(client: Client, count: int) -> Iterator[TerminalEvent]:
    """The terminal events of our jobs as they come."""
    while count:
        event = take(client)
        if isinstance(event, TerminalEvent):
            count -= 1
            yield event


# --- many -------------------------------------------------------------------------------------------------------


@pytest.mark.fault(35)
def test_a_thousand_jobs_keep_their_order_and_cost_no_memory_and_the_next_is_refused(
    tiny: Path, tmp_path: Path
) -> None:
    """Of a hundredth of a second each, so that it is the queue that is tried."""
    soundfile.write(tmp_path / "click.wav", sounds(0.01), RATE)
    with Pipeline(tiny, threads=1, limits=QUICK) as pipeline, pipeline.client() as client:
        frontend = pipeline.pids()["frontend"]
        os.kill(frontend, signal.SIGSTOP)
        jobs = [client.submit(str(tmp_path / "click.wav"), options=OPTIONS, group="g") for _ in range(MAX_QUEUED)]
        client.submit("one too many")
        with pytest.raises(PipelineError, match="try again later") as refused:
            client.receive(PATIENCE_S)
        assert refused.value.code == "busy"
        os.kill(frontend, signal.SIGCONT)
        memory: list[int] = []
        ended: list[bytes] = []
        for end in ends_of(client, MAX_QUEUED):
            assert isinstance(end, Done)
            ended.append(end.job)
            memory.append(psutil.Process().memory_info().rss)
    assert ended == jobs
    assert memory[-1] - memory[MAX_QUEUED // 4] < 4 * MIB


@pytest.mark.fault(35)
def test_a_short_job_does_not_wait_for_a_long_one_unless_it_belongs_to_it(
    start: Start, long: Path, short: Path, tmp_path: Path
) -> None:
    """The long one is held in its first window until the hub has both."""
    pipeline = start(Fault("decoder", "token", deed="hold", window=0))
    for group in ("", "together"):
        with pipeline.client() as client:
            first = client.submit(str(long), options=OPTIONS, group=group)
            events = [take(client)]
            second = client.submit(str(short), options=OPTIONS, group=group)
            if not group:
                wait_until(lambda: ask(pipeline.connection, PATIENCE_S).jobs["running"] == 2, "both jobs")
                release(tmp_path / "faults")
            while sum(isinstance(event, TerminalEvent) for event in events) < 2:
                events.append(take(client))
        ends = [event.job for event in events if isinstance(event, TerminalEvent)]
        assert ends == ([first, second] if group else [second, first])
        short_end = next(index for index, event in enumerate(events) if isinstance(event, Done) and event.job == second)
        done = sum(isinstance(event, Segment) and event.job == first for event in events[:short_end])
        total = sum(isinstance(event, Segment) and event.job == first for event in events)
        assert done == total if group else done < total / 2


@pytest.mark.fault(36)
@pytest.mark.parametrize("actor", ["decoder", "encoder"])
def test_behind_a_slow_actor_no_more_is_in_flight_than_was_granted(
    start: Start, long: Path, actor: str, tmp_path: Path
) -> None:
    """It begins its second window when another is announced, and stays slow."""
    held = Fault(actor, "begin", deed="hold", window=1)
    pipeline = start(held, Fault(actor, "begin", deed="slow", nth=0))
    announced = committed = most = 0
    for event in pipeline.transcribe(long, **PLAIN):
        announced += isinstance(event, Window)
        committed += isinstance(event, Segment)
        most = max(most, announced - committed)
        if most > 1:
            release(tmp_path / "faults")
    assert announced == committed > 20
    assert 1 < most <= IN_FLIGHT


# --- once -------------------------------------------------------------------------------------------------------


@pytest.mark.fault(37)
def test_a_job_that_is_submitted_again_is_answered_and_not_run_again(pipeline: Pipeline, short: Path) -> None:
    order = Submit(job=new_id(), source=str(short), name="short", options=OPTIONS)
    with Viewer.of(pipeline) as viewer:
        viewer.line.send(order)
        viewer.line.send(order)
        viewer.wait_for_end(order.job)
        viewer.line.send(order)
        other = Submit(job=new_id(), source=str(short), name="other", options=OPTIONS)
        viewer.line.send(other)  # whatever the third one came to would be seen before this one's end
        viewer.wait_for_end(other.job)
        viewer.wait(lambda: len(viewer.accepted) == 4)
        events = [event for event in viewer.events if getattr(event, "job", None) == order.job]
        assert [isinstance(event, Started) for event in events].count(True) == 1
        assert [isinstance(event, TerminalEvent) for event in events].count(True) == 1
        assert viewer.accepted.count(order.job) == 3


# --- cancelled --------------------------------------------------------------------------------------------------


@pytest.mark.fault(38)
def test_cancelled_at_every_event_twice_there_is_one_end(pipeline: Pipeline, short: Path) -> None:
    """At the last ones it races Done."""
    n_events = len(transcribe(pipeline, short))
    outcomes = set()
    with pipeline.client() as client:
        for at in range(n_events + 1):
            job, events = client.submit(str(short), options=OPTIONS), list[JobEvent]()
            while not events or not isinstance(events[-1], TerminalEvent):
                if len(events) == at:
                    client.cancel(job)
                    client.cancel(job)
                events.append(take(client))
                assert events[-1].job == job
            client.cancel(job)
            assert isinstance(events[-1], Cancelled | Done)
            assert [event.seq for event in events] == list(range(1, len(events) + 1))
            outcomes.add(type(events[-1]))
        last = client.submit(str(short), options=OPTIONS)
        (end,) = ends_of(client, 1)
        assert (end.job, type(end)) == (last, Done)
    assert Cancelled in outcomes


@pytest.mark.fault(38)
def test_a_job_that_waits_in_the_queue_is_cancelled_at_once(start: Start, long: Path, short: Path) -> None:
    pipeline = start(Fault("decoder", "token", deed="wait", window=0, nth=2, prompt="busy"))
    with pipeline.client() as client:
        busy = client.submit(str(long), options=replace(OPTIONS, prompt="busy"), group="one")
        waiting = [client.submit(str(short), options=OPTIONS, group="one") for _ in range(3)]
        client.cancel(waiting[1])
        (end,) = ends_of(client, 1)
        assert isinstance(end, Cancelled)
        assert (end.job, end.seq) == (waiting[1], 1)
        client.cancel(busy)
        ends = list(ends_of(client, 3))
        assert [(end.job, type(end)) for end in ends] == [
            (busy, Cancelled),
            (waiting[0], Done),
            (waiting[2], Done),
        ]


@pytest.mark.fault(38)
def test_the_decoder_stops_within_a_token(
    start: Start, long: Path, clip: Path, undisturbed: str, tmp_path: Path
) -> None:
    """It is held at its third token until it has heard of the cancelling, and its tokens are counted."""
    held = Fault("decoder", "token", deed="wait", window=0, nth=3, prompt="long")
    counted = Fault("decoder", "token", deed="count", nth=0, prompt="long")
    pipeline = start(counted, held)
    events = pipeline.transcribe(long, **with_plain({"prompt": "long"}))
    partials = 0
    for event in events:
        partials += isinstance(event, Partial)
        if partials == 3:
            break
    events.close()  # cancels
    assert text_of(transcribe(pipeline, clip)) == undisturbed
    assert 3 <= len((tmp_path / "faults" / "count").read_text()) <= 4


@pytest.mark.fault(38)
def test_a_deadline_ends_a_job_in_whatever_state_and_no_other(
    start: Start, long: Path, clip: Path, undisturbed: str
) -> None:
    pipeline = start(Fault("decoder", "token", deed="wait", window=0, nth=3, prompt="held"))
    assert pipeline.wait_until_ready(PATIENCE_S)
    with pipeline.client() as client:
        held = replace(OPTIONS, prompt="held")
        running = client.submit(str(long), options=held, group="one", deadline_s=1.0)
        queued = client.submit(str(long), options=OPTIONS, group="one", deadline_s=0.5)
        ends = list(ends_of(client, 2))
        assert {end.job for end in ends} == {running, queued}
        for end in ends:
            assert isinstance(end, Failed)
            assert end.code == "deadline"
        patient = client.submit(str(clip), options=OPTIONS, deadline_s=600.0)
        (end,) = ends_of(client, 1)
        assert isinstance(end, Done)
        assert (end.job, end.text) == (patient, undisturbed)
