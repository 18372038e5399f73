"""Several encoders and decoders: which window goes by which lane, and that what is seen is what one lane shows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Self

import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st

from susurrus.actors.frontend import FrontendBehaviour
from susurrus.actors.lanes import MAX_LANES, checked_workers, threads_for, workers_for
from susurrus.actors.ledger import MAX_READ, Ledger
from susurrus.actors.reports import JobReport
from susurrus.models import OptionError
from susurrus.models.threads import usable_cpus
from susurrus.protocol import (
    Committed,
    Credit,
    Done,
    Downstream,
    Event,
    Features,
    Fence,
    Hello,
    Identity,
    Partial,
    Ping,
    Pong,
    Ready,
    ReceivePort,
    Reissue,
    Segment,
    Started,
    Submit,
    Window,
    Working,
    new_id,
)
from tests.actors.fakes import (
    PATIENCE_S,
    RATE,
    House,
    Stage,
    audio_end,
    partial,
    segment,
    settle,
    sounds,
    started,
    submit,
    window,
)
from tests.actors.test_hub import expect
from tests.actors.test_recovery import Stage as Losses
from tests.actors.test_recovery import expect_failed

JOB = new_id()


def ledger_with(*requests: Submit, abreast: int = 2) -> Ledger:
    ledger = Ledger(abreast)
    for request in requests:
        ledger.submit(request, 0.0)
    return ledger


def apply(ledger: Ledger, *reports: JobReport) -> list[Event]:
    return [event for report in reports for event in ledger.apply(report, 1.0)]


def shown(events: list[Event]) -> list[tuple[str, int]]:
    """Partials and segments, with their windows."""
    return [(event.TYPE, event.window) for event in events if isinstance(event, Partial | Segment)]


# --- how many ---------------------------------------------------------------------------------------------------


def test_workers_share_the_cpus_and_each_session_has_a_thread() -> None:
    assert [threads_for(workers, 8) for workers in (1, 2, 3, 8, 9)] == [8, 4, 2, 1, 1]


def test_no_workers_means_as_many_as_suit_the_machine() -> None:
    assert checked_workers(0) == workers_for(usable_cpus()) >= 1
    assert checked_workers(3) == 3


@pytest.mark.parametrize("wrong", [-1, MAX_LANES + 1])
def test_workers_that_cannot_be_are_refused_in_words(wrong: int) -> None:
    with pytest.raises(OptionError, match=rf"--workers {wrong}: give 1 to {MAX_LANES}"):
        checked_workers(wrong)


# --- the ledger: windows in any order ---------------------------------------------------------------------------


def test_a_hypothesis_of_a_later_window_is_shown_when_its_turn_comes_and_only_the_latest() -> None:
    ledger = ledger_with(submit(JOB))
    apply(ledger, *(window(JOB, index) for index in range(3)))
    assert shown(apply(ledger, partial(JOB, 1, " one"), partial(JOB, 1, " one two"), partial(JOB, 2))) == []
    assert shown(apply(ledger, partial(JOB, 0))) == [("partial", 0)]
    events = apply(ledger, segment(JOB, 0))
    assert shown(events) == [("segment", 0), ("partial", 1)]
    assert isinstance(events[1], Partial)
    assert events[1].text == " one two"
    assert shown(apply(ledger, segment(JOB, 1))) == [("segment", 1), ("partial", 2)]


def test_a_hypothesis_of_a_window_that_is_finished_meanwhile_is_never_shown() -> None:
    ledger = ledger_with(submit(JOB))
    apply(ledger, window(JOB, 0), window(JOB, 1))
    assert shown(apply(ledger, partial(JOB, 1), segment(JOB, 1), segment(JOB, 0))) == [("segment", 0), ("segment", 1)]
    assert ledger._active[JOB].ahead == {}  # nor kept


def test_a_hypothesis_of_an_attempt_that_is_over_is_never_shown() -> None:
    ledger = ledger_with(submit(JOB))
    ledger.next_to_read()
    apply(ledger, window(JOB, 0), window(JOB, 1), partial(JOB, 1))
    ledger.begin_attempt()
    apply(ledger, window(JOB, 0, attempt=2), window(JOB, 1, attempt=2))
    assert shown(apply(ledger, segment(JOB, 0, attempt=2))) == [("segment", 0)]


def test_the_first_text_counts_from_when_it_is_shown() -> None:
    ledger = ledger_with(submit(JOB))
    apply(ledger, window(JOB, 0), window(JOB, 1))
    ledger.apply(partial(JOB, 1), 2.0)
    ledger.apply(partial(JOB, 0), 5.0)
    done = apply(ledger, segment(JOB, 0), segment(JOB, 1), audio_end(JOB, 2))[-1]
    assert isinstance(done, Done)
    assert done.timings["first_partial"] == 5.0


@st.composite
def reports_of_lanes(draw: st.DrawFn) -> list[JobReport]:
    """What a frontend and two decoders say of five windows, each in its own order, woven together in any way."""
    lanes = draw(st.lists(st.booleans(), min_size=5, max_size=5))
    sources: list[list[JobReport]] = [[started(JOB), *(window(JOB, index) for index in range(5)), audio_end(JOB, 5)]]
    for lane in (False, True):
        mine = [index for index in range(5) if lanes[index] == lane]
        sources.append([report for index in mine for report in (partial(JOB, index), segment(JOB, index))])
    woven: list[JobReport] = []
    while left := [source for source in sources if source]:
        woven.append(draw(st.sampled_from(left)).pop(0))
    return woven


@given(reports_of_lanes())
def test_whatever_lane_is_faster_consumers_see_one_window_after_another(reports: list[JobReport]) -> None:
    ledger = ledger_with(submit(JOB))
    committed = 0
    events = apply(ledger, *reports)
    for event in events:
        if isinstance(event, Partial):
            assert event.window == committed
        elif isinstance(event, Segment):
            assert event.window == committed
            committed += 1
    assert isinstance(events[-1], Done)
    assert events[-1].text == "text 0 text 1 text 2 text 3 text 4"


def test_what_is_settled_stays_settled_and_goes_with_the_memory_to_every_new_attempt() -> None:
    ledger = ledger_with(submit(JOB))
    ledger.next_to_read()
    apply(ledger, *(window(JOB, index) for index in range(3)))
    first, second = apply(ledger, replace(segment(JOB, 0, memory="m"), settled=True), segment(JOB, 1))
    assert isinstance(first, Segment)
    assert isinstance(second, Segment)
    assert (first.memory, first.settled) == (second.memory, second.settled) == ("m", True)
    (order,) = ledger.begin_attempt()
    assert (order.window, order.memory, order.settled) == (2, "m", True)


def test_a_job_that_goes_on_from_a_journal_is_as_settled_as_it_was() -> None:
    committed = [replace(segment(JOB, 0, memory="m"), settled=True), replace(segment(JOB, 1), memory="n")]
    ledger = Ledger()
    ledger.submit(submit(JOB), 0.0, committed)
    order = ledger.next_to_read()
    assert isinstance(order, Reissue)
    assert (order.window, order.memory, order.settled) == (2, "n", True)
    assert all(event.memory == "" for event in apply(ledger, started(JOB)) if isinstance(event, Segment))


# --- the ledger: several files at once --------------------------------------------------------------------------


def test_of_a_group_as_many_are_read_at_once_as_there_are_lanes_and_in_order() -> None:
    requests = [submit(group="batch") for _ in range(4)]
    ledger = ledger_with(*requests)
    assert [ledger.next_to_read() for _ in range(3)] == [*requests[:2], None]
    apply(ledger, audio_end(requests[1].job, 1))
    assert [ledger.next_to_read() for _ in range(2)] == [requests[2], None]


def test_standard_input_is_read_alone_in_its_group_and_nothing_overtakes_it() -> None:
    files = [submit(group="batch") for _ in range(2)]
    live, other = submit(source="-", group="batch"), submit()
    ledger = ledger_with(files[0], live, files[1], other)
    assert [ledger.next_to_read() for _ in range(3)] == [files[0], other, None]
    apply(ledger, audio_end(files[0].job, 1))
    assert [ledger.next_to_read() for _ in range(2)] == [live, None]
    apply(ledger, audio_end(live.job, 1))
    assert ledger.next_to_read() == files[1]


def test_a_group_with_many_lanes_leaves_room_for_the_jobs_of_others() -> None:
    mine = [submit(group="batch") for _ in range(20)]
    others = [submit() for _ in range(MAX_READ - 1)]
    ledger = ledger_with(*mine, *others, abreast=12)
    given = [ledger.next_to_read() for _ in range(12 + len(others) + 1)]
    assert given == [*mine[:12], *others, None]


def test_a_snapshot_has_no_job_before_an_earlier_one_of_its_group() -> None:
    """They are shown in its order: a file that is finished waits for the one before."""
    ended, first, second, third = submit(), submit(group="batch"), submit(group="batch"), submit(group="batch")
    ledger = ledger_with(first, second, third, ended)
    apply(ledger, audio_end(second.job, 0), audio_end(ended.job, 0))
    states = ledger.snapshot().jobs
    assert [state.job for state in states] == [ended.job, first.job, second.job, third.job]
    assert [state.state for state in states] == ["done", "queued", "done", "queued"]


# --- the frontend -----------------------------------------------------------------------------------------------


class Dealer(Stage):
    """A frontend with two lanes; the test is both encoders."""

    def __enter__(self) -> Self:
        super().__enter__()
        self.hear(Ready)
        self.second = self._resources.enter_context(
            ReceivePort(self.context, self.transport, Identity.new("encoder-2"))
        )
        self.wire()
        self.say(Downstream(port=self.second.send_port, lane=2))
        return self

    def windows(self, lane: int, count: int) -> list[Features]:
        """The next ones that come by a lane."""
        port = self.downstream if lane == 1 else self.second
        found = []
        for _ in range(count):
            received = port.receive(PATIENCE_S)
            assert received is not None
            assert isinstance(received.message, Features)
            found.append(received.message)
        return found

    def nothing_more(self) -> bool:
        """Whether nothing came by any lane, after everything that was said to it."""
        self.say(Ping(number=1))
        self.hear(Pong)
        return self.downstream.receive(0.05) is None and self.second.receive(0.0) is None


@pytest.fixture
def dealer(tiny: Path) -> Iterator[Dealer]:
    """A frontend with two lanes, and no credit yet."""
    with Dealer(FrontendBehaviour(tiny)) as stage:
        yield stage


@pytest.fixture(scope="module")
def clips(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Two recordings of some windows each."""
    folder = tmp_path_factory.mktemp("clips")
    for seed in (1, 2):
        soundfile.write(folder / f"{seed}.wav", sounds(6.0, seed), RATE, subtype="FLOAT")
    return str(folder / "1.wav"), str(folder / "2.wav")


