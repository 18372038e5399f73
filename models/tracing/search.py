"""A session and a search that tell of every step and every token."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from susurrus.models.rules import Rule
from susurrus.models.search import Candidate, DecoderSession, Search
from susurrus.models.tokenizer import Tokenizer

Float32Array = NDArray[np.float32]
Record = dict[str, Any]

TOP = 5
"""Tokens told of at every step, the most probable ones first."""


class Pen:
    """Writes records. It knows in which attempt the search is, and how long the session's last run took.

    Args:
        tokenizer: spells tokens.
        write: takes each record.
    """

    def __init__(self, tokenizer: Tokenizer, write: Callable[[Record], None]) -> None:
        self.attempt = 0
        self.temperature = 0.0
        self.resumed = False
        self.last_ms = 0.0
        """Of the run that gave the newest logits; 0 when they are those of an earlier attempt."""
        self._tokenizer = tokenizer
        self._write = write

    def tell(self, kind: str, **facts: Any) -> None:
        """Write a record."""
        self._write({"kind": kind, **facts})

    def text(self, token: int) -> str:
        """How a token reads: special ones as spelt, text with hexadecimal escapes for parts of a character."""
        if token >= self._tokenizer.special.eot:
            return self._tokenizer.spelling(token)
        return self._tokenizer.token_bytes(token).decode(errors="backslashreplace")

    @contextmanager
    def timed(self, what: str, tokens: Sequence[int]) -> Iterator[None]:
        """Tell how long something of the decoder takes."""
        start = time.monotonic_ns()
        yield
        ms = (time.monotonic_ns() - start) / 1e6
        if tokens:
            self.last_ms = ms
        self.tell("step", what=what, start_ns=start, ms=ms, tokens=[self.text(token) for token in tokens])


class TimedSession:
    """A `DecoderSession` on another one."""

    def __init__(self, session: DecoderSession, pen: Pen) -> None:
        self._session = session
        self._pen = pen

    @property
    def position(self) -> int:
        """See `DecoderSession`, as of all methods."""
        return self._session.position

    def begin(self, hidden_states: Float32Array, log_counts: Float32Array | None = None) -> None:
        """Timed."""
        with self._pen.timed("keys and values of the window", ()):
            self._session.begin(hidden_states, log_counts)

    def rewind(self, position: int = 0) -> None:
        """Too short to be timed."""
        self._session.rewind(position)

    def step(self, tokens: Sequence[int]) -> Float32Array:
        """Timed."""
        with self._pen.timed("step" if len(tokens) == 1 else "prompt", tokens):
            return self._session.step(tokens)

    def announce(self, token: int) -> None:
        """Nothing is run ahead."""

    def expand(self, rows: int) -> None:
        """Timed."""
        with self._pen.timed(f"make {rows} rows", ()):
            self._session.expand(rows)

    def step_rows(self, tokens: Sequence[int]) -> Float32Array:
        """Timed."""
        with self._pen.timed(f"step of {len(tokens)} rows", tokens):
            return self._session.step_rows(tokens)

    def reorder(self, rows: Sequence[int]) -> None:
        """Too short to be timed."""
        self._session.reorder(rows)


@dataclass(slots=True)
class _State:
    """What a search has looked at in the current step."""

    asked: list[tuple[Float32Array, Float32Array, tuple[int, ...], bool]] = field(default_factory=list)
    """What the rules left, logits before the rules, tokens so far, whether the end may come: for each row."""
    candidates: list[Candidate] = field(default_factory=list)
    """Those that go side by side, in the order of their rows."""
    beams: bool = False

    def start(self, *, beams: bool) -> None:
        """Another attempt begins."""
        self.asked, self.candidates, self.beams = [], [], beams

    def row_of(self, candidate: Candidate) -> int:
        """Which of those side by side it is."""
        for row, known in enumerate(self.candidates):
            if known is candidate:
                return row
        self.candidates.append(candidate)
        return len(self.candidates) - 1


@dataclass(frozen=True)
class TracedSearch(Search):
    """Tells of every token that is taken, in the record `token`.

    Its fields:
    attempt, temperature, resumed; row (that it goes on from); step (tokens found before it), position (in the
    decoder's context); id, text; logprob, among what the rules allow; ms, of the run that gave it, for all rows
    together; top: [[id, text, probability], ...] of what the rules allow; raw: the most probable one before the rules,
    and its probability there; forbidden_by: the rule that forbade that one, or null.
    """

    pen: Pen
    state: _State = field(default_factory=_State)

    def greedy(
        self, logits: Float32Array, found: Candidate, *, may_end: bool = True
    ) -> Generator[list[int], None, Candidate]:
        """See `Search`, as of all methods."""
        self.state.start(beams=False)
        return super().greedy(logits, found, may_end=may_end)

    def sample(
        self, logits: Float32Array, temperature: float, count: int, generator: np.random.Generator
    ) -> Generator[list[int], None, Candidate]:
        """Rows are candidates."""
        self.state.start(beams=False)
        return super().sample(logits, temperature, count, generator)

    def beam(self, logits: Float32Array, size: int) -> Generator[list[int], None, Candidate]:
        """Rows are beams."""
        self.state.start(beams=True)
        return super().beam(logits, size)

    def _grow(
        self, rows: Float32Array, beams: list[Candidate], size: int, ended: list[Candidate]
    ) -> tuple[list[int], list[Candidate]]:
        self.state.asked.clear()
        return super()._grow(rows, beams, size, ended)

    def _logprobs(self, logits: Float32Array, tokens: Sequence[int], *, may_end: bool = True) -> Float32Array:
        allowed = super()._logprobs(logits, tokens, may_end=may_end)
        if not self.state.beams:
            self.state.asked.clear()
        self.state.asked.append((allowed, logits, tuple(tokens), may_end))
        return allowed

    def _take(self, candidate: Candidate, token: int, logprobs: Float32Array) -> None:
        row = next(row for row, asked in enumerate(self.state.asked) if asked[0] is logprobs)
        _, logits, before, may_end = self.state.asked[row]
        pen, raw = self.pen, int(logits.argmax())
        forbidden = np.isneginf(logprobs[raw])
        pen.tell(
            "token",
            attempt=pen.attempt,
            temperature=pen.temperature,
            resumed=pen.resumed,
            row=row if self.state.beams else self.state.row_of(candidate),
            step=len(before),
            position=self.session.position,
            id=token,
            text=pen.text(token),
            logprob=float(logprobs[token]),
            ms=pen.last_ms,
            top=[[each, pen.text(each), float(np.exp(logprobs[each]))] for each in most_probable_tokens(logprobs)],
            raw=[raw, pen.text(raw), 1 / float(np.exp(logits.astype(np.float64) - float(logits[raw])).sum())],
            forbidden_by=forbidding_rule(self.rules, logits, before, raw, may_end=may_end) if forbidden else None,
        )
        super()._take(candidate, token, logprobs)


def most_probable_tokens(logprobs: Float32Array, count: int = TOP) -> list[int]:
    """The ids of the most probable tokens, (n_vocab,), best first; those that are impossible left out."""
    count = min(count, len(logprobs))
    best = np.argpartition(-logprobs, count - 1)[:count]
    best = best[np.argsort(-logprobs[best], kind="stable")]
    return [int(token) for token in best if np.isfinite(logprobs[token])]


def forbidding_rule(
    rules: Sequence[Rule], logits: Float32Array, tokens: Sequence[int], token: int, *, may_end: bool
) -> str:
    """Name of the first rule that forbids `token` after `tokens`."""
    left = logits.copy()
    for rule in rules:
        rule(left, tokens)
        if np.isneginf(left[token]):
            return type(rule).__name__
    return "" if may_end else "speech goes on"
