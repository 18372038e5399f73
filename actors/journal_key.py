"""What a journal is of: the things that must be the same for a resumed run to give the same text."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Self

from susurrus.actors.version import VERSION
from susurrus.models.errors import AudioError, ModelError
from susurrus.models.inputs import STDIN
from susurrus.models.provisioning.manifest import FILE_NAME
from susurrus.protocol import TranscribeOptions
from susurrus.protocol.checks import INT_LIMIT


@dataclass(frozen=True, slots=True)
class JournalKey:
    """What must be the same for a resumed run to give the same text."""

    source: str
    """Absolute path of the recording."""
    size: int
    """Bytes."""
    mtime_ns: int
    """When the recording was last changed."""
    model: str
    """SHA-256 that tells one model directory from another."""
    precision: str
    options: TranscribeOptions
    version: str
    """Of the package: another one may decode differently."""

    @classmethod
    def of(cls, source: str, model_directory: Path, precision: str, options: TranscribeOptions) -> Self:
        """The key of a run of this version.

        Raises:
            AudioError: the recording cannot be looked at, or cannot be read a second time.
            ModelError: the model directory cannot be looked at.
        """
        path = os.path.abspath(source)  # noqa: PTH100 - `..` is the user's word
        try:
            status = None if source == STDIN else os.stat(path)  # noqa: PTH116 - a string like the rest of it
        except (OSError, ValueError) as error:
            raise AudioError(f"{source}: cannot be read: {getattr(error, 'strerror', error)}") from error
        if status is None or not stat.S_ISREG(status.st_mode):
            raise AudioError(f"{source}: cannot be read a second time: go on without a journal, or name a file")
        # Dates before 1970 are negative, which no field may be; a different one it is all the same.
        changed = status.st_mtime_ns % INT_LIMIT
        return cls(path, status.st_size, changed, _fingerprint(model_directory), precision, options, VERSION)

    def differences(self, other: JournalKey) -> list[str]:
        """What differs, by name only: prompts are nobody's business."""
        names = [field.name for field in fields(JournalKey) if field.name != "options"]
        options = [field.name for field in fields(TranscribeOptions)]
        different = [name for name in names if getattr(self, name) != getattr(other, name)]
        changed = [name for name in options if getattr(self.options, name) != getattr(other.options, name)]
        return different + [f"option {name}" for name in changed]


def _fingerprint(directory: Path) -> str:
    """SHA-256 of a model's manifest; where there is none, of its files' names, sizes and dates."""
    manifest = directory / FILE_NAME
    try:
        if manifest.exists():
            return hashlib.sha256(manifest.read_bytes()).hexdigest()
        digest = hashlib.sha256()
        for path in sorted(directory.rglob("*")):
            status = path.stat()
            if stat.S_ISREG(status.st_mode):
                about = [os.fsencode(path.relative_to(directory)).hex(), status.st_size, status.st_mtime_ns]
                digest.update(json.dumps(about).encode())
    except OSError as error:
        raise ModelError(f"{error.filename or directory} cannot be read: {error.strerror}") from error
    return digest.hexdigest()
