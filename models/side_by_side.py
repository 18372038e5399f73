"""Decodes several windows at the same time: a token of each in turn, their steps run as one batch.

    begin(a) begin(b) ──> turn ──> the next token of a, of b ──> turn ──> ... ──> a is done ──> begin(c) ...

Windows come and go as they like; each gives what it would give alone.
"""

from __future__ import annotations

from collections.abc import Generator, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from susurrus.models.decoder_batch import DecoderBatch
from susurrus.models.decoding import WindowDecoder
from susurrus.models.ladder import EncodedWindow
from susurrus.models.recording import Recording
from susurrus.models.results import DecodedWindow, Hypothesis
from susurrus.models.sessions import Decoder

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Finished:
    """A window is done."""

    window: DecodedWindow | None
    """See `WindowDecoder.decode`."""


Outcome = Hypothesis | Finished | Exception
"""What a turn has brought of a window: more text, all of it, or an error that ended it."""


@dataclass(frozen=True, slots=True)
class _Place:
    row: int
    """Of its decoder."""
    steps: Generator[Hypothesis | None, None, DecodedWindow | None]


class SideBySide(Generic[K]):
    """Up to so many windows at once, each under a key of the caller's. One thread at a time.

    Args:
        decoder: Of the model. One without batches (of float32 graphs, an Optimum export, a trace) decodes a window at a
            time.
        windows: Most of them.
    """

    def __init__(self, decoder: WindowDecoder, windows: int) -> None:
        self._batch: DecoderBatch | None = None
        self._decoders = [decoder]
        session = decoder.session
        if windows > 1 and isinstance(session, Decoder) and session.quantized_cross:
            self._batch = DecoderBatch(session.graphs, windows)
            self._decoders = [decoder.sibling(each) for each in self._batch.decoders]
        self._places: dict[K, _Place] = {}
        self.room = len(self._decoders)
        """For so many windows."""

    @property
    def keys(self) -> list[K]:
        """Of the windows in work, in the order in which they began."""
        return list(self._places)

    def begin(self, key: K, window: EncodedWindow, recording: Recording) -> None:
        """Takes a window. There has to be room; windows of one recording that is not settled come one after another."""
        row = min(set(range(self.room)) - {place.row for place in self._places.values()})  # a batch ends at the last
        self._places[key] = _Place(row, self._decoders[row].decode(window, recording))

    def drop(self, key: K) -> None:
        """Ends the work on a window."""
        self._places.pop(key).steps.close()

    def turn(self) -> list[tuple[K, Outcome]]:
        """One step of every window; what came of those of which there is something to say."""
        if self._batch is not None:
            self._batch.run()
        outcomes: list[tuple[K, Outcome]] = []
        for key, place in list(self._places.items()):
            outcome: Outcome | None
            try:
                outcome = next(place.steps)
            except StopIteration as stop:
                outcome = Finished(stop.value)
            except Exception as error:  # noqa: BLE001 - one window must not take the others with it
                outcome = error
            if isinstance(outcome, Finished | Exception):
                self.drop(key)
            if outcome is not None:
                outcomes.append((key, outcome))
        return outcomes
