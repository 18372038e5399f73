"""What the hub does when an actor is lost; the test is the actors, and whoever starts them."""

from __future__ import annotations

import queue
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace

import pytest

from susurrus.actors.line import STATIONS
from susurrus.actors.watch import Limits
from susurrus.protocol import (
    Accepted,
    Committed,
    Credit,
    Done,
    Downstream,
    Error,
    Failed,
    Fence,
    Hello,
    Ping,
    Pong,
    Redo,
    Reissue,
    Segment,
    Started,
    Submit,
    Subscriber,
    Upstream,
    Window,
    Working,
)
from tests.actors.fakes import PATIENCE_S, House, ScriptedActor, audio_end, partial, segment, settle, started, window
from tests.actors.fakes import submit as make_submit
from tests.actors.test_hub import expect, next_event

QUICK = Limits(missed_pings=1000, first_pause_s=0.0, period_s=1000.0)
"""The actors answer pings when the test reads: nobody is killed for silence unless a test is about that."""


class Crew:
    """Notes what the hub wants done to processes."""

    def __init__(self) -> None:
        self.restarted: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.killed: queue.SimpleQueue[str] = queue.SimpleQueue()

    def restart(self, name: str) -> None:
        """Would start one."""
        self.restarted.put(name)

    def kill(self, name: str) -> None:
        """Would kill one."""
        self.killed.put(name)

    def last_words(self, name: str) -> str:
        """Of every one."""
        return f"{name}: out of ideas"

    def pids(self) -> dict[str, int]:
        """There is a console."""
        return {"console": 7}


class Stage(House):
    """A house whose actors can be lost."""

    def __init__(self, resources: ExitStack, limits: Limits = QUICK, *, lanes: int = 1) -> None:
        super().__init__(resources, limits, lanes=lanes)
        self.crew = Crew()
        self.hub.use(self.crew)

    def lose(self, name: str, how: str = "was killed by SIGKILL") -> None:
        """Tell the hub that the actor's process is gone; wait until it is started again."""
        self.hub.actor_ended(name, how)
        assert self.crew.restarted.get(timeout=PATIENCE_S) == name

    def replace(self, name: str) -> ScriptedActor:
        """Another instance in the actor's place, ready."""
        del self.actors[name]
        actor = self.actor(name)
        actor.say(*self.introduction(name))
        settle(actor)  # the hub has read it, and told the neighbours
        return actor

    def lose_decoder_over(self, *works: Working) -> None:
        """The decoder says what it works on, and dies; another is ready in its place, and everybody knows it."""
        self.actors["decoder"].say(*works)
        settle(self.actors["decoder"])
        self.lose("decoder")
        self.replace("decoder")
        settle(*(self.actors[name] for name in STATIONS))

    def begin(self, windows: int = 2, committed: int = 1) -> Submit:
        """A job in work: all its windows announced, the first ones committed."""
        client, request = self.actor("client"), make_submit()
        client.say(request)
        client.hear(Accepted)
        self.actors["frontend"].hear(Submit)
        self.actors["frontend"].say(started(request.job), *(window(request.job, index) for index in range(windows)))
        settle(self.actors["frontend"])
        self.actors["decoder"].say(*(segment(request.job, index, memory=f"{index}") for index in range(committed)))
        settle(self.actors["decoder"])
        return request


@pytest.fixture
def stage() -> Iterator[Stage]:
    """A line that stands."""
    with ExitStack() as resources:
        stage = Stage(resources)
        stage.start_line()
        settle(*stage.actors.values())
        for name in STATIONS:
            stage.actors[name].take()
        yield stage


@pytest.mark.parametrize("lost", STATIONS)
def test_what_is_not_committed_is_done_again_whoever_is_lost(stage: Stage, lost: str) -> None:
    request = stage.begin(windows=3, committed=1)
    stage.lose(lost)
    for name in STATIONS:
        if name != lost:
            assert stage.actors[name].hear(Fence) == Fence(request.job, 2)
    new = stage.replace(lost)
    for name in STATIONS:
        settle(stage.actors[name])  # answers the ping behind its Downstream
    frontend = new if lost == "frontend" else stage.actors["frontend"]
    assert frontend.hear(Reissue) == Reissue(request.job, 1, 2, request, "0")


