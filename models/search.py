"""Searching the most probable tokens of a window: greedy, by samples, or with beams.

Written from `GreedyDecoder` and `BeamSearchDecoder` of whisper/decoding.py (openai-whisper). Each search is a
generator: it yields its best tokens so far after every step of the decoder and returns what it found, so that a caller
that stops iterating stops the work.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from susurrus.models.rules import Rule

Float32Array = NDArray[np.float32]

LOOP_COPIES = 4
"""So many copies of the same tokens in a row at the end, and `LOOP_TOKENS` of them in all, are a loop. People do say a
sentence three times."""
LOOP_TOKENS = 24
LOOP_PERIOD = 40
"""Longest sequence looked for, in tokens: a long sentence."""
STUTTER_COPIES = 8
"""So many copies of up to `STUTTER_PERIOD` tokens are a loop that found its end. People repeat a word five times."""
STUTTER_PERIOD = 3


class DecoderSession(Protocol):
    """What searching needs of a text decoder; `susurrus.models.sessions.Decoder` is the real one."""

    @property
    def position(self) -> int:
        """Number of tokens in the cache."""

    def begin(self, hidden_states: Float32Array, log_counts: Float32Array | None = None) -> None:
        """Take a window's hidden states, float32 (C, n_audio_state); empty the KV cache.

        `log_counts` says how many positions each stands for, see `context.AudioContext`; None: one each.
        """

    def rewind(self, position: int = 0) -> None:
        """Forget the cached tokens from `position` on, and all rows but the first; the window stays."""

    def step(self, tokens: Sequence[int]) -> Float32Array:
        """Append `tokens`; return the logits after the last one, float32 (n_vocab,), valid until the next step."""

    def announce(self, token: int) -> None:
        """The next step will append this token, if there is one: it may be run ahead, together with others."""

    def expand(self, rows: int) -> None:
        """Go on with so many rows, all with the tokens of the only one so far."""

    def step_rows(self, tokens: Sequence[int]) -> Float32Array:
        """Append one token to each row; return the logits of each, float32 (rows, n_vocab)."""

    def reorder(self, rows: Sequence[int]) -> None:
        """Make row i a copy of what row `rows[i]` was."""


@dataclass(slots=True)
class Candidate:
    """Tokens that a search found."""

    tokens: list[int] = field(default_factory=list)
    """Without the prompt and the end token."""
    logprobs: list[float] = field(default_factory=list)
    """Log-probability of each token, among those that the rules allowed."""
    end_logprob: float = 0.0
    """Log-probability of the end token; 0 until it comes."""
    ended: bool = False
    """The end token came; otherwise the limit did, or a loop."""
    closing: int | None = None
    """The most probable timestamp when the end token came: where the last cue ends if no timestamp says so."""

    @property
    def sum_logprob(self) -> float:
        """Log-probability of all of it."""
        return sum(self.logprobs) + self.end_logprob

    @property
    def avg_logprob(self) -> float:
        """Mean log-probability, as openai-whisper counts: with the end token."""
        return self.sum_logprob / (len(self.tokens) + 1)


@dataclass(frozen=True, slots=True)
class Search:
    """What all ways of searching share: session, rules, and when to stop.

    Args:
        session: holds the window.
        rules: forbid tokens, in order.
        eot: the end token.
        timestamp_begin: the first timestamp; the others follow it.
        limit: most tokens to find.
    """

    session: DecoderSession
    rules: Sequence[Rule]
    eot: int
    timestamp_begin: int
    limit: int

    def greedy(
        self, logits: Float32Array, found: Candidate, *, may_end: bool = True
    ) -> Generator[list[int], None, Candidate]:
        """Take the most probable token again and again.

        Args:
            logits: after the prompt and `found.tokens`, float32 (n_vocab,).
            found: what to go on from; extended in place.
            may_end: whether the next token may be the end.
        """
        while len(found.tokens) < self.limit:
            logprobs = self._logprobs(logits, found.tokens, may_end=may_end)
            token = int(logprobs.argmax())
            self._take(found, token, logprobs)
            if found.ended:
                break
            self.session.announce(token)
            yield found.tokens
            if loop_length(found.tokens, self.eot):
                break
            may_end = True
            logits = self.session.step((token,))
        return found

    def sample(
        self, logits: Float32Array, temperature: float, count: int, generator: np.random.Generator
    ) -> Generator[list[int], None, Candidate]:
        """Draw `count` candidates side by side; the most probable one by mean log-probability is the answer."""
        candidates = [Candidate() for _ in range(count)]
        self.session.expand(count)
        rows = np.repeat(logits[np.newaxis], count, axis=0)
        while True:
            tokens = [self._draw(row, each, temperature, generator) for row, each in zip(rows, candidates, strict=True)]
            yield candidates[0].tokens
            if all(
                each.ended or len(each.tokens) >= self.limit or loop_length(each.tokens, self.eot)
                for each in candidates
            ):
                return max(candidates, key=lambda each: each.avg_logprob)
            rows = self.session.step_rows(tokens)

    def beam(self, logits: Float32Array, size: int) -> Generator[list[int], None, Candidate]:
        """Keep the `size` most probable hypotheses; stop when as many have ended (patience 1)."""
        beams, ended = [Candidate() for _ in range(size)], list[Candidate]()
        self.session.expand(size)
        rows = logits[np.newaxis]  # all beams are equal at first
        while len(ended) < size and len(beams[0].tokens) < self.limit:
            origins, beams = self._grow(rows, beams, size, ended)
            if not beams:
                break
            yield beams[0].tokens
            self.session.reorder([*origins, *origins[:1] * (size - len(origins))])
            last = [beam.tokens[-1] for beam in beams]
            rows = self.session.step_rows([*last, *last[:1] * (size - len(last))])[: len(beams)]
        return max([*ended, *beams[: size - len(ended)]], key=lambda each: each.sum_logprob / max(1, len(each.tokens)))

    def _grow(
        self, rows: Float32Array, beams: list[Candidate], size: int, ended: list[Candidate]
    ) -> tuple[list[int], list[Candidate]]:
        """The next beams, best first, with the row that each goes on from; those that end go to `ended`."""
        grown: list[tuple[float, int, int]] = []
        after = [self._logprobs(logits, beam.tokens) for logits, beam in zip(rows, beams, strict=False)]
        for row, logprobs in enumerate(after):
            before = beams[row].sum_logprob
            count = min(size + 1, len(logprobs))  # one more: one may be the end
            best = np.argpartition(-logprobs, count - 1)[:count].tolist()
            grown += [(before + float(logprobs[token]), row, token) for token in best]
        origins, following = list[int](), list[Candidate]()
        for total, row, token in sorted(grown, reverse=True):
            if len(following) == size or not np.isfinite(total):
                break
            longer = Candidate(list(beams[row].tokens), list(beams[row].logprobs))
            self._take(longer, token, after[row])
            if not longer.ended:
                origins.append(row)
                following.append(longer)
            elif len(ended) < size:
                ended.append(longer)
        return origins, following

    def _take(self, candidate: Candidate, token: int, logprobs: Float32Array) -> None:
        """Append a token, or end with the end token."""
        if token != self.eot:
            candidate.tokens.append(token)
            candidate.logprobs.append(float(logprobs[token]))
            return
        candidate.end_logprob, candidate.ended = float(logprobs[token]), True
        closing = self.timestamp_begin + int(logprobs[self.timestamp_begin :].argmax())
        candidate.closing = closing if np.isfinite(logprobs[closing]) else None

    def _draw(
        self, logits: Float32Array, candidate: Candidate, temperature: float, generator: np.random.Generator
    ) -> int:
        """The candidate's next token, drawn from softmax(logits / temperature); the end token once it has ended."""
        draw = generator.random()  # one each, ended or not: what one candidate draws depends on no other
        if candidate.ended or len(candidate.tokens) >= self.limit:
            return self.eot
        logprobs = self._logprobs(logits, candidate.tokens)
        weights = np.exp(logprobs.astype(np.float64) / temperature - float(logprobs.max()) / temperature)
        total = np.cumsum(weights)
        token = int(np.searchsorted(total, draw * total[-1], side="right"))
        self._take(candidate, token, logprobs)
        return token

    def _logprobs(self, logits: Float32Array, tokens: Sequence[int], *, may_end: bool = True) -> Float32Array:
        """Log-probabilities, float32 (n_vocab,), of what the rules allow after `tokens`."""
        allowed = logits.copy()
        for rule in self.rules:
            rule(allowed, tokens)
        if not may_end:
            allowed[self.eot] = -np.inf
        allowed -= allowed.max()
        allowed -= np.log(np.exp(allowed).sum())
        return allowed


