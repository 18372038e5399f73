"""The encoder and the decoder, running on ONNX Runtime.

Objects of both classes belong to one thread at a time; a process may hold several of them.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from susurrus.models.config import ModelConfig
from susurrus.models.context import AudioContext
from susurrus.models.decoder_graphs import DecoderGraphs
from susurrus.models.dimensions import Dimensions
from susurrus.models.graphs.contract import encoder_contract
from susurrus.models.providers import CPU
from susurrus.models.runtime import graph_path, open_session

FloatArray = NDArray[np.float32]


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
        hidden_states: FloatArray = self._session.run(None, every_position(mel))[0][0]
        return hidden_states

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
    log_counts: FloatArray
    """Logarithm of how many positions each of the C keys stands for, float32 (1, C); C is 0 before the first window."""
    window: int
    """How many windows were begun."""
    expected: int | None
    """The token that comes next, once its user has announced it."""

    def __init__(self, directory: Path, *, precision: str = "int8", threads: int = 0, provider: str = CPU) -> None:
        graphs = DecoderGraphs.load(directory, precision, threads, provider)
        self._start(graphs, graphs.caches(1))

    @classmethod
    def in_row(cls, graphs: DecoderGraphs, row: Mapping[str, NDArray[Any]]) -> Self:
        """One of several that take turns with the same sessions, each with a window of its own.

        Args:
            graphs: The sessions.
            row: Its part of the memory of `DecoderGraphs.caches`, by name, of first dimension 1.
        """
        decoder = cls.__new__(cls)
        decoder._start(graphs, row)  # noqa: SLF001 - it is this class
        return decoder

    def _start(self, graphs: DecoderGraphs, row: Mapping[str, NDArray[Any]]) -> None:
        self.graphs = graphs
        self.quantized_cross = graphs.quantized_cross
        self._dimensions = graphs.dimensions
        self._outputs = graphs.step_contract.outputs
        self._binding = graphs.step.io_binding()
        self._most_tokens = 0  # that one run can take; 0 before the first window
        self._common = 0  # tokens from the start that all rows have in common
        self._row = {name: cache for name, cache in row.items() if name.startswith("self_")}
        self._wide: dict[str, FloatArray] = {}  # the same for several rows, once they are asked for
        self._cross = {name: cache for name, cache in row.items() if name.startswith("cross_")}
        self._float_cross: Mapping[str, ort.OrtValue] = {}
        self._all_logits = np.zeros((1, 1, graphs.dimensions.n_vocab), np.float32)
        self.position = self.rows = self.window = 0
        self.log_counts = np.zeros((1, 0), np.float32)
        self._forget_ahead()
        self._bind_fixed()
        self._bind_rows(1)

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
        self._make_cross_caches(np.ascontiguousarray(hidden_states[np.newaxis], dtype=np.float32))
        self.log_counts = np.array(log_counts[np.newaxis], np.float32)
        self._binding.bind_ortvalue_input("cross_log_counts", as_value(self.log_counts))
        if self.quantized_cross:
            self._cross_last_position[:] = len(hidden_states) - 1
            self._cross_length[...] = len(hidden_states)
        # GroupQueryAttention refuses more queries than there are positions in the cache.
        self._most_tokens = len(hidden_states) if self.quantized_cross else dimensions.n_text_ctx
        self.window += 1
        self.position = 0
        self._forget_ahead()
        self._bind_rows(1)

    @property
    def cross_caches(self) -> Mapping[str, ort.OrtValue]:
        """Keys and values of the window for cross-attention, batch 1, by name, C of each; those in int8 as copies."""
        length = self.log_counts.shape[1]
        if not length or not self.quantized_cross:
            return self._float_cross
        return {
            name: as_value(cache if "scale" in name else np.ascontiguousarray(cache[:, :, :length]))
            for name, cache in self._cross.items()
        }

    def _make_cross_caches(self, hidden_states: FloatArray) -> None:
        """Into this decoder's row; float32 ones are as long as the window, so that all of them can be read."""
        binding = self.graphs.cross.io_binding()
        binding.bind_cpu_input("hidden_states", hidden_states)
        for name in self.graphs.cross_contract.outputs:
            binding.bind_output(name)
        self.graphs.cross.run_with_iobinding(binding)
        made = dict(zip(self.graphs.cross_contract.outputs, binding.get_outputs(), strict=True))
        if not self.quantized_cross:
            self._float_cross = made
            for name, value in made.items():
                self._bind_cache(name, value)
        for name, cache in self._cross.items():
            array = made[name].numpy()
            cache[tuple(slice(side) for side in array.shape)] = array

    def rewind(self, position: int = 0) -> None:
        """Forgets the tokens from `position` on, and all rows but the first; the window stays.

        Raises:
            ValueError: There are not that many tokens in the cache.
        """
        if not 0 <= position <= self.position:
            raise ValueError(f"cannot rewind to {position}: {self.position} tokens are in the cache")
        self.position = position
        self._forget_ahead()
        self._bind_rows(1)

    # A batch of several decoders may run their next steps together, once it knows what they will be.

    def announce(self, token: int) -> None:
        """Tells which token the next step will append: a batch may then run it ahead, with those of other windows."""
        self._forget_ahead()
        self.expected = token

    def _forget_ahead(self) -> None:
        self.expected = None
        self._ahead: FloatArray | None = None

    def run_ahead(self, logits: FloatArray) -> None:
        """Takes what a batch has found after the announced token, float32 (n_vocab,): its keys and values are there."""
        self._ahead = logits

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
        self._forget_ahead()
        if rows > len(self._all_logits):
            self._allocate(rows)
        for name, cache in self._wide.items():
            cache[:rows, :, : self.position] = self._row[name][:, :, : self.position]
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
            for cache in self._wide.values():
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
        self.position = end

    # The arrays below are the memory that ONNX Runtime reads and writes: a session's step writes into them, no more.

    def _bind_fixed(self) -> None:
        """Allocates and binds everything whose size is the same for every window, step and number of rows."""
        self._length = self._input("length", (), np.int32)
        if self.quantized_cross:
            self._cross_last_position = self._input("cross_last_position", (1,), np.int32)
            self._cross_length = self._input("cross_length", (), np.int32)

        for name, cache in self._cross.items():
            self._bind_cache(name, as_value(cache))

    def _allocate(self, rows: int) -> None:
        """Allocates what several rows need, for up to so many."""
        self._wide = {name: np.zeros((rows, *cache.shape[1:]), np.float32) for name, cache in self._row.items()}
        self._all_logits = np.zeros((rows, 1, self._dimensions.n_vocab), np.float32)

    def _bind_rows(self, rows: int) -> None:
        """Binds so many rows, unless they are bound. Tokens that only the first of several had go with it."""
        if rows == self.rows:
            return
        for name, cache in self._row.items():
            if rows == 1 < self.rows:
                cache[:, :, self._common : self.position] = self._wide[name][:1, :, self._common : self.position]
            self._bind_cache(name, as_value(cache if rows == 1 else self._wide[name][:rows]))
        self.rows = rows
        self._logits = self._all_logits[:rows]
        self._binding.bind_ortvalue_output("logits", as_value(self._logits))
        self._last_position = self._input("last_position", (rows,), np.int32)
        self._bind_tokens(1)

    def _bind_tokens(self, count: int) -> None:
        """Allocates and binds the inputs for steps of `count` tokens."""
        self._ids = self._input("ids", (self.rows, count), np.int64)
        self._positions = self._input("positions", (self.rows, count), np.int64)

    def _input(self, name: str, shape: tuple[int, ...], dtype: type[np.generic]) -> NDArray[Any]:
        array = np.zeros(shape, dtype)
        self._binding.bind_ortvalue_input(name, as_value(array))
        return array

    def _bind_cache(self, name: str, value: ort.OrtValue) -> None:
        """Binds a cache as input and, where the graph hands it on, as output: the same memory, so nothing is copied."""
        self._binding.bind_ortvalue_input(name, value)
        if f"present_{name}" in self._outputs:
            self._binding.bind_ortvalue_output(f"present_{name}", value)


def every_position(mel: FloatArray) -> dict[str, NDArray[Any]]:
    """Inputs of the encoder's graph for frames as they are, float32 (n_mels, T): each position stands for itself."""
    positions = np.arange(mel.shape[1] // 2)
    zeros = np.zeros(len(positions), np.float32)
    batch = mel[np.newaxis].astype(np.float32, copy=False)
    return {"mel": batch, "rows": positions, "positions": positions, "log_counts": zeros}


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


def as_value(array: NDArray[Any]) -> ort.OrtValue:
    """An OrtValue on the array's own memory, which it keeps alive."""
    return ort.OrtValue.ortvalue_from_numpy(array)
