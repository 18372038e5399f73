"""Runs one exported decoder graph, its tensors bound by their roles: what is bound is not copied from run to run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from susurrus.models.optimum.contract import Graph

FloatArray = NDArray[np.float32]
Caches = Mapping[str, ort.OrtValue]
"""Role -> keys or values, float32 [B, heads, positions, head size]."""


class Runner:
    """One way of running a graph; a merged decoder has two.

    Args:
        graph: A decoder.
        with_past: What a merged one is told to do.
    """

    def __init__(self, graph: Graph, *, with_past: bool) -> None:
        self._graph = graph
        self._binding = graph.session.io_binding()
        self._held: dict[str, ort.OrtValue] = {}
        self.bind({"with_past": as_value(np.array([with_past]))})

    def bind(self, values: Mapping[str, ort.OrtValue]) -> None:
        """Gives inputs, by role, to all runs from now on; those that the graph does not have are left out."""
        for role, value in values.items():
            if role in self._graph.inputs:
                self._held[role] = value  # the binding itself keeps no memory alive
                self._binding.bind_ortvalue_input(self._graph.inputs[role], value)

    def run(self, ids: NDArray[np.int64], position: int, kept: Iterable[str]) -> tuple[FloatArray, Caches]:
        """Runs on tokens.

        Args:
            ids: int64 (rows, n).
            position: Where the first of them stand.
            kept: Roles of the caches to return.

        Returns:
            Logits after the last tokens, float32 (rows, n_vocab), and the caches.
        """
        roles = ("logits", *kept)
        positions = np.arange(position, position + ids.shape[1])
        self.bind({"ids": as_value(ids), "positions": as_value(positions)})
        self._binding.clear_binding_outputs()  # else the last run's are written to, which are too short
        for role in roles:
            self._binding.bind_output(self._graph.outputs[role])
        self._graph.session.run_with_iobinding(self._binding)
        logits, *caches = self._binding.get_outputs()
        return logits.numpy()[:, -1], dict(zip(roles[1:], caches, strict=True))


def as_value(array: NDArray[np.generic]) -> ort.OrtValue:
    """An OrtValue on the array's memory, or on a copy where it does not lie in one piece."""
    return ort.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array))
