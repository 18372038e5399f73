"""What an actor does, and what it sees of the world while it does it.

A `Behaviour` is one kind of actor: frontend, encoder, decoder. Its `Desk` is where work comes from and results go to;
the `Shell` behind it owns the sockets. Everything here runs on the actor's compute thread.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from susurrus.models.errors import AudioError, ModelError, OptionError, SusurrusError
from susurrus.protocol import Committed, Credit, Failed, Features, HiddenStates, Message, Reissue, Submit, Working

if TYPE_CHECKING:
    from susurrus.actors.actor_trace import ActorTrace
    from susurrus.actors.shell import Shell

WINDOWS_GRANTED = 2  # one being worked on, one waiting: the stage before never idles and never runs ahead
LAST_ATTEMPT = 2**62  # none comes near
MAX_TEXT = 2000  # characters of an error's sentence: it has to fit into a message

log = logging.getLogger(__name__)

Work = Submit | Reissue | Committed | Features | HiddenStates

ERROR_CODES: dict[type[Exception], str] = {AudioError: "audio", OptionError: "option", ModelError: "model"}


@dataclass(frozen=True, slots=True)
class Loaded:
    """What an actor says of itself when it is ready."""

    model: str
    sample_rate: int = 0
    n_mels: int = 0
    threads: int = 0


class Behaviour(ABC):
    """What one kind of actor does. Every method runs on the compute thread, one at a time."""

    name: ClassVar[str]
    has_inbox: ClassVar[bool]
    """Whether it receives arrays from an actor upstream, and so grants it credit."""
    windows_granted: ClassVar[int] = WINDOWS_GRANTED
    """How many windows the actor upstream may send before one is done."""
    keeps_windows: ClassVar[bool] = False
    """Whether `handle` only takes windows in: it then tells of each when work on it begins (`Desk.works_on`), and when
    there is room for another (`Desk.release`)."""
    trace: ActorTrace | None = None
    """Where it may write down what it does, when the user wants that."""

    @abstractmethod
    def load(self) -> Loaded:
        """Load the model. An exception ends the actor; the hub is told the reason."""

    @abstractmethod
    def handle(self, work: Work, desk: Desk) -> None:
        """Do one piece of work. An exception fails the job it belongs to; the actor goes on with the next."""

    def go_on(self, desk: Desk) -> bool:  # noqa: ARG002 - most have nothing
        """Do one piece of work of its own, if there is one that can be done now; called whenever the inbox is empty.

        Returns:
            Whether to call again, without waiting for a message or for credit.
        """
        return False

    def close(self) -> None:  # noqa: B027 - most have nothing
        """The actor ends: let go of what is open."""


class Desk:
    """What the compute thread sees of the world. The compute thread alone calls its methods."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell

    def tell(self, message: Message) -> None:
        """Send to the hub."""
        self._shell.progress.note()
        self._shell.post(message)

    def works_on(self, job: bytes, window: int, attempt: int) -> None:
        """Tell the hub what this actor is about to work on: what is to blame if nothing more is heard of it.

        It returns when that is on its way: what kills the actor at once must not keep it from being said.
        """
        self.tell(Working(job=job, window=window, attempt=attempt))
        self._shell.hand_over()

    def release(self) -> None:
        """Let the actor upstream send one more window: one that was kept is done."""
        self._shell.post(Credit(windows=1))

    def forward(self, message: Features | HiddenStates, *, lane: int = 1) -> None:
        """Send downstream as soon as there is credit; nothing is sent of an attempt that is over by then.

        Args:
            message: the window.
            lane: by which it goes, if there are several.

        Raises:
            Stopping: the actor ends.
        """
        gate = self._shell.ways[lane].gate
        with self.waiting():
            gate.take()
        if self._shell.fences.excludes(message.job, message.attempt):
            gate.grant(1)
        else:
            self._shell.post(message, lane=lane)

    @property
    def n_lanes(self) -> int:
        """How many there are, as far as is known by now."""
        return len(self._shell.ways)

    @property
    def credit(self) -> dict[int, int]:
        """Lanes by which `forward` would not wait, and how many windows each takes."""
        granted = {lane: way.gate.windows for lane, way in list(self._shell.ways.items())}
        return {lane: windows for lane, windows in granted.items() if windows > 0}

    def waiting(self) -> AbstractContextManager[None]:
        """A stretch in which this thread waits for others (credit, a slow pipe), so that nobody takes it for stuck."""
        return self._shell.progress.pause()

    def fail(self, job: bytes, error: Exception) -> None:
        """Tell the hub that a job failed."""
        self.tell(Failed(job=job, code=code_of(error), text=describe(error)))

    def is_given_up(self, job: bytes, attempt: int = 1) -> bool:
        """Whether work on the job is wasted: it has ended, this attempt is over, or the actor ends."""
        self._shell.progress.note()
        return self._shell.stopping or self._shell.fences.excludes(job, attempt)

    def is_over(self, job: bytes) -> bool:
        """Whether the job has ended, so that no further attempt will come either."""
        return self._shell.fences.excludes(job, LAST_ATTEMPT)


def code_of(error: Exception) -> str:
    """What Failed and Error call it."""
    return next((code for kind, code in ERROR_CODES.items() if isinstance(error, kind)), "internal")


def describe(error: Exception) -> str:
    """One line for people. An error that is not ours is named by its type, and its traceback goes to the log."""
    if isinstance(error, SusurrusError):
        return _sendable(str(error))
    log.error("unexpected error", exc_info=error)
    return _sendable(f"{type(error).__name__}: {error}".splitlines()[0])


def _sendable(text: str) -> str:
    """The text without what cannot travel: a file's name may hold bytes that are not UTF-8."""
    return text[:MAX_TEXT].encode(errors="backslashreplace").decode()
