"""This project's pipeline, stage by stage: the parts that the actors run, without the actors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np

from susurrus.models.audio import AudioReader
from susurrus.models.comparison.pipeline import Float32Array
from susurrus.models.config import ModelConfig
from susurrus.models.directories import resolve_precision
from susurrus.models.layouts import load_decoder, load_encoder
from susurrus.models.mel import LogMel, pad_frames
from susurrus.models.rules import prompt_tokens, rules_for
from susurrus.models.tokenizer import Tokenizer

if TYPE_CHECKING:
    from susurrus.models.layouts import AnyDecoder


@dataclass(frozen=True, slots=True)
class OwnPipeline:
    """See `Pipeline`. Any part can be another one with the same calls; one thread at a time."""

    name: str
    """What it is, in a few words."""
    exact: bool
    """Whether its graphs are float32."""
    config: ModelConfig
    """Of the model."""
    log_mel_frames: Callable[[Float32Array], tuple[Float32Array, float]]
    """Samples to the frames that audio touches and the value of the others; see `LogMel`."""
    encoder: Callable[[Float32Array], Float32Array]
    """Log-mel to hidden states; see `Encoder`."""
    decoder: AnyDecoder
    """Holds the window that was worked on last."""
    tokenizer: Tokenizer
    """Of the model."""

    @classmethod
    def load(cls, directory: Path, *, precision: str | None = None, threads: int = 0) -> Self:
        """The parts of a model directory of either layout.

        Args:
            directory: The model directory.
            precision: `int8` or `float32`; None takes `int8` of our own layout, and of an export what there is.
            threads: Of each session; 0 takes the CPUs this process may use.

        Raises:
            ModelError: Files are missing or damaged.
        """
        config = ModelConfig.from_directory(directory)
        precision = resolve_precision(directory, precision)
        return cls(
            name=f"{config.name} {precision} of {directory}",
            exact=precision == "float32",
            config=config,
            log_mel_frames=LogMel.from_directory(directory),
            encoder=load_encoder(directory, precision=precision, threads=threads),
            decoder=load_decoder(directory, precision=precision, threads=threads),
            tokenizer=Tokenizer.from_directory(directory),
        )

    @property
    def end(self) -> int:
        """See `Pipeline`."""
        return self.tokenizer.special.eot

    def samples(self, clip: Path) -> Float32Array:
        """See `Pipeline`.

        Raises:
            AudioError: The recording cannot be read.
        """
        audio, blocks, length = self.config.audio, list[Float32Array](), 0
        with AudioReader(clip, audio.sample_rate) as reader:
            for block in reader:
                blocks.append(block.copy())
                length += len(block)
                if length >= audio.n_samples:
                    break
        return np.concatenate(blocks)[: audio.n_samples] if blocks else np.zeros(0, np.float32)

    def log_mel(self, samples: Float32Array) -> Float32Array:
        """See `Pipeline`."""
        mel, silence = self.log_mel_frames(samples[: self.config.audio.n_samples])
        return pad_frames(mel, silence, self.config.audio.n_frames)

    def encode(self, mel: Float32Array) -> Float32Array:
        """See `Pipeline`."""
        return self.encoder(mel)

    def cross_attention(self, hidden_states: Float32Array) -> Float32Array | None:
        """See `Pipeline`. An int8 cache is read as the decoder reads it: stored number times scale."""
        self.decoder.begin(hidden_states)
        self.decoder.step((self.tokenizer.special.sot,))  # some exported decoders make their caches in the first step
        layers = range(self.config.dimensions.n_text_layer)
        return np.stack([np.stack([self._cache(kind, layer) for kind in ("key", "value")]) for layer in layers])

    def language(self, hidden_states: Float32Array) -> str:
        """See `Pipeline`."""
        special = self.tokenizer.special
        if not special.multilingual:
            return "en"
        self.decoder.begin(hidden_states)
        logits = self.decoder.step((special.sot,))
        return max(special.languages, key=lambda code: float(logits[special.languages[code]]))

    def prompt(self, language: str) -> tuple[int, ...]:
        """See `Pipeline`."""
        n_text_ctx = self.config.dimensions.n_text_ctx
        special = self.tokenizer.special
        return tuple(prompt_tokens(special, language, "transcribe", (), n_text_ctx, timestamps=False).tokens)

    def logits(self, hidden_states: Float32Array, prompt: Sequence[int], tokens: Sequence[int]) -> Float32Array:
        """See `Pipeline`. One step a token, as in decoding."""
        self.decoder.begin(hidden_states)
        rows = [self.decoder.step(prompt).copy()]
        rows += [self.decoder.step((token,)).copy() for token in tokens]
        return np.stack(rows)

    def shifted_logits(self, *_: object) -> None:
        """See `Pipeline`. A session counts the positions itself."""

    def greedy(self, hidden_states: Float32Array, language: str) -> tuple[int, ...]:
        """See `Pipeline`. The rules apply; a loop is not cut short, because no reference does."""
        special, tokens = self.tokenizer.special, list[int]()
        rules, limit = rules_for(self.config, special, timestamps=False), self.config.dimensions.n_text_ctx // 2
        self.decoder.begin(hidden_states)
        following: Sequence[int] = self.prompt(language)
        while len(tokens) < limit:
            logits = self.decoder.step(following).copy()
            for rule in rules:
                rule(logits, tokens)
            token = int(logits.argmax())
            if token == special.eot:
                break
            tokens.append(token)
            following = (token,)
        return tuple(tokens)

    def text(self, tokens: Sequence[int]) -> str:
        """See `Pipeline`."""
        return self.tokenizer.decode(tokens)

    def spell(self, token: int) -> str:
        """See `Pipeline`."""
        if token < self.tokenizer.special.eot:
            return self.tokenizer.token_bytes(token).decode("utf-8", "backslashreplace")
        return self.tokenizer.spelling(token)

    def _cache(self, kind: str, layer: int) -> Float32Array:
        """Keys or values of one layer, float32 (n_text_head, n_audio_ctx, head size)."""
        caches = self.decoder.cross_caches
        stored, scale = caches[f"cross_{kind}_{layer}"].numpy()[0], caches.get(f"cross_{kind}_scale_{layer}")
        values: Float32Array = stored.astype(np.float32)
        return values if scale is None else values * scale.numpy().reshape(len(values), 1, -1)
