"""The encoder and the decoder, running on ONNX Runtime.

Objects of both classes belong to one thread at a time; a process may hold several of them.
"""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from susurrus.models.config import Dimensions, ModelConfig
from susurrus.models.graphs.contract import (
    cross_attention_contract,
    decoder_contract,
    encoder_contract,
    self_cache,
    self_test_contract,
)
from susurrus.models.graphs.self_test import TOLERANCE, float_cross_attention, relative_error, self_test_inputs
from susurrus.models.providers import CPU
from susurrus.models.runtime import graph_path, open_session

FloatArray = NDArray[np.float32]

_log = logging.getLogger(__name__)


class Encoder:
    """Log-mel to hidden states.

    Args:
        directory: The model directory.
        precision: `int8` or `float32`.
        threads: Of the session; 0 takes the CPUs this process may use.
        provider: That runs the graph, a name of `models/providers.py`.

    Raises:
        ModelError: Files are missing, damaged or of another version.
    """

    def __init__(self, directory: Path, *, precision: str = "int8", threads: int = 0, provider: str = CPU) -> None:
        dimensions = ModelConfig.from_directory(directory).dimensions
        self.max_frames = 2 * dimensions.n_audio_ctx
        self._n_mels = dimensions.n_mels
        path = graph_path(directory, precision, "encoder")
        self._session = open_session(path, encoder_contract(dimensions), threads, provider)

    def __call__(self, mel: FloatArray) -> FloatArray:
        """Encodes one window.

        Args:
            mel: float32 (n_mels, T), T even and at most `max_frames`.

        Returns:
            float32 (T / 2, n_audio_state).

        Raises:
            ValueError: `mel` has another shape.
        """
        if mel.ndim != 2 or mel.shape[0] != self._n_mels:
            raise ValueError(f"mel has shape {mel.shape}, wanted ({self._n_mels}, frames)")
        if mel.shape[1] % 2 or not 0 < mel.shape[1] <= self.max_frames:
            raise ValueError(f"{mel.shape[1]} mel frames: wanted an even number up to {self.max_frames}")
        hidden_states: FloatArray = self._session.run(None, {"mel": mel[np.newaxis].astype(np.float32, copy=False)})[0][
            0
        ]
        return hidden_states


