"""CPUs that may really be used: CPU set, cgroup v2 and v1 quotas, on made-up file trees."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from susurrus.models.threads import cpu_quotas, usable_cpus

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


@pytest.fixture(autouse=True)
def _sixteen_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(16)), raising=False)


def tree(root: Path, files: Mapping[str, str]) -> Path:
    """Writes files below `root`."""
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    return root


def test_without_cgroups_the_cpu_set_counts(tmp_path: Path) -> None:
    assert usable_cpus(tmp_path) == 16


def test_without_cpu_sets_the_processes_cpus_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "process_cpu_count", lambda: 5, raising=False)
    assert usable_cpus(tmp_path) == 5


@pytest.mark.parametrize(
    ("limit", "cpus"),
    [
        ("max 100000\n", 16),
        ("400000 100000\n", 4),
        ("150000 100000\n", 1),  # rounded down
        ("299999 100000\n", 2),
        ("50000 100000\n", 1),  # never none
        ("100000000 100000\n", 16),  # more than there are
        ("1000 0\n", 16),
        ("nonsense\n", 16),
        ("", 16),
    ],
)
def test_a_v2_quota_is_rounded_down_to_whole_cpus(tmp_path: Path, limit: str, cpus: int) -> None:
    files = {"proc/self/cgroup": "0::/app\n", "sys/fs/cgroup/app/cpu.max": limit}
    assert usable_cpus(tree(tmp_path, files)) == cpus


def test_the_tightest_ancestor_counts(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "0::/slice/service/app\n",
        "sys/fs/cgroup/slice/cpu.max": "300000 100000",
        "sys/fs/cgroup/slice/service/cpu.max": "max 100000",
        "sys/fs/cgroup/slice/service/app/cpu.max": "800000 100000",
    }
    assert usable_cpus(tree(tmp_path, files)) == 3
    assert sorted(cpu_quotas(tmp_path)) == [3, 8]


def test_a_containers_own_root_counts_where_the_hosts_path_is_not_mounted(tmp_path: Path) -> None:
    files = {"proc/self/cgroup": "0::/docker/0123456789ab\n", "sys/fs/cgroup/cpu.max": "200000 100000"}
    assert usable_cpus(tree(tmp_path, files)) == 2


@pytest.mark.parametrize("controllers", ["cpu", "cpu,cpuacct", "cpuacct,cpu"])
@pytest.mark.parametrize(("quota", "cpus"), [("-1", 16), ("250000", 2)])
def test_a_v1_quota_counts_whatever_its_controller_is_mounted_with(
    tmp_path: Path, controllers: str, quota: str, cpus: int
) -> None:
    folder = f"sys/fs/cgroup/{controllers}/box"
    files = {
        "proc/self/cgroup": f"5:memory:/other\n4:{controllers}:/box\n",
        f"{folder}/cpu.cfs_quota_us": quota,
        f"{folder}/cpu.cfs_period_us": "100000",
    }
    assert usable_cpus(tree(tmp_path, files)) == cpus


def test_other_controllers_folders_are_not_read(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "7:cpuset:/box\n",
        "sys/fs/cgroup/cpu/box/cpu.cfs_quota_us": "100000",
        "sys/fs/cgroup/cpu/box/cpu.cfs_period_us": "100000",
    }
    assert usable_cpus(tree(tmp_path, files)) == 16


def test_this_machine_has_a_usable_cpu() -> None:
    assert usable_cpus() >= 1
