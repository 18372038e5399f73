"""A decoder session that says what a test has written down."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

Float32Array = NDArray[np.float32]
Said = int | Mapping[int, float]
"""A token that is certain, or logits by token; all others are 0."""


class ScriptedSession:
    """Answers with what `script` says after the tokens so far, and notes what it was asked.

    Args:
        n_vocab: length of the logits.
        script: from the tokens in the cache to what comes next.
    """

    def __init__(self, n_vocab: int, script: Callable[[list[int]], Said]) -> None:
        self.asked: list[list[int]] = []
        """Tokens of every step, those of several rows together."""
        self.windows = 0
        self.rows: list[list[int]] = [[]]
        self._logits = np.zeros((1, n_vocab), np.float32)
        self._script = script

    @property
    def position(self) -> int:
        """Number of tokens in the cache."""
        return len(self.rows[0])

    def begin(self, hidden_states: Float32Array, log_counts: Float32Array | None = None) -> None:  # noqa: ARG002
        """Note it."""
        assert hidden_states.dtype == np.float32
        self.windows += 1
        self.rows = [[]]

    def rewind(self, position: int = 0) -> None:
        """Forget tokens and rows."""
        self.rows = [self.rows[0][:position]]

    def announce(self, token: int) -> None:
        """Nothing is run ahead."""

    def step(self, tokens: Sequence[int]) -> Float32Array:
        """Append tokens to the only row."""
        assert len(self.rows) == 1
        assert tokens
        self.asked.append(list(tokens))
        self.rows[0] += tokens
        logits: Float32Array = self._answer()[0]
        return logits

    def expand(self, rows: int) -> None:
        """Copy the only row."""
        assert len(self.rows) == 1
        self.rows = [list(self.rows[0]) for _ in range(rows)]

    def step_rows(self, tokens: Sequence[int]) -> Float32Array:
        """Append one token to each row."""
        self.asked.append(list(tokens))
        for row, token in zip(self.rows, tokens, strict=True):
            row.append(token)
        return self._answer()

    def reorder(self, rows: Sequence[int]) -> None:
        """Copy rows."""
        self.rows = [list(self.rows[row]) for row in rows]

    def _answer(self) -> Float32Array:
        n_vocab = self._logits.shape[1]
        self._logits = np.zeros((len(self.rows), n_vocab), np.float32)
        for logits, row in zip(self._logits, self.rows, strict=True):
            said = self._script(row)
            for token, value in ({said: 30.0} if isinstance(said, int) else said).items():
                logits[token] = value
        return self._logits
