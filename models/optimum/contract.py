"""What an exported graph takes and gives, read from the graph itself and checked against the model's sizes.

Exporters agree on the tensors and differ in their names, and from version to version in what else they want: so every
input and output is first given its role. Roles of caches are called as in our own graphs (`graphs/contract.py`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime as ort

from susurrus.models.dimensions import Dimensions
from susurrus.models.errors import ModelError
from susurrus.models.graphs.contract import Specs, TensorSpec, cross_cache
from susurrus.models.optimum.files import EXPORT_AGAIN
from susurrus.models.providers import CPU
from susurrus.models.runtime import differences, load_graph

_NAMES = {
    "mel": ("input_features",),
    "ids": ("input_ids", "decoder_input_ids"),
    "hidden_states": ("encoder_hidden_states",),
    "positions": ("cache_position",),  # wanted by exports from transformers 4.43 to 4.45
    "with_past": ("use_cache_branch",),  # of a merged decoder
    "logits": ("logits",),
}
"""Role -> names, the usual one first."""
_HIDDEN_STATES = "last_hidden_state"
_CACHE_NAMES = (
    re.compile(r"(?:past_key_values|present)\.(?P<layer>\d+)\.(?P<side>decoder|encoder)\.(?P<kind>key|value)"),
    re.compile(r"(?:past|present)_(?P<kind>key|value)_(?P<side>self|cross)_(?P<layer>\d+)"),
)
"""Of Optimum, and of ONNX Runtime's own converter."""
_SIDES = {"decoder": "self", "encoder": "cross", "self": "self", "cross": "cross"}
_FREE = frozenset("BPS")  # axes that grow: a graph with one of fixed length cannot be used
_MOST_DIFFERENCES = 4  # that an error shows; a graph of another kind has dozens


@dataclass(frozen=True, slots=True)
class Graph:
    """A loaded graph whose inputs and outputs have been checked."""

    session: ort.InferenceSession
    inputs: Mapping[str, str]
    """Role -> name in the graph."""
    outputs: Mapping[str, str]
    """Role -> name in the graph."""


def open_encoder(path: Path, dimensions: Dimensions, threads: int, provider: str = CPU) -> Graph:
    """Loads an encoder: log-mel `mel` [N, n_mels, T] -> `hidden_states` [N, T / 2, n_audio_state], T a full window.

    Raises:
        ModelError: It cannot be loaded, or is another kind of graph.
    """
    session = load_graph(path, threads, provider, fix=EXPORT_AGAIN)
    outputs = [port.name for port in session.get_outputs()]
    # There is one input and one output that matters, whatever they are called.
    states_name = _HIDDEN_STATES if _HIDDEN_STATES in outputs else outputs[0]
    graph = Graph(session, {"mel": session.get_inputs()[0].name}, {"hidden_states": states_name})
    mel = TensorSpec(np.float32, ("N", dimensions.n_mels, 2 * dimensions.n_audio_ctx))
    states = TensorSpec(np.float32, ("N", dimensions.n_audio_ctx, dimensions.n_audio_state))
    _check(path, graph, {"mel": mel}, {"hidden_states": states}, {})
    return graph


