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


def test_nothing_to_do_is_a_usage_error(cli: Cli) -> None:
    done = cli()
    assert (done.code, done.out) == (exits.INPUT, "")
    assert done.err.startswith("usage: ")
    assert "--wav" in done.err.splitlines()[-1]


def test_help_tells_of_every_option_and_every_exit_code(cli: Cli) -> None:
    done = cli("--help")
    assert (done.code, done.err) == (0, "")
    options = "wav attach model language task prompt precision threads json quiet verbose log-format version help"
    assert [option for option in options.split() if f"--{option}" not in done.out] == []
    codes = {value for name, value in vars(exits).items() if name.isupper()}
    assert [code for code in codes if not re.search(rf"\b{code}\b", done.out)] == []


def test_version_is_one_line(cli: Cli) -> None:
    done = cli("--version")
    assert (done.code, done.err) == (0, "")
    assert re.fullmatch(r"susurrus \d+\.\d+\S*\n", done.out)
