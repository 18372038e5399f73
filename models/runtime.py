"""ONNX Runtime sessions: how they are set up, and whether a graph is the one that was wanted."""

import logging
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import onnxruntime as ort

from susurrus.models.errors import ModelError
from susurrus.models.graphs.contract import GRAPH_FORMAT, Contract, Specs, TensorSpec
from susurrus.models.providers import CPU, Choice, execution_providers
from susurrus.models.saturation import PRECISION_MODE, precision_mode_works, products_saturate
from susurrus.models.threads import usable_cpus

_log = logging.getLogger(__name__)

_told: set[str] = set()  # providers that did not run a graph
_PROVISION_AGAIN = "provision the model again"
_LOG_ERRORS, _LOG_FATAL = 3, 4  # severities: what ONNX Runtime warns about is nothing that a user can act on
_RECORD_ASSIGNMENT = "session.record_ep_graph_assignment_info"
_REASON_LENGTH = 200  # characters of ONNX Runtime's reason: it begins with its own functions, and ends with the node
_SETTINGS = {
    # Threads wait actively for this long after a run, then sleep: an idle session takes no CPU time. Longer gains
    # nothing on a quiet machine and multiplies the step time on a busy one.
    "session.intra_op.spin_duration_us": "100",
}
_TYPES: dict[type[np.generic], str] = {
    np.bool_: "tensor(bool)",
    np.float32: "tensor(float)",
    np.int8: "tensor(int8)",
    np.int32: "tensor(int32)",
    np.int64: "tensor(int64)",
}


def graph_path(directory: Path, precision: str, stem: str) -> Path:
    """Finds a graph's file in a model directory.

    Raises:
        ModelError: The model has no graphs of that precision, or lacks this one.
    """
    path = directory / precision / f"{stem}.onnx"
    if not path.parent.is_dir():
        raise ModelError(
            f"{directory} has no {precision} graphs: "
            f"make them by python -m susurrus.models.provision --precision {precision}"
        )
    if not path.is_file():
        raise ModelError(f"{path} is missing: {_PROVISION_AGAIN}")
    return path


def open_session(path: Path, contract: Contract, threads: int = 0, provider: str = CPU) -> ort.InferenceSession:
    """Loads a graph of ours and checks its inputs and outputs.

    Args:
        path: The graph; its weights lie beside it.
        contract: What it has to take and give.
        threads: 0 takes the CPUs this process may use.
        provider: A name of `models/providers.py`.

    Raises:
        ModelError: The graph cannot be loaded or is another one.
        OptionError: There is no such provider.
    """
    session = _load(path, threads, provider, _PROVISION_AGAIN, precise=False)  # its weights overflow nowhere
    _check_contract(path, session, contract)
    return session


def load_graph(
    path: Path, threads: int = 0, provider: str = CPU, *, fix: str = _PROVISION_AGAIN
) -> ort.InferenceSession:
    """Loads a graph that others have made: its INT8 products are exact too, if more slowly (`models/saturation.py`).

    Args:
        path: The graph; its weights lie in it or beside it.
        threads: 0 takes the CPUs this process may use.
        provider: A name of `models/providers.py`.
        fix: What to do about a file that cannot be loaded, for the error.

    Raises:
        ModelError: The graph cannot be loaded.
        OptionError: There is no such provider.
    """
    session = _load(path, threads, provider, fix, precise=products_saturate() and precision_mode_works())
    if session.get_modelmeta().custom_metadata_map.get("precision") != "float32":
        _warn_of_saturation()
    return session


def _load(path: Path, threads: int, provider: str, fix: str, *, precise: bool) -> ort.InferenceSession:
    threads = threads or usable_cpus()
    providers = execution_providers(provider, threads)
    try:
        return _create_session(path, _session_options(threads, precise=precise), providers)
    except Exception as error:  # ONNX Runtime's errors have no class of their own in common
        raise ModelError(f"{path} cannot be loaded ({_one_line(error)}): {fix}") from error


