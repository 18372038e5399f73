"""One file of the Hugging Face hub at a pinned revision: from the local cache, or downloaded.

huggingface_hub takes a third of a second to import and is imported by the first call only. Its
`hf_hub_download` throws away what a killed process had fetched, `http_get` below it goes on from there.
"""

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from susurrus.models.errors import ModelError
from susurrus.models.provisioning.manifest import Progress

_BAR = "huggingface_hub.http_get"
_TIMEOUT = 10.0  # seconds that the hub may take to answer at all


def cached_file(repository: str, revision: str, name: str) -> Path | None:
    """Return a file that another program has downloaded at this revision; no network is touched."""
    from huggingface_hub import try_to_load_from_cache  # noqa: PLC0415  # a third of a second, only when needed

    path = try_to_load_from_cache(repository, name, revision=revision)
    return Path(path) if isinstance(path, str) and Path(path).is_file() else None


def download(repository: str, revision: str, name: str, *, path: Path, size: int, progress: Progress) -> None:
    """Bring a file of the hub (or of the mirror that HF_ENDPOINT names), going on where `path` ends.

    Args:
        repository: Owner/name on the hub.
        revision: The commit.
        name: The file's name in the repository.
        path: Where the bytes go; may hold the beginning of them.
        size: How many bytes the file has.
        progress: Told the bytes that are there.

    Raises:
        ModelError: If the hub cannot be reached, refuses, or sends another number of bytes.
    """
    if path.exists():
        if path.stat().st_size == size:
            return
        if path.stat().st_size > size:
            path.unlink()
    from huggingface_hub import get_hf_file_metadata, hf_hub_url  # noqa: PLC0415  # a third of a second, only when needed
    from huggingface_hub.file_download import http_get  # noqa: PLC0415
    from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]  # noqa: PLC0415

    endpoint = os.environ.get("HF_ENDPOINT") or None
    url = hf_hub_url(repository, name, revision=revision, endpoint=endpoint)
    try:
        # Asked first because it gives up at once, where http_get tries five times before it does.
        _check_size(get_hf_file_metadata(url, timeout=_TIMEOUT).size, size)
        with _ReportingFile(path, name, size, progress) as file, _without_bars():
            http_get(url, file, resume_size=file.tell(), headers=build_hf_headers(), expected_size=size)
    except Exception as error:  # they come from whichever HTTP client the library's version uses
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise ModelError(f"{name} could not be downloaded from {url.partition(repository)[0]}: {reason}") from error


def _check_size(found: int | None, wanted: int) -> None:
    if found not in {None, wanted}:
        raise ModelError(f"it has {found} bytes there, wanted {wanted}")


class _ReportingFile(io.FileIO):
    """A file opened for appending that tells how long it is after every write."""

    def __init__(self, path: Path, name: str, size: int, progress: Progress) -> None:
        super().__init__(path, "ab")
        self.seek(0, io.SEEK_END)
        self._what, self._size, self._progress = f"downloading {name}", size, progress

    def write(self, block: bytes) -> int:  # type: ignore[override]  # http_get hands over bytes only
        view = memoryview(block)
        while view:
            view = view[super().write(view) :]
        self._progress(self._what, self.tell(), self._size)
        return len(block)


@contextmanager
def _without_bars() -> Iterator[None]:
    """Silence the library's own bars, which no argument of all its versions turns off."""
    # A documented module, whatever mypy makes of how it collects its names.
    from huggingface_hub.utils import (  # type: ignore[attr-defined]  # noqa: PLC0415
        are_progress_bars_disabled,
        disable_progress_bars,
        enable_progress_bars,
    )

    if are_progress_bars_disabled(_BAR):
        yield
        return
    disable_progress_bars(_BAR)
    try:
        yield
    finally:
        enable_progress_bars(_BAR)
