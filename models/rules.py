"""Decoding rules: what may not be sampled, as small objects in a visible order; and the decoder's prompt.

Written from `LogitFilter`, `DecodingTask` and `detect_language` of whisper/decoding.py (openai-whisper).
There, greedy decoding without timestamps forbids a blank first, symbols of sounds and speakers, and six
special tokens. It does not forbid timestamps, language tokens or `<|notimestamps|>`: the decoder may sample
them and the tokenizer leaves them out of the text. So it is here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from susurrus.models.config import ModelConfig, SpecialTokens

Float32Array = NDArray[np.float32]


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


class OnlyLanguages:
    """Nothing but a language: what is asked right after `<|startoftranscript|>` to detect it."""

    def __init__(self, special: SpecialTokens) -> None:
        self.ids = _index(special.languages.values())
        """int (n,), sorted: the language tokens."""

    def __call__(self, logits: Float32Array, tokens: Sequence[int]) -> None:  # noqa: ARG002  (the rule's signature)
        """See `Rule`."""
        languages = logits[self.ids]
        logits.fill(-np.inf)
        logits[self.ids] = languages


def rules_for(config: ModelConfig, special: SpecialTokens) -> tuple[Rule, ...]:
    """The rules of greedy decoding without timestamps, in the order they apply.

    The model's files list the tokens; the end and the special tokens are added here as openai-whisper does,
    because a fine-tuned model may ship an empty list.
    """
    return (
        SuppressBlank((*config.begin_suppress_tokens, special.eot)),
        SuppressTokens((*config.suppress_tokens, *_never_sampled(special))),
    )


class Prompt(NamedTuple):
    """What the decoder is given before it samples."""

    tokens: list[int]
    """Previous text, if any, then the tokens that start a transcript."""
    dropped: int
    """Tokens of the previous text that did not fit, from its start."""


def prompt_tokens(special: SpecialTokens, language: str, task: str, previous: Sequence[int], n_text_ctx: int) -> Prompt:
    """Builds the prompt of a window without timestamps (`DecodingTask._get_initial_tokens`).

    The previous text keeps its end and takes at most half the positions, `<|startofprev|>` included.

    Args:
        special: The model's special tokens.
        language: Code that the model has; an English-only model takes neither language nor task.
        task: `transcribe` or `translate`.
        previous: Tokens of text that came before; may be empty.
        n_text_ctx: Positions of the decoder.
    """
    start = [special.sot]
    if special.multilingual:
        start += [
            special.languages[language],
            special.translate if task == "translate" else special.transcribe,
        ]
    start.append(special.no_timestamps)
    dropped = max(0, len(previous) - (n_text_ctx // 2 - 1))
    if not previous:
        return Prompt(start, dropped)
    return Prompt([special.sot_prev, *previous[dropped:], *start], dropped)


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


def _index(ids: Iterable[int]) -> NDArray[np.intp]:
    return np.array(sorted(set(ids)), dtype=np.intp)
