"""Searching: greedy, by samples, with beams; against brute force on little languages."""

from __future__ import annotations

import itertools
from collections.abc import Generator, Mapping, Sequence
from typing import TypeVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from susurrus.models.rules import Rule
from susurrus.models.search import LOOP_COPIES, Candidate, Search, loop_length, stutters, without_loop
from tests.models.scripted import ScriptedSession

EOT = 5
TIMES = (6, 7)  # above the end token, as timestamps are
Value = TypeVar("Value")


def finish(steps: Generator[Value, None, Candidate]) -> tuple[list[list[int]], Candidate]:
    """What a search showed on its way, and what it found."""
    shown: list[list[int]] = []
    while True:
        try:
            shown.append(list(next(steps)))  # type: ignore[call-overload]
        except StopIteration as stop:
            return shown, stop.value


def language(seed: int, n_vocab: int = 6) -> Mapping[tuple[int, ...], NDArray[np.float32]]:
    """Random logits after every text of up to three tokens: a little language of its own."""
    generator = np.random.default_rng(seed)
    texts = (text for length in range(4) for text in itertools.product(range(EOT), repeat=length))
    return {text: generator.normal(0, 2, n_vocab).astype(np.float32) for text in texts}


def session_of(spoken: Mapping[tuple[int, ...], NDArray[np.float32]]) -> ScriptedSession:
    def said(row: list[int]) -> Mapping[int, float]:
        return dict(enumerate(spoken[tuple(row[1:4])].tolist()))

    return ScriptedSession(6, said)


