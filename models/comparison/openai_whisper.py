"""openai-whisper, stage by stage: the reference that the model comes from.

Written from openai/whisper `audio.py` (`load_audio`, `log_mel_spectrogram`), `model.py` and `decoding.py` (`decode`,
`detect_language`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from susurrus.models.checkpoints.checkpoint import Checkpoint
from susurrus.models.comparison.libraries import need, read_window
from susurrus.models.comparison.pipeline import Float32Array
from susurrus.models.errors import ModelError

_NORMS = {"layer_norm/gamma": "weight", "layer_norm/beta": "bias"}
_BLOCK: Mapping[str, tuple[Mapping[str, tuple[str, ...]], str]] = {
    "self_attention": ({"linear_0": ("attn.query", "attn.key", "attn.value"), "linear_1": ("attn.out",)}, "attn_ln"),
    "attention": (
        {
            "linear_0": ("cross_attn.query",),
            "linear_1": ("cross_attn.key", "cross_attn.value"),
            "linear_2": ("cross_attn.out",),
        },
        "cross_attn_ln",
    ),
    "ffn": ({"linear_0": ("mlp.0",), "linear_1": ("mlp.2",)}, "mlp_ln"),
}
"""Canonical part of a layer -> the linear layers stacked in each of its own, and its norm."""


class OpenAIWhisper:
    """See `Pipeline`.

    Args:
        model: A `whisper.model.Whisper` in float32, on the CPU.
        weights: Where its weights are from, in a few words.
    """

    exact = True

    def __init__(self, model: Any, weights: str) -> None:
        self._whisper, self._torch = need("whisper", "openai-whisper"), need("torch", "openai-whisper")
        self.name = f"openai-whisper {self._whisper.__version__} float32, weights of {weights}"
        self._model = model
        self._sizes = model.dims
        self._tokenizer = self._whisper.tokenizer.get_tokenizer(
            model.is_multilingual, num_languages=model.num_languages
        )
        self.end: int = self._tokenizer.eot

    @classmethod
    def from_file(cls, path: Path) -> OpenAIWhisper:
        """A model of a `.pt` file.

        Raises:
            ModelError: The file is missing or no checkpoint of openai-whisper.
            OptionError: openai-whisper is not installed.
        """
        whisper = need("whisper", "openai-whisper")
        if not path.is_file():
            raise ModelError(f"{path} does not exist: name a .pt file of openai-whisper")
        try:
            model = whisper.load_model(str(path), device="cpu").float().eval()
        except Exception as error:  # torch and pickle raise whatever comes
            reason = " ".join(str(error).split()).partition(". ")[0][:100]  # the rest is torch's advice to programmers
            raise ModelError(f"{path} is no checkpoint of openai-whisper ({reason}): name a .pt file of it") from error
        return cls(model, str(path))

    @classmethod
    def from_checkpoint(cls, checkpoint: Checkpoint, weights: str) -> OpenAIWhisper:
        """A model made from a checkpoint of another layout.

        Args:
            checkpoint: The weights.
            weights: Where they are from, in a few words.

        Raises:
            ModelError: A tensor is missing.
            OptionError: openai-whisper is not installed.
        """
        whisper, torch = need("whisper", "openai-whisper"), need("torch", "openai-whisper")
        model = whisper.model.Whisper(whisper.model.ModelDimensions(**asdict(checkpoint.dimensions)))
        state = {name: torch.from_numpy(np.array(values, np.float32)) for name, values in state_dict(checkpoint)}
        model.load_state_dict(state)
        return cls(model.float().eval(), weights)

    def samples(self, clip: Path) -> Float32Array:
        """See `Pipeline`."""
        audio = self._whisper.audio
        return read_window(clip, audio.SAMPLE_RATE, audio.N_SAMPLES)

    def log_mel(self, samples: Float32Array) -> Float32Array:
        """See `Pipeline`."""
        padded = self._whisper.pad_or_trim(samples)
        mel: Float32Array = self._whisper.log_mel_spectrogram(padded, n_mels=self._sizes.n_mels).numpy()
        return mel

    def encode(self, mel: Float32Array) -> Float32Array:
        """See `Pipeline`."""
        return self._run(lambda: self._model.encoder(self._batch(mel)))

    def cross_attention(self, hidden_states: Float32Array) -> Float32Array:
        """See `Pipeline`."""
        states = self._batch(hidden_states)
        parts = [
            part for block in self._model.decoder.blocks for part in (block.cross_attn.key, block.cross_attn.value)
        ]
        values = np.stack([self._run(lambda part=part: part(states)) for part in parts])  # (2 layers, C, D)
        heads = values.reshape(self._sizes.n_text_layer, 2, len(hidden_states), self._sizes.n_text_head, -1)
        return heads.swapaxes(2, 3)

    def language(self, hidden_states: Float32Array) -> str:
        """See `Pipeline`."""
        if not self._model.is_multilingual:
            return "en"
        _, probabilities = self._model.detect_language(self._torch.from_numpy(hidden_states))
        most_probable: str = max(probabilities, key=probabilities.__getitem__)
        return most_probable

    def prompt(self, language: str) -> tuple[int, ...]:
        """See `Pipeline`."""
        return tuple(self._task(language).initial_tokens)

    def logits(self, hidden_states: Float32Array, prompt: Sequence[int], tokens: Sequence[int]) -> Float32Array:
        """See `Pipeline`. All tokens at once, without a cache."""
        ids = self._torch.tensor([[*prompt, *tokens]])
        rows = self._run(lambda: self._model.decoder(ids, self._batch(hidden_states)))
        return rows[len(prompt) - 1 :]

    def shifted_logits(
        self, hidden_states: Float32Array, prompt: Sequence[int], tokens: Sequence[int], first: int
    ) -> Float32Array:
        """See `Pipeline`."""
        ids = self._torch.tensor([[*prompt, *tokens]])
        # The decoder takes the length of whatever is first in the cache for the number of positions before.
        before = {None: self._torch.zeros(1, first)}
        rows = self._run(lambda: self._model.decoder(ids, self._batch(hidden_states), kv_cache=before))
        return rows[len(prompt) - 1 :]

    def greedy(self, hidden_states: Float32Array, language: str) -> tuple[int, ...]:
        """See `Pipeline`."""
        with self._torch.no_grad():
            (result,) = self._task(language).run(self._batch(hidden_states))
        return tuple(result.tokens)

    def text(self, tokens: Sequence[int]) -> str:
        """See `Pipeline`."""
        return str(self._tokenizer.decode([token for token in tokens if token < self.end]))

    def spell(self, token: int) -> str:
        """See `Pipeline`."""
        raw: bytes = self._tokenizer.encoding.decode_single_token_bytes(token)
        return raw.decode("utf-8", "backslashreplace")

    def _task(self, language: str) -> Any:
        decoding = self._whisper.decoding
        options = decoding.DecodingOptions(language=language, without_timestamps=True, temperature=0.0, fp16=False)
        return decoding.DecodingTask(self._model, options)

    def _batch(self, values: Float32Array) -> Any:
        return self._torch.from_numpy(np.ascontiguousarray(values)[np.newaxis])

    def _run(self, compute: Any) -> Float32Array:
        """The first row of what a module gives, as an array."""
        with self._torch.no_grad():
            values: Float32Array = compute()[0].numpy()
        return values


def state_dict(checkpoint: Checkpoint) -> Iterator[tuple[str, Float32Array]]:
    """Tensors under openai-whisper's names: unstacked, and without the keys' biases, which it does not have."""
    size, tensor = checkpoint.dimensions, checkpoint.tensor
    yield "decoder.token_embedding.weight", tensor("decoder/embeddings/weight")
    for part in ("weight", "bias"):
        for convolution in ("conv1", "conv2"):
            yield f"encoder.{convolution}.{part}", tensor(f"encoder/{convolution}/{part}")
    for side, norm, layers in (("encoder", "ln_post", size.n_audio_layer), ("decoder", "ln", size.n_text_layer)):
        yield f"{side}.positional_embedding", tensor(f"{side}/position_encodings/encodings")
        for canonical, name in _NORMS.items():
            yield f"{side}.{norm}.{name}", tensor(f"{side}/{canonical}")
        for layer in range(layers):
            yield from _layer(checkpoint, f"{side}/layer_{layer}", f"{side}.blocks.{layer}", cross=side == "decoder")


def _layer(checkpoint: Checkpoint, ours: str, theirs: str, *, cross: bool) -> Iterator[tuple[str, Float32Array]]:
    for part, (linears, norm) in _BLOCK.items():
        if part == "attention" and not cross:
            continue
        for canonical, name in _NORMS.items():
            yield f"{theirs}.{norm}.{name}", checkpoint.tensor(f"{ours}/{part}/{canonical}")
        for linear, names in linears.items():
            for kind in ("weight", "bias"):
                pieces = np.split(checkpoint.tensor(f"{ours}/{part}/{linear}/{kind}"), len(names))
                for name, piece in zip(names, pieces, strict=True):
                    if not (kind == "bias" and name.endswith("key")):
                        yield f"{theirs}.{name}.{kind}", piece
