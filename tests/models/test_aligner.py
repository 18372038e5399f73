"""Word times from a decoder's window: what openai-whisper finds, in every precision, and for texts of every length."""

from __future__ import annotations

import json
import statistics
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from susurrus.models.aligner import Aligner
from susurrus.models.audio import AudioReader
from susurrus.models.config import ModelConfig
from susurrus.models.errors import ModelError
from susurrus.models.mel import LogMel, pad_frames
from susurrus.models.results import Cue, Word
from susurrus.models.sessions import Decoder, Encoder
from susurrus.models.tokenizer import Tokenizer
from tests.models.tiny import DIMENSIONS

SAMPLES = Path(__file__).parents[2] / "samples"
GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "words.json").read_text())


@dataclass(frozen=True, slots=True)
class Window:
    """What the aligner asks of a window."""

    duration: float
    speech: tuple[()] = ()


def aligner_of(directory: Path, precision: str, hidden_states: NDArray[np.float32]) -> Aligner:
    """An aligner whose decoder holds a window."""
    decoder = Decoder(directory, precision=precision, threads=1)
    decoder.begin(hidden_states)
    return Aligner.load(directory, decoder, Tokenizer.from_directory(directory), precision=precision, threads=1)


@pytest.fixture(scope="module")
def hidden_states() -> NDArray[np.float32]:
    """A window of the tiny model's."""
    width = DIMENSIONS.n_audio_state
    return np.random.default_rng(0).standard_normal((DIMENSIONS.n_audio_ctx, width)).astype(np.float32)


@pytest.fixture(params=["int8", "float32", "int8 with float cross-attention"])
def tiny_aligner(
    request: pytest.FixtureRequest, tiny: Path, hidden_states: NDArray[np.float32], monkeypatch: pytest.MonkeyPatch
) -> Aligner:
    """The tiny model's aligner, in every way that it can be loaded."""
    precision, *fallback = request.param.split(" with ")
    if fallback:
        monkeypatch.setattr("susurrus.models.decoder_graphs._int8_cross_attention_works", lambda *_: False)
    return aligner_of(tiny, precision, hidden_states)


def cues_of(tokenizer_directory: Path, *texts: str) -> list[Cue]:
    """Cues with these texts, one second for all."""
    tokenizer = Tokenizer.from_directory(tokenizer_directory)
    step = 1 / len(texts)
    return [Cue(i * step, (i + 1) * step, text, tuple(tokenizer.encode(text))) for i, text in enumerate(texts)]


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        ([" a b", " c."], [" a", " b", " c."]),
        (["x"], ["x"]),
        ([" ."], [" ."]),
        (["...", " ?!"], ["...", " ?!"]),
        ([" \u00e9t\u00e9 \U0001f600"], [" \u00e9t\u00e9", " \U0001f600"]),
    ],
)
def test_every_text_gets_its_words(tiny_aligner: Aligner, tiny: Path, texts: list[str], words: list[str]) -> None:
    cues = cues_of(tiny, *texts)
    count = sum(len(cue.tokens) for cue in cues)
    found = tiny_aligner(Window(1.0), cues, [-0.1] * count, language="en", task="transcribe")
    assert [cue.text for cue in found] == texts
    assert [word.text for cue in found for word in cue.words] == words
    assert_shown_in_order([word for cue in found for word in cue.words], 1.0)


def assert_shown_in_order(words: list[Word], duration: float) -> None:
    assert all(0 <= word.start < word.end <= duration for word in words)
    assert all(before.end <= after.start for before, after in pairwise(words))
    assert all(0 < word.probability <= 1 for word in words)


def test_no_cues_have_no_words(tiny_aligner: Aligner) -> None:
    assert tiny_aligner(Window(1.0), (), (), language="en", task="transcribe") == ()


