"""Steps of several windows in one run of the decoder: it reads its weights once for all of them.

A step of one window spends its time on reading weights; four windows side by side take little more than twice as long
as one. Each decoder stays as it is, with a prompt of its own; it announces the token that its next step will append,
the batch runs these steps ahead, and the decoder's step then only takes what is there. A step that was not foreseen
runs alone, as it would without a batch. In INT8 what comes out is the same to the bit; in float32 it would not be, as
the order of sums depends on the number of rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from susurrus.models.sessions import Decoder

Member = tuple[Decoder, int]
"""A decoder, and which of its windows it came with."""


class DecoderBatch:
    """Caches for several windows, and the binding of a run over them. One thread at a time, the decoders'.

    Args:
        decoder: One of those that will come: siblings, with int8 caches.
        windows: Most of them at once.
    """

    def __init__(self, decoder: Decoder, windows: int) -> None:
        graphs, size = decoder.graphs, decoder.graphs.dimensions
        self._graphs = graphs
        self._binding = graphs.step.io_binding()
        self._members: list[Member] = []  # one a row
        free = {"B": windows, "W": windows, "S": 1, "C": size.n_audio_ctx}
        self._caches: dict[str, NDArray[Any]] = {
            name: np.zeros([free[side] if isinstance(side, str) else side for side in spec.shape], spec.dtype)
            for name, spec in graphs.step_contract.inputs.items()
            if name.startswith(("self_", "cross_key", "cross_value"))
        }
        self._logits = np.zeros((windows, 1, size.n_vocab), np.float32)
        self._length = self._input("length", (), np.int32)

    def run(self, decoders: Sequence[Decoder]) -> None:
        """Runs the announced step of every decoder.

        Args:
            decoders: At most as many as there is room for, each with one row, whose `expected` is known.
        """
        self._seat(decoders)
        for row, (decoder, _) in enumerate(self._members):
            self._copy_tokens(decoder, row)
            self._ids[row] = decoder.expected
            self._positions[row] = self._last_position[row] = decoder.position
        self._length[...] = int(self._last_position.max()) + 1
        self._graphs.step.run_with_iobinding(self._binding)
        for row, (decoder, _) in enumerate(self._members):
            decoder.run_ahead(self._logits[row, 0], partial(self._give_back, decoder))

    def _seat(self, decoders: Sequence[Decoder]) -> None:
        """Gives every decoder a row, from the first on, and keeps those that have one where they are."""
        wanted = [(decoder, decoder.window) for decoder in decoders]
        if len(wanted) == len(self._members) and all(member in wanted for member in self._members):
            return
        for decoder, _ in self._members:
            if decoder not in decoders:
                decoder.own_all()
        rows: list[Member | None] = [member if member in wanted else None for member in self._members]
        coming = [member for member in wanted if member not in rows]
        rows += [None] * len(wanted)
        for row in range(len(wanted)):
            if rows[row] is None and coming:
                rows[row] = member = coming.pop()
                self._copy_window(member[0], row)
            elif rows[row] is None:
                last = max(index for index, member in enumerate(rows) if member is not None)
                rows[row], rows[last] = rows[last], None
                for cache in self._caches.values():
                    cache[row] = cache[last]
        self._members = [member for member in rows if member is not None]
        self._bind()

    def _copy_window(self, decoder: Decoder, row: int) -> None:
        """A window's keys and values; its tokens are copied when they are missed."""
        decoder.own_all()
        decoder.shared = 0
        for name, value in decoder.cross_caches.items():
            array, cache = value.numpy()[0], self._caches[name][row]
            cache[tuple(slice(side) for side in array.shape)] = array

    def _copy_tokens(self, decoder: Decoder, row: int) -> None:
        """Keys and values of the tokens that the decoder has and the batch has not."""
        if decoder.shared < decoder.position:
            for name, own in decoder.own_row().items():
                self._caches[name][row, :, decoder.shared : decoder.position] = own[
                    :, decoder.shared : decoder.position
                ]

    def _give_back(self, decoder: Decoder) -> None:
        """The other way round."""
        row = [member for member, _ in self._members].index(decoder)
        for name, own in decoder.own_row().items():
            own[:, decoder.own : decoder.position] = self._caches[name][row, :, decoder.own : decoder.position]

    def _bind(self) -> None:
        """Binds the rows of those that are there; what a shorter window has not is no key of it."""
        rows = len(self._members)
        for name, cache in self._caches.items():
            value = _value(cache[:rows])
            self._binding.bind_ortvalue_input(name, value)
            if f"present_{name}" in self._graphs.step_contract.outputs:
                self._binding.bind_ortvalue_output(f"present_{name}", value)
        self._binding.bind_ortvalue_output("logits", _value(self._logits[:rows]))
        self._ids = self._input("ids", (rows, 1), np.int64)
        self._positions = self._input("positions", (rows, 1), np.int64)
        self._last_position = self._input("last_position", (rows,), np.int32)
        sizes = [decoder.log_counts.shape[1] for decoder, _ in self._members]
        counts = self._input("cross_log_counts", (rows, max(sizes)), np.float32)
        for row, (decoder, _) in enumerate(self._members):
            counts[row, : sizes[row]] = decoder.log_counts[0]
        self._input("cross_length", (), np.int32)[...] = max(sizes)
        self._input("cross_last_position", (rows,), np.int32)[:] = np.array(sizes) - 1

    def _input(self, name: str, shape: tuple[int, ...], dtype: type[np.generic]) -> NDArray[Any]:
        array = np.zeros(shape, dtype)
        self._binding.bind_ortvalue_input(name, _value(array))
        return array


def _value(array: NDArray[Any]) -> ort.OrtValue:
    """An OrtValue on the array's own memory, which it keeps alive."""
    return ort.OrtValue.ortvalue_from_numpy(array)
