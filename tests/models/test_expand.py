"""Names of files, folders, patterns and lists become recordings, each once and in an order that people expect."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from susurrus.models.errors import OptionError
from susurrus.models.inputs import EXTENSIONS, Input, expand, natural_key, parse_list, read_list

FILES = (
    "talks/part 10.wav",
    "talks/part 2.WAV",
    "talks/Part 1.mp3",
    "talks/notes.txt",
    "talks/cover.jpg",
    "talks/.hidden.wav",
    "talks/._part 2.wav",
    "talks/day 1/a.ogg",
    "talks/day 1/deep/b.flac",
    "talks/.trash/c.wav",
    "empty/readme.txt",
    "[odd].wav",
)


@pytest.fixture
def talks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with recordings and other things in it."""
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def paths(*names: str, recursive: bool = False) -> list[str]:
    inputs = expand(names, recursive=recursive)
    assert inputs.complaints == []
    return [found.path for found in inputs.found]


@pytest.mark.usefixtures("talks")
def test_a_folder_is_its_audio_files_by_extension_in_natural_order() -> None:
    assert paths("talks") == ["talks/Part 1.mp3", "talks/part 2.WAV", "talks/part 10.wav"]


@pytest.mark.usefixtures("talks")
def test_a_folder_within_is_searched_only_when_asked_and_never_a_hidden_one() -> None:
    inputs = expand(["talks"], recursive=True)
    assert {(found.path, found.below) for found in inputs.found} == {
        ("talks/Part 1.mp3", ""),
        ("talks/part 2.WAV", ""),
        ("talks/part 10.wav", ""),
        ("talks/day 1/a.ogg", "day 1"),
        ("talks/day 1/deep/b.flac", os.path.join("day 1", "deep")),  # noqa: PTH118
    }


def test_a_link_to_a_folder_above_is_not_followed_for_ever(talks: Path) -> None:
    (talks / "talks" / "loop").symlink_to(talks / "talks", target_is_directory=True)
    assert len(paths("talks", recursive=True)) == 5


def test_only_files_are_taken_from_a_folder(talks: Path) -> None:
    os.mkfifo(talks / "talks" / "pipe.wav")
    (talks / "talks" / "folder.wav").mkdir()
    assert len(paths("talks")) == 3


@pytest.mark.usefixtures("talks")
@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("talks/part*", ["talks/part 2.WAV", "talks/part 10.wav"]),
        ("talks/*.txt", ["talks/notes.txt"]),
        ("talks/[Pp]art ?.*", ["talks/Part 1.mp3", "talks/part 2.WAV"]),
        ("talks/day*", ["talks/day 1/a.ogg"]),
        ("talks/**/*.flac", ["talks/day 1/deep/b.flac"]),
        ("*/*/a.ogg", ["talks/day 1/a.ogg"]),
    ],
)
def test_a_pattern_is_what_a_shell_would_make_of_it(pattern: str, found: list[str]) -> None:
    assert paths(pattern) == found


@pytest.mark.usefixtures("talks")
def test_a_file_that_is_called_like_a_pattern_is_itself() -> None:
    assert paths("[odd].wav") == ["[odd].wav"]


@pytest.mark.usefixtures("talks")
def test_a_name_without_a_file_is_kept_for_the_reader_to_complain_of() -> None:
    assert paths("missing.wav", "-", "talks/notes.txt") == ["missing.wav", "-", "talks/notes.txt"]


@pytest.mark.usefixtures("talks")
@pytest.mark.parametrize("name", ["*.mp4", "empty", "nowhere/*", "talks/day 2*/*.wav"])
def test_what_gives_nothing_is_a_sentence_that_names_it_and_the_rest_goes_on(name: str) -> None:
    inputs = expand([name, "talks/day 1"])
    (complaint,) = inputs.complaints
    assert complaint.startswith(f"{name}: no ")
    assert [found.path for found in inputs.found] == ["talks/day 1/a.ogg"]


