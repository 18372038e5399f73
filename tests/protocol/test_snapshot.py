"""A late joiner is let in however much text there is, and loses what it needs least."""

from __future__ import annotations

from dataclasses import replace

from susurrus.protocol import (
    Cue,
    Done,
    JobState,
    Message,
    Segment,
    Snapshot,
    Span,
    decode,
    encode,
    fit_snapshot,
    new_id,
)
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
            cues=tuple(Cue(float(i), i + 1.0, TEXT[:70], tuple(range(1000, 1010)), ()) for i in range(6)),
            speech=(Span(0.0, 30.0),),
            language_probabilities={"en": 1.0},
        )
        for index in range(2 * minutes)
    )
    end = Done(identifier, 9, TEXT * 2 * minutes, "en", 1.0, 60.0 * minutes, {}, True, ()) if done else None
    state = "done" if done else "running"
    return JobState(identifier, 9, "talk.wav", state, 60.0 * minutes, segments, None, end)


def sent(snapshot: Snapshot) -> Message:
    return decode(encode(snapshot, sender="hub", instance=new_id())).message


def without_tokens(state: JobState) -> JobState:
    def without(segment: Segment) -> Segment:
        return replace(segment, tokens=(), cues=tuple(replace(cue, tokens=()) for cue in segment.cues))

    return replace(state, segments=tuple(map(without, state.segments)))


def without_cues(state: JobState) -> JobState:
    bare = (replace(each, tokens=(), cues=(), speech=(), language_probabilities={}) for each in state.segments)
    return replace(state, segments=tuple(bare))


def test_a_snapshot_that_fits_is_left_alone(samples: dict[str, Message]) -> None:
    snapshot = samples["snapshot"]
    assert isinstance(snapshot, Snapshot)
    assert fit_snapshot(snapshot) is snapshot
    assert body_size(snapshot) == len(encode(snapshot, sender="hub", instance=new_id())[2])


def test_five_hours_lose_their_token_ids_and_nothing_else() -> None:
    running = job(5 * 60, done=False)
    fitted = fit_snapshot(Snapshot((running,)))
    assert sent(fitted) == Snapshot((without_tokens(running),))


def test_nine_hours_lose_their_cues_as_well() -> None:
    running = job(9 * 60, done=False)
    fitted = fit_snapshot(Snapshot((running,)))
    assert sent(fitted) == Snapshot((without_cues(running),))


def test_finished_jobs_lose_their_segments_before_their_text() -> None:
    jobs = (*(job(60, done=True) for _ in range(10)), job(60, done=False))
    fitted = sent(fit_snapshot(Snapshot(jobs)))
    assert isinstance(fitted, Snapshot)
    assert [state.end for state in fitted.jobs] == [state.end for state in jobs]
    assert not any(state.segments for state in fitted.jobs[:-1])
    assert fitted.jobs[-1] == without_cues(jobs[-1])


def test_the_oldest_finished_jobs_go_before_anything_of_a_running_one() -> None:
    jobs = (*(job(60, done=True) for _ in range(32)), job(60, done=False))
    fitted = sent(fit_snapshot(Snapshot(jobs)))
    assert isinstance(fitted, Snapshot)
    assert 10 < len(fitted.jobs) < 33
    assert [state.job for state in fitted.jobs] == [state.job for state in jobs[-len(fitted.jobs) :]]
    assert fitted.jobs[-1] == without_cues(jobs[-1])


def test_a_whole_day_keeps_its_newest_segments() -> None:
    running = job(24 * 60, done=False)
    fitted = fit_snapshot(Snapshot((running,)))
    assert body_size(fitted) <= MAX_TEXT_BODY_BYTES
    kept = fitted.jobs[0].segments
    assert kept
    assert kept == without_cues(running).segments[-len(kept) :]


def test_a_thousand_queued_jobs_fit() -> None:
    queued = tuple(JobState(new_id(), 0, f"talk {n}.wav", "queued", None, (), None, None) for n in range(1024))
    assert fit_snapshot(Snapshot(queued)).jobs == queued
