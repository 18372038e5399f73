"""The journal of one job: what lets a long recording go on after a power cut, or after its hub was killed.

    {"journal":1,"source":"/talks/day 1.wav","size":…,"model":"…","options":{…},…,"crc32":…}
    {"window":0,"attempt":1,"start":0.0,"end":30.0,"text":"…",…,"memory":"…","crc32":…}

JSON lines in UTF-8: the first one says what has to be the same for the rest of the run to give the same text, each
other one is a committed Segment with all its fields but `job` and `seq`, which are of the run. A segment is on the disk
when `append` returns. Every line ends with the CRC-32 of what stands before it, so a line is whole or it is not there.

Whatever stands in the file is treated as hostile. It is private to the user, since it holds what was said.
"""

from __future__ import annotations

import json
import logging
import os
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, NoReturn, Self

from susurrus.actors.journal_file import JournalError, default_path, is_still, make_folder, open_private, unwritable
from susurrus.actors.journal_key import JournalKey
from susurrus.models.provisioning.manifest import sync_folder
from susurrus.protocol import ProtocolError, Segment, encode
from susurrus.protocol.checks import ID_BYTES
from susurrus.protocol.schema import fields_of, pack_fields, unpack_fields

__all__ = ["Journal", "JournalError", "JournalKey", "default_path"]

log = logging.getLogger(__name__)

FORMAT = 1
MAX_LINE_BYTES = 2 * 1024 * 1024

_KEY = fields_of(JournalKey)
_SEGMENT = fields_of(Segment, without={"job", "seq"})
_NO_JOB = bytes(ID_BYTES)
_MAGIC = b'{"journal":'
_CHECKSUM = b',"crc32":'
_DAMAGE = (ValueError, RecursionError, ProtocolError)  # what a line can raise that is not as we write them


class Journal:
    """An open journal; no other run can open it meanwhile. Called by one thread at a time."""

    def __init__(self, path: Path, descriptor: int, committed: tuple[Segment, ...], end: int) -> None:
        self.path = path
        self.committed = committed
        """By the interrupted run, in window order, their job and number all zero; () for a new journal."""
        self._descriptor = descriptor
        self._next = len(committed)
        self._end = end  # bytes of whole lines

    @classmethod
    def open(cls, path: Path, key: JournalKey) -> Self:
        """Begin a journal, or go on with what an interrupted run left.

        What follows the last good line before one that is cut short, damaged or out of order is cut off.

        Args:
            path: the file; folders that are not there are made, for this user alone.
            key: of this run.

        Raises:
            JournalError: the file cannot be written, is no journal, is open to others, is in use, or is of other audio,
                another model, other options or another version.
        """
        try:
            make_folder(path.parent)
            descriptor = open_private(path)
        except (OSError, ValueError) as error:  # ValueError: a null byte, which a client may send
            raise unwritable(path, error) from error
        try:
            committed, end = _recover(path, descriptor, key)
            journal = cls(path, descriptor, tuple(committed), end)
            os.ftruncate(descriptor, end)
            if not end:
                journal._write(_line({"journal": FORMAT} | pack_fields(_KEY, key)))
                sync_folder(path.parent)
        except OSError as error:
            os.close(descriptor)
            raise unwritable(path, error) from error
        except BaseException:
            os.close(descriptor)
            raise
        return journal

    def append(self, segment: Segment) -> None:
        """Put a committed segment on the disk. One that is there already changes nothing.

        Raises:
            JournalError: it cannot be written, or the journal is closed. What was there before still is, and the
                same segment may be tried again.
            ValueError: a window before it is missing.
        """
        if segment.window < self._next:
            return
        if segment.window > self._next:
            raise ValueError(f"window {segment.window} cannot follow {self._next} windows")
        line = _line(pack_fields(_SEGMENT, segment))
        if len(line) > MAX_LINE_BYTES:
            raise JournalError(f"{self.path}: a segment of {len(line)} bytes does not fit: go on without a journal")
        try:
            self._write(line)
        except OSError as error:
            raise unwritable(self.path, error) from error
        self._next += 1

    def close(self, *, finished: bool = False) -> None:
        """Let go of the file; idempotent.

        Args:
            finished: there is nothing to go on with, so the file is removed; else it stays.
        """
        if self._descriptor < 0:
            return
        try:
            # Its name may have been given to another file since; while it is open nobody else can lock it.
            if finished and is_still(self._descriptor, self.path):
                self.path.unlink()
        except OSError as error:
            log.warning("a finished journal cannot be removed", extra={"journal": str(self.path), "reason": str(error)})
        finally:
            os.close(self._descriptor)
            self._descriptor = -1

    def _write(self, line: bytes) -> None:
        """Write a whole line and wait until the disk has it; what there is of one that fails is cut off."""
        try:
            os.lseek(self._descriptor, self._end, os.SEEK_SET)
            written = 0
            while written < len(line):
                written += os.write(self._descriptor, line[written:])
            os.fsync(self._descriptor)
        except OSError:
            with suppress(OSError):  # then the next start does it
                os.ftruncate(self._descriptor, self._end)
            raise
        self._end += len(line)


