"""What the earlier windows of a recording say about the next: language, previous text, warnings already given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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
        self._warned: set[str] = set()

    def warn_once(self, about: str, text: str) -> tuple[str, ...]:
        """The warning, unless there was one about the same."""
        if about in self._warned:
            return ()
        self._warned.add(about)
        return (text,)

    def doubt(self, heard: Mapping[str, float]) -> tuple[str, ...]:
        """A warning when the windows so far sound like another language than the one the user named (B13)."""
        named, (code, probability) = self.options.language, next(iter(heard.items()), ("", 0.0))
        if named is None or code == named or probability < DOUBTFUL:
            return ()
        sounds, taken = LANGUAGES.get(code, code).capitalize(), LANGUAGES.get(named, named).capitalize()
        text = f"sounds like {sounds} ({probability:.0%}) but {taken} was asked for: use --language {code} or none"
        return self.warn_once("language", text)


def encode_prompt(tokenizer: Tokenizer, prompt: str) -> tuple[int, ...]:
    """Tokens of a user's text. It stands in the middle of a text, so it begins with a space."""
    return tuple(tokenizer.encode(f" {prompt.strip()}")) if prompt.strip() else ()
