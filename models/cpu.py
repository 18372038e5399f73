"""What processor this is, for people: its name, and which instructions for INT8 products it has."""

import platform
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

UNKNOWN = "unknown"

# Best first, by the names that Linux gives features (arch/x86/include/asm/cpufeatures.h, arch/arm64/kernel/cpuinfo.c).
_LEVELS = {
    "amx_int8": "AMX",
    "avx512_vnni": "AVX512-VNNI",
    "avx_vnni": "AVX-VNNI",
    "avx512bw": "AVX512",
    "avx2": "AVX2",
    "sse4_1": "SSE4.1",
    "i8mm": "NEON i8mm",
    "asimddp": "NEON dotprod",
    "asimd": "NEON",
}
_SYSCTLS = {  # what macOS calls them
    "hw.optional.arm.FEAT_I8MM": "i8mm",
    "hw.optional.arm.FEAT_DotProd": "asimddp",
    "hw.optional.neon": "asimd",
    "hw.optional.avx512vnni": "avx512_vnni",
    "hw.optional.avx512bw": "avx512bw",
    "hw.optional.avx2_0": "avx2",
    "hw.optional.sse4_1": "sse4_1",
}
_WINDOWS = {43: "asimddp", 19: "asimd", 41: "avx512bw", 40: "avx2", 37: "sse4_1"}  # IsProcessorFeaturePresent
_WINDOWS_KEY = r"HARDWARE\DESCRIPTION\System\CentralProcessor\0"


@dataclass(frozen=True, slots=True)
class Processor:
    """A processor as its system describes it."""

    name: str
    architecture: str
    """As `platform.machine` has it: `x86_64`, `aarch64`, `arm64`, `AMD64`."""
    simd: str
    """The best instructions for INT8 products that the system tells of; Windows does not tell of VNNI."""


def processor(root: Path = Path("/")) -> Processor:
    """Describes the processor.

    Args:
        root: Where Linux's `proc` is.
    """
    name, features = _described(root)
    return Processor(name or platform.processor() or UNKNOWN, platform.machine() or UNKNOWN, simd_level(features))


def simd_level(features: Iterable[str]) -> str:
    """The best level among features by Linux's names."""
    present = set(features)
    return next((level for feature, level in _LEVELS.items() if feature in present), UNKNOWN)


def _described(root: Path) -> tuple[str, set[str]]:
    if sys.platform == "darwin":
        return _macos()
    if sys.platform == "win32":
        return _windows()
    return _linux(root)


def _linux(root: Path) -> tuple[str, set[str]]:
    """From the first processor of /proc/cpuinfo; ARM's has numbers in place of a name."""
    try:
        text = (root / "proc/cpuinfo").read_text(errors="replace")
    except OSError:
        return "", set()
    lines = (line.partition(":") for line in text.partition("\n\n")[0].splitlines())
    fields = {key.strip(): value.strip() for key, _, value in lines}
    numbers = [f"{key.removeprefix('CPU ')} {fields[key]}" for key in ("CPU implementer", "CPU part") if key in fields]
    features = fields.get("flags", fields.get("Features", ""))
    return fields.get("model name", "") or ", ".join(numbers), set(features.split())


def _macos() -> tuple[str, set[str]]:
    """From `sysctl`, which leaves out what it does not know."""
    command = ["/usr/sbin/sysctl", "machdep.cpu.brand_string", *_SYSCTLS]
    try:
        text = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False).stdout  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return "", set()
    fields = dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)
    present = {feature for key, feature in _SYSCTLS.items() if fields.get(key, "0") != "0"}
    return fields.get("machdep.cpu.brand_string", ""), present


def _windows() -> tuple[str, set[str]]:
    """From the registry and IsProcessorFeaturePresent (processthreadsapi.h)."""
    if sys.platform != "win32":
        raise NotImplementedError
    import ctypes  # noqa: PLC0415  # there is no registry elsewhere
    import winreg  # noqa: PLC0415

    with winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, _WINDOWS_KEY) as key:
        name = str(winreg.QueryValueEx(key, "ProcessorNameString")[0]).strip()
    is_present = ctypes.windll.kernel32.IsProcessorFeaturePresent
    return name, {feature for number, feature in _WINDOWS.items() if is_present(number)}
