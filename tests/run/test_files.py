"""Many recordings in, result files out: the command line as people have it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import soundfile

from susurrus.actors import exits

if TYPE_CHECKING:
    from tests.run.conftest import Cli


def words(text: str) -> list[str]:
    return re.findall(r"[a-z']+", text.lower())


@pytest.fixture
def talks(tmp_path: Path, austen: Path, six: Path) -> Path:
    """A working folder: two recordings below each other, something that is none, and a note."""
    folder = tmp_path / "talks"
    (folder / "day 2").mkdir(parents=True)
    shutil.copy(austen, folder / "clip.wav")
    shutil.copy(six, folder / "day 2" / "clip.wav")
    (folder / "broken.wav").write_text("no audio")
    (folder / "notes.txt").write_text("to do")
    return tmp_path


def there(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_a_folder_with_its_folders_becomes_files_in_as_many_folders(
    cli: Cli, talks: Path, texts: dict[str, str]
) -> None:
    done = cli("talks", "--recursive", "-f", "srt,json", "--output_dir", "out", "--language", "en", cwd=talks)
    assert done.code == exits.INPUT  # broken.wav
    # That is all: piped standard error has no table.
    assert [line.split(": ")[:2] for line in done.err.splitlines()] == [["error", "talks/broken.wav"]]
    names = {"clip.srt", "clip.json", "day 2/clip.srt", "day 2/clip.json"}
    assert there(talks / "out") == names
    assert words(done.out)[: len(words(texts["austen.wav"]))] == words(texts["austen.wav"])
    # The files say what the text does.
    shown = json.loads((talks / "out" / "clip.json").read_text(encoding="utf-8"))
    assert shown["text"] == done.out.splitlines()[0]
    assert (shown["name"], shown["language"], shown["complete"]) == ("talks/clip.wav", "en", True)
    assert shown["duration"] == pytest.approx(2.99, abs=0.01)
    assert all(0 <= item["start"] < item["end"] <= shown["duration"] for item in shown["segments"])
    subtitles = (talks / "out" / "clip.srt").read_text(encoding="utf-8")
    assert words(re.sub(r"\d.*\n", "", subtitles)) == words(texts["austen.wav"])


def test_files_are_utf_8_whatever_the_locale_says(cli: Cli, jfk: Path, tmp_path: Path) -> None:
    clip = tmp_path / "にっぽん é.mp3"
    shutil.copy(jfk.with_name("common_voice_ja.mp3"), clip)
    surroundings = {"LC_ALL": "C", "PYTHONIOENCODING": "latin-1"}
    done = cli(clip, "-f", "txt,vtt", "-o", tmp_path, env=surroundings)
    assert (done.code, done.err) == (0, "")
    text = (tmp_path / "にっぽん é.txt").read_bytes().decode("utf-8")
    assert "".join(text.split()) == "".join(done.out.split())
    assert re.search(r"[ぁ-ん]", text)
    assert (tmp_path / "にっぽん é.vtt").read_bytes().startswith(b"WEBVTT\n\n00:")


def test_a_folder_without_a_format_gets_all_formats_and_silence_makes_valid_ones(cli: Cli, tmp_path: Path) -> None:
    silence = tmp_path / "silence.wav"
    soundfile.write(silence, np.zeros(176000, np.int16), 16000)
    done = cli(silence, "-o", tmp_path / "out")
    assert (done.code, done.out, done.err) == (0, "\n", "")
    kinds = ("txt", "srt", "vtt", "tsv", "json", "jsonl", "lrc")
    assert there(tmp_path / "out") == {f"silence.{kind}" for kind in kinds}
    content = {kind: (tmp_path / "out" / f"silence.{kind}").read_text() for kind in kinds}
    value = json.loads(content.pop("json"))
    assert (value["text"], value["segments"], value["language"]) == ("", [], None)
    assert value["duration"] == pytest.approx(11.0, abs=0.01)
    assert content.pop("vtt") == "WEBVTT\n\n"
    assert content.pop("tsv") == "start\tend\ttext\n"
    assert set(content.values()) == {""}


def test_a_format_without_a_folder_writes_into_the_current_one_and_standard_input_has_a_name(
    cli: Cli, six: Path, tmp_path: Path
) -> None:
    with six.open("rb") as audio:
        done = cli("-", "--output_format", "txt", cwd=tmp_path, stdin=audio)
    assert (done.code, done.err) == (0, "")
    assert there(tmp_path) == {"stdin.txt"}
    assert (tmp_path / "stdin.txt").read_text() == done.out


# --- which recordings -------------------------------------------------------------------------------------------


def test_a_list_on_standard_input_names_recordings_and_patterns_do(cli: Cli, talks: Path) -> None:
    listed = subprocess.run(["find", "talks", "-name", "c*.wav", "-print0"], cwd=talks, capture_output=True, check=True)
    list_file = talks / "list"
    list_file.write_bytes(listed.stdout)
    with list_file.open("rb") as pipe:
        done = cli("--json", "talks/[x-z]*", "--files-from", "-", "talks/day*/*.wav", cwd=talks, stdin=pipe)
    assert sorted(done.dones) == ["talks/clip.wav", "talks/day 2/clip.wav"]
    assert done.err == "error: talks/[x-z]*: no file matches this pattern\n"
    assert done.code == exits.INPUT


def test_a_pattern_and_a_folder_without_recordings_are_a_line_each_and_nothing_is_started(
    cli: Cli, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    done = cli("empty", "*.wav", "--model", "no such model", cwd=tmp_path)
    assert [line.split(": ")[:2] for line in done.err.splitlines()] == [["error", "empty"], ["error", "*.wav"]]
    assert (done.code, done.out) == (exits.INPUT, "")


def test_what_is_there_is_skipped_without_a_model(cli: Cli, talks: Path, tmp_path: Path) -> None:
    for name in ("clip.srt", "broken.srt"):
        (tmp_path / name).write_text("of an earlier run")
    options = ("--skip-existing", "-f", "srt", "--model", "no such model")
    done = cli("talks", "-v", *options, cwd=talks)
    assert (done.code, done.out) == (0, "")
    assert done.err.splitlines()[-1] == "2 files: 2 there already"
    assert (tmp_path / "clip.srt").read_text() == "of an earlier run"


def test_what_is_missing_of_what_is_there_is_done(cli: Cli, talks: Path) -> None:
    (talks / "clip.srt").write_text("of an earlier run")
    done = cli("talks/day 2/clip.wav", "talks/broken.wav", "--skip-existing", "-f", "srt,txt", cwd=talks)
    assert done.code == exits.INPUT
    assert "of an earlier run" not in (talks / "clip.srt").read_text()
    assert (talks / "clip.txt").read_text() == done.out


# --- what cannot be written -------------------------------------------------------------------------------------


def test_a_folder_that_cannot_be_written_is_one_line_before_any_work(cli: Cli, six: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = cli(six, "-f", "srt", "-o", tmp_path / "file", "--model", "no such model")
    assert (done.code, done.out) == (exits.OUTPUT, "")
    (complaint,) = done.err.splitlines()
    assert complaint.startswith(f"error: --output-dir {tmp_path / 'file'}: no file can be written there")


def test_a_file_that_cannot_be_written_is_a_line_and_the_text_is_there(cli: Cli, six: Path, tmp_path: Path) -> None:
    (tmp_path / "six.srt").mkdir()
    done = cli(six, "-f", "srt,txt", "-o", tmp_path)
    assert done.code == exits.OUTPUT
    assert done.out.strip()
    (complaint,) = done.err.splitlines()
    assert complaint.startswith(f"error: {tmp_path / 'six.srt'}: cannot be written: ")


# --- the table --------------------------------------------------------------------------------------------------


def test_a_verbose_run_of_several_files_ends_with_a_table(cli: Cli, talks: Path) -> None:
    names = ("talks/clip.wav", "talks/broken.wav", "talks/clip.wav")
    done = cli("-v", *names, cwd=talks)
    *_, head, first, second, totals = done.err.splitlines()
    assert head.split() == ["file", "length", "language", "speed", "result"]
    rows = sorted([first, second])
    assert re.fullmatch(r"talks/broken\.wav +failed", rows[0])
    assert re.fullmatch(r"talks/clip\.wav +0:02 +en \d+% +[\d.]+x +done", rows[1])
    assert re.match(r"2 files: 1 \w+, 1 \w+; 0:02 of audio in ", totals)


def test_temporary_files_are_gone_after_ctrl_c(cli: Cli, halves: tuple[bytes, bytes], tmp_path: Path) -> None:
    run = cli.start("--json", "-f", "all", "-", stdin=subprocess.PIPE, cwd=tmp_path)
    run.feed(halves[0])
    run.wait_for_event("partial")
    run.signal(2)
    assert run.finish().code == exits.INTERRUPTED
    assert os.listdir(tmp_path) == []  # noqa: PTH208
