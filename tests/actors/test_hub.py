"""The hub wires actors in any order, listens to nobody else, and publishes what the ledger says."""

from __future__ import annotations

import itertools
import random
import threading
import time
from typing import Any, TypeVar

import pytest

from susurrus.actors import hub as hub_module
from susurrus.actors.line import STATIONS
from susurrus.protocol import (
    Accepted,
    Beat,
    Cancel,
    Cancelled,
    Credit,
    Done,
    Downstream,
    Error,
    Failed,
    Hello,
    Message,
    Partial,
    Publisher,
    Rejected,
    Segment,
    SendPort,
    Snapshot,
    SnapshotRequest,
    Started,
    Stop,
    Stopped,
    Submit,
    Subscriber,
    Welcome,
    Window,
    encode,
    job_topic,
    new_id,
)
from tests.actors.fakes import (
    PATIENCE_S,
    House,
    audio_end,
    failed,
    partial,
    segment,
    settle,
    started,
    submit,
    window,
)

M = TypeVar("M", bound=Message)


def next_event(subscriber: Subscriber) -> Message:
    received = subscriber.receive(PATIENCE_S)
    assert received is not None
    return received.message


def expect(subscriber: Subscriber, kind: type[M]) -> M:
    """The next event but beats and welcomes; it must be of that type."""
    while isinstance(event := next_event(subscriber), Beat | Welcome):
        pass
    assert isinstance(event, kind), event
    return event


# --- the line ---------------------------------------------------------------------------------------------------

WORD_BY_WORD = sorted(set(itertools.permutations(("frontend",) * 2 + ("encoder",) * 3 + ("decoder",) * 3)))
SOME = random.Random(0).sample(WORD_BY_WORD, 20)  # noqa: S311 - any few will do


ORDERS = [*itertools.permutations(STATIONS), *SOME]


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: "".join(name[0] for name in order))
def test_whoever_starts_first_everybody_gets_downstream_and_credit_exactly_once(
    house: House, order: tuple[str, ...]
) -> None:
    actors = {name: house.actor(name) for name in STATIONS}
    left = {name: house.introduction(name) for name in STATIONS}
    for name in (*order, *STATIONS * 3):
        if left[name]:
            actors[name].say(left[name].pop(0))
            settle(actors[name])
    assert house.ready.wait(PATIENCE_S)
    settle(*actors.values())
    for name, downstream in itertools.pairwise(STATIONS):
        wiring = actors[name].take()
        assert wiring[0] == Downstream(port=house.inbox(downstream))  # type: ignore[arg-type]  # these two have one
        assert all(isinstance(message, Credit) for message in wiring[1:])
        assert sum(message.windows for message in wiring[1:] if isinstance(message, Credit)) == 2
    assert actors["decoder"].take() == []


def test_credit_is_passed_on_to_the_actor_upstream(house: House) -> None:
    house.start_line()
    assert house.actors["encoder"].hear(Credit).windows == 2
    house.actors["decoder"].say(Credit(windows=1))
    assert house.actors["encoder"].hear(Credit).windows == 1


def test_ready_is_told_only_when_the_whole_line_is(house: House) -> None:
    for name in STATIONS:
        assert not house.ready.is_set()
        actor = house.actor(name)
        actor.say(*house.introduction(name))
        settle(actor)
    assert house.ready.wait(PATIENCE_S)


def test_a_second_actor_of_a_name_is_refused_and_changes_nothing(house: House) -> None:
    house.start_line()
    second = house.actor("encoder")
    second.say(*house.introduction("encoder"))
    rejected = second.hear(Rejected)
    assert rejected.code == "taken"
    assert "encoder" in rejected.text
    second.say(Stopped(name="encoder", code="", text=""))
    settle(second)
    assert house.thread.is_alive()


def test_a_hello_that_is_said_twice_is_no_second_actor(house: House) -> None:
    house.start_line()
    frontend = house.actors["frontend"]
    frontend.say(Hello(name="frontend", package="0", pid=1))
    settle(frontend)
    assert not any(isinstance(message, Rejected) for message in frontend.take())


def test_reports_of_a_stranger_are_dropped(house: House) -> None:
    house.start_line()
    client, stranger, watcher = house.actor("client"), house.actor("decoder"), house.subscriber()
    request = submit()
    client.say(request)
    client.hear(Accepted)
    job = request.job
    house.actors["frontend"].say(started(job), window(job, 0))
    settle(house.actors["frontend"])
    expect(watcher, Started)
    stranger.say(partial(job, 0), segment(job, 0), audio_end(job, 1), failed(job), Error(code="x", text="x"))
    settle(stranger)
    house.actors["decoder"].say(partial(job, 0, " true"))
    assert expect(watcher, Window).window == 0
    assert expect(watcher, Partial).text == " true"
    assert house.thread.is_alive()


