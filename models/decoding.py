"""From the hidden states of one window to its text: language detection and greedy decoding.

Written from openai/whisper's `decoding.py` (`DecodingTask`, `detect_language`, `GreedyDecoder` at temperature 0)
and from "Robust Speech Recognition via Large-Scale Weak Supervision" (arXiv 2212.04356), section 2.3.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from susurrus.models.config import ModelConfig, SpecialTokens
from susurrus.models.errors import OptionError
from susurrus.models.languages import to_code
from susurrus.models.results import DecodedWindow, Hypothesis
from susurrus.models.rules import OnlyLanguages, Rule, prompt_tokens, rules_for
from susurrus.models.tokenizer import Tokenizer

Float32Array = NDArray[np.float32]

TASKS = ("transcribe", "translate")


class DecoderSession(Protocol):
    """What decoding needs of a text decoder; `susurrus.models.sessions.Decoder` is the real one."""

    def begin(self, hidden_states: Float32Array) -> None:
        """Take a window's hidden states, float32 (n_audio_ctx, n_audio_state); empty the KV cache."""

    def rewind(self, position: int = 0) -> None:
        """Forget the cached tokens from `position` on; the window stays."""

    def step(self, tokens: Sequence[int]) -> Float32Array:
        """Append `tokens`; return the logits after the last one, float32 (n_vocab,), valid until the next step."""


def encode_prompt(tokenizer: Tokenizer, prompt: str) -> tuple[int, ...]:
    """Tokens of a user's prompt. It stands in the middle of a text, so it begins with a space."""
    return tuple(tokenizer.encode(f" {prompt.strip()}")) if prompt.strip() else ()


@dataclass(frozen=True, slots=True)
class WindowOptions:
    """How one window is to be decoded."""

    language: str | None = None
    """Code such as `en`; None detects it."""
    task: str = "transcribe"
    prompt: tuple[int, ...] = ()
    """Tokens of text that came before; cut from the left when there are too many."""


class WindowDecoder:
    """Greedy decoding, one window after another.

    Not thread-safe: one thread calls it, because the session's KV cache is state.
    """

    def __init__(self, session: DecoderSession, tokenizer: Tokenizer, config: ModelConfig) -> None:
        self._session = session
        self._tokenizer = tokenizer
        self._special = tokenizer.special
        self._rules: tuple[Rule, ...] = rules_for(config, tokenizer.special)
        self._only_languages = OnlyLanguages(tokenizer.special)
        self._n_text_ctx = config.dimensions.n_text_ctx
        self._max_tokens = self._n_text_ctx // 2  # openai/whisper: sample_len
        self._logits = np.empty(config.dimensions.n_vocab, dtype=np.float32)  # scratch, reused by every step

    def decode(self, hidden_states: Float32Array, options: WindowOptions) -> Generator[Hypothesis, None, DecodedWindow]:
        """Decode one window; yield the hypothesis after every token that shows, return the finished window.

        A caller that stops iterating cancels: nothing runs between two hypotheses.

        Args:
            hidden_states: float32 (n_audio_ctx, n_audio_state).
            options: language, task and previous text.

        Raises:
            OptionError: the task or language does not exist for this model.
        """
        check_task(options.task, multilingual=self._special.multilingual)
        self._session.begin(hidden_states)
        language, probability = options.language, 1.0
        if language is None:
            language, probability = self.detect_language()
        prompt = prompt_tokens(self._special, language, options.task, options.prompt, self._n_text_ctx)
        hypothesis, truncated = yield from self._greedy(prompt.tokens)
        return DecodedWindow(
            text=hypothesis.text,
            tokens=hypothesis.tokens,
            language=language,
            language_probability=probability,
            truncated=truncated,
        )

    def detect_language(self) -> tuple[str, float]:
        """Most probable language of the window that the session holds, and its probability among languages.

        An English-only model answers English without looking.
        """
        if not self._special.multilingual:
            return "en", 1.0
        self._session.rewind()
        np.copyto(self._logits, self._session.step([self._special.sot]))
        self._only_languages(self._logits, ())
        self._session.rewind()
        best = int(self._logits.argmax())
        probability = 1.0 / float(np.exp(self._logits - self._logits[best]).sum())
        code = next(code for code, token in self._special.languages.items() if token == best)
        return code, probability

    def _greedy(self, prompt: Sequence[int]) -> Generator[Hypothesis, None, tuple[Hypothesis, bool]]:
        """Take the most probable token until the end token or the token limit comes (B09: that is no error)."""
        text = self._tokenizer.incremental()
        tokens: list[int] = []
        step: Sequence[int] = prompt
        limit = min(self._max_tokens, self._n_text_ctx - len(prompt))
        while len(tokens) < limit:
            np.copyto(self._logits, self._session.step(step))
            for rule in self._rules:
                rule(self._logits, tokens)
            token = int(self._logits.argmax())
            if token == self._special.eot:
                break
            tokens.append(token)
            settled = len(text.text)
            if text.push(token):
                yield Hypothesis(text.text, settled, tuple(tokens))
            step = (token,)
        whole = Hypothesis(text.text, len(text.text), tuple(tokens))
        return whole, len(tokens) >= limit


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
