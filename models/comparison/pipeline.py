"""What two pipelines have to offer so that they can be compared: the stages from a recording to its text, one by one.

Every stage takes what the one before it gives, in the same layout whatever library computes it, so that the stage of
one pipeline can be fed from the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Float32Array = NDArray[np.float32]


class Stage(StrEnum):
    """The stages, in the order in which they depend on each other."""

    SAMPLES = "samples"
    MEL = "log-mel"
    ENCODER = "encoder hidden states"
    CROSS = "cross-attention keys and values"
    PROMPT = "prompt"
    LOGITS = "logits"
    TOKENS = "token ids"
    TEXT = "text"


class Pipeline(Protocol):
    """From the first window of a recording to its text: greedy, without timestamps, in one try."""

    @property
    def name(self) -> str:
        """What it is, in a few words."""

    @property
    def exact(self) -> bool:
        """Whether it computes in float32 throughout."""

    @property
    def end(self) -> int:
        """The end token."""

    def samples(self, clip: Path) -> Float32Array:
        """The first window of a recording: float32 mono (n,) at the model's sample rate, not padded."""

    def log_mel(self, samples: Float32Array) -> Float32Array:
        """Log-mel of the samples, padded to a full window: float32 (n_mels, n_frames)."""

    def encode(self, mel: Float32Array) -> Float32Array:
        """Hidden states of a full window: float32 (n_audio_ctx, n_audio_state)."""

    def cross_attention(self, hidden_states: Float32Array) -> Float32Array | None:
        """Keys and values of every decoder layer: float32 (n_text_layer, 2, n_text_head, n_audio_ctx, head size).

        None where the pipeline does not show them.
        """

    def language(self, hidden_states: Float32Array) -> str:
        """Code of the most probable language; `en` for an English-only model."""

    def prompt(self, language: str) -> tuple[int, ...]:
        """What the decoder is given before it samples: transcribe, no timestamps."""

    def logits(self, hidden_states: Float32Array, prompt: Sequence[int], tokens: Sequence[int]) -> Float32Array:
        """Logits after the prompt and after each of `tokens`: float32 (len(tokens) + 1, n_vocab), before any rule."""

    def shifted_logits(
        self, hidden_states: Float32Array, prompt: Sequence[int], tokens: Sequence[int], first: int
    ) -> Float32Array | None:
        """What `logits` gives where positions begin at `first` and not at 0; None where that cannot be had."""

    def greedy(self, hidden_states: Float32Array, language: str) -> tuple[int, ...]:
        """The most probable tokens one after the other, without prompt and end token.

        At most half as many as the decoder has positions: openai-whisper's limit.
        """

    def text(self, tokens: Sequence[int]) -> str:
        """The text of tokens; special ones and timestamps are left out."""

    def spell(self, token: int) -> str:
        """One token as people read it."""
