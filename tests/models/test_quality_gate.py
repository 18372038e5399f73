"""Bounds on what the real model makes of `samples/`, and the arithmetic of the benchmark that measures more."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from susurrus.models import Transcript, Whisper
from tests.bench.scoring import heard_part, prefix_distances, seconds_in_silence, start_errors, times_wrong
from tests.conftest import SAMPLES

NUMBERS = {"2": "two", "6": "six"}
REFERENCES = {
    row["path"]: row for row in map(json.loads, (SAMPLES / "manifest.jsonl").read_text(encoding="utf-8").splitlines())
}
Words = list[str]

MOST_ENGLISH_WER = 0.06
MOST_OTHER_ERRORS = {"mls_es.opus": 0.25, "common_voice_ja.mp3": 0.56}
"""Words in Spanish, characters in Japanese. Whisper base itself makes 0.18 and 0.44 or 0.52: two of the 27 characters
are a near-tie, which goes one way with timestamps and the other way without."""


@pytest.fixture(scope="module")
def transcripts(base: Path) -> Mapping[str, Transcript]:
    """What the program says to each sample, the language left to it."""
    whisper = Whisper.load(base)
    return {name: whisper.transcribe(SAMPLES / name) for name in REFERENCES}


def words(text: str) -> Words:
    """Lower case, without punctuation, numbers spelt out."""
    found = re.findall(r"[^\W_]+(?:'[^\W_]+)*", text.replace("\u2019", "'").casefold())
    return [NUMBERS.get(word, word) for word in found]


def distance(reference: Words, hypothesis: Words) -> int:
    return int(prefix_distances(reference, hypothesis)[-1])


def test_english_is_understood(transcripts: Mapping[str, Transcript]) -> None:
    english = [name for name, row in REFERENCES.items() if row["language"] == "en"]
    references = [words(REFERENCES[name]["text"]) for name in english]
    edits = sum(map(distance, references, [words(transcripts[name].text) for name in english]))
    assert edits <= MOST_ENGLISH_WER * sum(map(len, references))


@pytest.mark.parametrize("name", MOST_OTHER_ERRORS)
def test_other_languages_are_understood(transcripts: Mapping[str, Transcript], name: str) -> None:
    reference, heard = words(REFERENCES[name]["text"]), words(transcripts[name].text)
    if REFERENCES[name]["language"] == "ja":
        reference, heard = list("".join(reference)), list("".join(heard))
    assert distance(reference, heard) <= MOST_OTHER_ERRORS[name] * len(reference)


@pytest.mark.parametrize("name", REFERENCES)
def test_every_language_is_found(transcripts: Mapping[str, Transcript], name: str) -> None:
    assert transcripts[name].language == REFERENCES[name]["language"]


@pytest.mark.parametrize("name", REFERENCES)
def test_times_lie_in_the_recording_in_order(transcripts: Mapping[str, Transcript], name: str) -> None:
    transcript = transcripts[name]
    cues = [
        {"start": cue.start, "end": cue.end, "window": segment.window, "text": cue.text}
        for segment in transcript.segments
        for cue in segment.cues
    ]
    assert times_wrong(cues, transcript.duration) == 0
    assert transcript.duration == pytest.approx(REFERENCES[name]["duration_s"], abs=0.06)


@pytest.mark.parametrize("name", [name for name, row in REFERENCES.items() if row["duration_s"] > 1])
def test_the_text_covers_the_speech(transcripts: Mapping[str, Transcript], name: str) -> None:
    assert transcripts[name].coverage > 0.9


def naive_distance(reference: Words, hypothesis: Words) -> int:
    if not reference or not hypothesis:
        return len(reference) + len(hypothesis)
    last = naive_distance(reference[:-1], hypothesis[:-1]) + (reference[-1] != hypothesis[-1])
    return min(last, naive_distance(reference[:-1], hypothesis) + 1, naive_distance(reference, hypothesis[:-1]) + 1)


TEXTS = st.lists(st.sampled_from("abc"), max_size=5)


@given(TEXTS, TEXTS)
def test_edit_distances_are_those_of_the_definition(reference: Words, hypothesis: Words) -> None:
    expected = [naive_distance(reference[:n], hypothesis) for n in range(len(reference) + 1)]
    assert prefix_distances(reference, hypothesis).tolist() == expected


def test_the_end_of_a_text_that_a_recording_does_not_reach_is_not_expected() -> None:
    text = ["when", "forty", "winters", "shall", "besiege", "thy", "brow", "and", "dig", "deep", "trenches"]
    assert heard_part(text, ["when", "forty", "winter", "shall"]) == 4
    assert heard_part(text, ["when", "forty", "winters", "shall", "besiege", "thy", "brow", "and", "big"]) == 9
    assert heard_part(text, []) == 0


def cue(start: float, end: float) -> dict[str, float]:
    return {"start": start, "end": end}


def test_times_that_cannot_be_are_counted() -> None:
    assert times_wrong([cue(0, 2), cue(2, 5)], 5.0) == 0
    assert times_wrong([cue(0, 2), cue(1, 3), cue(3, 3), cue(4, 5.5)], 5.0) == 3


def test_cues_are_measured_against_the_speech() -> None:
    spoken = [(1.0, 3.0), (13.0, 15.0)]
    assert seconds_in_silence([cue(0.5, 3.5), cue(12.5, 15.0)], spoken) == 0.0
    assert seconds_in_silence([cue(1.0, 15.0)], spoken) == pytest.approx(9.0)  # all of the gap but half a second a side
    assert seconds_in_silence([cue(16.0, 17.0)], spoken) == pytest.approx(1.0)
    assert start_errors([cue(1.0, 3.0), cue(13.2, 15.0)], spoken) == [pytest.approx(0.2)]