@pytest.mark.parametrize("name", STATIONS)
def test_an_actor_that_cannot_go_on_ends_the_pipeline_with_its_reason(house: House, name: str) -> None:
    house.start_line()
    house.actors[name].say(Error(code="model", text="weights.bin is missing"))
    house.thread.join(PATIENCE_S)
    assert not house.thread.is_alive()
    assert (house.hub.outcome.code, house.hub.outcome.text) == ("model", "weights.bin is missing")


def test_an_actor_that_nobody_can_start_again_ends_the_pipeline_with_its_name(house: House) -> None:
    house.start_line()
    house.hub.actor_ended("encoder", "was killed by SIGKILL")
    house.thread.join(PATIENCE_S)
    assert house.hub.outcome.code == "actor_lost"
    assert house.hub.outcome.text.startswith("the encoder was killed by SIGKILL")


# --- jobs -------------------------------------------------------------------------------------------------------


def test_jobs_wait_until_they_are_allowed(house: House) -> None:
    for name in STATIONS:
        house.actor(name).say(*house.introduction(name))
    settle(*house.actors.values())
    client = house.actor("client")
    client.say(submit())
    client.hear(Accepted)
    settle(house.actors["frontend"])
    assert not any(isinstance(message, Submit) for message in house.actors["frontend"].take())
    house.hub.allow_jobs()
    house.actors["frontend"].hear(Submit)


def test_jobs_wait_until_the_frontend_is_ready(house: House) -> None:
    house.hub.allow_jobs()
    client = house.actor("client")
    request = submit()
    client.say(request)
    client.hear(Accepted)
    frontend = house.actor("frontend")
    frontend.say(*house.introduction("frontend"))
    assert frontend.hear(Submit) == request


def test_the_next_job_of_a_group_is_given_out_after_the_audio_of_the_one_before(house: House) -> None:
    house.start_line()
    client, frontend = house.actor("client"), house.actors["frontend"]
    first, second = submit(group="batch"), submit(group="batch")
    client.say(first, second)
    assert frontend.hear(Submit) == first
    frontend.say(started(first.job), window(first.job, 0))
    settle(frontend)
    assert not any(isinstance(message, Submit) for message in frontend.take())
    frontend.say(audio_end(first.job, 1))
    assert frontend.hear(Submit) == second  # though the first is not decoded yet


@pytest.mark.parametrize("end", ["cancel", "failed by the frontend", "failed by the decoder"])
def test_the_next_job_is_given_out_when_the_one_being_read_ends_early(house: House, end: str) -> None:
    house.start_line()
    client, frontend = house.actor("client"), house.actors["frontend"]
    first, second = submit(group="batch"), submit(group="batch")
    client.say(first, second)
    assert frontend.hear(Submit) == first
    if end == "cancel":
        client.say(Cancel(job=first.job))
    else:
        house.actors[end.rpartition(" ")[2]].say(failed(first.job))
    assert frontend.hear(Submit) == second


def test_cancel_reaches_every_actor_and_is_published_once(house: House) -> None:
    house.start_line()
    client, watcher, request = house.actor("client"), house.subscriber(), submit()
    client.say(request, Cancel(job=request.job), Cancel(job=request.job))
    assert expect(watcher, Cancelled) == Cancelled(job=request.job, seq=1)
    for name in STATIONS:
        assert house.actors[name].hear(Cancel).job == request.job
    settle(*house.actors.values())
    assert not any(isinstance(message, Cancel) for name in STATIONS for message in house.actors[name].take())


def test_a_failed_job_is_given_up_by_every_actor(house: House) -> None:
    house.start_line()
    client, request = house.actor("client"), submit()
    client.say(request)
    house.actors["frontend"].hear(Submit)
    house.actors["encoder"].say(failed(request.job, "internal"))
    for name in STATIONS:
        assert house.actors[name].hear(Cancel).job == request.job


def test_a_resent_submit_is_accepted_again_and_given_out_once(house: House) -> None:
    house.start_line()
    client, request = house.actor("client"), submit()
    client.say(request, request)
    assert client.hear(Accepted) == client.hear(Accepted) == Accepted(job=request.job)
    frontend = house.actors["frontend"]
    assert frontend.hear(Submit) == request
    frontend.say(audio_end(request.job, 0))
    settle(frontend)
    assert not any(isinstance(message, Submit) for message in frontend.take())


