"""The vocabulary: one frozen dataclass per message. `docs/protocol.md` is the specification.

Requests are verbs, results are nouns. `job`, `window`, `attempt` and `seq` travel in the frame's header, every
other field in its body; arrays travel as raw buffers behind the body. Times are seconds on the job's audio time
line unless the name says otherwise.

Who says what to whom:

    client   -> hub       Submit Cancel SnapshotRequest StatusRequest
    hub      -> client    Accepted Rejected Snapshot Status
    hub      -> actor     Submit Reissue Committed Fence Cancel Downstream Upstream Credit Ping Stop
    actor    -> hub       Hello Ready Pong Credit Working Redo Window AudioEnd Partial Segment Failed Error Stopped
    frontend -> encoder   Features
    encoder  -> decoder   HiddenStates
    hub      => everybody Welcome Started Window Partial Segment Done Failed Cancelled Beat Stopped   (published)
"""

from __future__ import annotations

from dataclasses import MISSING, field
from typing import TYPE_CHECKING, Any, ClassVar

from susurrus.protocol.records import record

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Float32Array = NDArray[np.float32]
else:

    class Float32Array:
        """Stands for the type at run time: hub, console and clients handle no arrays, and do without NumPy."""

        dtype = "<f4"


def _since(minor: int, default: Any = MISSING, **factory: Any) -> Any:
    """A field that came with a minor version of the protocol: from an older peer it has its default."""
    return field(default=default, metadata={"since": minor}, **factory)


@record
class SendPort:
    """Where messages for one receiver go: a small value that travels in messages, as Dart's SendPort does."""

    endpoint: str
    """ZeroMQ endpoint of the receiver's inbox."""
    instance: bytes
    """16 random bytes, new at every start of the receiver: a restarted actor is another receiver."""


@record
class TranscribeOptions:
    """What the user asked of one job."""

    language: str | None = None
    """Whisper language code such as `en`; None lets the decoder detect it on the first windows with speech."""
    task: str = "transcribe"
    """`transcribe` or `translate` (into English)."""
    prompt: str = ""
    """Text given to the decoder before every window, as if it had just been said."""
    hotwords: str = _since(1, "")
    """Words to expect, given before the prompt."""
    multilingual: bool = _since(1, False)
    """Detect the language of every window anew."""
    timestamps: bool = _since(1, True)
    """Let the model say when each cue starts and ends; without, a window is one cue."""
    word_timestamps: bool = _since(1, False)
    """Find the time of every word."""
    condition_on_previous_text: bool = _since(1, False)
    """Give the decoder the end of the text of the window before."""
    beam_size: int = _since(1, 1)
    """Hypotheses kept side by side at temperature 0."""
    best_of: int = _since(1, 5)
    """Samples drawn at every temperature above 0, of which the most probable is taken."""
    temperatures: tuple[float, ...] = _since(1, (0.0, 0.2, 0.4, 0.6, 0.8, 1.0))
    """Tried in order until the text is good enough."""
    compression_ratio_threshold: float | None = _since(1, 2.4)
    """Text that compresses better is decoded again; None never."""
    logprob_threshold: float | None = _since(1, -1.0)
    """Text with a lower mean log-probability is decoded again; None never."""
    no_speech_threshold: float | None = _since(1, 0.6)
    """A window at least so probably without speech, and below `logprob_threshold`, has no text; None asks nothing."""
    no_repeat_ngram_size: int = _since(1, 0)
    """No sequence of so many tokens comes twice in a window; 0 allows it."""
    vad: bool = _since(1, True)
    """Send only windows in which a voice activity detector hears speech to the encoder."""
    full_context: bool = _since(3, False)
    """Compute every encoder position of every window, not a sample of the silence behind its audio."""


@record
class Span:
    """A stretch of the recording."""

    start: float
    end: float


@record
class Word:
    """One word with the marks that stick to it."""

    start: float
    end: float
    text: str
    """The words of a cue join to its text: the space before a word is part of it."""
    probability: float
    """Mean probability of its tokens."""


@record
class Cue:
    """A timed piece of a window's text, what subtitles show at once."""

    start: float
    end: float
    text: str
    """The cues of a segment join to its text."""
    tokens: tuple[int, ...]
    """Text tokens, timestamps left out."""
    words: tuple[Word, ...]
    """Empty unless word times were asked for."""


class Message:
    """Base of everything that travels. `TYPE` is the name on the wire."""

    __slots__ = ()
    TYPE: ClassVar[str]


# --- life of an actor ------------------------------------------------------------------------------------------


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
    lane: int = _since(3, 1)
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
    lane: int = _since(3, 1)
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
    stalled_s: float = _since(2, 0.0)
    """Seconds since the compute thread last got anywhere with what it works on; 0 while it waits for work."""
    backlog: int = _since(2, 0)
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


# --- jobs ------------------------------------------------------------------------------------------------------