# --- what the file says -----------------------------------------------------------------------------------------


def _line(fields: dict[str, Any]) -> bytes:
    """One object as a line, with its checksum. Names of files may have surrogates: they stay as JSON's escapes."""
    text = json.dumps(fields, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    body = text.encode("utf-8", "backslashreplace")[:-1]
    return b"%s%s%d}\n" % (body, _CHECKSUM, zlib.crc32(body))


def _parse(line: bytes) -> dict[str, Any]:
    """The object in a line; raises one of _DAMAGE."""
    body, _, checksum = line.rpartition(_CHECKSUM)
    if checksum != b"%d}\n" % zlib.crc32(body):
        raise ValueError("checksum")
    value = json.loads(body + b"}", parse_constant=_refuse_constant)
    if type(value) is not dict:
        raise ValueError("not an object")
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _recover(path: Path, descriptor: int, key: JournalKey) -> tuple[list[Segment], int]:
    """The committed segments and the bytes of the lines that are good; 0 bytes when there is not even a first one."""
    with os.fdopen(descriptor, "rb", closefd=False) as file:
        first = file.readline(MAX_LINE_BYTES)
        if not first.endswith(b"\n") and first[: len(_MAGIC)] == _MAGIC[: len(first)]:
            return [], 0  # new, or its very first write was cut short
        _check_key(path, first, key)
        return _read_segments(path, file, len(first))


def _check_key(path: Path, line: bytes, key: JournalKey) -> None:
    try:
        value = _parse(line)
        if value.get("journal") != FORMAT:
            raise ValueError("format")
        found = JournalKey(**unpack_fields(_KEY, value))
    except _DAMAGE:
        fix = "name another file, or remove this one to start anew"
        raise JournalError(f"{path}: not a journal, or its first line is damaged: {fix}") from None
    if differences := key.differences(found):
        fix = "remove it to start anew, or name another file"
        raise JournalError(f"{path}: the journal of a run with another {', '.join(differences)}: {fix}")


def _read_segments(path: Path, file: BinaryIO, end: int) -> tuple[list[Segment], int]:
    """The segments up to the first line that is not good, and where in the file that is; `end` is where they begin."""
    segments: list[Segment] = []
    while line := file.readline(MAX_LINE_BYTES):
        try:
            segments.append(_segment(line, len(segments)))
        except _DAMAGE:
            about = {"journal": str(path), "window": len(segments)}
            if line.endswith(b"\n") or len(line) == MAX_LINE_BYTES:
                log.warning("a journal is damaged: the windows from there on are done again", extra=about)
            else:
                log.info("the last line of a journal was cut short: its window is done again", extra=about)
            break
        end += len(line)
    return segments, end


def _segment(line: bytes, window: int) -> Segment:
    """The segment in a line, one that can be published; raises one of _DAMAGE."""
    segment = Segment(job=_NO_JOB, **unpack_fields(_SEGMENT, _parse(line)))
    if segment.window != window:
        raise ValueError("out of order")
    encode(segment, sender="journal", instance=_NO_JOB)
    return segment
