"""From tokens to cues: what the timestamps say, kept inside the audio and near the speech."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from susurrus.models.cues import fit_cues, read_cues, seconds, shift_cues, uncovered
from susurrus.models.results import Cue, Span, Word
from susurrus.models.tokenizer import Tokenizer

STEP = 0.02


@pytest.fixture(scope="module")
def tokenizer(base: Path) -> Tokenizer:
    return Tokenizer.from_directory(base)


def sampled(tokenizer: Tokenizer, *pieces: str | float) -> list[int]:
    """Tokens of texts and of times in seconds."""
    tokens: list[int] = []
    for piece in pieces:
        if isinstance(piece, str):
            tokens += tokenizer.encode(piece)
        else:
            tokens.append(tokenizer.special.timestamp_begin + round(piece / STEP))
    return tokens


def read(tokenizer: Tokenizer, *pieces: str | float, duration: float = 30.0) -> list[tuple[float, float, str]]:
    cues = read_cues(sampled(tokenizer, *pieces), tokenizer, step=STEP, duration=duration)
    return [(round(cue.start, 2), round(cue.end, 2), cue.text) for cue in cues]


def cue(start: float, end: float, text: str = " a") -> Cue:
    return Cue(start, end, text, (1,))


def test_a_pair_of_timestamps_bounds_each_text(tokenizer: Tokenizer) -> None:
    found = read(tokenizer, 0.0, " One two.", 2.5, 3.0, " Three.", 4.0)
    assert found == [(0.0, 2.5, " One two."), (3.0, 4.0, " Three.")]


def test_text_without_an_end_ends_with_the_window(tokenizer: Tokenizer) -> None:
    assert read(tokenizer, 0.5, " One", duration=7.0) == [(0.5, 7.0, " One")]
    assert read(tokenizer, " One two", duration=7.0) == [(0.0, 7.0, " One two")]


def test_text_without_a_start_begins_where_the_cue_before_ended(tokenizer: Tokenizer) -> None:
    assert read(tokenizer, 0.0, " One", 1.0, " two", 2.0) == [(0.0, 1.0, " One"), (1.0, 2.0, " two")]


@pytest.mark.parametrize("pieces", [(), (0.0,), (0.0, 0.0), (0.0, 30.0), (1.0, 2.0, 2.0)])
def test_timestamps_without_text_are_no_cue(tokenizer: Tokenizer, pieces: tuple[float, ...]) -> None:
    assert read(tokenizer, *pieces) == []


def test_a_character_cut_by_a_timestamp_goes_to_the_cue_that_completes_it(tokenizer: Tokenizer) -> None:
    halves = tokenizer.encode("🌍")
    assert len(halves) > 1
    tokens = [*sampled(tokenizer, 0.0, " a"), *halves[:1], *sampled(tokenizer, 1.0, 1.0), *halves[1:]]
    cues = read_cues(tokens, tokenizer, step=STEP, duration=3.0)
    assert [each.text for each in cues] == [" a", "🌍"]


@given(st.lists(st.integers(0, 1501), max_size=40), st.integers(0, 2**32))
def test_the_cues_join_to_the_text_of_all_tokens(tokenizer: Tokenizer, times: list[int], seed: int) -> None:
    begin = tokenizer.special.timestamp_begin
    tokens = [begin + time if (seed >> (i % 32)) & 1 else time * 30 for i, time in enumerate(times)]
    cues = read_cues(tokens, tokenizer, step=STEP, duration=30.0)
    assert "".join(each.text for each in cues) == tokenizer.decode(tokens)
    assert [token for each in cues for token in each.tokens] == [
        token for token in tokens if token < tokenizer.special.eot
    ][: sum(len(each.tokens) for each in cues)]


def test_no_cue_ends_after_the_audio() -> None:
    (fitted,) = fit_cues([cue(13.5, 30.02)], [], 15.0)
    assert (fitted.start, fitted.end) == (13.5, 15.0)


def test_a_cue_begins_and_ends_with_the_speech_it_holds() -> None:
    speech = [Span(2.0, 5.0), Span(6.0, 9.0)]
    fitted = fit_cues([cue(0.0, 5.5), cue(5.5, 12.0)], speech, 12.0)
    assert [(each.start, each.end) for each in fitted] == [(2.0, 5.0), (6.0, 9.0)]


def test_a_cue_where_nobody_was_heard_keeps_its_times() -> None:
    (fitted,) = fit_cues([cue(1.0, 2.0)], [Span(4.0, 5.0)], 6.0)
    assert (fitted.start, fitted.end) == (1.0, 2.0)


times = st.floats(0, 31, allow_nan=False)


@given(
    st.lists(st.tuples(times, times).map(sorted), max_size=6),
    st.lists(times, max_size=8, unique=True).map(sorted),
    st.floats(0.1, 30),
)
def test_fitted_cues_are_ordered_end_after_they_start_and_lie_in_the_window(
    raw: list[list[float]], edges: list[float], duration: float
) -> None:
    cues = sorted((cue(start, end) for start, end in raw), key=lambda each: each.start)
    speech = [Span(start, min(end, duration)) for start, end in zip(edges[::2], edges[1::2], strict=False)]
    fitted = fit_cues(cues, [span for span in speech if span.start < span.end], duration)
    assert len(fitted) == len(cues)
    assert all(0 <= each.start < each.end <= duration for each in fitted)
    assert all(one.start <= two.start for one, two in pairwise(fitted))


def test_shifting_moves_cues_and_words_and_passes_no_end() -> None:
    words = (Word(1.0, 1.5, " a", 0.5), Word(1.5, 2.0, " b", 0.5))
    (shifted,) = shift_cues([Cue(1.0, 2.0, " a b", (1, 2), words)], 30.0, 31.75)
    assert (shifted.start, shifted.end) == (31.0, 31.75)
    assert [(word.start, word.end) for word in shifted.words] == [(31.0, 31.5), (31.5, 31.75)]


def test_uncovered_is_what_lies_in_no_cue() -> None:
    speech = [Span(1.0, 4.0), Span(5.0, 9.0)]
    assert list(uncovered([], speech)) == speech
    assert list(uncovered([Span(0.0, 10.0)], speech)) == []
    assert list(uncovered([Span(2.0, 6.0)], speech)) == [Span(1.0, 2.0), Span(6.0, 9.0)]
    assert list(uncovered([Span(1.0, 2.0), Span(3.0, 3.5)], speech[:1])) == [Span(2.0, 3.0), Span(3.5, 4.0)]


spans = st.lists(st.integers(0, 60), max_size=10, unique=True).map(
    lambda edges: [Span(float(a), float(b)) for a, b in zip(sorted(edges)[::2], sorted(edges)[1::2], strict=False)]
)


@given(spans, spans)
def test_uncovered_speech_is_counted_second_by_second(cues: list[Span], speech: list[Span]) -> None:
    heard = {second for span in speech for second in range(int(span.start), int(span.end))}
    covered = {second for span in cues for second in range(int(span.start), int(span.end))}
    assert seconds(uncovered(cues, speech)) == len(heard - covered)