def open_decoder(path: Path, dimensions: Dimensions, threads: int, provider: str = CPU, *, past: str) -> Graph:
    """Loads a decoder.

    The first step: `ids` [B, S], `hidden_states` [B, C, n_audio_state] -> `logits` [B, S, n_vocab], all caches. A step
    with a past: `ids` [B, 1], all caches -> `logits`, self-attention caches. Cross-attention caches that the latter
    returns as well are not looked at.

    Args:
        path: The graph.
        dimensions: Of the model.
        threads: Of the session; 0 takes the CPUs this process may use.
        provider: A name of `models/providers.py`.
        past: `without`, `with`, or `both` for a merged decoder, which is told by `with_past` [1] what to do.

    Raises:
        ModelError: It cannot be loaded, or is another kind of graph.
    """
    session = load_graph(path, threads, provider, fix=EXPORT_AGAIN)
    graph = Graph(session, _roles(session.get_inputs()), _roles(session.get_outputs()))
    layers = range(dimensions.n_text_layer)
    own = {name: spec for layer in layers for name, spec in _self_cache(dimensions, layer).items()}
    cross = {name: spec for layer in layers for name, spec in cross_cache(dimensions, layer, quantized=False).items()}
    ids = {"ids": TensorSpec(np.int64, ("B", "N" if past == "with" else "S"))}
    hidden_states = {"hidden_states": TensorSpec(np.float32, ("B", "C", dimensions.n_text_state))}
    switch = {"with_past": TensorSpec(np.bool_, (1,))}
    positions = {"positions": TensorSpec(np.int64, ("N",))}
    logits = {"logits": TensorSpec(np.float32, ("B", "N", dimensions.n_vocab))}
    wanted = ids | ({} if past == "with" else hidden_states) | ({} if past == "without" else own | cross)
    wanted |= switch if past == "both" else {}
    _check(path, graph, wanted, logits | own | ({} if past == "with" else cross), positions | hidden_states)
    return graph


def _roles(ports: Sequence[ort.NodeArg]) -> dict[str, str]:
    """Role -> name; what has none keeps its name, and is complained of."""
    return {_role(port.name): port.name for port in ports}


def _role(name: str) -> str:
    for pattern in _CACHE_NAMES:
        if match := pattern.fullmatch(name):
            return f"{_SIDES[match['side']]}_{match['kind']}_{match['layer']}"
    return next((role for role, names in _NAMES.items() if name in names), name)


def _usual_name(role: str, prefix: str) -> str:
    """What Optimum calls it."""
    if role in _NAMES:
        return _NAMES[role][0]
    side, kind, layer = role.split("_")
    return f"{prefix}.{layer}.{'decoder' if side == 'self' else 'encoder'}.{kind}"


def _self_cache(dimensions: Dimensions, layer: int) -> dict[str, TensorSpec]:
    """`self_key_l` and `self_value_l`, float32 [B, H, P, D / H]: as long as there are tokens."""
    spec = TensorSpec(np.float32, ("B", dimensions.n_text_head, "P", dimensions.head_size))
    return {f"self_{kind}_{layer}": spec for kind in ("key", "value")}


def _check(path: Path, graph: Graph, inputs: Specs, outputs: Specs, tolerated: Specs) -> None:
    """Refuses a graph with other inputs, or without an output that is needed, naming what was wanted and found.

    Args:
        path: To name in the error.
        graph: What was found.
        inputs: By role.
        outputs: By role; others than these may be there.
        tolerated: Inputs, by role, that may be there.
    """
    present = {role: spec for role, spec in tolerated.items() if role in graph.inputs}
    wanted = {graph.inputs.get(r) or _usual_name(r, "past_key_values"): s for r, s in {**present, **inputs}.items()}
    given = {graph.outputs.get(role) or _usual_name(role, "present"): spec for role, spec in outputs.items()}
    found = differences("input", wanted, graph.session.get_inputs())
    found += [
        f"wanted input {port.name} {wanted[port.name]}, found {port.shape[axis]} for {name}"
        for port in graph.session.get_inputs()
        for axis, name in enumerate(wanted[port.name].shape if port.name in wanted else ())
        if name in _FREE and axis < len(port.shape) and isinstance(port.shape[axis], int)
    ]
    found += differences("output", given, [port for port in graph.session.get_outputs() if port.name in given])
    if not found:
        return
    more = len(found) - _MOST_DIFFERENCES
    shown = found[:_MOST_DIFFERENCES] + ([f"{more} more differences"] if more > 0 else [])
    meta = graph.session.get_modelmeta()
    stamps = "".join(f", {key} {value}" for key, value in sorted(meta.custom_metadata_map.items()))
    maker = f"made by {meta.producer_name or 'an unnamed exporter'}{stamps}"
    raise ModelError(f"{path} ({maker}) is another kind of graph: {'; '.join(shown)}: {EXPORT_AGAIN}")
