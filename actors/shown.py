"""What a console has shown, kept outside of it: one that takes the place of a lost one goes on where that ended.

A file in the pipeline's runtime folder, a record for every write. Between a write and its record lie microseconds; a
console that is killed there has its last piece of text shown twice. So has one that cannot write it down any more,
on a full disk: showing goes on.
"""

from __future__ import annotations

import contextlib
import os
import struct
from pathlib import Path

_RECORD = struct.Struct("<16sQ?")  # job, characters of its text, whether that is all


class Shown:
    """Belongs to the console's only thread."""

    def __init__(self, path: Path | None = None) -> None:
        """Read what an earlier console has noted.

        Args:
            path: of the file; None: nobody will take our place, and nothing is kept.
        """
        self._file = -1
        self._characters: dict[bytes, int] = {}
        self._ended: set[bytes] = set()
        if path is None:
            return
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0), 0o600)
        data = path.read_bytes()
        whole = data[: len(data) // _RECORD.size * _RECORD.size]
        os.ftruncate(self._file, len(whole))  # of one that was cut short nothing is left
        for job, characters, ended in _RECORD.iter_unpack(whole):
            self._remember(job, characters, ended=ended)

    def characters(self, job: bytes) -> int:
        """How much of a job's text was shown."""
        return self._characters.get(job, 0)

    def has_ended(self, job: bytes) -> bool:
        """Whether all of it was, and its end was told."""
        return job in self._ended

    def note(self, job: bytes, characters: int, *, ended: bool = False) -> None:
        """So much of a job's text is shown now."""
        if self._file >= 0 and (ended or characters != self._characters.get(job)):
            with contextlib.suppress(OSError):
                os.write(self._file, _RECORD.pack(job, characters, ended))
            self._remember(job, characters, ended=ended)

    def close(self) -> None:
        """Close the file. Idempotent."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _remember(self, job: bytes, characters: int, *, ended: bool) -> None:
        if ended:
            self._ended.add(job)
            self._characters.pop(job, None)
        else:
            self._characters[job] = characters
