"""What the earlier windows of a recording say about the next: language, previous text, warnings already given."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from susurrus.models.languages import LANGUAGES
from susurrus.models.options import DecodingOptions
from susurrus.models.tokenizer import Tokenizer

SURE = 0.5
"""A language this probable is taken (faster-whisper's default); below, the next windows are heard as well."""
MAX_VOTES = 4
"""Windows after which the most probable language is taken though no one is sure."""
DOUBTFUL = 0.9
"""A language this probable, and not the one the user named, is worth a warning."""
NAMED = 5
"""How many languages a result names with their probabilities."""


class LanguageVotes:
    """Finds the language of a recording from its first windows with speech.

    Args:
        codes: the model's languages.
    """

    def __init__(self, codes: Sequence[str]) -> None:
        self._codes = codes
        self._sum = np.zeros(len(codes))
        self._votes = 0

    @property
    def any(self) -> bool:
        """Whether there was a vote."""
        return self._votes > 0

    @property
    def is_decided(self) -> bool:
        """Whether later windows are not asked any more."""
        return self._votes >= MAX_VOTES or (self._votes > 0 and float(self._mean.max()) >= SURE)

    def add(self, probabilities: NDArray[np.float64]) -> None:
        """Take in what one window sounds like: probability of each language, (n_languages,)."""
        self._sum += probabilities
        self._votes += 1

    @property
    def state(self) -> tuple[int, list[float]]:
        """Number of votes, and the sum of the probabilities of each language."""
        return self._votes, self._sum.tolist()

    def restore(self, votes: int, total: Sequence[float]) -> None:
        """Take over the `state` of another one.

        Raises:
            ValueError: it is of a model with other languages, or no such state.
        """
        restored = np.asarray(total, np.float64)
        if restored.shape != self._sum.shape or not np.isfinite(restored).all() or votes < 0:
            raise ValueError(f"{len(total)} languages instead of {len(self._sum)}")
        self._votes, self._sum = votes, restored

    @property
    def probabilities(self) -> dict[str, float]:
        """The most probable languages so far, best first."""
        return most_probable(self._codes, self._mean)

    @property
    def _mean(self) -> NDArray[np.float64]:
        return self._sum / max(1, self._votes)


def most_probable(codes: Sequence[str], probabilities: NDArray[np.float64]) -> dict[str, float]:
    """The first few of (n_languages,) probabilities, best first."""
    best = np.argsort(-probabilities, kind="stable")[:NAMED]
    return {codes[index]: float(probabilities[index]) for index in best}


class Recording:
    """Belongs to one recording and one decoder, window after window."""

    def __init__(self, options: DecodingOptions, tokenizer: Tokenizer) -> None:
        self.options = options
        self.prompt = encode_prompt(tokenizer, options.prompt)
        self.hotwords = encode_prompt(tokenizer, options.hotwords)
        self.previous: tuple[int, ...] = ()
        """Text of the window before, when it is to be given to the decoder."""
        self.votes = LanguageVotes(list(tokenizer.special.languages))
        self._multilingual = tokenizer.special.multilingual
        self._warned: set[str] = set()

    @property
    def is_settled(self) -> bool:
        """Whether nothing that the next windows are decoded by will change: they may come in any order."""
        if self.options.condition_on_previous_text or not (self.votes.is_decided or not self._multilingual):
            return False
        may_warn = self._multilingual and self.options.language is not None and "language" not in self._warned
        return not may_warn or not (self.options.multilingual or self._is_doubtful(self.votes.probabilities))

    @property
    def memory(self) -> str:
        """JSON: what another decoder has to know to go on behind this window with the same text."""
        votes, total = self.votes.state
        facts = {"votes": votes, "languages": total, "previous": self.previous, "warned": sorted(self._warned)}
        return json.dumps(facts)

    def recall(self, memory: str) -> None:
        """Take over the `memory` of another decoder's recording with the same options.

        Raises:
            ValueError: it is none.
        """
        try:
            facts: Any = json.loads(memory)
            self.votes.restore(int(facts["votes"]), [float(number) for number in facts["languages"]])
            self.previous = tuple(int(token) for token in facts["previous"])
            self._warned = {str(about) for about in facts["warned"]}
        except (KeyError, TypeError, RecursionError) as error:
            raise ValueError(f"not the memory of a recording ({type(error).__name__})") from None

    def warn_once(self, about: str, text: str) -> tuple[str, ...]:
        """The warning, unless there was one about the same."""
        if about in self._warned:
            return ()
        self._warned.add(about)
        return (text,)

    def doubt(self, heard: Mapping[str, float]) -> tuple[str, ...]:
        """A warning when the windows so far sound like another language than the one the user named (B13)."""
        if not self._is_doubtful(heard):
            return ()
        named, (code, probability) = self.options.language or "", next(iter(heard.items()))
        sounds, taken = LANGUAGES.get(code, code).capitalize(), LANGUAGES.get(named, named).capitalize()
        text = f"sounds like {sounds} ({probability:.0%}) but {taken} was asked for: use --language {code} or none"
        return self.warn_once("language", text)

    def _is_doubtful(self, heard: Mapping[str, float]) -> bool:
        """Whether a language was named, and this is very likely another."""
        named, (code, probability) = self.options.language, next(iter(heard.items()), ("", 0.0))
        return named is not None and code != named and probability >= DOUBTFUL


def encode_prompt(tokenizer: Tokenizer, prompt: str) -> tuple[int, ...]:
    """Tokens of a user's text. It stands in the middle of a text, so it begins with a space."""
    return tuple(tokenizer.encode(f" {prompt.strip()}")) if prompt.strip() else ()
