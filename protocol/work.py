"""The work of a job: what the hub and the actors say about its windows, and the arrays from actor to actor."""

from __future__ import annotations

from typing import ClassVar

from susurrus.protocol.records import record
from susurrus.protocol.requests import Submit
from susurrus.protocol.values import Float32Array, Message, Span, TranscribeOptions, since


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
    settled: bool = since(3, False)
    """As in Segment, of any window before."""
    full: tuple[int, ...] = since(3, ())
    """Windows that are wanted with every encoder position: a decoder has asked for it."""


@record
class Committed(Message):
    """The hub tells the frontend that it will not ask for the first `windows` windows of a job again."""

    TYPE: ClassVar[str] = "committed"
    job: bytes
    windows: int
    memory: str = since(3, "")
    """As in Segment, of the last of them, once it is settled; empty before."""
    settled: bool = since(3, False)
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
    speech: tuple[Span, ...] = since(1, ())
    """Where in the window somebody speaks."""
    memory: str = since(2, "")
    """As in Segment, for a decoder that has not seen the windows before this one."""
    full_context: bool = since(3, False)
    """This window is wanted with every encoder position: by its options, or because a sample was too little."""
    more: bool = since(3, False)
    """The next window of the job is ready and follows: a decoder may wait for it, to decode both side by side."""
    live: bool = since(3, False)
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
    speech: tuple[Span, ...] = since(1, ())
    """Where in the window somebody speaks."""
    memory: str = since(2, "")
    """As in Features."""
    kept: int = since(3, 0)
    """How many of the window's positions come first, one by one; the others are a sample of the rest. 0: all."""
    more: bool = since(3, False)
    """As in Features."""
    live: bool = since(3, False)
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
