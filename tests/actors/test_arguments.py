"""The command line's words for decoding: openai-whisper's where it has them, in either spelling."""

from __future__ import annotations

import argparse
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from susurrus.actors.inputs import add_input_options, find_inputs, names_inputs
from susurrus.actors.options import add_decoding_options, decoding_options, fallback_note, ladder, normalised
from susurrus.actors.outputs import add_output_options, layout
from susurrus.models.errors import OptionError
from susurrus.models.options import LADDER, DecodingOptions


def parse(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(exit_on_error=False)
    for add in (add_input_options, add_decoding_options, add_output_options):
        add(parser)
    return parser.parse_intermixed_args(normalised(words))


def options(*words: str) -> DecodingOptions:
    arguments = parse(*words, "clip.wav")
    assert arguments.audio == ["clip.wav"]
    return decoding_options(arguments)


def test_without_options_everything_is_as_by_default() -> None:
    assert options() == DecodingOptions()


OPENAI: list[tuple[str, str, dict[str, Any]]] = [
    ("--task", "translate", {"task": "translate"}),
    ("--language", "German", {"language": "German"}),
    ("--language", "None", {"language": None}),
    ("--best_of", "3", {"best_of": 3}),
    ("--best_of", "None", {"best_of": 1}),
    ("--beam_size", "5", {"beam_size": 5}),
    ("--beam_size", "None", {"beam_size": 1}),
    ("--initial_prompt", "Ask not", {"prompt": "Ask not"}),
    ("--condition_on_previous_text", "True", {"condition_on_previous_text": True}),
    ("--condition_on_previous_text", "False", {"condition_on_previous_text": False}),
    ("--temperature", "0.5", {"temperatures": (0.5, 0.7, 0.9)}),
    ("--temperature_increment_on_fallback", "0.5", {"temperatures": (0.0, 0.5, 1.0)}),
    ("--temperature_increment_on_fallback", "None", {"temperatures": (0.0,)}),
    ("--compression_ratio_threshold", "2", {"compression_ratio_threshold": 2.0}),
    ("--logprob_threshold", "-0.5", {"logprob_threshold": -0.5}),
    ("--logprob_threshold", "None", {"logprob_threshold": None}),
    ("--no_speech_threshold", "0.9", {"no_speech_threshold": 0.9}),
    ("--word_timestamps", "True", {"word_timestamps": True}),
    ("--word_timestamps", "False", {"word_timestamps": False}),
]


@pytest.mark.parametrize(("name", "value", "meaning"), OPENAI)
def test_options_of_openai_whisper_mean_the_same_with_underscores_and_with_dashes(
    name: str, value: str, meaning: dict[str, Any]
) -> None:
    expected = DecodingOptions(**meaning)
    dashed = name.replace("_", "-")
    assert options(name, value) == options(f"{name}={value}") == options(dashed, value) == expected
    assert options(f"{dashed}={value}") == expected


@pytest.mark.parametrize(
    ("words", "meaning"),
    [
        (["--hotwords", "Susurrus"], {"hotwords": "Susurrus"}),
        (["--prompt", "Ask not"], {"prompt": "Ask not"}),
        (["--multilingual"], {"multilingual": True}),
        (["--without-timestamps"], {"timestamps": False}),
        (["--no-vad"], {"vad": False}),
        (["--no-repeat-ngram-size", "3"], {"no_repeat_ngram_size": 3}),
        (["--language", "auto"], {"language": None}),
    ],
)
def test_the_other_options_reach_the_decoder(words: list[str], meaning: dict[str, Any]) -> None:
    assert options(*words) == DecodingOptions(**meaning)


# --- flags ------------------------------------------------------------------------------------------------------


def test_a_flag_does_not_swallow_the_name_of_a_file() -> None:
    arguments = parse("--word_timestamps", "a.wav", "--multilingual", "b.wav", "--no-vad")
    assert arguments.audio == ["a.wav", "b.wav"]
    assert (arguments.word_timestamps, arguments.multilingual, arguments.no_vad) == (True, True, True)


def test_a_flag_takes_true_and_false_alone() -> None:
    arguments = parse("--word-timestamps", "false", "a.wav", "--multilingual", "TRUE")
    assert (arguments.word_timestamps, arguments.multilingual, arguments.audio) == (False, True, ["a.wav"])
    with pytest.raises(argparse.ArgumentError, match="neither True nor False"):
        parse("--word-timestamps=maybe", "a.wav")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--a_b_c", "d_e", "f_g.wav"], ["--a-b-c", "d_e", "f_g.wav"]),
        (["--a_b=c_d"], ["--a-b=c_d"]),
        (["-o", "my_folder"], ["-o", "my_folder"]),
        (["--no_vad", "--", "--a_b", "--no_vad"], ["--no-vad=True", "--", "--a_b", "--no_vad"]),
        (["--no_vad", "False"], ["--no-vad=False"]),
        (["--no_vad"], ["--no-vad=True"]),
        (["--"], ["--"]),
        ([], []),
    ],
)
def test_only_names_of_options_are_respelled(words: list[str], expected: list[str]) -> None:
    assert normalised(words) == expected


