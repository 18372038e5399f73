"""The console that is a child of the pipeline, and how far it is behind: nothing may be forgotten before it is shown.

Events are dropped for who does not read, and a snapshot has the last finished jobs only. So this console is asked now
and then how far it has come: it answers when it has taken in a snapshot. As long as it is far behind, no more jobs
begin; and a pipeline that ends in order waits for it.
"""

from __future__ import annotations

from collections.abc import Callable

from susurrus.actors.ledger import MAX_FINISHED
from susurrus.protocol import Message, Ping

ASK_EVERY = 4  # ends of jobs
MAX_BEHIND = MAX_FINISHED // 2  # ends of jobs that are not shown for certain; what is in work may end as well


class Audience:
    """Belongs to the hub's thread."""

    def __init__(self, send: Callable[[bytes, Message], bool], *, is_missing: bool = False) -> None:
        """Nobody is there.

        Args:
            send: queues a message for a peer of the hub.
            is_missing: the pipeline has one, and it has not said Hello yet.
        """
        self.is_missing = is_missing
        """No job begins before it has come: it must not miss the first events."""
        self.is_last = False
        """Nothing else keeps the pipeline: it ends as soon as this one has shown all there is."""
        self.pids: set[int] = set()
        """Processes of our own consoles that have said Hello: they subscribe, and the last event will reach them."""
        self._send = send
        self._peer = b""
        self._ended = 0
        self._shown = 0
        self._has_come = False

    @property
    def is_here(self) -> bool:
        """Whether it is there to be asked."""
        return bool(self._peer)

    @property
    def is_behind(self) -> bool:
        """Whether so much is not shown yet that more might be forgotten before it is."""
        return self._has_come and self._ended - self._shown > MAX_BEHIND

    def come(self, peer: bytes) -> None:
        """It has said Hello, after its first snapshot."""
        self._peer, self._has_come = peer, True
        self.ask()

    def go(self) -> None:
        """It is lost."""
        self._peer = b""

    def ask(self) -> None:
        """Have it say how far it has come."""
        if self._peer:
            self._send(self._peer, Ping(number=self._ended))

    def job_ended(self) -> None:
        """One more."""
        self._ended += 1
        if self._ended % ASK_EVERY == 0:
            self.ask()

    def answers(self, peer: bytes, number: int) -> bool:
        """Take in an answer; tell whether it is this console's, and all that has ended is shown."""
        if not self._peer or peer != self._peer:
            return False
        self._shown = max(self._shown, number)
        return self._shown >= self._ended
