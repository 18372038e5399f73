"""What the hub tells of its jobs: events to everybody, and what a committed window means to frontend and journal."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace

from susurrus.actors.audience import Audience
from susurrus.actors.journal_file import JournalError
from susurrus.actors.journals import Journals
from susurrus.actors.line import Line
from susurrus.protocol import Committed, Event, ProtocolError, Publisher, Segment, TerminalEvent

log = logging.getLogger(__name__)


class Announcements:
    """Belongs to the hub's thread, as all that it works on does."""

    def __init__(
        self,
        publisher: Publisher,
        line: Line,
        journals: Journals,
        audience: Audience,
        fail: Callable[[bytes, str], None],
    ) -> None:
        """Nothing was told yet.

        Args:
            publisher: to everybody.
            line: of the pipeline.
            journals: of the jobs in work.
            audience: our own console.
            fail: fails a job whose journal cannot be written, for a reason in words; later, not at once.
        """
        self._publisher = publisher
        self._line = line
        self._journals = journals
        self._audience = audience
        self._fail = fail

    def publish(self, events: Iterable[Event]) -> None:
        """Tell what the ledger says has happened, in its order."""
        for event in events:
            published = event
            if isinstance(event, Segment):
                self._note_commit(event)
                published = replace(event, memory="", settled=False)
            if isinstance(event, TerminalEvent):
                self._journals.close(event.job)
                self._audience.job_ended()
            try:
                self._publisher.publish(published)
            except ProtocolError:  # never meant to happen, and no reason to take the other jobs down
                log.exception("event cannot be published", extra={"type": event.TYPE})

    def _note_commit(self, segment: Segment) -> None:
        """A window is done for good: the frontend need not keep it, the journal has to."""
        memory = segment.memory if segment.settled else ""
        done = Committed(segment.job, segment.window + 1, memory, segment.settled)
        self._line.tell(self._line.frontend, done)
        try:
            self._journals.append(segment)
        except JournalError as error:
            self._journals.close(segment.job)
            self._fail(segment.job, str(error))