def test_names_of_files_stand_anywhere_between_options() -> None:
    arguments = parse("a.wav", "--language", "en", "b.wav", "--wav", "c.wav", "-f", "srt", "d.wav", "--recursive")
    assert arguments.audio == ["a.wav", "b.wav", "d.wav"]
    assert (arguments.wav, arguments.language, arguments.format) == (["c.wav"], "en", "srt")


# --- recordings -------------------------------------------------------------------------------------------------


def test_recordings_are_those_of_wav_then_the_others_then_the_listed(tmp_path: Path) -> None:
    (tmp_path / "list").write_text("d.wav\na.wav\n")
    arguments = parse("b.wav", "--files-from", str(tmp_path / "list"), "c.wav", "--wav", "a.wav")
    assert names_inputs(arguments)
    assert [source.path for source in find_inputs(arguments).found] == ["a.wav", "b.wav", "c.wav", "d.wav"]
    assert not names_inputs(parse())


def test_an_empty_list_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "list").touch()
    with pytest.raises(OptionError, match="list: the list is empty"):
        find_inputs(parse("--files-from", str(tmp_path / "list")))


def test_a_name_that_cannot_travel_is_a_complaint_and_the_rest_goes_on() -> None:
    name = os.fsdecode(b"\xff.wav")
    inputs = find_inputs(parse(name, "good.wav"))
    assert [source.path for source in inputs.found] == ["good.wav"]
    assert inputs.complaints == [f"{name}: its name is no UTF-8 here; rename it"]


# --- words for subtitles ----------------------------------------------------------------------------------------


def test_subtitles_by_words_have_the_times_of_words_found() -> None:
    arguments = parse("--max_line_width", "42", "--max_line_count=2", "a.wav")
    assert decoding_options(arguments, needs_words=layout(arguments).needs_words).word_timestamps
    arguments = parse("a.wav")
    assert not decoding_options(arguments, needs_words=layout(arguments).needs_words).word_timestamps


def test_who_forbids_the_times_of_words_cannot_have_subtitles_by_words() -> None:
    arguments = parse("--highlight_words", "True", "--word_timestamps", "False", "a.wav")
    with pytest.raises(OptionError, match="--word-timestamps False"):
        decoding_options(arguments, needs_words=layout(arguments).needs_words)


# --- the ladder -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", [0.0, 0.2, 0.3, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("step", [0.05, 0.1, 0.2, 0.25, 0.3, 0.5, 0.7, 1.0, 3.0])
def test_the_ladder_is_openai_whisper_s(first: float, step: float) -> None:
    reference = tuple(np.arange(first, 1.0 + 1e-6, step))  # whisper/transcribe.py, cli
    assert ladder(first, step) == pytest.approx(reference, abs=1e-6)


def test_the_default_ladder_is_the_default_and_has_no_note() -> None:
    assert ladder(0.0, 0.2) == LADDER
    assert fallback_note(options()) == ""


def test_a_given_temperature_of_0_keeps_the_ladder() -> None:
    assert options("--temperature", "0") == DecodingOptions()


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--temperature_increment_on_fallback", "None"], "there is only temperature 0:"),
        (["--temperature_increment_on_fallback", "0"], "there is only temperature 0:"),
        (["--temperature", "1"], "there is only temperature 1:"),
        (["--temperature", "1.5"], "there is only temperature 1.5:"),
        (["--logprob_threshold", "None", "--compression-ratio-threshold", "None"], "no threshold"),
    ],
)
def test_a_setting_that_turns_the_ladder_off_says_so(words: list[str], reason: str) -> None:
    note = fallback_note(options(*words))
    assert note.startswith(reason)
    assert "\n" not in note


@pytest.mark.parametrize("step", [-0.2, 0.001, 0.049, math.nan])
def test_a_step_that_leads_nowhere_is_refused(step: float) -> None:
    with pytest.raises(OptionError, match="--temperature-increment-on-fallback"):
        ladder(0.0, step)
