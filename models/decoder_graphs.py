"""The graphs of a decoder, opened, and whether this ONNX Runtime computes them as it should."""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from susurrus.models.config import ModelConfig
from susurrus.models.dimensions import Dimensions
from susurrus.models.graphs.contract import (
    Contract,
    cross_attention_contract,
    decoder_contract,
    self_test_contract,
)
from susurrus.models.graphs.self_test import TOLERANCE, float_cross_attention, relative_error, self_test_inputs
from susurrus.models.runtime import graph_path, open_session

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DecoderGraphs:
    """The sessions of a decoder and what they take; several decoders that take turns may share them."""

    dimensions: Dimensions
    quantized_cross: bool
    """Whether the cross-attention caches are int8."""
    cross: ort.InferenceSession
    cross_contract: Contract
    step: ort.InferenceSession
    step_contract: Contract

    @classmethod
    def load(cls, directory: Path, precision: str, threads: int, provider: str) -> Self:
        """Opens both sessions; see `Decoder`."""
        dimensions = ModelConfig.from_directory(directory).dimensions
        quantized = precision == "int8" and _int8_cross_attention_works(directory, dimensions)
        suffix = "_float" if precision == "int8" and not quantized else ""

        def opened(stem: str, contract: Contract) -> tuple[ort.InferenceSession, Contract]:
            path = graph_path(directory, precision, f"{stem}{suffix}")
            return open_session(path, contract, threads, provider), contract

        return cls(
            dimensions,
            quantized,
            *opened("cross_attention", cross_attention_contract(dimensions, quantized=quantized)),
            *opened("decoder", decoder_contract(dimensions, quantized_cross=quantized)),
        )

    def caches(self, windows: int) -> dict[str, NDArray[Any]]:
        """Memory for the caches of several windows, by name, the window first; int8 keys and values among them.

        What is not used of it takes none: the system gives a page when it is written.
        """
        size, names = self.dimensions, ("self_", "cross_key", "cross_value") if self.quantized_cross else ("self_",)
        free = {"B": windows, "W": windows, "C": size.n_audio_ctx}
        return {
            name: np.zeros([free[side] if isinstance(side, str) else side for side in spec.shape], spec.dtype)
            for name, spec in self.step_contract.inputs.items()
            if name.startswith(names)
        }


def _int8_cross_attention_works(directory: Path, dimensions: Dimensions) -> bool:
    """Compares one int8 cross-attention with float arithmetic.

    ONNX Runtime does not document the way it is used, with keys and values in the cache only. Where a version does
    something else with it, the float graphs take over, with a warning.
    """
    path = graph_path(directory, "int8", "self_test")
    contract = self_test_contract(dimensions)
    inputs = self_test_inputs(contract)
    try:
        attended = open_session(path, contract, threads=1).run(["attended"], inputs)[0]
    except Exception as error:  # noqa: BLE001  # whatever it is, the float graphs do without this operator
        _warn_of_fallback(str(error))
        return False
    difference = relative_error(attended, float_cross_attention(inputs, dimensions.n_text_head))
    if not difference < TOLERANCE:  # NaN is wrong too
        _warn_of_fallback(f"relative error {difference:.3g}")
        return False
    return True


def _warn_of_fallback(reason: str) -> None:
    _log.warning("int8 cross-attention fails, float is used", extra={"reason": reason, "onnxruntime": ort.__version__})
