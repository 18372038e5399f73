"""Word times of a decoded window: reads its text once more and asks where in the audio each token looks.

    text ─> graph ─> attention ─> token times (alignment.py) ─> words (words.py)

The text is read as openai-whisper's `find_alignment` does: without timestamps and without what was said before, so that
the times do not depend on either. Probabilities are those that the decoder chose the tokens with: another pass through
the vocabulary would take as long as the rest of this together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol, Self

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from susurrus.models.alignment import token_starts
from susurrus.models.config import ModelConfig
from susurrus.models.graphs.contract import alignment_contract, alignment_heads
from susurrus.models.results import Cue, Span
from susurrus.models.rules import prompt_tokens
from susurrus.models.runtime import graph_path, open_session
from susurrus.models.tokenizer import Tokenizer
from susurrus.models.words import UNSPACED, split_cues, timed_cues


class WindowHolder(Protocol):
    """What is needed of the decoder; `susurrus.models.sessions.Decoder` is the real one."""

    quantized_cross: bool
    """Whether its cross-attention caches are int8."""

    @property
    def cross_caches(self) -> Mapping[str, ort.OrtValue]:
        """Those of the window that was begun last, batch 1, by their names in `graphs.contract`."""

    @property
    def log_counts(self) -> NDArray[np.float32]:
        """Logarithm of how many positions each of its keys stands for, float32 (1, C)."""


class Window(Protocol):
    """What is needed of a window."""

    @property
    def duration(self) -> float:
        """Seconds of audio in it."""

    @property
    def speech(self) -> Sequence[Span]:
        """Where somebody speaks, in seconds from its start."""


class Aligner:
    """Finds the words of the window that the decoder holds.

    One thread at a time, the decoder's.
    """

    def __init__(
        self, session: ort.InferenceSession, decoder: WindowHolder, tokenizer: Tokenizer, config: ModelConfig
    ) -> None:
        self._session = session
        self._decoder = decoder
        self._tokenizer = tokenizer
        self._config = config
        self._n_text_ctx = config.dimensions.n_text_ctx
        self._n_audio_ctx = config.dimensions.n_audio_ctx
        self._chunk_length = config.audio.chunk_length
        self._caches = [
            port.name for port in session.get_inputs() if port.name.startswith(("cross_key", "cross_value"))
        ]

    @classmethod
    def load(
        cls, directory: Path, decoder: WindowHolder, tokenizer: Tokenizer, *, precision: str = "int8", threads: int = 0
    ) -> Self:
        """Opens the graph. That takes 0.1 s, and its runs 130 MB (Whisper Base), so load it when word times are wanted.

        Args:
            directory: The model directory.
            decoder: Of the same directory and precision.
            tokenizer: Of the same directory.
            precision: `int8` or `float32`.
            threads: Of the session; 0 takes the CPUs this process may use.

        Raises:
            ModelError: The graph is missing, damaged or of another version.
        """
        config = ModelConfig.from_directory(directory)
        quantized = decoder.quantized_cross
        contract = alignment_contract(config.dimensions, alignment_heads(config), quantized_cross=quantized)
        suffix = "_float" if precision == "int8" and not quantized else ""
        path = graph_path(directory, precision, f"alignment{suffix}")
        return cls(open_session(path, contract, threads), decoder, tokenizer, config)

    def beside(self, decoder: WindowHolder) -> Aligner:
        """Another one, for the windows of another decoder, with the same session: the two take turns."""
        return Aligner(self._session, decoder, self._tokenizer, self._config)

    def __call__(
        self, window: Window, cues: Sequence[Cue], logprobs: Sequence[float], *, language: str, task: str
    ) -> tuple[Cue, ...]:
        """Finds the words of a window's cues.

        Args:
            window: The one the decoder holds.
            cues: What was understood of it, in seconds from its start, in order; none with an empty text.
            logprobs: Log-probability of each of the cues' tokens, one after the other.
            language: Code of the language spoken.
            task: `transcribe` or `translate`.

        Returns:
            The same cues with their words, their times stretched to hold them.

        Raises:
            ValueError: `logprobs` has another length than the tokens.
        """
        tokens = [token for cue in cues for token in cue.tokens]
        if len(logprobs) != len(tokens):
            raise ValueError(f"{len(logprobs)} log-probabilities for {len(tokens)} tokens")
        if not tokens:
            return tuple(cues)
        spaced = task == "translate" or language not in UNSPACED  # a translation is English
        split = split_cues(cues, self._tokenizer.token_bytes, spaced=spaced)
        starts = self._starts(tokens, window.duration, language, task)
        for piece in (piece for pieces in split for piece in pieces):
            piece.start, piece.end = starts[piece.first], starts[piece.stop]
        return timed_cues(cues, split, logprobs, window.speech, window.duration)

    def _starts(self, tokens: Sequence[int], duration: float, language: str, task: str) -> list[float]:
        """Second at which each token begins, and at which the last one ends."""
        special = self._tokenizer.special
        prompt = prompt_tokens(special, language, task, (), self._n_text_ctx, timestamps=False).tokens
        fitting = tokens[: self._n_text_ctx - len(prompt) - 1]  # fewer than all only where the decoder's limit was met
        per_second = self._n_audio_ctx / self._chunk_length
        audio_length = max(1, int(duration * per_second))
        attention = self._attention((*prompt, *fitting, special.eot), audio_length)
        starts = [float(start) / per_second for start in token_starts(attention, len(prompt))]
        return starts + starts[-1:] * (len(tokens) - len(fitting))

    def _attention(self, tokens: Sequence[int], audio_length: int) -> NDArray[np.float32]:
        """Of the alignment heads, float32 (heads, tokens, positions), at most `audio_length` positions."""
        binding = self._session.io_binding()
        caches = self._decoder.cross_caches
        binding.bind_cpu_input("cross_log_counts", self._decoder.log_counts)
        for name in self._caches:
            binding.bind_ortvalue_input(name, caches[name])
        for name, values in (("ids", [tokens]), ("positions", range(len(tokens))), ("audio_length", [audio_length])):
            binding.bind_cpu_input(name, np.array(values, np.int64))
        binding.bind_output("attention")
        self._session.run_with_iobinding(binding)
        attention: NDArray[np.float32] = binding.get_outputs()[0].numpy()[0]
        return attention
