"""Result files: equal to openai-whisper's where it has the format, valid whatever was said, and nothing lost."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from susurrus.models.errors import OptionError
from susurrus.models.results import Cue, DecodedWindow, Segment, Span, Transcript, Word
from susurrus.models.writers import FORMATS, Document, DocumentSegment, Layout, parse_formats, render

ROOT = Path(__file__).parents[2]
GOLDEN = json.loads((ROOT / "tests/golden/subtitles.json").read_text(encoding="utf-8"))
SCHEMA = json.loads((ROOT / "docs/transcript.schema.json").read_text(encoding="utf-8"))


def document(*cues: Cue, duration: float = 100_000.0, text: str | None = None) -> Document:
    """A recording in which this is said."""
    return Document(
        name="clip.wav",
        text="".join(cue.text for cue in cues).strip() if text is None else text,
        segments=tuple(DocumentSegment(cue, 0.0, "en", 0.0, -0.25, 1.5, 0.125) for cue in cues),
        language="en" if cues else "",
        language_probability=0.75,
        language_probabilities={"en": 0.75, "de": 0.125} if cues else {},
        duration=duration,
        speech_s=1.5,
        coverage=1.0,
        complete=True,
        warnings=(),
    )


def cue(text: str, start: float = 0.0, end: float = 1.0, *words: str) -> Cue:
    """A cue whose words take equally long."""
    step = (end - start) / max(1, len(words))
    timed = [Word(start + i * step, start + (i + 1) * step, word, 0.5) for i, word in enumerate(words)]
    return Cue(start, end, text, (1, 2), tuple(timed))


def spoken(*words: str, start: float = 0.0) -> Cue:
    """A cue of these words, one a second."""
    return cue("".join(words), start, start + len(words), *words)


def like_openai(result: dict[str, Any]) -> Document:
    """The document of one of openai-whisper's results."""
    cues = []
    for segment in result["segments"]:
        words = [Word(w["start"], w["end"], w["word"], w["probability"]) for w in segment.get("words", [])]
        cues.append(Cue(segment["start"], segment["end"], segment["text"], (), tuple(words)))
    return document(*cues)


# --- two small parsers, by the formats' descriptions ------------------------------------------------------------


def parse_blocks(content: str, time: str) -> Iterator[tuple[int, int, list[str], list[str]]]:
    """Start, end, lines before the times and lines of text of every cue; strict."""
    if content:
        assert content.endswith("\n\n")
    for block in content.removesuffix("\n\n").split("\n\n") if content else []:
        lines = block.split("\n")
        assert all(line.strip() for line in lines), lines
        (at,) = (i for i, line in enumerate(lines) if "-->" in line)
        match = re.fullmatch(rf"{time} --> {time}", lines[at])
        assert match, lines[at]
        h1, m1, s1, ms1, h2, m2, s2, ms2 = (int(part or 0) for part in match.groups())
        start, end = ((h * 60 + m) * 60_000 + s * 1000 + ms for h, m, s, ms in ((h1, m1, s1, ms1), (h2, m2, s2, ms2)))
        yield start, end, lines[:at], lines[at + 1 :]


def parse_srt(content: str) -> list[tuple[int, int, list[str]]]:
    cues = []
    for number, (start, end, before, text) in enumerate(parse_blocks(content, r"(\d\d+):(\d\d):(\d\d),(\d{3})"), 1):
        assert before == [str(number)]
        cues.append((start, end, text))
    return cues


def parse_vtt(content: str) -> list[tuple[int, int, list[str]]]:
    head, _, rest = content.partition("\n\n")
    assert head == "WEBVTT"
    cues = []
    for start, end, before, lines in parse_blocks(rest, r"(?:(\d\d+):)?(\d\d):(\d\d)\.(\d{3})"):
        assert before == []
        assert not [line for line in lines if "<" in line.replace("<u>", "").replace("</u>", "")]
        unescaped = [re.sub("</?u>", "", line) for line in lines]
        for entity, character in (("&lt;", "<"), ("&gt;", ">"), ("&amp;", "&")):
            unescaped = [line.replace(entity, character) for line in unescaped]
        cues.append((start, end, unescaped))
    return cues