def test_reissue_waits_until_the_neighbour_has_taken_in_who_is_new(stage: Stage) -> None:
    request = stage.begin()
    stage.lose("decoder")
    stage.replace("decoder")
    encoder, frontend = stage.actors["encoder"], stage.actors["frontend"]
    while (received := encoder.line.receive(PATIENCE_S)) is not None and not isinstance(received.message, Downstream):
        pass  # pings are not answered here
    settle(frontend)
    assert not any(isinstance(message, Reissue) for message in frontend.take())
    encoder.say(Pong(number=10**6))
    assert frontend.hear(Reissue).job == request.job


def test_a_new_receiver_is_told_to_its_upstream_and_a_new_sender_to_its_downstream(stage: Stage) -> None:
    stage.lose("encoder")
    encoder = stage.replace("encoder")
    inbox = stage.inbox("encoder")
    assert inbox is not None
    assert stage.actors["frontend"].hear(Downstream) == Downstream(port=inbox)
    assert stage.actors["frontend"].hear(Credit).windows == 2
    stage.actors["decoder"].hear(Upstream)
    stage.actors["decoder"].say(Credit(windows=2))
    assert encoder.hear(Downstream).port == stage.inbox("decoder")
    assert encoder.hear(Credit).windows == 2


def test_committed_text_never_changes_and_every_window_is_committed_once(stage: Stage) -> None:
    watcher = stage.subscriber()
    request = stage.begin(windows=2, committed=1)
    job = request.job
    stage.lose("decoder")
    decoder = stage.replace("decoder")
    settle(*(stage.actors[name] for name in STATIONS))
    stage.actors["frontend"].hear(Reissue)
    stage.actors["frontend"].say(window(job, 1, attempt=2), audio_end(job, 2))
    settle(stage.actors["frontend"])
    decoder.say(
        segment(job, 0, " other"), partial(job, 1), segment(job, 1, " stale"), segment(job, 1, " new", attempt=2)
    )
    assert expect(watcher, Started)
    assert [expect(watcher, Window).window for _ in range(2)] == [0, 1]
    assert expect(watcher, Segment).text == " text 0"
    assert expect(watcher, Window).attempt == 2
    assert expect(watcher, Segment).text == " new"
    assert expect(watcher, Done).text == "text 0 new"


def test_the_memory_of_a_window_is_not_published(stage: Stage) -> None:
    watcher = stage.subscriber()
    stage.begin(windows=1, committed=1)
    expect(watcher, Started)
    expect(watcher, Window)
    assert expect(watcher, Segment).memory == ""


def test_the_frontend_is_told_what_it_need_not_keep(stage: Stage) -> None:
    request = stage.begin(windows=2, committed=2)
    frontend = stage.actors["frontend"]
    assert [frontend.hear(Committed) for _ in range(2)] == [Committed(request.job, 1), Committed(request.job, 2)]


def test_no_job_is_given_out_while_the_line_is_broken(stage: Stage) -> None:
    stage.lose("encoder")
    client = stage.actor("client")
    client.say(request := make_submit())
    client.hear(Accepted)
    settle(stage.actors["frontend"])
    assert not any(isinstance(message, Submit) for message in stage.actors["frontend"].take())
    stage.replace("encoder")
    settle(*(stage.actors[name] for name in STATIONS))
    assert stage.actors["frontend"].hear(Submit) == request


def test_the_fourth_loss_ends_the_pipeline_and_names_the_actor_and_its_last_words(stage: Stage) -> None:
    for _ in range(3):
        stage.lose("encoder")
    stage.hub.actor_ended("encoder", "ended with code 9")
    stage.thread.join(PATIENCE_S)
    assert stage.hub.outcome.code == "actor_lost"
    text = "the encoder ended with code 9 4 times within 1000 s; it last said: encoder: out of ideas"
    assert stage.hub.outcome.text == text


