"""Subscribers come late, read slowly, stop, die, lose events: they find their place, and disturb nobody."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from susurrus.actors import Client, Pipeline, PipelineError, exits
from susurrus.protocol import Connection, Done, Message, Partial, Publisher, Segment, Submit
from tests.actors.fakes import (
    PATIENCE_S,
    PLAIN,
    House,
    audio_end,
    partial,
    segment,
    settle,
    sounds,
    started,
    submit,
    window,
)
from tests.conftest import ROOT
from tests.faults.conftest import TinyCli, text_of, transcribe
from tests.faults.viewer import Viewer

MIB = 1024 * 1024


def resident() -> int:
    """Bytes of this process, which has the hub."""
    return int(psutil.Process().memory_info().rss)


def begin(house: House) -> bytes:
    """A job that is given out."""
    client = house.actor("client")
    order = submit()
    client.say(order)
    house.actors["frontend"].hear(Submit)
    return order.job


# --- late -------------------------------------------------------------------------------------------------------


@pytest.mark.fault(31)
def test_whoever_attaches_at_whichever_event_sees_the_same_in_the_end(house: House) -> None:
    house.start_line()
    frontend, decoder = house.actors["frontend"], house.actors["decoder"]
    with ExitStack() as resources:
        first = resources.enter_context(Viewer(house.connection, house.context))
        first.wait(lambda: first.is_live)
        job = begin(house)
        steps: list[tuple[Any, Message]] = [(frontend, started(job)), (frontend, window(job, 0))]
        for index in range(3):
            steps += [(decoder, partial(job, index, " so far"[:cut])) for cut in range(1, 8, 2)]
            steps += [(decoder, segment(job, index)), (frontend, window(job, index + 1))]
        steps += [(decoder, segment(job, 3)), (frontend, audio_end(job, 4))]
        viewers = [first]
        for speaker, report in steps:
            viewer = resources.enter_context(Viewer(house.connection, house.context))
            viewer.wait(lambda viewer=viewer: viewer.is_live)  # type: ignore[misc]
            viewers.append(viewer)
            speaker.say(report)
            settle(speaker)
        for viewer in viewers:
            viewer.wait_for_end(job)
        views = [viewer.view.jobs[job] for viewer in viewers]
        assert len(views) > 20
        assert isinstance(views[0].end, Done)
        assert all(view == views[0] for view in views)
        assert {viewer.snapshots for viewer in viewers} == {1}, "nothing was lost on the way"


@pytest.mark.fault(31)
def test_whoever_attaches_at_the_moment_of_a_short_job_sees_all_of_it(tiny: Path) -> None:
    ready = threading.Barrier(2)
    with Pipeline(tiny, threads=1) as pipeline, ThreadPoolExecutor(1) as pool:
        wanted = text_of(list(pipeline.transcribe(sounds(0.4), **PLAIN)))

        def watch(known: int) -> str:
            ready.wait()
            with Viewer(pipeline.connection) as viewer:
                viewer.wait(lambda: sum(isinstance(job.end, Done) for job in viewer.view.jobs.values()) > known)
                return list(viewer.view.jobs.values())[-1].text

        for known in range(1, 21):  # fewer than a snapshot has of those that have ended
            seen = pool.submit(watch, known)
            ready.wait()
            events = list(pipeline.transcribe(sounds(0.4), **PLAIN))
            assert text_of(events) == wanted
            assert [event.text for event in events if isinstance(event, Segment)] == [f" {wanted}"]
            assert seen.result(PATIENCE_S) == wanted


@pytest.mark.fault(34)
def test_consoles_that_attach_after_the_end_show_the_text_and_the_pipeline_goes_on(
    cli: TinyCli, tiny: Path, clip: Path, undisturbed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(cli.runtime))
    with Pipeline(tiny, threads=1) as pipeline:
        assert text_of(transcribe(pipeline, clip)) == undisturbed
        consoles = [
            cli.start("--attach", "--quiet", command=cli.here),
            cli.start("--attach", pipeline.connection_file, "--json"),
        ]
        assert consoles[0].out is not None
        assert consoles[0].out.wait_for(lambda _line: True) == undisturbed + "\n"
        state = consoles[1].wait_for_event("snapshot")["jobs"][0]
        assert state["end"]["text"] == undisturbed
        assert text_of(transcribe(pipeline, clip)) == undisturbed
    ended = [console.finish() for console in consoles]
    assert [(done.code, done.err) for done in ended] == [(exits.OK, "")] * 2
    assert ended[0].out == f"{undisturbed}\n" * 2
    assert [event["text"] for event in ended[1].of_type("done")] == [undisturbed]


@pytest.mark.fault(34)
def test_a_pipeline_that_is_dead_is_refused_at_once(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without an attempt to connect, after which one can only wait."""
    with Pipeline(tiny, threads=1) as pipeline:
        connection = pipeline.connection
        kept = connection.write(tmp_path / "kept.json")
    monkeypatch.setattr(Client, "_connect", lambda *_: pytest.fail("it tries to connect"))
    with pytest.raises(PipelineError, match="no pipeline lives"):
        Client(Connection.read(kept))
    done = subprocess.run(
        [sys.executable, "run.py", "--attach", str(kept)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (exits.PIPELINE, "")
    assert done.stderr.count("\n") == 1


@pytest.mark.fault(34)
def test_attached_and_left_a_hundred_times_the_hub_has_nobody_left(tiny: Path, clip: Path, undisturbed: str) -> None:
    with Pipeline(tiny, threads=1) as pipeline:
        transcribe(pipeline, clip)
        descriptors = psutil.Process().num_fds()
        for _ in range(100):
            with Client(pipeline.connection) as client:
                assert client.receive(0.0) is None
        with Viewer.of(pipeline) as viewer:
            viewer.wait(lambda: pipeline._engine.hub.publisher.subscriptions == 1)
        assert text_of(transcribe(pipeline, clip)) == undisturbed
        deadline = time.monotonic() + PATIENCE_S
        while psutil.Process().num_fds() > descriptors + 1:  # libzmq closes the hub's end when it gets round to it
            assert time.monotonic() < deadline
            gc.collect()


@contextmanager
def attached(house: House, *arguments: str) -> Generator[subprocess.Popen[str], None, None]:
    """A real console of a hub in this process; it is gone in the end."""
    command = [sys.executable, "run.py", "--attach", str(house.connection.write()), *arguments]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as console:
        try:
            yield console
        finally:
            console.kill()


# --- lost -------------------------------------------------------------------------------------------------------


@pytest.fixture
def drop(monkeypatch: pytest.MonkeyPatch) -> Callable[[type[Message]], None]:
    """Has events of a type lost, as they are for a slow subscriber."""
    real = Publisher.publish

    def drop(kind: type[Message]) -> None:
        def publish(port: Publisher, message: Message, **how: Any) -> None:
            if not isinstance(message, kind):
                real(port, message, **how)

        monkeypatch.setattr(Publisher, "publish", publish)

    return drop


@pytest.mark.fault(33)
@pytest.mark.parametrize("kind", [Done, Segment, Partial], ids=lambda kind: str(kind.TYPE))
def test_of_a_last_event_that_is_lost_a_beat_tells(
    house: House, drop: Callable[[type[Message]], None], kind: type[Message]
) -> None:
    """A real console, which would otherwise wait for ever."""
    house.start_line()
    job = begin(house)
    frontend, decoder = house.actors["frontend"], house.actors["decoder"]
    frontend.say(started(job), window(job, 0))
    settle(frontend)
    with attached(house, "--json") as console:
        assert console.stdout is not None
        assert '"snapshot"' in console.stdout.readline()  # from here on it sees every event
        drop(kind)
        decoder.say(partial(job, 0, " lost words"))
        if kind is not Partial:
            decoder.say(segment(job, 0, " lost words"))
            settle(decoder)
            frontend.say(audio_end(job, 1))
        wanted = "done" if kind is Done else kind.TYPE
        said = ""
        while not ("lost words" in said and (kind is Partial or wanted in said)):
            said = console.stdout.readline()
            assert said, "it ended without it"
        house.hub.stop()
        assert console.wait(PATIENCE_S) == exits.OK
    assert '"snapshot"' in said


# --- slow, stopped, killed --------------------------------------------------------------------------------------


def flood(house: House, job: bytes, count: int) -> None:
    """So many events of a job, as the hub would publish them for its decoder's words."""
    over = threading.Event()

    def publish(left: int) -> None:
        for _ in range(min(left, 500)):
            house.hub._dispatcher.report(partial(job, 0, " all that was said so far" * 20))
        if left > 500:
            house.hub._order(lambda: publish(left - 500))
        else:
            over.set()

    house.hub._order(lambda: publish(count))
    assert over.wait(4 * PATIENCE_S)


@pytest.mark.fault(32)
def test_a_subscriber_that_does_not_read_a_hundred_thousand_events_costs_little_and_finds_its_place(
    house: House,
) -> None:
    house.start_line()
    with ExitStack() as resources:
        asleep, awake = [resources.enter_context(attached(house, "--quiet")) for _ in range(2)]
        viewer = resources.enter_context(Viewer(house.connection, house.context))
        viewer.wait(lambda: viewer.is_live and house.hub.publisher.subscriptions == 3)
        job = begin(house)
        frontend, decoder = house.actors["frontend"], house.actors["decoder"]
        frontend.say(started(job), window(job, 0))
        settle(frontend)
        psutil.Process(asleep.pid).suspend()
        flood(house, job, 20_000)  # its queue is full by now, and so is the viewer's
        before = resident()
        flood(house, job, 80_000)
        grown = resident() - before
        decoder.say(segment(job, 0))
        settle(decoder)
        frontend.say(audio_end(job, 1))
        settle(frontend)
        psutil.Process(asleep.pid).resume()
        viewer.wait_for_end(job)
        for console in (asleep, awake):
            assert console.stdout is not None
            assert console.stdout.readline() == "text 0\n"
        house.hub.stop()
        for console in (asleep, awake):
            assert console.wait(PATIENCE_S) == exits.OK
            assert console.stdout is not None
            assert console.stdout.read() == ""
    assert grown < 8 * MIB
    assert viewer.view.jobs[job].seq > 100_000
    assert viewer.snapshots > 1, "it had lost some"


CROWD = """
import sys, zmq
from pathlib import Path
from susurrus.protocol import Connection, Identity, Subscriber
connection = Connection.read(Path(sys.argv[1]))
context = zmq.Context()
crowd = [Subscriber(context, connection.transport, Identity.new("crowd"), connection.events) for _ in range(50)]
for subscriber in crowd:
    assert subscriber.receive(50) is not None
print("here", flush=True)
while True:  # slowly: one event of each, then a pause
    for subscriber in crowd:
        subscriber.receive(0.01)
"""


@pytest.mark.fault(32)
def test_two_hundred_subscribers_that_are_slow_stopped_and_killed_cost_the_hub_no_more_and_no_more(
    house: House,
) -> None:
    house.start_line()
    command = [sys.executable, "-c", CROWD, str(house.connection.write())]
    with ExitStack() as resources:

        def crowd() -> subprocess.Popen[str]:
            process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
            resources.enter_context(process)
            resources.callback(process.kill)
            assert process.stdout is not None
            assert process.stdout.readline() == "here\n"
            return process

        slow, stopped, killed = crowd(), crowd(), crowd()
        assert slow.poll() is None
        psutil.Process(stopped.pid).suspend()
        job = begin(house)
        house.actors["frontend"].say(started(job), window(job, 0))
        settle(house.actors["frontend"])
        flood(house, job, 5_000)  # all queues are full by now
        killed.kill()
        crowd()  # late
        flood(house, job, 5_000)
        before = resident()
        flood(house, job, 10_000)
        grown = resident() - before
        with Viewer(house.connection, house.context) as viewer:  # one more is served as if nobody else were there
            viewer.wait(lambda: viewer.is_live and job in viewer.view.jobs)
            house.actors["decoder"].say(segment(job, 0))
            settle(house.actors["decoder"])
            house.actors["frontend"].say(audio_end(job, 1))
            viewer.wait_for_end(job)
            assert viewer.view.jobs[job].text == "text 0"
    assert grown < 8 * MIB
