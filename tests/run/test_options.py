"""The options of run.py: what they mean, and what is refused before anything is started."""

from __future__ import annotations

import os
import re
import shutil
from typing import TYPE_CHECKING

import pytest

from susurrus.actors import exits

if TYPE_CHECKING:
    from pathlib import Path

    from tests.run.conftest import Cli, Finished


def complaint(done: Finished) -> str:
    """The only line it said."""
    assert done.out == ""
    (line,) = done.err.splitlines()
    return line


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--language", "germn"], "german (de)"),
        (["--language", "klingon"], "unknown"),
        (["--task", "translat"], "translate"),
        (["--threads", "-1"], "--threads"),
        (["--beam-size", "0"], "--beam-size"),
        (["--temperature", "-1"], "--temperature"),
        (["--temperature-increment-on-fallback", "-0.2"], "--temperature-increment-on-fallback"),
        (["--format", "srt,docx"], "docx"),
        (["--format", "srt", "--max-line-width", "0"], "--max-line-width"),
        (["--max-line-width", "40"], "--format"),
        (["--format", "json", "--highlight_words", "True"], "srt"),
        (["--skip-existing"], "--format"),
        (["--files-from", "/nonexistent/list"], "/nonexistent/list"),
    ],
)
def test_a_value_that_does_not_exist_is_refused_in_one_line(
    cli: Cli, austen: Path, options: list[str], said: str
) -> None:
    done = cli("--wav", austen, *options)
    assert said in complaint(done)
    assert done.code == exits.INPUT


def test_an_unknown_model_is_refused_with_the_nearest_name(cli: Cli, austen: Path) -> None:
    done = cli("--wav", austen, "--model", "bsae")
    assert "base" in complaint(done)
    assert done.code == exits.MODEL


def test_a_model_with_one_wrong_byte_is_refused_by_name_before_any_text(
    cli: Cli, austen: Path, base: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(base, folder, copy_function=os.link)
    damaged = folder / "vocabulary.txt"
    content = damaged.read_bytes()
    damaged.unlink()  # the others keep theirs
    damaged.write_bytes(content.replace(b"ill", b"all", 1))
    done = cli("--wav", austen, "--model", folder)
    assert "vocabulary.txt" in complaint(done)
    assert done.code == exits.MODEL


@pytest.mark.parametrize("language", ["es", "Castilian"])
def test_a_language_is_given_as_name_or_code(cli: Cli, six: Path, language: str) -> None:
    done = cli("--json", "--wav", six, "--language", language)
    (end,) = done.of_type("done")
    assert (end["language"], end["language_probability"]) == ("es", 1.0)


def test_translation_is_in_english(cli: Cli, jfk: Path) -> None:
    done = cli("--wav", jfk.with_name("mls_es.opus"), "--task", "translate")
    assert set(re.findall(r"\w+", done.out.lower())) & {"the", "and", "of", "that"}


def test_a_setting_that_turns_the_fallback_off_is_a_warning(cli: Cli, six: Path) -> None:
    done = cli(six, "--temperature_increment_on_fallback", "None")
    assert done.code == 0
    (warning,) = done.err.splitlines()
    assert warning.startswith("warning: there is only temperature 0: ")


def test_standard_input_is_a_list_or_a_recording_and_not_both(cli: Cli) -> None:
    done = cli("-", "--files-from", "-")
    assert "standard input" in complaint(done)
    assert done.code == exits.INPUT


def test_a_pipeline_that_is_followed_is_given_no_recordings(cli: Cli, six: Path) -> None:
    done = cli(six, "--attach", "connection.json")
    assert (done.code, done.out) == (exits.INPUT, "")
    assert "--attach" in done.err.splitlines()[-1]


def test_nothing_to_do_is_a_usage_error(cli: Cli) -> None:
    done = cli()
    assert (done.code, done.out) == (exits.INPUT, "")
    assert done.err.startswith("usage: ")
    assert "--wav" in done.err.splitlines()[-1]


def test_help_tells_of_every_option_and_every_exit_code(cli: Cli) -> None:
    done = cli("--help")
    assert (done.code, done.err) == (0, "")
    options = (
        "wav recursive files-from attach language task prompt initial-prompt hotwords multilingual word-timestamps "
        "without-timestamps no-vad beam-size best-of temperature temperature-increment-on-fallback "
        "compression-ratio-threshold logprob-threshold no-speech-threshold condition-on-previous-text "
        "no-repeat-ngram-size format output-format output-dir skip-existing max-line-width max-line-count "
        "max-words-per-line highlight-words model precision threads json quiet verbose log-format version help"
    )
    assert [option for option in options.split() if f"--{option}" not in done.out] == []
    codes = {value for name, value in vars(exits).items() if name.isupper()}
    assert [code for code in codes if not re.search(rf"\b{code}\b", done.out)] == []


def test_version_is_one_line(cli: Cli) -> None:
    done = cli("--version")
    assert (done.code, done.err) == (0, "")
    assert re.fullmatch(r"susurrus \d+\.\d+\S*\n", done.out)
