"""What of this machine matters to us, and what is wrong with it: `run.py --doctor`. Transcribes and changes nothing.

An error is what keeps a transcription from being right or from running at all; it names the fix. A warning is what
makes it slower, or what a user may not expect. Nothing here raises: a finding that cannot be made is an error too.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import zmq

from susurrus.actors import exits
from susurrus.actors.lanes import threads_for, workers_for
from susurrus.actors.terminal import Output, OutputClosedError
from susurrus.actors.version import VERSION
from susurrus.models.cpu import processor
from susurrus.models.directories import repair
from susurrus.models.errors import ModelError
from susurrus.models.memory import memory
from susurrus.models.provisioning.places import Kind, available_models, examine, models_directory
from susurrus.models.threads import cpu_quotas, usable_cpus
from susurrus.protocol import EndpointError, Transport
from susurrus.protocol.runtime import LOCK_NAME, candidates, is_live, runtime_folders, unusable

_ENOUGH_MEMORY = 1.0  # GB; what a pipeline with Base takes, and some


@dataclass(slots=True)
class Finding:
    """One thing that was looked at."""

    topic: str
    facts: dict[str, Any] = field(default_factory=dict)
    """For `--json`; people see them in this order, unless empty."""
    warnings: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


def main(*, as_json: bool = False) -> int:
    """Print what was found to standard output; return 0, or `exits.UNHEALTHY` if there is an error."""
    findings = [_look(topic, check) for topic, check in CHECKS.items()]
    out = Output(sys.stdout)
    try:
        for line in [_as_json(findings)] if as_json else _in_words(findings):
            out.say(line)
    except OutputClosedError:
        return exits.OUTPUT_CLOSED
    return exits.UNHEALTHY if any(finding.errors for finding in findings) else exits.OK


def _look(topic: str, check: Callable[[Finding], None]) -> Finding:
    finding = Finding(topic)
    try:
        check(finding)
    except Exception as error:  # noqa: BLE001 - such as a library that cannot be imported: that is what we look for
        finding.errors.append(f"{topic} cannot be looked at ({type(error).__name__}: {error})")
    return finding


def _as_json(findings: list[Finding]) -> str:
    document: dict[str, Any] = {"version": VERSION, **{finding.topic: finding.facts for finding in findings}}
    for kind in ("warnings", "errors"):
        document[kind] = [text for finding in findings for text in getattr(finding, kind)]
    return json.dumps(document, ensure_ascii=False)


def _in_words(findings: list[Finding]) -> Iterator[str]:
    width = max(len(finding.topic) for finding in findings)
    for finding in findings:
        facts = {name.replace("_", " "): value for name, value in finding.facts.items() if value not in (None, "", [])}
        told = "; ".join(f"{name} {_shown(value)}" for name, value in facts.items())
        yield f"{finding.topic.replace('_', ' '):{width}}  {told}"
    for finding in findings:
        yield from (f"warning: {text}" for text in finding.warnings)
    for finding in findings:
        yield from (f"error: {text}" for text in finding.errors)


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(map(_shown, value)) if isinstance(value, (list, tuple)) else str(value)


# --- checks: each adds to its finding -----------------------------------------------------------------------


def _check_processor(finding: Finding) -> None:
    found = processor()
    finding.facts |= {"name": found.name, "architecture": found.architecture, "simd": found.simd}


def _check_cpus(finding: Finding) -> None:
    usable, quota, there = usable_cpus(), min(cpu_quotas(), default=None), os.cpu_count() or 1
    workers = workers_for(usable)
    threads = threads_for(workers, usable)
    finding.facts |= {"usable": usable, "of": there, "quota": quota, "workers": workers, "threads_per_session": threads}
    if quota is not None and quota < there:
        finding.warnings.append(f"a cgroup gives {quota:g} of {there} CPUs: every session takes {threads}")
    if usable == 1:
        finding.warnings.append("only one CPU may be used: encoder and decoder take turns, text comes later")


def _check_memory(finding: Finding) -> None:
    found = memory()
    finding.facts |= {"total_gb": found.total, "available_gb": found.available, "cgroup_limit_gb": found.limit}
    if found.usable is not None and found.usable < _ENOUGH_MEMORY:
        finding.warnings.append(f"{found.usable:g} GB may be used: a pipeline may need {_ENOUGH_MEMORY:g}")


def _check_packages(finding: Finding) -> None:
    from importlib.metadata import PackageNotFoundError, requires, version  # noqa: PLC0415 - 20 ms, for the doctor only

    finding.facts |= {"susurrus": VERSION, "python": sys.version.split()[0]}
    for name in (re.split(r"[^\w.-]", line)[0] for line in requires("susurrus") or [] if "extra ==" not in line):
        try:
            finding.facts[name] = version(name)
        except PackageNotFoundError:
            if name != "onnxruntime":  # whose module other packages bring too; see below
                finding.errors.append(f"{name} is not installed: pip install {name}")


def _check_onnxruntime(finding: Finding) -> None:
    try:
        import onnxruntime as ort  # noqa: PLC0415 - whether it can be imported is the question

        finding.facts["version"] = ort.__version__
    except (ImportError, AttributeError) as error:  # the latter where two packages of it shared a folder
        finding.errors.append(f"onnxruntime is damaged ({error}): pip install --force-reinstall onnxruntime")
        return
    from susurrus.models.providers import available_providers  # noqa: PLC0415 - as above
    from susurrus.models.saturation import products_saturate  # noqa: PLC0415 - as above

    finding.facts |= {"providers": available_providers(), "fast_int8_is_exact": not products_saturate()}


def _check_arithmetic(finding: Finding) -> None:
    from susurrus.models import arithmetic  # noqa: PLC0415 - as above

    for name, error in (("encoder", arithmetic.encoder_error()), ("decoder", arithmetic.decoder_error())):
        finding.facts[f"{name}_error"] = _rounded(error)
        if not error < arithmetic.ROUNDING:
            fix = "use ONNX Runtime 1.30 or newer, or --precision float32"
            text = f"INT8 products of the {name} may be wrong by {error:.1e}: {fix}"
            finding.errors.append(text)
    _check_cross_attention(finding)


def _check_cross_attention(finding: Finding) -> None:
    from susurrus.models.arithmetic import cross_attention_error  # noqa: PLC0415 - as above
    from susurrus.models.graphs.self_test import TOLERANCE  # noqa: PLC0415 - as above

    error, reason = float("nan"), ""
    try:
        error = cross_attention_error()
    except ModelError as failure:
        reason = f" ({str(failure)[:200]})"
    finding.facts["cross_attention_error"] = _rounded(error)
    if not error < TOLERANCE:
        text = (
            f"int8 cross-attention does not work with this ONNX Runtime{reason}: float takes its place, and more time"
        )
        finding.warnings.append(text)


def _rounded(error: float) -> float | None:
    """Two digits; JSON has no NaN."""
    return float(f"{error:.1e}") if error == error else None  # noqa: PLR0124 - NaN is not


def _check_sockets(finding: Finding) -> None:
    finding.facts |= {
        "ipc": zmq.has("ipc"),
        "CURVE": zmq.has("curve"),
        "libzmq": zmq.zmq_version(),
        "pyzmq": zmq.pyzmq_version(),
    }
    try:
        finding.facts["transport"] = Transport.choose(Path()).scheme
    except EndpointError as error:
        finding.errors.append(f"{error}: install pyzmq's own wheel")


def _check_runtime_folder(finding: Finding) -> None:
    reasons = {parent: unusable(parent) for parent in candidates()}
    chosen = next((parent for parent, reason in reasons.items() if reason is None), None)
    folders = [folder for parent in reasons for folder in runtime_folders(parent) if (folder / LOCK_NAME).exists()]
    left = [folder for folder in folders if not is_live(folder)]
    finding.facts |= {
        "place": None if chosen is None else str(chosen),
        "mode": None if chosen is None else f"{chosen.stat().st_mode & 0o7777:04o}",
        "pipelines": len(folders) - len(left),
        "left_behind": [str(folder) for folder in left],
    }
    if left:
        finding.warnings.append(f"killed runs have left {len(left)} folders behind: the next run removes them")
    told = [f"{parent}: {reason}" for parent, reason in reasons.items() if reason is not None]
    if chosen is None:
        fix = "set XDG_RUNTIME_DIR to a short path of mode 0700 of your own"
        finding.errors.append(f"no private folder for the sockets ({'; '.join(told)}): {fix}")
    else:
        finding.warnings += [f"no sockets can be in {text}; they will be in {chosen}" for text in told]


def _check_models(finding: Finding) -> None:
    folder = models_directory()
    finding.facts["folder"] = str(folder)
    for name in available_models():
        path = folder / name
        state = examine(path, name)
        finding.facts[name] = "not provisioned yet" if state.kind is Kind.ABSENT else state.kind.name.lower()
        if state.kind is Kind.READY:
            size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
            finding.facts[name] = f"ready ({', '.join(state.precisions)}, {size / 1e6:.0f} MB)"
        elif state.kind is Kind.OUTDATED:
            finding.warnings.append(f"{state.reason}: its next use builds it again")
        elif state.kind is not Kind.ABSENT:
            finding.errors.append(f"{state.reason}: {repair(path, name)}")


def _check_terminal(finding: Finding) -> None:
    streams = {"stdin": sys.stdin, "stdout": sys.stdout, "stderr": sys.stderr}
    interactive = [name for name, stream in streams.items() if stream is not None and stream.isatty()]
    encodings = sorted({str(stream.encoding).lower() for stream in streams.values() if stream is not None})
    finding.facts |= {"on": interactive or "none", "TERM": os.environ.get("TERM"), "encoding": encodings}


CHECKS: dict[str, Callable[[Finding], None]] = {
    "processor": _check_processor,
    "cpus": _check_cpus,
    "memory": _check_memory,
    "packages": _check_packages,
    "onnxruntime": _check_onnxruntime,
    "arithmetic": _check_arithmetic,
    "sockets": _check_sockets,
    "runtime_folder": _check_runtime_folder,
    "models": _check_models,
    "terminal": _check_terminal,
}
