"""A model directory is believed only as far as its manifest and the bytes agree."""

import hashlib
import json
import os
from pathlib import Path

import pytest

from susurrus.models.errors import ModelError
from susurrus.models.provisioning.manifest import Damage, Manifest, describe, hash_stream, verify, write_manifest

FILES = {
    "model.json": b"{}",
    "int8/encoder.onnx": b"encoder" * 100,
    "int8/weights.bin": os.urandom(3_000_000),
    "float32/encoder.onnx": b"float" * 100,
}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    directory = tmp_path / "base"
    for name, content in FILES.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(content)
    write_manifest(directory, describe(directory, "base", {"model.bin": "00"}))
    return directory


def rewrite(directory: Path, **changes: object) -> None:
    path = directory / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_an_unharmed_directory_has_no_damage(directory: Path) -> None:
    assert verify(directory) == []


def test_the_manifest_lists_every_file_with_its_size_and_digest(directory: Path) -> None:
    manifest = Manifest.read(directory)
    assert {name: (r.size, r.sha256) for name, r in manifest.files.items()} == {
        name: (len(content), hashlib.sha256(content).hexdigest()) for name, content in FILES.items()
    }
    assert manifest.precisions == ("int8", "float32")


def test_a_deleted_file_is_missing(directory: Path) -> None:
    (directory / "model.json").unlink()
    assert verify(directory) == [Damage("model.json", "missing", "2", "")]


def test_a_folder_in_place_of_a_file_is_a_missing_file(directory: Path) -> None:
    (directory / "model.json").unlink()
    (directory / "model.json").mkdir()
    assert verify(directory) == [Damage("model.json", "missing", "2", "")]


def test_a_truncated_file_is_found_by_its_size(directory: Path) -> None:
    os.truncate(directory / "int8/weights.bin", 2_100_000)
    assert verify(directory, hashes=False) == [Damage("int8/weights.bin", "size", "3000000", "2100000")]
    assert "int8/weights.bin has 2100000 bytes, wanted 3000000" in str(verify(directory)[0])


@pytest.mark.parametrize("place", [0, 1_048_576, 2_999_999])
def test_one_flipped_bit_anywhere_is_found_by_its_hash(directory: Path, place: int) -> None:
    content = bytearray(FILES["int8/weights.bin"])
    content[place] ^= 1
    (directory / "int8/weights.bin").write_bytes(content)
    found = hashlib.sha256(content).hexdigest()
    wanted = hashlib.sha256(FILES["int8/weights.bin"]).hexdigest()
    assert verify(directory) == [Damage("int8/weights.bin", "hash", wanted, found)]
    assert verify(directory, hashes=False) == []


def test_only_what_the_precisions_need_is_looked_at(directory: Path) -> None:
    (directory / "float32/encoder.onnx").unlink()
    assert verify(directory, ["int8"]) == []
    assert [damage.path for damage in verify(directory, ["float32"])] == ["float32/encoder.onnx"]


def test_progress_ends_at_the_sum_of_all_sizes(directory: Path) -> None:
    told: list[tuple[int, int]] = []
    verify(directory, progress=lambda _what, done, total: told.append((done, total)))
    total = sum(map(len, FILES.values()))
    assert told == sorted(told)
    assert told[-1] == (total, total)


@pytest.mark.parametrize(
    "name",
    [
        "../base2/model.json",
        "/etc/hostname",
        "int8/../../x",
        "int8\\..\\x",
        "C:x",
        "c:/x",
        "",
        ".",
        "./model.json",
    ],
)
def test_a_path_that_leads_out_of_the_folder_is_refused(directory: Path, name: str) -> None:
    rewrite(directory, files={name: {"size": 0, "sha256": "00"}})
    with pytest.raises(ModelError, match="no path inside the folder"):
        Manifest.read(directory)


def test_a_link_out_of_the_folder_is_refused_though_its_bytes_are_right(directory: Path) -> None:
    outside = directory.parent / "weights.bin"
    (directory / "int8/weights.bin").rename(outside)
    (directory / "int8/weights.bin").symlink_to(outside)
    with pytest.raises(ModelError, match=r"int8/weights\.bin is a link"):
        verify(directory)


def test_links_that_stay_inside_are_followed(directory: Path) -> None:
    (directory / "int8").rename(directory / "..data")
    (directory / "int8").symlink_to("..data")
    assert verify(directory) == []


def test_a_manifest_cut_anywhere_is_refused_with_its_name(directory: Path) -> None:
    path = directory / "manifest.json"
    whole = path.read_bytes()
    for end in range(0, len(whole), 7):
        path.write_bytes(whole[:end])
        with pytest.raises(ModelError, match=r"manifest\.json is damaged"):
            verify(directory)


@pytest.mark.parametrize("changes", [{"format": 2}, {"files": []}, {"files": {"a": 1}}, {"builder": None}])
def test_a_manifest_of_another_shape_is_refused(directory: Path, changes: dict[str, object]) -> None:
    rewrite(directory, **changes)
    with pytest.raises(ModelError, match=r"manifest\.json is damaged"):
        verify(directory)


def test_a_folder_without_a_manifest_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"has no manifest\.json"):
        verify(tmp_path)


def test_the_hash_of_parts_is_the_hash_of_the_whole(directory: Path) -> None:
    parts = [directory / name for name in FILES]
    blocks: list[bytes] = []
    digest = hash_stream(parts, lambda block: blocks.append(bytes(block)))
    assert b"".join(blocks) == b"".join(FILES.values())
    assert digest == hashlib.sha256(b"".join(FILES.values())).hexdigest()
