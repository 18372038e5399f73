"""Checkpoint files mapped into memory, and the tensors that lie in them."""

import math
import mmap
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from susurrus.models.errors import ModelError

FloatArray = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """Where one tensor lies: bytes [offset, offset + size) of the joined files."""

    shape: tuple[int, ...]
    dtype: str
    """A little-endian numpy type, or `bfloat16`, which numpy does not have."""
    offset: int
    """Bytes from the start of the first file."""
    size: int
    """Bytes."""

    @property
    def fits(self) -> bool:
        """Whether `size` is what shape and type need."""
        item = 2 if self.dtype == "bfloat16" else np.dtype(self.dtype).itemsize
        return self.size == math.prod(self.shape) * item


class JoinedFiles:
    """Read-only mapped files, seen as one run of bytes.

    Args:
        parts: The files in order.

    Raises:
        ModelError: A file cannot be opened.
    """

    def __init__(self, parts: Sequence[Path]) -> None:
        self.name = str(parts[0]) + (f" (and {len(parts) - 1} more)" if len(parts) > 1 else "")
        self._maps = [_mapped(part) for part in parts]
        self._starts = [0, *accumulate(len(content) for content in self._maps)]

    def __len__(self) -> int:
        return self._starts[-1]

    def read(self, offset: int, size: int) -> bytes | memoryview:
        """Returns `size` bytes: a view, or a copy where they lie across two files.

        Raises:
            ModelError: The files end before that.
        """
        if min(offset, size) < 0 or offset + size > len(self):
            raise ModelError(f"{self.name} is truncated after {len(self)} bytes: fetch the file again")
        index = bisect_right(self._starts, offset, hi=len(self._maps)) - 1
        start = offset - self._starts[index]
        piece = memoryview(self._maps[index])[start : start + size]
        if len(piece) == size:
            return piece
        return bytes(piece) + bytes(self.read(offset + len(piece), size - len(piece)))

    def array(self, entry: TensorEntry) -> FloatArray:
        """Reads a tensor as float32."""
        raw = self.read(entry.offset, entry.size)
        if entry.dtype == "bfloat16":  # the upper half of a float32
            values = (np.frombuffer(raw, "<u2").astype(np.uint32) << 16).view(np.float32)
        else:
            values = np.frombuffer(raw, entry.dtype).astype(np.float32)
        return values.reshape(entry.shape)


def _mapped(path: Path) -> mmap.mmap | bytes:
    try:
        with path.open("rb") as file:
            if not path.stat().st_size:
                return b""  # an empty file cannot be mapped
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror or error}") from error
