"""A late joiner is let in however much text there is, and loses what it needs least."""

from __future__ import annotations

from dataclasses import replace

from susurrus.protocol import Done, JobState, Message, Segment, Snapshot, decode, encode, fit_snapshot, new_id
from susurrus.protocol.codec import MAX_TEXT_BODY_BYTES, body_size

TEXT = "and so my fellow americans ask not what your country can do for you " * 6  # about 30 s of speech


def job(minutes: int, *, done: bool) -> JobState:
    identifier = new_id()
    segments = tuple(
        Segment(
            identifier,
            index,
            1,
            0.0,
            30.0,
            TEXT,
            tuple(range(1000, 1100)),
            "en",
            1.0,
            False,
            0.1,
            0.1,
            index + 1,
        )
        for index in range(2 * minutes)
    )
    end = Done(identifier, 9, TEXT * 2 * minutes, "en", 1.0, 60.0 * minutes, {}, True, ()) if done else None
    state = "done" if done else "running"
    return JobState(identifier, 9, "talk.wav", state, 60.0 * minutes, segments, None, end)


def sent(snapshot: Snapshot) -> Message:
    return decode(encode(snapshot, sender="hub", instance=new_id())).message


def without_tokens(state: JobState) -> JobState:
    return replace(state, segments=tuple(replace(segment, tokens=()) for segment in state.segments))


def test_a_snapshot_that_fits_is_left_alone(samples: dict[str, Message]) -> None:
    snapshot = samples["snapshot"]
    assert isinstance(snapshot, Snapshot)
    assert fit_snapshot(snapshot) is snapshot
    assert body_size(snapshot) == len(encode(snapshot, sender="hub", instance=new_id())[2])


def test_twelve_hours_lose_their_token_ids_and_nothing_else() -> None:
    running = job(12 * 60, done=False)
    fitted = fit_snapshot(Snapshot((running,)))
    assert sent(fitted) == Snapshot((without_tokens(running),))


def test_finished_jobs_lose_their_segments_before_their_text() -> None:
    jobs = (*(job(60, done=True) for _ in range(10)), job(60, done=False))
    fitted = sent(fit_snapshot(Snapshot(jobs)))
    assert isinstance(fitted, Snapshot)
    assert [state.end for state in fitted.jobs] == [state.end for state in jobs]
    assert not any(state.segments for state in fitted.jobs[:-1])
    assert fitted.jobs[-1] == without_tokens(jobs[-1])


def test_the_oldest_finished_jobs_go_before_anything_of_a_running_one() -> None:
    jobs = (*(job(60, done=True) for _ in range(32)), job(60, done=False))
    fitted = sent(fit_snapshot(Snapshot(jobs)))
    assert isinstance(fitted, Snapshot)
    assert 10 < len(fitted.jobs) < 33
    assert [state.job for state in fitted.jobs] == [state.job for state in jobs[-len(fitted.jobs) :]]
    assert fitted.jobs[-1] == without_tokens(jobs[-1])


def test_a_whole_day_keeps_its_newest_segments() -> None:
    running = job(24 * 60, done=False)
    fitted = fit_snapshot(Snapshot((running,)))
    assert body_size(fitted) <= MAX_TEXT_BODY_BYTES
    kept = fitted.jobs[0].segments
    assert kept
    assert kept == without_tokens(running).segments[-len(kept) :]


def test_a_thousand_queued_jobs_fit() -> None:
    queued = tuple(JobState(new_id(), 0, f"talk {n}.wav", "queued", None, (), None, None) for n in range(1024))
    assert fit_snapshot(Snapshot(queued)).jobs == queued
