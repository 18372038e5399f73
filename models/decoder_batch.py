"""Steps of several windows in one run of the decoder: it reads its weights once for all of them.

A step of one window spends its time on reading weights; four windows side by side take little more than twice as long
as one. Each decoder stays as it is, with a prompt of its own, in a row of memory of its own. It announces the token
that its next step will append; the batch runs these steps ahead, and the decoder's step then only takes what is there.
A step that was not foreseen runs alone, as it would without a batch. In INT8 what comes out is the same to the bit; in
float32 it would not be, as the order of sums depends on the number of rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from susurrus.models.decoder_graphs import DecoderGraphs
from susurrus.models.sessions import Decoder, as_value


class DecoderBatch:
    """Several decoders on the same sessions. One thread at a time.

    A run takes the rows from the first to the last decoder that has announced a token. One between them that has not
    is run on any token: what that leaves in its row, behind its last token, its next step overwrites.

    Args:
        graphs: With int8 caches.
        windows: How many decoders.
    """

    def __init__(self, graphs: DecoderGraphs, windows: int) -> None:
        self._graphs = graphs
        self._caches = graphs.caches(windows)
        rows = range(windows)
        self.decoders = [
            Decoder.in_row(graphs, {name: cache[row : row + 1] for name, cache in self._caches.items()}) for row in rows
        ]
        self._logits = np.zeros((windows, 1, graphs.dimensions.n_vocab), np.float32)
        self._binding = graphs.step.io_binding()
        self._bound: list[int] = []  # the window of each row that is bound

    def run(self) -> None:
        """Runs the announced steps ahead, if there are several: for one alone a batch is no gain."""
        foreseen = [row for row, decoder in enumerate(self.decoders) if decoder.expected is not None]
        if len(foreseen) < 2:
            return
        members = self.decoders[: foreseen[-1] + 1]
        self._bind(members)
        last = self._graphs.dimensions.n_text_ctx - 1
        for row, decoder in enumerate(members):
            self._ids[row] = decoder.expected or 0
            self._positions[row] = self._last_position[row] = min(decoder.position, last)
        self._length[...] = int(self._last_position.max()) + 1
        self._graphs.step.run_with_iobinding(self._binding)
        for row in foreseen:
            self.decoders[row].run_ahead(self._logits[row, 0])

    def _bind(self, members: list[Decoder]) -> None:
        """Binds the rows of so many decoders, with the windows that they have now."""
        windows = [decoder.window for decoder in members]
        if windows == self._bound:
            return
        rows = len(members)
        if rows != len(self._bound):
            self._bind_memory(rows)
        self._bound = windows
        sizes = np.maximum([decoder.log_counts.shape[1] for decoder in members], 1)
        counts = self._input("cross_log_counts", (rows, int(sizes.max())), np.float32)
        for row, decoder in enumerate(members):
            counts[row, : decoder.log_counts.shape[1]] = decoder.log_counts[0]
        self._input("cross_length", (), np.int32)[...] = sizes.max()
        self._input("cross_last_position", (rows,), np.int32)[:] = sizes - 1

    def _bind_memory(self, rows: int) -> None:
        for name, cache in self._caches.items():
            value = as_value(cache[:rows])
            self._binding.bind_ortvalue_input(name, value)
            if f"present_{name}" in self._graphs.step_contract.outputs:
                self._binding.bind_ortvalue_output(f"present_{name}", value)
        self._binding.bind_ortvalue_output("logits", as_value(self._logits[:rows]))
        self._ids = self._input("ids", (rows, 1), np.int64)
        self._positions = self._input("positions", (rows, 1), np.int64)
        self._last_position = self._input("last_position", (rows,), np.int32)
        self._length = self._input("length", (), np.int32)

    def _input(self, name: str, shape: tuple[int, ...], dtype: type[np.generic]) -> NDArray[Any]:
        array = np.zeros(shape, dtype)
        self._binding.bind_ortvalue_input(name, as_value(array))
        return array
