"""The job ledger: a pure state machine. It owns every job's state and the only numbering of events.

No sockets, no clock, no threads: the hub calls it with what came in and the time it came, and publishes what it
gives back. At-least-once work, exactly-once effect: a window's text is committed once, in window order; whatever
comes twice, late or from an attempt that was given up changes nothing.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, field, replace

from susurrus.models.summary import summarise
from susurrus.protocol import (
    Accepted,
    AudioEnd,
    Cancelled,
    Done,
    Event,
    Failed,
    JobState,
    Partial,
    Rejected,
    Segment,
    Snapshot,
    Started,
    Submit,
    TerminalEvent,
    Window,
)
from susurrus.protocol.codec import MAX_TEXT_BODY_BYTES, body_size

MAX_QUEUED = 1024  # jobs; metadata only, the audio stays where it is
MAX_FINISHED = 32  # finished jobs that a late joiner still finds in the snapshot

TOO_LONG = "the text is longer than one message: it is what the segments say, one after another"

JobReport = Started | Window | Partial | Segment | AudioEnd | Failed


@dataclass(slots=True)
class Job:
    """One job, from Submit to its terminal event."""

    submit: Submit
    submitted: float
    """Monotonic seconds."""
    seq: int = 0
    duration: float | None = None
    attempt: dict[int, int] = field(default_factory=dict)
    """Window -> the attempt whose results count."""
    early: dict[int, Segment] = field(default_factory=dict)
    """Finished windows that the frontend has not announced: what two actors say can come in any order."""
    waiting: dict[int, Segment] = field(default_factory=dict)
    """Finished windows whose predecessors are not finished yet."""
    segments: list[Segment] = field(default_factory=list)
    """Committed, in window order; the index is the window."""
    partial: Partial | None = None
    first_partial: float | None = None
    audio: AudioEnd | None = None
    end: TerminalEvent | None = None
    dispatched: bool = False

    def next_seq(self) -> int:
        """Number for the next event."""
        self.seq += 1
        return self.seq

    @property
    def state(self) -> str:
        """As JobState names it."""
        if self.end is not None:
            return self.end.TYPE
        return "running" if self.dispatched else "queued"


class Ledger:
    """All jobs of one pipeline. Called by the hub's thread only."""

    def __init__(self) -> None:
        self._active: OrderedDict[bytes, Job] = OrderedDict()
        self._finished: deque[Job] = deque(maxlen=MAX_FINISHED)

    # --- what clients ask ---

    def submit(self, request: Submit, now: float) -> Accepted | Rejected:
        """Take a job, once: a resent Submit is answered and changes nothing."""
        if self._find(request.job) is not None:
            return Accepted(job=request.job)
        if len(self._active) >= MAX_QUEUED:
            return Rejected(job=request.job, code="busy", text=f"{MAX_QUEUED} jobs are waiting: try again later")
        self._active[request.job] = Job(request, now)
        return Accepted(job=request.job)

    def cancel(self, job_id: bytes) -> list[Event]:
        """End a job that has no terminal event yet; idempotent."""
        job = self._active.get(job_id)
        return [] if job is None else [self._finish(job, Cancelled(job=job_id, seq=job.next_seq()))]

    def snapshot(self) -> Snapshot:
        """Every active job and the last finished ones."""
        jobs = [*self._finished, *self._active.values()]
        return Snapshot(jobs=tuple(map(_job_state, jobs)))

    def latest(self) -> dict[str, int]:
        """Job id (hex) -> latest seq of every active job."""
        return {job_id.hex(): job.seq for job_id, job in self._active.items()}

    # --- what the hub asks ---

    def next_submit(self) -> Submit | None:
        """The oldest job that no frontend has been given yet; from now on it counts as given."""
        for job in self._active.values():
            if not job.dispatched:
                job.dispatched = True
                return job.submit
        return None

    def is_active(self, job_id: bytes) -> bool:
        """Whether the job is still without a terminal event."""
        return job_id in self._active

    def fail_all(self, code: str, text: str) -> list[Event]:
        """Give every active job its terminal event: the pipeline ends."""
        return [
            self._finish(job, Failed(job=job_id, code=code, text=text, seq=job.next_seq()))
            for job_id, job in list(self._active.items())
        ]

    # --- what actors report ---

    def apply(self, report: JobReport, now: float) -> list[Event]:
        """Take a report in; return the numbered events to publish, in order. Unknown and stale reports give none."""
        job = self._active.get(report.job)
        if job is None:
            return []
        match report:
            case Started():
                job.duration = report.duration
                return [replace(report, seq=job.next_seq())]
            case Window():
                return self._window(job, report, now)
            case Partial():
                return self._partial(job, report, now)
            case Segment():
                return self._segment(job, report, now)
            case AudioEnd():
                job.audio = report
                return self._commit(job, now)
            case Failed():
                return [self._finish(job, replace(report, seq=job.next_seq()))]

    def _window(self, job: Job, report: Window, now: float) -> list[Event]:
        if report.window in job.attempt or report.window < len(job.segments):
            return []
        job.attempt[report.window] = report.attempt
        events: list[Event] = [replace(report, seq=job.next_seq())]
        early = job.early.pop(report.window, None)
        if not report.speech:
            job.waiting[report.window] = _empty_segment(report)
            events += self._commit(job, now)
        elif early is not None:
            events += self._segment(job, early, now)
        return events

    def _partial(self, job: Job, report: Partial, now: float) -> list[Event]:
        if not self._counts(job, report):
            return []
        if job.first_partial is None:
            job.first_partial = now
        job.partial = replace(report, seq=job.next_seq())
        return [job.partial]

    def _segment(self, job: Job, report: Segment, now: float) -> list[Event]:
        if report.window >= len(job.segments) and report.window not in job.attempt:
            job.early[report.window] = report
        if not self._counts(job, report):
            return []
        job.waiting[report.window] = report
        return self._commit(job, now)

    def _counts(self, job: Job, report: Partial | Segment) -> bool:
        """Whether the window is still open and the report from the attempt that counts."""
        if report.window < len(job.segments) or report.window in job.waiting:
            return False
        return job.attempt.get(report.window) == report.attempt

    def _commit(self, job: Job, now: float) -> list[Event]:
        """Commit finished windows in order; with the last one comes Done."""
        events: list[Event] = []
        while (segment := job.waiting.pop(len(job.segments), None)) is not None:
            segment = replace(segment, seq=job.next_seq())
            job.segments.append(segment)
            job.attempt.pop(segment.window, None)
            events.append(segment)
            if job.partial is not None and job.partial.window <= segment.window:
                job.partial = None
        if job.audio is not None and len(job.segments) == job.audio.windows:
            events.append(self._finish(job, _done(job, job.audio, now)))
        return events

    def _finish(self, job: Job, event: TerminalEvent) -> TerminalEvent:
        job.end = event
        job.partial = None
        del self._active[event.job]
        self._finished.append(job)
        return event

    def _find(self, job_id: bytes) -> Job | None:
        return self._active.get(job_id) or next((job for job in self._finished if job.submit.job == job_id), None)


