"""From the hidden states of one window to its text and times.

    listen (language, speech?) ─> prompt ─> search (ladder.py) ─> cues ─> words

Written from openai/whisper's `decoding.py` (`DecodingTask`, `detect_language`) and `transcribe.py`, and from "Robust
Speech Recognition via Large-Scale Weak Supervision" (arXiv 2212.04356), sections 2.3 and 4.5.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from susurrus.models.config import ModelConfig
from susurrus.models.cues import fit_cues, read_cues
from susurrus.models.fallback import Attempt, compression_ratio, is_silence, is_sound
from susurrus.models.ladder import EncodedWindow, Ladder, closed_tokens
from susurrus.models.layouts import load_aligner, load_decoder
from susurrus.models.options import DecodingOptions
from susurrus.models.providers import CPU
from susurrus.models.recording import Recording, most_probable
from susurrus.models.results import Cue, DecodedWindow, Hypothesis
from susurrus.models.rules import Prompt, prompt_tokens
from susurrus.models.search import Candidate, DecoderSession
from susurrus.models.tokenizer import Tokenizer

Float32Array = NDArray[np.float32]

UTTERANCE_SECONDS = 12.0
"""Speech of at most this length, without a pause, is decoded without timestamps: Whisper then makes fewer mistakes, 101
instead of 114 in 1203 words of English clips. When the text ends is asked afterwards: it may not be all."""
PAUSE_SECONDS = 1.0
"""As long a pause parts cues."""

MAX_PREVIOUS = 64
"""Tokens of the window before that are given to the decoder when asked for: reading more takes longer than it helps."""
CERTAIN_TEMPERATURE = 0.5
"""Text sampled at a higher one is not given to the next window (whisper/transcribe.py)."""


class WordAligner(Protocol):
    """Finds word times; `susurrus.models.aligner.Aligner` is the real one."""

    def __call__(
        self, window: EncodedWindow, cues: Sequence[Cue], logprobs: Sequence[float], *, language: str, task: str
    ) -> tuple[Cue, ...]:
        """The same cues with their words. `logprobs` are those of the cues' tokens; the session holds the window."""
        ...

    def beside(self, decoder: Any) -> WordAligner:
        """The same for the windows of another session."""
        ...


