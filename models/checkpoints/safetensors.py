"""Hugging Face Whisper checkpoints, read without a framework.

File format: https://github.com/huggingface/safetensors#format (u64 header length, JSON header, data). Tensor names:
transformers `models/whisper/modeling_whisper.py`.
"""

import json
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from susurrus.models.checkpoints.checkpoint import (
    DECODER_LINEARS,
    ENCODER_LINEARS,
    Checkpoint,
    Loader,
    dimensions_of,
    layer_count,
)
from susurrus.models.checkpoints.mapped_files import JoinedFiles, TensorEntry
from susurrus.models.errors import ModelError

_TYPES = {"F32": "<f4", "F16": "<f2", "BF16": "bfloat16", "F64": "<f8"}
_MAX_HEADER = 100_000_000  # bytes, the limit of the format

# canonical part -> Hugging Face parts, stacked along the output axis
_PARTS = {
    "self_attention/layer_norm": ("self_attn_layer_norm",),
    "self_attention/linear_0": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "self_attention/linear_1": ("self_attn.out_proj",),
    "attention/layer_norm": ("encoder_attn_layer_norm",),
    "attention/linear_0": ("encoder_attn.q_proj",),
    "attention/linear_1": ("encoder_attn.k_proj", "encoder_attn.v_proj"),
    "attention/linear_2": ("encoder_attn.out_proj",),
    "ffn/layer_norm": ("final_layer_norm",),
    "ffn/linear_0": ("fc1",),
    "ffn/linear_1": ("fc2",),
}

_Located = tuple[JoinedFiles, TensorEntry]


def read_safetensors(shards: Sequence[Path], config: Path) -> Checkpoint:
    """Reads a checkpoint.

    Args:
        shards: The `*.safetensors` files.
        config: `config.json`, for the number of heads.

    Raises:
        ModelError: A file is damaged, truncated, or not Whisper.
    """
    source = str(shards[0])
    found = {name.removeprefix("model."): located for shard in shards for name, located in _located(shard)}
    tensors: dict[str, Loader] = {}
    shapes: dict[str, tuple[int, ...]] = {}
    for name, parts in _canonical_names(found):
        tensors[name], shapes[name] = _stacked([found.get(part) for part in parts], f"{source}: {parts[0]}")
    heads = _heads(config)
    dimensions = dimensions_of(shapes, audio_heads=heads[0], text_heads=heads[1], source=source)
    return Checkpoint(dimensions, tensors, source)


def _located(shard: Path) -> Iterator[tuple[str, _Located]]:
    data = JoinedFiles([shard])
    length = int(struct.unpack("<Q", data.read(0, 8))[0])
    if length > _MAX_HEADER:
        raise ModelError(f"{shard} is not a safetensors file: its header would have {length} bytes")
    try:
        header = json.loads(bytes(data.read(8, length)))
        entries = {n: _entry(v, 8 + length) for n, v in header.items() if n != "__metadata__"}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ModelError(f"{shard} has a damaged or unknown header ({error}): fetch it again") from error
    for name, entry in entries.items():
        if not entry.fits or entry.offset < 8 + length or entry.offset + entry.size > len(data):
            raise ModelError(f"{shard}: {name} lies outside the file or its shape is wrong: fetch it again")
        yield name, (data, entry)


def _entry(value: Mapping[str, Any], base: int) -> TensorEntry:
    begin, end = value["data_offsets"]
    return TensorEntry(tuple(value["shape"]), _TYPES[value["dtype"]], base + begin, end - begin)


def _canonical_names(found: Iterable[str]) -> Iterator[tuple[str, list[str]]]:
    """Every canonical name with the Hugging Face tensors that are stacked in it."""
    yield "decoder/embeddings/weight", ["decoder.embed_tokens.weight"]
    for convolution in ("conv1", "conv2"):
        for kind in ("weight", "bias"):
            yield f"encoder/{convolution}/{kind}", [f"encoder.{convolution}.{kind}"]
    for side, linears in (("encoder", ENCODER_LINEARS), ("decoder", DECODER_LINEARS)):
        yield f"{side}/position_encodings/encodings", [f"{side}.embed_positions.weight"]
        yield from _parameters(f"{side}/layer_norm", [f"{side}.layer_norm"])
        blocks = {part.split("/")[0] for part in linears}
        for layer in range(layer_count(found, rf"{side}\.layers\.(\d+)\.")):
            for part, theirs in _PARTS.items():
                if part.split("/")[0] in blocks:
                    names = [f"{side}.layers.{layer}.{name}" for name in theirs]
                    yield from _parameters(f"{side}/layer_{layer}/{part}", names)


def _parameters(target: str, sources: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    weight, bias = ("gamma", "beta") if target.endswith("layer_norm") else ("weight", "bias")
    yield f"{target}/{weight}", [f"{source}.weight" for source in sources]
    yield f"{target}/{bias}", [f"{source}.bias" for source in sources]


def _stacked(pieces: Sequence[_Located | None], source: str) -> tuple[Loader, tuple[int, ...]]:
    """Joins pieces along the output axis; a missing one (Whisper's keys have no bias) is zeros."""
    shapes = {piece[1].shape for piece in pieces if piece is not None}
    if len(shapes) != 1:
        raise ModelError(f"{source} is missing or does not fit its neighbours: not a whole Whisper checkpoint")
    shape = shapes.pop()

    def load() -> np.typing.NDArray[np.float32]:
        zeros = np.zeros(shape, np.float32)
        return np.concatenate([zeros if piece is None else piece[0].array(piece[1]) for piece in pieces])

    return load, (len(pieces) * shape[0], *shape[1:])


def _heads(config: Path) -> tuple[int, int]:
    try:
        facts = json.loads(config.read_bytes())
        return int(facts["encoder_attention_heads"]), int(facts["decoder_attention_heads"])
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise ModelError(f"{config} does not give the attention heads ({error}): fetch it again") from error