@record
class Submit(Message):
    """Please transcribe. Followed by Accepted or Rejected, then by events, then by exactly one terminal event."""

    TYPE: ClassVar[str] = "submit"
    job: bytes
    """16 random bytes made by the client: a resent Submit is answered, not run twice."""
    source: str
    """Path of the audio as the frontend sees it, or `-` for the frontend's standard input."""
    name: str
    """What people call it; shown, never opened."""
    options: TranscribeOptions = field(default_factory=TranscribeOptions)
    group: str = _since(2, "")
    """Jobs of one group are read in order, as many at a time as there are lanes; groups, and jobs without one, side by
    side."""
    deadline_s: float | None = _since(2, None)
    """Seconds from Accepted after which the job fails with `deadline`; None never."""
    journal: str = _since(2, "")
    """File that committed segments are kept in, and that an interrupted job goes on from; empty for none."""


@record
class Reissue(Message):
    """The hub has the rest of a job done again: an actor was lost, or an earlier run of it was interrupted."""

    TYPE: ClassVar[str] = "reissue"
    job: bytes
    window: int
    """The first one that is not committed; those before it are not sent."""
    attempt: int
    """Of every window from now on."""
    submit: Submit
    """What was asked for: a frontend that does not know the job reads its audio from the beginning."""
    memory: str
    """As in Segment, of the window before; empty for the first."""
    settled: bool = _since(3, False)
    """As in Segment, of any window before."""
    full: tuple[int, ...] = _since(3, ())
    """Windows that are wanted with every encoder position: a decoder has asked for it."""


@record
class Committed(Message):
    """The hub tells the frontend that it will not ask for the first `windows` windows of a job again."""

    TYPE: ClassVar[str] = "committed"
    job: bytes
    windows: int
    memory: str = _since(3, "")
    """As in Segment, of the last of them, once it is settled; empty before."""
    settled: bool = _since(3, False)
    """As in Segment: from now on the job's windows may go to any lane."""


@record
class Fence(Message):
    """The hub tells an actor that work on earlier attempts of the job is wasted."""

    TYPE: ClassVar[str] = "fence"
    job: bytes
    attempt: int
    """The one that counts."""


@record
class Working(Message):
    """The actor begins to work on a window: what is to blame if it is never heard of again."""

    TYPE: ClassVar[str] = "working"
    job: bytes
    window: int
    attempt: int


@record
class Accepted(Message):
    """The hub has the job in its ledger."""

    TYPE: ClassVar[str] = "accepted"
    job: bytes


@record
class Rejected(Message):
    """The hub does not take the job: `busy`, `version`, `stopping`."""

    TYPE: ClassVar[str] = "rejected"
    job: bytes
    code: str
    text: str


@record
class Cancel(Message):
    """Stop working on the job. Idempotent. Followed by Cancelled, or by Done if that came first."""

    TYPE: ClassVar[str] = "cancel"
    job: bytes


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
class AudioEnd(Message):
    """The frontend has read the job's audio to its end (or to where it is damaged)."""

    TYPE: ClassVar[str] = "audio_end"
    job: bytes
    windows: int
    """How many windows the job has."""
    duration: float
    """Seconds of audio read."""
    frontend_s: float
    """Seconds of work in the frontend: reading, resampling, log-mel."""
    complete: bool
    """False: the audio is damaged, and only its good part was read."""
    warnings: tuple[str, ...]
    """One sentence each: damaged file, audio too short."""


# --- windows ---------------------------------------------------------------------------------------------------


@record
class Features(Message):
    """Log-mel of one window, frontend -> encoder."""

    TYPE: ClassVar[str] = "features"
    job: bytes
    window: int
    attempt: int
    start: float
    end: float
    options: TranscribeOptions
    silence: float
    """Value of every log-mel frame behind the last one of `mel`: what silence gives in this window."""
    mel: Float32Array
    """(n_mels, n_frames) float32, n_frames <= 3000: only the frames that hold audio."""
    speech: tuple[Span, ...] = _since(1, ())
    """Where in the window somebody speaks."""
    memory: str = _since(2, "")
    """As in Segment, for a decoder that has not seen the windows before this one."""
    full_context: bool = _since(3, False)
    """This window is wanted with every encoder position: by its options, or because a sample was too little."""
    more: bool = _since(3, False)
    """The next window of the job is ready and follows: a decoder may wait for it, to decode both side by side."""
    live: bool = _since(3, False)
    """Its audio comes when it comes, and nobody will have time for a Redo: a decoder does with the window as it is."""


@record
class HiddenStates(Message):
    """Encoder output of one window, encoder -> decoder."""

    TYPE: ClassVar[str] = "hidden_states"
    job: bytes
    window: int
    attempt: int
    start: float
    end: float
    options: TranscribeOptions
    encoder_s: float
    """Seconds the encoder session ran."""
    states: Float32Array
    """(C, n_audio_state) float32."""
    speech: tuple[Span, ...] = _since(1, ())
    """Where in the window somebody speaks."""
    memory: str = _since(2, "")
    """As in Features."""
    kept: int = _since(3, 0)
    """How many of the window's positions come first, one by one; the others are a sample of the rest. 0: all."""
    more: bool = _since(3, False)
    """As in Features."""
    live: bool = _since(3, False)
    """As in Features."""