def loop_length(tokens: Sequence[int], eot: int) -> int:
    """How many text tokens at the end are copies of the ones before them; 0 when that is no loop.

    The first of the copies is not counted: it may have been said. Timestamps, all above `eot`, differ from copy to copy
    and are not looked at.
    """
    tail = [token for token in tokens[-2 * LOOP_COPIES * LOOP_PERIOD :] if token < eot]
    for period in range(1, min(LOOP_PERIOD, len(tail) // LOOP_COPIES) + 1):
        length = period * max(LOOP_COPIES, -(-LOOP_TOKENS // period))
        if length <= len(tail) and tail[-length:-period] == tail[period - length :]:
            return length - period
    return 0


def stutters(tokens: Sequence[int], eot: int) -> bool:
    """Whether anywhere in the text so few tokens come again so many times at once that nobody says it."""
    text = [token for token in tokens if token < eot]
    for period in range(1, STUTTER_PERIOD + 1):
        copies = 0
        for index in range(period, len(text)):
            copies = copies + 1 if text[index] == text[index - period] else 0
            if copies >= (STUTTER_COPIES - 1) * period:
                return True
    return False


def without_loop(tokens: Sequence[int], eot: int) -> list[int]:
    """The tokens up to the end of a loop's first copy."""
    surplus = loop_length(tokens, eot)
    kept = list(tokens)
    while surplus:
        surplus -= kept.pop() < eot
    return kept
