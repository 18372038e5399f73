"""What is done when an actor is lost: kill what is frozen or stuck, start another, have its work done again.

    suspicion ─> kill ─> end ─> fence ─> pause ─> restart ─> settle ─> reissue

Belongs to the hub's thread. The ledger and the line are the hub's; what a loss means for a job, the hub publishes.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Protocol

from susurrus.actors.job import STDIN
from susurrus.actors.ledger import Ledger
from susurrus.actors.line import Line, Station
from susurrus.actors.watch import Limits, Watch
from susurrus.protocol import Error, Fence, Redo, Working

CONSOLE = "console"
PERMANENT = ("model", "option")  # codes of errors that another try would meet again

log = logging.getLogger(__name__)


class Crew(Protocol):
    """Who has the processes: the supervisor. The hub's thread calls it."""

    def restart(self, name: str) -> None:
        """Start an actor again, that was started before and has ended. Raises OSError."""

    def kill(self, name: str) -> None:
        """End it at once; its end is told as any other."""

    def last_words(self, name: str) -> str:
        """The last lines of its log, in one; empty for none."""

    def pids(self) -> dict[str, int]:
        """Process ids of those that run, by name."""


class Recovery:
    """Losses of one pipeline, and how they are made good."""

    def __init__(
        self,
        line: Line,
        ledger: Ledger,
        limits: Limits,
        *,
        end: Callable[[str, str], None],
        fail: Callable[[bytes, str, str], None],
    ) -> None:
        """Nothing is lost yet.

        Args:
            line: of the pipeline.
            ledger: of the pipeline.
            limits: what is put up with.
            end: ends the pipeline, for a reason given as code and sentence.
            fail: fails a job, likewise.
        """
        self.crew: Crew | None = None
        """Without one, a lost actor ends the pipeline."""
        self.console = Watch(limits, time.monotonic())
        self.is_console_away = False
        """Lost, and not back yet."""
        self.restarts: dict[str, float] = {}
        """Actor -> monotonic time of its next start."""
        self.has_lost_work = False
        """It is to be done again when the line stands."""
        self._line = line
        self._ledger = ledger
        self._limits = limits
        self._end = end
        self._fail = fail

    # --- signs of a loss ---

    def slept(self, now: float) -> None:
        """The hub was stopped, or the machine slept: nobody is to blame for silence."""
        for station in self._line:
            station.watch.slept(now)

    def look(self, now: float) -> None:
        """Kill who is frozen or stuck; the loss follows when it is dead."""
        if self.crew is None:
            return
        for station in self._line:
            doubt = station.watch.suspicion(now)
            if doubt and not station.doubt and station.name not in self.restarts:
                log.warning("actor is killed", extra={"actor": station.name, "reason": doubt})
                station.doubt = doubt
                self.crew.kill(station.name)

    def on_error(self, station: Station, error: Error) -> None:
        """An actor cannot go on. What another try would meet again ends the pipeline."""
        if self.crew is None or error.code in PERMANENT:
            self._end(error.code, error.text)
        else:
            station.doubt = f"could not go on ({error.text})"
            self.crew.kill(station.name)

    # --- the loss ---

    def on_lost(self, name: str, how: str) -> None:
        """An actor's process is gone."""
        if name == CONSOLE:
            self.is_console_away = True
            self._plan_restart(name, self.console, how)
            return
        station = self._line[name]
        how, had_work = station.doubt or how, station.ready
        works = [*station.works] or self._suspect(station)
        station.leave(time.monotonic())
        blamed = [self._blame(name, work) for work in works]
        if station is self._line.frontend:
            text = "what the lost frontend had read of standard input is gone: give the audio as a file"
            for job in self._ledger.running_from(STDIN):
                self._fail(job, "audio", text)
        if had_work:  # else nobody was told of it, and nothing was sent to it
            self._give_up_work()
        self._plan_restart(name, station.watch, how, is_forgiven=any(blamed))

    def _suspect(self, lost: Station) -> list[Working]:
        """The window of an actor that died so fast that it could not say over what: the oldest that no other has."""
        if not lost.ready:
            return []
        others = [other for other in self._line if other is not lost and other is not self._line.frontend]
        oldest = self._ledger.oldest_open(besides={(work.job, work.window) for other in others for work in other.works})
        return [] if oldest is None else [oldest]

    def _blame(self, name: str, working: Working) -> bool:
        """A window that was in work may be what kills workers; then its job fails, and the others go on.

        Of several at once each is blamed: the next decoder takes them one by one. The cause is gone when its job is:
        the losses over it do not count any more.
        """
        lost = self._ledger.blame(working.job, working.window, name)
        if len(lost) < self._limits.killed_workers:
            return False
        for other in lost:
            self._line[other].watch.forgive()
        names = " and ".join(dict.fromkeys(lost))
        text = f"window {working.window} ended its {names} {self._limits.killed_workers} times: leave that part out"
        self._fail(working.job, "killer", text)
        return True

    def _give_up_work(self) -> None:
        """Fence what is in work: all behind the last committed window of every job is given up."""
        self.has_lost_work = True
        for reissue in self._ledger.begin_attempt():
            self._line.tell_all(Fence(job=reissue.job, attempt=reissue.attempt))

    def _plan_restart(self, name: str, watch: Watch, how: str, *, is_forgiven: bool = False) -> None:
        words = self.crew.last_words(name) if self.crew is not None else ""
        said = f"; it last said: {words}" if words else "; run again with -v to see its log"
        now = time.monotonic()
        pause = None if self.crew is None else watch.lost(now)
        if pause is None:
            often = f" {self._limits.restarts + 1} times within {self._limits.period_s:g} s" if self.crew else ""
            self._end("actor_lost", f"the {name} {how}{often}{said}")
            return
        if is_forgiven:
            watch.forgive()
        log.warning("actor lost", extra={"actor": name, "how": how, "restart_in_s": pause})
        self.restarts[name] = now + pause

    def redo(self, request: Redo) -> None:
        """A decoder wants a window with every encoder position: nothing is lost, its job alone goes on there anew."""
        order = self._ledger.redo(request)
        if order is None:
            return
        self._line.tell_all(Fence(job=order.job, attempt=order.attempt))
        if not self.has_lost_work:  # else it comes with the rest, when the line stands
            self._line.tell(self._line.frontend, order)

    # --- and its end ---

    def restart_due(self) -> None:
        """Start those whose pause is over."""
        now = time.monotonic()
        for name in [name for name, when in self.restarts.items() if now >= when]:
            del self.restarts[name]
            if name in self._line.stations:
                self._line[name].watch.started(now)
            try:
                if self.crew is not None:
                    self.crew.restart(name)
            except OSError as error:
                self._end("actor_lost", f"the {name} cannot be started again ({error.strerror})")

    def reissue(self) -> bool:
        """Begin anew what was given up, once nothing can be sent to one that is gone any more; tell whether it was."""
        if not self.has_lost_work or not self._line.is_settled:
            return False
        self.has_lost_work = False
        for order in self._ledger.in_work():
            self._line.tell(self._line.frontend, order)
        return True
