"""What is published for everybody who subscribes."""

from __future__ import annotations

from typing import ClassVar

from susurrus.protocol.control import Stopped
from susurrus.protocol.records import record
from susurrus.protocol.values import Cue, Message, Span, since


@record
class Welcome(Message):
    """Published for every new subscription: the subscriber that reads it knows that its subscription is live."""

    TYPE: ClassVar[str] = "welcome"
    instance: bytes
    """The hub's."""


@record
class Beat(Message):
    """Published every second: makes the loss of a job's last event visible."""

    TYPE: ClassVar[str] = "beat"
    number: int
    latest: dict[str, int]
    """Job id (hex) -> its latest seq, for every active job."""


@record
class Started(Message):
    """Event: the frontend opened the audio."""

    TYPE: ClassVar[str] = "started"
    job: bytes
    seq: int
    name: str
    duration: float | None
    """Seconds of audio; None for a stream."""


@record
class Window(Message):
    """The frontend cut a window: at most 30 s of the job's audio that the decoder sees at once."""

    TYPE: ClassVar[str] = "window"
    job: bytes
    window: int
    """Index within the job, from 0."""
    attempt: int
    """1 for the first time; counts up when the hub has the window done again. Older attempts are dropped."""
    start: float
    end: float
    speech: bool
    """False: nobody speaks; the window is not sent to the encoder and commits as empty text."""
    seq: int = 0
    """Set by the hub when it publishes the event."""


@record
class Partial(Message):
    """Event: the whole hypothesis of one window so far. Replaces every earlier Partial of that window."""

    TYPE: ClassVar[str] = "partial"
    job: bytes
    window: int
    attempt: int
    start: float
    end: float
    text: str
    """Whole characters only."""
    stable: int
    """`text[:stable]` begins every later Partial of this attempt with the same temperature; and its Segment, unless the
    window is decoded again at a higher one because the text was not good enough."""
    tokens: tuple[int, ...]
    """Token ids behind `text`, without the prompt."""
    seq: int = 0
    """Number of the event within the job, given by the hub; starts at 1 and never skips."""
    temperature: float = since(1, 0.0)
    """At which it is sampled."""


@record
class Segment(Message):
    """Event: the text of one window, committed. It never changes any more."""

    TYPE: ClassVar[str] = "segment"
    job: bytes
    window: int
    attempt: int
    start: float
    end: float
    text: str
    tokens: tuple[int, ...]
    language: str
    """Language the window was decoded in; empty where nothing was decoded."""
    language_probability: float
    """1.0 when the user named the language."""
    truncated: bool
    """The decoder stopped at its token limit instead of at the end of the text."""
    encoder_s: float
    decoder_s: float
    """Seconds of work; encoder_s and decoder_s are 0 for windows without speech."""
    seq: int = 0
    cues: tuple[Cue, ...] = since(1, ())
    """The timed pieces of the text."""
    speech: tuple[Span, ...] = since(1, ())
    """Where in the window somebody speaks."""
    language_probabilities: dict[str, float] = since(1, default_factory=dict)
    """The most probable languages of what was heard so far, as code -> probability."""
    temperature: float = since(1, 0.0)
    """At which the text was sampled: above 0 when cooler tries were not good enough."""
    avg_logprob: float = since(1, 0.0)
    """Mean log-probability of the sampled tokens."""
    compression_ratio: float = since(1, 0.0)
    """Bytes of the text over its compressed bytes: high for text that repeats itself."""
    no_speech_prob: float = since(1, 0.0)
    """The model's probability that nobody speaks in the window."""
    warnings: tuple[str, ...] = since(1, ())
    """One sentence each: prompt cut to fit, language doubtful."""
    memory: str = since(2, "")
    """JSON: what another decoder has to know to go on behind this window. For the hub; published events have none."""
    settled: bool = since(3, False)
    """What later windows are decoded by will not change any more: with `memory` any decoder goes on, and they need not
    be decoded in order. For the hub; published events say false."""


@record
class Done(Message):
    """Terminal event: the whole text."""

    TYPE: ClassVar[str] = "done"
    job: bytes
    seq: int
    text: str
    language: str
    """Empty when there was no speech."""
    language_probability: float
    duration: float
    timings: dict[str, float]
    """Seconds: `frontend`, `encoder`, `decoder` (work), `first_partial`, `total` (since Submit), `encoder_p90`,
    `decoder_p90` (a window with speech). And `real_time_factor`, seconds of audio a second since the frontend opened
    it; `attempts`, 1 for a job that no loss of an actor has touched. Any of them may be missing."""
    complete: bool
    """False: the audio is damaged, and `text` is what its good part says."""
    warnings: tuple[str, ...]
    language_probabilities: dict[str, float] = since(1, default_factory=dict)
    """The most probable languages, as code -> probability."""
    speech_s: float = since(1, 0.0)
    """Seconds in which somebody speaks."""
    coverage: float = since(1, 1.0)
    """Share of those that lie within cues; 1.0 without speech."""


@record
class Failed(Message):
    """Terminal event: this job failed; the others go on."""

    TYPE: ClassVar[str] = "failed"
    job: bytes
    code: str
    """`audio` (unreadable input), `option`, `internal`, `deadline`, `journal`, `killer` (a window ended its worker too
    often), `stopped` (the pipeline ended)."""
    text: str
    """One sentence that names the file or setting and the fix."""
    seq: int = 0


@record
class Cancelled(Message):
    """Terminal event: the job was cancelled."""

    TYPE: ClassVar[str] = "cancelled"
    job: bytes
    seq: int


Event = Welcome | Started | Window | Partial | Segment | Done | Failed | Cancelled | Beat | Stopped
TerminalEvent = Done | Failed | Cancelled
