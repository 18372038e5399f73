"""What an actor's two threads share beside their queues: how the work gets on, and which of it is wasted."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager
from math import inf

MAX_FENCES = 1024  # jobs remembered; the hub's ledger is the truth, this only saves work


class Progress:
    """When the compute thread last got anywhere. It writes; the I/O thread reads."""

    def __init__(self) -> None:
        self._last: float | None = None  # monotonic seconds; None while there is nothing to do

    def note(self) -> None:
        """Something was done, or begins."""
        self._last = time.monotonic()

    def rest(self) -> None:
        """There is nothing to do."""
        self._last = None

    @contextmanager
    def pause(self) -> Generator[None, None, None]:
        """What happens within depends on others."""
        self._last = None
        yield
        self._last = time.monotonic()

    @property
    def stalled_s(self) -> float:
        """Seconds without progress; 0 while there is nothing to do."""
        last = self._last
        return 0.0 if last is None else time.monotonic() - last


class Fences:
    """Jobs of which some work is wasted. The I/O thread writes, both threads read."""

    def __init__(self) -> None:
        self._first: dict[bytes, float] = {}  # job -> the first attempt that counts; in the order of their coming

    def set(self, job: bytes, attempt: float = inf) -> None:
        """Attempts before this one are over; by default all are: the job has ended."""
        self._first[job] = max(attempt, self._first.pop(job, 0))
        if len(self._first) > MAX_FENCES:
            del self._first[next(iter(self._first))]

    def excludes(self, job: bytes, attempt: int) -> bool:
        """Whether work on this attempt is wasted."""
        return attempt < self._first.get(job, 0)
