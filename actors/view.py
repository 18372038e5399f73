"""What a person sees of a pipeline, computed from its events alone: a pure reducer without I/O.

Subscribe, wait for Welcome, ask for a Snapshot, apply it, then apply the events with a larger sequence
number: the Clone pattern of the ZeroMQ guide (chapter 5). Events that come too early are held until the
snapshot or the missing ones arrive, so that committed text is handed on once and in order.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from susurrus.models.results import join_text
from susurrus.protocol import (
    Beat,
    Cancelled,
    Done,
    Event,
    Failed,
    JobState,
    Partial,
    Segment,
    Snapshot,
    Started,
    Stopped,
    TerminalEvent,
    Welcome,
    Window,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

JobEvent = Started | Window | Partial | Segment | Done | Failed | Cancelled
Change = JobEvent | Stopped | Snapshot

MAX_FORGOTTEN = 4096  # ids of jobs that ended and were forgotten: a late snapshot does not bring them back
MAX_HELD = 1024  # events per job that wait for a missing one; a snapshot brings back what is not held


def job_text(segments: Iterable[Segment]) -> str:
    """The text of a job: its segments in the order of the windows, joined as `join_text` says."""
    return join_text(segment.text for segment in sorted(segments, key=lambda segment: segment.window))


@dataclass(slots=True)
class JobView:
    """One job as its events tell it. Views that know the same events are equal, however they learnt them."""

    job: bytes
    name: str = ""
    seq: int = 0
    """Number of the last event applied; 0 for a job that is only queued."""
    duration: float | None = None
    """Seconds of audio; None while unknown."""
    segments: dict[int, Segment] = field(default_factory=dict)
    """Window -> committed text. The hub commits windows in order, and an entry never changes."""
    partial: Partial | None = None
    """Hypothesis of the window being decoded."""
    end: TerminalEvent | None = None
    attempts: dict[int, int] = field(default_factory=dict, compare=False, repr=False)
    """Window -> latest attempt seen, for windows that are not committed yet."""

    @classmethod
    def from_state(cls, state: JobState) -> JobView:
        """The view of a job that a snapshot describes."""
        view = cls(state.job, name=state.name, seq=state.seq, duration=state.duration)
        view.segments = {segment.window: segment for segment in state.segments}
        if state.partial is not None:
            view._hypothesise(state.partial)
        if state.end is not None:
            view._finish(state.end)
        return view

    @property
    def text(self) -> str:
        """All committed text."""
        return job_text(self.segments.values())

    @property
    def settled_until(self) -> float:
        """Seconds of audio whose text is committed."""
        return self.segments[max(self.segments)].end if self.segments else 0.0

    def update(self, event: JobEvent) -> None:
        """Apply the next event. What an old attempt says and what comes after the end has no effect."""
        self.seq = event.seq
        if self.end is not None:
            return
        match event:
            case Started():
                self.name, self.duration = event.name, event.duration
            case Window():
                self._notice_attempt(event.window, event.attempt)
            case Partial():
                self._hypothesise(event)
            case Segment():
                self._commit(event)
            case Done() | Failed() | Cancelled():
                self._finish(event)

    def _notice_attempt(self, window: int, attempt: int) -> bool:
        current = window not in self.segments and attempt >= self.attempts.get(window, 0)
        if current:
            self.attempts[window] = attempt
        return current

    def _hypothesise(self, partial: Partial) -> None:
        if self._notice_attempt(partial.window, partial.attempt):
            self.partial = partial

    def _commit(self, segment: Segment) -> None:
        self.segments.setdefault(segment.window, segment)
        self.attempts.pop(segment.window, None)
        if self.partial is not None and self.partial.window == segment.window:
            self.partial = None

    def _finish(self, event: TerminalEvent) -> None:
        self.end = event
        self.partial = None


class TranscriptView:
    """All jobs of a pipeline, in the order in which they became known, until they are forgotten.

    Lives in one thread. No method raises: events that make no sense have no effect.
    """

    def __init__(self) -> None:
        self.jobs: dict[bytes, JobView] = {}
        self.stopped: Stopped | None = None
        """The pipeline's last word, once it is said."""
        self._live = False
        self._forgotten: OrderedDict[bytes, None] = OrderedDict()
        self._held: dict[bytes, dict[int, JobEvent]] = {}
        self._behind: dict[bytes, int] = {}  # job -> the number that a beat says it has reached, while we have not
        self._missing: set[bytes] = set()  # of those with a gap: the ones the last snapshot did not know

    @property
    def needs_snapshot(self) -> bool:
        """Events are missing or there was no snapshot yet: ask for one, after Welcome and not too often."""
        behind = any(seq > self._known(job) for job, seq in self._behind.items())
        return self.stopped is None and (not self._live or bool(self._held) or behind)

    def apply(self, event: Event) -> list[Change]:
        """Take an event as it was received.

        Returns:
            The events that took effect, in order: none for one that is known or has to wait for others.
        """
        match event:
            case Welcome():
                return []
            case Beat():
                self._compare(event)
                return []
            case Stopped():
                self.stopped = event
                return [event]
            case _:
                self._hold(event)
                return self._replay(event.job) if self._live else []

    def apply_snapshot(self, snapshot: Snapshot) -> list[Change]:
        """Take the answer to a snapshot request, then the held events that go on from it.

        Returns:
            A Snapshot of the jobs it brought news of, if there are any, then the events that took effect.
        """
        self._live = True
        states = [state for state in snapshot.jobs if state.job not in self._forgotten]
        news = tuple(state for state in states if state.seq > self._known(state.job))
        for state in states:
            self._adopt(state)
        changes: list[Change] = [Snapshot(news)] if news else []
        for job in list(self._held):
            changes += self._replay(job)
        self._put_in_order(snapshot)
        changes += self._forget_lost({state.job for state in snapshot.jobs})
        return changes

    def _put_in_order(self, snapshot: Snapshot) -> None:
        """A job of which all events were lost comes before those that ended after it, but for one that is shown."""
        places = {state.job: place for place, state in enumerate(snapshot.jobs)}
        for job in sorted(list(self.jobs)[1:], key=lambda job: places.get(job, -1)):
            self.jobs[job] = self.jobs.pop(job)

    def forget_ended(self, *, in_order: bool = False) -> None:
        """Let go of jobs that have ended, for memory's sake.

        Args:
            in_order: only those with no open job before them: who shows one job after another has shown these.
        """
        for job, view in list(self.jobs.items()):
            if view.end is not None:
                del self.jobs[job]
                self._forgotten[job] = None
            elif in_order:
                break
        while len(self._forgotten) > MAX_FORGOTTEN:
            self._forgotten.popitem(last=False)

    def _known(self, job: bytes) -> int:
        return self.jobs[job].seq if job in self.jobs else 0

    def _adopt(self, state: JobState) -> None:
        self._behind.pop(state.job, None)
        known = self.jobs.get(state.job)
        if known is None:
            self.jobs[state.job] = JobView.from_state(state)
        elif state.seq > known.seq:
            newer = JobView.from_state(state)
            newer.segments |= known.segments  # committed is committed, and perhaps printed
            self.jobs[state.job] = newer

    def _hold(self, event: JobEvent) -> None:
        held = self._held.setdefault(event.job, {})
        if event.seq > self._known(event.job) and len(held) < MAX_HELD:
            held[event.seq] = event
        if not held:
            del self._held[event.job]

    def _replay(self, job: bytes) -> list[Change]:
        applied: list[Change] = []
        held = self._held.pop(job, {})
        view = self.jobs.get(job) or JobView(job)
        while (event := held.pop(view.seq + 1, None)) is not None:
            view.update(event)
            applied.append(event)
        if applied:
            self.jobs[job] = view
        if late := {seq: event for seq, event in held.items() if seq > view.seq}:
            self._held[job] = late
        return applied

    def _compare(self, beat: Beat) -> None:
        latest = {bytes.fromhex(job): seq for job, seq in beat.latest.items()}
        self._behind = {job: seq for job, seq in latest.items() if seq > self._known(job)}
        # A beat lists every active job: one that is active for us and not in it has ended unseen.
        unseen = {job: view.seq + 1 for job, view in self.jobs.items() if view.end is None and job not in latest}
        self._behind |= unseen

    def _forget_lost(self, present: set[bytes]) -> list[Change]:
        """Give up jobs with a gap that two snapshots in a row do not know: they are kept for a while only."""
        absent = (set(self._held) | set(self._behind)) - present
        lost = absent & self._missing
        self._missing = absent - lost
        return [event for job in sorted(lost) for event in self._give_up(job)]

    def _give_up(self, job: bytes) -> list[Change]:
        held = self._held.pop(job, {})
        self._behind.pop(job, None)
        view = self.jobs.get(job)
        ends = [event for event in held.values() if isinstance(event, TerminalEvent)]
        if view is None and not ends:
            return []
        view = self.jobs.setdefault(job, JobView(job))
        name = view.name or "a job"
        text = f"{name}: too many events were lost and the pipeline no longer knows it; transcribe it again"
        end = ends[0] if ends else Failed(job, "internal", text, seq=view.seq + 1)
        view.update(end)
        return [end]
