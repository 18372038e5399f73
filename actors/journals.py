"""The journals of the jobs in work. Belongs to the hub's thread, which so waits for the disk at every segment."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from susurrus.actors.journal_file import JournalError
from susurrus.protocol import Segment, Submit

if TYPE_CHECKING:
    from susurrus.actors.journal import Journal

OpenJournal = Callable[[Submit], "Journal"]


class Journals:
    """Which job is kept in which journal."""

    def __init__(self, open_journal: OpenJournal | None) -> None:
        """None is open.

        Args:
            open_journal: finds or makes the journal that a job asks for; None: jobs with one are refused.
        """
        self._open_journal = open_journal
        self._of: dict[bytes, Journal] = {}

    def open(self, submit: Submit) -> tuple[Segment, ...]:
        """The journal of a job; what an interrupted run of it has committed, in window order.

        Raises:
            SusurrusError: it cannot be used.
        """
        if not submit.journal:
            return ()
        if self._open_journal is None:
            raise JournalError(f"{submit.journal}: this pipeline keeps no journals")
        self._of[submit.job] = self._open_journal(submit)
        return self._of[submit.job].committed

    def append(self, segment: Segment) -> None:
        """Keep a segment that was committed now, if its job has a journal.

        Raises:
            JournalError: it cannot be written.
        """
        journal = self._of.get(segment.job)
        if journal is not None and segment.window >= len(journal.committed):
            journal.append(segment)

    def close(self, job: bytes) -> None:
        """The job has ended. The file stays until whoever keeps the text removes it."""
        if job in self._of:
            self._of.pop(job).close()

    def close_all(self) -> None:
        """The pipeline ends."""
        for job in list(self._of):
            self.close(job)
