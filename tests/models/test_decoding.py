"""Greedy decoding: what is sampled, when it ends, and which language a window is in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from susurrus.models.config import ModelConfig, SpecialTokens
from susurrus.models.decoding import WindowDecoder, WindowOptions, check_language, check_task, encode_prompt
from susurrus.models.errors import OptionError
from susurrus.models.results import DecodedWindow, Hypothesis
from susurrus.models.tokenizer import Tokenizer

STATES = np.zeros((50, 64), np.float32)
TEXT = 60  # any token that is text


class ScriptedSession:
    """A decoder that says what the test has written down, and notes what it was asked."""

    def __init__(self, n_vocab: int, script: Sequence[int | Mapping[int, float]]) -> None:
        self.steps: list[list[int]] = []
        self.calls: list[str] = []
        self._logits = np.zeros(n_vocab, np.float32)
        self._script = list(script)

    def begin(self, hidden_states: NDArray[np.float32]) -> None:
        """Note it."""
        assert hidden_states is STATES
        self.calls.append("begin")

    def rewind(self, position: int = 0) -> None:
        """Note it."""
        assert position == 0
        self.calls.append("rewind")

    def step(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        """Logits whose largest is the next of the script; its last entry for ever."""
        self.steps.append(list(tokens))
        self.calls.append("step")
        wanted = self._script.pop(0) if len(self._script) > 1 else self._script[0]
        self._logits[:] = 0
        for token, value in ({wanted: 9.0} if isinstance(wanted, int) else wanted).items():
            self._logits[token] = value
        return self._logits


@pytest.fixture(scope="module")
def config(tiny: Path) -> ModelConfig:
    return ModelConfig.from_directory(tiny)


@pytest.fixture(scope="module")
def tokenizer(tiny: Path) -> Tokenizer:
    return Tokenizer.from_directory(tiny)


@pytest.fixture(scope="module")
def special(tokenizer: Tokenizer) -> SpecialTokens:
    return tokenizer.special


class Multilingual(Tokenizer):
    """The tiny tokenizer as a model with languages has it."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.__dict__ = dict(tokenizer.__dict__)
        self.special = replace(tokenizer.special, multilingual=True)


@pytest.fixture(scope="module")
def multilingual(tokenizer: Tokenizer) -> Tokenizer:
    return Multilingual(tokenizer)


def decode(
    config: ModelConfig,
    tokenizer: Tokenizer,
    script: Sequence[int | Mapping[int, float]],
    options: WindowOptions | None = None,
) -> tuple[list[Hypothesis], DecodedWindow, ScriptedSession]:
    session = ScriptedSession(config.dimensions.n_vocab, script)
    steps = WindowDecoder(session, tokenizer, config).decode(STATES, options or WindowOptions("en"))
    hypotheses = []
    while True:
        try:
            hypotheses.append(next(steps))
        except StopIteration as stop:
            return hypotheses, stop.value, session


def test_the_most_probable_tokens_are_taken_until_the_end_token(
    config: ModelConfig, tokenizer: Tokenizer, special: SpecialTokens
) -> None:
    hypotheses, decoded, session = decode(config, tokenizer, [TEXT, TEXT + 1, special.eot])
    assert decoded.tokens == (TEXT, TEXT + 1)
    assert decoded.text == tokenizer.decode(decoded.tokens)
    assert not decoded.truncated
    assert [hypothesis.tokens for hypothesis in hypotheses] == [(TEXT,), (TEXT, TEXT + 1)]
    assert session.steps[1:] == [[TEXT], [TEXT + 1]]


def test_the_first_step_is_the_prompt_of_the_model(
    config: ModelConfig, tokenizer: Tokenizer, multilingual: Tokenizer, special: SpecialTokens
) -> None:
    _, _, session = decode(config, tokenizer, [TEXT, special.eot])
    assert session.steps[0] == [special.sot, special.no_timestamps]
    options = WindowOptions("de", "translate", (70, 71))
    _, _, session = decode(config, multilingual, [TEXT, special.eot], options)
    german = special.languages["de"]
    start = [special.sot, german, special.translate, special.no_timestamps]
    assert session.steps[0] == [special.sot_prev, 70, 71, *start]