def test_each_recording_is_there_once_where_it_was_first_named(talks: Path) -> None:
    ogg = "talks/day 1/a.ogg"
    names = [ogg, "talks", f"./{ogg}", str(talks / ogg), "talks/day 1/../day 1/a.ogg", "talks/part 2.WAV", "-", "-"]
    assert paths(*names) == [ogg, "talks/Part 1.mp3", "talks/part 2.WAV", "talks/part 10.wav", "-"]


def test_another_name_of_a_file_is_another_recording(talks: Path) -> None:
    (talks / "link.wav").symlink_to(talks / "talks" / "part 10.wav")
    assert paths("link.wav", "talks/part 10.wav") == ["link.wav", "talks/part 10.wav"]


def test_the_order_of_names_is_the_user_s() -> None:
    assert paths("b.wav", "a.wav", "10.wav", "9.wav") == ["b.wav", "a.wav", "10.wav", "9.wav"]


def test_natural_order_is_that_of_the_numbers_whatever_the_case() -> None:
    ordered = ["a/1.wav", "a/2.wav", "a/B 1.wav", "a/b 2.wav", "a/b 002x.wav", "a/b 10.wav", "a/b 10/1.wav", "b.wav"]
    shuffled = random.Random(1).sample(ordered, len(ordered))  # noqa: S311
    assert sorted(shuffled, key=natural_key) == [
        "a/1.wav",
        "a/2.wav",
        "a/B 1.wav",
        "a/b 2.wav",
        "a/b 002x.wav",
        "a/b 10/1.wav",  # a folder's files stand together, before longer names
        "a/b 10.wav",
        "b.wav",
    ]


def test_a_source_is_absolute_but_for_standard_input(talks: Path) -> None:
    assert Input("talks/notes.txt").source == str(talks / "talks" / "notes.txt")
    assert Input("-").source == "-"
    assert Input("-").is_stdin


def test_common_formats_of_recordings_and_films_are_known() -> None:
    assert {".wav", ".mp3", ".flac", ".ogg", ".opus", ".m4a", ".mp4", ".webm", ".mkv", ".aac"} <= EXTENSIONS
    assert not {".txt", ".srt", ".json", ".jpg", ".ts", ""} & EXTENSIONS


# --- lists ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        "a b.wav\nünï.mp3\n -x.wav\n".encode(),
        "a b.wav\r\nünï.mp3\r\n\r\n -x.wav".encode(),
        "a b.wav\0ünï.mp3\0 -x.wav\0".encode(),
        "\ufeffa b.wav\n\n  \nünï.mp3\n -x.wav\n".encode(),
        "a b.wav\r\nünï.mp3\r\n -x.wav\r\n".encode("utf-16"),
    ],
    ids=["lines", "windows", "nul", "mark", "powershell"],
)
def test_a_list_has_a_name_a_line_or_between_nul_characters(data: bytes) -> None:
    assert parse_list(data) == ["a b.wav", "ünï.mp3", " -x.wav"]


def test_between_nul_characters_a_name_may_have_line_breaks() -> None:
    assert parse_list(b"a\nb.wav\0c\r\0") == ["a\nb.wav", "c\r"]


def test_a_name_that_is_no_utf_8_still_names_its_file(tmp_path: Path) -> None:
    file = os.fsencode(tmp_path) + b"/\xff\xfe.wav"
    Path(os.fsdecode(file)).touch()
    (name,) = parse_list(file + b"\n")
    assert Path(name).exists()


def test_a_dash_in_a_list_is_a_file() -> None:
    assert parse_list(b"-\n") == ["./-"]


def test_an_empty_list_has_no_names() -> None:
    assert parse_list(b"") == parse_list(b"\n\n") == []


def test_a_list_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"--files-from .*missing\.txt: cannot be read: No such file"):
        read_list(str(tmp_path / "missing.txt"))