# --- equal to openai-whisper ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "kind", "options", "content"),
    GOLDEN["files"],
    ids=[f"{name} {kind} {options}" for name, kind, options, _ in GOLDEN["files"]],
)
def test_a_file_is_the_one_openai_whisper_writes(name: str, kind: str, options: dict[str, Any], content: str) -> None:
    assert render(like_openai(GOLDEN["results"][name]), kind, Layout(**options)) == content


# --- nothing lost, nothing damaged ------------------------------------------------------------------------------

WORDS = st.lists(
    st.one_of(
        st.sampled_from(
            ["ก", "ำ", "\u0301", "क", "\u094d", "ष", "\u200d", "👩", "🏽", "🇩", "🇪", " e", " ", "\n", "雪"]
        ),
        st.sampled_from([" a", " word", " extraordinarily", "-", "--", ">", "-->", " &", " <i>", "\r\n\r\n", "\u2028"]),
    ),
    min_size=1,
    max_size=12,
)
LAYOUTS = st.builds(
    Layout,
    max_line_width=st.none() | st.integers(1, 12),
    max_line_count=st.none() | st.integers(1, 3),
    max_words_per_line=st.none() | st.integers(1, 4),
)


def letters(text: str) -> str:
    return "".join(text.split())


@given(st.lists(WORDS, max_size=4), LAYOUTS)
def test_subtitles_hold_every_letter_once_and_in_order(cues: list[list[str]], layout: Layout) -> None:
    said = document(*(spoken(*words, start=20.0 * i) for i, words in enumerate(cues)))
    expected = letters("".join("".join(words) for words in cues))
    shown = [line for _, _, lines in parse_vtt(render(said, "vtt", layout)) for line in lines]
    assert letters("".join(shown)) == expected
    shown = [line for _, _, lines in parse_srt(render(said, "srt", layout)) for line in lines]
    assert re.sub("-*>", ">", letters("".join(shown))) == re.sub("-*>", ">", expected)


@given(WORDS, LAYOUTS)
def test_a_line_break_never_comes_within_a_character(words: list[str], layout: Layout) -> None:
    said = spoken(*(letters(word) for word in words))
    lines = [line for _, _, lines in parse_vtt(render(document(said), "vtt", layout)) for line in lines]
    # A cut within a character makes two of it.
    assert sum(len(regex.findall(r"\X", line)) for line in lines) == len(regex.findall(r"\X", said.text))


def test_a_mark_stays_with_its_letter_though_it_came_as_a_word_of_its_own() -> None:
    thai = spoken("ก", "\u0e33", "ล", "\u0e31", "ง", "ด", "\u0e35")  # what splitting at code points gives
    lines = [
        line for _, _, lines in parse_srt(render(document(thai), "srt", Layout(max_line_width=1))) for line in lines
    ]
    assert lines == regex.findall(r"\X", thai.text)
    assert len(lines) < len(thai.words)


def test_a_line_is_as_long_as_people_count_it() -> None:
    family = " \U0001f469\u200d\U0001f469\u200d\U0001f467"  # one character of five code points
    said = document(spoken(" abc", family, " e\u0301e\u0301", " abc"))
    ((_, _, lines),) = parse_srt(render(said, "srt", Layout(max_line_width=8)))
    assert lines == ["abc" + family + " e\u0301e\u0301", "abc"]


@pytest.mark.parametrize("kind", ["srt", "vtt"])
@pytest.mark.parametrize("text", [" a --> b", " a ----> b", " a -> b --->"])
@pytest.mark.parametrize("with_words", [True, False])
def test_an_arrow_in_the_text_ends_no_cue(kind: str, text: str, *, with_words: bool) -> None:
    said = document(
        cue(text, 0.0, 2.0, *(re.findall(r"\s*[^\s>]*>?", text)[:-1] if with_words else [])), cue(" c", 2, 3)
    )
    cues = (parse_srt if kind == "srt" else parse_vtt)(render(said, kind))
    assert len(cues) == 2
    if kind == "vtt":
        assert cues[0][2] == [text.strip()]


