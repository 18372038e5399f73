"""Options are refused in words before any work is done."""

from __future__ import annotations

import dataclasses
import typing
from pathlib import Path
from typing import Any

import pytest

from susurrus.actors.options import from_message, to_message
from susurrus.models.errors import OptionError
from susurrus.models.options import DecodingOptions, OptionFields
from susurrus.models.special_tokens import SpecialTokens
from susurrus.models.tokenizer import Tokenizer
from susurrus.protocol import TranscribeOptions


@pytest.fixture(scope="module")
def special(base: Path) -> SpecialTokens:
    return Tokenizer.from_directory(base).special


@pytest.fixture(scope="module")
def english_only(tiny_en: Path) -> SpecialTokens:
    return Tokenizer.from_directory(tiny_en).special


@pytest.mark.parametrize(("given", "code"), [("de", "de"), ("German", "de"), ("english", "en"), (None, None)])
def test_a_language_is_taken_by_name_or_code(special: SpecialTokens, given: str | None, code: str | None) -> None:
    assert DecodingOptions(language=given).checked(special).language == code


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"task": "summarise"}, "'summarise' does not exist: use transcribe or translate"),
        ({"language": "yue"}, "not among the 99 of this model"),
        ({"language": "Klingon"}, "'Klingon' is unknown"),
        ({"beam_size": 0}, "--beam-size 0: give a number from 1 to"),
        ({"best_of": 99}, "--best-of 99: give a number from 1 to"),
        ({"temperatures": ()}, "--temperature"),
        ({"temperatures": (0.0, -0.1)}, "--temperature"),
        ({"temperatures": (float("nan"),)}, "--temperature"),
        ({"no_repeat_ngram_size": -1}, "--no-repeat-ngram-size -1"),
        ({"compression_ratio_threshold": float("inf")}, "--compression-ratio-threshold inf"),
    ],
)
def test_a_value_that_does_not_exist_is_refused_by_name(
    special: SpecialTokens, options: dict[str, Any], reason: str
) -> None:
    with pytest.raises(OptionError, match=reason):
        DecodingOptions(**options).checked(special)


@pytest.mark.parametrize(
    ("options", "reason"), [({"task": "translate"}, "cannot translate"), ({"language": "de"}, "only English")]
)
def test_an_english_model_refuses_what_it_has_not_learnt(
    english_only: SpecialTokens, options: dict[str, Any], reason: str
) -> None:
    with pytest.raises(OptionError, match=reason):
        DecodingOptions(**options).checked(english_only)
    assert DecodingOptions(language="English").checked(english_only).language == "en"


def test_options_are_the_same_in_models_in_messages_and_as_keyword_arguments() -> None:
    ours, theirs = typing.get_type_hints(DecodingOptions), typing.get_type_hints(TranscribeOptions)
    assert ours == theirs == typing.get_type_hints(OptionFields)
    assert dataclasses.asdict(DecodingOptions()) == dataclasses.asdict(TranscribeOptions())
    changed = DecodingOptions(language="de", temperatures=(0.5,), beam_size=3, vad=False, logprob_threshold=None)
    assert from_message(to_message(changed)) == changed
