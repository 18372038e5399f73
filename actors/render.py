"""How a view is written: plain text for pipes, JSON for programs, or on a terminal; and the choice.

    make_renderer ──> TerminalRenderer (screen.py)   standard output is a terminal
                  ├─> PlainRenderer                  it is a pipe or a file, or the user wants it quiet
                  └─> JsonRenderer (json_lines.py)   one event a line

A renderer belongs to the console's only thread. Its methods raise OutputClosedError when nobody reads any
more and SusurrusError when the text cannot be written; after either the renderer is of no more use.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Protocol, TextIO

from susurrus.actors.committed import CommittedText
from susurrus.actors.shown import Shown
from susurrus.actors.terminal import Output, neutralise
from susurrus.actors.view import Change, JobView, TranscriptView
from susurrus.protocol import Cancelled, Done, Failed, Stopped


class Renderer(Protocol):
    """Shows a view as it changes."""

    def on_change(self, view: TranscriptView, changes: Sequence[Change]) -> None:
        """Show what is new: `changes` is what `apply` and `apply_snapshot` returned since the last call."""

    def timeout(self) -> float | None:
        """Seconds until `on_change` should be called again though nothing came; None: no need."""

    def error(self, text: str) -> None:
        """Tell the user, in one line on standard error, of something that is no event."""

    def close(self) -> None:
        """Finish what is on display, the text of an unfinished job included. May be called twice."""


def make_renderer(
    stdout: TextIO | None,
    stderr: TextIO | None,
    *,
    as_json: bool = False,
    quiet: bool = False,
    progress: bool = False,
    headings: bool = False,
    shown: Shown | None = None,
) -> Renderer:
    """The renderer that fits the streams and the user's wishes.

    Args:
        stdout: text goes here and nothing else; None when the process has none.
        stderr: the rest goes here.
        as_json: one event a line, whatever stdout is.
        quiet: the text alone, and errors.
        progress: progress and timings also when stdout is not a terminal.
        headings: several files are coming, so a terminal shows each one's name.
        shown: what a console before this one has shown; events as JSON are told again.
    """
    out, err = Output(stdout), Output(stderr, required=False)
    if as_json:
        from susurrus.actors.json_lines import JsonRenderer  # noqa: PLC0415 - for those who ask

        return JsonRenderer(out, err)
    if quiet or not out.isatty() or os.environ.get("TERM") in ("dumb", "unknown"):
        return PlainRenderer(out, err, warnings=not quiet, progress=progress and not quiet, shown=shown)
    from susurrus.actors.screen import TerminalRenderer  # noqa: PLC0415 - imports rich: 70 ms, for terminals only

    return TerminalRenderer.on_streams(out, err, headings=headings, shown=shown)


# --- transcripts, one after another -------------------------------------------------------------------------


class Transcripts(ABC):
    """Takes the jobs of a view one after another, in the view's order, though their events may overlap."""

    def __init__(
        self, *, headings: bool = False, warnings: bool = True, timings: bool = True, shown: Shown | None = None
    ) -> None:
        self._before = shown or Shown()
        self._headings = headings
        self._warnings = warnings
        self._timings = timings
        self._shown: set[bytes] = set()
        self._job: JobView | None = None  # the one on display
        self._committed = CommittedText()
        self._complained = False

    def on_change(self, view: TranscriptView, changes: Sequence[Change]) -> None:  # noqa: ARG002 - the view has it all
        """Show what is new of the job on display and, when it has ended, of the next ones."""
        heading = self._headings or bool(self._shown) or len(view.jobs) > 1
        for job in view.jobs.values():
            if job.job not in self._shown and not self._follow(job, heading=heading):
                break
        if view.stopped is not None:
            self._report_stop(view.stopped)

    def timeout(self) -> float | None:
        """Nothing waits."""
        return None

    def error(self, text: str) -> None:
        """One line on standard error."""
        self._complained = True
        self._say(f"error: {text}")

    def close(self) -> None:
        """Print what is left of the job on display."""
        if self._job is not None:
            self._finish(self._job)

    def _follow(self, job: JobView, *, heading: bool) -> bool:
        """Bring the display up to date with the job; tell whether the next one may follow."""
        if self._job is None:
            if self._before.has_ended(job.job) or (isinstance(job.end, Cancelled) and not job.segments):
                self._shown.add(job.job)  # it was shown, or never began
                return True
            if job.seq == 0:
                return False
            self._committed = CommittedText(self._before.characters(job.job))
            self._begin(job.name if heading else "")
        self._job = job
        if job.end is None:
            self._grow(job, self._committed.take(job))
            self._before.note(job.job, max(0, self._committed.characters - self._unsettled()))
            return False
        self._finish(job)
        return True

    def _finish(self, job: JobView) -> None:
        self._shown.add(job.job)
        self._job = None
        self._end(job, self._committed.take_rest(job))
        self._before.note(job.job, self._committed.characters, ended=job.end is not None)
        for line in self._last_words(job):
            self._say(line)
        if isinstance(job.end, Failed):
            self.error(job.end.text)
        if isinstance(job.end, Done) and self._timings:
            self._say(summary(job.end), dim=True)

    def _last_words(self, job: JobView) -> Iterator[str]:
        if isinstance(job.end, Done) and self._warnings:
            for warning in job.end.warnings:
                yield f"warning: {warning}" if job.name in warning else f"warning: {job.name}: {warning}"
        if isinstance(job.end, Cancelled) and self._warnings:
            yield f"{job.name}: cancelled"

    def _report_stop(self, stopped: Stopped) -> None:
        if stopped.code and not self._complained:
            self.error(stopped.text)

    @abstractmethod
    def _begin(self, heading: str) -> None:
        """A transcript begins, under this heading if it is not empty."""

    @abstractmethod
    def _grow(self, job: JobView, text: str) -> None:
        """`text` was committed, perhaps nothing; the rest of the job may have changed."""

    def _unsettled(self) -> int:
        """Characters of committed text that a display keeps back."""
        return 0

    @abstractmethod
    def _end(self, job: JobView, text: str) -> None:
        """`text` is the last of this transcript."""

    @abstractmethod
    def _say(self, line: str, *, dim: bool = False) -> None:
        """Write one line to standard error."""


