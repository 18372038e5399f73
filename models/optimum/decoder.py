"""The decoder of an Optimum export, with the calls of our own (`models/sessions.py`).

    first step   tokens, hidden states ─> logits, self-attention cache, cross-attention cache
    every other  token, both caches    ─> logits, self-attention cache, one longer

The cross-attention cache stays as the first step made it, bound once for the window; the self-attention cache of each
step is an input of the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from susurrus.models.config import ModelConfig
from susurrus.models.graphs.contract import cross_cache, self_cache
from susurrus.models.optimum.contract import open_decoder
from susurrus.models.optimum.files import export_precision, find_export
from susurrus.models.optimum.runner import Caches, Runner, as_value
from susurrus.models.providers import CPU
from susurrus.models.sessions import check_tokens

FloatArray = NDArray[np.float32]


class ExportedDecoder:
    """Hidden states and tokens to logits.

    A window starts with one row of tokens. `expand` makes more of it: hypotheses side by side about the same window, of
    equal length, each with caches of its own. One thread at a time.

    Args:
        directory: The model directory.
        precision: See `find_export`.
        threads: Of each of the sessions, which never run at the same time; 0 takes the CPUs this process may use.
        provider: That runs the graphs, a name of `models/providers.py`.

    Raises:
        ModelError: A file is missing, damaged, or another kind of graph.
    """

    quantized_cross = False
    """Exported cross-attention caches are float32."""
    position: int
    """Number of tokens in every row of the cache: where the next one goes."""
    rows: int
    """Number of hypotheses side by side."""
    cross_caches: Caches
    """Keys and values of the window for cross-attention, batch 1, by the names of `graphs/contract.py`; none before the
    window's first step."""

    def __init__(self, directory: Path, *, precision: str | None = None, threads: int = 0, provider: str = CPU) -> None:
        dimensions = ModelConfig.from_directory(directory).dimensions
        files = find_export(directory, precision)
        # Dynamic quantisation has one scale for all tokens of a run, and Whisper's first token has activations so large
        # that the others' are lost beside them: times were wrong by a second, and sentences were read twice.
        self._one_by_one = export_precision(directory, precision) == "int8"
        if files.with_past is None:
            first = following = open_decoder(files.decoder, dimensions, threads, provider, past="both")
        else:
            first = open_decoder(files.decoder, dimensions, threads, provider, past="without")
            following = open_decoder(files.with_past, dimensions, threads, provider, past="with")
        self._first, self._following = Runner(first, with_past=False), Runner(following, with_past=True)
        self._dimensions = dimensions
        layers = range(dimensions.n_text_layer)
        self._self_names = [name for layer in layers for name in self_cache(dimensions, layer)]
        self._cross_names = [name for layer in layers for name in cross_cache(dimensions, layer, quantized=False)]
        # A merged decoder wants a past in the first step too, and does not look at it.
        nothing = np.zeros((1, dimensions.n_text_head, 0, dimensions.head_size), np.float32)
        self._first.bind(dict.fromkeys((*self._self_names, *self._cross_names), as_value(nothing)))
        self._hidden_states: FloatArray | None = None
        self._self_caches: Caches
        self._wide_caches: dict[int, Caches]  # number of rows -> that many copies of the cross-attention caches
        self._bound_rows: int  # that the following steps are bound for
        self._beginning: tuple[NDArray[np.int64], FloatArray, Caches] | None  # tokens of the first step, what it gave
        self._forget_window()

    def begin(self, hidden_states: FloatArray, log_counts: FloatArray | None = None) -> None:
        """Starts a window; its cross-attention keys and values come of the first step.

        Args:
            hidden_states: float32 (C, n_audio_state), from `ExportedEncoder`.
            log_counts: zeros, float32 (C,): exported graphs know no position that stands for several.

        Raises:
            ValueError: `hidden_states` has another shape, or a position stands for several.
        """
        if log_counts is not None and log_counts.any():
            raise ValueError("an exported decoder wants hidden states that stand for one position each")
        width = self._dimensions.n_text_state
        if hidden_states.ndim != 2 or hidden_states.shape[1] != width or not len(hidden_states):
            raise ValueError(f"hidden states have shape {hidden_states.shape}, wanted (positions, {width})")
        self._forget_window()
        self._hidden_states = np.ascontiguousarray(hidden_states[np.newaxis], dtype=np.float32)

    def rewind(self, position: int = 0) -> None:
        """Forgets the tokens from `position` on, and all rows but the first; the window stays.

        Raises:
            ValueError: There are not that many tokens in the cache.
        """
        if not 0 <= position <= self.position:
            raise ValueError(f"cannot rewind to {position}: {self.position} tokens are in the cache")
        if position < self.position or self.rows > 1:
            self._self_caches = {
                name: as_value(cache.numpy()[:1, :, :position]) for name, cache in self._self_caches.items()
            }
        self.position, self.rows = position, 1

    def announce(self, token: int) -> None:
        """Nothing is run ahead."""

    def expand(self, rows: int) -> None:
        """Makes `rows` rows, all with the tokens of the only one there is.

        Raises:
            ValueError: There are several rows already, or there would be none.
            RuntimeError: No window was begun.
        """
        self._require_window()
        if self.rows != 1 or rows < 1:
            raise ValueError(f"cannot make {rows} rows of {self.rows}: give 1 or more, once a prompt")
        self._self_caches = _repeated(self._self_caches, rows)
        self.rows = rows

    def reorder(self, rows: Sequence[int]) -> None:
        """Makes row i a copy of what row `rows[i]` was; as many rows are left as are named.

        Raises:
            ValueError: A row does not exist, or more are named than there are.
        """
        if not 1 <= len(rows) <= self.rows or not 0 <= min(rows) <= max(rows) < self.rows:
            raise ValueError(f"cannot make rows {list(rows)}: there are {self.rows}")
        if list(rows) != list(range(self.rows)):
            self._self_caches = {name: as_value(c.numpy()[list(rows)]) for name, c in self._self_caches.items()}
        self.rows = len(rows)

    def step(self, tokens: Sequence[int]) -> FloatArray:
        """Appends tokens to the only row.

        Those of the window's first step go through the graph at once, in float32; later ones one by one: many exports
        have no causal mask among tokens behind a past.

        Args:
            tokens: One or more ids.

        Returns:
            Logits after the last token, float32 (n_vocab,).

        Raises:
            ValueError: `tokens` is empty, is no text of this model's, or does not fit into its context; or there are
                several rows.
            RuntimeError: No window was begun.
        """
        if self.rows != 1:
            raise ValueError(f"there are {self.rows} rows: use step_rows")
        self._check(tokens, len(tokens))
        logits: FloatArray = self._append([tokens])[0]
        return logits

    def step_rows(self, tokens: Sequence[int]) -> FloatArray:
        """Appends one token to every row.

        Args:
            tokens: One id for each row.

        Returns:
            Logits after them, float32 (rows, n_vocab).

        Raises:
            ValueError: The tokens are not one for each row, are no text of this model's, or do not fit into its
                context.
            RuntimeError: No window was begun.
        """
        if len(tokens) != self.rows:
            raise ValueError(f"{len(tokens)} tokens for {self.rows} rows")
        self._check(tokens, 1)
        return self._append([[token] for token in tokens])

    def _check(self, tokens: Sequence[int], length: int) -> None:
        self._require_window()
        check_tokens(tokens, self.position + length, self._dimensions)

    def _require_window(self) -> FloatArray:
        if self._hidden_states is None:
            raise RuntimeError("no window: call begin first")
        return self._hidden_states

    def _forget_window(self) -> None:
        self.position, self.rows = 0, 1
        self.cross_caches, self._self_caches, self._wide_caches = {}, {}, {}
        self._bound_rows, self._beginning = 0, None

    def _append(self, tokens: Sequence[Sequence[int]]) -> FloatArray:
        """Logits, float32 (rows, n_vocab), after the same number of further tokens in every row."""
        ids = np.array(tokens, np.int64)
        begun = 0
        if self.position == 0:
            begun = 1 if self._one_by_one else ids.shape[1]
            logits = self._first_step(ids[:, :begun])
        for index in range(begun, ids.shape[1]):
            logits = self._following_step(ids[:, index : index + 1])
        return logits

    def _first_step(self, ids: NDArray[np.int64]) -> FloatArray:
        """Runs on the tokens, unless they are the ones that the window was begun with before."""
        if self._beginning is not None and np.array_equal(self._beginning[0], ids):
            _, logits, self._self_caches = self._beginning
            self.position = ids.shape[1]
            return logits.copy()
        kept = [*self._self_names, *([] if self.cross_caches else self._cross_names)]
        self._first.bind({"hidden_states": as_value(np.repeat(self._require_window(), len(ids), axis=0))})
        logits, caches = self._first.run(ids, 0, kept)
        self._self_caches = {name: caches[name] for name in self._self_names}
        if not self.cross_caches:
            cross = {name: caches[name] for name in self._cross_names}
            self.cross_caches = cross if len(ids) == 1 else {n: as_value(c.numpy()[:1]) for n, c in cross.items()}
        self.position = ids.shape[1]
        self._beginning = ids, logits.copy(), self._self_caches
        return logits

    def _following_step(self, ids: NDArray[np.int64]) -> FloatArray:
        if self._bound_rows != self.rows:
            self._bind_window()
        self._following.bind(self._self_caches)
        logits, self._self_caches = self._following.run(ids, self.position, self._self_names)
        self.position += 1
        return logits

    def _bind_window(self) -> None:
        """Binds what stays the same from step to step, for the number of rows there are now.

        A copy for every row: exports that fold batch and heads into one axis cannot share one among them.
        """
        if self.rows > 1 and self.rows not in self._wide_caches:
            self._wide_caches = {self.rows: _repeated(self.cross_caches, self.rows)}
        self._following.bind(self._wide_caches[self.rows] if self.rows > 1 else self.cross_caches)
        self._following.bind({"hidden_states": as_value(np.repeat(self._require_window(), self.rows, axis=0))})
        self._bound_rows = self.rows


def _repeated(caches: Caches, rows: int) -> Caches:
    return {name: as_value(np.repeat(cache.numpy(), rows, axis=0)) for name, cache in caches.items()}