def test_a_text_as_long_as_the_decoder_can_write_is_taken(tiny_aligner: Aligner, tiny: Path) -> None:
    """With prompt and end token it is longer than what the decoder can read; the rest has the end's time."""
    cues = cues_of(tiny, " abc" * (DIMENSIONS.n_text_ctx // 4))
    count = len(cues[0].tokens)
    assert count == DIMENSIONS.n_text_ctx
    (cue,) = tiny_aligner(Window(1.0), cues, [-0.1] * count, language="en", task="transcribe")
    assert len(cue.words) == DIMENSIONS.n_text_ctx // 4
    assert_shown_in_order(list(cue.words), 1.0)


@pytest.mark.parametrize("duration", [0.005, 0.03, 0.5, 3.0])
def test_words_end_with_the_audio(tiny_aligner: Aligner, tiny: Path, duration: float) -> None:
    """Whatever part of the window it is, or more than the model takes."""
    cues = [Cue(0.0, duration, cue.text, cue.tokens) for cue in cues_of(tiny, " a few words.")]
    (cue,) = tiny_aligner(Window(duration), cues, [-0.1] * 13, language="en", task="transcribe")
    assert_shown_in_order(list(cue.words), duration)
    assert cue.end <= duration


@pytest.mark.parametrize(
    ("language", "task", "words"),
    [("ja", "transcribe", ["ab", "c"]), ("ja", "translate", ["abc"]), ("en", "transcribe", ["abc"])],
)
def test_languages_without_spaces_are_cut_at_tokens(
    *,
    tiny: Path,
    hidden_states: NDArray[np.float32],
    monkeypatch: pytest.MonkeyPatch,
    language: str,
    task: str,
    words: list[str],
) -> None:
    """A translation is English, whatever was spoken."""
    aligner = aligner_of(tiny, "int8", hidden_states)
    tokenizer = Tokenizer.from_directory(tiny)
    first, second, third = tokenizer.encode("abc")
    spelled = {first: b"ab", second: b"", third: b"c"}
    monkeypatch.setattr(Tokenizer, "token_bytes", lambda _self, token: spelled[token])
    cues = [Cue(0.0, 1.0, "abc", (first, second, third))]
    (cue,) = aligner(Window(1.0), cues, [-0.1] * 3, language=language, task=task)
    assert [word.text for word in cue.words] == words


def test_log_probabilities_of_another_text_are_refused(tiny_aligner: Aligner, tiny: Path) -> None:
    with pytest.raises(ValueError, match="2 log-probabilities for 4 tokens"):
        tiny_aligner(Window(1.0), cues_of(tiny, "abcd"), [-0.1] * 2, language="en", task="transcribe")


def test_a_model_without_the_graph_says_what_to_do(tiny: Path, hidden_states: NDArray[np.float32]) -> None:
    decoder = Decoder(tiny, threads=1)
    decoder.begin(hidden_states)
    with pytest.raises(ModelError, match="no int4 graphs"):
        Aligner.load(tiny, decoder, Tokenizer.from_directory(tiny), precision="int4")


def test_the_same_window_has_the_same_words_after_others(tiny: Path, hidden_states: NDArray[np.float32]) -> None:
    decoder = Decoder(tiny, threads=1)
    aligner = Aligner.load(tiny, decoder, Tokenizer.from_directory(tiny), threads=1)
    cues = cues_of(tiny, " one two three")

    def align(window: NDArray[np.float32]) -> Any:
        decoder.begin(window)
        decoder.step([257, 258, 261])
        return aligner(Window(1.0), cues, [-0.1] * 14, language="en", task="transcribe")

    first = align(hidden_states)
    assert align(hidden_states[::-1].copy()) != first
    assert align(hidden_states) == first


@pytest.fixture(scope="module")
def encoder(base: Path) -> Encoder:
    """Whisper Base's."""
    return Encoder(base, threads=2)


@pytest.mark.parametrize("clip", GOLDEN["clips"], ids=lambda clip: clip["name"])
def test_words_are_where_openai_whisper_finds_them(clip: dict[str, Any], base: Path, encoder: Encoder) -> None:
    """Whisper Base in INT8 against float32 there, on the same text: half within a step, all within 0.2 s."""
    config = ModelConfig.from_directory(base)
    with AudioReader(SAMPLES / clip["name"], config.audio.sample_rate) as reader:
        samples = np.concatenate([block.copy() for block in reader])
    mel, silence = LogMel.from_directory(base)(samples)
    hidden_states = encoder(pad_frames(mel, silence, config.audio.n_frames))
    cues = [Cue(cue["start"], cue["end"], cue["text"], tuple(cue["tokens"])) for cue in clip["cues"]]
    count = sum(len(cue.tokens) for cue in cues)
    window = Window(len(samples) / config.audio.sample_rate)
    found = aligner_of(base, "int8", hidden_states)(
        window, cues, [-0.1] * count, language=clip["language"], task="transcribe"
    )
    words = [word for cue in found for word in cue.words]
    wanted = [word for cue in clip["cues"] for word in cue["words"]]
    assert [word.text for word in words] == [text for text, *_ in wanted]
    apart = [
        abs(ours - theirs)
        for word, (_, start, end, _) in zip(words, wanted, strict=True)
        for ours, theirs in ((word.start, start), (word.end, end))
    ]
    assert statistics.median(apart) < 0.021
    assert max(apart) < 0.21
