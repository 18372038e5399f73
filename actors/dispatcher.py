"""A job's way through the hub: taken in, given to the frontend, told of, ended. The queue itself is the ledger's."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from susurrus.actors.announcements import Announcements
from susurrus.actors.audience import Audience
from susurrus.actors.journals import Journals, OpenJournal
from susurrus.actors.ledger import Ledger
from susurrus.actors.line import Line
from susurrus.actors.reports import JobReport
from susurrus.models.errors import SusurrusError
from susurrus.protocol import Accepted, AudioEnd, Cancel, Event, Failed, Publisher, Rejected, Submit


class Dispatcher:
    """Belongs to the hub's thread, as all that it works on does."""

    def __init__(
        self,
        ledger: Ledger,
        line: Line,
        audience: Audience,
        publisher: Publisher,
        *,
        open_journal: OpenJournal | None,
        later: Callable[[Callable[[], None]], None],
        is_held: Callable[[], bool],
    ) -> None:
        """No job may start yet.

        Args:
            ledger: of the pipeline.
            line: of the pipeline.
            audience: our own console.
            publisher: to everybody.
            open_journal: finds or makes the journal that a job asks for.
            later: has something done on the hub's thread, but not at once.
            is_held: whether a loss is being made good, and no job may be given out meanwhile.
        """
        self._ledger = ledger
        self._line = line
        self._audience = audience
        self._journals = Journals(open_journal)
        self._announcements = Announcements(publisher, line, self._journals, audience, self._on_journal_lost)
        self._later = later
        self._is_held = is_held
        self._may_start = False

    def allow(self) -> None:
        """Jobs may start: every model file is what it should be."""
        self._may_start = True
        self.dispatch()

    def submit(self, message: Submit) -> Accepted | Rejected:
        """Take a job in, to be given out by the next `dispatch`.

        A journal is opened first: what it holds is committed already.
        """
        answer: Accepted | Rejected
        if self._ledger.knows(message.job):
            answer = Accepted(job=message.job)
        else:
            try:
                answer = self._ledger.submit(message, time.monotonic(), self._journals.open(message))
            except SusurrusError as error:
                answer = Rejected(job=message.job, code="journal", text=str(error))
        if isinstance(answer, Rejected):
            self._journals.close(message.job)
            self._ledger.statistics.rejected()
        return answer

    def report(self, report: JobReport) -> None:
        """An actor tells of a job."""
        events = self._ledger.apply(report, time.monotonic())
        if isinstance(report, Failed):
            self._end(report.job, events)
            return
        self._announcements.publish(events)
        if isinstance(report, AudioEnd):
            self.dispatch()

    def cancel(self, job: bytes) -> None:
        """End a job because its client wants it."""
        self._end(job, self._ledger.cancel(job))

    def fail(self, job: bytes, code: str, text: str) -> None:
        """End a job for a reason given as code and sentence."""
        self._end(job, self._ledger.fail(job, code, text))

    def fail_late(self, now: float) -> None:
        """End the jobs whose deadline is over."""
        for job in self._ledger.expired(now):
            self.fail(job, "deadline", "its deadline is over: give it more time, or a faster model")

    def fail_all(self, text: str) -> None:
        """Give every open job its terminal event: the pipeline ends."""
        self._announcements.publish(self._ledger.fail_all("stopped", text))

    def close(self) -> None:
        """Let go of the journals; idempotent."""
        self._journals.close_all()

    def _on_journal_lost(self, job: bytes, text: str) -> None:
        self._later(partial(self.fail, job, "journal", text))

    def _end(self, job: bytes, events: list[Event]) -> None:
        """Publish a job's early end and have the actors drop what is left of it."""
        self._announcements.publish(events)
        if events:
            self._line.tell_all(Cancel(job=job))
            self.dispatch()

    def dispatch(self) -> None:
        """Give the frontend what it may read."""
        frontend = self._line.frontend
        if not self._may_start or self._audience.is_missing or self._is_held() or not frontend.ready:
            return
        if self._audience.is_behind:
            return
        while (work := self._ledger.next_to_read()) is not None:
            self._line.tell(frontend, work)
