"""Pipelines to compare: one in plain numpy, and ours with a part exchanged."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import soundfile
from numpy.typing import NDArray

from susurrus.models.comparison.mel_faults import compute
from susurrus.models.dimensions import AudioParameters
from susurrus.models.special_tokens import SpecialTokens
from tests.models.numpy_whisper import NumpyWhisper
from tests.models.tiny import CHUNK_LENGTH, DIMENSIONS, N_MELS, VOCABULARY, byte_tokens, random_tensors

AUDIO = AudioParameters(n_mels=N_MELS, chunk_length=CHUNK_LENGTH)
SUPPRESSED = (1, 2)
SUPPRESSED_FIRST = (220,)
OTHERS = sorted({*range(256)} - {ord(token) for token in byte_tokens() if ord(token) < 256})
BYTES = {token: ord(token) if ord(token) < 256 else OTHERS[ord(token) - 256] for token in byte_tokens()}
"""Spelling -> byte."""
Float32Array = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class NumpyPipeline:
    """The tiny model in float64, an English-only one; see `Pipeline`."""

    network: NumpyWhisper
    special: SpecialTokens
    name: str = "numpy"
    exact: bool = True
    shows_cross_attention: bool = True

    @property
    def end(self) -> int:
        """See `Pipeline`."""
        return self.special.eot

    def samples(self, clip: Path) -> Float32Array:
        """See `Pipeline`."""
        samples, rate = soundfile.read(clip, dtype="float32", frames=AUDIO.n_samples)
        assert rate == AUDIO.sample_rate
        return np.asarray(samples)

    def log_mel(self, samples: Float32Array) -> Float32Array:
        """See `Pipeline`."""
        return compute(samples, AUDIO).astype(np.float32)

    def encode(self, mel: Float32Array) -> Float32Array:
        """See `Pipeline`."""
        return self.network.encode(mel).astype(np.float32)

    def cross_attention(self, hidden_states: Float32Array) -> Float32Array | None:
        """See `Pipeline`."""
        if not self.shows_cross_attention:
            return None
        layers = range(DIMENSIONS.n_text_layer)
        both = [
            self.network._linear(hidden_states.astype(np.float64), f"decoder/layer_{layer}/attention/linear_1")
            for layer in layers
        ]
        split = np.stack(both).reshape(len(layers), len(hidden_states), 2, DIMENSIONS.n_text_head, -1)
        return split.transpose(0, 2, 3, 1, 4).astype(np.float32)

    def language(self, hidden_states: Float32Array) -> str:  # noqa: ARG002  (see `Pipeline`)
        """See `Pipeline`."""
        return "en"

    def prompt(self, language: str) -> tuple[int, ...]:  # noqa: ARG002
        """See `Pipeline`."""
        return self.special.sot, self.special.no_timestamps

    def logits(self, hidden_states: Float32Array, prompt: Sequence[int], tokens: Sequence[int]) -> Float32Array:
        """See `Pipeline`."""
        rows = self.network.decode([*prompt, *tokens], hidden_states)[len(prompt) - 1 :]
        return rows.astype(np.float32)

    def shifted_logits(
        self, hidden_states: Float32Array, prompt: Sequence[int], tokens: Sequence[int], first: int
    ) -> Float32Array:
        """See `Pipeline`."""
        encodings = "decoder/position_encodings/encodings"
        shifted = random_tensors() | {encodings: np.roll(random_tensors()[encodings], -first, axis=0)}
        network = NumpyWhisper(DIMENSIONS, shifted.__getitem__)
        return replace(self, network=network).logits(hidden_states, prompt, tokens)

    def greedy(self, hidden_states: Float32Array, language: str) -> tuple[int, ...]:
        """See `Pipeline`."""
        special, tokens = self.special, list[int]()
        never = [*SUPPRESSED, special.sot, special.translate, special.transcribe, special.sot_lm, special.sot_prev]
        while len(tokens) < DIMENSIONS.n_text_ctx // 2:
            logits = self.logits(hidden_states, self.prompt(language), tokens)[-1]
            logits[[*never, special.no_speech]] = -np.inf
            if not tokens:
                logits[[*SUPPRESSED_FIRST, special.eot]] = -np.inf
            token = int(logits.argmax())
            if token == special.eot:
                break
            tokens.append(token)
        return tuple(tokens)

    def text(self, tokens: Sequence[int]) -> str:
        """See `Pipeline`."""
        raw = bytes(BYTES[VOCABULARY[token]] for token in tokens if token < self.special.eot)
        return codecs.getincrementaldecoder("utf-8")("replace").decode(raw)

    def spell(self, token: int) -> str:
        """See `Pipeline`."""
        return VOCABULARY[token]


def numpy_pipeline(*, shows_cross_attention: bool = True) -> NumpyPipeline:
    """The tiny model's."""
    network = NumpyWhisper(DIMENSIONS, random_tensors().__getitem__)
    return NumpyPipeline(
        network, SpecialTokens.from_vocabulary(VOCABULARY, source="tiny"), shows_cross_attention=shows_cross_attention
    )