class WindowDecoder:
    """Decodes one window after another.

    Not thread-safe: one thread calls it, because the session's KV cache is state.
    """

    def __init__(
        self,
        session: DecoderSession,
        tokenizer: Tokenizer,
        config: ModelConfig,
        load_aligner: Callable[[], WordAligner] | None = None,
    ) -> None:
        """Keep the parts.

        Args:
            session: the decoder.
            tokenizer: of the model.
            config: of the model.
            load_aligner: called before the first recording whose word times are wanted.
        """
        self.session = session
        self._config = config
        self._tokenizer = tokenizer
        self._special = tokenizer.special
        self._ladder = Ladder(session, tokenizer, config)
        self._n_text_ctx = config.dimensions.n_text_ctx
        self._languages = np.array(list(self._special.languages.values()), dtype=np.intp)
        self._load_aligner = load_aligner
        self._aligner: WordAligner | None = None

    @classmethod
    def load(cls, directory: Path, *, precision: str | None = None, threads: int = 0, provider: str = CPU) -> Self:
        """A decoder of a model directory.

        Args:
            directory: the model directory.
            precision: `int8` or `float32`; None takes the layout's own.
            threads: of the session; 0 takes the CPUs this process may use.
            provider: that runs the graphs, a name of `models/providers.py`.

        Raises:
            ModelError: files are missing, damaged or of another version.
        """
        session = load_decoder(directory, precision=precision, threads=threads, provider=provider)
        tokenizer = Tokenizer.from_directory(directory)

        def load_words() -> WordAligner:
            return load_aligner(directory, session, tokenizer, precision=precision, threads=threads)

        return cls(session, tokenizer, ModelConfig.from_directory(directory), load_words)

    def sibling(self, session: DecoderSession) -> WindowDecoder:
        """Another decoder of the same model on a session of its own: the two decode windows side by side."""

        def load_words() -> WordAligner:
            aligner = self._with_aligner()
            assert aligner is not None  # noqa: S101 - for the type checker: who may load one gets one
            return aligner.beside(session)

        return WindowDecoder(session, self._tokenizer, self._config, self._load_aligner and load_words)

    def recording(self, options: DecodingOptions) -> Recording:
        """What `decode` remembers of one recording.

        Raises:
            ModelError: what finds word times is missing or damaged.
            OptionError: an option does not exist for this model.
        """
        checked = options.checked(self._special)
        if checked.word_timestamps:
            self._with_aligner()
        return Recording(checked, self._tokenizer)

    def decode(
        self, window: EncodedWindow, recording: Recording
    ) -> Generator[Hypothesis | None, None, DecodedWindow | None]:
        """Decode the next window of a recording; yield what is understood so far, return the finished window.

        It yields after every step of the decoder, None when nothing more is understood. A caller that stops iterating
        cancels: nothing runs between two steps. A hypothesis of a higher temperature replaces what cooler ones said.

        Returns:
            The window; None if its silence was sampled and the text is not good enough: it is to be encoded in full and
            decoded again. The recording then is as it was.
        """
        options, votes = recording.options, recording.votes.state
        self.session.begin(window.hidden_states, None if window.context is None else window.context.log_counts)
        no_speech_prob, heard = self._listen()
        language, probability, probabilities = self._language(heard, no_speech_prob, recording)
        asked = options.timestamps and not _is_utterance(window)
        prompt = self._prompt(language, recording, timestamps=asked)
        wanted = replace(options, timestamps=asked)
        if window.may_be_redone:  # what is doubtful is not worth another temperature, but all of the window
            wanted = replace(wanted, temperatures=options.temperatures[:1])
        attempt = yield from self._ladder.climb(window, prompt, wanted, no_speech_prob)
        if window.may_be_redone and not is_sound(attempt, options, no_speech_prob, window.speech):
            recording.votes.restore(*votes)
            return None
        sampled = attempt.candidate.tokens
        silent = is_silence(attempt, options, no_speech_prob)
        if options.timestamps and not silent:
            if not asked:
                prompt = self._prompt(language, recording, timestamps=True)
                attempt = self._ladder.timed(prompt, attempt)
            timed = attempt
            attempt = yield from self._ladder.to_the_end(window, prompt, options, attempt)
            if attempt is not timed:
                sampled = attempt.candidate.tokens
        tokens = () if silent else tuple(sampled)
        cues = self._cues(window, attempt.candidate, timestamps=options.timestamps) if tokens else ()
        if cues and options.word_timestamps:
            cues = self._align(window, cues, attempt.candidate, language, options.task)
        text = "".join(cue.text for cue in cues)
        warnings = self._warn_of_cut(prompt, recording) + (recording.doubt(probabilities) if text else ())
        self._remember(recording, tokens, attempt)
        return DecodedWindow(
            text=text,
            tokens=tokens,
            cues=cues,
            language=language,
            language_probability=1.0 if options.language else probability,
            language_probabilities=probabilities,
            temperature=attempt.temperature,
            avg_logprob=attempt.candidate.avg_logprob,
            compression_ratio=compression_ratio(text),
            no_speech_prob=no_speech_prob,
            truncated=not attempt.candidate.ended,
            warnings=warnings,
        )

    # --- before the search ---

    def _listen(self) -> tuple[float, NDArray[np.float64]]:
        """Probability of no speech, and of each language (n_languages,) among all, right after the first token.

        openai-whisper reads the first behind the prompt where there is one. Here it is asked without: what was said
        before says nothing about whether somebody speaks now, and one step answers both questions.
        """
        logits = self.session.step((self._special.sot,)).astype(np.float64)
        weights = np.exp(logits - logits.max())
        languages = weights[self._languages]
        return float(weights[self._special.no_speech] / weights.sum()), languages / languages.sum()

    def _language(
        self, heard: NDArray[np.float64], no_speech_prob: float, recording: Recording
    ) -> tuple[str, float, dict[str, float]]:
        """The language to decode in, its probability, and the most probable ones."""
        options, votes = recording.options, recording.votes
        if not self._special.multilingual:
            return "en", 1.0, {}
        codes = list(self._special.languages)
        threshold = options.no_speech_threshold
        counts = threshold is None or no_speech_prob <= threshold or not votes.any
        if not votes.is_decided and counts:
            votes.add(heard)
        probabilities = most_probable(codes, heard) if options.multilingual else votes.probabilities
        best, probability = next(iter(probabilities.items()))
        return options.language or best, probability, probabilities

    def _prompt(self, language: str, recording: Recording, *, timestamps: bool) -> Prompt:
        options = recording.options
        return prompt_tokens(
            self._special,
            language,
            options.task,
            (*recording.prompt, *recording.previous),
            self._n_text_ctx,
            timestamps=timestamps,
            hotwords=recording.hotwords,
        )

    def _warn_of_cut(self, prompt: Prompt, recording: Recording) -> tuple[str, ...]:
        """One warning for a recording whose prompt or hotwords are longer than the decoder takes (B11)."""
        cut = []
        for name, given, dropped in (
            ("prompt", len(recording.prompt), prompt.previous_dropped),
            ("hotwords", len(recording.hotwords), prompt.hotwords_dropped),
        ):
            if given and dropped:
                end = "last" if name == "prompt" else "first"
                cut.append(f"{name} of {given} tokens cut to the {end} {max(0, given - dropped)}")
        return recording.warn_once("prompt", " and ".join(cut) + ": there is no room for more") if cut else ()

    # --- after the search ---

    def _cues(self, window: EncodedWindow, found: Candidate, *, timestamps: bool) -> tuple[Cue, ...]:
        tokens = closed_tokens(found, self._special) if timestamps else found.tokens
        read = read_cues(tokens, self._tokenizer, step=self._ladder.step_seconds, duration=window.duration)
        return fit_cues(read, window.speech, window.duration)

    def _align(
        self, window: EncodedWindow, cues: tuple[Cue, ...], found: Candidate, language: str, task: str
    ) -> tuple[Cue, ...]:
        aligner = self._with_aligner()
        if aligner is None:
            return cues
        sampled = zip(found.tokens, found.logprobs, strict=True)
        logprobs = [logprob for token, logprob in sampled if token < self._special.eot]
        return aligner(window, cues, logprobs[: sum(len(cue.tokens) for cue in cues)], language=language, task=task)

    def _with_aligner(self) -> WordAligner | None:
        """What finds word times, loaded when it is wanted first."""
        if self._aligner is None and self._load_aligner is not None:
            self._aligner = self._load_aligner()
        return self._aligner

    def _remember(self, recording: Recording, tokens: tuple[int, ...], attempt: Attempt) -> None:
        """Keep the text for the next window, unless it was uncertain: what was misheard would be heard again (B03)."""
        recording.previous = ()
        if (
            recording.options.condition_on_previous_text
            and attempt.temperature <= CERTAIN_TEMPERATURE
            and not attempt.loops
        ):
            recording.previous = tuple(token for token in tokens if token < self._special.eot)[-MAX_PREVIOUS:]


def _is_utterance(window: EncodedWindow) -> bool:
    """Whether somebody says one thing in it, without a pause."""
    if not window.speech:
        return False
    pauses = [latter.start - former.end for former, latter in pairwise(window.speech)]
    length = window.speech[-1].end - window.speech[0].start
    return length <= UTTERANCE_SECONDS and max(pauses, default=0.0) <= PAUSE_SECONDS
