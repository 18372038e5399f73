"""From a prompt to a text that is good enough and reaches the end of the speech.

    search at temperature 0 ─> good enough? ─> somebody still speaks? ─> go on from there
              ^                    │ no
              └ the next temperature

References: `decode_with_fallback` in whisper/transcribe.py (openai-whisper); going on is this project's own.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from susurrus.models.config import ModelConfig
from susurrus.models.context import AudioContext
from susurrus.models.cues import Timed, read_cues, seconds, uncovered
from susurrus.models.fallback import MAX_STEPS_FACTOR, Attempt, best_of, is_good
from susurrus.models.options import DecodingOptions
from susurrus.models.results import Hypothesis, Span
from susurrus.models.rules import Prompt, rules_for
from susurrus.models.search import Candidate, DecoderSession, Search, loop_length, stutters, without_loop
from susurrus.models.special_tokens import SpecialTokens
from susurrus.models.tokenizer import Tokenizer

Float32Array = NDArray[np.float32]
Hypotheses = Generator[Hypothesis | None, None, Attempt]
"""None for a step that changes no text."""

TOKENS_PER_SECOND, TOKENS_MORE = 30, 30
"""Most tokens of a window by its length. Fast English has 5 a second, languages that Whisper spells in bytes up to 20;
what goes on beyond is a loop."""

MISSED_SECONDS = 0.7
"""Speech at the end of a window, behind the last cue, that makes the decoder go on. Of 224 windows those that had lost
nothing had at most 0.6 s of it (padding, breath); of the eight with more than 0.7 s seven had lost words."""
MAX_RESUMES = 3
MIN_RESUMED_LOGPROB = -1.0
"""Mean log-probability below which what came of going on is not believed: the decoder had said that it is done."""


@dataclass(frozen=True, slots=True)
class EncodedWindow:
    """One window as the decoder gets it."""

    index: int
    """0, 1, 2, ... in its recording."""
    hidden_states: Float32Array
    """(C, n_audio_state) float32."""
    duration: float
    """Seconds of audio in the window."""
    speech: tuple[Span, ...]
    """Where somebody speaks, in seconds from the start of the window."""
    context: AudioContext | None = None
    """Which positions of the window the hidden states are; None: all, one by one."""
    is_final: bool = False
    """It cannot be had again with other positions."""

    @classmethod
    def in_recording(
        cls,
        index: int,
        encoded: tuple[Float32Array, AudioContext],
        start: float,
        end: float,
        speech: Sequence[Timed],
    ) -> EncodedWindow:
        """From what the encoder gave and times on the recording's time line."""
        spans = tuple(Span(span.start - start, span.end - start) for span in speech)
        return cls(index, encoded[0], end - start, spans, encoded[1])

    @property
    def may_be_redone(self) -> bool:
        """Whether there is more to be had of the window than these hidden states."""
        return not self.is_final and self.context is not None and not self.context.is_full


