"""Disks that are small, full or read-only, for tests that may mount them."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest


@contextlib.contextmanager
def small_disk(*, kib: int) -> Generator[Path, None, None]:
    """A file system of so many KiB, mounted for as long as it takes. Skips the test where nobody may mount one.

    Its path is short: sockets are to fit.
    """
    if os.name != "posix" or os.geteuid() or shutil.which("mount") is None:
        pytest.skip("file systems cannot be mounted here")
    with tempfile.TemporaryDirectory(prefix="disk-") as folder:
        mount = ["mount", "-t", "tmpfs", "-o", f"size={kib}k,mode=0700", "tmpfs", folder]
        if subprocess.run(mount, capture_output=True, check=False).returncode:
            pytest.skip("file systems cannot be mounted here")
        try:
            yield Path(folder)
        finally:
            subprocess.run(["umount", "-l", folder], check=True)


def fill(disk: Path) -> None:
    """Leave no room on it."""
    with contextlib.suppress(OSError), (disk / "ballast").open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


def make_read_only(disk: Path) -> None:
    """From now on nobody may write to it."""
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