def test_a_job_that_is_not_settled_stays_in_the_lane_of_its_first_window(
    dealer: Dealer, clips: tuple[str, str]
) -> None:
    dealer.say(submit(source=clips[0]))
    dealer.say(Credit(windows=1, lane=2))
    first = dealer.windows(2, 1)
    dealer.say(Credit(windows=5, lane=1))
    assert dealer.nothing_more()
    dealer.say(Credit(windows=2, lane=2))
    assert [features.window for features in (*first, *dealer.windows(2, 2))] == [0, 1, 2]


def test_once_it_is_settled_its_windows_go_to_every_lane_and_bring_the_memory(
    dealer: Dealer, clips: tuple[str, str]
) -> None:
    request = submit(source=clips[0])
    dealer.say(request)
    dealer.say(Credit(windows=1))
    assert dealer.windows(1, 1)[0].memory == ""
    dealer.say(Committed(request.job, 1, "all of it", settled=True))
    dealer.say(Credit(windows=2, lane=2))
    assert [(one.window, one.memory) for one in dealer.windows(2, 2)] == [(1, "all of it"), (2, "all of it")]
    dealer.say(Credit(windows=1))
    assert [(one.window, one.memory) for one in dealer.windows(1, 1)] == [(3, "all of it")]


def test_a_settled_job_goes_where_most_can_be_taken_and_of_equals_where_it_went_before(
    dealer: Dealer, clips: tuple[str, str]
) -> None:
    dealer.say(Credit(windows=1))
    dealer.say(Credit(windows=3, lane=2))
    request = submit(source=clips[0])
    dealer.say(Reissue(request.job, 0, 2, request, "known", settled=True))
    assert [one.window for one in dealer.windows(2, 3)] == [0, 1, 2]
    assert [one.window for one in dealer.windows(1, 1)] == [3]


