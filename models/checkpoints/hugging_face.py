"""Writes a checkpoint in Hugging Face's layout, so that its tools run on weights of any other layout.

File format: https://github.com/huggingface/safetensors#format. Names and configuration keys: transformers
`models/whisper/{modeling,configuration,feature_extraction}_whisper.py` and `generation/configuration_utils.py`.
"""

import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from math import prod
from pathlib import Path
from typing import Any

from susurrus.models.checkpoints.checkpoint import Checkpoint, expected_shapes
from susurrus.models.checkpoints.safetensors import _canonical_names
from susurrus.models.checkpoints.tokenizer_files import write_tokenizer_files
from susurrus.models.config import ModelConfig
from susurrus.models.dimensions import AudioParameters, Dimensions
from susurrus.models.special_tokens import SpecialTokens

WEIGHTS_FILE = "model.safetensors"

_ALIGNMENT = 8  # bytes: the header is filled up to it with spaces
_MAX_INITIAL_TIMESTAMP = 50  # steps of 0.02 s: the first timestamp is at most 1 s (openai-whisper's default)

_Tensor = tuple[str, tuple[int, ...], str, int]  # name, shape, canonical name, which of the pieces stacked in it


def write_hugging_face(checkpoint: Checkpoint, config: ModelConfig, vocabulary: Sequence[str], directory: Path) -> None:
    """Writes weights (float32), configurations and tokenizer.

    Args:
        checkpoint: The weights.
        config: The model's other facts.
        vocabulary: Token i at index i, special tokens and timestamps included.
        directory: An existing folder.

    Raises:
        ModelError: A tensor or a special token is missing.
        OSError: The folder cannot be written.
    """
    special = SpecialTokens.from_vocabulary(vocabulary)
    _write_json(directory / "config.json", model_configuration(config, special))
    _write_json(directory / "generation_config.json", generation_configuration(config, special, vocabulary))
    _write_json(directory / "preprocessor_config.json", preprocessor_configuration(config.audio))
    write_tokenizer_files(vocabulary, special, directory)
    _write_weights(checkpoint, directory / WEIGHTS_FILE)


def model_configuration(config: ModelConfig, special: SpecialTokens) -> dict[str, Any]:
    """The content of `config.json`."""
    size = config.dimensions
    return {
        "architectures": ["WhisperForConditionalGeneration"],
        "model_type": "whisper",
        "activation_function": "gelu",
        "d_model": size.n_audio_state,
        "encoder_layers": size.n_audio_layer,
        "encoder_attention_heads": size.n_audio_head,
        "encoder_ffn_dim": 4 * size.n_audio_state,
        "decoder_layers": size.n_text_layer,
        "decoder_attention_heads": size.n_text_head,
        "decoder_ffn_dim": 4 * size.n_text_state,
        "num_hidden_layers": size.n_audio_layer,
        "num_mel_bins": size.n_mels,
        "max_source_positions": size.n_audio_ctx,
        "max_target_positions": size.n_text_ctx,
        "vocab_size": size.n_vocab,
        "is_encoder_decoder": True,
        "scale_embedding": False,
        "use_cache": True,
        "torch_dtype": "float32",
        "begin_suppress_tokens": list(config.begin_suppress_tokens),
        "suppress_tokens": list(config.suppress_tokens),
        **_special_ids(special),
    }


def generation_configuration(config: ModelConfig, special: SpecialTokens, vocabulary: Sequence[str]) -> dict[str, Any]:
    """The content of `generation_config.json`. English-only models have neither languages nor tasks in it."""
    facts: dict[str, Any] = {
        "alignment_heads": [list(pair) for pair in config.alignment_heads],
        "begin_suppress_tokens": list(config.begin_suppress_tokens),
        "forced_decoder_ids": [[1, special.no_timestamps]],
        "is_multilingual": special.multilingual,
        "max_initial_timestamp_index": _MAX_INITIAL_TIMESTAMP,
        "max_length": config.dimensions.n_text_ctx,
        "no_timestamps_token_id": special.no_timestamps,
        "prev_sot_token_id": special.sot_prev,
        "return_timestamps": False,
        "suppress_tokens": list(config.suppress_tokens),
        **_special_ids(special),
    }
    if special.multilingual:
        facts["forced_decoder_ids"] = [[1, None], [2, special.transcribe]]  # None: the language is detected
        facts["lang_to_id"] = {vocabulary[token]: token for token in range(special.sot + 1, special.translate)}
        facts["task_to_id"] = {"transcribe": special.transcribe, "translate": special.translate}
    return facts


def preprocessor_configuration(audio: AudioParameters) -> dict[str, Any]:
    """The content of `preprocessor_config.json`."""
    return {
        "chunk_length": audio.chunk_length,
        "feature_extractor_type": "WhisperFeatureExtractor",
        "feature_size": audio.n_mels,
        "hop_length": audio.hop_length,
        "n_fft": audio.n_fft,
        "n_samples": audio.n_samples,
        "nb_max_frames": audio.n_frames,
        "padding_side": "right",
        "padding_value": 0.0,
        "processor_class": "WhisperProcessor",
        "return_attention_mask": False,
        "sampling_rate": audio.sample_rate,
    }


def _special_ids(special: SpecialTokens) -> dict[str, int]:
    ends = dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"), special.eot)
    return {**ends, "decoder_start_token_id": special.sot}


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def _write_weights(checkpoint: Checkpoint, path: Path) -> None:
    """Writes one tensor after the other, so that no more than one is in memory."""
    tensors = list(_tensors(checkpoint.dimensions))
    ends = list(accumulate(4 * prod(shape) for _, shape, _, _ in tensors))
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    for (name, shape, _, _), begin, end in zip(tensors, [0, *ends[:-1]], ends, strict=True):
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, (rows, *_), canonical, piece in tensors:
            values = checkpoint.tensor(canonical)[piece * rows : (piece + 1) * rows]
            file.write(values.astype("<f4").tobytes())


def _tensors(dimensions: Dimensions) -> Iterator[_Tensor]:
    """Unstacks. The tied output projection is not written, nor the keys' biases.

    Whisper's keys have none, and one would change nothing: it adds the same number to all scores of a query.
    """
    shapes = expected_shapes(dimensions)
    layers = {"encoder": dimensions.n_audio_layer, "decoder": dimensions.n_text_layer}
    for canonical, names in _canonical_names([f"{side}.layers.{count - 1}." for side, count in layers.items()]):
        rows, *others = shapes[canonical]
        for piece, name in enumerate(names):
            if not name.endswith("k_proj.bias"):
                yield f"model.{name}", (rows // len(names), *others), canonical, piece
