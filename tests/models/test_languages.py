"""The languages are openai-whisper's, and a wrong one is answered with the nearest."""

import json
from pathlib import Path

import pytest

from susurrus.models.errors import OptionError
from susurrus.models.languages import LANGUAGES, to_code

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "tokens.json").read_text())


def test_codes_and_names_are_the_references_in_their_order() -> None:
    assert list(LANGUAGES.items()) == list(GOLDEN["language_codes"].items())


@pytest.mark.parametrize(("name", "code"), GOLDEN["language_names"].items())
def test_every_name_and_alias_of_the_reference_leads_to_its_code(name: str, code: str) -> None:
    assert to_code(name) == to_code(name.upper()) == to_code(f" {name.title()} ") == code


def test_every_code_is_its_own_code_in_any_case() -> None:
    assert [to_code(code) for code in LANGUAGES] == [to_code(code.upper()) for code in LANGUAGES] == list(LANGUAGES)


@pytest.mark.parametrize(("other", "code"), [("iw", "he"), ("jv", "jw")])
def test_other_iso_codes_of_hebrew_and_javanese_are_understood(other: str, code: str) -> None:
    assert to_code(other) == code


@pytest.mark.parametrize(
    ("wrong", "nearest"),
    [
        ("germann", "german (de)"),
        ("Portugese", "portuguese (pt)"),
        ("flemisch", "flemish (nl)"),
        ("jp", "japanese (ja)"),
        ("cz", "czech (cs)"),
    ],
)
def test_an_unknown_language_is_refused_with_the_nearest_one(wrong: str, nearest: str) -> None:
    with pytest.raises(OptionError) as refusal:
        to_code(wrong)
    assert str(refusal.value) == f"language '{wrong}' is unknown; did you mean {nearest}?"


@pytest.mark.parametrize("nonsense", ["", "  ", "\n", "日本語"])
def test_nonsense_is_refused_in_one_line(nonsense: str) -> None:
    with pytest.raises(OptionError, match=r"^language .* is unknown") as refusal:
        to_code(nonsense)
    assert "\n" not in str(refusal.value)