def test_in_a_new_attempt_each_lane_is_told_the_memory_again(dealer: Dealer, clips: tuple[str, str]) -> None:
    request = submit(source=clips[0])
    dealer.say(request)
    dealer.say(Credit(windows=2))
    dealer.windows(1, 2)
    dealer.say(Fence(request.job, 2))
    dealer.say(Reissue(request.job, 1, 2, request, "settled", settled=True))
    dealer.say(Credit(windows=1))
    dealer.say(Credit(windows=1, lane=2))
    told = [dealer.windows(lane, 1)[0] for lane in (1, 2)]
    assert sorted(one.window for one in told) == [1, 2]
    assert [(one.attempt, one.memory) for one in told] == [(2, "settled")] * 2


def test_an_attempt_that_is_not_settled_tells_the_memory_of_the_last_window_in_one_lane(
    dealer: Dealer, clips: tuple[str, str]
) -> None:
    request = submit(source=clips[0])
    dealer.say(Reissue(request.job, 1, 2, request, "so far"))
    dealer.say(Credit(windows=2, lane=2))
    assert [(one.window, one.memory) for one in dealer.windows(2, 2)] == [(1, "so far"), (2, "")]
    dealer.say(Credit(windows=2, lane=1))
    assert dealer.nothing_more()


def test_a_job_whose_lane_is_full_does_not_keep_another_from_a_free_one(dealer: Dealer, clips: tuple[str, str]) -> None:
    first, second = submit(source=clips[0]), submit(source=clips[1])
    dealer.say(first)
    dealer.say(Credit(windows=1))
    assert dealer.windows(1, 1)[0].job == first.job
    dealer.hear(Window)
    dealer.hear(Window)  # its next one is prepared, and waits for its lane
    dealer.say(second)
    dealer.say(Credit(windows=2, lane=2))
    assert [(one.job, one.window) for one in dealer.windows(2, 2)] == [(second.job, 0), (second.job, 1)]


