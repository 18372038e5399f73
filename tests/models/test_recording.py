"""What a recording's first windows decide: its language; and what is said once only."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from susurrus.models.options import DecodingOptions
from susurrus.models.recording import MAX_VOTES, NAMED, LanguageVotes, Recording, most_probable
from susurrus.models.tokenizer import Tokenizer

CODES = ["en", "de", "ja", "es", "fr", "zh"]


def heard(**probabilities: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.array([probabilities.get(code, 0.0) for code in CODES])


@pytest.fixture(scope="module")
def tokenizer(base: Path) -> Tokenizer:
    return Tokenizer.from_directory(base)


def test_a_language_that_is_sure_is_decided_by_one_window() -> None:
    votes = LanguageVotes(CODES)
    assert not votes.is_decided
    votes.add(heard(ja=0.8, en=0.2))
    assert votes.is_decided
    assert next(iter(votes.probabilities)) == "ja"


def test_windows_that_are_not_sure_decide_together() -> None:
    votes = LanguageVotes(CODES)
    votes.add(heard(en=0.4, de=0.35, ja=0.25))
    assert not votes.is_decided
    votes.add(heard(en=0.1, de=0.9))
    assert votes.is_decided
    assert votes.probabilities == pytest.approx({"de": 0.625, "en": 0.25, "ja": 0.125, "es": 0.0, "fr": 0.0})


def test_after_some_windows_the_most_probable_language_is_taken() -> None:
    votes = LanguageVotes(CODES)
    for _ in range(MAX_VOTES):
        assert not votes.is_decided
        votes.add(heard(en=0.3, de=0.4, ja=0.3))
    assert votes.is_decided
    assert next(iter(votes.probabilities)) == "de"


def test_the_most_probable_languages_come_first_and_only_some() -> None:
    named = most_probable(CODES, heard(en=0.1, de=0.5, ja=0.2, es=0.05, fr=0.15))
    assert list(named) == ["de", "ja", "fr", "en", "es"]
    assert len(named) == NAMED


def test_a_language_that_does_not_fit_the_sound_is_doubted_once(tokenizer: Tokenizer) -> None:
    recording = Recording(DecodingOptions(language="en"), tokenizer)
    (warning,) = recording.doubt({"de": 0.97, "en": 0.01})
    assert "German (97%)" in warning
    assert "--language de" in warning
    assert recording.doubt({"de": 0.99}) == ()


@pytest.mark.parametrize(
    ("language", "probabilities"), [(None, {"de": 0.99}), ("de", {"de": 0.99}), ("en", {"de": 0.7}), ("en", {})]
)
def test_nothing_is_doubted_without_reason(
    tokenizer: Tokenizer, language: str | None, probabilities: dict[str, float]
) -> None:
    assert Recording(DecodingOptions(language=language), tokenizer).doubt(probabilities) == ()


@pytest.mark.parametrize("prompt", ["", " ", "\n\t"])
def test_a_prompt_of_nothing_is_no_prompt(tokenizer: Tokenizer, prompt: str) -> None:
    recording = Recording(DecodingOptions(prompt=prompt, hotwords=prompt), tokenizer)
    assert recording.prompt == recording.hotwords == ()


def test_a_prompt_is_encoded_as_the_middle_of_a_text(tokenizer: Tokenizer) -> None:
    recording = Recording(DecodingOptions(prompt="Susurrus speaks\n", hotwords=" Köln"), tokenizer)
    assert tokenizer.decode(recording.prompt) == " Susurrus speaks"
    assert tokenizer.decode(recording.hotwords) == " Köln"


@pytest.mark.parametrize("text", ["<|endoftext|>", "<|startoftranscript|><|0.00|>", "a <| b", "<|de|>"])
def test_control_tokens_in_a_prompt_are_plain_text(tokenizer: Tokenizer, text: str) -> None:
    recording = Recording(DecodingOptions(prompt=text, hotwords=text), tokenizer)
    assert all(token < tokenizer.special.eot for token in (*recording.prompt, *recording.hotwords))
    assert tokenizer.decode(recording.prompt) == f" {text}"


@given(
    votes=st.lists(st.lists(st.floats(0, 1), min_size=99, max_size=99), max_size=5),
    previous=st.lists(st.integers(0, 50256), max_size=64),
)
def test_another_decoder_that_recalls_goes_on_as_the_first_would(
    tokenizer: Tokenizer, votes: list[list[float]], previous: list[int]
) -> None:
    options = DecodingOptions(language="de")
    first, second = Recording(options, tokenizer), Recording(options, tokenizer)
    for vote in votes:
        first.votes.add(np.array(vote))
    first.previous = tuple(previous)
    first.warn_once("prompt", "cut")
    second.recall(first.memory)
    assert second.memory == first.memory
    assert second.votes.state == first.votes.state  # to the last bit
    assert (second.votes.any, second.votes.is_decided) == (first.votes.any, first.votes.is_decided)
    assert second.previous == first.previous
    assert second.warn_once("prompt", "cut") == ()
    assert second.warn_once("language", "doubtful") != ()


@pytest.mark.parametrize(
    "memory",
    [
        *("", "[]", "{}", "null", "[" * 5000, '{"votes": 1, "languages": [1.0], "previous": [], "warned": []}'),
        '{"votes": 1, "languages": [NaN], "previous": [], "warned": []}',
        '{"votes": "x", "languages": [], "previous": [], "warned": []}',
        '{"votes": 1, "languages": 7, "previous": [], "warned": []}',
    ],
    ids=lambda memory: memory[:20],
)
def test_what_is_no_memory_of_this_model_is_refused(tokenizer: Tokenizer, memory: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        Recording(DecodingOptions(), tokenizer).recall(memory)
