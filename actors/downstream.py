"""Where an actor's results go: to the next actor, of which the frontend has one in each lane."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from susurrus.actors.credit import CreditGate
from susurrus.protocol import Message, Outlet, ProtocolError


class Way:
    """To one receiver. Belongs to the I/O thread, but for the gate, which the compute thread goes through."""

    def __init__(self, gate: CreditGate, refuse: Callable[[Message, ProtocolError], None]) -> None:
        """It leads nowhere yet, and there is no credit.

        Args:
            gate: of the receiver's credit.
            refuse: told of what cannot travel.
        """
        self.gate = gate
        self.unsent: deque[Message] = deque()
        """What could not be sent yet: the other side does not read."""
        self._refuse = refuse
        self._outlet: Outlet | None = None

    def connect(self, outlet: Outlet) -> None:
        """From now on it leads to another receiver, which grants afresh; the hub has done again what was on its way."""
        self.gate.reset()
        self.unsent.clear()
        if self._outlet is not None:
            self._outlet.close()
        self._outlet = outlet

    def flush(self) -> None:
        """Send what can be sent. What cannot travel fails its job, not the actor."""
        while self.unsent and self._send(self.unsent[0]):
            self.unsent.popleft()

    def close(self) -> None:
        """Wake who waits for credit, and let go of the socket."""
        self.gate.close()
        if self._outlet is not None:
            self._outlet.close()

    def _send(self, message: Message) -> bool:
        try:
            return self._outlet is None or self._outlet.send(message)
        except ProtocolError as error:
            self._refuse(message, error)
            return True
