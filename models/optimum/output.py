"""Writes an export's folder: whole or not at all, and with a manifest by which it can be checked."""

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from susurrus.models.errors import OutputError
from susurrus.models.provisioning.manifest import FILE_NAME, Manifest, describe, sync_folder, write_manifest

LAYOUT = "optimum"


@dataclass(frozen=True, slots=True)
class ExportManifest(Manifest):
    """The contents of an export: a manifest like a model directory's, that also says how the files are laid out."""

    layout: str = LAYOUT


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A folder to write into, which is synced and gets its name at the end; nothing is left of one that failed.

    Args:
        path: The folder to be made; an empty one may be there.

    Yields:
        The folder under its temporary name, beside `path`.

    Raises:
        OutputError: If there is something already, or nothing can be written there.
    """
    path = Path(os.path.abspath(path))  # noqa: PTH100 - `..` is the user's word
    try:
        if os.path.lexists(path) and (not path.is_dir() or any(path.iterdir())):
            raise OutputError(f"{path} is there already and no empty folder: name a new one by --out, or remove it")
        work = path.parent / f".{path.name}.{os.urandom(4).hex()}.partial"
        work.mkdir(parents=True)
    except OSError as error:
        raise OutputError(f"{path} cannot be made ({error.strerror or error}): name another folder by --out") from error
    try:
        yield work
        _sync_files(work)
        if path.is_dir():
            path.rmdir()
        work.rename(path)
        sync_folder(path.parent)
    except OSError as error:
        raise OutputError(f"{path} cannot be written ({error.strerror or error}): name another by --out") from error
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _sync_files(folder: Path) -> None:
    for path in folder.iterdir():
        with path.open("rb+") as file:
            os.fsync(file.fileno())


def seal(folder: Path, name: str, source: Mapping[str, str]) -> None:
    """Write the manifest of a folder in which all else is there.

    Args:
        folder: The export.
        name: What the model is called.
        source: SHA-256 of the files that it was made from.

    Raises:
        OSError: If a file cannot be read or the manifest not written.
    """
    found = describe(folder, name, source)
    write_manifest(folder, ExportManifest(found.name, found.builder, found.source, found.files))


def read_name(folder: Path) -> str:
    """What an export is called: by its manifest, else by its folder."""
    if not (folder / FILE_NAME).is_file():
        return Path(os.path.abspath(folder)).name  # noqa: PTH100 - `.` has no name
    return Manifest.read(folder).name