def test_an_actor_that_does_not_read_for_a_while_misses_nothing(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_module, "BEAT_S", 0.05)
    house.start_line()
    jobs = [new_id() for _ in range(4000)]  # more than a line's queues hold
    frontend, station = house.actors["frontend"], house.hub._line["frontend"]

    def cancel_all() -> None:
        for job in jobs:
            house.hub._line.tell(station, Cancel(job=job))

    house.hub._order(cancel_all)
    client, request = house.actor("client"), submit()
    client.say(request)
    settle(client)
    assert [frontend.hear(Cancel).job for _ in jobs] == jobs
    assert frontend.hear(Submit) == request


# --- events -----------------------------------------------------------------------------------------------------


def test_a_job_is_published_from_its_start_to_its_end(house: House) -> None:
    house.start_line()
    client, watcher, request = house.actor("client"), house.subscriber(), submit()
    job = request.job
    client.say(request)
    assert house.actors["frontend"].hear(Submit) == request
    house.actors["frontend"].say(started(job), window(job, 0), audio_end(job, 1))
    assert expect(watcher, Started).seq == 1
    assert expect(watcher, Window).seq == 2
    house.actors["decoder"].say(partial(job, 0), segment(job, 0, " Hello"))
    assert expect(watcher, Partial).seq == 3
    assert expect(watcher, Segment).seq == 4
    done = expect(watcher, Done)
    assert (done.seq, done.text) == (5, "Hello")


@pytest.mark.parametrize("topic", [b"", b"hub/", job_topic(bytes(16))])
def test_every_subscriber_is_welcomed_however_late_it_comes(house: House, topic: bytes) -> None:
    for _ in range(3):
        welcome = next_event_of(house.subscriber(topic), house, topic)
        assert welcome.instance == house.hub.identity.instance


def next_event_of(_first: Subscriber, house: House, topic: bytes) -> Welcome:
    """Each new subscription is told to all of its topic: the first one reads the welcome of the second."""
    house.subscriber(topic)
    event = next_event(_first)
    while isinstance(event, Beat):
        event = next_event(_first)
    assert isinstance(event, Welcome)
    return event


def test_beats_tell_the_latest_number_of_every_active_job(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_module, "BEAT_S", 0.02)
    house.start_line()
    client, watcher = house.actor("client"), house.subscriber()
    first, second = submit(), submit()
    client.say(first, second)
    settle(client)
    house.actors["frontend"].say(started(first.job))
    settle(house.actors["frontend"])
    wait_for_beat(watcher, {first.job.hex(): 1, second.job.hex(): 0})
    client.say(Cancel(job=first.job), Cancel(job=second.job))
    wait_for_beat(watcher, {})


def wait_for_beat(watcher: Subscriber, latest: dict[str, int]) -> None:
    """Until a beat says so, however many that were before it are still to be read."""
    deadline = time.monotonic() + PATIENCE_S
    while not (isinstance(event := next_event(watcher), Beat) and event.latest == latest):
        assert time.monotonic() < deadline, event


def test_a_late_joiner_gets_the_state_of_every_job(house: House) -> None:
    house.start_line()
    client, first, second = house.actor("client"), submit(group="batch"), submit(group="batch")
    client.say(first, second)
    settle(client)
    assert house.actors["frontend"].hear(Submit).job == first.job
    house.actors["frontend"].say(started(first.job), window(first.job, 0), window(first.job, 1))
    settle(house.actors["frontend"])
    house.actors["decoder"].say(segment(first.job, 0), partial(first.job, 1, " so far"))
    settle(house.actors["decoder"])
    late = house.actor("late")
    late.say(SnapshotRequest())
    running, queued = late.hear(Snapshot).jobs
    assert (running.job, running.seq, running.state) == (first.job, 5, "running")
    assert [piece.text for piece in running.segments] == [" text 0"]
    assert running.partial is not None
    assert running.partial.text == " so far"
    assert (queued.job, queued.state) == (second.job, "queued")


