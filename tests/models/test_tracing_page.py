"""Numbers, pictures and the page of a trace: right, and suspicious of what is wrong only."""

from __future__ import annotations

import math
import struct
import zlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from susurrus.models.options import DecodingOptions
from susurrus.models.results import Span
from susurrus.models.tracing import (
    Story,
    WindowTrace,
    hidden_state_facts,
    mel_facts,
    mel_picture,
    position_norms,
    summary,
)
from susurrus.models.tracing.picture import BIN_HEIGHT, MARGIN, MARK_HEIGHT, MAX_WIDTH, png
from susurrus.models.tracing.suspicions import suspicions
from tests.models.test_tracing import PLAIN, SPECIAL, at, doubtful, saying, text, told

Pixels = NDArray[np.uint8]
GREEN = (30, 160, 70)


def read_png(data: bytes) -> Pixels:
    """Pixels (height, width, 3) of a PNG with a palette, read by the letter of the specification."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    chunks: dict[bytes, bytes] = {}
    rest = data[8:]
    while rest:
        length, name = struct.unpack(">I4s", rest[:8])
        chunks[name] = rest[8 : 8 + length]
        assert struct.unpack(">I", rest[8 + length : 12 + length])[0] == zlib.crc32(rest[4 : 8 + length])
        rest = rest[12 + length :]
    assert list(chunks) == [b"IHDR", b"PLTE", b"IDAT", b"IEND"]
    width, height, depth, kind, *others = struct.unpack(">IIBBBBB", chunks[b"IHDR"])
    assert (depth, kind, others) == (8, 3, [0, 0, 0])
    lines = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), np.uint8).reshape(height, width + 1)
    assert not lines[:, 0].any()  # no filter
    palette = np.frombuffer(chunks[b"PLTE"], np.uint8).reshape(-1, 3)
    pixels: Pixels = palette[lines[:, 1:]]
    return pixels


def picture(mel: NDArray[np.float32], start: float, end: float, *speech: tuple[float, float]) -> tuple[Pixels, Pixels]:
    """The mel's part of the picture, and the row of the speech marks."""
    pixels = read_png(mel_picture(mel, start, end, speech, floor=-1.0))[MARGIN:-MARGIN, MARGIN:-MARGIN]
    height = BIN_HEIGHT * len(mel)
    return pixels[:height], pixels[height + MARK_HEIGHT // 2]


def test_a_png_holds_the_pixels_it_was_given() -> None:
    rng = np.random.default_rng(1)
    image = rng.integers(0, 7, (5, 9), dtype=np.uint8)
    palette = rng.integers(0, 256, (7, 3), dtype=np.uint8)
    assert np.array_equal(read_png(png(image, palette)), palette[image])


def test_louder_is_lighter_and_low_bins_are_at_the_bottom() -> None:
    mel = np.full((4, 100), -1.0, np.float32)
    mel[0, 50] = 1.0
    mel[3, 10] = 0.0
    pixels, _ = picture(mel, 0.0, 1.0)
    light = pixels.astype(int).sum(axis=2)
    assert np.unravel_index(light.argmax(), light.shape) == (3 * BIN_HEIGHT, 50)
    assert light[0, 10] > light[0, 11] == light.min()


def test_speech_is_marked_where_it_is_on_the_recordings_time_line() -> None:
    _, marks = picture(np.zeros((80, 500), np.float32), 20.0, 25.0, (21.0, 22.0), (24.5, 25.0))
    green = np.flatnonzero((marks == GREEN).all(axis=1))
    assert green.tolist() == [*range(100, 201), *range(450, 500)]


@pytest.mark.parametrize("frames", [1, 2, 7, 40, 1499, 1501, 3000])
def test_a_picture_of_any_length_is_no_wider_than_a_screen(frames: int) -> None:
    pixels, _ = picture(np.zeros((80, frames), np.float32), 0.0, frames / 100, (0.0, 0.01))
    assert 0 < pixels.shape[1] <= MAX_WIDTH
    assert frames > MAX_WIDTH or pixels.shape[1] == frames


def test_a_mel_of_nothing_but_nan_is_dark() -> None:
    pixels, _ = picture(np.full((80, 30), np.nan, np.float32), 0.0, 0.3)
    assert len(np.unique(pixels.reshape(-1, 3), axis=0)) == 1


def test_facts_are_those_of_the_arrays() -> None:
    rng = np.random.default_rng(2)
    states = rng.standard_normal((7, 5)).astype(np.float32)
    facts = hidden_state_facts(states)
    assert facts["mean"] == pytest.approx(float(states.mean()), abs=1e-6)
    assert facts["std"] == pytest.approx(float(states.std()), rel=1e-5)
    norms = [float(sum(x * x for x in row) ** 0.5) for row in states.tolist()]
    assert position_norms(states).tolist() == pytest.approx(norms)
    assert (facts["norm_min"], facts["norm_max"]) == pytest.approx((min(norms), max(norms)))
    mel = np.full((10, 4), -1.0, np.float32)
    mel[:6, 0] = 0.5
    mel[2, 3] = np.nan
    facts = mel_facts(mel, -1.0)
    assert (facts["shape"], facts["nan"], facts["empty_bins"]) == ([10, 4], 1, 4)
    assert facts["floor_share"] == pytest.approx(34 / 40)
    assert (facts["min"], facts["max"]) == (-1.0, 0.5)


def test_arrays_without_a_number_have_facts_too() -> None:
    nothing = np.full((3, 4), np.nan, np.float32)
    assert hidden_state_facts(nothing)["mean"] is None
    assert mel_facts(nothing, 0.0)["empty_bins"] == 3


# --- suspicions ---


WORDS = "And so, my fellow people, ask not"


def mel(**changes: Any) -> dict[str, Any]:
    facts = mel_facts(np.random.default_rng(3).uniform(-1, 1, (80, 1000)).astype(np.float32), -1.0)
    return {**facts, "start": 0.0, "end": 10.0, "speech": [[0.0, 10.0]], **changes}


def hidden(**changes: Any) -> dict[str, Any]:
    return {**hidden_state_facts(np.random.default_rng(4).standard_normal((50, 8)).astype(np.float32)), **changes}


def healthy() -> Story:
    return told(saying(*text(WORDS)), speech=(Span(0.0, 10.0),))


def test_nothing_is_suspicious_about_a_healthy_window() -> None:
    assert suspicions(mel(), hidden(), healthy()) == []
    assert suspicions({}, {}, Story()) == []


def swapped_task() -> Story:
    story = healthy()
    story.prompt["tokens"][2] = [SPECIAL.sot_lm, "<|startoflm|>"]
    return story


def misnumbered_task() -> Story:
    """The vocabulary itself has the two names the wrong way round."""
    story = healthy()
    story.window["tasks"] |= {"transcribe": SPECIAL.sot_lm, "sot_lm": SPECIAL.transcribe}
    return story


def without_language() -> Story:
    story = healthy()
    del story.prompt["tokens"][1]
    return story


def of_many_languages() -> Story:
    story = healthy()
    story.heard["languages"] = {"de": 0.3, "en": 0.25}
    return story


STORIES: list[tuple[Story, str]] = [
    (told(saying(*text("And so")), speech=(Span(0.0, 10.0),)), "only 6 tokens of text for 10.0 s of speech"),
    (told(saying(*text(WORDS), SPECIAL.languages["de"]), speech=(Span(0.0, 10.0),)), "special tokens among the text"),
    (
        told(saying(*text(WORDS)), heard={SPECIAL.no_speech: 20.0}, speech=(Span(0.0, 9.0),)),
        "100% that nobody speaks, though 9.0 s of speech",
    ),
    (told(saying(*text(WORDS)), heard={SPECIAL.languages["de"]: 20.0}), "sounds like de (100%) and is decoded as en"),
    (of_many_languages(), "no language is sure, the best is de with 30%"),
    (told(doubtful), "no attempt is good enough"),
    (told(lambda _: text("a")[0], replace(PLAIN, temperatures=(0.0,))), "it repeats itself"),
    (told(lambda _: text("a")[0], replace(PLAIN, temperatures=(0.0,))), "cut off before its end token"),
    (
        told(
            lambda said: {SPECIAL.sot_lm: 9.0, text(WORDS)[len(said)]: 8.0} if len(said) < 20 else SPECIAL.eot,
            DecodingOptions(language="en", timestamps=False),
        ),
        "at 20 of 21 steps a rule forbade the most probable token (first <|startoflm|> at step 0, by SuppressTokens)",
    ),
    (
        told(
            saying(at(0.0), *text("a sentence"), at(2.0)),
            DecodingOptions(language="en"),
            speech=(Span(0.0, 2.0), Span(4.0, 10.0)),
        ),
        "it ends at 2.0 s of the window, and 6.0 s of speech come after it",
    ),
    (
        told(lambda _: {text("a")[0]: math.nan}, replace(PLAIN, temperatures=(0.0,))),
        "the logits are no numbers from step 0 of attempt 1 on",
    ),
    (swapped_task(), "<|startoflm|> stands where the task belongs"),
    (misnumbered_task(), "the numbers of the task tokens are not in a row"),
    (without_language(), "wanted language and task"),
]


@pytest.mark.parametrize(("story", "suspicion"), STORIES, ids=[suspicion for _, suspicion in STORIES])
def test_what_is_wrong_with_the_decoding_is_suspicious(story: Story, suspicion: str) -> None:
    assert any(suspicion in found for found in suspicions(mel(), hidden(), story))


ARRAYS: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    (mel(nan=3), hidden(), "mel: 3 values are no numbers"),
    (mel(floor_share=0.99), hidden(), "silence went in"),
    (mel(empty_bins=27), hidden(), "the upper 27 of 80 bins are empty"),
    (mel(), hidden(nan=1), "hidden states: 1 values are no numbers"),
    (mel(), hidden(norm_min=2.0, norm_max=2.0), "the same norm at every position"),
]


@pytest.mark.parametrize(("mel", "hidden", "suspicion"), ARRAYS, ids=[suspicion for *_, suspicion in ARRAYS])
def test_what_is_wrong_with_arrays_is_suspicious(mel: dict[str, Any], hidden: dict[str, Any], suspicion: str) -> None:
    found = suspicions(mel, hidden, healthy())
    assert len(found) == 1
    assert suspicion in found[0]


def test_the_page_tells_what_went_in_what_came_out_and_what_was_asked() -> None:
    story = told(saying(*text(WORDS)), replace(PLAIN, beam_size=2), speech=(Span(0.0, 10.0),))
    traces = [WindowTrace("window 0", mel(start=60.0, end=70.0), hidden(), story, ["decoder: worked 1 ms"])]
    page = summary("talk.wav", traces, ["12 s of audio"])
    for wanted in (
        "talk.wav\n  12 s of audio\n",
        "window 0, 60.00-70.00 s",
        "80 x 1000",
        "beam_size 2",
        "<|transcribe|>",
        f"60.00-70.00 {WORDS!r}",
        "decoder: worked 1 ms",
        "suspicious   nothing",
    ):
        assert wanted in page
    assert "no window reached the encoder" in summary("talk.wav", [])
