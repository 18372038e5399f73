"""An actor that is looked at: the same shell and behaviour, and beside them a trace of what they see and send."""

from __future__ import annotations

from pathlib import Path

from susurrus.actors.actor_trace import ActorTrace, ArrayMessage
from susurrus.actors.behaviour import Behaviour, Desk, Loaded, Work
from susurrus.actors.credit import CreditGate
from susurrus.actors.io import Context
from susurrus.actors.shell import Shell
from susurrus.actors.trace_journal import now_ns
from susurrus.protocol import Connection, Message


class TracedShell(Shell):
    """A shell that lets a trace see what comes and goes."""

    def __init__(
        self, behaviour: Behaviour, connection: Connection, context: Context, *, folder: Path, name: str = ""
    ) -> None:
        self.trace = behaviour.trace = ActorTrace(folder, name or behaviour.name)
        super().__init__(_traced(behaviour, self.trace), connection, context, name=name)

    def run(self, *, join: bool = False) -> None:
        """See `Shell`."""
        try:
            super().run(join=join)
        finally:
            self.trace.close()

    def post(self, message: Message, *, lane: int | None = None) -> None:
        """See `Shell`."""
        sent = now_ns()
        super().post(message, lane=lane)
        self.trace.sent(message, sent)

    def _new_gate(self) -> CreditGate:
        return _TracedGate(self.trace)

    def _from_hub(self, message: Message) -> None:
        self.trace.hears(message)
        super()._from_hub(message)

    def _arrived(self, window: ArrayMessage) -> None:
        self.trace.arrived(window)
        super()._arrived(window)


class _TracedGate(CreditGate):
    """Tells how long credit is waited for."""

    def __init__(self, trace: ActorTrace) -> None:
        super().__init__()
        self._trace = trace

    def take(self) -> None:
        """See `CreditGate`."""
        start = now_ns()
        super().take()
        self._trace.waited(start)


def _traced(behaviour: Behaviour, trace: ActorTrace) -> Behaviour:
    """The behaviour, with a look at every call."""

    class Traced(Behaviour):
        name = behaviour.name
        has_inbox = behaviour.has_inbox
        windows_granted = behaviour.windows_granted
        keeps_windows = behaviour.keeps_windows

        def load(self) -> Loaded:
            with trace.works("load"):
                return behaviour.load()

        def handle(self, work: Work, desk: Desk) -> None:
            with trace.works(work.TYPE, work):
                behaviour.handle(work, desk)

        def go_on(self, desk: Desk) -> bool:
            return trace.goes_on(lambda: behaviour.go_on(desk))

        def close(self) -> None:
            behaviour.close()

    return Traced()
