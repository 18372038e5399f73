"""When an actor counts as lost, and whether it is started again. Pure: the time is given from outside.

Three signs, each of its own: its process ends (the supervisor tells), it falls silent though it is pinged (frozen), or
it answers but gets nowhere with what it works on (stuck). A pong proves only that a thread lives.
"""

from __future__ import annotations

from collections import deque

from susurrus.protocol.records import record


@record
class Limits:
    """What the hub puts up with. Seconds, but for the counts."""

    ping_s: float = 1.0
    """Between two pings."""
    missed_pings: int = 3
    """An actor that is ready and says nothing for so many pings is frozen. Every message counts as an answer."""
    start_s: float = 60.0
    """The same, for an actor that is still importing and loading: it may hold Python's lock for long."""
    step_s: float = 180.0
    """One step (a run of the encoder, a token, a window read) may take so long; models differ a hundredfold."""
    restarts: int = 3
    """So many times within `period_s` an actor is started again; the next loss ends the pipeline."""
    period_s: float = 60.0
    first_pause_s: float = 0.1
    """Before the first restart; each further one within the period waits twice as long."""
    longest_pause_s: float = 2.0
    killed_workers: int = 3
    """A window that has cost so many workers their life fails its job."""


class Watch:
    """Over one actor, through all its lives. Belongs to the hub's thread."""

    def __init__(self, limits: Limits, now: float) -> None:
        self._limits = limits
        self._losses: deque[float] = deque()
        self.restarts = 0
        """Since the beginning."""
        self.started(now)

    def started(self, now: float) -> None:
        """A new process was started."""
        self._heard = now
        self._ready = False
        self._stalled_s = 0.0

    def ready(self) -> None:
        """It has loaded: from now on silence is short."""
        self._ready = True

    def heard(self, now: float) -> None:
        """It said something."""
        self._heard = now

    def stalled(self, seconds: float) -> None:
        """It says for how long its work has got nowhere."""
        self._stalled_s = seconds

    def slept(self, now: float) -> None:
        """The hub itself was not running, so silence proves nothing: count from here."""
        self._heard = now

    def suspicion(self, now: float) -> str:
        """Why it has to be killed, as `the encoder …`; empty for no reason."""
        patience = self._limits.ping_s * self._limits.missed_pings if self._ready else self._limits.start_s
        if now - self._heard > patience:
            return f"said nothing for {patience:g} s"
        if self._stalled_s > self._limits.step_s:
            return f"got nowhere for {self._limits.step_s:g} s"
        return ""

    def lost(self, now: float) -> float | None:
        """Note a loss; return the pause before the restart in seconds, or None: it is given up."""
        self._losses.append(now)
        while now - self._losses[0] > self._limits.period_s:
            self._losses.popleft()
        if len(self._losses) > self._limits.restarts:
            return None
        self.restarts += 1
        pause: float = self._limits.first_pause_s * 2 ** (len(self._losses) - 1)
        return min(self._limits.longest_pause_s, pause)

    def forgive(self) -> None:
        """The losses had a cause that is dealt with: they do not count any more."""
        self._losses.clear()