def logprobs(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    wide = logits.astype(np.float64)
    found: NDArray[np.float64] = wide - np.log(np.exp(wide).sum())
    return found


def scores(spoken: Mapping[tuple[int, ...], NDArray[np.float32]], limit: int) -> dict[tuple[int, ...], float]:
    """Log-probability of every text that ends within the limit, the end token included."""
    found = {}
    for length in range(limit):
        for text in itertools.product(range(EOT), repeat=length):
            steps = [logprobs(spoken[text[:i]])[token] for i, token in enumerate((*text, EOT))]
            found[text] = float(sum(steps))
    return found


def search(session: ScriptedSession, limit: int = 3, rules: Sequence[Rule] = ()) -> Search:
    return Search(session, rules, EOT, EOT, limit)  # these languages have no timestamps


@given(st.integers(0, 10**6))
@settings(max_examples=30)
def test_greedy_takes_the_most_probable_token_each_time_and_sums_their_log_probabilities(seed: int) -> None:
    spoken = language(seed)
    session = session_of(spoken)
    shown, found = finish(search(session).greedy(session.step([0]), Candidate()))
    expected: list[int] = []
    total = 0.0
    ended = False
    while len(expected) < 3 and not ended:
        row = logprobs(spoken[tuple(expected)])
        token = int(row.argmax())
        total += row[token]
        ended = token == EOT
        expected += [] if ended else [token]
    assert found.tokens == expected
    assert shown == [expected[: i + 1] for i in range(len(expected))]
    assert found.ended == ended
    assert found.sum_logprob == pytest.approx(total, abs=1e-4)
    assert found.avg_logprob == pytest.approx(total / (len(expected) + 1), abs=1e-4)


def test_greedy_goes_on_from_what_is_there_and_may_be_kept_from_ending() -> None:
    session = ScriptedSession(6, lambda row: {EOT: 9.0, 2: 5.0} if len(row) < 4 else EOT)
    logits = session.step([0, 1, 3])
    _, found = finish(search(session, limit=9).greedy(logits, Candidate([1, 3]), may_end=False))
    assert found.tokens == [1, 3, 2]
    assert found.ended


def test_rules_see_the_tokens_of_their_own_hypothesis_and_the_sessions_logits_stay_as_they_are() -> None:
    class NotTwice:
        def __call__(self, logits: NDArray[np.float32], tokens: Sequence[int]) -> None:
            logits[list(tokens)] = -np.inf

    session = ScriptedSession(6, lambda _: {1: 4.0, 2: 3.0, 3: 2.0})
    logits = session.step([0])
    before = logits.copy()
    _, found = finish(search(session, 3, [NotTwice()]).greedy(logits, Candidate()))
    assert found.tokens == [1, 2, 3]
    assert (logits == before).all()


@given(st.integers(0, 10**6))
@settings(max_examples=30)
def test_as_many_beams_as_there_are_texts_find_the_best_of_all(seed: int) -> None:
    spoken = language(seed)
    texts = scores(spoken, 3)
    session = session_of(spoken)
    _, found = finish(search(session).beam(session.step([0]), 5**3))
    if found.ended:
        mean = {text: total / max(1, len(text)) for text, total in texts.items()}
        assert tuple(found.tokens) == max(mean, key=mean.__getitem__)
        assert found.sum_logprob == pytest.approx(texts[tuple(found.tokens)], abs=1e-4)


def test_a_beam_finds_what_greedy_walks_past() -> None:
    def said(row: list[int]) -> Mapping[int, float]:
        match row[1:]:
            case []:
                return {1: 2.0, 2: 1.8, EOT: -9.0}
            case [1]:
                return dict.fromkeys(range(6), 0.0)  # nothing much follows the more probable start
            case [2]:
                return {3: 12.0}
            case _:
                return {EOT: 12.0}

    session = ScriptedSession(6, said)
    _, greedy = finish(search(session, 6).greedy(session.step([0]), Candidate()))
    session = ScriptedSession(6, said)
    _, beam = finish(search(session, 6).beam(session.step([0]), 2))
    assert greedy.tokens[0] == 1
    assert beam.tokens == [2, 3]
    assert beam.ended


def test_a_beam_that_never_ends_gives_its_best_at_the_limit() -> None:
    session = ScriptedSession(6, lambda row: {1: 5.0, 2: 4.0} if len(row) % 2 else {3: 5.0, 4: 4.0})
    _, found = finish(search(session, 4).beam(session.step([0]), 3))
    assert found.tokens == [1, 3, 1, 3]
    assert not found.ended


def test_samples_follow_the_probabilities_at_their_temperature() -> None:
    logits = {0: 0.0, 1: 1.0, 2: 2.0, 3: -1.0, 4: -2.0, EOT: -3.0}
    temperature = 0.5
    generator = np.random.default_rng(7)
    counts = np.zeros(6)
    for _ in range(60):
        session = ScriptedSession(6, lambda _: logits)
        finish(search(session, 30).sample(session.step([0]), temperature, 5, generator))
        np.add.at(counts, [token for row in session.rows for token in row[1:] if token != EOT], 1)
    weights = np.exp(np.array([logits[token] for token in range(5)]) / temperature)
    assert counts[:5] / counts[:5].sum() == pytest.approx(weights / weights.sum(), abs=0.02)


def test_the_same_seed_samples_the_same_and_the_best_of_the_candidates_is_taken() -> None:
    def run() -> tuple[Candidate, ScriptedSession]:
        session = ScriptedSession(6, lambda row: {1: 1.0, 2: 0.5, EOT: 0.1 * len(row)})
        _, found = finish(search(session, 8).sample(session.step([0]), 1.0, 4, np.random.default_rng(3)))
        return found, session

    (first, session), (second, _) = run(), run()
    assert first == second
    read = [row[1:] for row in session.rows]  # all but the last token, which nothing follows
    assert any(row[: len(first.tokens) - 1] == first.tokens[:-1] for row in read)


def test_a_candidate_that_has_ended_is_not_counted_on() -> None:
    session = ScriptedSession(6, lambda row: EOT if len(row) > 1 else {1: 9.0})
    _, found = finish(search(session, 50).sample(session.step([0]), 1.0, 3, np.random.default_rng(1)))
    assert found.ended
    assert found.sum_logprob <= 0
    assert found.avg_logprob == found.sum_logprob / (len(found.tokens) + 1)


@pytest.mark.parametrize("period", [1, 2, 7, 25])
def test_a_loop_is_cut_to_its_first_copy(period: int) -> None:
    start, once = [90, 91, 92], list(range(10, 10 + period))
    looping = start + once * max(LOOP_COPIES, -(-24 // period))
    assert loop_length(looping, 1000)
    assert without_loop(looping, 1000) == start + once


def test_the_timestamps_of_a_loop_do_not_hide_it() -> None:
    tokens = [token for copy in range(8) for token in (1000 + copy, 1, 2, 3, 1001 + copy)]
    assert loop_length(tokens, 999)
    assert [token for token in without_loop(tokens, 999) if token < 999] == [1, 2, 3]


def test_what_people_say_three_times_is_no_loop() -> None:
    sentence = list(range(20))
    assert loop_length(sentence * 3, 1000) == 0
    assert without_loop(sentence * 3, 1000) == sentence * 3
    assert loop_length([7] * 10, 1000) == 0  # "no no no no no no no no no no"


def test_greedy_stops_in_a_loop_long_before_the_limit() -> None:
    session = ScriptedSession(6, lambda row: 1 + len(row) % 3)
    _, found = finish(search(session, 400).greedy(session.step([0]), Candidate()))
    assert len(found.tokens) <= 30
    assert not found.ended


def test_few_tokens_that_come_again_eight_times_are_no_speech_wherever_they_stand() -> None:
    assert stutters([1, 2, *[7, 8] * 8, 3, 4], 1000)
    assert stutters([1, 2, *[7] * 8, 3], 1000)
    assert not stutters([1, 2, *[7] * 5, 3, *[8, 9] * 4, 5], 1000)
    assert stutters([token for _ in range(8) for token in (2000, 7, 2001)], 1000)  # timestamps are not looked at


def test_the_end_tells_the_most_probable_timestamp() -> None:
    session = ScriptedSession(10, lambda row: {1: 9.0} if len(row) < 2 else {5: 9.0, 7: 2.0, 8: 3.0})
    _, found = finish(Search(session, (), 5, 6, 9).greedy(session.step([0]), Candidate()))
    assert found.tokens == [1]
    assert found.closing == 8