def _empty_segment(window: Window) -> Segment:
    """What a window of digital silence commits as: it never reaches the decoder."""
    return Segment(
        job=window.job,
        window=window.window,
        attempt=window.attempt,
        start=window.start,
        end=window.end,
        text="",
        tokens=(),
        language="",
        language_probability=0.0,
        truncated=False,
        encoder_s=0.0,
        decoder_s=0.0,
    )


def _done(job: Job, audio: AudioEnd, now: float) -> Done:
    """The end of a job. More text than one message holds (a day of speech) was told by the segments alone."""
    timings = {
        "frontend": audio.frontend_s,
        "encoder": sum(segment.encoder_s for segment in job.segments),
        "decoder": sum(segment.decoder_s for segment in job.segments),
        "total": now - job.submitted,
    }
    if job.first_partial is not None:
        timings["first_partial"] = job.first_partial - job.submitted
    summary = summarise(job.segments)
    done = Done(
        job=audio.job,
        seq=job.next_seq(),
        text=summary.text,
        language=summary.language,
        language_probability=summary.language_probability,
        language_probabilities=summary.language_probabilities,
        duration=audio.duration,
        speech_s=summary.speech_s,
        coverage=summary.coverage,
        timings=timings,
        complete=audio.complete,
        warnings=(*audio.warnings, *summary.warnings),
    )
    if body_size(done) <= MAX_TEXT_BODY_BYTES:
        return done
    return replace(done, text="", warnings=(*done.warnings, TOO_LONG))


def _job_state(job: Job) -> JobState:
    return JobState(
        job=job.submit.job,
        seq=job.seq,
        name=job.submit.name,
        state=job.state,
        duration=job.duration,
        segments=tuple(job.segments),
        partial=job.partial,
        end=job.end,
    )
