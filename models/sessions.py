"""The encoder and the decoder, running on ONNX Runtime.

Objects of both classes belong to one thread at a time; a process may hold several of them.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from susurrus.models.config import Dimensions, ModelConfig
from susurrus.models.context import AudioContext
from susurrus.models.graphs.contract import (
    Contract,
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
        config = ModelConfig.from_directory(directory)
        self.max_frames = 2 * config.dimensions.n_audio_ctx
        self._n_mels = config.dimensions.n_mels
        self._seconds = config.audio.chunk_length
        path = graph_path(directory, precision, "encoder")
        self._session = open_session(path, encoder_contract(config.dimensions), threads, provider)

    def __call__(self, mel: FloatArray) -> FloatArray:
        """Encodes frames as they are, each position for itself.

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
        positions = np.arange(mel.shape[1] // 2)
        return self._run(mel, positions, positions, np.zeros(len(positions), np.float32))

    def encode_window(self, mel: FloatArray, silence: float, *, full: bool = False) -> tuple[FloatArray, AudioContext]:
        """Encodes a window of 30 s of which only some holds audio.

        Args:
            mel: float32 (n_mels, n_frames), the frames that hold audio.
            silence: Value of all frames behind them.
            full: Compute every position, not a sample of the silence.

        Returns:
            Hidden states, float32 (C, n_audio_state), and which positions of the window they are.

        Raises:
            ValueError: `mel` has another shape.
        """
        total = self.max_frames // 2
        context = AudioContext(total, total) if full else AudioContext.of_audio(mel.shape[1], total, self._seconds)
        frames = context.frames(mel, silence)
        return self._run(frames, context.rows(frames.shape[1]), context.positions, context.log_counts), context

    def _run(
        self, mel: FloatArray, rows: NDArray[np.int64], positions: NDArray[np.int64], log_counts: FloatArray
    ) -> FloatArray:
        batch = mel[np.newaxis].astype(np.float32, copy=False)
        inputs = {"mel": batch, "rows": rows, "positions": positions, "log_counts": log_counts}
        hidden_states: FloatArray = self._session.run(None, inputs)[0][0]
        return hidden_states


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
    log_counts: FloatArray
    """How many positions each of the C keys stands for, as logarithms, float32 (1, C)."""
    window: int
    """How many windows were begun."""
    expected: int | None
    """The token that comes next, once its user has announced it."""
    own: int
    """How many tokens of the row are in this decoder's own caches; the others are in those of a batch."""
    shared: int
    """How many are in the caches of a batch (`models/decoder_batch.py`)."""

    def __init__(self, directory: Path, *, precision: str = "int8", threads: int = 0, provider: str = CPU) -> None:
        self._start(DecoderGraphs.load(directory, precision, threads, provider))

    def sibling(self) -> "Decoder":
        """Another decoder with the same sessions and a window of its own; the two take turns."""
        other = Decoder.__new__(Decoder)
        other._start(self.graphs)  # noqa: SLF001 - it is this class
        return other

    def _start(self, graphs: DecoderGraphs) -> None:
        self.graphs = graphs
        self.quantized_cross = graphs.quantized_cross
        self._dimensions = graphs.dimensions
        self._outputs = graphs.step_contract.outputs
        self._binding = graphs.step.io_binding()
        self._most_tokens = 0  # that one run can take; 0 before the first window
        self._common = 0  # tokens from the start that all rows have in common
        self.position = self.rows = 0
        self._self_caches: dict[str, FloatArray] = {}
        self.window = self.own = self.shared = 0
        self._recall: Callable[[], None] | None = None
        self._forget_ahead()
        self._bind_fixed()
        self._allocate(1)
        self._bind_rows(1)
        self.cross_caches = {}
        self.log_counts = np.zeros((1, 0), np.float32)

    def begin(self, hidden_states: FloatArray, log_counts: FloatArray | None = None) -> None:
        """Starts a window: makes its cross-attention keys and values, and forgets all rows and tokens.

        Args:
            hidden_states: float32 (C, n_audio_state), from `Encoder`.
            log_counts: How many positions each stands for, as logarithms, float32 (C,), see `models/context.py`; None
                for one each.

        Raises:
            ValueError: `hidden_states` or `log_counts` has another shape.
        """
        dimensions = self._dimensions
        width = dimensions.n_audio_state
        if hidden_states.ndim != 2 or hidden_states.shape[1] != width or not len(hidden_states):
            raise ValueError(f"hidden states have shape {hidden_states.shape}, wanted (positions, {width})")
        if log_counts is None:
            log_counts = np.zeros(len(hidden_states), np.float32)
        if log_counts.shape != hidden_states.shape[:1]:
            raise ValueError(f"counts have shape {log_counts.shape}, the hidden states {hidden_states.shape}")
        batch = np.ascontiguousarray(hidden_states[np.newaxis], dtype=np.float32)
        binding = self.graphs.cross.io_binding()
        binding.bind_cpu_input("hidden_states", batch)
        for name in self.graphs.cross_contract.outputs:
            binding.bind_output(name)
        self.graphs.cross.run_with_iobinding(binding)
        self.cross_caches = dict(zip(self.graphs.cross_contract.outputs, binding.get_outputs(), strict=True))
        for name, value in self.cross_caches.items():
            self._bind_cache(name, value)
        self.log_counts = np.array(log_counts[np.newaxis], np.float32)
        self._binding.bind_ortvalue_input("cross_log_counts", _value(self.log_counts))
        if self.quantized_cross:
            self._cross_last_position[:] = len(hidden_states) - 1
            self._cross_length[...] = len(hidden_states)
        # GroupQueryAttention refuses more queries than there are positions in the cache.
        self._most_tokens = len(hidden_states) if self.quantized_cross else dimensions.n_text_ctx
        self.window += 1
        self.position = self.own = self.shared = 0
        self._forget_ahead()
        self._bind_rows(1)

    def rewind(self, position: int = 0) -> None:
        """Forgets the tokens from `position` on, and all rows but the first; the window stays.

        Raises:
            ValueError: There are not that many tokens in the cache.
        """
        if not 0 <= position <= self.position:
            raise ValueError(f"cannot rewind to {position}: {self.position} tokens are in the cache")
        self.position = position
        self.own, self.shared = min(self.own, position), min(self.shared, position)
        self._forget_ahead()
        self._bind_rows(1)

    # A batch of several decoders may run their next steps together, once it knows what they will be.

    def announce(self, token: int) -> None:
        """Tells which token the next step will append: a batch may then run it ahead, with those of other windows."""
        self._forget_ahead()
        self.expected = token

    def own_row(self) -> Mapping[str, FloatArray]:
        """The self-attention caches of the first row, float32 (H, n_text_ctx, D / H) each, by name: views."""
        return {name: cache[0] for name, cache in self._self_caches.items()}

    def _forget_ahead(self) -> None:
        self.expected = None
        self._ahead: FloatArray | None = None

    def run_ahead(self, logits: FloatArray, recall: Callable[[], None]) -> None:
        """Takes what a batch has found after the announced token, which is in the batch's caches.

        Args:
            logits: float32 (n_vocab,).
            recall: Called when the tokens that only the batch has are needed here.
        """
        self._ahead, self._recall = logits, recall
        self.shared = self.position + 1

    def own_all(self) -> None:
        """Sees to it that the own caches hold every token: the batch is about to forget this decoder."""
        if self.own < self.position and self._recall is not None:
            self._recall()
        self.own = self.position

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
        self.own_all()
        self._forget_ahead()
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
        if self._ahead is not None and list(tokens) == [self.expected]:
            ahead = self._ahead
            self._forget_ahead()
            self.position += 1
            return ahead
        self.own_all()
        self._forget_ahead()
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
        self.graphs.step.run_with_iobinding(self._binding)
        self.shared = min(self.shared, self.position)
        self.position = self.own = end

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
        self._positions = self._input("positions", (self.rows, count), np.int64)

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