def test_a_window_that_ends_its_worker_three_times_fails_its_job_alone(stage: Stage) -> None:
    watcher = stage.subscriber()
    request = stage.begin(windows=2, committed=1)
    for attempt in (1, 2, 3):
        stage.lose_decoder_over(Working(request.job, 1, attempt))
    failed = expect_failed(watcher)
    assert (failed.job, failed.code) == (request.job, "killer")
    assert "window 1 ended its decoder 3 times" in failed.text
    for _ in range(3):  # the cause is known and gone: the decoder has all its lives again
        stage.lose("decoder")
    assert stage.thread.is_alive()


def test_every_window_that_a_decoder_had_in_work_is_blamed_until_one_is_found_alone(stage: Stage) -> None:
    watcher = stage.subscriber()
    request = stage.begin(windows=4, committed=1)
    for attempt, windows in ((1, (1, 2, 3)), (2, (2,)), (3, (2,))):
        stage.lose_decoder_over(*(Working(request.job, index, attempt) for index in windows))
    failed = expect_failed(watcher)
    assert (failed.job, failed.code) == (request.job, "killer")
    assert "window 2 ended its decoder 3 times" in failed.text


def test_an_actor_that_dies_before_it_can_say_over_what_is_taken_to_have_died_of_the_oldest_window(
    stage: Stage,
) -> None:
    watcher = stage.subscriber()
    request = stage.begin(windows=2, committed=1)
    for attempt in (2, 3, 4):
        stage.lose("decoder")
        stage.replace("decoder")
        settle(*(stage.actors[name] for name in STATIONS))
        stage.actors["frontend"].say(window(request.job, 1, attempt=attempt))
        settle(stage.actors["frontend"])
    assert expect_failed(watcher).code == "killer"


def test_an_actor_that_dies_while_it_loads_has_not_died_of_a_window(stage: Stage) -> None:
    request = stage.begin(windows=2, committed=1)
    stage.lose("decoder")
    for _ in range(2):
        stage.lose("decoder")
    assert stage.hub._ledger.is_open(request.job)
    stage.hub.actor_ended("decoder", "ended with code 1")
    stage.thread.join(PATIENCE_S)
    assert stage.hub.outcome.code == "actor_lost"


def expect_failed(watcher: Subscriber) -> Failed:
    """The next Failed, whatever comes before it."""
    while not isinstance(event := next_event(watcher), Failed):
        pass
    return event


def test_standard_input_that_a_lost_frontend_has_read_is_a_failure_in_words(stage: Stage) -> None:
    client, watcher = stage.actor("client"), stage.subscriber()
    client.say(make_submit(source="-"))
    client.hear(Accepted)
    stage.actors["frontend"].hear(Submit)
    stage.lose("frontend")
    failed = expect(watcher, Failed)
    assert failed.code == "audio"
    assert "standard input" in failed.text


def test_an_error_that_another_try_would_meet_again_is_not_tried_again(stage: Stage) -> None:
    stage.actors["encoder"].say(Error(code="model", text="weights.bin is missing"))
    stage.thread.join(PATIENCE_S)
    assert (stage.hub.outcome.code, stage.crew.killed.empty()) == ("model", True)


def test_any_other_error_costs_the_actor_its_life_and_no_more(stage: Stage) -> None:
    stage.actors["encoder"].say(Error(code="internal", text="MemoryError"))
    assert stage.crew.killed.get(timeout=PATIENCE_S) == "encoder"
    stage.lose("encoder")
    assert stage.thread.is_alive()