class Decoder:
    """Hidden states and tokens to logits, with caches that stay in place.

    A window starts with one row of tokens. `expand` makes more of it: hypotheses side by side about the same window, of
    equal length, each with a self-attention cache of its own; a step of five takes two to three times as long as one's.

    Args:
        directory: The model directory.
        precision: `int8` or `float32`.
        threads: Of each of the two sessions, which never run at the same time; 0 takes the CPUs this process may use.
        provider: That runs the graphs, a name of `models/providers.py`.

    Raises:
        ModelError: Files are missing, damaged or of another version.
    """

    position: int
    """Number of tokens in every row of the cache: where the next one goes."""
    rows: int
    """Number of hypotheses side by side."""
    cross_caches: Mapping[str, ort.OrtValue]
    """Keys and values of the window for cross-attention, batch 1, by name; none before the first window."""

    def __init__(self, directory: Path, *, precision: str = "int8", threads: int = 0, provider: str = CPU) -> None:
        dimensions = ModelConfig.from_directory(directory).dimensions
        self.quantized_cross = precision == "int8" and _int8_cross_attention_works(directory, dimensions)
        suffix = "_float" if precision == "int8" and not self.quantized_cross else ""
        self._cross_contract = cross_attention_contract(dimensions, quantized=self.quantized_cross)
        path = graph_path(directory, precision, f"cross_attention{suffix}")
        self._cross = open_session(path, self._cross_contract, threads, provider)
        contract = decoder_contract(dimensions, quantized_cross=self.quantized_cross)
        self._session = open_session(graph_path(directory, precision, f"decoder{suffix}"), contract, threads, provider)
        self._outputs = contract.outputs
        self._dimensions = dimensions
        self._binding = self._session.io_binding()
        self._most_tokens = 0  # that one run can take; 0 before the first window
        self._common = 0  # tokens from the start that all rows have in common
        self.position = self.rows = 0
        self._self_caches: dict[str, FloatArray] = {}
        self._bind_fixed()
        self._allocate(1)
        self._bind_rows(1)
        self.cross_caches = {}

    def begin(self, hidden_states: FloatArray) -> None:
        """Starts a window: makes its cross-attention keys and values, and forgets all rows and tokens.

        Args:
            hidden_states: float32 (C, n_audio_state), from `Encoder`.

        Raises:
            ValueError: `hidden_states` has another shape.
        """
        dimensions = self._dimensions
        width = dimensions.n_audio_state
        if hidden_states.ndim != 2 or hidden_states.shape[1] != width or not len(hidden_states):
            raise ValueError(f"hidden states have shape {hidden_states.shape}, wanted (positions, {width})")
        batch = np.ascontiguousarray(hidden_states[np.newaxis], dtype=np.float32)
        binding = self._cross.io_binding()
        binding.bind_cpu_input("hidden_states", batch)
        for name in self._cross_contract.outputs:
            binding.bind_output(name)
        self._cross.run_with_iobinding(binding)
        self.cross_caches = dict(zip(self._cross_contract.outputs, binding.get_outputs(), strict=True))
        for name, value in self.cross_caches.items():
            self._bind_cache(name, value)
        if self.quantized_cross:
            self._cross_last_position[:] = len(hidden_states) - 1
            self._cross_length[...] = len(hidden_states)
        # GroupQueryAttention refuses more queries than there are positions in the cache.
        self._most_tokens = len(hidden_states) if self.quantized_cross else dimensions.n_text_ctx
        self.position = 0
        self._bind_rows(1)

    def rewind(self, position: int = 0) -> None:
        """Forgets the tokens from `position` on, and all rows but the first; the window stays.

        Raises:
            ValueError: There are not that many tokens in the cache.
        """
        if not 0 <= position <= self.position:
            raise ValueError(f"cannot rewind to {position}: {self.position} tokens are in the cache")
        self.position = position
        self._bind_rows(1)

    def expand(self, rows: int) -> None:
        """Makes `rows` rows, all with the tokens of the only one there is.

        The memory of that many caches is taken once and kept.

        Raises:
            ValueError: There are several rows already, or the window is too short for so many.
            RuntimeError: No window was begun.
        """
        self._require_window()
        if self.rows != 1 or not 1 <= rows <= self._most_tokens:
            raise ValueError(f"cannot make {rows} rows of {self.rows}: give 1 to {self._most_tokens}, once a prompt")
        if rows > self._most_rows:
            self._allocate(rows)
        for cache in self._self_caches.values():
            cache[1:rows, :, : self.position] = cache[:1, :, : self.position]
        self._common = self.position
        self._bind_rows(rows)

    def reorder(self, rows: Sequence[int]) -> None:
        """Makes row i a copy of what row `rows[i]` was; as many rows are left as are named.

        Raises:
            ValueError: A row does not exist, or more are named than there are.
        """
        if not 1 <= len(rows) <= self.rows or not 0 <= min(rows) <= max(rows) < self.rows:
            raise ValueError(f"cannot make rows {list(rows)}: there are {self.rows}")
        moved = [row for row, origin in enumerate(rows) if origin != row]
        if moved:
            origins = [rows[row] for row in moved]
            for cache in self._self_caches.values():
                # The right side is a copy, made before anything is written.
                cache[moved, :, self._common : self.position] = cache[origins, :, self._common : self.position]
        self._bind_rows(len(rows))

    def step(self, tokens: Sequence[int]) -> FloatArray:
        """Appends tokens to the only row.

        Args:
            tokens: One or more ids.

        Returns:
            Logits after the last token, float32 (n_vocab,): a view that the next step overwrites.

        Raises:
            ValueError: `tokens` is empty, is no text of this model's, or does not fit into its context; or there are
                several rows.
            RuntimeError: No window was begun.
        """
        if self.rows != 1:
            raise ValueError(f"there are {self.rows} rows: use step_rows")
        self._check(tokens, len(tokens))
        for start in range(0, len(tokens), self._most_tokens):
            self._append([tokens[start : start + self._most_tokens]])
        logits: FloatArray = self._logits[0, 0]
        return logits

    def step_rows(self, tokens: Sequence[int]) -> FloatArray:
        """Appends one token to every row.

        Args:
            tokens: One id for each row.

        Returns:
            Logits after them, float32 (rows, n_vocab): a view that the next step overwrites.

        Raises:
            ValueError: The tokens are not one for each row, are no text of this model's, or do not fit into its
                context.
            RuntimeError: No window was begun.
        """
        if len(tokens) != self.rows:
            raise ValueError(f"{len(tokens)} tokens for {self.rows} rows")
        self._check(tokens, 1)
        self._append([[token] for token in tokens])
        logits: FloatArray = self._logits[:, 0]
        return logits

    def _check(self, tokens: Sequence[int], length: int) -> None:
        self._require_window()
        check_tokens(tokens, self.position + length, self._dimensions)

    def _require_window(self) -> None:
        if not self._most_tokens:
            raise RuntimeError("no window: call begin first")

    def _append(self, tokens: Sequence[Sequence[int]]) -> None:
        """Runs the graph on the same number of tokens for every row."""
        count = len(tokens[0])
        if count != self._ids.shape[1]:
            self._bind_tokens(count)
        end = self.position + count
        self._ids[:] = tokens
        self._positions[:] = range(self.position, end)
        self._last_position[:] = end - 1
        self._length[...] = end
        self._session.run_with_iobinding(self._binding)
        self.position = end

    # The arrays below are the memory that ONNX Runtime reads and writes: a session's step writes into them, no more.

    def _bind_fixed(self) -> None:
        """Allocates and binds everything whose size is the same for every window, step and number of rows."""
        self._length = self._input("length", (), np.int32)
        if self.quantized_cross:
            self._cross_last_position = self._input("cross_last_position", (1,), np.int32)
            self._cross_length = self._input("cross_length", (), np.int32)

    def _allocate(self, rows: int) -> None:
        """Allocates what grows with the rows, for up to so many; the first row's tokens are kept."""
        dimensions = self._dimensions
        shape = (rows, dimensions.n_text_head, dimensions.n_text_ctx, dimensions.head_size)
        names = [name for layer in range(dimensions.n_text_layer) for name in self_cache(dimensions, layer)]
        caches = {name: np.zeros(shape, np.float32) for name in names}
        for name, cache in self._self_caches.items():
            caches[name][0, :, : self.position] = cache[0, :, : self.position]
        self._all_logits = np.zeros((rows, 1, dimensions.n_vocab), np.float32)
        self._self_caches, self._most_rows = caches, rows

    def _bind_rows(self, rows: int) -> None:
        """Binds the first `rows` rows of what `_allocate` made, unless they are bound."""
        if rows == self.rows:
            return
        self.rows = rows
        for name, cache in self._self_caches.items():
            self._bind_cache(name, _value(cache[:rows]))
        self._logits = self._all_logits[:rows]
        self._binding.bind_ortvalue_output("logits", _value(self._logits))
        self._last_position = self._input("last_position", (rows,), np.int32)
        self._bind_tokens(1)

    def _bind_tokens(self, count: int) -> None:
        """Allocates and binds the inputs for steps of `count` tokens."""
        self._ids = self._input("ids", (self.rows, count), np.int64)
        self._positions = self._input("positions", (count,), np.int64)

    def _input(self, name: str, shape: tuple[int, ...], dtype: type[np.generic]) -> NDArray[Any]:
        array = np.zeros(shape, dtype)
        self._binding.bind_ortvalue_input(name, _value(array))
        return array

    def _bind_cache(self, name: str, value: ort.OrtValue) -> None:
        """Binds a cache as input and, where the graph hands it on, as output: the same memory, so nothing is copied."""
        self._binding.bind_ortvalue_input(name, value)
        if f"present_{name}" in self._outputs:
            self._binding.bind_ortvalue_output(f"present_{name}", value)


def check_tokens(tokens: Sequence[int], end: int, dimensions: Dimensions) -> None:
    """Refuses tokens that do not exist, and rows that would become too long.

    Args:
        tokens: To be appended.
        end: Number of tokens that a row would then have.
        dimensions: Of the model.

    Raises:
        ValueError: It cannot be.
    """
    if not tokens or min(tokens) < 0 or max(tokens) >= dimensions.n_vocab:
        raise ValueError(f"tokens have to be some of 0 to {dimensions.n_vocab - 1}")
    if end > dimensions.n_text_ctx:
        raise ValueError(f"{end} tokens do not fit into the context of {dimensions.n_text_ctx}")


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


def _value(array: NDArray[Any]) -> ort.OrtValue:
    """An OrtValue on the array's own memory, which it keeps alive."""
    return ort.OrtValue.ortvalue_from_numpy(array)
