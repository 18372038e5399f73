"""A snapshot that fits in one message, however much text the pipeline has seen.

A body may have 1 MiB. Some dozens of finished hours, or one recording of a day, are more than that, and a
late joiner must still be let in: what it can do without is left out, in the order of `docs/protocol.md`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from susurrus.protocol.codec import MAX_TEXT_BODY_BYTES, body_size
from susurrus.protocol.events import Segment
from susurrus.protocol.requests import JobState, Snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def fit_snapshot(snapshot: Snapshot) -> Snapshot:
    """The snapshot, or as much of it as can be sent.

    Left out first are the segments' token ids, then their cues, then the segments of finished jobs (their `end` has
    the text), then finished jobs from the first on, then segments of the others from the first on, at last those jobs.

    Args:
        snapshot: Jobs in the order they were submitted.
    """
    candidates = _smaller_and_smaller(snapshot)
    return next(smaller for smaller in candidates if body_size(smaller) <= MAX_TEXT_BODY_BYTES)


def _smaller_and_smaller(snapshot: Snapshot) -> Iterator[Snapshot]:
    yield snapshot
    jobs = [_without_tokens(job) for job in snapshot.jobs]
    yield Snapshot(tuple(jobs))
    jobs = [_without_cues(job) for job in jobs]
    yield Snapshot(tuple(jobs))
    jobs = [replace(job, segments=()) if job.end is not None else job for job in jobs]
    yield Snapshot(tuple(jobs))
    for job in [job for job in jobs if job.end is not None]:
        jobs.remove(job)
        yield Snapshot(tuple(jobs))
    while any(job.segments for job in jobs):
        jobs = [replace(job, segments=job.segments[(len(job.segments) + 1) // 2 :]) for job in jobs]
        yield Snapshot(tuple(jobs))
    while jobs:
        jobs = jobs[(len(jobs) + 1) // 2 :]
        yield Snapshot(tuple(jobs))


def _without_tokens(job: JobState) -> JobState:
    return _with_segments(
        job,
        lambda segment: replace(segment, tokens=(), cues=tuple(replace(cue, tokens=()) for cue in segment.cues)),
    )


def _without_cues(job: JobState) -> JobState:
    return _with_segments(job, lambda segment: replace(segment, cues=(), speech=(), language_probabilities={}))


def _with_segments(job: JobState, change: Callable[[Segment], Segment]) -> JobState:
    return replace(job, segments=tuple(map(change, job.segments)))
