"""Between the hub and its actors, about the actors: that they live, where their results go, how many may be sent."""

from __future__ import annotations

from typing import ClassVar

from susurrus.protocol.records import record
from susurrus.protocol.values import Message, SendPort, since


@record
class Hello(Message):
    """An actor's or client's first word to the hub, before any model is loaded."""

    TYPE: ClassVar[str] = "hello"
    name: str
    """`frontend`, `encoder`, `decoder`, of a further lane such as `encoder-2`, `console` or a client's own name."""
    package: str
    """Version of the susurrus package that speaks."""
    pid: int
    """Process id, for the log."""


@record
class Ready(Message):
    """The actor has loaded what it needs and takes work. Followed by Credit for its upstream."""

    TYPE: ClassVar[str] = "ready"
    name: str
    inbox: SendPort | None
    """Where its upstream sends the arrays; None for actors that receive none."""
    model: str
    """Name of the model it loaded, empty for the console."""
    sample_rate: int
    """Hertz; 0 where it does not apply."""
    n_mels: int
    """Mel bins; 0 where it does not apply."""
    threads: int
    """Intra-op threads of its sessions; 0 where it does not apply."""
    load_s: float
    """Seconds from process start to this message."""


@record
class Downstream(Message):
    """The hub tells an actor where its results go. Replaces that lane's earlier one and resets its credit to 0."""

    TYPE: ClassVar[str] = "downstream"
    port: SendPort
    lane: int = since(3, 1)
    """Which of the actor's ways on: the frontend has one for each lane, an encoder one alone."""


@record
class Upstream(Message):
    """The hub tells an actor that what sends it arrays is a new instance: grant that Credit afresh."""

    TYPE: ClassVar[str] = "upstream"


@record
class Credit(Message):
    """The receiver of windows grants its upstream `windows` more of them; the hub relays it."""

    TYPE: ClassVar[str] = "credit"
    windows: int
    lane: int = since(3, 1)
    """As in Downstream; on the way to the hub it means nothing."""


@record
class Ping(Message):
    """Are you there? Answered by Pong with the same number, by the I/O thread."""

    TYPE: ClassVar[str] = "ping"
    number: int


@record
class Pong(Message):
    """Answer to Ping. Proves that the I/O thread lives, not that the work goes on."""

    TYPE: ClassVar[str] = "pong"
    number: int
    stalled_s: float = since(2, 0.0)
    """Seconds since the compute thread last got anywhere with what it works on; 0 while it waits for work."""
    backlog: int = since(2, 0)
    """Pieces of work that wait in the inbox."""


@record
class Stop(Message):
    """End in order: drop unfinished work, close, answer Stopped."""

    TYPE: ClassVar[str] = "stop"


@record
class Stopped(Message):
    """The actor ends now. Published with the name `pipeline` it is the last event of all."""

    TYPE: ClassVar[str] = "stopped"
    name: str
    code: str
    """Empty for an orderly end, else the machine-readable reason."""
    text: str
    """Empty for an orderly end, else one sentence for people."""


@record
class Error(Message):
    """Something the sender cannot go on with, or the answer to a message it does not know."""

    TYPE: ClassVar[str] = "error"
    code: str
    text: str
