"""Decoding rules: what may not be sampled, as small objects in a visible order; and the decoder's prompt.

Written from `LogitFilter`, `ApplyTimestampRules` and `DecodingTask` of whisper/decoding.py
(openai-whisper). docs/decoding.md says what each rule is for.

Rules hold no state: one set serves all hypotheses of a window, each with its own tokens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from susurrus.models.config import ModelConfig
    from susurrus.models.special_tokens import SpecialTokens

Float32Array = NDArray[np.float32]

MAX_INITIAL_TIMESTAMP = 1.0
"""Seconds from the start of the window: latest time of the first timestamp (openai-whisper: max_initial_timestamp)."""


class Rule(Protocol):
    """Forbids tokens by setting their logits to minus infinity."""

    def __call__(self, logits: Float32Array, tokens: Sequence[int]) -> None:
        """Applies the rule in place.

        Args:
            logits: float32 (n_vocab,), changed.
            tokens: What was sampled so far in this window, the prompt left out.
        """


class SuppressTokens:
    """Tokens that are never sampled."""

    def __init__(self, ids: Iterable[int]) -> None:
        self.ids = _index(ids)
        """int (n,), sorted: the tokens in question."""

    def __call__(self, logits: Float32Array, tokens: Sequence[int]) -> None:  # noqa: ARG002  (the rule's signature)
        """See `Rule`."""
        logits[self.ids] = -np.inf


class SuppressBlank:
    """Tokens that are not sampled first: a lone space and the end."""

    def __init__(self, ids: Iterable[int]) -> None:
        self.ids = _index(ids)
        """int (n,), sorted: the tokens in question."""

    def __call__(self, logits: Float32Array, tokens: Sequence[int]) -> None:
        """See `Rule`."""
        if not tokens:
            logits[self.ids] = -np.inf


class NoRepeatNgram:
    """No sequence of `size` text tokens comes twice; timestamps between them do not count.

    `NoRepeatNGramLogitsProcessor` of transformers, which faster-whisper has under the same option. Both count
    timestamps in, which lets a loop pass that says a few words per cue.
    """

    def __init__(self, special: SpecialTokens, size: int) -> None:
        self.size = size
        """Tokens of a sequence, at least 1."""
        self._eot = special.eot

    def __call__(self, logits: Float32Array, tokens: Sequence[int]) -> None:
        """See `Rule`."""
        text = [token for token in tokens if token < self._eot]
        before = self.size - 1
        latest = text[len(text) - before :]
        starts = range(len(text) - before)
        logits[[text[i + before] for i in starts if text[i : i + before] == latest]] = -np.inf


class TimestampPairs:
    """A timestamp ends a piece of text and another begins the next one, except that the end may follow the first.

    After the first token, and after a pair, comes text. After text and one timestamp comes no text.
    """

    def __init__(self, special: SpecialTokens) -> None:
        self._eot = special.eot
        self._begin = special.timestamp_begin

    def __call__(self, logits: Float32Array, tokens: Sequence[int]) -> None:
        """See `Rule`."""
        if _opens(tokens, self._begin):
            logits[self._begin :] = -np.inf
        elif _closes(tokens, self._begin):
            logits[: self._eot] = -np.inf


class TimestampOrder:
    """Time does not run backwards, and a piece of text ends later than it begins.

    Args:
        special: The model's special tokens.
        last: Index of the latest timestamp that may be sampled; None lets all pass, as openai-whisper does.
    """

    def __init__(self, special: SpecialTokens, last: int | None = None) -> None:
        self.last = last
        self._begin = special.timestamp_begin

    def __call__(self, logits: Float32Array, tokens: Sequence[int]) -> None:
        """See `Rule`."""
        latest = next((token for token in reversed(tokens) if token >= self._begin), None)
        if latest is not None:
            # Only the timestamp that begins the next piece may equal the one that ended this.
            logits[self._begin : latest + (not _closes(tokens, self._begin))] = -np.inf
        if self.last is not None:
            logits[self._begin + self.last + 1 :] = -np.inf


class FirstTimestamp:
    """The first token is a timestamp, and an early one.

    Args:
        special: The model's special tokens.
        last: Index of the latest timestamp that may be the first.
    """

    def __init__(self, special: SpecialTokens, last: int) -> None:
        self.last = last
        self._begin = special.timestamp_begin

    def __call__(self, logits: Float32Array, tokens: Sequence[int]) -> None:
        """See `Rule`."""
        if not tokens:
            logits[: self._begin] = -np.inf
            logits[self._begin + self.last + 1 :] = -np.inf


class TimestampMass:
    """When all timestamps together are more probable than any other token, it is a timestamp.

    Looks at what the rules before it left: it is the last.
    """

    def __init__(self, special: SpecialTokens) -> None:
        self._begin = special.timestamp_begin

    def __call__(self, logits: Float32Array, tokens: Sequence[int]) -> None:  # noqa: ARG002  (the rule's signature)
        """See `Rule`."""
        others, timestamps = logits[: self._begin], logits[self._begin :]
        most = others.max()
        # The sum of exp(t) over exp(most): both probabilities have the same denominator.
        if timestamps.max() > most or np.exp(timestamps - most).sum() > 1:
            others.fill(-np.inf)


def rules_for(
    config: ModelConfig,
    special: SpecialTokens,
    *,
    timestamps: bool,
    no_repeat_ngram_size: int = 0,
    last_timestamp: float | None = None,
) -> tuple[Rule, ...]:
    """The rules of a window, in the order they apply: openai-whisper's.

    The model's files list tokens that are no speech; the end and the special tokens are added here as openai-whisper
    does, because a fine-tuned model may ship an empty list. Language tokens are allowed, as there, and so are
    timestamps when none are wanted: the tokenizer leaves both out of the text.

    Args:
        config: The model's sizes and lists.
        special: Its special tokens.
        timestamps: Whether the decoder is to say when.
        no_repeat_ngram_size: See `NoRepeatNgram`; 0 lets everything repeat.
        last_timestamp: Seconds from the start of the window; later timestamps are not sampled.
    """
    never = (*config.suppress_tokens, *_never_sampled(special))
    rules: list[Rule] = [
        SuppressBlank((*config.begin_suppress_tokens, special.eot)),
        SuppressTokens((*never, special.no_timestamps) if timestamps else never),
    ]
    if no_repeat_ngram_size:
        rules.append(NoRepeatNgram(special, no_repeat_ngram_size))
    if timestamps:
        positions_per_second = config.dimensions.n_audio_ctx / config.audio.chunk_length
        last = None if last_timestamp is None else max(0, round(last_timestamp * positions_per_second))
        rules += [
            TimestampPairs(special),
            TimestampOrder(special, last),
            FirstTimestamp(special, round(MAX_INITIAL_TIMESTAMP * positions_per_second)),
            TimestampMass(special),
        ]
    return tuple(rules)


class Prompt(NamedTuple):
    """What the decoder is given before it samples."""

    tokens: list[int]
    """Hotwords and previous text, if any, then the tokens that start a transcript."""
    previous_dropped: int
    """Tokens of the previous text that did not fit, from its start."""
    hotwords_dropped: int
    """Tokens of the hotwords that did not fit, from their end."""


def prompt_tokens(
    special: SpecialTokens,
    language: str,
    task: str,
    previous: Sequence[int],
    n_text_ctx: int,
    *,
    timestamps: bool,
    hotwords: Sequence[int] = (),
) -> Prompt:
    """Builds the prompt of a window (`DecodingTask._get_initial_tokens`; hotwords: `get_prompt` of faster-whisper).

    Hotwords and previous text together take at most half the positions, `<|startofprev|>` included, and hotwords
    at most half of that. The previous text keeps its end, which the window goes on from; the hotwords keep their
    start, because a list begins with what matters most.

    Args:
        special: The model's special tokens.
        language: Code that the model has; an English-only model takes neither language nor task.
        task: `transcribe` or `translate`.
        previous: Tokens of text that came before; may be empty.
        n_text_ctx: Positions of the decoder.
        timestamps: Whether the decoder is to say when.
        hotwords: Tokens of words to expect; may be empty.
    """
    start = [special.sot]
    if special.multilingual:
        start += [
            special.languages[language],
            special.translate if task == "translate" else special.transcribe,
        ]
    if not timestamps:
        start.append(special.no_timestamps)
    room = n_text_ctx // 2 - 1
    expected = hotwords[: room // 2]
    previous_dropped = max(0, len(previous) - (room - len(expected)))
    context = [*expected, *previous[previous_dropped:]]
    return Prompt(
        [special.sot_prev, *context, *start] if context else start,
        previous_dropped,
        len(hotwords) - len(expected),
    )


def _never_sampled(special: SpecialTokens) -> tuple[int, ...]:
    """`DecodingTask._get_suppress_tokens`, its last lines."""
    return (
        special.transcribe,
        special.translate,
        special.sot,
        special.sot_prev,
        special.sot_lm,
        special.no_speech,
    )


def _opens(tokens: Sequence[int], begin: int) -> bool:
    """Whether the latest token is a timestamp that begins a piece of text: the first token, or a pair's second."""
    return bool(tokens) and tokens[-1] >= begin and (len(tokens) == 1 or tokens[-2] >= begin)


def _closes(tokens: Sequence[int], begin: int) -> bool:
    """Whether the latest token is a timestamp that ends a piece of text."""
    return len(tokens) > 1 and tokens[-1] >= begin and tokens[-2] < begin


def _index(ids: Iterable[int]) -> NDArray[np.intp]:
    return np.array(sorted(set(ids)), dtype=np.intp)
