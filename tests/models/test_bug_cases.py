"""What goes wrong for users of Whisper programs, on recordings that are made: with the real model."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from susurrus.models import Transcript, Whisper
from susurrus.models.results import Cue
from tests.bench.recipes import at_level, clicks, dither, joined, noise, ringing, sample, tone, zeros

RATE = 16000
YOUNG_MAN = "young man"
WIZARD = "complaint against the wizard"
START_ERROR_S = 0.3

SILENCE = {
    **{f"zeros {seconds:g} s": zeros(seconds) for seconds in (1.2, 5, 30, 65)},
    **{f"dither {seconds:g} s": dither(seconds) for seconds in (1.2, 5, 30, 65)},
    **{f"pink noise {level} dB": noise(10, level) for level in (-20, -30, -50, -60)},
    "white noise": noise(10, -30, slope=0.0),
    "mains hum": tone(10, 50),
    "tone": tone(10, 440),
    "clicks": clicks(10),
    "ringing telephone": ringing(20),
}


@pytest.fixture(scope="module")
def whisper(base: Path) -> Whisper:
    return Whisper.load(base)


def cues_of(transcript: Transcript) -> list[Cue]:
    return [cue for segment in transcript.segments for cue in segment.cues]


@pytest.mark.parametrize("name", SILENCE)
def test_where_nobody_speaks_there_is_no_text_and_no_language(whisper: Whisper, name: str) -> None:
    transcript = whisper.transcribe(SILENCE[name])
    assert (transcript.text, transcript.language, transcript.language_probabilities) == ("", "", {})
    assert cues_of(transcript) == []
    assert (transcript.speech_s, transcript.coverage) == (0.0, 1.0)
    assert transcript.duration == pytest.approx(len(SILENCE[name]) / RATE)
    assert transcript.segments[-1].end == pytest.approx(transcript.duration)


def test_what_is_said_three_times_is_written_three_times(whisper: Whisper) -> None:
    case = joined("three", "austen.wav", zeros(0.6), "austen.wav", zeros(0.6), "austen.wav")
    assert whisper.transcribe(case.samples, language="en").text.count(YOUNG_MAN) == 3


def test_noise_between_two_speeches_does_not_start_a_loop(whisper: Whisper) -> None:
    case = joined("noise", "austen.wav", noise(30, -45), "librispeech_en.flac")
    text = whisper.transcribe(case.samples, language="en").text
    assert (text.count(YOUNG_MAN), text.count(WIZARD)) == (1, 1)
    assert len(re.findall(r"\w+", text)) < 30  # 8 and 17 are spoken


def test_quiet_speech_is_heard_at_temperature_0(whisper: Whisper) -> None:
    transcript = whisper.transcribe(at_level(sample("librispeech_en.flac"), -40), language="en")
    assert WIZARD in transcript.text
    assert transcript.segments[0].decoded.temperature == 0.0


def test_a_recording_a_little_longer_than_a_window_keeps_its_last_phrase(whisper: Whisper) -> None:
    reading = sample("sonnet_2.mp3")[: round(30.01 * RATE)]
    text = whisper.transcribe(reading, language="en").text.casefold()
    assert "dig deep trenches" in text
    assert "thriftless praise" in text


@pytest.mark.parametrize("seconds", [0.8, 1.01])
def test_a_word_shorter_than_a_second_is_heard(whisper: Whisper, seconds: float) -> None:
    word = sample("six.wav")
    padded = np.pad(word, (0, round(seconds * RATE) - len(word)))
    assert re.findall(r"\w+", whisper.transcribe(padded, language="en").text.casefold()) in (["six"], ["6"])


@pytest.mark.parametrize("before", [zeros(37), ringing(15)], ids=["silence", "ringing"])
def test_the_language_is_that_of_the_first_speech(
    whisper: Whisper, before: np.ndarray[tuple[int], np.dtype[np.float32]]
) -> None:
    case = joined("japanese", before, "common_voice_ja.mp3")
    transcript = whisper.transcribe(case.samples)
    assert transcript.language == "ja"
    assert transcript.language_probability > 0.5
    assert transcript.segments[0].text == ""


def test_a_wrong_language_is_doubted_aloud(whisper: Whisper) -> None:
    transcript = whisper.transcribe(sample("common_voice_ja.mp3"), language="en", temperatures=(0.0,))
    assert transcript.language == "en"
    assert any("Japanese" in warning for warning in transcript.warnings)


@pytest.mark.parametrize("seconds", [2.0, 3.7])
def test_times_end_with_a_recording_that_stops_within_a_word(whisper: Whisper, seconds: float) -> None:
    cues = cues_of(whisper.transcribe(sample("librispeech_en.flac")[: round(seconds * RATE)], language="en"))
    assert cues
    assert all(cue.start < cue.end <= seconds for cue in cues)


@pytest.mark.parametrize("gaps", [(30.0,), (5.0, 5.0)], ids=["one of 30 s", "two of 5 s"])
def test_speech_after_a_silence_is_where_it_was_spoken(whisper: Whisper, gaps: tuple[float, ...]) -> None:
    parts = [part for gap in gaps for part in (zeros(gap), "librispeech_en.flac")]
    case = joined("gaps", "austen.wav", *parts)
    transcript = whisper.transcribe(case.samples, language="en")
    cues = cues_of(transcript)
    assert (transcript.text.count(YOUNG_MAN), transcript.text.count(WIZARD)) == (1, len(gaps))
    for first, last in case.spoken:
        assert min(abs(cue.start - first) for cue in cues) <= START_ERROR_S
        assert not any(cue.start < last and cue.end > last + 3.0 for cue in cues)
