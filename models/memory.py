"""How much memory this process may take."""

from dataclasses import dataclass
from pathlib import Path

_KILOBYTE, _GIGABYTE = 1024, 1e9


@dataclass(frozen=True, slots=True)
class Memory:
    """Gigabytes (10^9 bytes); None for what this system does not tell in a file, as all but Linux."""

    total: float | None
    available: float | None
    """What can be had without swapping."""
    limit: float | None
    """Of the process's container (cgroup v2 `memory.max`)."""

    @property
    def usable(self) -> float | None:
        """What is left for us at most."""
        return min((size for size in (self.available, self.limit) if size is not None), default=None)


def memory(root: Path = Path("/")) -> Memory:
    """Reads it.

    Args:
        root: Where `proc` and `sys` are.
    """
    lines = (line.split() for line in _read(root / "proc/meminfo").splitlines())
    kilobytes = {fields[0]: fields[1] for fields in lines if len(fields) > 1}
    limit = _read(root / "sys/fs/cgroup/memory.max").strip()
    return Memory(
        _gigabytes(kilobytes.get("MemTotal:", ""), _KILOBYTE),
        _gigabytes(kilobytes.get("MemAvailable:", ""), _KILOBYTE),
        _gigabytes(limit, 1),
    )


def _gigabytes(digits: str, unit: int) -> float | None:
    return round(int(digits) * unit / _GIGABYTE, 2) if digits.isdecimal() else None


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, ValueError):
        return ""