def test_a_decoder_that_never_ends_is_stopped_at_half_its_context_and_marked(
    config: ModelConfig, tokenizer: Tokenizer
) -> None:
    hypotheses, decoded, session = decode(config, tokenizer, [TEXT])
    limit = config.dimensions.n_text_ctx // 2
    assert len(decoded.tokens) == len(hypotheses) == limit
    assert decoded.truncated
    assert len(session.steps) == limit  # the last token is not asked about: its successor is not wanted


def test_prompt_and_text_together_never_pass_the_context(config: ModelConfig, multilingual: Tokenizer) -> None:
    for length in (0, 1, 18, 19, 20, 21, 600):
        options = WindowOptions("de", prompt=(TEXT,) * length)
        _, decoded, session = decode(config, multilingual, [TEXT], options)
        positions = sum(len(step) for step in session.steps)
        assert positions <= config.dimensions.n_text_ctx
        assert decoded.truncated
        assert decoded.tokens


def test_a_text_that_ends_right_at_the_limit_counts_as_truncated(
    config: ModelConfig, tokenizer: Tokenizer, special: SpecialTokens
) -> None:
    limit = config.dimensions.n_text_ctx // 2
    _, decoded, _ = decode(config, tokenizer, [*[TEXT] * (limit - 1), special.eot])
    assert not decoded.truncated
    _, decoded, _ = decode(config, tokenizer, [*[TEXT] * limit, special.eot])
    assert decoded.truncated  # whether it would have ended there nobody knows


def test_the_end_cannot_be_the_first_thing_said(
    config: ModelConfig, tokenizer: Tokenizer, special: SpecialTokens
) -> None:
    _, decoded, _ = decode(config, tokenizer, [{special.eot: 9.0, TEXT: 5.0}, special.eot])
    assert decoded.tokens == (TEXT,)


def test_suppressed_tokens_are_never_taken_however_probable(
    config: ModelConfig, tokenizer: Tokenizer, special: SpecialTokens
) -> None:
    never = [*config.suppress_tokens, special.sot, special.no_speech, special.sot_prev]
    _, decoded, _ = decode(config, tokenizer, [{**dict.fromkeys(never, 9.0), TEXT: 5.0}, special.eot])
    assert decoded.tokens == (TEXT,)


def test_the_sessions_logits_are_not_written_to(
    config: ModelConfig, tokenizer: Tokenizer, special: SpecialTokens
) -> None:
    session = ScriptedSession(config.dimensions.n_vocab, [TEXT, special.eot])
    decoder = WindowDecoder(session, tokenizer, config)
    list(decoder.decode(STATES, WindowOptions("en")))
    assert np.isfinite(session._logits).all()


def test_no_half_character_is_shown_and_none_is_lost(config: ModelConfig, tokenizer: Tokenizer) -> None:
    units = [tokenizer_id(tokenizer, byte) for byte in "né世🎉!".encode()]
    hypotheses, decoded, _ = decode(config, tokenizer, [*units, tokenizer.special.eot])
    assert decoded.text == "né世🎉!"
    assert decoded.tokens == tuple(units)
    assert [hypothesis.text for hypothesis in hypotheses] == ["n", "né", "né世", "né世🎉", "né世🎉!"]


def tokenizer_id(tokenizer: Tokenizer, byte: int) -> int:
    """The token of one byte."""
    return next(token for token in range(256) if tokenizer.token_bytes(token) == bytes([byte]))


def test_what_is_stable_begins_every_later_hypothesis(config: ModelConfig, tokenizer: Tokenizer) -> None:
    units = [tokenizer_id(tokenizer, byte) for byte in "né 世界 x".encode()]
    hypotheses, decoded, _ = decode(config, tokenizer, [*units, tokenizer.special.eot])
    for former, latter in pairwise(hypotheses):
        assert latter.text.startswith(former.text[: former.stable])
        assert latter.stable >= former.stable
    assert decoded.text.startswith(hypotheses[-1].text[: hypotheses[-1].stable])


def test_nothing_runs_between_two_hypotheses_once_the_caller_has_left(
    config: ModelConfig, tokenizer: Tokenizer
) -> None:
    session = ScriptedSession(config.dimensions.n_vocab, [TEXT])
    steps = WindowDecoder(session, tokenizer, config).decode(STATES, WindowOptions("en"))
    next(steps)
    asked = len(session.steps)
    steps.close()
    assert len(session.steps) == asked == 1