class Ladder:
    """Tries temperatures on the window that the session holds, then goes on to the end of its speech.

    One thread at a time, the session's.
    """

    def __init__(self, session: DecoderSession, tokenizer: Tokenizer, config: ModelConfig) -> None:
        self._session = session
        self._tokenizer = tokenizer
        self._special = tokenizer.special
        self._config = config
        self._n_text_ctx = config.dimensions.n_text_ctx
        self.step_seconds = config.audio.chunk_length / config.dimensions.n_audio_ctx
        """Seconds from one timestamp to the next."""

    def climb(
        self, window: EncodedWindow, prompt: Prompt, options: DecodingOptions, no_speech_prob: float
    ) -> Hypotheses:
        """Try the temperatures in order until the text is good enough; else take the best of what came."""
        search = self._search(options, self._limit(window, prompt))
        logits = self._read(prompt.tokens).copy()
        attempts: list[Attempt] = []
        steps = 0  # of the decoder, however many candidates each looked at
        for temperature in options.temperatures:
            self._session.rewind(len(prompt.tokens))
            attempt = yield from self._attempt(search, logits, window.index, options, temperature)
            if any(attempt.text == earlier.text for earlier in attempts):
                return attempt  # what comes out hot as it did cold is what is said, were it five times
            attempts.append(attempt)
            steps += len(attempt.candidate.tokens) + 1
            if is_good(attempt, options, no_speech_prob):
                return attempt
            if steps >= MAX_STEPS_FACTOR * search.limit:
                break
        return best_of(attempts, options)

    def _attempt(
        self, search: Search, logits: Float32Array, window: int, options: DecodingOptions, temperature: float
    ) -> Hypotheses:
        if temperature > 0:
            generator = np.random.default_rng((window, round(1000 * temperature)))  # the same text every time
            steps = search.sample(logits, temperature, options.best_of, generator)
        elif options.beam_size > 1:
            steps = search.beam(logits, options.beam_size)
        else:
            steps = search.greedy(logits, Candidate())
        return (yield from self._watch(steps, temperature, ()))

    def to_the_end(
        self, window: EncodedWindow, prompt: Prompt, options: DecodingOptions, attempt: Attempt
    ) -> Hypotheses:
        """Go on where the decoder stopped though somebody still speaks (B05, B06)."""
        for _ in range(MAX_RESUMES):
            tokens = closed_tokens(attempt.candidate, self._special)
            cues = read_cues(tokens, self._tokenizer, step=self.step_seconds, duration=window.duration)
            last = cues[-1].end if cues else 0.0
            if seconds(span for span in uncovered(cues, window.speech) if span.end > last) < MISSED_SECONDS:
                break
            logprobs = [*attempt.candidate.logprobs, 0.0]  # the last for a closing time, which was not sampled
            found = Candidate(tokens, logprobs[: len(tokens)])
            search = self._search(options, self._limit(window, prompt))
            before = len(tokens)
            steps = search.greedy(self._read([*prompt.tokens, *tokens]), found, may_end=False)
            resumed = yield from self._watch(steps, attempt.temperature, tokens)
            added = found.logprobs[before:]
            believed = added and sum(added) / len(added) >= MIN_RESUMED_LOGPROB
            if not believed or resumed.loops or not resumed.text[len(attempt.text) :].strip():
                yield self._hypothesis(attempt)
                break
            attempt = resumed
        return attempt

    def timed(self, prompt: Prompt, attempt: Attempt) -> Attempt:
        """A text that was decoded without timestamps, with the time at which the decoder says that it ends.

        The text is read once more, behind `<|0.00|>`, and the most probable timestamp after it is taken.

        Args:
            prompt: of the window, for decoding with timestamps.
            attempt: whose text it is.
        """
        begin, eot = self._special.timestamp_begin, self._special.eot
        sampled = zip(attempt.candidate.tokens, attempt.candidate.logprobs, strict=True)
        text = [(token, logprob) for token, logprob in sampled if token < eot]
        if not text:
            return attempt
        tokens = [begin, *(token for token, _ in text)]
        later = self._read([*prompt.tokens, *tokens])[begin + 1 :]
        candidate = replace(
            attempt.candidate,
            tokens=tokens,
            logprobs=[0.0, *(logprob for _, logprob in text)],
            closing=begin + 1 + int(later.argmax()),
        )
        return replace(attempt, candidate=candidate)

    def _read(self, tokens: Sequence[int]) -> Float32Array:
        """Logits after the tokens. What `_listen` has read already, the session need not read again."""
        if self._session.position == 1 and len(tokens) > 1 and tokens[0] == self._special.sot:
            return self._session.step(tokens[1:])
        self._session.rewind()
        return self._session.step(tokens)

    def _search(self, options: DecodingOptions, limit: int) -> Search:
        rules = rules_for(
            self._config,
            self._special,
            timestamps=options.timestamps,
            no_repeat_ngram_size=options.no_repeat_ngram_size,
        )
        return Search(self._session, rules, self._special.eot, self._special.timestamp_begin, limit)

    def _limit(self, window: EncodedWindow, prompt: Prompt) -> int:
        by_length = int(TOKENS_PER_SECOND * window.duration) + TOKENS_MORE
        return min(by_length, self._n_text_ctx // 2, self._n_text_ctx - len(prompt.tokens))

    def _watch(
        self, steps: Generator[list[int], None, Candidate], temperature: float, before: Sequence[int]
    ) -> Hypotheses:
        """Yield after every step, a hypothesis if it changes the text; return what the search found, its loop cut off.

        Args:
            steps: a search.
            temperature: of the search.
            before: tokens that it goes on from.
        """
        text = self._tokenizer.incremental()
        text.extend(before)
        known = list(before)
        while True:
            try:
                tokens = next(steps)
            except StopIteration as stop:
                candidate: Candidate = stop.value
                break
            if tokens[: len(known)] != known:  # another beam is ahead
                text, known = self._tokenizer.incremental(), []
            settled = len(text.text)
            changes = text.extend(tokens[len(known) :])
            stable = settled if temperature == 0 else 0
            yield Hypothesis(text.text, stable, tuple(tokens), temperature) if changes else None
            known = list(tokens)
        loops = loop_length(candidate.tokens, self._special.eot) > 0
        if loops:
            kept = without_loop(candidate.tokens, self._special.eot)
            candidate = replace(candidate, tokens=kept, logprobs=candidate.logprobs[: len(kept)])
        return Attempt(
            temperature,
            candidate,
            self._tokenizer.decode(candidate.tokens),
            loops or stutters(candidate.tokens, self._special.eot),
        )

    def _hypothesis(self, attempt: Attempt) -> Hypothesis:
        return Hypothesis(attempt.text, 0, tuple(attempt.candidate.tokens), attempt.temperature)


def closed_tokens(candidate: Candidate, special: SpecialTokens) -> list[int]:
    """The tokens found; when the end came though the last cue has none, with the most probable time for it.

    Without, the cue would seem to last as long as the window, and speech that the decoder did not read would seem read.
    """
    tokens = candidate.tokens
    open_cue = bool(tokens) and tokens[-1] < special.timestamp_begin
    return [*tokens, candidate.closing] if open_cue and candidate.closing is not None else list(tokens)
