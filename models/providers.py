"""Execution providers: what of ONNX Runtime runs the graphs.

A provider has ONNX Runtime's name in short: `cpu`, `cuda`, `coreml`, `openvino`, `dml`. Which there are depends on the
installed package. Behind every other one stands the CPU, for the nodes that it does not take: most of the INT8 graphs,
whose operators are ONNX Runtime's own.
"""

from susurrus.models.errors import OptionError

CPU = "cpu"

Choice = str | tuple[str, dict[str, str]]
"""A provider by ONNX Runtime's name, alone or with its options."""

_SUFFIX = "ExecutionProvider"
_CPU_PROVIDER = f"CPU{_SUFFIX}"
_ALIASES = {"directml": "dml", "trt": "tensorrt"}
_REMOTE = {"azure"}  # sends its inputs to a server: nothing here does that
_BEHIND = {"tensorrt": "cuda"}  # takes what the former does not, as ONNX Runtime's documentation has it
_THREADS_OPTIONS = {"openvino": "num_of_threads", "xnnpack": "intra_op_num_threads"}  # those with threads of their own
_PACKAGES = {
    "cuda": "onnxruntime-gpu",
    "dml": "onnxruntime-directml",
    "migraphx": "onnxruntime-migraphx",
    "openvino": "onnxruntime-openvino",
    "qnn": "onnxruntime-qnn",
    "tensorrt": "onnxruntime-gpu",
}


def available_providers() -> tuple[str, ...]:
    """Names of what the installed ONNX Runtime offers, in its order of preference; the CPU is last."""
    return tuple(_offered())


def check_provider(provider: str) -> None:
    """Finds out whether a provider can be asked for.

    Raises:
        OptionError: It does not exist, or the installed ONNX Runtime lacks it.
    """
    execution_providers(provider)


def execution_providers(provider: str, threads: int = 1) -> list[Choice]:
    """ONNX Runtime's names for a provider, with the CPU behind it for what it cannot do.

    Args:
        provider: Its name; capitals do not matter.
        threads: For a provider that has threads of its own.

    Raises:
        OptionError: It does not exist, or the installed ONNX Runtime lacks it.
    """
    name = _ALIASES.get(provider.lower(), provider.lower())
    if name == CPU:
        return [_CPU_PROVIDER]
    offered = _offered()
    if name not in offered:
        raise OptionError(_complaint(name, offered))
    options = {_THREADS_OPTIONS[name]: str(threads)} if name in _THREADS_OPTIONS else {}
    behind = [offered[other] for other in (_BEHIND.get(name),) if other in offered]
    return [(offered[name], options), *behind, _CPU_PROVIDER]


def _offered() -> dict[str, str]:
    """Our name to ONNX Runtime's."""
    import onnxruntime as ort  # noqa: PLC0415  # 0.2 s, which nobody waits for who only names the CPU

    return _by_name(ort.get_available_providers())


def _by_name(providers: list[str]) -> dict[str, str]:
    names = {provider.removesuffix(_SUFFIX).lower(): provider for provider in providers}
    return {name: provider for name, provider in names.items() if name not in _REMOTE}


def _complaint(name: str, offered: dict[str, str]) -> str:
    import onnxruntime as ort  # noqa: PLC0415  # see above

    there = f"ONNX Runtime {ort.__version__} has {', '.join(offered)}"
    if name not in _by_name(ort.get_all_providers()):
        return f"provider {name!r} does not exist: the installed {there}"
    if name in _PACKAGES:
        return f"provider {name} is not installed ({there}): install {_PACKAGES[name]} in place of onnxruntime"
    return f"provider {name} is not in this package of ONNX Runtime ({there}): choose one that is, or build it with it"