class PlainRenderer(Transcripts):
    """Committed text as it comes, a line end after every transcript, and nothing else on standard output."""

    def __init__(
        self, out: Output, err: Output, *, warnings: bool = True, progress: bool = False, shown: Shown | None = None
    ) -> None:
        """Nothing is written yet.

        Args:
            out: standard output.
            err: standard error.
            warnings: say what was wrong with an input that could be transcribed nevertheless.
            progress: one line for every committed window and the timings at the end.
            shown: what a console before this one has shown.
        """
        super().__init__(warnings=warnings, timings=progress, shown=shown)
        self._out = out
        self._err = err
        self._progress = progress
        self._line_open = False

    def _begin(self, heading: str) -> None:  # noqa: ARG002 - text only
        self._line_open = False

    def _grow(self, job: JobView, text: str) -> None:
        if text:
            self._write(neutralise(text))
            if self._progress:
                self._say(f"{job.name}: {audio_position(job)}")

    def _end(self, job: JobView, text: str) -> None:
        self._write(neutralise(text))
        if self._line_open or isinstance(job.end, Done):  # silence is an empty line: lines match files
            self._write("\n")

    def _write(self, text: str) -> None:
        if text:
            self._line_open = True
            self._out.write(text)
            self._out.flush()

    def _say(self, line: str, *, dim: bool = False) -> None:  # noqa: ARG002 - plain is plain
        self._err.say(line)


def summary(done: Done) -> str:
    """One line of timings: `11.0 s of audio in 1.2 s (9.2x): frontend 0.02 s, ...; language en (98%)`."""
    total = done.timings.get("total", 0.0)
    text = f"{done.duration:.1f} s of audio"
    if total > 0:
        text += f" in {total:.1f} s ({done.duration / total:.1f}x)"
    stages = [
        f"{name} {done.timings[name]:.2f} s" for name in ("frontend", "encoder", "decoder") if name in done.timings
    ]
    parts = [", ".join(stages)] if stages else []
    if "first_partial" in done.timings:
        parts.append(f"first text after {done.timings['first_partial']:.2f} s")
    speech = f"language {done.language} ({done.language_probability:.0%})" if done.language else "no speech"
    return f"{text}: {'; '.join([*parts, speech])}"


def clock(seconds: float) -> str:
    """A position as `m:ss`, with hours when there are any."""
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"


def audio_position(job: JobView) -> str:
    """How far the text of a job is committed, such as `0:30 / 1:35`."""
    position = clock(job.settled_until)
    return position if job.duration is None else f"{position} / {clock(job.duration)}"
