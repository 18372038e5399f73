"""Which recordings a user means: files, patterns, folders, lists of them.

It lives beside `models/audio`, which knows what can be read: a program without processes wants it too.
"""

from __future__ import annotations

import codecs
import glob
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from susurrus.models.errors import OptionError

STDIN = "-"
"""The recording that is piped in."""

_NAMES = """
3gp aac ac3 aif aifc aiff amr ape au avi caf flac m4a m4b m4v mka mkv mov mp2 mp3 mp4 mpeg mpg oga ogg ogv opus spx tta
w64 wav wave weba webm wma wmv wv
"""

EXTENSIONS = frozenset(f".{name}" for name in _NAMES.split())
"""Of the files that are taken from a folder. A file that is named by itself is opened whatever it is called."""


@dataclass(frozen=True, slots=True)
class Input:
    """One recording."""

    path: str
    """As the user names it, or `-` for standard input."""
    below: str = ""
    """Where it was found below a folder that the user named; empty in that folder itself, and otherwise."""

    @property
    def is_stdin(self) -> bool:
        """Whether it is piped in."""
        return self.path == STDIN

    @property
    def source(self) -> str:
        """Absolute path: processes have working directories of their own."""
        return STDIN if self.is_stdin else os.path.abspath(self.path)  # noqa: PTH100 - `..` is the user's word


@dataclass(slots=True)
class Inputs:
    """What was found."""

    found: list[Input] = field(default_factory=list)
    """Each recording once, in the order in which it was named; within a pattern or folder in natural order."""
    complaints: list[str] = field(default_factory=list)
    """One sentence for each pattern and folder that gave nothing."""


def expand(names: Iterable[str], *, recursive: bool = False) -> Inputs:
    """Find the recordings behind names.

    A file is itself, whether it exists or not; a folder means the audio files in it, by extension, hidden ones left
    out; another name with `*`, `?` or `[` is a pattern (`**` for any folders) and means what a shell would make of it.

    Args:
        names: of files and folders, patterns, `-`.
        recursive: look in the folders of folders too. Symbolic links to folders are not followed.
    """
    inputs, seen = Inputs(), set[str]()
    for name in names:
        for found in _expand_one(name, inputs.complaints, recursive=recursive):
            key = os.path.normcase(found.source)
            if key not in seen:
                seen.add(key)
                inputs.found.append(found)
    return inputs


def _expand_one(name: str, complaints: list[str], *, recursive: bool) -> Iterator[Input]:
    path = Path(name)
    if name != STDIN and path.is_dir():
        found = list(_files_in(path, complaints, recursive=recursive))
        if not found:
            deeper = "" if recursive else "; --recursive looks in its folders too"
            complaints.append(f"{name}: no audio files in this folder{deeper}")
        yield from found
    elif name == STDIN or not glob.has_magic(name) or os.path.lexists(name):
        yield Input(name)
    else:
        matches = sorted(glob.glob(name, recursive=True), key=natural_key)  # noqa: PTH207 - knows absolute patterns
        if not matches:
            complaints.append(f"{name}: no file matches this pattern")
        for match in matches:
            if Path(match).is_dir():
                yield from _files_in(Path(match), complaints, recursive=recursive)
            else:
                yield Input(match)


def _files_in(folder: Path, complaints: list[str], *, recursive: bool) -> Iterator[Input]:
    """Audio files by extension, in natural order."""

    def complain(error: OSError) -> None:
        complaints.append(f"{error.filename}: cannot be read: {error.strerror}")

    paths: list[str] = []
    for parent, folders, files in os.walk(folder, onerror=complain):
        folders[:] = [name for name in folders if recursive and not name.startswith(".")]
        # A name with a dot in front is hidden: macOS puts `._clip.mp3` beside clip.mp3 on foreign disks.
        audio = [name for name in files if not name.startswith(".") and Path(name).suffix.lower() in EXTENSIONS]
        paths += [path for name in audio if os.path.isfile(path := os.path.join(parent, name))]  # noqa: PTH113, PTH118
    for path in sorted(paths, key=natural_key):
        below = os.path.relpath(os.path.dirname(path), folder)  # noqa: PTH120
        yield Input(path, "" if below == os.curdir else below)


def natural_key(path: str) -> tuple[list[list[str | int]], str]:
    """Sorts `part 2` before `part 10`, whatever the case, and a folder's files together."""
    parts: list[list[str | int]] = [
        [int(piece) if piece.isdecimal() else piece for piece in re.split(r"(\d+)", part.casefold())]
        for part in Path(path).parts
    ]
    return parts, path


def read_list(path: str) -> list[str]:
    """The names in a file, as `parse_list` has them.

    Raises:
        OptionError: it cannot be read.
    """
    try:
        return parse_list(Path(path).read_bytes())
    except OSError as error:
        raise OptionError(f"--files-from {path}: cannot be read: {error.strerror}") from error


def parse_list(data: bytes) -> list[str]:
    """Names from a list: one a line, or separated by NUL as `find -print0` writes them, which is noticed.

    UTF-16 is understood by its mark (PowerShell's `>` writes it). A name is a path as it stands, `-` too.
    """
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        data = data.decode("utf-16", "replace").encode()
    data = data.removeprefix(codecs.BOM_UTF8)
    separator = b"\0" if b"\0" in data else b"\n"
    pieces = (piece if separator == b"\0" else piece.removesuffix(b"\r") for piece in data.split(separator))
    names = [os.fsdecode(piece) for piece in pieces if piece.strip()]
    return [os.path.join(os.curdir, name) if name == STDIN else name for name in names]  # noqa: PTH118
