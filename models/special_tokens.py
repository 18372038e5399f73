"""The tokens that are not text, found by name in a model's vocabulary.

No id is written down in this code, because English-only models and large-v3 number them differently.

Reference: `is_multilingual` in whisper/model.py (openai-whisper).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from susurrus.models.errors import COPY, REPAIR, ModelError
from susurrus.models.languages import SAME_CODE
from susurrus.models.vocabulary import TIMESTAMPS, VOCABULARY_FILE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MULTILINGUAL_VOCABULARY = 51865
"""Smallest vocabulary of a multilingual model. English-only models have GPT-2's 50,256 text tokens,
multilingual ones one more, and both add the same special tokens, languages included: so a `<|de|>` says
nothing, and openai-whisper too decides by the size (whisper/model.py, `is_multilingual`)."""


@dataclass(frozen=True, slots=True)
class SpecialTokens:
    """Ids of the tokens that are not text, found by name in the model's vocabulary."""

    eot: int
    """`<|endoftext|>`: the decoder is done; every id below is text."""
    sot: int
    """`<|startoftranscript|>`."""
    translate: int
    """`<|translate|>`: into English."""
    transcribe: int
    """`<|transcribe|>`: in the language spoken."""
    sot_lm: int
    """`<|startoflm|>`, never sent: after it the decoder says a few words, then nothing."""
    sot_prev: int
    """`<|startofprev|>`: the prompt follows."""
    no_speech: int
    """`<|nospeech|>`, spelt `<|nocaptions|>` in some files: never sampled, only its probability counts."""
    no_timestamps: int
    """`<|notimestamps|>`."""
    timestamp_begin: int
    """`<|0.00|>`; the other timestamps follow it in steps of 0.02 s."""
    languages: Mapping[str, int]
    """Language code -> id. English-only models list languages too, without having learnt them."""
    multilingual: bool
    """Whether the model takes a language and a task."""

    @classmethod
    def from_vocabulary(cls, vocabulary: Sequence[str], *, source: str = VOCABULARY_FILE) -> Self:
        """Finds the special tokens by name.

        Args:
            vocabulary: Token i at index i, in GPT-2's byte-level spelling.
            source: The file to name in errors.

        Raises:
            ModelError: A special token is missing or the timestamps are not one run of 0.02 s steps.
        """
        try:
            eot = vocabulary.index("<|endoftext|>")  # the other special tokens come after it in every Whisper
            ids = {token: eot + offset for offset, token in enumerate(vocabulary[eot:])}
            sot, translate, begin = ids["<|startoftranscript|>"], ids["<|translate|>"], ids[TIMESTAMPS[0]]
            no_speech = ids["<|nospeech|>"] if "<|nospeech|>" in ids else ids["<|nocaptions|>"]
            special = cls(
                eot=eot,
                sot=sot,
                translate=translate,
                transcribe=ids["<|transcribe|>"],
                sot_lm=ids["<|startoflm|>"],
                sot_prev=ids["<|startofprev|>"],
                no_speech=no_speech,
                no_timestamps=ids["<|notimestamps|>"],
                timestamp_begin=begin,
                languages=_languages(vocabulary, sot + 1, translate),
                multilingual=len(vocabulary) >= MULTILINGUAL_VOCABULARY,
            )
        except (KeyError, ValueError) as error:
            raise ModelError(f"{source}: not a Whisper vocabulary ({error}); {_fix(source)}") from error
        if tuple(vocabulary[begin : begin + len(TIMESTAMPS)]) != TIMESTAMPS:
            raise ModelError(
                f"{source}: timestamps are not one run from {TIMESTAMPS[0]} to {TIMESTAMPS[-1]}; {_fix(source)}"
            )
        return special


def _languages(vocabulary: Sequence[str], start: int, stop: int) -> Mapping[str, int]:
    """Language code -> id, from the names `<|xx|>` of tokens `start` to `stop`."""
    codes = ((token, vocabulary[token].removeprefix("<|").removesuffix("|>")) for token in range(start, stop))
    return {SAME_CODE.get(code, code): token for token, code in codes}


def _fix(source: str) -> str:
    """What to do about a vocabulary: ours is written by the builder."""
    return REPAIR if source.endswith(VOCABULARY_FILE) else COPY
