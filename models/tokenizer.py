"""Text to tokens and back: GPT-2's byte-level byte pair encoding on the model's own vocabulary.

A vocabulary spells each of the 256 bytes as one printable character, so that a token of any bytes is a line
of text. Decoding needs nothing but that spelling. Encoding follows tiktoken, openai-whisper's encoder: the
rank of a merge is the id of the token it makes. The list of merges in tokenizer.json is not read: it says
nothing more, and the one that comes with CTranslate2's base lacks its first line, "Ġ t", so that " the"
falls apart.

References: "Language Models are Unsupervised Multitask Learners" (GPT-2), section 2.2, and its encoder.py;
whisper/tokenizer.py (openai-whisper).
"""

from __future__ import annotations

import codecs
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Self

from susurrus.models.config import ModelConfig
from susurrus.models.errors import ModelError
from susurrus.models.special_tokens import SpecialTokens
from susurrus.models.vocabulary import VOCABULARY_FILE, load_vocabulary

if TYPE_CHECKING:
    import re
    from collections.abc import Iterable, Sequence
    from pathlib import Path


def _spell_bytes() -> str:
    """GPT-2's alphabet: character number b spells byte b.

    Printable Latin-1 characters spell themselves; the 68 others (controls, spaces, soft hyphen) take the
    characters from U+0100 on, in order.
    """
    printable = {
        *range(ord("!"), ord("~") + 1),
        *range(ord("¡"), ord("¬") + 1),
        *range(ord("®"), ord("ÿ") + 1),
    }
    others = iter(range(256, 512))
    return "".join(chr(byte if byte in printable else next(others)) for byte in range(256))


_ALPHABET = _spell_bytes()
_TO_LATIN_1 = {ord(character): byte for byte, character in enumerate(_ALPHABET)}
_FROM_LATIN_1 = {byte: ord(character) for byte, character in enumerate(_ALPHABET)}


class Tokenizer:
    """The tokens of one model. Safe to share between threads: nothing changes after construction."""

    def __init__(self, vocabulary: Sequence[str], special: SpecialTokens) -> None:
        """Takes what was read from a model's files.

        Args:
            vocabulary: Token i at index i, in byte-level spelling.
            special: Ids of the tokens that are not text.
        """
        self._vocabulary = vocabulary
        self.special = special

    @classmethod
    def from_directory(cls, directory: Path) -> Self:
        """Reads `model.json` and `vocabulary.txt` of a model directory, or what an Optimum export has instead.

        Raises:
            ModelError: A file is missing or damaged, or the two do not belong together.
        """
        vocabulary, path = load_vocabulary(directory, ModelConfig.from_directory(directory).dimensions.n_vocab)
        return cls(vocabulary, SpecialTokens.from_vocabulary(vocabulary, source=str(path)))

    def token_bytes(self, token: int) -> bytes:
        """The UTF-8 bytes of a token, often a part of a character; none for special tokens and timestamps.

        Raises:
            ModelError: The vocabulary's spelling of the token is not byte-level.
        """
        if token >= self.special.eot:
            return b""
        try:
            return self._vocabulary[token].translate(_TO_LATIN_1).encode("latin-1")
        except UnicodeEncodeError as error:
            raise ModelError(
                f"{VOCABULARY_FILE}: token {token} is not byte-level; "
                "provision the model again: python -m susurrus.models.provision"
            ) from error

    def spelling(self, token: int) -> str:
        """How the vocabulary spells a token: `<|…|>` for special ones, byte-level for text."""
        return self._vocabulary[token]

    def decode(self, tokens: Iterable[int]) -> str:
        """The text of tokens: special tokens and timestamps are skipped, invalid bytes become U+FFFD.

        A character whose last bytes are missing at the very end is left out: its next token may still come.
        """
        return self.incremental().extend(tokens)

    def incremental(self) -> IncrementalDecoder:
        """A decoder for tokens that come one by one."""
        return IncrementalDecoder(self)

    def encode(self, text: str) -> list[int]:
        """The tokens of a text. What looks like a special token is plain text: no prompt injects control.

        Args:
            text: Any text; lone surrogates count as U+FFFD, as tiktoken has it.
        """
        valid = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        words = (word.encode().decode("latin-1") for word in _word_pattern().findall(valid))
        return [token for word in words for token in self._merge(word.translate(_FROM_LATIN_1))]

    @cached_property
    def _ranks(self) -> dict[str, int]:
        """Spelling -> id of the text tokens, the special ones left out."""
        return {spelling: token for token, spelling in enumerate(self._vocabulary[: self.special.eot])}

    def _merge(self, word: str) -> list[int]:
        """Byte pair encoding of one word in byte-level spelling: the lowest rank is merged first."""
        ranks, none = self._ranks, self.special.eot
        parts = list(word)
        while len(parts) > 1:
            pairs = [first + second for first, second in pairwise(parts)]
            best = min(pairs, key=lambda pair: ranks.get(pair, none))
            if best not in ranks:
                break
            parts = _join_pairs(parts, pairs, best)
        return [ranks[part] for part in parts]


class IncrementalDecoder:
    """Turns tokens into text as they come, in whole characters.

    At any time `text` equals `Tokenizer.decode` of all tokens pushed so far. Not thread-safe.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._token_bytes = tokenizer.token_bytes
        # keeps the bytes of half a character back until the rest comes
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._pieces: list[str] = []

    @property
    def text(self) -> str:
        """All whole characters so far."""
        if len(self._pieces) > 1:
            self._pieces = ["".join(self._pieces)]
        return self._pieces[0] if self._pieces else ""

    def push(self, token: int) -> str:
        """Takes the next token; returns the characters that became whole, often none."""
        delta = self._decoder.decode(self._token_bytes(token))
        if delta:
            self._pieces.append(delta)
        return delta

    def extend(self, tokens: Iterable[int]) -> str:
        """Takes several tokens; returns the characters that became whole."""
        return "".join(map(self.push, tokens))


def _join_pairs(parts: list[str], pairs: list[str], best: str) -> list[str]:
    """Merges every neighbouring pair that spells `best`, from the left."""
    joined: list[str] = []
    index = 0
    while index < len(parts):
        found = index < len(pairs) and pairs[index] == best
        joined.append(best if found else parts[index])
        index += 2 if found else 1
    return joined


@lru_cache(maxsize=1)
def _word_pattern() -> re.Pattern[str]:
    r"""GPT-2's pattern of words (encoder.py): merges never cross them.

    `regex`, because `re` knows no `\p`, and imported here, because only prompts need it.
    """
    import regex  # noqa: PLC0415  (see above)

    pattern: re.Pattern[str] = regex.compile(
        r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
    )
    return pattern