@record
class Redo(Message):
    """The decoder asks for a window with every encoder position: with a sample of its silence no good text came of it.

    All windows of the job that are not committed are done again, as another attempt.
    """

    TYPE: ClassVar[str] = "redo"
    job: bytes
    window: int
    attempt: int


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
    temperature: float = _since(1, 0.0)
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
    cues: tuple[Cue, ...] = _since(1, ())
    """The timed pieces of the text."""
    speech: tuple[Span, ...] = _since(1, ())
    """Where in the window somebody speaks."""
    language_probabilities: dict[str, float] = _since(1, default_factory=dict)
    """The most probable languages of what was heard so far, as code -> probability."""
    temperature: float = _since(1, 0.0)
    """At which the text was sampled: above 0 when cooler tries were not good enough."""
    avg_logprob: float = _since(1, 0.0)
    """Mean log-probability of the sampled tokens."""
    compression_ratio: float = _since(1, 0.0)
    """Bytes of the text over its compressed bytes: high for text that repeats itself."""
    no_speech_prob: float = _since(1, 0.0)
    """The model's probability that nobody speaks in the window."""
    warnings: tuple[str, ...] = _since(1, ())
    """One sentence each: prompt cut to fit, language doubtful."""
    memory: str = _since(2, "")
    """JSON: what another decoder has to know to go on behind this window. For the hub; published events have none."""
    settled: bool = _since(3, False)
    """What later windows are decoded by will not change any more: with `memory` any decoder goes on, and they need not
    be decoded in order. For the hub; published events say false."""


# --- the end of a job ------------------------------------------------------------------------------------------


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
    language_probabilities: dict[str, float] = _since(1, default_factory=dict)
    """The most probable languages, as code -> probability."""
    speech_s: float = _since(1, 0.0)
    """Seconds in which somebody speaks."""
    coverage: float = _since(1, 1.0)
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


# --- late joiners ----------------------------------------------------------------------------------------------


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
class SnapshotRequest(Message):
    """Where do things stand? Sent after Welcome. Followed by Snapshot."""

    TYPE: ClassVar[str] = "snapshot_request"


@record
class JobState:
    """One job as the ledger has it, inside a Snapshot. Apply events with a larger seq to it."""

    job: bytes
    seq: int
    """Number of the last event that this state contains."""
    name: str
    state: str
    """`queued`, `running`, `done`, `failed`, `cancelled`."""
    duration: float | None
    segments: tuple[Segment, ...]
    """Committed so far, by window."""
    partial: Partial | None
    """Hypothesis of the window that is being decoded."""
    end: Done | Failed | Cancelled | None
    """The terminal event, once there is one."""


@record
class Snapshot(Message):
    """Every active job and the last finished ones."""

    TYPE: ClassVar[str] = "snapshot"
    jobs: tuple[JobState, ...]


# --- how the pipeline is -----------------------------------------------------------------------------------------


@record
class StatusRequest(Message):
    """How is the pipeline? Followed by Status."""

    TYPE: ClassVar[str] = "status_request"


@record
class ActorStatus:
    """One process of the pipeline."""

    name: str
    pid: int
    """0 while it is not there."""
    state: str
    """`starting`, `ready`, `working`, `restarting`."""
    restarts: int
    """Since the pipeline began."""
    backlog: int
    """Windows or jobs that wait in its inbox."""
    rss_bytes: int
    """Resident memory; 0 where it cannot be told."""
    cpu_s: float
    """Processor time used; 0 where it cannot be told."""


@record
class Status(Message):
    """Answer to StatusRequest: what the pipeline does and has done. Nothing of what was said in the audio."""

    TYPE: ClassVar[str] = "status"
    package: str
    model: str
    uptime_s: float
    actors: tuple[ActorStatus, ...]
    jobs: dict[str, int]
    """State -> jobs: `queued` and `running` now, `done`, `failed`, `cancelled`, `rejected` since the beginning."""
    latency: dict[str, dict[str, float]]
    """Stage -> seconds: `encoder`, `decoder` a window with speech, `frontend` a window (the mean of a recording),
    `first_partial` a job. As `p50`, `p90`, `p99` of the last 1024, `count` and `sum` of all; what never happened is
    left out."""
    audio_s: float
    """Seconds of audio of committed windows."""
    busy_s: float
    """Seconds in which at least one job was running."""
    bad_frames: int
    subscribers: int


Event = Welcome | Started | Window | Partial | Segment | Done | Failed | Cancelled | Beat | Stopped
TerminalEvent = Done | Failed | Cancelled