def _session_options(threads: int, *, precise: bool) -> ort.SessionOptions:
    options = ort.SessionOptions()
    options.log_severity_level = _LOG_ERRORS
    # A number that is given keeps ONNX Runtime from pinning threads to CPUs that the process may not use.
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    # Windows have many lengths: a plan of memory for each of them holds blocks that no other fits into. And what one
    # layer leaves to the same tensor of the next is kept in the layers' other half, where its memory is wanted too.
    # Without either, an encoder of Whisper base takes half the memory, and as much time.
    options.enable_mem_pattern = options.enable_mem_reuse = False
    for key, value in _SETTINGS.items():
        options.add_session_config_entry(key, value)
    if precise:
        options.add_session_config_entry(PRECISION_MODE, "1")
    return options


def _create_session(path: Path, options: ort.SessionOptions, providers: list[Choice]) -> ort.InferenceSession:
    """A session by the first provider; by the CPU alone, with a warning, where that refuses the graph."""
    first, *others = providers
    if not others:
        return ort.InferenceSession(str(path), options, providers=providers)
    name = first if isinstance(first, str) else first[0]
    options.log_severity_level = _LOG_FATAL  # what it refuses is told below, in one line
    options.add_session_config_entry(_RECORD_ASSIGNMENT, "1")
    try:
        # ONNX Runtime's own way of falling back prints to standard output.
        session = ort.InferenceSession(str(path), options, providers=providers, enable_fallback=0)
    except Exception as error:  # noqa: BLE001  # if it is the file's fault, the CPU will say so
        session = ort.InferenceSession(str(path), options, providers=others[-1:])
        _tell_of_cpu(name, path.stem, _one_line(error))
        return session
    if not _takes_part(session, name):
        _tell_of_cpu(name, path.stem, "it takes no node")
    return session


def _takes_part(session: ort.InferenceSession, provider: str) -> bool:
    """Whether any node is the provider's: one that does not start is left out by ONNX Runtime in silence."""
    return any(part.ep_name == provider for part in session.get_provider_graph_assignment_info())


def _tell_of_cpu(provider: str, graph: str, reason: str) -> None:
    """Warns once for a process and a provider; the other graphs' reasons are details."""
    level = logging.DEBUG if provider in _told else logging.WARNING
    _told.add(provider)
    about = {"provider": provider, "graph": graph, "reason": reason[-_REASON_LENGTH:]}
    _log.log(level, "the provider does not run the graph, the CPU does", extra=about)


@cache
def _warn_of_saturation() -> None:
    if products_saturate() and not precision_mode_works():
        about = {"onnxruntime": ort.__version__, "fix": "ONNX Runtime 1.30 or newer, or --precision float32"}
        _log.warning("INT8 products of this export are not exact on this processor", extra=about)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def _check_contract(path: Path, session: ort.InferenceSession, contract: Contract) -> None:
    """Refuses a graph with other inputs or outputs, naming what was wanted and what was found."""
    version = session.get_modelmeta().custom_metadata_map.get("format")
    found = differences("input", contract.inputs, session.get_inputs())
    found += differences("output", contract.outputs, session.get_outputs())
    if version != GRAPH_FORMAT:
        found.insert(0, f"wanted format {GRAPH_FORMAT}, found {version}")
    if found:
        raise ModelError(f"{path} is another kind of graph: {'; '.join(found)}: {_PROVISION_AGAIN}")


def differences(kind: str, wanted: Specs, found: Sequence[ort.NodeArg]) -> list[str]:
    """What is wrong with a graph's inputs or outputs: for each, what was wanted and what was found."""
    present = {arg.name: arg for arg in found}
    return [
        f"wanted {kind} {name} {spec or 'absent'}, found {_describe(present.get(name))}"
        for name, spec in {**dict.fromkeys(present), **wanted}.items()
        if spec is None or name not in present or not _matches(spec, present[name])
    ]


def _matches(spec: TensorSpec, arg: ort.NodeArg) -> bool:
    """Whether type and rank are the same, and every dimension that both know."""
    shape = tuple(arg.shape)
    return (
        arg.type == _TYPES[spec.dtype]
        and len(shape) == len(spec.shape)
        and all(a == b for a, b in zip(spec.shape, shape, strict=True) if isinstance(a, int) and isinstance(b, int))
    )


def _describe(arg: ort.NodeArg | None) -> str:
    return "none" if arg is None else f"{arg.type} [{', '.join(map(str, arg.shape))}]"
