"""ONNX Runtime sessions: how they are set up, and whether a graph is the one that was wanted."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnxruntime as ort

from susurrus.models.errors import ModelError
from susurrus.models.graphs.contract import GRAPH_FORMAT, Contract, Specs, TensorSpec
from susurrus.models.providers import CPU, execution_providers
from susurrus.models.threads import usable_cpus

_LOG_ERRORS = 3  # severity: what ONNX Runtime warns about is nothing that a user can act on
_SETTINGS = {
    # Threads wait actively for this long after a run, then sleep: an idle session takes no CPU time. Longer gains
    # nothing on a quiet machine and multiplies the step time on a busy one.
    "session.intra_op.spin_duration_us": "100",
    # Signed INT8 weights overflow 16 bits on processors without VNNI; there, and only there, this changes kernels.
    "session.x64quantprecision": "1",
}
_TYPES: dict[type[np.generic], str] = {
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
        raise ModelError(f"{path} is missing: provision the model again")
    return path


def open_session(path: Path, contract: Contract, threads: int = 0, provider: str = CPU) -> ort.InferenceSession:
    """Loads a graph and checks its inputs and outputs.

    Args:
        path: The graph; its weights lie beside it.
        contract: What it has to take and give.
        threads: 0 takes the CPUs this process may use.
        provider: A name of `models/providers.py`.

    Raises:
        ModelError: The graph cannot be loaded or is another one.
    """
    options = ort.SessionOptions()
    options.log_severity_level = _LOG_ERRORS
    # A number that is given keeps ONNX Runtime from pinning threads to CPUs that the process may not use.
    options.intra_op_num_threads = threads or usable_cpus()
    options.inter_op_num_threads = 1
    for key, value in _SETTINGS.items():
        options.add_session_config_entry(key, value)
    try:
        session = ort.InferenceSession(str(path), options, providers=list(execution_providers(provider)))
    except Exception as error:  # ONNX Runtime's errors have no class of their own in common
        reason = " ".join(str(error).split())
        raise ModelError(f"{path} cannot be loaded ({reason}): provision the model again") from error
    _check_contract(path, session, contract)
    return session


def _check_contract(path: Path, session: ort.InferenceSession, contract: Contract) -> None:
    """Refuses a graph with other inputs or outputs, naming what was wanted and what was found."""
    version = session.get_modelmeta().custom_metadata_map.get("format")
    differences = _differences("input", contract.inputs, session.get_inputs())
    differences += _differences("output", contract.outputs, session.get_outputs())
    if version != GRAPH_FORMAT:
        differences.insert(0, f"wanted format {GRAPH_FORMAT}, found {version}")
    if differences:
        raise ModelError(f"{path} is another kind of graph: {'; '.join(differences)}: provision the model again")


def _differences(kind: str, wanted: Specs, found: Sequence[ort.NodeArg]) -> list[str]:
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
