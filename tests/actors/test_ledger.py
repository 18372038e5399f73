"""At-least-once work, exactly-once effect: the rules of the ledger, and any order that reports can come in."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

from hypothesis import given
from hypothesis import strategies as st

from susurrus.actors.ledger import MAX_FINISHED, MAX_QUEUED, Ledger
from susurrus.actors.reports import JobReport
from susurrus.models.results import join_text
from susurrus.protocol import (
    Accepted,
    AudioEnd,
    Cancelled,
    Done,
    Event,
    Failed,
    Partial,
    Rejected,
    Segment,
    Snapshot,
    Started,
    TerminalEvent,
    Window,
    encode,
    fit_snapshot,
    new_id,
)
from susurrus.protocol.codec import MAX_TEXT_BODY_BYTES, body_size
from tests.actors.fakes import audio_end, failed, partial, segment, started, submit, window

JOB = new_id()


def ledger_with(*jobs: bytes) -> Ledger:
    ledger = Ledger()
    for job in jobs:
        assert ledger.submit(submit(job), 0.0) == Accepted(job=job)
        ledger.next_to_read()
    return ledger


def apply(ledger: Ledger, *reports: JobReport, now: float = 1.0) -> list[Event]:
    return [event for report in reports for event in ledger.apply(report, now)]


def types(events: Iterable[Event]) -> list[str]:
    return [event.TYPE for event in events]


def seqs(events: Iterable[Event]) -> list[int]:
    return [event.seq for event in events if isinstance(event, Started | Window | Partial | Segment | TerminalEvent)]


def test_a_job_runs_from_submit_to_done() -> None:
    ledger = ledger_with(JOB)
    events = apply(ledger, started(JOB), window(JOB, 0), partial(JOB, 0), segment(JOB, 0, " Hello"), audio_end(JOB, 1))
    assert types(events) == ["started", "window", "partial", "segment", "done"]
    assert seqs(events) == [1, 2, 3, 4, 5]
    done = events[-1]
    assert isinstance(done, Done)
    assert (done.text, done.language, done.language_probability, done.duration) == ("Hello", "de", 0.75, 30.0)
    assert not ledger.is_open(JOB)


def test_timings_add_up_the_work_and_count_from_submit() -> None:
    ledger = Ledger()
    ledger.submit(submit(JOB), 10.0)
    apply(ledger, window(JOB, 0), window(JOB, 1))
    apply(ledger, partial(JOB, 0), now=11.5)
    apply(ledger, partial(JOB, 0), now=12.0)
    done = apply(ledger, segment(JOB, 0), segment(JOB, 1), audio_end(JOB, 2), now=13.0)[-1]
    assert isinstance(done, Done)
    wanted = {"frontend": 0.125, "encoder": 0.5, "decoder": 1.0, "total": 3.0, "first_partial": 1.5}
    assert wanted.items() <= done.timings.items()


def test_a_resent_submit_is_answered_and_not_run_twice() -> None:
    ledger = Ledger()
    request = submit()
    assert ledger.submit(request, 0.0) == ledger.submit(request, 1.0) == Accepted(job=request.job)
    assert ledger.next_to_read() == request
    assert ledger.submit(request, 2.0) == Accepted(job=request.job)
    assert ledger.next_to_read() is None


def test_a_submit_resent_after_the_end_is_answered_and_not_run_again() -> None:
    ledger = ledger_with(JOB)
    apply(ledger, audio_end(JOB, 0))
    assert ledger.submit(submit(JOB), 5.0) == Accepted(job=JOB)
    assert ledger.next_to_read() is None
    assert not ledger.is_open(JOB)


def test_jobs_are_given_out_in_the_order_they_came() -> None:
    ledger = Ledger()
    requests = [submit() for _ in range(5)]
    for request in requests:
        ledger.submit(request, 0.0)
    ledger.cancel(requests[2].job)
    assert [ledger.next_to_read() for _ in range(5)] == [*requests[:2], *requests[3:], None]


def test_more_jobs_than_the_bound_are_rejected_as_busy_until_one_ends() -> None:
    ledger = Ledger()
    jobs = [new_id() for _ in range(MAX_QUEUED)]
    for job in jobs:
        assert ledger.submit(submit(job), 0.0) == Accepted(job=job)
    answer = ledger.submit(submit(JOB), 0.0)
    assert isinstance(answer, Rejected)
    assert (answer.job, answer.code) == (JOB, "busy")
    assert ledger.submit(submit(jobs[7]), 0.0) == Accepted(job=jobs[7])
    ledger.cancel(jobs[0])
    assert ledger.submit(submit(JOB), 0.0) == Accepted(job=JOB)


def test_segments_are_committed_in_window_order_whatever_order_they_come_in() -> None:
    for order in itertools.permutations(range(4)):
        ledger = ledger_with(JOB)
        apply(ledger, *(window(JOB, index) for index in range(4)), audio_end(JOB, 4))
        events = apply(ledger, *(segment(JOB, index) for index in order))
        assert [event.window for event in events if isinstance(event, Segment)] == [0, 1, 2, 3]
        assert types(events)[-1] == "done"


def test_a_silent_window_commits_as_empty_text_without_a_segment_from_the_decoder() -> None:
    ledger = ledger_with(JOB)
    events = apply(ledger, window(JOB, 0, speech=False))
    assert types(events) == ["window", "segment"]
    silence = events[1]
    assert isinstance(silence, Segment)
    assert (silence.text, silence.tokens, silence.language) == ("", (), "")
    assert (silence.start, silence.end) == (0.0, 30.0)


def test_silence_waits_for_the_speech_before_it_and_does_not_decide_the_language() -> None:
    ledger = ledger_with(JOB)
    silences = [window(JOB, 0, speech=False), window(JOB, 2, speech=False)]
    apply(ledger, silences[0], window(JOB, 1))
    assert types(apply(ledger, silences[1])) == ["window"]
    events = apply(ledger, segment(JOB, 1), audio_end(JOB, 3))
    assert types(events) == ["segment", "segment", "done"]
    done = events[-1]
    assert isinstance(done, Done)
    assert (done.text, done.language) == ("text 1", "de")


def test_a_job_of_silence_alone_is_done_with_empty_text_and_no_language() -> None:
    ledger = ledger_with(JOB)
    done = apply(ledger, window(JOB, 0, speech=False), audio_end(JOB, 1))[-1]
    assert isinstance(done, Done)
    assert (done.text, done.language, done.language_probability) == ("", "", 0.0)
    assert "first_partial" not in done.timings


def test_a_job_without_any_window_is_done() -> None:
    assert types(apply(ledger_with(JOB), audio_end(JOB, 0))) == ["done"]


def test_reports_of_an_attempt_that_does_not_count_change_nothing() -> None:
    ledger = ledger_with(JOB)
    ledger.begin_attempt()
    apply(ledger, window(JOB, 0, attempt=2))
    before = ledger.snapshot()
    assert apply(ledger, window(JOB, 1, attempt=1), partial(JOB, 0, attempt=1), segment(JOB, 0, attempt=1)) == []
    assert apply(ledger, window(JOB, 1, attempt=3), partial(JOB, 0, attempt=3), segment(JOB, 0, attempt=3)) == []
    assert ledger.snapshot() == before


def test_reports_of_an_unknown_job_change_nothing() -> None:
    ledger = ledger_with(JOB)
    before, other = ledger.snapshot(), new_id()
    assert apply(ledger, started(other), window(other, 0), partial(other, 0), segment(other, 0)) == []
    assert apply(ledger, audio_end(other, 0), failed(other)) == []
    assert ledger.snapshot() == before


def test_reports_of_a_window_that_was_never_announced_change_nothing() -> None:
    ledger = ledger_with(JOB)
    apply(ledger, window(JOB, 0))
    before = ledger.snapshot()
    assert apply(ledger, partial(JOB, 1), segment(JOB, 1)) == []
    assert ledger.snapshot() == before


def test_what_comes_before_its_window_is_announced_is_not_lost() -> None:
    ledger = ledger_with(JOB)
    partials = [partial(JOB, 0), partial(JOB, 0), partial(JOB, 1)]
    assert apply(ledger, *partials, segment(JOB, 1), segment(JOB, 0), audio_end(JOB, 2)) == []
    events = apply(ledger, window(JOB, 0), window(JOB, 1))
    assert types(events) == ["window", "partial", "partial", "segment", "window", "partial", "segment", "done"]


def test_what_came_early_does_not_count_for_another_attempt() -> None:
    ledger = ledger_with(JOB)
    apply(ledger, partial(JOB, 0, attempt=1), segment(JOB, 0, attempt=1))
    ledger.begin_attempt()
    assert types(apply(ledger, window(JOB, 0, attempt=2))) == ["window"]


def test_committed_text_is_never_changed_by_a_second_segment_or_a_late_partial() -> None:
    ledger = ledger_with(JOB)
    apply(ledger, window(JOB, 0), window(JOB, 1), segment(JOB, 0, " first"))
    before = ledger.snapshot()
    assert apply(ledger, segment(JOB, 0, " second"), partial(JOB, 0), window(JOB, 0)) == []
    assert ledger.snapshot() == before


def test_a_segment_that_waits_for_its_turn_is_not_replaced_either() -> None:
    ledger = ledger_with(JOB)
    apply(ledger, window(JOB, 0), window(JOB, 1), segment(JOB, 1, " first"))
    assert apply(ledger, segment(JOB, 1, " second"), partial(JOB, 1)) == []
    events = apply(ledger, segment(JOB, 0, "zero"))
    assert [event.text for event in events if isinstance(event, Segment)] == ["zero", " first"]


def test_cancel_ends_a_job_once() -> None:
    ledger = ledger_with(JOB)
    apply(ledger, started(JOB))
    assert ledger.cancel(JOB) == [Cancelled(job=JOB, seq=2)]
    assert ledger.cancel(JOB) == []
    assert apply(ledger, window(JOB, 0), segment(JOB, 0), audio_end(JOB, 1), failed(JOB)) == []


def test_cancel_after_done_and_of_an_unknown_job_does_nothing() -> None:
    ledger = ledger_with(JOB)
    apply(ledger, audio_end(JOB, 0))
    assert ledger.cancel(JOB) == []
    assert ledger.cancel(new_id()) == []


def test_a_queued_job_that_is_cancelled_is_never_given_out() -> None:
    ledger = Ledger()
    ledger.submit(submit(JOB), 0.0)
    assert ledger.cancel(JOB) == [Cancelled(job=JOB, seq=1)]
    assert ledger.next_to_read() is None


def test_one_failed_job_leaves_the_others_alone() -> None:
    other = new_id()
    ledger = ledger_with(JOB, other)
    assert types(apply(ledger, failed(JOB))) == ["failed"]
    assert ledger.is_open(other)
    assert types(apply(ledger, window(other, 0), segment(other, 0), audio_end(other, 1)))[-1] == "done"


def test_fail_all_ends_every_active_job_once_and_no_finished_one() -> None:
    jobs = [new_id() for _ in range(3)]
    ledger = ledger_with(*jobs)
    apply(ledger, audio_end(jobs[0], 0), started(jobs[1]))
    wanted = [
        Failed(job=jobs[1], code="stopped", text="the end", seq=2),
        Failed(job=jobs[2], code="stopped", text="the end", seq=1),
    ]
    assert ledger.fail_all("stopped", "the end") == wanted
    assert ledger.fail_all("stopped", "the end") == []


def test_the_snapshot_has_the_active_jobs_and_only_the_last_finished_ones() -> None:
    jobs = [new_id() for _ in range(MAX_FINISHED + 5)]
    ledger = ledger_with(*jobs)
    apply(ledger, *(audio_end(job, 0) for job in jobs[:-1]))
    snapshot = ledger.snapshot()
    assert [state.job for state in snapshot.jobs] == jobs[-MAX_FINISHED - 1 :]
    assert [state.state for state in snapshot.jobs[-2:]] == ["done", "queued"]
    assert ledger.latest() == {jobs[-1].hex(): 0}


def test_the_snapshot_tells_queued_from_running_and_shows_the_hypothesis() -> None:
    other = new_id()
    ledger = ledger_with(JOB)
    ledger.submit(submit(other), 0.0)
    apply(ledger, started(JOB), window(JOB, 0), partial(JOB, 0, " so"))
    running, queued = ledger.snapshot().jobs
    assert (running.state, running.duration, running.seq) == ("running", 60.0, 3)
    assert running.partial is not None
    assert running.partial.text == " so"
    assert (queued.state, queued.seq, queued.segments) == ("queued", 0, ())


# --- more text than a message holds -----------------------------------------------------------------------------

DENSE = " and one more word" * 30  # characters in 30 s; a fast speaker says 450


def transcribe(ledger: Ledger, job: bytes, hours: int) -> list[Event]:
    """A long job, window by window, all but its end."""
    events: list[Event] = []
    for index in range(120 * hours):
        events += apply(ledger, window(job, index), segment(job, index, DENSE, tokens=150))
    return events


def test_a_late_joiner_of_ten_hours_of_dense_speech_gets_every_word() -> None:
    ledger = ledger_with(JOB)
    events = transcribe(ledger, JOB, hours=10)
    snapshot = fit_snapshot(ledger.snapshot())
    assert body_size(snapshot) <= MAX_TEXT_BODY_BYTES
    told = [event.text for event in events if isinstance(event, Segment)]
    assert [piece.text for piece in snapshot.jobs[0].segments] == told


def test_a_text_longer_than_a_message_is_done_all_the_same_and_the_segments_have_it() -> None:
    ledger = ledger_with(JOB)
    transcribe(ledger, JOB, hours=17)
    done = apply(ledger, audio_end(JOB, 17 * 120))[-1]
    assert isinstance(done, Done)
    assert done.text == ""
    assert "segments" in done.warnings[-1]
    assert done.complete
    for message in (done, fit_snapshot(ledger.snapshot())):
        encode(message, sender="hub", instance=new_id())


# --- any order at all -------------------------------------------------------------------------------------------

JOBS = (JOB, new_id())
WINDOWS = st.integers(0, 3)
ATTEMPTS = st.integers(1, 2)
REPORTS = st.one_of(
    st.builds(started, st.sampled_from(JOBS)),
    st.builds(window, st.sampled_from(JOBS), WINDOWS, attempt=ATTEMPTS, speech=st.booleans()),
    st.builds(partial, st.sampled_from(JOBS), WINDOWS, attempt=ATTEMPTS),
    st.builds(segment, st.sampled_from(JOBS), WINDOWS, attempt=ATTEMPTS),
    st.builds(audio_end, st.sampled_from(JOBS), st.integers(0, 4)),
    st.builds(failed, st.sampled_from(JOBS)),
)
CANCEL, RESEND, LOSS = "cancel", "resend", "loss"
STEPS = st.lists(
    st.one_of(REPORTS, st.tuples(st.sampled_from((CANCEL, RESEND, LOSS)), st.sampled_from(JOBS))), max_size=40
)


def play(ledger: Ledger, steps: Sequence[JobReport | tuple[str, bytes]]) -> list[Event]:
    events: list[Event] = []
    for step in steps:
        if not isinstance(step, tuple):
            events += ledger.apply(step, 1.0)
        elif step[0] == CANCEL:
            events += ledger.cancel(step[1])
        elif step[0] == LOSS:
            ledger.begin_attempt()
        else:
            assert ledger.submit(submit(step[1]), 1.0) == Accepted(job=step[1])
    return events


def of_job(events: list[Event], job: bytes) -> list[Event]:
    return [event for event in events if getattr(event, "job", None) == job]


@given(STEPS)
def test_any_interleaving_gives_every_job_one_terminal_event_and_numbers_without_a_gap(
    steps: list[JobReport | tuple[str, bytes]],
) -> None:
    ledger = ledger_with(*JOBS)
    events = [*play(ledger, steps), *ledger.fail_all("stopped", "the end")]
    for job in JOBS:
        mine = of_job(events, job)
        assert seqs(mine) == list(range(1, len(mine) + 1))
        assert [isinstance(event, TerminalEvent) for event in mine] == [False] * (len(mine) - 1) + [True]
        committed = [event for event in mine if isinstance(event, Segment)]
        assert [event.window for event in committed] == list(range(len(committed)))
        end = mine[-1]
        if isinstance(end, Done):
            assert end.text == join_text(event.text for event in committed)


@given(STEPS)
def test_a_partial_is_published_only_of_a_window_that_is_not_committed(
    steps: list[JobReport | tuple[str, bytes]],
) -> None:
    committed: set[tuple[bytes, int]] = set()
    for event in play(ledger_with(*JOBS), steps):
        if isinstance(event, Segment):
            committed.add((event.job, event.window))
        elif isinstance(event, Partial):
            assert (event.job, event.window) not in committed


@st.composite
def honest_reports(draw: st.DrawFn) -> tuple[list[bool], list[JobReport]]:
    """What actors say of one job, each in its own order, woven together in any way, some of it twice."""
    speech = draw(st.lists(st.booleans(), max_size=5))
    frontend: list[JobReport] = [started(JOB)]
    frontend += [window(JOB, index, speech=spoken) for index, spoken in enumerate(speech)]
    frontend.append(audio_end(JOB, len(speech)))
    decoder: list[JobReport] = []
    for index, spoken in enumerate(speech):
        if spoken:
            decoder += [partial(JOB, index), segment(JOB, index)]
    woven: list[JobReport] = []
    while frontend or decoder:
        source = decoder if decoder and (not frontend or draw(st.booleans())) else frontend
        woven.append(source.pop(0))
        if draw(st.integers(0, 4)) == 0 and not isinstance(woven[-1], AudioEnd | Started):
            woven.append(woven[-1])
    return speech, woven


@given(honest_reports())
def test_honest_actors_always_bring_a_job_to_done_with_every_word(case: tuple[list[bool], list[JobReport]]) -> None:
    speech, reports = case
    done = apply(ledger_with(JOB), *reports)[-1]
    assert isinstance(done, Done)
    assert done.text == join_text(f" text {index}" for index, spoken in enumerate(speech) if spoken)


def test_a_snapshot_of_nothing_is_empty() -> None:
    assert Ledger().snapshot() == Snapshot(())
