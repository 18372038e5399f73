"""What the trace sees of those who ask and watch: the client of run.py, and the console."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from susurrus.actors.batch import Jobs
from susurrus.actors.render import Renderer
from susurrus.actors.trace_journal import Journal, now_ns, shown
from susurrus.actors.view import Change, JobEvent, TranscriptView
from susurrus.protocol import TerminalEvent


class TracedJobs:
    """A client that writes down what it asks for and what comes of it. The client's thread calls it."""

    def __init__(self, jobs: Jobs, journal: Journal) -> None:
        self._jobs = jobs
        self._journal = journal
        self._names: dict[bytes, str] = {}  # of the jobs that have not ended

    def submit(self, source: str, *, name: str = "", **how: Any) -> bytes:
        """See `Jobs`."""
        job = self._jobs.submit(source, name=name, **how)
        self._names[job] = name
        self._journal.span("b", name, "job", job.hex(), job=job.hex(), name=name)
        return job

    def receive(self, timeout: float | None = None) -> JobEvent | None:
        """See `Jobs`."""
        event = self._jobs.receive(timeout)
        if event is not None:
            self._journal.instant(event.TYPE, "received", now_ns(), **shown(event))
        if isinstance(event, TerminalEvent):
            self._journal.span("e", self._names.pop(event.job, ""), "job", event.job.hex())
        return event


class TracedRenderer:
    """A renderer that writes down what it is shown, and how long drawing takes. The console's thread calls it."""

    def __init__(self, renderer: Renderer, folder: Path) -> None:
        self._renderer = renderer
        self._journal = Journal(folder, "console", main="screen")

    def on_change(self, view: TranscriptView, changes: Sequence[Change]) -> None:
        """See `Renderer`, as of all methods."""
        start = now_ns()
        for change in changes:
            self._journal.instant(change.TYPE, "received", start, **shown(change))
        self._renderer.on_change(view, changes)
        if changes:
            self._journal.slice("draw", "work", start, now_ns())

    def timeout(self) -> float | None:
        """Nothing to look at."""
        return self._renderer.timeout()

    def error(self, text: str) -> None:
        """Nothing to look at."""
        self._renderer.error(text)

    def close(self) -> None:
        """End the journal too."""
        self._renderer.close()
        self._journal.close()
