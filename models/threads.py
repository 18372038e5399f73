"""How many CPUs this process may really use.

A container sees all cores of its host, but may have been given a part of them: as a CPU set, or as a quota of CPU time
(Linux `Documentation/admin-guide/cgroup-v2.rst`, cpu.max; cgroup-v1 `cpu.cfs_quota_us`). More threads than that make
the scheduler stop them in the middle of a step.
"""

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

_CONTROLLERS = ("cpu", "cpu,cpuacct", "cpuacct,cpu")  # folder names of the cgroup v1 CPU controller


def usable_cpus(root: Path = Path("/")) -> int:
    """Counts CPUs: those of the process's CPU set, or fewer if a cgroup's quota says so.

    A quota is rounded down (1.5 CPUs are 1 thread: the second would be stopped every other period, and the first would
    wait for it), but never to 0.

    Args:
        root: Where `proc` and `sys` are.
    """
    return max(1, min([_affinity(), *(int(quota) for quota in cpu_quotas(root))]))


def cpu_quotas(root: Path = Path("/")) -> list[float]:
    """CPUs that the process's cgroup and each of its ancestors may use; unlimited ones are left out.

    Args:
        root: Where `proc` and `sys` are.
    """
    return [quota for folder in _cgroups(root) if (quota := _quota(folder)) is not None]


def _affinity() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    count = getattr(os, "process_cpu_count", os.cpu_count)  # the former from Python 3.13 on
    return count() or 1


def _cgroups(root: Path) -> Iterator[Path]:
    """The folders of the process's cgroup and its ancestors, v2 and v1, that can be seen from here.

    Inside a container the path may be the host's, of which nothing is mounted: its missing folders are harmless.
    """
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers and "cpu" not in controllers.split(","):
            continue
        for mount in _CONTROLLERS if controllers else ("",):
            inside = PurePosixPath(path.lstrip("/"))
            yield from (root / "sys/fs/cgroup" / mount / folder for folder in (inside, *inside.parents))


def _quota(folder: Path) -> float | None:
    """CPUs, from `cpu.max` ("max 100000" or "150000 100000") or the two files of cgroup v1 (-1 is unlimited)."""
    fields = _read(folder / "cpu.max").split()
    if len(fields) != 2:
        fields = [_read(folder / f"cpu.cfs_{name}_us").strip() for name in ("quota", "period")]
    if not all(field.isdecimal() for field in fields) or not int(fields[1]):
        return None
    return int(fields[0]) / int(fields[1])


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, ValueError):
        return ""
