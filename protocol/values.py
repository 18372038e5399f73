"""What messages are made of: their base, and the values that several of them hold."""

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


def since(minor: int, default: Any = MISSING, **factory: Any) -> Any:
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
    hotwords: str = since(1, "")
    """Words to expect, given before the prompt."""
    multilingual: bool = since(1, False)
    """Detect the language of every window anew."""
    timestamps: bool = since(1, True)
    """Let the model say when each cue starts and ends; without, a window is one cue."""
    word_timestamps: bool = since(1, False)
    """Find the time of every word."""
    condition_on_previous_text: bool = since(1, False)
    """Give the decoder the end of the text of the window before."""
    beam_size: int = since(1, 1)
    """Hypotheses kept side by side at temperature 0."""
    best_of: int = since(1, 5)
    """Samples drawn at every temperature above 0, of which the most probable is taken."""
    temperatures: tuple[float, ...] = since(1, (0.0, 0.2, 0.4, 0.6, 0.8, 1.0))
    """Tried in order until the text is good enough."""
    compression_ratio_threshold: float | None = since(1, 2.4)
    """Text that compresses better is decoded again; None never."""
    logprob_threshold: float | None = since(1, -1.0)
    """Text with a lower mean log-probability is decoded again; None never."""
    no_speech_threshold: float | None = since(1, 0.6)
    """A window at least so probably without speech, and below `logprob_threshold`, has no text; None asks nothing."""
    no_repeat_ngram_size: int = since(1, 0)
    """No sequence of so many tokens comes twice in a window; 0 allows it."""
    vad: bool = since(1, True)
    """Send only windows in which a voice activity detector hears speech to the encoder."""
    full_context: bool = since(3, False)
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
