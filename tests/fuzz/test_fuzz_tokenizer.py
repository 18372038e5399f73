"""Any tokens are shown in whole characters that join to the whole; any text comes back from its tokens."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.tokenizer import (
    TEXTS,
    check,
    check_cues,
    check_decoding,
    check_encoding,
    generate,
    tokenizers,
    without_unfinished,
)

steady = settings(derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
PARTS = 4
token_lists = st.lists(st.integers(0, 51864), max_size=40)
any_text = st.text(st.characters(exclude_categories=()), max_size=40) | st.sampled_from(TEXTS)  # surrogates too


@pytest.mark.parametrize("part", range(PARTS))
def test_tokens_and_texts_of_every_kind_keep_the_rules(part: int) -> None:
    dice = random.Random(part)  # noqa: S311  seeded on purpose
    for _ in range(250):
        check(generate(dice))


@steady
@given(token_lists, st.sampled_from(tokenizers()))
def test_any_tokens_are_shown_in_whole_characters(tokens: list[int], tokenizer: object) -> None:
    check_decoding(tokens, tokenizer)  # type: ignore[arg-type]


@steady
@given(token_lists, st.sampled_from(tokenizers()), st.integers(0, 1000), st.booleans())
def test_cues_and_words_join_to_the_text(tokens: list[int], tokenizer: object, seed: int, spaced: bool) -> None:
    check_cues(tokens, tokenizer, random.Random(seed), spaced=spaced)  # type: ignore[arg-type]  # noqa: S311


@steady
@given(any_text, st.sampled_from(tokenizers()))
def test_any_text_comes_back_from_its_tokens(text: str, tokenizer: object) -> None:
    check_encoding(text, tokenizer)  # type: ignore[arg-type]


@pytest.mark.parametrize("character", ["é", "世", "🌍", "\u0800", "\U00010000", "\U0010ffff", "\ud7ff", "\ue000"])
def test_the_start_of_a_character_is_held_back_and_nothing_else(character: str) -> None:
    raw = b"a" + character.encode()
    for size in range(2, len(raw)):
        assert without_unfinished(raw[:size]) == b"a"
    assert without_unfinished(raw) == raw
    for invalid in (b"a\x80", b"a\xff", b"a\xed\xa0", b"a\xf4\x90", b"a\xc0", b"a\xe0\x80", b"a\xf0\x80"):
        assert without_unfinished(invalid) == invalid
