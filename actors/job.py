"""One job as the ledger has it, and what is made of it: its state for late joiners, its end, segments of silence."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from susurrus.actors.statistics import job_timings
from susurrus.models.summary import summarise
from susurrus.protocol import (
    AudioEnd,
    Done,
    JobState,
    Partial,
    Reissue,
    Segment,
    Started,
    Submit,
    TerminalEvent,
    Window,
)
from susurrus.protocol.codec import MAX_TEXT_BODY_BYTES, body_size

STDIN = "-"
TOO_LONG = "the text is longer than one message: it is what the segments say, one after another"


@dataclass(slots=True)
class Job:
    """One job, from Submit to its terminal event."""

    submit: Submit
    submitted: float
    """Monotonic seconds."""
    number: int = 0
    """Counts the jobs as they are submitted."""
    seq: int = 0
    attempt: int = 1
    """The one whose results count, for every window that is not committed."""
    started: Started | None = None
    resumed: tuple[Segment, ...] = ()
    """Committed by an earlier run, and not yet published in this one."""
    announced: set[int] = field(default_factory=set)
    """Windows of this attempt that are not committed."""
    early: dict[int, list[Partial | Segment]] = field(default_factory=dict)
    """Of windows that the frontend has not announced: what two actors say can come in any order."""
    waiting: dict[int, Segment] = field(default_factory=dict)
    """Finished windows whose predecessors are not finished yet."""
    ahead: dict[int, Partial] = field(default_factory=dict)
    """The latest hypothesis of each window whose predecessors are not finished yet."""
    segments: list[Segment] = field(default_factory=list)
    """Committed, in window order; the index is the window."""
    memory: str = ""
    """What a decoder has to know to go on behind them."""
    settled: bool = False
    """It is all that any decoder will ever have to know."""
    full: set[int] = field(default_factory=set)
    """Windows that are wanted with every encoder position."""
    partial: Partial | None = None
    first_partial: float | None = None
    opened: float | None = None
    """When the frontend opened the audio, monotonic seconds."""
    audio_s: float = 0.0
    """Seconds of audio of the windows that were committed in this run."""
    audio: AudioEnd | None = None
    end: TerminalEvent | None = None
    dispatched: bool = False
    killed: dict[int, list[str]] = field(default_factory=dict)
    """Window -> the workers that were lost over it."""

    @classmethod
    def resuming(cls, request: Submit, submitted: float, number: int, committed: tuple[Segment, ...]) -> Job:
        """A job that goes on behind what an earlier run has committed, if it has."""
        job = cls(request, submitted, number, resumed=committed)
        job.memory = next((segment.memory for segment in reversed(committed) if segment.memory), "")
        job.settled = any(segment.settled for segment in committed)
        return job

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

    def has(self, window: int) -> bool:
        """Whether a window is finished, committed or not."""
        early = any(isinstance(report, Segment) for report in self.early.get(window, ()))
        return window < self.done_windows or window in self.waiting or early

    @property
    def deadline(self) -> float | None:
        """Monotonic seconds; None for none."""
        return None if self.submit.deadline_s is None else self.submitted + self.submit.deadline_s

    def reissue(self) -> Reissue:
        """The order to do what is not committed, as the current attempt."""
        full = tuple(sorted(self.full))
        return Reissue(self.submit.job, self.done_windows, self.attempt, self.submit, self.memory, self.settled, full)

    def begin_attempt(self) -> None:
        """Give up what is not committed."""
        self.attempt += 1
        for given_up in (self.announced, self.early, self.waiting, self.ahead):
            given_up.clear()

    def snapshot(self) -> JobState:
        """What a late joiner is told."""
        return JobState(
            job=self.submit.job,
            seq=self.seq,
            name=self.submit.name,
            state=self.state,
            duration=None if self.started is None else self.started.duration,
            segments=tuple(self.segments),
            partial=self.partial,
            end=self.end,
        )

    def done(self, audio: AudioEnd, now: float) -> Done:
        """The end of a job. More text than one message holds (a day of speech) was told by the segments alone."""
        timings = {
            "frontend": audio.frontend_s,
            "encoder": sum(segment.encoder_s for segment in self.segments),
            "decoder": sum(segment.decoder_s for segment in self.segments),
            "total": now - self.submitted,
        }
        if self.first_partial is not None:
            timings["first_partial"] = self.first_partial - self.submitted
        seconds = 0.0 if self.opened is None else now - self.opened
        timings |= job_timings(self.segments, self.audio_s, seconds, self.attempt)
        summary = summarise(self.segments)
        done = Done(
            job=audio.job,
            seq=self.next_seq(),
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


def empty_segment(window: Window) -> Segment:
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
