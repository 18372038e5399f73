"""Processors as Linux, macOS and Windows describe them, and memory, on made-up files and answers."""

from __future__ import annotations

import platform
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from susurrus.models import cpu
from susurrus.models.cpu import UNKNOWN, processor, simd_level
from susurrus.models.memory import Memory, memory

if TYPE_CHECKING:
    from pathlib import Path

X86 = """processor\t: 0
vendor_id\t: GenuineIntel
model name\t: Some Xeon: 8th of its kind
flags\t\t: fpu sse4_1 avx avx2 {more}

processor\t: 1
model name\t: Another
flags\t\t: fpu amx_int8
"""
ARM = """processor\t: 0
BogoMIPS\t: 50.00
Features\t: fp asimd evtstrm {more}
CPU implementer\t: 0x41
CPU architecture: 8
CPU part\t: 0xd0c

processor\t: 1
"""


def machine(root: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Linux machine with that /proc/cpuinfo."""
    monkeypatch.setattr(sys, "platform", "linux")
    (root / "proc").mkdir()
    (root / "proc/cpuinfo").write_text(text)
    return root


@pytest.mark.parametrize(
    ("more", "level"),
    [
        ("", "AVX2"),
        ("avx512f", "AVX2"),
        ("avx512f avx512bw", "AVX512"),
        ("avx_vnni", "AVX-VNNI"),
        ("avx512bw avx512_vnni", "AVX512-VNNI"),
        ("avx512bw avx512_vnni amx_tile amx_int8", "AMX"),
    ],
)
def test_linux_on_x86_names_the_first_processor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: str, level: str
) -> None:
    found = processor(machine(tmp_path, X86.format(more=more), monkeypatch))
    assert (found.name, found.simd) == ("Some Xeon: 8th of its kind", level)
    assert found.architecture == platform.machine()


@pytest.mark.parametrize(("more", "level"), [("", "NEON"), ("asimddp", "NEON dotprod"), ("asimddp i8mm", "NEON i8mm")])
def test_linux_on_arm_has_numbers_for_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: str, level: str
) -> None:
    found = processor(machine(tmp_path, ARM.format(more=more), monkeypatch))
    assert (found.name, found.simd) == ("implementer 0x41, part 0xd0c", level)


def test_what_is_not_told_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "processor", lambda: "")
    monkeypatch.setattr(sys, "platform", "linux")
    found = processor(tmp_path)
    assert (found.name, found.simd) == (UNKNOWN, UNKNOWN)
    assert simd_level(["fpu"]) == UNKNOWN


@pytest.mark.parametrize(
    ("answer", "name", "level"),
    [
        ("Apple M4\nhw.optional.arm.FEAT_DotProd: 1\nhw.optional.neon: 1\n", "Apple M4", "NEON dotprod"),
        ("Intel i7: 9750H\nhw.optional.avx2_0: 1\nhw.optional.avx512bw: 0\n", "Intel i7: 9750H", "AVX2"),
        ("", "arm", UNKNOWN),
    ],
)
def test_macos_is_asked_by_sysctl(monkeypatch: pytest.MonkeyPatch, answer: str, name: str, level: str) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(platform, "processor", lambda: "arm")
    said = subprocess.CompletedProcess("", 1, stdout=f"machdep.cpu.brand_string: {answer}" if answer else "")
    monkeypatch.setattr(subprocess, "run", lambda *_arguments, **_options: said)
    found = processor()
    assert (found.name, found.simd) == (name, level)


def test_windows_is_asked_through_its_own_branch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(cpu, "_windows", lambda: ("Ryzen", {"avx2"}))
    assert (processor().name, processor().simd) == ("Ryzen", "AVX2")


def test_this_machine_is_known() -> None:
    assert processor().architecture == platform.machine()
    if sys.platform == "linux":
        assert processor().simd != UNKNOWN


def test_memory_is_what_is_left_in_the_container(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text(
        "MemTotal:  16000000 kB\nMemFree: 1 kB\nMemAvailable: 8000000 kB\nHugePages: 0\n"
    )
    assert memory(tmp_path) == Memory(16.38, 8.19, None)
    assert memory(tmp_path).usable == 8.19
    (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup/memory.max").write_text("500000000\n")
    assert memory(tmp_path).usable == 0.5
    (tmp_path / "sys/fs/cgroup/memory.max").write_text("max\n")
    assert memory(tmp_path).limit is None


def test_memory_that_is_not_told_is_none(tmp_path: Path) -> None:
    assert memory(tmp_path).usable is None
