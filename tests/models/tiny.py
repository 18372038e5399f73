"""A tiny Whisper with random weights, written as a checkpoint of either layout: about 400 kB, and complete."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any

import numpy as np

from susurrus.models.checkpoints.checkpoint import expected_shapes
from susurrus.models.checkpoints.files import SourceFiles, open_checkpoint
from susurrus.models.dimensions import Dimensions
from susurrus.models.graphs.build import build_model
from susurrus.models.vocabulary import TIMESTAMPS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

SPECIAL = [
    "<|endoftext|>",
    "<|startoftranscript|>",
    "<|en|>",
    "<|de|>",
    "<|translate|>",
    "<|transcribe|>",
    "<|startoflm|>",
    "<|startofprev|>",
    "<|nospeech|>",
    "<|notimestamps|>",
]
CHUNK_LENGTH = 1  # seconds of a full window
N_MELS = 80

Tensors = dict[str, "NDArray[Any]"]


def byte_tokens() -> list[str]:
    """GPT-2's spelling of the 256 bytes: printable ones as they are, the others from U+0100 on."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = [byte for byte in range(256) if byte not in printable]
    return [chr(byte) for byte in sorted(printable)] + [chr(256 + index) for index in range(len(others))]


VOCABULARY = [*byte_tokens(), *SPECIAL, *TIMESTAMPS]
DIMENSIONS = Dimensions(
    n_mels=N_MELS,
    n_audio_ctx=50 * CHUNK_LENGTH,
    n_audio_state=64,
    n_audio_head=2,
    n_audio_layer=3,
    n_vocab=len(VOCABULARY),
    n_text_ctx=40,
    n_text_state=64,
    n_text_head=2,
    n_text_layer=2,
)


def random_tensors(dimensions: Dimensions = DIMENSIONS, seed: int = 0) -> Tensors:
    """float16 tensors under canonical names, scaled so that attention and Gelu have something to do."""
    rng = np.random.default_rng(seed)
    tensors: Tensors = {}
    for name, shape in expected_shapes(dimensions).items():
        values = rng.standard_normal(shape)
        if name.endswith("gamma"):
            values = 1 + 0.2 * values
        elif name.endswith(("beta", "bias")):
            values *= 0.1
        elif len(shape) > 1:
            values *= 1.5 / np.sqrt(np.prod(shape[1:]))
        tensors[name] = values.astype(np.float16)
    width = dimensions.n_audio_state
    for layer in range(dimensions.n_audio_layer):  # Whisper's keys have no bias
        tensors[f"encoder/layer_{layer}/self_attention/linear_0/bias"][width : 2 * width] = 0
    for layer in range(dimensions.n_text_layer):
        tensors[f"decoder/layer_{layer}/self_attention/linear_0/bias"][width : 2 * width] = 0
        tensors[f"decoder/layer_{layer}/attention/linear_1/bias"][:width] = 0
    return tensors


def write_ctranslate2(folder: Path, tensors: Mapping[str, NDArray[Any]], dimensions: Dimensions = DIMENSIONS) -> Path:
    """Writes `model.bin`, `config.json`, `vocabulary.txt`, `tokenizer.json`."""
    heads = {"encoder/num_heads": dimensions.n_audio_head, "decoder/num_heads": dimensions.n_text_head}
    variables = {**tensors, **{name: np.array(count, np.int16) for name, count in heads.items()}}
    (folder / "model.bin").write_bytes(ctranslate2_bytes(variables))
    config = {"suppress_ids": [1, 2], "suppress_ids_begin": [220], "alignment_heads": [[1, 0]]}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "preprocessor_config.json").write_text(json.dumps({"chunk_length": CHUNK_LENGTH}))
    (folder / "vocabulary.txt").write_text("".join(f"{token}\n" for token in VOCABULARY))
    (folder / "tokenizer.json").write_text(json.dumps(_tokenizer()))
    return folder


def ctranslate2_bytes(
    variables: Mapping[str, NDArray[Any]],
    *,
    version: int = 6,
    spec: str = "WhisperSpec",
    aliases: Sequence[tuple[str, str]] = (("decoder/projection/weight", "decoder/embeddings/weight"),),
) -> bytes:
    """The bytes of a `model.bin`."""
    types = {"float32": 0, "int8": 1, "int16": 2, "int32": 3, "float16": 4}
    parts = [struct.pack("<I", version), _string(spec), struct.pack("<II", 3, len(variables))]
    for name, values in variables.items():
        parts += [_string(name), struct.pack(f"<B{values.ndim}I", values.ndim, *values.shape)]
        parts += [struct.pack("<BI", types[values.dtype.name], values.nbytes), values.tobytes()]
    parts.append(struct.pack("<I", len(aliases)))
    parts += [_string(text) for pair in aliases for text in pair]
    return b"".join(parts)


