"""Where a job's journal is, and its file: this user's alone, and one run's at a time."""

from __future__ import annotations

import hashlib
import os
import re
import stat
import sys
from pathlib import Path

from susurrus.models.errors import SusurrusError
from susurrus.models.provisioning.manifest import sync_folder

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

VARIABLE = "SUSURRUS_STATE"
"""Environment variable that names the folder in which the folder of journals is."""


class JournalError(SusurrusError):
    """A journal cannot be written, or is not one that this run may go on from."""


def default_path(source: str) -> Path:
    """Where the journal of a recording is when the user names no other place.

    Raises:
        JournalError: the user has no home, and SUSURRUS_STATE names no folder.
    """
    path = os.path.abspath(source)  # noqa: PTH100 - as in JournalKey
    digest = hashlib.sha256(os.fsencode(path)).hexdigest()[:16]
    tail = re.sub(r"[^\w.-]+", "_", os.path.basename(path))[-40:]  # noqa: PTH119 - of a string
    return _state_folder() / "journals" / f"{digest}-{tail}.jsonl"


def _state_folder() -> Path:
    if os.environ.get(VARIABLE):
        return Path(os.path.abspath(os.environ[VARIABLE]))  # noqa: PTH100 - processes have folders of their own
    import platformdirs  # noqa: PLC0415 - not needed where a place is named

    try:
        path = platformdirs.user_state_path("susurrus")
    except RuntimeError:  # no HOME and no passwd entry
        path = Path()
    if not path.is_absolute():  # older versions of platformdirs leave "~" as it is
        raise JournalError(f"this user has no home folder: set {VARIABLE} to a folder for journals")
    return path


def make_folder(folder: Path) -> None:
    """Make a folder and those above it, for this user alone; a power cut does not undo it.

    Raises:
        OSError: it cannot be made.
        ValueError: its name has a null byte.
    """
    if folder.is_dir():
        return
    make_folder(folder.parent)
    folder.mkdir(mode=0o700, exist_ok=True)
    sync_folder(folder.parent)


def open_private(path: Path) -> int:
    """Open the file for this run alone, made if it is not there.

    Raises:
        OSError: it cannot be opened.
        JournalError: it is no regular file, not this user's alone, or in use.
    """
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    if path.is_symlink():
        raise JournalError(f"{path}: a link, which is not followed: name the file itself")
    descriptor = os.open(path, flags | getattr(os, "O_BINARY", 0), 0o600)
    try:
        _refuse_unsafe(path, os.fstat(descriptor))
        _lock(path, descriptor)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _refuse_unsafe(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise JournalError(f"{path}: not a regular file: name another one")
    if sys.platform == "win32":
        return
    if status.st_uid != os.geteuid():
        raise JournalError(f"{path}: belongs to user {status.st_uid}, not to you: name another file")
    if status.st_mode & 0o077:
        mode = stat.S_IMODE(status.st_mode)
        raise JournalError(f"{path}: open to other users (mode {mode:04o}): run `chmod 600` on it")


def _lock(path: Path, descriptor: int) -> None:
    """Lock an open file without waiting; the kernel releases it however the process ends."""
    try:
        if sys.platform == "win32":
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        free = is_still(descriptor, path)  # the run that had it may have removed it since it was opened here
    except OSError:
        free = False
    if not free:
        raise JournalError(f"{path}: in use by another run: wait for it, or name another file")


def is_still(descriptor: int, path: Path) -> bool:
    """Whether `path` is the file that is open."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except OSError:
        return False


def unwritable(path: Path, error: Exception) -> JournalError:
    """What to raise when the system refuses."""
    reason = getattr(error, "strerror", error)
    return JournalError(f"{path}: cannot be written: {reason}: name a file elsewhere, or make room on the disk")
