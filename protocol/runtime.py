"""The private folder of one pipeline: its sockets and its connection file live there, nobody else gets in.

One folder `susurrus-XXXXXXXX` (mode 0700, random name) per pipeline, in the first of these that is safe and
short enough: $XDG_RUNTIME_DIR, the temporary folder, /tmp. A socket's path may have 107 bytes at most, so a
deep TMPDIR is passed over. The pipeline holds an exclusive lock on the file `lock` in it until its process
ends, however it ends: a folder whose lock is free was left behind by a killed run and is removed by the next
start.

The lock is `flock` (on Windows a locked byte, `msvcrt.locking`), which the kernel releases at SIGKILL; a pid
in a file would not do, since pids are used again.
"""

from __future__ import annotations

import os
import shutil
import stat
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

from susurrus.protocol.errors import RuntimeFolderError
from susurrus.protocol.transport import SOCKET_PATH_LIMIT

if TYPE_CHECKING:
    from types import TracebackType

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

PREFIX = "susurrus-"
LOCK_NAME = "lock"
LONGEST_NAME = f"{PREFIX}12345678/frontend-12345678"
"""What is appended to the parent at most: the folder and a socket in it."""
_ATTEMPTS = 10


class RuntimeFolder:
    """The private folder of one pipeline, from creation to `close`. A context manager."""

    def __init__(self, path: Path, lock: int) -> None:
        self.path = path
        self._lock = lock
        self._owner = os.getpid()

    @classmethod
    def create(cls) -> Self:
        """Make the folder, after removing those that killed runs left behind.

        Raises:
            RuntimeFolderError: No parent is private enough, short enough and writable.
        """
        reasons = []
        for parent in candidates():
            reason = unusable(parent)
            if reason is None:
                remove_abandoned(parent)
                try:
                    return cls._create_in(parent)
                except OSError as error:
                    reason = error.strerror or str(error)
            reasons.append(f"{parent}: {reason}")
        raise RuntimeFolderError(
            "no private folder for the sockets; set XDG_RUNTIME_DIR to a short path of mode 0700 of your own "
            f"({'; '.join(reasons)})"
        )

    @classmethod
    def _create_in(cls, parent: Path) -> Self:
        """A new folder with its lock held.

        Between making the folder and locking it another start may take it for an abandoned one and remove it;
        then another is made.
        """
        for _ in range(_ATTEMPTS):
            path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))  # mode 0700
            try:
                lock = os.open(path / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            except FileNotFoundError:
                continue
            if _take(lock) and _is_still(lock, path / LOCK_NAME):
                return cls(path, lock)
            os.close(lock)
            shutil.rmtree(path, ignore_errors=True)
        raise OSError("new folders in it vanish")

    def close(self) -> None:
        """Remove the folder and all in it. Idempotent; does nothing in a forked copy of the process."""
        if self._lock >= 0 and os.getpid() == self._owner:
            os.close(self._lock)
            self._lock = -1
            shutil.rmtree(self.path, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def candidates() -> list[Path]:
    """Folders that may hold runtime folders, best first; without links, which could point elsewhere tomorrow."""
    found = [Path(os.environ["XDG_RUNTIME_DIR"])] if os.environ.get("XDG_RUNTIME_DIR") else []
    with suppress(FileNotFoundError):
        found.append(Path(tempfile.gettempdir()))
    if os.name == "posix":
        found.append(Path("/tmp"))  # noqa: S108  its mode is checked, and the names in it are random
    return list(dict.fromkeys(folder.resolve() for folder in found))


def unusable(parent: Path) -> str | None:
    """Why no runtime folder may be made in `parent`; None when it may.

    $XDG_RUNTIME_DIR must be the user's own with mode 0700 (its specification says so). Others may be shared
    if they are sticky and the system's, as /tmp is: then nobody can rename our folder and put another in its
    place. Nor may everybody be able to rename a folder further up.
    """
    if len(os.fsencode(parent / LONGEST_NAME)) > SOCKET_PATH_LIMIT:
        return f"too long for the {SOCKET_PATH_LIMIT} bytes of a socket's path"
    try:
        status = parent.stat()
    except OSError as error:
        return error.strerror or str(error)
    if not stat.S_ISDIR(status.st_mode):
        return "not a folder"
    if sys.platform == "win32":
        return None
    if any(_is_open(above) for above in parent.parents):
        return "others could replace a folder above it"
    private = status.st_uid == os.geteuid() and not status.st_mode & 0o022
    if parent == Path(os.environ.get("XDG_RUNTIME_DIR", os.devnull)).resolve():
        return None if private and not status.st_mode & 0o077 else "not yours alone (mode 0700)"
    shared = status.st_uid in (0, os.geteuid()) and status.st_mode & stat.S_ISVTX
    return None if private or shared else "others could replace folders in it"


def runtime_folders(parent: Path) -> list[Path]:
    """Runtime folders in `parent` that belong to this user, living or not."""
    try:
        found = list(parent.glob(f"{PREFIX}*"))
    except OSError:
        return []
    return [path for path in found if _is_own_folder(path)]


def is_live(folder: Path) -> bool:
    """Whether the pipeline of a runtime folder lives: whether somebody holds its lock. Changes nothing."""
    try:
        lock = os.open(folder / LOCK_NAME, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0))
    except OSError:
        return False
    try:
        return not _take(lock, shared=True)
    finally:
        os.close(lock)


def remove_abandoned(parent: Path) -> None:
    """Remove the runtime folders in `parent` that killed runs left behind."""
    for folder in runtime_folders(parent):
        try:
            lock = os.open(folder / LOCK_NAME, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0))
        except OSError:
            with suppress(OSError):
                folder.rmdir()  # killed before it made its lock; refuses if anything is in it
            continue
        abandoned = _take(lock)
        if abandoned:  # removed with the lock held, or a start that was just about to take it would lose its folder
            shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)
        if abandoned:
            shutil.rmtree(folder, ignore_errors=True)  # Windows kept the lock file as long as it was open


def _is_open(folder: Path) -> bool:
    """Whether everybody may rename what is in a folder: it is theirs to write and not sticky."""
    try:
        mode = folder.stat().st_mode
    except OSError:
        return True
    return bool(mode & stat.S_IWOTH) and not mode & stat.S_ISVTX


def _is_own_folder(path: Path) -> bool:
    try:
        status = path.lstat()
    except OSError:
        return False
    mine = sys.platform == "win32" or (status.st_uid == os.geteuid() and not status.st_mode & 0o077)
    return mine and stat.S_ISDIR(status.st_mode)


def _take(lock: int, *, shared: bool = False) -> bool:
    """Lock an open file without waiting; shared is enough to see whether another holds it."""
    try:
        if sys.platform == "win32":
            msvcrt.locking(lock, msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(lock, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _is_still(lock: int, path: Path) -> bool:
    """Whether `path` is the file that `lock` has open."""
    try:
        return os.path.samestat(os.fstat(lock), path.stat())
    except OSError:
        return False
