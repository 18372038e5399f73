"""Words are cut, joined and timed as openai-whisper does it, and whatever comes in, what goes out can be shown."""

# ruff: noqa: RUF001  (marks of other scripts look like ASCII)

from __future__ import annotations

import json
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from susurrus.models.cues import read_cues
from susurrus.models.graphemes import cuts
from susurrus.models.results import Cue, Span
from susurrus.models.special_tokens import SpecialTokens
from susurrus.models.tokenizer import Tokenizer
from susurrus.models.words import (
    UNSPACED,
    Piece,
    corrected,
    join_marks,
    keep_off_silence,
    put_in_order,
    split_cues,
    timed_cues,
)
from tests.models.tiny import VOCABULARY

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "words.json").read_text())
TINY = Tokenizer(VOCABULARY, SpecialTokens.from_vocabulary(VOCABULARY))  # every byte is a token


@pytest.fixture(scope="module")
def multilingual(base: Path) -> Tokenizer:
    """Whisper Base's tokenizer."""
    return Tokenizer.from_directory(base)


def one_cue(tokenizer: Tokenizer, text: str) -> Cue:
    """A cue of 10 s."""
    return Cue(0.0, 10.0, text, tuple(tokenizer.encode(text)))


def texts(pieces: list[Piece]) -> list[str]:
    return [piece.text for piece in pieces]


@pytest.mark.parametrize("case", GOLDEN["splits"], ids=lambda case: case["text"][:20])
def test_texts_are_cut_as_by_openai_whisper(case: dict[str, Any], multilingual: Tokenizer) -> None:
    cue = Cue(0.0, 10.0, case["text"], tuple(case["tokens"]))
    (pieces,) = split_cues([cue], multilingual.token_bytes, spaced=case["language"] not in UNSPACED)
    assert texts(pieces) == case["words"]
    assert [piece.stop - piece.first for piece in pieces] == case["counts"]


@pytest.mark.parametrize("case", GOLDEN["corrections"])
def test_times_are_corrected_as_by_openai_whisper(case: dict[str, Any]) -> None:
    cues = [Cue(cue["start"], cue["end"], "".join(w["text"] for w in cue["words"]), ()) for cue in case["cues"]]
    split = [
        [Piece(w["text"], w["token"], w["token"] + 1, w["start"], w["end"]) for w in cue["words"]]
        for cue in case["cues"]
    ]
    for pieces, cue in zip(corrected(cues, split), case["cues"], strict=True):
        assert texts(pieces) == [text for text, _, _ in cue["corrected"]]
        for piece, (_, start, end) in zip(pieces, cue["corrected"], strict=True):
            assert piece.start == pytest.approx(start, abs=0.011)  # openai-whisper rounds to 0.01 s, in between too
            assert piece.end == pytest.approx(end, abs=0.011)


@pytest.mark.parametrize(
    ("pieces", "joined"),
    [
        ([" Hello", ",", " world", "!"], [" Hello,", " world!"]),
        ([' "', "Yes", ".", '"', " (", "no", ")"], [' "Yes."', " (no)"]),
        ([" ¿", "Qué", "?"], [" ¿Qué?"]),
        (["世", "界", "。", "”"], ["世", "界。”"]),
        ([" and", " ", "so"], [" and", " so"]),
        ([" ...", "!"], [" ...!"]),
        ([" ("], [" ("]),
        ([" Hello", " ("], [" Hello", " ("]),
        ([], []),
    ],
)
def test_marks_join_the_word_they_belong_to(pieces: list[str], joined: list[str]) -> None:
    assert texts(join_marks(Piece(text, 0, 1) for text in pieces)) == joined


sampled = st.lists(st.one_of(st.integers(0, 255), st.sampled_from([32, 32, 46]), st.integers(1000, 1100)), max_size=40)
spoken = st.text(max_size=20).map(TINY.encode)


@given(st.one_of(sampled, spoken), st.booleans())
def test_the_words_of_a_cue_join_to_its_text(tokens: list[int], spaced: bool) -> None:
    """For any bytes, in any cues: halves of characters, marks, blanks, nothing."""
    begin = TINY.special.timestamp_begin
    tokens = [token if token < 256 else begin + token - 1000 for token in tokens]
    cues = read_cues(tokens, TINY, step=0.02, duration=2.0)
    split = split_cues(cues, TINY.token_bytes, spaced=spaced)
    assert [cue.text for cue in cues] == ["".join(texts(pieces)) for pieces in split]
    assert all(split)
    edges = [0, *(piece.stop for piece in chain.from_iterable(split))]
    assert [piece.first for piece in chain.from_iterable(split)] == edges[:-1]  # no token is left out
    assert edges[-1] <= sum(len(cue.tokens) for cue in cues)
    joined = [join_marks(pieces) for pieces in split]
    assert [cue.text for cue in cues] == ["".join(texts(pieces)) for pieces in joined]


@given(st.text(alphabet="かがガ漢字ไำทยกิ่ ျမေ👨‍👩‍👧🇩🇪é́a", max_size=12))
def test_no_character_is_parted_from_its_marks(text: str) -> None:
    """Each byte is a token here, so that only the rule keeps them together."""
    (pieces,) = split_cues([one_cue(TINY, text)], TINY.token_bytes, spaced=False)
    ends = [0]
    for piece in pieces:
        ends.append(ends[-1] + len(piece.text))
    assert set(ends) <= cuts(text) | {0}


