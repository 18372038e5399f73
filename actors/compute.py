"""What an actor's compute thread does: load the model, then one piece of work after another until the end."""

from __future__ import annotations

import queue
from typing import TYPE_CHECKING

from susurrus.actors.behaviour import Behaviour, Desk, Work, code_of, describe
from susurrus.actors.credit import Stopping
from susurrus.protocol import Committed, Credit, Error, Features, HiddenStates

if TYPE_CHECKING:
    from susurrus.actors.shell import Shell


class Nudge:
    """In the queue of work: there is credit, or nothing at all, but `go_on` should be asked again."""


class ComputeLoop:
    """Calls a behaviour, which owns the model, and nothing else does. It shares its queue with the I/O thread."""

    def __init__(self, behaviour: Behaviour, shell: Shell) -> None:
        """There is nothing to do yet.

        Args:
            behaviour: what the actor does.
            shell: around it, which sends what is to be sent.
        """
        self._behaviour = behaviour
        self._shell = shell
        self._work: queue.SimpleQueue[Work | Nudge | None] = queue.SimpleQueue()

    # --- the I/O thread ---

    def put(self, work: Work | Nudge | None) -> None:
        """Add to the queue; None is the end."""
        self._work.put(work)

    @property
    def backlog(self) -> int:
        """Pieces of work that wait."""
        return self._work.qsize()

    # --- the compute thread ---

    def run(self) -> None:
        """Load, say so, then work until the end. What goes wrong is told to the hub, never raised."""
        try:
            self._shell.progress.note()
            self._shell.loaded(self._behaviour.load())
            if self._behaviour.has_inbox:
                self._shell.post(Credit(windows=self._behaviour.windows_granted))
            desk = Desk(self._shell)
            while (work := self._next_work(desk)) is not None:
                if not isinstance(work, Nudge):
                    self._do(work, desk)
        except Stopping:
            return
        except Exception as error:  # noqa: BLE001 - whatever it is, the hub must hear of it
            self._shell.post(Error(code=code_of(error), text=describe(error)))
        finally:
            self._behaviour.close()

    def _next_work(self, desk: Desk) -> Work | Nudge | None:
        """What comes next in the inbox; the actor's own work fills the time until then."""
        while self._work.empty() and self._behaviour.go_on(desk):
            pass
        self._shell.progress.rest()
        work = self._work.get()
        self._shell.progress.note()
        return work

    def _do(self, work: Work, desk: Desk) -> None:
        """One piece of work. One bad job must not take the others with it."""
        to_release, keeps = isinstance(work, Features | HiddenStates), self._behaviour.keeps_windows
        try:
            if isinstance(work, Committed) or not desk.is_given_up(work.job, getattr(work, "attempt", 1)):
                if isinstance(work, Features | HiddenStates) and not keeps:
                    desk.works_on(work.job, work.window, work.attempt)
                self._behaviour.handle(work, desk)
                to_release = to_release and not keeps
        except Stopping:
            raise
        except Exception as error:  # noqa: BLE001
            desk.fail(work.job, error)
        if to_release:
            desk.release()