def test_an_actor_that_does_not_answer_is_killed_and_one_that_does_is_not() -> None:
    with ExitStack() as resources:
        limits = Limits(ping_s=0.1, missed_pings=30, first_pause_s=0.0)  # long enough for the test to answer in time
        stages = {silent: Stage(resources, limits) for silent in STATIONS}
        for stage in stages.values():
            stage.start_line()
        others = [actor for silent in STATIONS for name, actor in stages[silent].actors.items() if name != silent]
        while any(stage.crew.killed.empty() for stage in stages.values()):
            settle(*others)
        for silent, stage in stages.items():
            assert stage.crew.killed.get() == silent
            assert stage.crew.killed.empty()


def test_an_actor_that_answers_but_gets_nowhere_is_killed(stage: Stage) -> None:
    encoder = stage.actors["encoder"]
    encoder.say(Pong(number=0, stalled_s=200.0))
    assert stage.crew.killed.get(timeout=PATIENCE_S) == "encoder"


def test_every_actor_is_pinged(stage: Stage) -> None:
    for name in STATIONS:
        line = stage.actors[name].line
        while (received := line.receive(PATIENCE_S)) is not None and not isinstance(received.message, Ping):
            pass
        assert received is not None


def test_an_end_in_order_waits_for_a_console_that_was_lost(stage: Stage) -> None:
    stage.lose("console", "was killed by SIGKILL")
    stage.hub.stop()
    settle(stage.actors["frontend"])
    assert stage.thread.is_alive()
    console = stage.actor("console")
    console.say(Hello(name="console", package="0", pid=7))
    deadline = time.monotonic() + PATIENCE_S
    while stage.thread.is_alive():  # it is asked whether it has shown all, perhaps twice, and answers
        assert time.monotonic() < deadline
        console.take()
        stage.thread.join(0.01)
    assert stage.hub.outcome.code == ""


def test_a_job_whose_deadline_is_over_fails(stage: Stage) -> None:
    watcher, client = stage.subscriber(), stage.actor("client")
    client.say(request := replace(make_submit(), deadline_s=0.01))
    failed = expect(watcher, Failed)
    assert (failed.job, failed.code) == (request.job, "deadline")


def test_a_window_that_a_decoder_wants_in_full_is_done_again_with_what_follows_and_no_other_job_is(
    stage: Stage,
) -> None:
    request, other = stage.begin(windows=3, committed=1), stage.begin(windows=1, committed=0)
    stage.actors["decoder"].say(Redo(request.job, 1, 1))
    for name in STATIONS:
        assert stage.actors[name].hear(Fence) == Fence(request.job, 2)
    assert stage.actors["frontend"].hear(Reissue) == Reissue(request.job, 1, 2, request, "0", full=(1,))
    settle(stage.actors["frontend"])
    assert not any(getattr(said, "job", None) == other.job for said in stage.actors["frontend"].take())


def test_a_wish_for_a_window_that_is_committed_or_of_an_earlier_attempt_changes_nothing(stage: Stage) -> None:
    request = stage.begin(windows=3, committed=1)
    stage.actors["decoder"].say(Redo(request.job, 0, 1), Redo(request.job, 1, 2), Redo(request.job, 1, 0))
    settle(stage.actors["decoder"], stage.actors["frontend"])
    assert not any(isinstance(said, Fence | Reissue) for said in stage.actors["frontend"].take())


def test_a_window_that_is_wanted_in_full_while_the_line_is_broken_waits_until_it_stands(stage: Stage) -> None:
    request = stage.begin(windows=3, committed=1)
    stage.lose("encoder")
    decoder, frontend = stage.actors["decoder"], stage.actors["frontend"]
    decoder.say(Redo(request.job, 1, 2))
    settle(decoder, frontend)
    assert not any(isinstance(said, Reissue) for said in frontend.take())
    stage.replace("encoder")
    settle(*(stage.actors[name] for name in STATIONS))
    assert frontend.hear(Reissue) == Reissue(request.job, 1, 3, request, "0", full=(1,))
    settle(frontend)
    assert not any(isinstance(said, Reissue) for said in frontend.take())