def test_of_a_group_the_first_file_has_the_lanes_first(dealer: Dealer, clips: tuple[str, str]) -> None:
    first, second = submit(source=clips[0], group="batch"), submit(source=clips[1], group="batch")
    dealer.say(first)
    dealer.say(second)
    dealer.say(Committed(first.job, 0, "known", settled=True))
    dealer.say(Credit(windows=2))
    dealer.say(Credit(windows=1, lane=2))
    assert {one.job for one in (*dealer.windows(1, 2), *dealer.windows(2, 1))} == {first.job}


def test_a_lane_with_a_new_receiver_starts_without_credit_and_the_others_keep_theirs(
    dealer: Dealer, clips: tuple[str, str]
) -> None:
    dealer.say(Credit(windows=3, lane=2))
    dealer.say(Credit(windows=1))
    dealer.say(Downstream(port=dealer.second.send_port, lane=2))
    dealer.say(submit(source=clips[0]))
    dealer.windows(1, 1)
    assert dealer.nothing_more()


# --- the hub ----------------------------------------------------------------------------------------------------

ALL = ("frontend", "encoder", "decoder", "encoder-2", "decoder-2")


@pytest.fixture
def lanes() -> Iterator[Losses]:
    """Two lanes that stand."""
    with ExitStack() as resources:
        stage = Losses(resources, lanes=2)
        stage.start_line()
        settle(*stage.actors.values())
        yield stage


def test_every_actor_is_told_where_its_results_go_and_what_it_may_send(lanes: Losses) -> None:
    frontend = lanes.actors["frontend"]
    ways = {way.lane: way.port for way in (frontend.hear(Downstream), frontend.hear(Downstream))}
    assert ways == {1: lanes.inbox("encoder"), 2: lanes.inbox("encoder-2")}
    granted = {credit.lane: credit.windows for credit in (frontend.hear(Credit), frontend.hear(Credit))}
    assert granted == {1: 2, 2: 2}
    for name, follower in (("encoder", "decoder"), ("encoder-2", "decoder-2")):
        assert lanes.actors[name].hear(Downstream) == Downstream(lanes.inbox(follower) or ways[1])
        assert lanes.actors[name].hear(Credit) == Credit(windows=2)


def test_credit_of_a_lane_goes_to_the_frontend_with_its_number(lanes: Losses) -> None:
    frontend = lanes.actors["frontend"]
    frontend.take()
    lanes.actors["encoder-2"].say(Credit(windows=1))
    assert frontend.hear(Credit) == Credit(windows=1, lane=2)


def test_jobs_begin_when_one_lane_is_there() -> None:
    """The first text does not wait for the models of the others."""
    with ExitStack() as resources:
        house = House(resources, lanes=2)
        house.hub.allow_jobs()
        for name in ALL[:3]:
            house.actor(name).say(*house.introduction(name))
        client, request = house.actor("client"), submit()
        client.say(request)
        assert house.actors["frontend"].hear(Submit) == request
        assert not house.ready.is_set()


def test_the_frontend_is_told_the_memory_once_it_is_settled_and_nobody_else_is(lanes: Losses) -> None:
    watcher, frontend = lanes.subscriber(), lanes.actors["frontend"]
    request = lanes.begin(windows=2, committed=1)
    assert frontend.hear(Committed) == Committed(request.job, 1)
    lanes.actors["decoder-2"].say(replace(segment(request.job, 1, memory="known"), settled=True))
    assert frontend.hear(Committed) == Committed(request.job, 2, "known", settled=True)
    expect(watcher, Started)
    for _ in range(2):
        expect(watcher, Window)
    for _ in range(2):
        published = expect(watcher, Segment)
        assert (published.memory, published.settled) == ("", False)