@pytest.mark.parametrize("kind", ["srt", "vtt", "txt", "lrc", "tsv"])
@pytest.mark.parametrize("line_break", ["\n", "\n\n", "\r\n\r\n", "\u2028\u2029", "\x0b", "\x85", "\t\n"])
def test_line_breaks_in_a_cue_are_spaces(kind: str, line_break: str) -> None:
    said = document(cue(f" one{line_break}two{line_break}"))
    content = render(said, kind)
    assert re.search(r"one\s+two\n", content)
    assert len(content.splitlines()) == {"srt": 4, "vtt": 5, "txt": 1, "lrc": 1, "tsv": 2}[kind]


def test_webvtt_escapes_what_would_be_markup() -> None:
    said = document(cue(" R&D <i>now</i>"))
    assert "\nR&amp;D &lt;i&gt;now&lt;/i&gt;\n" in render(said, "vtt")
    highlighted = render(document(spoken(" R&D", " <i>")), "vtt", Layout(highlight_words=True))
    assert "\n<u>R&amp;D</u> &lt;i&gt;\n" in highlighted


@pytest.mark.parametrize(
    "layout", [Layout(), Layout(max_line_width=10, max_line_count=1), Layout(max_words_per_line=1)]
)
def test_a_cue_without_word_times_keeps_its_text_among_cues_that_have_them(layout: Layout) -> None:
    said = document(spoken(" one", " two"), cue(" three four", 2.0, 3.0), spoken(" five", start=3.0))
    text = " ".join(line for _, _, lines in parse_srt(render(said, "srt", layout)) for line in lines)
    assert text == "one two three four five"


@pytest.mark.parametrize("kind", ["srt", "vtt", "txt", "tsv", "lrc"])
def test_a_blank_cue_is_left_out(kind: str) -> None:
    assert render(document(cue(" \n"), cue(" a", 1, 2)), kind) == render(document(cue(" a", 1, 2)), kind)


EMPTY = {"txt": "", "srt": "", "vtt": "WEBVTT\n\n", "tsv": "start\tend\ttext\n", "jsonl": "", "lrc": ""}


@pytest.mark.parametrize("kind", FORMATS)
def test_a_recording_without_speech_is_a_valid_file(kind: str) -> None:
    content = render(document(), kind, Layout(max_line_width=10, highlight_words=True))
    if kind == "json":
        value = json.loads(content)
        assert (value["text"], value["segments"], value["language"]) == ("", [], None)
    else:
        assert content == EMPTY[kind]


@pytest.mark.parametrize("kind", FORMATS)
def test_every_file_is_utf_8_with_plain_line_ends_whatever_the_script(kind: str) -> None:
    said = document(cue(" Grüße 雪 👩‍👩‍👧 e\u0301"), cue(" ကမ္ဘာ ไทย", 1, 2))
    content = render(said, kind)
    assert content.encode("utf-8").decode("utf-8") == content
    assert "雪" in content
    assert "\r" not in content
    assert not content.startswith("\ufeff")
    assert content.endswith("\n")


# --- times ------------------------------------------------------------------------------------------------------

SECONDS = st.floats(0, 50, allow_nan=False)


@given(st.lists(st.tuples(SECONDS, SECONDS), max_size=5), st.floats(0.02, 50))
def test_a_cue_ends_after_it_starts_and_not_after_the_recording(
    times: list[tuple[float, float]], duration: float
) -> None:
    said = document(*(cue(" a", min(pair), max(pair)) for pair in times), duration=duration)
    limit = round(1000 * duration)
    spans = [(start, end) for start, end, _ in parse_srt(render(said, "srt")) + parse_vtt(render(said, "vtt"))]
    spans += [(int(row[0]), int(row[1])) for row in (line.split("\t") for line in render(said, "tsv").splitlines()[1:])]
    assert len(spans) == 3 * len(times)
    assert all(0 <= start < end <= limit for start, end in spans)


def test_lyrics_have_minutes_and_hundredths_and_minutes_beyond_an_hour() -> None:
    said = document(cue(" a", 0.0, 1), cue(" b", 61.005, 62), cue(" c", 59.999, 61), cue(" d", 4503.2, 4504))
    assert render(said, "lrc") == "[00:00.00]a\n[01:01.00]b\n[01:00.00]c\n[75:03.20]d\n"


