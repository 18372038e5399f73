"""When a text is good enough, and which of several bad ones is taken."""

from __future__ import annotations

import zlib
from dataclasses import replace

from susurrus.models.fallback import Attempt, best_of, compression_ratio, is_good, is_silence
from susurrus.models.options import DecodingOptions
from susurrus.models.search import Candidate

OPTIONS = DecodingOptions()
TEXT = " And so my fellow Americans, ask not what your country can do for you."


def attempt(logprob: float = -0.2, text: str = TEXT, *, loops: bool = False, temperature: float = 0.0) -> Attempt:
    """Nine tokens and the end, with this mean log-probability."""
    return Attempt(temperature, Candidate(list(range(9)), [logprob] * 9, logprob, ended=True), text, loops)


def test_compression_is_counted_in_bytes_of_utf8() -> None:
    assert compression_ratio("") == 0.0
    text = "ありがとう" * 20
    assert compression_ratio(text) == len(text.encode()) / len(zlib.compress(text.encode())) > 2.4


def test_a_probable_text_that_does_not_repeat_itself_is_good() -> None:
    assert is_good(attempt(), OPTIONS, no_speech_prob=0.0)


def test_an_improbable_text_is_not_good_unless_the_user_does_not_mind() -> None:
    assert not is_good(attempt(-1.1), OPTIONS, no_speech_prob=0.0)
    assert is_good(attempt(-1.0), OPTIONS, no_speech_prob=0.0)
    assert is_good(attempt(-9.0), replace(OPTIONS, logprob_threshold=None), no_speech_prob=0.0)


def test_a_text_that_repeats_itself_is_not_good_unless_the_user_does_not_mind() -> None:
    loop = attempt(text=" Thank you." * 20)
    assert not is_good(loop, OPTIONS, no_speech_prob=0.0)
    assert is_good(loop, replace(OPTIONS, compression_ratio_threshold=None), no_speech_prob=0.0)


def test_a_sentence_said_three_times_is_good() -> None:
    assert is_good(attempt(text=TEXT * 3), OPTIONS, no_speech_prob=0.0) == (compression_ratio(TEXT * 3) <= 2.4)
    assert is_good(attempt(text=" I said no. I said no. I said no."), OPTIONS, no_speech_prob=0.0)


def test_a_loop_that_was_cut_off_is_not_good_whatever_is_left() -> None:
    assert not is_good(attempt(loops=True), OPTIONS, no_speech_prob=0.0)


def test_silence_is_where_neither_half_believes_in_speech() -> None:
    assert is_silence(attempt(-1.1), OPTIONS, no_speech_prob=0.7)
    assert not is_silence(attempt(-0.9), OPTIONS, no_speech_prob=0.7)
    assert not is_silence(attempt(-1.1), OPTIONS, no_speech_prob=0.6)
    assert not is_silence(attempt(-1.1), replace(OPTIONS, no_speech_threshold=None), no_speech_prob=1.0)


def test_silence_is_not_asked_again() -> None:
    assert is_good(attempt(-2.0, loops=True), OPTIONS, no_speech_prob=0.9)


def test_of_bad_texts_the_most_probable_that_does_not_repeat_itself_is_taken() -> None:
    loop, cold, hot = attempt(-0.1, loops=True), attempt(-1.5, temperature=0.2), attempt(-1.2, temperature=1.0)
    assert best_of([loop, cold, hot], OPTIONS) is hot
    assert best_of([loop, attempt(-0.5, loops=True)], OPTIONS) is loop
