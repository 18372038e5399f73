"""Credit: how a stage keeps from flooding the next one. High-water marks lose messages; credit cannot."""

from __future__ import annotations

import threading


class Stopping(Exception):  # noqa: N818 - not an error: how a compute thread that waits learns that the actor ends
    """Raised to a compute thread that waits for credit when its actor ends."""


class CreditGate:
    """Counts the windows that downstream is ready to take.

    The I/O thread grants and resets; the compute thread takes, and waits when there is nothing to take.
    """

    def __init__(self) -> None:
        self._windows = 0
        self._open = True
        self._changed = threading.Condition()

    def grant(self, windows: int) -> None:
        """Add credit (I/O thread)."""
        with self._changed:
            self._windows += windows
            self._changed.notify()

    def reset(self) -> None:
        """Forget all credit: downstream is a new instance and will grant afresh (I/O thread)."""
        with self._changed:
            self._windows = 0

    def close(self) -> None:
        """Wake the waiting compute thread for good (I/O thread)."""
        with self._changed:
            self._open = False
            self._changed.notify_all()

    @property
    def windows(self) -> int:
        """How often `take` would not wait (compute thread)."""
        with self._changed:
            return self._windows

    def take(self) -> None:
        """Take credit for one window; wait for it (compute thread).

        Raises:
            Stopping: the gate was closed.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._windows > 0 or not self._open)
            if not self._open:
                raise Stopping
            self._windows -= 1
