"""What belongs into a model directory, file by file, and whether it is there unharmed.

A directory's ``manifest.json`` is written last, so a directory that has one was complete once:

    {"format": 1, "name": "base", "builder": 1, "source": {file: sha256},
     "files": {relative path: {"size": bytes, "sha256": hex}}}
"""

import hashlib
import json
import logging
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, Literal

from susurrus.models.errors import ModelError
from susurrus.models.optimum.files import export_precision, is_export

FILE_NAME = "manifest.json"
FORMAT = 1

BUILDER_VERSION = 4
"""Raised when the builder writes other bytes for the same weights: older directories are then built anew."""

PRECISIONS = ("int8", "float32")
"""Folders of a model directory that hold one set of graphs each."""

DEFAULT_PRECISION = "int8"
"""Of our own layout, when none is asked for."""

Progress = Callable[[str, int, int], None]
"""Called as (what is being done, bytes done, bytes in all); 0 bytes in all is a remark to show once."""

_log = logging.getLogger(__name__)

_BLOCK = 1 << 20  # bytes read at a time: long enough for hashlib to let go of the GIL, short enough to stay in cache


def no_progress(_what: str, _done: int, _total: int) -> None:
    """Report nothing."""


@dataclass(frozen=True, slots=True)
class FileRecord:
    """One file as it has to be."""

    size: int
    """Bytes."""
    sha256: str
    """Lower-case hexadecimal digest of the whole file."""


@dataclass(frozen=True, slots=True)
class Damage:
    """One file that is not as its manifest says."""

    path: str
    """Relative to the model directory, with forward slashes."""
    kind: Literal["missing", "size", "hash"]
    """The first thing that is wrong with it."""
    wanted: str
    """Size or digest of the manifest."""
    found: str
    """Size or digest of the file; empty for a missing one."""

    def __str__(self) -> str:
        if self.kind == "missing":
            return f"{self.path} is missing"
        if self.kind == "size":
            return f"{self.path} has {self.found} bytes, wanted {self.wanted}"
        return f"{self.path} has SHA-256 {self.found[:12]}, wanted {self.wanted[:12]}"


@dataclass(frozen=True, slots=True)
class Manifest:
    """The contents of a model directory."""

    name: str
    """The model's name, such as "base"."""
    builder: int
    """BUILDER_VERSION of the code that wrote the directory."""
    source: Mapping[str, str]
    """SHA-256 of every file of the checkpoint that the graphs were built from."""
    files: Mapping[str, FileRecord]
    """Relative path to what it has to be."""

    @classmethod
    def read(cls, directory: Path) -> "Manifest":
        """Read the manifest of a model directory.

        Raises:
            ModelError: If there is none, it cannot be read, or it names a file outside the directory.
        """
        path = directory / FILE_NAME
        try:
            fields = json.loads(path.read_bytes())
            files = {name: FileRecord(int(entry["size"]), str(entry["sha256"])) for name, entry in _entries(fields)}
            return cls(str(fields["name"]), int(fields["builder"]), dict(fields["source"]), files)
        except FileNotFoundError as error:
            raise ModelError(f"{directory} is not a model directory: it has no {FILE_NAME}") from error
        except OSError as error:
            raise ModelError(f"{path} cannot be read: {error.strerror}") from error
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ModelError(f"{path} is damaged ({error}): remove the folder and provision again") from error

    @property
    def precisions(self) -> tuple[str, ...]:
        """The sets of graphs that the directory holds."""
        return tuple(p for p in PRECISIONS if any(name.startswith(f"{p}/") for name in self.files))

    def needed(self, precisions: Iterable[str] | None = None) -> dict[str, FileRecord]:
        """Return the files that a model needs to run in the given precisions; None means every file."""
        if precisions is None:
            return dict(self.files)
        unneeded = tuple(f"{p}/" for p in PRECISIONS if p not in tuple(precisions))
        return {name: record for name, record in self.files.items() if not name.startswith(unneeded)}


def _entries(fields: Any) -> Iterable[tuple[str, Any]]:
    if fields["format"] != FORMAT:
        raise ValueError(f"format {fields['format']!r}, wanted {FORMAT}")
    for name, entry in fields["files"].items():
        _check_name(name)
        yield name, entry


def _check_name(name: str) -> None:
    path = PurePosixPath(name)
    absolute = path.is_absolute() or PureWindowsPath(name).anchor
    if absolute or ".." in path.parts or "\\" in name or str(path) != name or not path.name:
        raise ValueError(f"{name!r} is no path inside the folder")


