"""A client gets the events of its own jobs, each segment once and in order, and hears of every end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from susurrus.actors import client as client_module
from susurrus.actors import hub as hub_module
from susurrus.actors import ledger as ledger_module
from susurrus.actors import reception as reception_module
from susurrus.actors.client import Client, PipelineError
from susurrus.actors.view import JobEvent
from susurrus.protocol import (
    Accepted,
    Cancel,
    Cancelled,
    Done,
    EndpointError,
    Failed,
    Message,
    Partial,
    Publisher,
    Segment,
    Started,
    Submit,
    TerminalEvent,
    TranscribeOptions,
    Window,
    new_id,
)
from tests.actors.fakes import (
    PATIENCE_S,
    House,
    ScriptedActor,
    audio_end,
    failed,
    partial,
    segment,
    settle,
    started,
    submit,
    window,
)

Dropping = Callable[[Callable[[Message], bool]], None]


@pytest.fixture
def client(house: House) -> Iterator[Client]:
    house.start_line()
    with Client(house.connection) as client:
        yield client


@pytest.fixture
def drop(monkeypatch: pytest.MonkeyPatch) -> Dropping:
    """Has the events lost for which a condition holds, as they are for a slow subscriber."""
    real = Publisher.publish

    def drop(condition: Callable[[Message], bool]) -> None:
        def publish(port: Publisher, message: Message, **how: Any) -> None:
            if not condition(message):
                real(port, message, **how)

        monkeypatch.setattr(Publisher, "publish", publish)

    return drop


def take(client: Client) -> JobEvent:
    event = client.receive(PATIENCE_S)
    assert event is not None
    return event


def take_all(client: Client) -> list[JobEvent]:
    """Everything up to a terminal event."""
    events = [take(client)]
    while not isinstance(events[-1], TerminalEvent):
        events.append(take(client))
    return events


def given_out(house: House) -> Submit:
    return house.actors["frontend"].hear(Submit)


def play(house: House, job: bytes, windows: int) -> None:
    """What the actors say of a whole job."""
    frontend, decoder = house.actors["frontend"], house.actors["decoder"]
    frontend.say(started(job))
    for index in range(windows):
        frontend.say(window(job, index))
    settle(frontend)
    for index in range(windows):
        decoder.say(partial(job, index), segment(job, index))
    frontend.say(audio_end(job, windows))


def kinds(events: list[JobEvent]) -> list[str]:
    return [event.TYPE for event in events]


def test_a_job_is_followed_from_its_start_to_its_end(house: House, client: Client) -> None:
    job = client.submit("clip.wav", name="my clip", options=TranscribeOptions(language="de"))
    submitted = given_out(house)
    assert (submitted.job, submitted.source, submitted.name) == (job, "clip.wav", "my clip")
    assert submitted.options.language == "de"
    play(house, job, 2)
    events = take_all(client)
    assert kinds(events) == ["started", "window", "window", "partial", "segment", "partial", "segment", "done"]
    assert [event.seq for event in events] == list(range(1, 9))


def test_a_recording_is_called_by_its_source_unless_it_has_a_name(house: House, client: Client) -> None:
    client.submit("clip.wav")
    assert given_out(house).name == "clip.wav"


def test_the_jobs_of_others_are_not_ours(house: House, client: Client) -> None:
    other = house.actor("other")
    other.say(submit(theirs := new_id()))
    other.hear(Accepted)
    given_out(house)
    play(house, theirs, 1)
    ours = client.submit("clip.wav")
    given_out(house)
    play(house, ours, 1)
    assert {event.job for event in take_all(client)} == {ours}


def test_a_client_that_comes_late_still_gets_its_own_jobs(house: House, client: Client) -> None:
    first = client.submit("clip.wav")
    given_out(house)
    play(house, first, 1)
    take_all(client)
    with Client(house.connection) as late:
        job = late.submit("clip.wav")
        given_out(house)
        play(house, job, 1)
        assert kinds(take_all(late)) == ["started", "window", "partial", "segment", "done"]


# --- lost events ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Started, Window, Partial, Segment, Done])
def test_lost_events_are_made_up_for_by_a_snapshot(
    house: House, client: Client, drop: Dropping, kind: type[Message], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub_module, "BEAT_S", 0.05)  # a last event has no successor: a beat shows that it is missing
    drop(lambda message: isinstance(message, kind))
    job = client.submit("clip.wav")
    given_out(house)
    play(house, job, 3)
    events = take_all(client)
    assert [event.window for event in events if isinstance(event, Segment)] == [0, 1, 2]
    done = events[-1]
    assert isinstance(done, Done)
    assert done.text == "text 0 text 1 text 2"


@pytest.mark.parametrize("lost", range(1, 9))
def test_whichever_event_is_lost_every_segment_comes_once_and_in_order(
    house: House, client: Client, drop: Dropping, lost: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub_module, "BEAT_S", 0.05)
    drop(lambda message: getattr(message, "seq", 0) == lost)
    job = client.submit("clip.wav")
    given_out(house)
    play(house, job, 2)
    events = take_all(client)
    assert [event.window for event in events if isinstance(event, Segment)] == [0, 1]
    assert [isinstance(event, TerminalEvent) for event in events].count(True) == 1


def test_a_client_asks_for_snapshots_at_a_limited_rate(
    house: House, client: Client, drop: Dropping, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = 0
    real = house.hub._ledger.snapshot

    def snapshot() -> Any:
        nonlocal asked
        asked += 1
        return real()

    job = client.submit("clip.wav")
    given_out(house)
    monkeypatch.setattr(house.hub._ledger, "snapshot", snapshot)
    drop(lambda message: isinstance(message, Partial) and message.seq % 2 == 0)
    frontend, decoder = house.actors["frontend"], house.actors["decoder"]
    frontend.say(started(job), window(job, 0))
    settle(frontend)
    asked, began = 0, time.monotonic()
    decoder.say(*(partial(job, 0) for _ in range(200)), segment(job, 0))
    frontend.say(audio_end(job, 1))
    assert isinstance(take_all(client)[-1], Done)
    assert asked <= 1 + (time.monotonic() - began) / client_module.SNAPSHOT_PAUSE_S


def test_segments_that_a_snapshot_of_very_much_text_leaves_out_do_not_bring_others_twice(
    house: House, client: Client, drop: Dropping, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = 1

    def newest_only(snapshot: Any) -> Any:
        return replace(snapshot, jobs=tuple(replace(job, segments=job.segments[-kept:]) for job in snapshot.jobs))

    def commit(*windows: int, lost: bool) -> None:
        drop(lambda message: lost and isinstance(message, Segment))
        decoder.say(*(segment(job, index) for index in windows))
        settle(decoder)
        drop(lambda _: False)

    def told(until: int) -> list[int]:
        windows = []
        while until not in windows:
            event = take(client)
            windows += [event.window] if isinstance(event, Segment) else []
        return windows

    monkeypatch.setattr(hub_module, "BEAT_S", 0.05)
    monkeypatch.setattr(reception_module, "fit_snapshot", newest_only)
    job = client.submit("clip.wav")
    given_out(house)
    frontend, decoder = house.actors["frontend"], house.actors["decoder"]
    frontend.say(*(window(job, index) for index in range(6)))
    settle(frontend)
    commit(0, lost=False)
    assert told(until=0) == [0]
    commit(1, 2, 3, lost=True)
    assert told(until=3) == [3]  # the snapshot has no more
    kept = 2
    commit(4, lost=True)
    assert told(until=4) == [4]  # the snapshot has 3 as well


# --- waiting ----------------------------------------------------------------------------------------------------


def test_receive_waits_as_long_as_it_was_told_though_others_talk(
    house: House, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, now = house.actor("other"), time.monotonic()
    waits: list[float | None] = []
    real = client._turn

    def turn(timeout: float | None) -> bool:
        nonlocal now
        waits.append(timeout)
        other.say(theirs := submit(), Cancel(job=theirs.job))
        woken = real(timeout)  # their job's end comes
        now += 0.25
        return woken

    monkeypatch.setattr(client_module, "time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(client, "_turn", turn)
    assert client.receive(0.75) is None
    assert waits == [0.75, 0.5, 0.25]


def test_receive_without_time_looks_once(client: Client) -> None:
    assert client.receive(0.0) is None


def test_wake_ends_the_waiting_of_another_thread(client: Client) -> None:
    threading.Timer(0.01, client.wake).start()
    assert client.receive() is None


def test_a_wake_before_the_waiting_is_not_lost(client: Client) -> None:
    client.wake()
    assert client.receive() is None


def test_a_wake_after_close_is_harmless(house: House) -> None:
    with Client(house.connection) as client:
        pass
    client.wake()


# --- following --------------------------------------------------------------------------------------------------


def test_follow_ends_with_the_terminal_event(house: House, client: Client) -> None:
    job = client.submit("clip.wav")
    given_out(house)
    play(house, job, 1)
    assert kinds(list(client.follow(job)))[-1] == "done"
    settle(house.actors["decoder"])
    assert not any(isinstance(message, Cancel) for message in house.actors["decoder"].take())


def test_follow_yields_a_failure_of_the_job_as_its_end(house: House, client: Client) -> None:
    job = client.submit("clip.wav")
    given_out(house)
    house.actors["frontend"].say(failed(job))
    assert list(client.follow(job)) == [replace(failed(job), seq=1)]


def test_leaving_follow_early_cancels_the_job(house: House, client: Client) -> None:
    job = client.submit("clip.wav")
    given_out(house)
    house.actors["frontend"].say(started(job))
    events = client.follow(job)
    assert isinstance(next(events), Started)
    events.close()
    assert take(client) == Cancelled(job=job, seq=2)


def test_a_follower_that_is_told_that_nobody_wants_more_cancels_the_job(house: House, client: Client) -> None:
    left = threading.Event()
    job = client.submit("clip.wav")
    given_out(house)

    def leave() -> None:
        left.set()
        client.wake()

    threading.Timer(0.01, leave).start()
    assert list(client.follow(job, is_left=left.is_set)) == []
    assert house.actors["decoder"].hear(Cancel).job == job


def test_cancel_brings_the_terminal_event(house: House, client: Client) -> None:
    job = client.submit("clip.wav")
    given_out(house)
    client.cancel(job)
    client.cancel(job)
    assert take_all(client) == [Cancelled(job=job, seq=1)]


# --- ends -------------------------------------------------------------------------------------------------------


def test_a_pipeline_that_is_full_rejects_the_job_and_the_client_goes_on(
    house: House, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_module, "MAX_QUEUED", 3)
    other = house.actor("other")
    jobs = [new_id() for _ in range(3)]
    other.say(*(submit(job) for job in jobs))
    settle(other)
    client.submit("clip.wav")
    with pytest.raises(PipelineError, match="try again later") as raised:
        take(client)
    assert raised.value.code == "busy"
    other.say(*(Cancel(job=job) for job in jobs))
    settle(other)
    job = client.submit("clip.wav")
    while given_out(house).job != job:
        pass
    play(house, job, 1)
    assert isinstance(take_all(client)[-1], Done)


def test_the_end_of_the_pipeline_is_an_error_with_its_reason_not_a_failed_job(house: House, client: Client) -> None:
    job = client.submit("clip.wav")
    given_out(house)
    house.actors["frontend"].say(started(job))
    assert isinstance(take(client), Started)
    house.hub.stop("actor_lost", "the encoder was killed by SIGKILL")
    with pytest.raises(PipelineError, match="encoder was killed") as raised:
        list(client.follow(job))
    assert raised.value.code == "actor_lost"


def test_what_was_published_before_the_end_is_delivered_before_the_error(
    house: House, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [client.submit("a.wav"), client.submit("b.wav")]
    given_out(house)
    play(house, jobs[0], 1)
    assert isinstance(take(client), Started)  # so its snapshot, which comes by another socket, is here too
    settle(house.actors["decoder"], house.actors["frontend"])
    house.hub.stop()
    house.thread.join(PATIENCE_S)
    while client._view.stopped is None:
        client._turn(PATIENCE_S)
    monkeypatch.setattr(client, "_turn", None)  # all is here: nothing is to be waited for
    assert isinstance(take_all(client)[-1], Done)
    with pytest.raises(PipelineError, match="was stopped") as raised:
        take(client)
    assert raised.value.code == "stopped"


def test_what_came_while_nobody_asked_for_it_is_delivered_however_long_that_was(house: House, client: Client) -> None:
    job = client.submit("clip.wav")
    given_out(house)
    frontend, decoder = house.actors["frontend"], house.actors["decoder"]
    frontend.say(started(job))
    assert isinstance(take(client), Started)
    frontend.say(window(job, 0))
    settle(frontend)
    decoder.say(segment(job, 0))
    frontend.say(audio_end(job, 1))
    settle(decoder, frontend)
    house.hub.stop()
    house.thread.join(PATIENCE_S)
    house.folder.close()
    client._heard -= 100.0  # its owner had other things to do
    assert isinstance(take_all(client)[-1], Done)
    with pytest.raises(PipelineError, match="was stopped"):
        take(client)


def test_a_pipeline_that_vanished_without_a_word_is_noticed(
    house: House, client: Client, drop: Dropping, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "SILENCE_S", 0.1)
    client.submit("clip.wav")
    drop(lambda _: True)
    house.folder.close()
    with pytest.raises(PipelineError, match="without a word") as raised:
        client.receive()
    assert raised.value.code == "gone"


def test_a_connection_to_a_pipeline_that_is_gone_is_refused_at_once(house: House) -> None:
    connection = house.connection
    house.folder.close()
    with pytest.raises(PipelineError, match="no pipeline lives") as raised:
        Client(connection)
    assert raised.value.code == "gone"


def test_a_pipeline_that_ends_while_a_client_connects_is_noticed(
    house: House, drop: Dropping, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "SILENCE_S", 0.1)
    drop(lambda _: True)
    threading.Timer(0.05, house.folder.close).start()
    with pytest.raises(PipelineError):
        Client(house.connection)


def test_a_connection_that_points_elsewhere_is_refused_and_leaves_nothing_open(house: House) -> None:
    with pytest.raises(EndpointError):
        Client(replace(house.connection, hub="ipc:///tmp/somebody-elses"))


def test_close_is_idempotent_and_jobs_go_on(house: House) -> None:
    house.start_line()
    client = Client(house.connection)
    client.submit("first.wav")
    given_out(house)  # its line to the hub stands
    job = client.submit("clip.wav")
    client.close()
    client.close()
    assert given_out(house).job == job
    watcher: ScriptedActor = house.actor("watcher")
    settle(watcher)
    assert house.hub._ledger.is_open(job)


def test_bad_events_do_not_disturb_a_client(house: House, client: Client) -> None:
    def publish() -> None:
        for frames in ([b"job/", b"SUSU01", b"\xc1", b"\x80"], [b""]):
            house.hub.publisher.socket.send_multipart(frames)

    house.hub._order(publish)
    job = client.submit("clip.wav")
    given_out(house)
    play(house, job, 1)
    assert isinstance(take_all(client)[-1], Done)


def test_an_unexpected_failure_while_stopping_is_not_mistaken_for_the_end(house: House, client: Client) -> None:
    job = client.submit("clip.wav")
    given_out(house)
    house.actors["decoder"].say(Failed(job=job, code="internal", text="ValueError: x"))
    assert kinds(take_all(client)) == ["failed"]