# --- layout -----------------------------------------------------------------------------------------------------


@given(
    st.lists(st.sampled_from([" a", " word", " extraordinarily", "雪"]), min_size=1, max_size=30), st.integers(1, 20)
)
def test_a_line_is_too_long_only_when_it_is_one_word(words: list[str], width: int) -> None:
    content = render(document(spoken(*words)), "srt", Layout(max_line_width=width, max_line_count=2))
    for _, _, lines in parse_srt(content):
        assert len(lines) <= 2
        for line in lines:
            assert len(line) <= width or line in {word.strip() for word in words}


def test_words_without_spaces_between_them_get_none() -> None:
    japanese = spoken(*"気象庁は雪や路面の凍結")
    lines = [
        line for _, _, lines in parse_srt(render(document(japanese), "srt", Layout(max_line_width=4))) for line in lines
    ]
    assert lines == ["気象庁は", "雪や路面", "の凍結"]


def test_every_word_is_underlined_in_its_own_time() -> None:
    content = render(document(spoken(" one", " two", " three")), "srt", Layout(highlight_words=True))
    assert [(start, lines) for start, _, lines in parse_srt(content)] == [
        (0, ["<u>one</u> two three"]),
        (1000, ["one <u>two</u> three"]),
        (2000, ["one two <u>three</u>"]),
    ]


@pytest.mark.parametrize("name", ["max_line_width", "max_line_count", "max_words_per_line"])
@pytest.mark.parametrize("value", [0, -3])
def test_a_limit_below_one_is_refused_by_name(name: str, value: int) -> None:
    limits: dict[str, Any] = {name: value}
    with pytest.raises(OptionError, match="--" + name.replace("_", "-")):
        Layout(**limits)


def test_a_limit_without_effect_says_so() -> None:
    assert "--max-line-count has no effect" in Layout(max_line_count=2).note
    assert "--max-words-per-line has no effect" in Layout(40, 2, 3).note
    assert [layout.note for layout in (Layout(), Layout(40), Layout(40, 2), Layout(40, None, 3))] == [""] * 4


def test_every_setting_of_the_layout_needs_word_times() -> None:
    assert not Layout().needs_words
    assert Layout(max_line_width=20).needs_words
    assert Layout(highlight_words=True).needs_words


def test_formats_are_listed_with_commas_and_all_means_each() -> None:
    assert parse_formats("srt, TXT,srt") == ("srt", "txt")
    assert parse_formats("srt,all") == FORMATS
    for wrong in ("docx", "srt;vtt", "", ","):
        with pytest.raises(OptionError, match="--format"):
            parse_formats(wrong)


# --- JSON -------------------------------------------------------------------------------------------------------


def broken_rules(value: Any, schema: dict[str, Any], path: str = "$") -> Iterator[str]:
    """What the value breaks, by the keywords of JSON Schema that ours uses."""
    if "$ref" in schema:
        schema = SCHEMA["$defs"][schema["$ref"].removeprefix("#/$defs/")]
    known = {
        "title",
        "type",
        "required",
        "additionalProperties",
        "properties",
        "description",
        "items",
        "minimum",
        "maximum",
    }
    assert set(schema) <= known | {"$schema", "$defs"}, f"{path}: the test does not know {set(schema) - known}"
    kinds = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None), "integer": int}
    names = [schema["type"]] if isinstance(schema["type"], str) else schema["type"]
    types = tuple(kind for name in names for kind in ((int, float) if name == "number" else (kinds[name],)))
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
        yield f"{path}: {value!r} is no {names}"
    elif isinstance(value, dict):
        of, others = schema.get("properties", {}), schema["additionalProperties"]
        yield from (f"{path}: no {name}" for name in schema.get("required", []) if name not in value)
        for name in value:
            if name in of or others:
                yield from broken_rules(value[name], of.get(name, others), f"{path}.{name}")
            else:
                yield f"{path}: {name} is unknown"
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from broken_rules(item, schema["items"], f"{path}[{index}]")
    elif isinstance(value, int | float) and not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        yield f"{path}: {value} is out of range"


TALK = document(spoken(" And", " so"), cue(" my fellow", 2.0, 3.0))


