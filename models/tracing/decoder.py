"""A `WindowDecoder` that tells what it does, as records that JSON can hold, in the order in which things happen.

    window   index, duration, speech, options, tasks: the ids of the task tokens
    heard    no_speech_prob, languages: what the first step says
    language code, probability: what is decoded in
    prompt   tokens: [[id, spelling], ...], limit of tokens to find
    step     what, start_ns (time.monotonic_ns), ms, tokens: one run of the decoder
    token    see `TracedSearch`
    attempt  number, temperature, resumed, text, ...; reasons: why it is not good enough
    chosen   attempt, why
    timed    closing: the time asked for behind a text without timestamps
    resumed  runs, taken: the attempt that went on to the end of the speech and is believed, or null
    result   what `DecodedWindow` says

It decodes as `WindowDecoder` does: it only looks.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from susurrus.models.config import ModelConfig
from susurrus.models.decoding import WindowDecoder, WordAligner
from susurrus.models.fallback import Attempt, is_good
from susurrus.models.ladder import MIN_RESUMED_LOGPROB, EncodedWindow, Hypotheses, Ladder
from susurrus.models.options import DecodingOptions
from susurrus.models.recording import Recording, most_probable
from susurrus.models.results import Cue, DecodedWindow, Hypothesis
from susurrus.models.rules import Prompt
from susurrus.models.search import Candidate, DecoderSession, Search
from susurrus.models.tokenizer import Tokenizer
from susurrus.models.tracing.search import Pen, Record, TimedSession, TracedSearch

__all__ = ["Record", "TracedDecoder", "TracedLadder", "rejections"]


class TracedDecoder(WindowDecoder):
    """Decodes one window after another, and tells `on_record` all about it.

    Not thread-safe, as `WindowDecoder`.
    """

    on_record: Callable[[Record], None]
    """Called on the thread that decodes."""

    def __init__(
        self,
        session: DecoderSession,
        tokenizer: Tokenizer,
        config: ModelConfig,
        load_aligner: Callable[[], WordAligner] | None = None,
    ) -> None:
        self.on_record = _ignore
        self._pen = Pen(tokenizer, self._write)
        timed = TimedSession(session, self._pen)
        super().__init__(timed, tokenizer, config, load_aligner)
        self._ladder = TracedLadder(timed, tokenizer, config, self._pen)

    def decode(
        self, window: EncodedWindow, recording: Recording
    ) -> Generator[Hypothesis | None, None, DecodedWindow | None]:
        """See `WindowDecoder.decode`."""
        self._pen.tell(
            "window",
            index=window.index,
            duration=window.duration,
            speech=[[span.start, span.end] for span in window.speech],
            options=asdict(recording.options),
            tasks={name: getattr(self._special, name) for name in ("translate", "transcribe", "sot_lm")},
        )
        decoded = yield from super().decode(window, recording)
        if decoded is None:
            self._pen.tell("redo")
            return None
        cues = [[cue.start, cue.end, cue.text] for cue in decoded.cues]
        self._pen.tell("result", **{**asdict(decoded), "cues": cues})
        return decoded

    def _write(self, record: Record) -> None:
        self.on_record(record)

    def _listen(self) -> tuple[float, NDArray[np.float64]]:
        no_speech_prob, heard = super()._listen()
        languages = most_probable(list(self._special.languages), heard) if self._special.multilingual else {}
        self._pen.tell("heard", no_speech_prob=no_speech_prob, languages=languages)
        return no_speech_prob, heard

    def _language(
        self, heard: NDArray[np.float64], no_speech_prob: float, recording: Recording
    ) -> tuple[str, float, dict[str, float]]:
        found = super()._language(heard, no_speech_prob, recording)
        self._pen.tell("language", code=found[0], probability=found[1])
        return found

    def _align(
        self, window: EncodedWindow, cues: tuple[Cue, ...], found: Candidate, language: str, task: str
    ) -> tuple[Cue, ...]:
        with self._pen.timed("word times", ()):
            return super()._align(window, cues, found, language, task)


class TracedLadder(Ladder):
    """Tells of prompts and attempts."""

    def __init__(self, session: TimedSession, tokenizer: Tokenizer, config: ModelConfig, pen: Pen) -> None:
        super().__init__(session, tokenizer, config)
        self._pen = pen
        self._timed_session = session
        self._options = DecodingOptions()
        self._no_speech_prob = 0.0
        self._resuming = False
        self._attempts: list[Attempt] = []

    def climb(
        self, window: EncodedWindow, prompt: Prompt, options: DecodingOptions, no_speech_prob: float
    ) -> Hypotheses:
        """See `Ladder.climb`."""
        self._options, self._no_speech_prob = options, no_speech_prob
        self._resuming, self._attempts = False, []
        self._pen.attempt = 0
        self._pen.tell(
            "prompt",
            tokens=[[token, self._pen.text(token)] for token in prompt.tokens],
            limit=self._limit(window, prompt),
        )
        chosen = yield from super().climb(window, prompt, options, no_speech_prob)
        self._pen.tell("chosen", attempt=self._number(chosen), why=self._why(chosen))
        return chosen

    def to_the_end(
        self, window: EncodedWindow, prompt: Prompt, options: DecodingOptions, attempt: Attempt
    ) -> Hypotheses:
        """See `Ladder.to_the_end`."""
        before, self._resuming = len(self._attempts), True
        found = yield from super().to_the_end(window, prompt, options, attempt)
        if runs := len(self._attempts) - before:
            self._pen.tell("resumed", runs=runs, taken=self._number(found))
        return found

    def timed(self, prompt: Prompt, attempt: Attempt) -> Attempt:
        """See `Ladder.timed`."""
        found = super().timed(prompt, attempt)
        if found.candidate.closing is not None:
            self._pen.tell("timed", closing=self._pen.text(found.candidate.closing))
        return found

    def _search(self, options: DecodingOptions, limit: int) -> Search:
        plain = super()._search(options, limit)
        return TracedSearch(
            self._timed_session, plain.rules, plain.eot, plain.timestamp_begin, plain.limit, pen=self._pen
        )

    def _watch(
        self, steps: Generator[list[int], None, Candidate], temperature: float, before: Sequence[int]
    ) -> Hypotheses:
        """Every attempt passes here, with what goes on to the end of the speech."""
        self._pen.attempt += 1
        if self._attempts and not self._resuming:
            self._pen.last_ms = 0.0
        self._pen.temperature, self._pen.resumed = temperature, self._resuming
        count, text = len(before), self._tokenizer.decode(before)  # the search makes `before` longer
        attempt = yield from super()._watch(steps, temperature, before)
        self._attempts.append(attempt)
        reasons = (
            _disbelief(attempt, count, text)
            if self._resuming
            else rejections(attempt, self._options, self._no_speech_prob)
        )
        self._pen.tell(
            "attempt",
            number=self._pen.attempt,
            temperature=temperature,
            resumed=self._resuming,
            text=attempt.text,
            ids=list(attempt.candidate.tokens),
            avg_logprob=attempt.candidate.avg_logprob,
            compression_ratio=attempt.compression_ratio,
            loops=attempt.loops,
            ended=attempt.candidate.ended,
            reasons=reasons,
        )
        return attempt

    def _number(self, found: Attempt) -> int | None:
        """Of an attempt; None for one that is none of these."""
        return next((number for number, attempt in enumerate(self._attempts, 1) if attempt is found), None)

    def _why(self, chosen: Attempt) -> str:
        if is_good(chosen, self._options, self._no_speech_prob):
            return "good enough"
        if any(chosen.text == other.text for other in self._attempts if other is not chosen):
            return "the same text came again"
        return f"none of {len(self._attempts)} is good enough, this is the most probable"


def rejections(attempt: Attempt, options: DecodingOptions, no_speech_prob: float) -> list[str]:
    """Why an attempt is not good enough, a phrase each; empty if it is. The rules are those of `fallback.is_good`."""
    if is_good(attempt, options, no_speech_prob):
        return []
    found = ["it repeats itself"] if attempt.loops else []
    ratio, logprob = options.compression_ratio_threshold, options.logprob_threshold
    if ratio is not None and attempt.compression_ratio > ratio:
        found.append(f"compression ratio {attempt.compression_ratio:.2f} above {ratio:g}")
    if logprob is not None and attempt.candidate.avg_logprob < logprob:
        found.append(f"mean log-probability {attempt.candidate.avg_logprob:.2f} below {logprob:g}")
    return found


def _disbelief(attempt: Attempt, before: int, text: str) -> list[str]:
    """Why what came of going on behind so many tokens, which say `text`, is not taken (`Ladder.to_the_end`)."""
    added = attempt.candidate.logprobs[before:]
    if not added or not attempt.text[len(text) :].strip():
        return ["nothing new came"]
    found = ["it repeats itself"] if attempt.loops else []
    if (mean := sum(added) / len(added)) < MIN_RESUMED_LOGPROB:
        found.append(f"mean log-probability {mean:.2f} of what was added below {MIN_RESUMED_LOGPROB:g}")
    return found


def _ignore(_record: dict[str, Any]) -> None:
    """Nobody wants to know."""