def test_the_next_window_begins_afresh(config: ModelConfig, tokenizer: Tokenizer, special: SpecialTokens) -> None:
    session = ScriptedSession(config.dimensions.n_vocab, [TEXT, special.eot, TEXT + 1, special.eot])
    decoder = WindowDecoder(session, tokenizer, config)
    list(decoder.decode(STATES, WindowOptions("en")))
    assert [hypothesis.tokens for hypothesis in decoder.decode(STATES, WindowOptions("en"))] == [(TEXT + 1,)]
    assert session.calls.count("begin") == 2


# --- languages --------------------------------------------------------------------------------------------------


def test_the_language_is_the_most_probable_of_the_languages_alone(
    config: ModelConfig, multilingual: Tokenizer, special: SpecialTokens
) -> None:
    english, german = special.languages["en"], special.languages["de"]
    script: list[int | Mapping[int, float]] = [{TEXT: 99.0, english: 1.0, german: 2.0}, TEXT, special.eot]
    _, decoded, session = decode(config, multilingual, script, WindowOptions())
    assert decoded.language == "de"
    assert decoded.language_probability == pytest.approx(np.exp(2) / (np.exp(1) + np.exp(2)))
    assert session.steps[:2] == [[special.sot], [special.sot, german, special.transcribe, special.no_timestamps]]
    assert session.calls[:4] == ["begin", "rewind", "step", "rewind"]


def test_a_language_that_was_named_is_not_looked_for(
    config: ModelConfig, multilingual: Tokenizer, special: SpecialTokens
) -> None:
    _, decoded, session = decode(config, multilingual, [TEXT, special.eot], WindowOptions("de"))
    assert (decoded.language, decoded.language_probability) == ("de", 1.0)
    assert session.calls[:2] == ["begin", "step"]


def test_an_english_model_answers_english_without_looking(
    config: ModelConfig, tokenizer: Tokenizer, special: SpecialTokens
) -> None:
    _, decoded, session = decode(config, tokenizer, [TEXT, special.eot], WindowOptions())
    assert (decoded.language, decoded.language_probability) == ("en", 1.0)
    assert session.steps[0] == [special.sot, special.no_timestamps]


# --- options ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", ["transcribe", "translate"])
def test_a_multilingual_model_has_both_tasks(task: str) -> None:
    check_task(task, multilingual=True)


def test_an_english_model_does_not_translate() -> None:
    check_task("transcribe", multilingual=False)
    with pytest.raises(OptionError, match="cannot translate"):
        check_task("translate", multilingual=False)


def test_a_task_that_does_not_exist_is_refused_with_those_that_do() -> None:
    with pytest.raises(OptionError, match="'summarise' does not exist: use transcribe or translate"):
        check_task("summarise", multilingual=True)


@pytest.mark.parametrize(("given", "code"), [("de", "de"), ("German", "de"), ("english", "en"), (None, None)])
def test_a_language_is_taken_by_name_or_code(multilingual: Tokenizer, given: str | None, code: str | None) -> None:
    assert check_language(given, multilingual.special) == code


def test_a_language_the_model_does_not_have_is_refused(multilingual: Tokenizer, special: SpecialTokens) -> None:
    with pytest.raises(OptionError, match="not among the 2"):
        check_language("French", multilingual.special)
    with pytest.raises(OptionError, match="only English"):
        check_language("de", special)
    assert check_language("English", special) == "en"


def test_a_decoder_refuses_a_task_it_cannot_do(config: ModelConfig, tokenizer: Tokenizer) -> None:
    with pytest.raises(OptionError):
        decode(config, tokenizer, [TEXT], WindowOptions("en", "translate"))


@pytest.mark.parametrize("prompt", ["", "  ", "\n"])
def test_a_prompt_of_nothing_is_no_prompt(tokenizer: Tokenizer, prompt: str) -> None:
    assert encode_prompt(tokenizer, prompt) == ()


def test_a_prompt_is_encoded_as_the_middle_of_a_text(tokenizer: Tokenizer) -> None:
    assert tokenizer.decode(encode_prompt(tokenizer, "Grüße ")) == " Grüße"


def test_control_tokens_in_a_prompt_are_plain_text(tokenizer: Tokenizer, special: SpecialTokens) -> None:
    tokens = encode_prompt(tokenizer, "<|endoftext|><|de|>")
    assert all(token < special.eot for token in tokens)
    assert tokenizer.decode(tokens) == " <|endoftext|><|de|>"