def hash_stream(paths: Iterable[Path], advance: Callable[[bytes | memoryview], object]) -> str:
    """Hash the concatenation of files, handing on every block read.

    Args:
        paths: Files to read one after another.
        advance: Called with each block, valid until it returns.

    Returns:
        The SHA-256 digest in lower-case hexadecimal.

    Raises:
        OSError: If a file cannot be read.
    """
    digest = hashlib.sha256()
    block = memoryview(bytearray(_BLOCK))
    for path in paths:
        with path.open("rb", buffering=0) as file:
            while count := file.readinto(block):
                digest.update(block[:count])
                advance(block[:count])
    return digest.hexdigest()


def verify(
    directory: Path,
    precisions: Iterable[str] | None = None,
    *,
    hashes: bool = True,
    progress: Progress = no_progress,
) -> list[Damage]:
    """Compare a model directory with its manifest.

    Sizes are compared first: a truncated file is found without reading a byte, and only if all sizes are
    right the contents are hashed (80 MB: about 60 ms on an idle CPU with SHA instructions).

    An Optimum export without a manifest is taken as it is, once its graphs are found whole.

    Args:
        directory: The model directory.
        precisions: Look only at what these need; None looks at every file.
        hashes: False stops after the sizes.
        progress: Told how many bytes are hashed.

    Returns:
        What is wrong, in the manifest's order; empty if nothing is.

    Raises:
        ModelError: If the manifest is missing or damaged, a file is a link out of the directory, or an export
            without a manifest lacks a graph or has one that is cut off.
    """
    if not (directory / FILE_NAME).exists() and is_export(directory):
        export_precision(directory)
        note_unverified(directory)
        return []
    files = Manifest.read(directory).needed(precisions)
    _refuse_links_out(directory, files)
    damages = [d for name, record in files.items() if (d := _compare_size(directory, name, record))]
    if damages or not hashes:
        return damages
    total, done = sum(record.size for record in files.values()), 0

    def advance(block: bytes | memoryview) -> None:
        nonlocal done
        done += len(block)
        progress("checking", done, total)

    found = {name: _hash_or_empty(directory / name, advance) for name in files}
    return [
        Damage(name, "hash" if found[name] else "missing", record.sha256, found[name])
        for name, record in files.items()
        if found[name] != record.sha256
    ]


def note_unverified(directory: Path) -> None:
    """Log that nobody knows what the files of an export have to be."""
    _log.info("an export without a manifest is taken as it is", extra={"directory": str(directory)})


def _refuse_links_out(directory: Path, names: Iterable[str]) -> None:
    root = os.path.realpath(directory)
    for name in names:
        # Links that stay inside are fine: container volumes are made of them.
        if not Path(os.path.realpath(directory / name)).is_relative_to(root):
            raise ModelError(
                f"{directory / name} is a link that leads out of the model's folder: copy the file instead"
            )


def _compare_size(directory: Path, name: str, record: FileRecord) -> Damage | None:
    path = directory / name
    try:
        size = path.stat().st_size
    except OSError:
        return Damage(name, "missing", str(record.size), "")
    if not path.is_file():
        return Damage(name, "missing", str(record.size), "")
    return None if size == record.size else Damage(name, "size", str(record.size), str(size))


def _hash_or_empty(path: Path, advance: Callable[[bytes | memoryview], object]) -> str:
    try:
        return hash_stream([path], advance)
    except OSError:  # gone or unreadable since its size was looked at
        return ""


def describe(directory: Path, name: str, source: Mapping[str, str]) -> Manifest:
    """Size and hash every file of a directory that was just built.

    Args:
        directory: A complete model directory.
        name: The model's name.
        source: SHA-256 of the checkpoint's files.

    Raises:
        OSError: If a file cannot be read.
    """
    paths = sorted(path for path in directory.rglob("*") if path.is_file() and path.name != FILE_NAME)
    files = {
        path.relative_to(directory).as_posix(): FileRecord(path.stat().st_size, hash_stream([path], len))
        for path in paths
    }
    return Manifest(name, BUILDER_VERSION, dict(source), files)


def write_manifest(directory: Path, manifest: Manifest) -> None:
    """Write a directory's manifest, atomically; call it when every other file is there and synced.

    Raises:
        OSError: If it cannot be written.
    """
    partial = directory / f".{FILE_NAME}.partial"
    with partial.open("w", encoding="ascii") as file:
        json.dump({"format": FORMAT, **asdict(manifest)}, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(directory / FILE_NAME)
    sync_folder(directory)


def sync_folder(folder: Path) -> None:
    """Make renames inside a folder survive a power cut, where the system lets a folder be opened for that."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