def test_a_late_joiner_is_answered_however_much_text_there_is(house: House) -> None:
    text, ledger, filled = " and one more word" * 30, house.hub._ledger, threading.Event()
    finished, running = new_id(), new_id()

    def fill() -> None:
        for job, hours in ((finished, 6), (running, 9)):
            ledger.submit(submit(job), 0.0)
            for index in range(120 * hours):
                ledger.apply(window(job, index), 0.0)
                ledger.apply(segment(job, index, text, tokens=150), 0.0)
        ledger.apply(audio_end(finished, 720), 0.0)
        filled.set()

    house.hub._order(fill)  # on the hub's thread, which looks into the ledger whenever it beats
    assert filled.wait(PATIENCE_S)
    late = house.actor("late")
    late.say(SnapshotRequest())
    states = {state.job: state for state in late.hear(Snapshot).jobs}
    assert [piece.text for piece in states[running].segments] == [text] * 1080
    assert house.thread.is_alive()


def test_an_event_that_cannot_be_published_does_not_end_the_hub(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Publisher.publish

    def publish(port: Publisher, message: Message, **how: Any) -> None:
        if isinstance(message, Started):
            encode(Failed(job=new_id(), code="x", text="x" * 70_000), sender="hub", instance=new_id())
        real(port, message, **how)

    monkeypatch.setattr(Publisher, "publish", publish)
    house.start_line()
    client, watcher, request = house.actor("client"), house.subscriber(), submit()
    client.say(request)
    client.hear(Accepted)
    house.actors["frontend"].say(started(request.job), audio_end(request.job, 0))
    assert expect(watcher, Done).seq == 2


def test_bad_frames_of_a_peer_end_nothing(house: House) -> None:
    house.start_line()
    noise = random.Random(2)  # noqa: S311 - noise is all it is for
    peer = house.actor("noise")
    for _ in range(100):
        frames = [noise.randbytes(noise.randrange(60)) for _ in range(noise.randrange(1, 9))]
        peer.line.socket.send_multipart(frames)
    foreign = encode(Stop(), sender="frontend", instance=house.actors["frontend"].identity.instance)
    peer.line.socket.send_multipart(foreign)
    peer.say(SnapshotRequest())
    peer.hear(Snapshot)
    assert house.thread.is_alive()


def test_who_speaks_another_version_is_told_both(house: House) -> None:
    peer = house.actor("old")
    frames = encode(SnapshotRequest(), sender="old", instance=peer.identity.instance)
    peer.line.socket.send_multipart([b"SUSU07", *frames[1:]])
    rejected = peer.hear(Rejected)
    assert rejected.code == "version"
    assert "7" in rejected.text


def test_a_type_of_a_newer_version_is_answered_if_somebody_waits(house: House) -> None:
    class Wish(SnapshotRequest):
        TYPE = "wish"

    peer = house.actor("new")
    frames = encode(SnapshotRequest(), sender="new", instance=peer.identity.instance, reply_to=SendPort("", new_id()))
    header = bytes(frames[1]).replace(b"\xb0snapshot_request", b"\xa4wish")
    peer.line.socket.send_multipart([frames[0], header, frames[2]])
    assert peer.hear(Error).code == "unknown_type"


# --- the end ----------------------------------------------------------------------------------------------------


def test_at_the_end_open_jobs_fail_subscribers_hear_it_and_actors_stop(house: House) -> None:
    house.start_line()
    client, watcher, request = house.actor("client"), house.subscriber(), submit()
    client.say(request)
    client.hear(Accepted)
    house.hub.stop("actor_lost", "the encoder was killed by SIGKILL")
    house.hub.stop("later", "and does not count")
    failure = expect(watcher, Failed)
    assert (failure.job, failure.code, failure.text) == (request.job, "stopped", "the encoder was killed by SIGKILL")
    stopped = expect(watcher, Stopped)
    wanted = Stopped(name="pipeline", code="actor_lost", text="the encoder was killed by SIGKILL")
    assert stopped == wanted
    for name in STATIONS:
        house.actors[name].hear(Stop)


def test_a_hub_without_anybody_ends(house: House) -> None:
    house.hub.stop()
    house.thread.join(PATIENCE_S)
    assert not house.thread.is_alive()
    assert list(house.folder.path.glob("hub*")) == []


def test_a_subscriber_that_does_not_read_keeps_nothing_from_ending(house: House) -> None:
    house.start_line()
    house.subscriber()
    client, request = house.actor("client"), submit()
    client.say(request)
    client.hear(Accepted)
    job = request.job
    house.actors["frontend"].say(window(job, 0))
    settle(house.actors["frontend"])
    for _ in range(3):
        house.actors["decoder"].say(*(partial(job, 0, " word" * 100) for _ in range(900)))
        settle(house.actors["decoder"])
    house.hub.stop()
    house.thread.join(PATIENCE_S)
    assert not house.thread.is_alive()