@pytest.mark.parametrize("said", [TALK, document(), document(cue(" no words"))], ids=["words", "empty", "plain"])
def test_the_json_is_as_its_schema_says(said: Document) -> None:
    assert list(broken_rules(json.loads(render(said, "json")), SCHEMA)) == []
    for line in render(said, "jsonl").splitlines():
        assert list(broken_rules(json.loads(line), SCHEMA["$defs"]["segment"])) == []


def test_the_schema_refuses_what_is_wrong() -> None:
    value = json.loads(render(TALK, "json"))
    wrong: dict[str, Any]
    for wrong in ({"duration": "3"}, {"coverage": 1.5}, {"surprise": 1}, {"segments": [{}]}, {"complete": None}):
        assert list(broken_rules(value | wrong, SCHEMA))


def test_the_json_has_what_readers_of_openai_whisper_s_and_faster_whisper_s_expect() -> None:
    value = json.loads(render(replace(TALK, segments=(replace(TALK.segments[0], window_start=28.56),)), "json"))
    assert {"text", "segments", "language"} <= value.keys()
    assert {"language_probability", "duration"} <= value.keys()
    assert value["segments"] == [
        {
            "id": 0,
            "seek": 2856,
            "start": 0.0,
            "end": 2.0,
            "text": " And so",
            "tokens": [1, 2],
            "temperature": 0.0,
            "avg_logprob": -0.25,
            "compression_ratio": 1.5,
            "no_speech_prob": 0.125,
            "language": "en",
            "words": [
                {"word": " And", "start": 0.0, "end": 1.0, "probability": 0.5},
                {"word": " so", "start": 1.0, "end": 2.0, "probability": 0.5},
            ],
        }
    ]


def test_jsonl_is_the_segments_of_the_json_one_a_line() -> None:
    lines = render(TALK, "jsonl").splitlines()
    assert [json.loads(line) for line in lines] == json.loads(render(TALK, "json"))["segments"]


def test_numbers_that_are_none_become_null_and_the_json_stays_strict() -> None:
    def refuse(name: str) -> None:
        pytest.fail(f"{name} is no JSON")

    odd = replace(TALK.segments[0], avg_logprob=float("nan"), compression_ratio=float("inf"))
    value = json.loads(render(replace(TALK, segments=(odd,)), "json"), parse_constant=refuse)
    assert (value["segments"][0]["avg_logprob"], value["segments"][0]["compression_ratio"]) == (None, None)


# --- from a transcript --------------------------------------------------------------------------------------------


def test_a_transcript_becomes_a_document_with_the_values_of_each_window() -> None:
    windows = []
    for index in range(2):
        cues = (cue(f" a{index}", 30.0 * index, 30.0 * index + 1), cue(" b", 30.0 * index + 1, 30.0 * index + 2))
        decoded = DecodedWindow(
            " a b", (7,), cues, "de", 0.5, {"de": 0.5}, 0.2 * index, -0.5, 1.25, 0.125, truncated=False
        )
        windows.append(Segment(index, 30.0 * index, 30.0 * index + 30, (Span(0, 2),), decoded))
    transcript = Transcript(
        text="a0 b a1 b",
        segments=tuple(windows),
        language="de",
        language_probability=0.5,
        language_probabilities={"de": 0.5, "nl": 0.25},
        duration=60.0,
        speech_s=4.0,
        coverage=0.875,
        warnings=("prompt cut",),
        timings={},
    )
    made = Document.from_transcript("talk.ogg", transcript)
    assert (made.name, made.text, made.language, made.duration) == ("talk.ogg", "a0 b a1 b", "de", 60.0)
    assert made.language_probabilities == {"de": 0.5, "nl": 0.25}
    assert (made.speech_s, made.coverage, made.warnings) == (4.0, 0.875, ("prompt cut",))
    assert [segment.text for segment in made.segments] == ["a0", "b", "a1", "b"]
    assert [segment.window_start for segment in made.segments] == [0.0, 0.0, 30.0, 30.0]
    assert [segment.temperature for segment in made.segments] == [0.0, 0.0, 0.2, 0.2]
    assert all(a.cue.end <= b.cue.start for a, b in pairwise(made.segments))
