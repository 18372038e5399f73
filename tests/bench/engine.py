"""This project's model in the same process, and what explains a token that another implementation chose otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from susurrus.models import LogMel, ModelConfig, Tokenizer, Whisper, ensure_model
from susurrus.models.decoding import WindowDecoder
from susurrus.models.ladder import EncodedWindow
from susurrus.models.layouts import load_decoder, load_encoder
from susurrus.models.mel import pad_frames
from susurrus.models.options import DecodingOptions
from susurrus.models.results import DecodedWindow
from susurrus.models.rules import prompt_tokens, rules_for

Float32Array = NDArray[np.float32]

ONE_TRY = DecodingOptions(
    temperatures=(0.0,), compression_ratio_threshold=None, logprob_threshold=None, no_speech_threshold=None
)
"""What the first try gives is taken as it is."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Where two transcripts of one clip part, as this model sees it at that step."""

    step: int
    """Index of the first token that differs."""
    ours: int
    theirs: int
    """Token ids; the end token where a transcript stops."""
    gap: float
    """Log-probability of our token less that of theirs, in our logits after the decoding rules."""
    rank: int
    """Rank of their token in our logits: 1 is the runner-up."""
    top_two: float
    """Log-probability of our first candidate less that of our second."""


class Engine:
    """The parts of a `Whisper` and the `Whisper` made of them; one thread at a time.

    Args:
        model: name or directory.
        precision: `int8` or `float32`.
        threads: of the sessions; 0 takes the CPUs this process may use.
        timestamps: whether the model says when.
    """

    def __init__(self, model: str | Path, precision: str, threads: int, *, timestamps: bool = False) -> None:
        self.timestamps = timestamps
        directory = ensure_model(model, precisions=(precision,))
        self.directory = directory
        self.config = ModelConfig.from_directory(directory)
        self.tokenizer = Tokenizer.from_directory(directory)
        self._log_mel = LogMel.from_directory(directory)
        self._encoder = load_encoder(directory, precision=precision, threads=threads)
        self._session = load_decoder(directory, precision=precision, threads=threads)
        self._decoder = WindowDecoder(self._session, self.tokenizer, self.config)
        self.whisper = Whisper(self.config, self._log_mel, self._encoder, self._decoder)

    def transcribe(self, samples: Float32Array, language: str) -> tuple[tuple[int, ...], str]:
        """Tokens and text of float32 mono samples (n,), n at most one window: greedy, in one try, all of it."""
        recording = self._decoder.recording(replace(ONE_TRY, language=language, timestamps=self.timestamps))
        mel, silence = self._log_mel(samples)
        states = self._encoder(pad_frames(mel, silence, self.config.audio.n_frames))
        steps = self._decoder.decode(EncodedWindow(0, states, self.config.audio.chunk_length, ()), recording)
        while True:
            try:
                next(steps)
            except StopIteration as stop:
                decoded: DecodedWindow = stop.value
                return decoded.tokens, decoded.text

    def explain(self, samples: Float32Array, language: str, ours: Sequence[int], theirs: Sequence[int]) -> Difference:
        """Decode up to the first step at which the two part and compare both candidates there."""
        step, our_token, their_token = self._first_difference(ours, theirs)
        scores = _log_softmax(self._logits_after(samples, language, ours[:step]))
        order = np.argsort(-scores, kind="stable")
        return Difference(
            step=step,
            ours=our_token,
            theirs=their_token,
            gap=float(scores[our_token] - scores[their_token]),
            rank=int(np.flatnonzero(order == their_token)[0]),
            top_two=float(scores[order[0]] - scores[order[1]]),
        )

    def spell(self, token: int) -> str:
        """A token as people read it."""
        if token == self.tokenizer.special.eot:
            return "<end>"
        return repr(self.tokenizer.token_bytes(token).decode("utf-8", "backslashreplace"))

    def _first_difference(self, ours: Sequence[int], theirs: Sequence[int]) -> tuple[int, int, int]:
        end = self.tokenizer.special.eot
        pairs = enumerate(zip_longest(ours, theirs, fillvalue=end))
        return next((step, one, other) for step, (one, other) in pairs if one != other)

    def _logits_after(self, samples: Float32Array, language: str, tokens: Sequence[int]) -> Float32Array:
        """Logits after the rules, float32 (n_vocab,), once `tokens` are sampled, one step a token as in decoding."""
        special = self.tokenizer.special
        mel, silence = self._log_mel(samples)
        self._session.begin(self._encoder(pad_frames(mel, silence, self.config.audio.n_frames)))
        n_text_ctx = self.config.dimensions.n_text_ctx
        prompt = prompt_tokens(special, language, "transcribe", (), n_text_ctx, timestamps=self.timestamps)
        logits = self._session.step(prompt.tokens)
        for token in tokens:
            logits = self._session.step([token])
        logits = logits.copy()
        for rule in rules_for(self.config, special, timestamps=self.timestamps):
            rule(logits, tokens)
        return logits


def _log_softmax(logits: Float32Array) -> NDArray[np.float64]:
    shifted = logits.astype(np.float64) - float(logits.max())
    normalised: NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum())
    return normalised