def test_a_lane_that_is_lost_while_it_loads_costs_the_others_nothing() -> None:
    with ExitStack() as resources:
        stage = Losses(resources, lanes=2)
        stage.hub.allow_jobs()
        for name in ALL[:3]:
            stage.actor(name).say(*stage.introduction(name))
        settle(*stage.actors.values())
        request = stage.begin(windows=2, committed=0)
        stage.actor("encoder-2").say(Hello(name="encoder-2", package="0", pid=1))
        stage.lose("encoder-2")
        stage.actors["decoder"].say(segment(request.job, 0))
        assert stage.actors["frontend"].hear(Committed).windows == 1
        assert not any(isinstance(message, Fence) for message in stage.actors["decoder"].take())


@pytest.mark.parametrize("lost", ALL)
def test_whoever_is_lost_all_lanes_do_what_is_not_committed_again(lanes: Losses, lost: str) -> None:
    request = lanes.begin(windows=3, committed=1)
    lanes.lose(lost)
    for name in ALL:
        if name != lost:
            assert lanes.actors[name].hear(Fence) == Fence(request.job, 2)
    new = lanes.replace(lost)
    settle(*(lanes.actors[name] for name in ALL))
    frontend = new if lost == "frontend" else lanes.actors["frontend"]
    assert frontend.hear(Reissue) == Reissue(request.job, 1, 2, request, "0")


def test_a_lost_lane_is_replaced_alone_and_only_its_neighbours_are_told(lanes: Losses) -> None:
    for name in ALL:
        lanes.actors[name].take()
    lanes.lose("encoder-2")
    lanes.replace("encoder-2")
    settle(*(lanes.actors[name] for name in ALL))
    port = lanes.inbox("encoder-2")
    assert port is not None
    assert lanes.actors["frontend"].hear(Downstream) == Downstream(port, lane=2)
    for name in ("encoder", "decoder"):
        assert not any(isinstance(message, Downstream) for message in lanes.actors[name].take())


def test_the_window_that_is_blamed_is_that_of_the_actor_that_died(lanes: Losses) -> None:
    watcher = lanes.subscriber()
    request = lanes.begin(windows=3, committed=0)
    for attempt in (1, 2, 3):
        lanes.actors["decoder"].say(Working(request.job, 0, attempt))
        lanes.actors["decoder-2"].say(Working(request.job, 1, attempt))
        settle(lanes.actors["decoder"], lanes.actors["decoder-2"])
        lanes.lose("decoder-2")
        lanes.replace("decoder-2")
        settle(*(lanes.actors[name] for name in ALL))
    failed = expect_failed(watcher)
    assert (failed.job, failed.code) == (request.job, "killer")
    assert "window 1 ended its decoder-2 3 times" in failed.text


def test_one_that_could_not_say_over_what_it_died_is_not_blamed_on_what_others_work_on(lanes: Losses) -> None:
    request = lanes.begin(windows=2, committed=0)
    lanes.actors["decoder"].say(Working(request.job, 0, 1))
    settle(lanes.actors["decoder"])
    job = lanes.hub._ledger._active[request.job]
    lanes.lose("decoder-2")
    assert job.killed == {1: ["decoder-2"]}


def test_a_window_that_ended_workers_of_several_lanes_names_them_and_is_forgiven_to_each(lanes: Losses) -> None:
    watcher = lanes.subscriber()
    request = lanes.begin(windows=1, committed=0)
    for attempt, name in enumerate(("decoder", "decoder-2", "decoder"), start=1):
        lanes.actors[name].say(Working(request.job, 0, attempt))
        settle(lanes.actors[name])
        lanes.lose(name)
        lanes.replace(name)
        settle(*(lanes.actors[other] for other in ALL))
    assert "window 0 ended its decoder and decoder-2 3 times" in expect_failed(watcher).text
    for _ in range(3):  # all lives again
        lanes.lose("decoder-2")
    assert lanes.thread.is_alive()


def test_segments_of_two_decoders_are_committed_in_order(lanes: Losses) -> None:
    watcher = lanes.subscriber()
    request = lanes.begin(windows=2, committed=0)
    lanes.actors["decoder-2"].say(partial(request.job, 1, " two"), segment(request.job, 1, " two"))
    settle(lanes.actors["decoder-2"])
    lanes.actors["decoder"].say(partial(request.job, 0, " one"), segment(request.job, 0, " one"))
    lanes.actors["frontend"].say(audio_end(request.job, 2))
    expect(watcher, Started)
    for _ in range(2):
        expect(watcher, Window)
    assert expect(watcher, Partial).text == " one"
    assert [expect(watcher, Segment).text for _ in range(2)] == [" one", " two"]
    assert expect(watcher, Done).text == "one two"