def write_hugging_face(folder: Path, tensors: Mapping[str, NDArray[Any]], dimensions: Dimensions = DIMENSIONS) -> Path:
    """Writes `model.safetensors` and its JSON files, under the names of transformers."""
    (folder / "model.safetensors").write_bytes(safetensors_bytes(hugging_face_tensors(tensors, dimensions)))
    config = {"encoder_attention_heads": dimensions.n_audio_head, "decoder_attention_heads": dimensions.n_text_head}
    (folder / "config.json").write_text(json.dumps(config))
    generation = {"suppress_tokens": [1, 2], "begin_suppress_tokens": [220], "alignment_heads": [[1, 0]]}
    (folder / "generation_config.json").write_text(json.dumps(generation))
    (folder / "preprocessor_config.json").write_text(json.dumps({"chunk_length": CHUNK_LENGTH}))
    (folder / "tokenizer.json").write_text(json.dumps(_tokenizer()))
    return folder


def hugging_face_tensors(tensors: Mapping[str, NDArray[Any]], dimensions: Dimensions = DIMENSIONS) -> Tensors:
    """Unstacks and renames; written out by hand, not from the reader's table."""
    found: Tensors = {"model.decoder.embed_tokens.weight": tensors["decoder/embeddings/weight"]}
    for part in ("weight", "bias"):
        for convolution in ("conv1", "conv2"):
            found[f"model.encoder.{convolution}.{part}"] = tensors[f"encoder/{convolution}/{part}"]
    for side, layers in (("encoder", dimensions.n_audio_layer), ("decoder", dimensions.n_text_layer)):
        theirs = f"model.{side}"
        found[f"{theirs}.embed_positions.weight"] = tensors[f"{side}/position_encodings/encodings"]
        _copy_norm(found, f"{theirs}.layer_norm", tensors, f"{side}/layer_norm")
        for layer in range(layers):
            _copy_layer(found, f"{theirs}.layers.{layer}", tensors, f"{side}/layer_{layer}", cross=side == "decoder")
    return found


def safetensors_bytes(tensors: Mapping[str, NDArray[Any]]) -> bytes:
    """The bytes of a safetensors file."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, values in tensors.items():
        dtype = {"float16": "F16", "float32": "F32", "uint16": "BF16"}[values.dtype.name]
        header[name] = {"dtype": dtype, "shape": values.shape, "data_offsets": [offset, offset + values.nbytes]}
        offset += values.nbytes
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + b"".join(values.tobytes() for values in tensors.values())


def build_tiny(source: Path, directory: Path, *precisions: str, name: str = "tiny") -> list[str]:
    """Builds a model directory from a folder that one of the writers filled; returns the warnings."""
    files = SourceFiles.from_directory(source)
    return build_model(
        open_checkpoint(files), files, directory, name=name, precisions=precisions or ("int8", "float32")
    )


def _copy_norm(found: Tensors, target: str, tensors: Mapping[str, NDArray[Any]], source: str) -> None:
    found[f"{target}.weight"], found[f"{target}.bias"] = tensors[f"{source}/gamma"], tensors[f"{source}/beta"]


def _copy_layer(found: Tensors, target: str, tensors: Mapping[str, NDArray[Any]], source: str, *, cross: bool) -> None:
    linears = {
        "self_attention/linear_0": ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"],
        "self_attention/linear_1": ["self_attn.out_proj"],
        "ffn/linear_0": ["fc1"],
        "ffn/linear_1": ["fc2"],
    }
    norms = {"self_attention": "self_attn_layer_norm", "ffn": "final_layer_norm"}
    if cross:
        linears["attention/linear_0"] = ["encoder_attn.q_proj"]
        linears["attention/linear_1"] = ["encoder_attn.k_proj", "encoder_attn.v_proj"]
        linears["attention/linear_2"] = ["encoder_attn.out_proj"]
        norms["attention"] = "encoder_attn_layer_norm"
    for ours, theirs in norms.items():
        _copy_norm(found, f"{target}.{theirs}", tensors, f"{source}/{ours}/layer_norm")
    for ours, names in linears.items():
        for part in ("weight", "bias"):
            for name, piece in zip(names, np.split(tensors[f"{source}/{ours}/{part}"], len(names)), strict=True):
                if not (part == "bias" and name.endswith("k_proj")):
                    found[f"{target}.{name}.{part}"] = piece


def _tokenizer() -> dict[str, Any]:
    """A `tokenizer.json` that, like some published ones, leaves the timestamps out."""
    added = [{"id": 256 + index, "content": token} for index, token in enumerate(SPECIAL)]
    vocabulary = {token: index for index, token in enumerate(byte_tokens())}
    return {"model": {"type": "BPE", "vocab": vocabulary, "merges": []}, "added_tokens": added}


def _string(text: str) -> bytes:
    raw = text.encode() + b"\0"
    return struct.pack("<H", len(raw)) + raw
