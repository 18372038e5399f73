"""What a report of an actor changes in its job, and the events that come of it. Pure, as the ledger that calls it.

A window is announced, grows in hypotheses, is finished by a segment, and is committed when all before it are. With
several lanes two of these may come in any order.
"""

from __future__ import annotations

from dataclasses import replace

from susurrus.actors.job import Job, empty_segment
from susurrus.actors.statistics import Statistics
from susurrus.protocol import AudioEnd, Event, Failed, Partial, Segment, Started, Window

JobReport = Started | Window | Partial | Segment | AudioEnd | Failed


def take_in(job: Job, report: JobReport, now: float, statistics: Statistics) -> list[Event]:
    """Take a report in; return the numbered events to publish, in order. A stale report gives none.

    Args:
        job: that it is about, and that has no terminal event yet. If the last of the events is one, the job has ended.
        report: what an actor has said.
        now: monotonic seconds.
        statistics: of the pipeline.
    """
    match report:
        case Started():
            return _start(job, report, now)
        case Window():
            return _window(job, report, now, statistics)
        case Partial():
            return _partial(job, report, now, statistics)
        case Segment():
            return _segment(job, report, now, statistics)
        case AudioEnd():
            job.audio = report
            return _commit(job, now, statistics)
        case Failed():
            return [replace(report, seq=job.next_seq())]


def _start(job: Job, report: Started, now: float) -> list[Event]:
    """A frontend that took over says it again."""
    if job.started is not None:
        return []
    job.opened = now
    job.started = replace(report, seq=job.next_seq())
    job.segments = [
        replace(segment, job=report.job, seq=job.next_seq(), memory="", settled=False) for segment in job.resumed
    ]
    job.resumed = ()
    return [job.started, *job.segments]


def _window(job: Job, report: Window, now: float, statistics: Statistics) -> list[Event]:
    if report.attempt != job.attempt or report.window in job.announced or report.window < job.done_windows:
        return []
    job.announced.add(report.window)
    events: list[Event] = [replace(report, seq=job.next_seq())]
    early = job.early.pop(report.window, [])
    if not report.speech:
        job.waiting[report.window] = empty_segment(report)
        return events + _commit(job, now, statistics)
    for each in early:
        events += take_in(job, each, now, statistics)
    return events


def _partial(job: Job, report: Partial, now: float, statistics: Statistics) -> list[Event]:
    if _kept_for_later(job, report) or not _counts(job, report):
        return []
    if report.window > job.done_windows:  # of another lane, which is faster
        job.ahead[report.window] = report
        return []
    if job.first_partial is None:
        job.first_partial = now
        statistics.first_partial(now - job.submitted)
    job.partial = replace(report, seq=job.next_seq())
    return [job.partial]


def _segment(job: Job, report: Segment, now: float, statistics: Statistics) -> list[Event]:
    if _kept_for_later(job, report) or not _counts(job, report):
        return []
    job.ahead.pop(report.window, None)
    job.waiting[report.window] = report
    return _commit(job, now, statistics)


def _kept_for_later(job: Job, report: Partial | Segment) -> bool:
    """Keep a report whose window is not announced yet, until it is; tell whether that was so."""
    is_early = report.attempt == job.attempt and report.window >= job.done_windows
    is_early &= report.window not in job.announced
    if is_early:
        job.early.setdefault(report.window, []).append(report)
    return is_early


def _counts(job: Job, report: Partial | Segment) -> bool:
    """Whether the window is still open and the report from the attempt that counts."""
    is_open = report.window in job.announced and report.window not in job.waiting
    return is_open and report.attempt == job.attempt


def _commit(job: Job, now: float, statistics: Statistics) -> list[Event]:
    """Commit finished windows in order, then show what is known of the next; with the last one comes Done."""
    events: list[Event] = []
    while (segment := job.waiting.pop(job.done_windows, None)) is not None:
        job.memory, job.settled = segment.memory or job.memory, segment.settled or job.settled
        segment = replace(segment, seq=job.next_seq(), memory=job.memory, settled=job.settled)
        job.segments.append(replace(segment, memory="", settled=False))
        job.announced.discard(segment.window)
        job.audio_s += segment.end - segment.start
        statistics.committed(segment)
        events.append(segment)
        if job.partial is not None and job.partial.window <= segment.window:
            job.partial = None
    if (partial := job.ahead.pop(job.done_windows, None)) is not None:
        events += _partial(job, partial, now, statistics)
    if job.audio is not None and len(job.segments) == job.audio.windows:
        statistics.read(job.audio.frontend_s, job.audio.windows)
        events.append(job.done(job.audio, now))
    return events