def test_no_word_crosses_from_one_cue_into_the_next() -> None:
    first, second = one_cue(TINY, " half"), one_cue(TINY, "way there")
    split = split_cues([first, second], TINY.token_bytes, spaced=True)
    assert [texts(pieces) for pieces in split] == [[" half"], ["way", " there"]]


times = st.floats(-1, 12, width=32)


@given(st.lists(st.tuples(times, times), max_size=20), st.floats(0.01, 10))
def test_words_in_order_can_be_shown_one_after_the_other(spans: list[tuple[float, float]], duration: float) -> None:
    words = [Piece("a", 0, 1, start, end) for start, end in spans]
    put_in_order(words, duration)
    assert all(0 <= word.start < word.end <= duration for word in words)
    assert all(before.end <= after.start for before, after in pairwise(words))


def test_words_that_are_in_order_stay_where_they_are() -> None:
    spans = [(0.0, 0.3), (0.3, 0.32), (1.0, 1.9), (1.9, 2.0)]
    words = [Piece("a", 0, 1, start, end) for start, end in spans]
    put_in_order(words, 2.0)
    assert [(word.start, word.end) for word in words] == spans


@pytest.mark.parametrize(
    ("word", "heard"),
    [
        ((1.0, 1.5), (1.0, 1.5)),  # all of it is speech
        ((0.2, 1.5), (1.0, 1.5)),  # the pause before belongs to nobody
        ((1.8, 3.5), (3.0, 3.5)),  # attention gave it the pause before it
        ((1.2, 3.05), (1.2, 2.0)),  # and here half a tenth of the next word
        ((2.2, 2.8), (2.2, 2.8)),  # said where the detector heard nothing: attention is believed
    ],
)
def test_words_keep_off_silence(word: tuple[float, float], heard: tuple[float, float]) -> None:
    piece = Piece("a", 0, 1, *word)
    keep_off_silence([piece], [Span(1.0, 2.0), Span(3.0, 4.0)])
    assert (piece.start, piece.end) == heard


def test_without_a_speech_detector_words_stay_where_they_are() -> None:
    piece = Piece("a", 0, 1, 0.2, 1.5)
    keep_off_silence([piece], ())
    assert (piece.start, piece.end) == (0.2, 1.5)


def random_cues(draw: st.DrawFn) -> tuple[list[Cue], list[list[Piece]], float]:
    """Cues with words of one token each, times anywhere in the window."""
    duration = draw(st.floats(0.05, 30))
    inside = st.floats(0, 1).map(lambda part: part * duration)
    cues, split, token = [], [], 0
    for _ in range(draw(st.integers(1, 4))):
        words = draw(st.lists(st.sampled_from([" word", ".", " “", "，", " "]), min_size=1, max_size=6))
        start, end = sorted((draw(inside), draw(inside)))
        pieces = []
        for text in words:
            pieces.append(Piece(text, token, token + 1, *sorted((draw(inside), draw(inside)))))
            token += 1
        cues.append(Cue(start, end, "".join(words), tuple(range(len(words)))))
        split.append(pieces)
    return cues, split, duration


@given(st.composite(random_cues)(), st.lists(st.floats(0, 30), max_size=8))
def test_words_lie_in_their_cues_and_cues_in_the_window(
    given_cues: tuple[list[Cue], list[list[Piece]], float], edges: list[float]
) -> None:
    cues, split, duration = given_cues
    edges = sorted(edges)
    speech = [Span(*pair) for pair in zip(edges[::2], edges[1::2], strict=False)]
    logprobs = [-0.5] * sum(map(len, split))
    timed = timed_cues(cues, split, logprobs, speech, duration)
    assert [cue.text for cue in timed] == [cue.text for cue in cues]
    assert all(cue.text == "".join(word.text for word in cue.words) for cue in timed)
    for cue in timed:
        assert 0 <= cue.start <= cue.words[0].start
        assert cue.words[-1].end <= cue.end <= duration
        assert all(word.start < word.end for word in cue.words)
        assert all(before.end <= after.start for before, after in pairwise(cue.words))
    assert all(before.end <= after.start for before, after in pairwise(timed))


def test_a_cue_keeps_its_times_where_its_words_leave_it_room() -> None:
    cues = [Cue(0.1, 2.0, " a b", (1, 2)), Cue(2.0, 5.0, " c", (3,))]
    split = [[Piece(" a", 0, 1, 0.4, 0.8), Piece(" b", 1, 2, 0.8, 2.3)], [Piece(" c", 2, 3, 2.3, 2.6)]]
    first, second = timed_cues(cues, split, [0.0] * 3, (), 6.0)
    assert (first.start, first.end) == (0.1, 2.3)
    assert (second.start, second.end) == (2.3, 5.0)


def test_a_words_probability_is_the_mean_of_its_tokens() -> None:
    """Of the word's own: whether a comma is likely says nothing about it (as in openai-whisper)."""
    split = [[Piece(" long", 0, 2, 0.0, 0.5), Piece(",", 2, 3, 0.5, 0.6)]]
    logprobs = [-0.25, -1.0, -9.0]
    (cue,) = timed_cues([Cue(0.0, 1.0, " long,", (1, 2, 3))], split, logprobs, (), 1.0)
    (word,) = cue.words
    assert word.text == " long,"
    assert word.probability == pytest.approx((0.7788 + 0.3679) / 2, abs=1e-4)
