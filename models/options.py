"""What a user may ask of decoding, with openai-whisper's names and defaults where the thing is the same."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TypedDict

from susurrus.models.errors import OptionError
from susurrus.models.languages import to_code
from susurrus.models.special_tokens import SpecialTokens

TASKS = ("transcribe", "translate")

LADDER = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
"""Temperatures tried one after another until the text is good enough (whisper/transcribe.py)."""

MAX_CANDIDATES = 16
"""Most beams, and most samples per temperature: each has a KV cache of its own."""

MAX_TEMPERATURE = 2.0


@dataclass(frozen=True, slots=True)
class DecodingOptions:
    """How a recording is to be decoded."""

    language: str | None = None
    """Code such as `en`; None detects it."""
    task: str = "transcribe"
    prompt: str = ""
    """Text given to the decoder before every window, as if it had just been said (openai-whisper: initial_prompt)."""
    hotwords: str = ""
    """Words to expect, given before the prompt."""
    multilingual: bool = False
    """Detect the language of every window anew: for recordings in several languages."""
    timestamps: bool = True
    """Let the model say when each cue starts and ends; without, a window is one cue."""
    word_timestamps: bool = False
    """Find the time of every word from the cross-attention."""
    condition_on_previous_text: bool = False
    """Give the decoder the end of the text of the window before."""
    beam_size: int = 1
    """Hypotheses kept side by side at temperature 0."""
    best_of: int = 5
    """Samples drawn at every temperature above 0, of which the most probable is taken."""
    temperatures: tuple[float, ...] = LADDER
    """Tried in order; a single one turns the fallback off."""
    compression_ratio_threshold: float | None = 2.4
    """Text that compresses better repeats itself and is decoded again; None never does."""
    logprob_threshold: float | None = -1.0
    """Text with a lower mean log-probability is decoded again; None never does."""
    no_speech_threshold: float | None = 0.6
    """A window at least so probably without speech, and below `logprob_threshold`, has no text; None asks nothing."""
    no_repeat_ngram_size: int = 0
    """No sequence of so many tokens comes twice in a window; 0 allows it."""
    vad: bool = True
    """Decode only windows in which a voice activity detector hears speech."""
    full_context: bool = False
    """Compute all 30 s of every window in the encoder, not a sample of the silence behind its audio."""

    def checked(self, special: SpecialTokens) -> DecodingOptions:
        """The same with the language as a code, for a model with these special tokens.

        Raises:
            OptionError: a value does not exist, or not for this model.
        """
        check_task(self.task, multilingual=special.multilingual)
        for name, least, most in (("beam_size", 1, MAX_CANDIDATES), ("best_of", 1, MAX_CANDIDATES)):
            value = getattr(self, name)
            if not least <= value <= most:
                raise OptionError(f"{_flag(name)} {value}: give a number from {least} to {most}")
        if self.no_repeat_ngram_size < 0:
            raise OptionError(f"--no-repeat-ngram-size {self.no_repeat_ngram_size}: give a number of tokens, or 0")
        if not self.temperatures or not all(0 <= t <= MAX_TEMPERATURE for t in self.temperatures):
            raise OptionError(f"--temperature: give temperatures from 0 to {MAX_TEMPERATURE:g}, at least one")
        for name in ("compression_ratio_threshold", "logprob_threshold", "no_speech_threshold"):
            value = getattr(self, name)
            if value is not None and not math.isfinite(value):
                raise OptionError(f"{_flag(name)} {value}: give a number")
        return replace(self, language=check_language(self.language, special))


class OptionFields(TypedDict, total=False):
    """The fields of DecodingOptions as keyword arguments, for type checkers and editors."""

    language: str | None
    task: str
    prompt: str
    hotwords: str
    multilingual: bool
    timestamps: bool
    word_timestamps: bool
    condition_on_previous_text: bool
    beam_size: int
    best_of: int
    temperatures: tuple[float, ...]
    compression_ratio_threshold: float | None
    logprob_threshold: float | None
    no_speech_threshold: float | None
    no_repeat_ngram_size: int
    vad: bool
    full_context: bool


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def check_task(task: str, *, multilingual: bool) -> None:
    """Refuse a task the model does not have.

    Raises:
        OptionError: unknown task, or translation by an English-only model.
    """
    if task not in TASKS:
        raise OptionError(f"task {task!r} does not exist: use {' or '.join(TASKS)}")
    if task == "translate" and not multilingual:
        raise OptionError("this model knows only English and cannot translate: use a multilingual one such as base")


def check_language(language: str | None, special: SpecialTokens) -> str | None:
    """Whisper's code for a language name or code; None stays None, which lets the decoder detect it.

    Raises:
        OptionError: the language does not exist, or this model does not know it.
    """
    if language is None:
        return None
    code = to_code(language)
    if not special.multilingual and code != "en":
        raise OptionError(f"language {language!r}: this model knows only English; use a multilingual one such as base")
    if special.multilingual and code not in special.languages:
        raise OptionError(f"language {language!r} is not among the {len(special.languages)} of this model")
    return code
