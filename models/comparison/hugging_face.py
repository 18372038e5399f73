"""transformers, stage by stage: the reference that exporters start from.

Written from transformers `models/whisper/{feature_extraction,modeling,generation,tokenization}_whisper.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from susurrus.models.comparison.libraries import need, read_window
from susurrus.models.comparison.pipeline import Float32Array
from susurrus.models.errors import ModelError


class Transformers:
    """See `Pipeline`.

    Args:
        directory: A Whisper checkpoint in Hugging Face's layout, processor and tokenizer included.
        weights: Where its weights are from, in a few words.

    Raises:
        ModelError: It is no such checkpoint.
        OptionError: transformers or torch is not installed.
    """

    exact = True

    def __init__(self, directory: Path, weights: str) -> None:
        library, self._torch = need("transformers", "transformers"), need("torch", "torch")
        library.utils.logging.set_verbosity_error()
        local = {"local_files_only": True}
        try:
            model = library.WhisperForConditionalGeneration.from_pretrained(
                directory, **local, dtype=self._torch.float32
            )
            self._extractor = library.WhisperFeatureExtractor.from_pretrained(directory, **local)
            self._tokenizer = library.WhisperTokenizerFast.from_pretrained(directory, **local)
        except (OSError, ValueError, RuntimeError) as error:
            reason = " ".join(str(error).split())[:200]
            raise ModelError(f"{directory} is no checkpoint that transformers loads ({reason})") from error
        self.name = f"transformers {library.__version__} float32, weights of {weights}"
        self._encoded = library.modeling_outputs.BaseModelOutput
        self._model = model.eval()
        self.end: int = model.config.eos_token_id

    def samples(self, clip: Path) -> Float32Array:
        """See `Pipeline`."""
        return read_window(clip, self._extractor.sampling_rate, self._extractor.n_samples)

    def log_mel(self, samples: Float32Array) -> Float32Array:
        """See `Pipeline`."""
        rate = self._extractor.sampling_rate
        mel: Float32Array = self._extractor(samples, sampling_rate=rate, return_tensors="np")["input_features"][0]
        return mel

    def encode(self, mel: Float32Array) -> Float32Array:
        """See `Pipeline`."""
        return self._run(lambda: self._model.model.encoder(self._batch(mel)).last_hidden_state)

    def cross_attention(self, hidden_states: Float32Array) -> Float32Array:
        """See `Pipeline`."""
        states, layers = self._batch(hidden_states), self._model.model.decoder.layers
        parts = [part for layer in layers for part in (layer.encoder_attn.k_proj, layer.encoder_attn.v_proj)]
        values = np.stack([self._run(lambda part=part: part(states)) for part in parts])  # (2 layers, C, D)
        heads = values.reshape(len(layers), 2, len(hidden_states), self._model.config.decoder_attention_heads, -1)
        return heads.swapaxes(2, 3)

    def language(self, hidden_states: Float32Array) -> str:
        """See `Pipeline`."""
        if not self._model.generation_config.is_multilingual:
            return "en"
        (token,) = self._model.detect_language(encoder_outputs=self._states(hidden_states))
        return self.spell(int(token)).removeprefix("<|").removesuffix("|>")

    def prompt(self, language: str) -> tuple[int, ...]:
        """See `Pipeline`."""
        multilingual = self._model.generation_config.is_multilingual
        named = {"language": language, "task": "transcribe"} if multilingual else {"language": None, "task": None}
        self._tokenizer.set_prefix_tokens(**named, predict_timestamps=False)
        return tuple(self._tokenizer.prefix_tokens)

    def logits(self, hidden_states: Float32Array, prompt: Sequence[int], tokens: Sequence[int]) -> Float32Array:
        """See `Pipeline`. All tokens at once, without a cache."""
        return self.shifted_logits(hidden_states, prompt, tokens, 0)

    def shifted_logits(
        self, hidden_states: Float32Array, prompt: Sequence[int], tokens: Sequence[int], first: int
    ) -> Float32Array:
        """See `Pipeline`."""
        ids, encoded = self._torch.tensor([[*prompt, *tokens]]), self._states(hidden_states)
        positions = self._torch.arange(first, first + ids.shape[1])[None]
        rows = self._run(
            lambda: (
                self._model(
                    encoder_outputs=encoded, decoder_input_ids=ids, decoder_position_ids=positions, use_cache=False
                ).logits
            )
        )
        return rows[len(prompt) - 1 :]

    def greedy(self, hidden_states: Float32Array, language: str) -> tuple[int, ...]:
        """See `Pipeline`."""
        multilingual = self._model.generation_config.is_multilingual
        named = {"language": language, "task": "transcribe"} if multilingual else {}
        found = self._model.generate(
            encoder_outputs=self._states(hidden_states),
            attention_mask=self._torch.ones((1, 1)),
            **named,
            return_timestamps=False,
            do_sample=False,
            num_beams=1,
            max_new_tokens=self._model.config.max_target_positions // 2,
        )
        start, tokens = self.prompt(language), found[0].tolist()
        sampled = tokens[len(start) :] if tuple(tokens[: len(start)]) == start else tokens
        return tuple(token for token in sampled if token != self.end)

    def text(self, tokens: Sequence[int]) -> str:
        """See `Pipeline`."""
        return str(self._tokenizer.decode(tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False))

    def spell(self, token: int) -> str:
        """See `Pipeline`."""
        text = str(self._tokenizer.decode([token], clean_up_tokenization_spaces=False))
        return text or str(self._tokenizer.convert_ids_to_tokens(token))  # it decodes timestamps to nothing

    def _states(self, hidden_states: Float32Array) -> Any:
        return self._encoded(last_hidden_state=self._batch(hidden_states))

    def _batch(self, values: Float32Array) -> Any:
        return self._torch.from_numpy(np.ascontiguousarray(values)[np.newaxis])

    def _run(self, compute: Any) -> Float32Array:
        """The first row of what a module gives, as an array."""
        with self._torch.no_grad():
            values: Float32Array = compute()[0].numpy()
        return values
