"""The job ledger: a pure state machine. It owns every job's state and the only numbering of events.

No sockets, no clock, no threads: the hub calls it with what came in and the time it came, and publishes what it
gives back. At-least-once work, exactly-once effect: a window's text is committed once, in window order; whatever
comes twice, late or from an attempt that was given up changes nothing. When an actor is lost, what is not committed
of the jobs in work is done again: as the next attempt, from the first open window, whoever was lost.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Container, Sequence
from math import inf

from susurrus.actors.job import STDIN, Job
from susurrus.actors.reports import JobReport, take_in
from susurrus.actors.statistics import Statistics
from susurrus.protocol import (
    Accepted,
    AudioEnd,
    Cancelled,
    Event,
    Failed,
    Redo,
    Reissue,
    Rejected,
    Segment,
    Snapshot,
    Submit,
    TerminalEvent,
    Working,
)

MAX_QUEUED = 1024  # jobs; metadata only, the audio stays where it is
MAX_READ = 8  # jobs whose audio is read side by side, with one lane: each has a file open
MAX_KNOWN = 16 * MAX_QUEUED  # ids of jobs: one that is sent again is not run again
MAX_FINISHED = 32  # finished jobs that a late joiner still finds in the snapshot


class Ledger:
    """All jobs of one pipeline. Called by the hub's thread only."""

    def __init__(self, abreast: int = 1) -> None:
        """No job is known.

        Args:
            abreast: jobs of one group that are read side by side.
        """
        self._abreast = abreast
        self._submitted = 0
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
        self._submitted += 1
        self._active[request.job] = Job.resuming(request, now, self._submitted, tuple(committed))
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
        """Every active job and the last finished ones.

        These come first, but none before an earlier job of its group: this is the order in which they are shown.
        """
        first: dict[str, float] = {}
        for job in self._active.values():
            first.setdefault(job.submit.group or job.submit.job.hex(), job.number)
        ended: list[Job] = []
        later = list(self._active.values())
        for job in self._finished:
            (later if job.number > first.get(job.submit.group, inf) else ended).append(job)
        jobs = [*ended, *sorted(later, key=lambda job: job.number)]
        return Snapshot(jobs=tuple(job.snapshot() for job in jobs))

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

        The oldest one first, but of a group only `abreast` at a time. The frontend reads all it has been given in
        turns, so that a short recording does not wait for a long one.
        """
        if len(self._read) >= MAX_READ + self._abreast - 1:
            return None
        reading: dict[str, list[str]] = {}
        for job_id in self._read:
            submit = self._active[job_id].submit
            reading.setdefault(submit.group, []).append(submit.source)
        waiting = set[str]()  # groups whose next job cannot be read yet, and so none behind it
        for job_id, job in self._active.items():
            group = job.submit.group
            if job.dispatched or group in waiting:
                continue
            if group and not self._has_room(reading.get(group, []), job.submit.source):
                waiting.add(group)
                continue
            job.dispatched = True
            self._read.add(job_id)
            return job.reissue() if job.resumed else job.submit
        return None

    def _has_room(self, reading: list[str], source: str) -> bool:
        """Whether one more of a group may be read. Standard input is read alone: the frontend waits for what comes."""
        return not reading or (len(reading) < self._abreast and STDIN not in (*reading, source))

    def begin_attempt(self) -> list[Reissue]:
        """Give up what is in work and not committed: an actor was lost with some of it.

        Returns:
            What is to be done again, in the order of the jobs.
        """
        for job in self._running():
            job.begin_attempt()
        return self.in_work()

    def redo(self, request: Redo) -> Reissue | None:
        """Have a window done again with every encoder position, and what follows it; None if that is out of date."""
        job = self._active.get(request.job)
        if job is None or request.attempt != job.attempt or request.window < job.done_windows:
            return None
        job.full.add(request.window)
        job.begin_attempt()
        return job.reissue()

    def in_work(self) -> list[Reissue]:
        """For a new frontend: what its predecessor was reading, or was needed for."""
        return [job.reissue() for job in self._running()]

    def is_open(self, job_id: bytes) -> bool:
        """Whether the job is without a terminal event."""
        return job_id in self._active

    def wants(self, work: Working) -> bool:
        """Whether the result of some work is not there yet, and will count."""
        job = self._active.get(work.job)
        return job is not None and work.attempt == job.attempt and not job.has(work.window)

    def oldest_open(self, besides: Container[tuple[bytes, int]] = ()) -> Working | None:
        """The first window in work that is not finished: likely what an actor worked on that has not said so.

        Args:
            besides: job and index of windows that others work on.
        """
        for job in self._running():
            for window in sorted(job.announced - job.waiting.keys()):
                if (job.submit.job, window) not in besides:
                    return Working(job.submit.job, window, job.attempt)
        return None

    def blame(self, job_id: bytes, window: int, name: str) -> list[str]:
        """Note that an actor was lost over a window; return all that were, if the window is still open."""
        job = self._active.get(job_id)
        if job is None or window < job.done_windows:
            return []
        lost = job.killed.setdefault(window, [])
        lost.append(name)
        return lost

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

        Segments that are committed now have their memory with them: it is for the journal and the frontend, not for
        publishing.
        """
        job = self._active.get(report.job)
        if job is None:
            return []
        if isinstance(report, AudioEnd):
            self._read.discard(report.job)
        events = take_in(job, report, now, self.statistics)
        if events and isinstance(events[-1], TerminalEvent):
            self._finish(job, events[-1])
        return events

    def _finish(self, job: Job, event: TerminalEvent) -> TerminalEvent:
        job.end = event
        job.partial = None
        self.statistics.ended(event)
        del self._active[event.job]
        self._read.discard(event.job)
        self._finished.append(job)
        return event
