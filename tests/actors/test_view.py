"""A view is the same however its events reached it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from susurrus.actors.committed import CommittedText
from susurrus.actors.ledger import Ledger
from susurrus.actors.reports import JobReport
from susurrus.actors.view import MAX_HELD, JobEvent, JobView, TranscriptView, job_text
from susurrus.protocol import (
    AudioEnd,
    Beat,
    Cancelled,
    Done,
    Failed,
    JobState,
    Partial,
    Segment,
    Snapshot,
    Started,
    Stopped,
    Submit,
    Welcome,
    Window,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from susurrus.protocol import Event

untimed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
JOB = bytes(range(16))
OTHER = bytes(16)


def started(job: bytes = JOB) -> Started:
    return Started(job, 0, "clip.wav", 60.0)


def window(index: int, attempt: int = 1, *, speech: bool = True) -> Window:
    return Window(JOB, index, attempt, index * 30.0, index * 30.0 + 30, speech)


def partial(text: str, index: int = 0, attempt: int = 1, stable: int = 0) -> Partial:
    return Partial(JOB, index, attempt, index * 30.0, index * 30.0 + 30, text, stable, ())


def segment(text: str, index: int = 0, attempt: int = 1) -> Segment:
    return Segment(JOB, index, attempt, index * 30.0, index * 30.0 + 30, text, (), "en", 1.0, False, 0.0, 0.0)


def done(text: str) -> Done:
    return Done(JOB, 0, text, "en", 1.0, 60.0, {}, complete=True, warnings=())


def numbered(*events: JobEvent) -> list[JobEvent]:
    return [replace(event, seq=seq) for seq, event in enumerate(events, start=1)]


def attached(*events: Event, snapshot: Snapshot | None = None) -> TranscriptView:
    view = TranscriptView()
    view.apply_snapshot(snapshot or Snapshot(()))
    for event in events:
        view.apply(event)
    return view


# --- histories as the hub publishes them --------------------------------------------------------------------


@st.composite
def histories(draw: st.DrawFn, job: bytes = JOB) -> list[JobEvent]:
    """Every event of one job: windows tried again, silence, an end of any kind, perhaps an early one."""
    events: list[JobEvent] = [started()]
    words = st.text("ab 世é\n", max_size=4)
    texts = []
    for index in range(draw(st.integers(0, 4))):
        speech = draw(st.booleans())
        events.append(window(index, speech=speech))
        texts.append(draw(words) if speech else "")
        attempt = 1
        for _ in range(draw(st.integers(0, 3)) if speech else 0):
            attempt += draw(st.integers(0, 1))
            events.append(partial(draw(words), index, attempt))
        events.append(segment(texts[-1], index, attempt))
    ends: list[JobEvent] = [
        done("".join(texts).removeprefix(" ")),
        Failed(JOB, "audio", "no"),
        Cancelled(JOB, 0),
    ]
    end = draw(st.sampled_from(ends))
    if not isinstance(end, Done):
        del events[draw(st.integers(1, len(events))) :]
    events = [replace(event, job=job) for event in [*events, end]]
    return numbered(*events)


def state_after(events: Sequence[JobEvent], job: bytes = JOB) -> JobState:
    """What a snapshot says after these events, computed the slow way."""
    segments = tuple(event for event in events if isinstance(event, Segment))
    committed = {segment.window for segment in segments}
    partials = [event for event in events if isinstance(event, Partial) and event.window not in committed]
    ends = [event for event in events if isinstance(event, Done | Failed | Cancelled)]
    return JobState(
        job=job,
        seq=len(events),
        name="clip.wav",
        state="running",
        duration=60.0 if events else None,
        segments=segments,
        partial=partials[-1] if partials and not ends else None,
        end=ends[0] if ends else None,
    )


@untimed
@given(histories(), st.data())
def test_attaching_anywhere_gives_the_same_view_as_being_there_from_the_start(
    events: list[JobEvent], data: st.DataObject
) -> None:
    expected = attached(*events).jobs
    for index in range(len(events) + 1):
        first = data.draw(st.integers(0, index))  # the subscription is live from here on
        answered = data.draw(st.integers(first, len(events)))  # the snapshot is read after this many events
        view = TranscriptView()
        for event in events[first:answered]:
            assert view.apply(event) == []
        view.apply_snapshot(Snapshot((state_after(events[:index]),)))
        for event in events[answered:]:
            view.apply(event)
        assert view.jobs == expected
        assert not view.needs_snapshot


@untimed
@given(histories(), st.data())
def test_whatever_is_lost_a_snapshot_repairs_it(events: list[JobEvent], data: st.DataObject) -> None:
    expected = attached(*events)
    kept = data.draw(st.lists(st.booleans(), min_size=len(events), max_size=len(events)))
    view = attached(*(event for event, keep in zip(events, kept, strict=True) if keep))
    if any(kept):  # the job is known or waited for; its end is no more in the beat, so a lost end is noticed
        view.apply(Beat(1, {}))
        assert view.needs_snapshot == (not all(kept))
    view.apply_snapshot(Snapshot((state_after(events),)))
    assert view.jobs == expected.jobs
    assert not view.needs_snapshot


@untimed
@given(histories(), st.randoms(use_true_random=False))
def test_repeated_and_reordered_events_change_nothing(events: list[JobEvent], random: Random) -> None:
    shuffled = [*events, *events]
    random.shuffle(shuffled)
    assert attached(*shuffled).jobs == attached(*events).jobs


@untimed
@given(histories(), histories(OTHER), st.data())
def test_jobs_do_not_disturb_each_other(first: list[JobEvent], second: list[JobEvent], data: st.DataObject) -> None:
    mixed: list[JobEvent] = []
    queues = [list(first), list(second)]
    while queue := data.draw(st.sampled_from([queue for queue in queues if queue] or [[]])):
        mixed.append(queue.pop(0))
    view = attached(*mixed)
    assert view.jobs[JOB] == attached(*first).jobs[JOB]
    assert view.jobs[OTHER] == attached(*second).jobs[OTHER]


@untimed
@given(histories())
def test_every_event_takes_effect_once_and_in_order(events: list[JobEvent]) -> None:
    view = attached()
    assert [change for event in [*events, *events] for change in view.apply(event)] == events


@untimed
@given(histories(), st.data())
def test_text_is_handed_out_once_and_never_changes(events: list[JobEvent], data: st.DataObject) -> None:
    view, text, given_out = JobView(JOB), CommittedText(), ""
    for event in events:
        view.update(event)
        if data.draw(st.booleans()) and view.end is None:
            given_out += text.take(view)
            assert view.text.startswith(given_out)
    given_out += text.take_rest(view)
    assert given_out == job_text(event for event in events if isinstance(event, Segment))
    assert text.take_rest(view) == ""


def test_a_view_agrees_with_the_snapshots_of_the_ledger_at_every_event() -> None:
    ledger = Ledger()
    ledger.submit(Submit(JOB, "clip.wav", "clip.wav"), 0.0)
    reports: list[JobReport] = [
        started(),
        window(0),
        window(1, speech=False),
        window(2),
        partial(" Hel", 0),
        partial(" Hello", 0),
        segment(" Hello", 0),
        partial(" wor", 2),
        segment(" world", 2),
        AudioEnd(JOB, 3, 60.0, 0.1, complete=True, warnings=()),
    ]
    view = attached(snapshot=ledger.snapshot())
    for report in reports:
        for event in ledger.apply(report, 1.0):
            view.apply(event)
        assert attached(snapshot=ledger.snapshot()).jobs == view.jobs
        view.apply(Beat(1, ledger.latest()))
        assert not view.needs_snapshot
    assert view.jobs[JOB].text == "Hello world"
    assert isinstance(view.jobs[JOB].end, Done)


# --- single rules -------------------------------------------------------------------------------------------


def test_text_is_joined_as_it_is_and_loses_one_space_at_its_very_start_only() -> None:
    assert job_text([segment("  a ", 1), segment("", 0), segment(" b", 2)]) == " a  b"


def test_the_hypothesis_of_an_attempt_that_was_given_up_is_ignored() -> None:
    view = attached(*numbered(started(), partial("new", attempt=2), partial("old", attempt=1)))
    assert view.jobs[JOB].partial == replace(partial("new", attempt=2), seq=2)


def test_a_window_tried_again_fences_its_earlier_attempt_at_once() -> None:
    view = attached(*numbered(started(), window(0), window(0, attempt=2), partial("old", attempt=1)))
    assert view.jobs[JOB].partial is None


def test_committed_text_is_never_replaced() -> None:
    view = attached(*numbered(started(), segment("first"), segment("second", attempt=2), partial("third")))
    assert view.jobs[JOB].text == "first"
    assert view.jobs[JOB].partial is None
    view.apply_snapshot(Snapshot((replace(state_after([]), seq=9, segments=(segment("fourth"),)),)))
    assert view.jobs[JOB].text == "first"


def test_nothing_follows_the_end() -> None:
    view = attached(*numbered(started(), Cancelled(JOB, 0), segment("late"), done("late")))
    assert view.jobs[JOB].text == ""
    assert isinstance(view.jobs[JOB].end, Cancelled)


def test_a_new_view_needs_a_snapshot_and_shows_nothing_before_it() -> None:
    view = TranscriptView()
    assert view.apply(Welcome(JOB)) == []
    assert view.apply(numbered(started())[0]) == []
    assert view.needs_snapshot
    assert not view.jobs


def test_a_snapshot_reports_only_jobs_it_brought_news_of() -> None:
    events = numbered(started(), segment("a"))
    state = state_after(events)
    queued = replace(state_after([]), job=OTHER)
    view = attached(*events)
    assert view.apply_snapshot(Snapshot((queued, state))) == []
    assert OTHER in view.jobs
    newer = replace(state, seq=3)
    assert view.apply_snapshot(Snapshot((queued, newer))) == [Snapshot((newer,))]


def test_a_gap_holds_events_back_until_the_snapshot() -> None:
    events = numbered(started(), segment("a", 0), segment("b", 1), segment("c", 2))
    view = attached(events[0], events[2])
    assert view.needs_snapshot
    assert view.jobs[JOB].text == ""
    assert view.apply_snapshot(Snapshot((state_after(events[:2]),)))[1:] == [events[2]]
    assert view.jobs[JOB].text == "ab"
    assert not view.needs_snapshot


def test_a_missing_event_that_comes_late_closes_the_gap() -> None:
    events = numbered(started(), segment("a", 0), segment("b", 1))
    view = attached(events[0], events[2])
    assert view.apply(events[1]) == events[1:]
    assert not view.needs_snapshot


def test_a_job_of_which_no_event_came_has_its_place_before_those_behind_it() -> None:
    jobs = [bytes([number]) * 16 for number in range(1, 4)]
    view = attached(*numbered(started(jobs[0])), *numbered(started(jobs[2])))
    states = [JobState(job, 1, "clip.wav", "running", 60.0, (), None, None) for job in jobs]
    view.apply_snapshot(Snapshot(tuple(states)))
    assert list(view.jobs) == jobs


def test_a_beat_makes_the_loss_of_the_latest_event_visible() -> None:
    view = attached(*numbered(started()))
    view.apply(Beat(1, {JOB.hex(): 1}))
    assert not view.needs_snapshot
    view.apply(Beat(2, {JOB.hex(): 2}))
    assert view.needs_snapshot


def test_a_beat_makes_the_loss_of_a_whole_job_visible() -> None:
    view = attached()
    view.apply(Beat(1, {JOB.hex(): 3}))
    assert view.needs_snapshot


def test_a_snapshot_older_than_the_beat_does_not_end_the_asking_for_good() -> None:
    events = numbered(started(), segment("a"))
    view = attached(events[0])
    view.apply(Beat(1, {JOB.hex(): 2}))
    view.apply_snapshot(Snapshot((state_after(events[:1]),)))
    view.apply(Beat(2, {JOB.hex(): 2}))
    assert view.needs_snapshot


def test_what_a_view_holds_is_bounded() -> None:
    view = attached()
    for seq in range(2, 3 * MAX_HELD):
        view.apply(replace(partial("a"), seq=seq))
    assert len(view._held[JOB]) == MAX_HELD
    state = replace(state_after([]), seq=2 * MAX_HELD)
    view.apply_snapshot(Snapshot((state,)))
    assert not view._held


def test_a_job_the_pipeline_has_forgotten_is_given_up_after_two_snapshots() -> None:
    view = attached(*numbered(started()))
    view.apply(Beat(1, {}))
    assert view.apply_snapshot(Snapshot(())) == []
    (end,) = view.apply_snapshot(Snapshot(()))
    assert isinstance(end, Failed)
    assert "clip.wav" in end.text
    assert view.jobs[JOB].end == end
    assert not view.needs_snapshot


def test_the_end_of_a_forgotten_job_still_counts_when_it_was_received() -> None:
    view = attached(*numbered(started(), segment(" a")), replace(done("a b"), seq=9))
    view.apply_snapshot(Snapshot(()))
    view.apply_snapshot(Snapshot(()))
    job, text = view.jobs[JOB], CommittedText()
    assert isinstance(job.end, Done)
    assert text.take(job) == "a"
    assert text.take_rest(job) == " b"


def test_of_an_unfinished_job_the_part_that_could_not_change_is_handed_out_too() -> None:
    view, text = JobView(JOB), CommittedText()
    for event in numbered(started(), partial(" Hello wor", stable=6)):
        view.update(event)
    assert text.take(view) == ""
    view.update(Cancelled(JOB, 3))
    assert text.take_rest(view) == "Hello"


def test_a_preview_goes_on_from_the_text_given_out() -> None:
    view, text = JobView(JOB), CommittedText()
    assert text.preview(partial(" Hello", stable=3)) == ("He", "llo")
    assert text.preview(partial(" Hello", stable=0)) == ("", "Hello")
    view.update(replace(segment(" a"), seq=1))
    text.take(view)
    assert text.preview(partial(" Hello", stable=3)) == (" He", "llo")


def test_a_pipeline_that_has_stopped_is_not_asked_any_more() -> None:
    view = TranscriptView()
    assert view.apply(Stopped("pipeline", "", "")) == [Stopped("pipeline", "", "")]
    assert view.stopped == Stopped("pipeline", "", "")
    assert not view.needs_snapshot
