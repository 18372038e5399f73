"""Files that are one user's alone: connection files and keys.

A file is judged by the descriptor it was opened with, so nothing can be put in its place between the look and the
reading: its owner is this user, nobody else may read or write it (mode 0600), it is a regular file and no link. The
folder that holds it must not let everybody rename files in it, unless it is sticky, as /tmp is.
"""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

from susurrus.protocol.errors import WireError

MAX_BYTES = 64 * 1024


def write_private(path: Path, text: str, error: type[WireError], *, replace: bool = True) -> None:
    """Write a file of mode 0600 whatever the umask; whoever sees it sees all of it.

    Args:
        path: Where to.
        text: All of it.
        error: Raised when it cannot be written.
        replace: Whether a file that is there already may be replaced.

    Raises:
        WireError: `error`: it cannot be written, or is there already.
    """
    temporary = path.with_name(f".{path.name}.{os.urandom(4).hex()}") if replace else path
    try:
        with open(temporary, "x", encoding="utf-8", opener=_opener) as file:
            file.write(text)
        temporary.replace(path)
    except FileExistsError:
        raise error(f"{path}: exists already; it is not overwritten") from None
    except OSError as failure:
        temporary.unlink(missing_ok=True)
        raise error(f"{path}: cannot be written ({failure.strerror})") from None


def read_private(path: Path, error: type[WireError], *, missing: str) -> bytes:
    """The file's bytes, at most MAX_BYTES; refused before they are read unless the file is this user's alone.

    Args:
        path: The file.
        error: Raised when it is refused.
        missing: What is said of a file that is not there.

    Raises:
        WireError: `error`: it is missing, no regular file, belongs to another user, or is open to others.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except FileNotFoundError:
        raise error(f"{path}: {missing}") from None
    except (OSError, ValueError) as failure:  # ValueError: a NUL in the path
        reason = failure.strerror if isinstance(failure, OSError) else failure
        raise error(f"{path}: cannot be read ({reason})") from None
    try:
        refusal = _refusal(path, os.fstat(descriptor))
        if refusal:
            raise error(f"{path}: {refusal}")
        return os.read(descriptor, MAX_BYTES)
    except OSError as failure:
        raise error(f"{path}: cannot be read ({failure.strerror})") from None
    finally:
        os.close(descriptor)


def _opener(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _refusal(path: Path, status: os.stat_result) -> str:
    """Why an opened file is not used; empty when it is as it should be."""
    if not stat.S_ISREG(status.st_mode):
        return "not a regular file"
    if sys.platform == "win32":
        return ""
    if status.st_uid != os.geteuid():
        return f"belongs to user {status.st_uid}, not to you; not used"
    if status.st_mode & 0o077:
        return f"open to other users (mode {stat.S_IMODE(status.st_mode):04o}); run `chmod 600` on it"
    folder = path.absolute().parent
    mode = folder.stat().st_mode
    if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
        return f"others could replace it; run `chmod o-w` on {folder}"
    return ""
