"""Result files have names of their own, and are there whole or not at all."""

from __future__ import annotations

import itertools
import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from susurrus.actors.outputs import OutputFiles, output_names, write_whole
from susurrus.models.errors import OutputError
from susurrus.models.inputs import Input
from susurrus.models.results import Cue
from susurrus.models.writers import FORMATS, Document, DocumentSegment, Layout

DOCUMENT = Document(
    name="clip.wav",
    text="Grüße, 世界",
    segments=(DocumentSegment(Cue(0.0, 1.0, " Grüße, 世界", (1,)), 0.0, "de", 0.0, -0.5, 1.0, 0.0),),
    language="de",
    language_probability=1.0,
    language_probabilities={},
    duration=1.0,
    speech_s=1.0,
    coverage=1.0,
    complete=True,
    warnings=(),
)


def names(*inputs: str | Input, folder: str = "out", formats: tuple[str, ...] = ("srt",)) -> list[str]:
    sources = [Input(source) if isinstance(source, str) else source for source in inputs]
    return output_names(sources, Path(folder), formats)


# --- names ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("inputs", "expected"),
    [
        (["clip.wav"], ["clip"]),
        (["/a/b/clip.tar.wav", "noext", ".wav"], ["clip.tar", "noext", ".wav"]),
        (["-"], ["stdin"]),
        (["a/clip.wav", "b/other.wav"], ["clip", "other"]),
        # the same name: the extension tells them apart, or the folder, or both
        (["clip.wav", "clip.mp3", "other.wav"], ["clip.wav", "clip.mp3", "other"]),
        (["a/clip.wav", "b/clip.wav", "b/other.wav"], ["a/clip", "b/clip", "other"]),
        (["x/a/clip.wav", "x/b/c/clip.wav"], ["a/clip", "b/c/clip"]),
        (["a/clip.wav", "b/clip.wav", "b/clip.mp3"], ["a/clip", "b/clip", "clip.mp3"]),
        (["stdin.wav", "-"], ["stdin.wav", "stdin"]),
        (["clip.wav", "clip.wav.mp3"], ["clip", "clip.wav"]),
        # on many file systems these would be one file
        (["Clip.wav", "clip.mp3"], ["Clip.wav", "clip.mp3"]),
        (["\u00e9.wav", "e\u0301.mp3"], ["\u00e9.wav", "e\u0301.mp3"]),
        (["A.wav", "a.wav", "a.WAV"], ["A.wav", "a.wav-2", "a.WAV-3"]),
    ],
)
def test_no_two_recordings_have_the_same_name(inputs: list[str], expected: list[str]) -> None:
    assert names(*inputs) == [str(Path(name)) for name in expected]


def test_folders_of_a_folder_are_there_in_the_output_too() -> None:
    found = [Input("talks/a.wav"), Input("talks/day 1/a.wav", "day 1"), Input("talks/day 1/b/a.wav", "day 1/b")]
    assert names(*found) == ["a", "day 1/a", "day 1/b/a"]
    other = Input("more/day 1/a.wav", "day 1")
    assert names(*found, other) == ["a", "talks/day 1/a", "day 1/b/a", "more/day 1/a"]


def test_names_differ_whatever_is_put_together() -> None:
    pool = [
        "clip.wav",
        "clip.mp3",
        "clip.wav.mp3",
        "a/clip.wav",
        "a/clip.mp3",
        "b/clip.wav",
        "CLIP.wav",
        "-",
        "stdin.wav",
    ]
    for n in range(1, 4):
        for inputs in itertools.permutations(pool, n):
            made = names(*inputs)
            assert len({name.casefold() for name in made}) == n, inputs


def test_no_result_is_called_like_a_recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    inputs = ["talk.txt", "other.wav", "other.txt"]
    made = names(*inputs, folder=".", formats=("txt", "srt"))
    assert made == ["talk.txt", "other.wav", "other.txt"]
    assert not {f"{name}.txt" for name in made} & set(inputs)
    assert names(*inputs[:1], folder="elsewhere", formats=("txt",)) == ["talk"]


# --- files ------------------------------------------------------------------------------------------------------


def files(folder: Path, *sources: Input, formats: tuple[str, ...] = ("txt", "srt")) -> OutputFiles:
    made = OutputFiles(folder, formats, sources, Layout())
    made.check()
    return made


def test_every_format_is_a_file_in_a_folder_that_is_made_for_it(tmp_path: Path) -> None:
    source = Input("talks/day 1/clip.wav", "day 1")
    files(tmp_path / "new" / "out", source, formats=FORMATS).write(source, DOCUMENT)
    folder = tmp_path / "new" / "out" / "day 1"
    assert {path.name for path in folder.iterdir()} == {f"clip.{kind}" for kind in FORMATS}
    assert (folder / "clip.txt").read_bytes() == "Grüße, 世界\n".encode()


def test_an_older_file_is_replaced_and_nothing_else_is_left(tmp_path: Path) -> None:
    source = Input("clip.wav")
    (tmp_path / "clip.txt").write_text("old")
    files(tmp_path, source).write(source, DOCUMENT)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["clip.srt", "clip.txt"]
    assert "Grüße" in (tmp_path / "clip.txt").read_text(encoding="utf-8")


def test_a_file_that_cannot_be_finished_leaves_the_older_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "clip.txt"
    path.write_text("old")

    def full(_descriptor: int) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "fsync", full)
    source = Input("clip.wav")
    with pytest.raises(OutputError, match=r"clip\.txt: cannot be written: No space left"):
        files(tmp_path, source).write(source, DOCUMENT)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_has_the_rights_that_other_new_files_have(tmp_path: Path) -> None:
    write_whole(tmp_path / "ours", "a")
    (tmp_path / "theirs").write_text("a")
    assert stat.S_IMODE((tmp_path / "ours").stat().st_mode) == stat.S_IMODE((tmp_path / "theirs").stat().st_mode)


def test_the_longest_name_that_a_file_may_have_can_be_written(tmp_path: Path) -> None:
    write_whole(tmp_path / ("x" * 251 + ".txt"), "a")
    assert len(list(tmp_path.iterdir())) == 1


def test_a_name_that_is_no_utf_8_is_escaped_in_the_file(tmp_path: Path) -> None:
    source = Input(os.fsdecode(b"\xff.wav"))
    files(tmp_path, source, formats=("json",)).write(source, replace(DOCUMENT, name=source.path))
    (path,) = tmp_path.iterdir()
    assert '"name": "\\udcff.wav"' in path.read_bytes().decode("utf-8")


@pytest.mark.parametrize("place", ["file", "file/below"])
def test_a_folder_that_cannot_be_written_is_refused_in_one_line(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match=r"--output-dir .*no file can be written there"):
        files(tmp_path / place, Input("clip.wav"))


def test_looking_whether_a_folder_can_be_written_leaves_nothing_there(tmp_path: Path) -> None:
    files(tmp_path / "out", Input("clip.wav"))
    assert list((tmp_path / "out").iterdir()) == []


def test_files_are_there_only_when_all_of_them_are(tmp_path: Path) -> None:
    source = Input("clip.wav")
    made = files(tmp_path, source)
    assert not made.are_there(source)
    (tmp_path / "clip.txt").touch()
    assert not made.are_there(source)
    (tmp_path / "clip.srt").mkdir()
    assert not made.are_there(source)
    (tmp_path / "clip.srt").rmdir()
    made.write(source, DOCUMENT)
    assert made.are_there(source)
