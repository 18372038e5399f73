"""The job ledger: a pure state machine. It owns every job's state and the only numbering of events.

No sockets, no clock, no threads: the hub calls it with what came in and the time it came, and publishes what it
gives back. At-least-once work, exactly-once effect: a window's text is committed once, in window order; whatever
comes twice, late or from an attempt that was given up changes nothing. When an actor is lost, what is not committed
of the jobs in work is done again: as the next attempt, from the first open window, whoever was lost.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from susurrus.actors.statistics import Statistics, job_timings
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
    Reissue,
    Rejected,
    Segment,
    Snapshot,
    Started,
    Submit,
    TerminalEvent,
    Window,
    Working,
)
from susurrus.protocol.codec import MAX_TEXT_BODY_BYTES, body_size

MAX_QUEUED = 1024  # jobs; metadata only, the audio stays where it is
MAX_READ = 8  # jobs whose audio is read side by side: each has a file open
MAX_KNOWN = 16 * MAX_QUEUED  # ids of jobs: one that is sent again is not run again
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
    attempt: int = 1
    """The one whose results count, for every window that is not committed."""
    started: Started | None = None
    resumed: tuple[Segment, ...] = ()
    """Committed by an earlier run, and not yet published in this one."""
    announced: set[int] = field(default_factory=set)
    """Windows of this attempt that are not committed."""
    early: dict[int, Segment] = field(default_factory=dict)
    """Finished windows that the frontend has not announced: what two actors say can come in any order."""
    waiting: dict[int, Segment] = field(default_factory=dict)
    """Finished windows whose predecessors are not finished yet."""
    segments: list[Segment] = field(default_factory=list)
    """Committed, in window order; the index is the window."""
    memory: str = ""
    """What a decoder has to know to go on behind them."""
    partial: Partial | None = None
    first_partial: float | None = None
    opened: float | None = None
    """When the frontend opened the audio, monotonic seconds."""
    audio_s: float = 0.0
    """Seconds of audio of the windows that were committed in this run."""
    audio: AudioEnd | None = None
    end: TerminalEvent | None = None
    dispatched: bool = False
    killed: Counter[int] = field(default_factory=Counter)
    """Window -> workers that were lost over it."""

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

    @property
    def done_windows(self) -> int:
        """How many are committed, those of an earlier run included."""
        return len(self.segments) or len(self.resumed)

    @property
    def deadline(self) -> float | None:
        """Monotonic seconds; None for none."""
        return None if self.submit.deadline_s is None else self.submitted + self.submit.deadline_s

    def reissue(self) -> Reissue:
        """The order to do what is not committed, as the current attempt."""
        return Reissue(self.submit.job, self.done_windows, self.attempt, self.submit, self.memory)


class Ledger:
    """All jobs of one pipeline. Called by the hub's thread only."""

    def __init__(self) -> None:
        self._active: OrderedDict[bytes, Job] = OrderedDict()
        self._finished: deque[Job] = deque(maxlen=MAX_FINISHED)
        self._known: OrderedDict[bytes, None] = OrderedDict()
        self._read: set[bytes] = set()  # jobs whose audio the frontend reads
        self.statistics = Statistics()

    # --- what clients ask ---

    def submit(self, request: Submit, now: float, committed: Sequence[Segment] = ()) -> Accepted | Rejected:
        """Take a job, once: a resent Submit is answered and changes nothing.

        Args:
            request: the job.
            now: monotonic seconds.
            committed: by an earlier run that was interrupted, in window order; the job goes on behind them.
        """
        if self.knows(request.job):
            return Accepted(job=request.job)
        if len(self._active) >= MAX_QUEUED:
            return Rejected(job=request.job, code="busy", text=f"{MAX_QUEUED} jobs are waiting: try again later")
        job = Job(request, now, resumed=tuple(committed))
        job.memory = next((segment.memory for segment in reversed(committed) if segment.memory), "")
        self._active[request.job] = job
        self._known[request.job] = None
        if len(self._known) > MAX_KNOWN:
            self._known.popitem(last=False)
        return Accepted(job=request.job)

    def knows(self, job_id: bytes) -> bool:
        """Whether the job was taken, and not so long ago that it is forgotten."""
        return job_id in self._known

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

    def counts(self) -> dict[str, int]:
        """How many jobs wait, and how many are in work."""
        running = len(self._running())
        return {"queued": len(self._active) - running, "running": running}

    # --- what the hub asks ---

    @property
    def is_busy(self) -> bool:
        """Whether any job is in work."""
        return any(job.dispatched for job in self._active.values())

    def next_to_read(self) -> Submit | Reissue | None:
        """The next job for the frontend; from now on it counts as given.

        The oldest one first, but of a group only one at a time. The frontend reads all it has been given in turns, so
        that a short recording does not wait for a long one.
        """
        if len(self._read) >= MAX_READ:
            return None
        busy = {self._active[job].submit.group for job in self._read} - {""}
        for job_id, job in self._active.items():
            if not job.dispatched and job.submit.group not in busy:
                job.dispatched = True
                self._read.add(job_id)
                return job.reissue() if job.resumed else job.submit
        return None

    def begin_attempt(self) -> list[Reissue]:
        """Give up what is in work and not committed: an actor was lost with some of it.

        Returns:
            What is to be done again, in the order of the jobs.
        """
        for job in self._running():
            job.attempt += 1
            for given_up in (job.announced, job.early, job.waiting):
                given_up.clear()
        return self.in_work()

    def in_work(self) -> list[Reissue]:
        """For a new frontend: what its predecessor was reading, or was needed for."""
        return [job.reissue() for job in self._running()]

    def is_open(self, job_id: bytes) -> bool:
        """Whether the job is without a terminal event."""
        return job_id in self._active

    def oldest_open(self) -> Working | None:
        """The first window in work that is not committed: likely what an actor worked on that has not said so."""
        for job in self._running():
            if job.done_windows in job.announced:
                return Working(job.submit.job, job.done_windows, job.attempt)
        return None

    def blame(self, job_id: bytes, window: int, limit: int) -> bool:
        """Note that an actor was lost over a window; tell whether that was one too many."""
        job = self._active.get(job_id)
        if job is None or window < job.done_windows:
            return False
        job.killed[window] += 1
        return job.killed[window] >= limit

    def expired(self, now: float) -> list[bytes]:
        """Jobs whose deadline is over."""
        return [key for key, job in self._active.items() if job.deadline is not None and now >= job.deadline]

    def running_from(self, source: str) -> list[bytes]:
        """Jobs in work that are read from a source."""
        return [job.submit.job for job in self._running() if job.submit.source == source]

    def _running(self) -> list[Job]:
        return [job for job in self._active.values() if job.dispatched]

    def fail_all(self, code: str, text: str) -> list[Event]:
        """Give every active job its terminal event: the pipeline ends."""
        return [event for job_id in list(self._active) for event in self.fail(job_id, code, text)]

    def fail(self, job_id: bytes, code: str, text: str) -> list[Event]:
        """End a job that has no terminal event yet."""
        job = self._active.get(job_id)
        return [] if job is None else [self._finish(job, Failed(job_id, code, text, seq=job.next_seq()))]

    # --- what actors report ---

    def apply(self, report: JobReport, now: float) -> list[Event]:
        """Take a report in; return the numbered events to publish, in order. Unknown and stale reports give none.

        Segments that are committed now have their memory with them: it is for the journal, not for publishing.
        """
        job = self._active.get(report.job)
        if job is None:
            return []
        match report:
            case Started():
                return self._start(job, report, now)
            case Window():
                return self._window(job, report, now)
            case Partial():
                return self._partial(job, report, now)
            case Segment():
                return self._segment(job, report, now)
            case AudioEnd():
                job.audio = report
                self._read.discard(report.job)
                return self._commit(job, now)
            case Failed():
                return [self._finish(job, replace(report, seq=job.next_seq()))]

    def _start(self, job: Job, report: Started, now: float) -> list[Event]:
        """A frontend that took over says it again."""
        if job.started is not None:
            return []
        job.opened = now
        job.started = replace(report, seq=job.next_seq())
        job.segments = [replace(segment, job=report.job, seq=job.next_seq(), memory="") for segment in job.resumed]
        job.resumed = ()
        return [job.started, *job.segments]

    def _window(self, job: Job, report: Window, now: float) -> list[Event]:
        if report.attempt != job.attempt or report.window in job.announced or report.window < job.done_windows:
            return []
        job.announced.add(report.window)
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
            self.statistics.first_partial(now - job.submitted)
        job.partial = replace(report, seq=job.next_seq())
        return [job.partial]

    def _segment(self, job: Job, report: Segment, now: float) -> list[Event]:
        if report.attempt == job.attempt and report.window >= job.done_windows and report.window not in job.announced:
            job.early[report.window] = report
        if not self._counts(job, report):
            return []
        job.waiting[report.window] = report
        return self._commit(job, now)

    def _counts(self, job: Job, report: Partial | Segment) -> bool:
        """Whether the window is still open and the report from the attempt that counts."""
        is_open = report.window in job.announced and report.window not in job.waiting
        return is_open and report.attempt == job.attempt

    def _commit(self, job: Job, now: float) -> list[Event]:
        """Commit finished windows in order; with the last one comes Done."""
        events: list[Event] = []
        while (segment := job.waiting.pop(job.done_windows, None)) is not None:
            job.memory = segment.memory or job.memory
            segment = replace(segment, seq=job.next_seq(), memory=job.memory)
            job.segments.append(replace(segment, memory=""))
            job.announced.discard(segment.window)
            job.audio_s += segment.end - segment.start
            self.statistics.committed(segment)
            events.append(segment)
            if job.partial is not None and job.partial.window <= segment.window:
                job.partial = None
        if job.audio is not None and len(job.segments) == job.audio.windows:
            self.statistics.read(job.audio.frontend_s, job.audio.windows)
            events.append(self._finish(job, _done(job, job.audio, now)))
        return events

    def _finish(self, job: Job, event: TerminalEvent) -> TerminalEvent:
        job.end = event
        job.partial = None
        self.statistics.ended(event)
        del self._active[event.job]
        self._read.discard(event.job)
        self._finished.append(job)
        return event


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
    seconds = 0.0 if job.opened is None else now - job.opened
    timings |= job_timings(job.segments, job.audio_s, seconds, job.attempt)
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
        duration=None if job.started is None else job.started.duration,
        segments=tuple(job.segments),
        partial=job.partial,
        end=job.end,
    )
