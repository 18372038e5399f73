"""The options of decoding on the command line, and as a job carries them.

Names are openai-whisper's where the thing is the same; `--initial_prompt` and `--word_timestamps True` do as well.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import TypeVar

from susurrus.models.errors import OptionError
from susurrus.models.options import DecodingOptions
from susurrus.protocol import TranscribeOptions

FALLBACK_STEP = 0.2
"""From one temperature of the ladder to the next (openai-whisper: temperature_increment_on_fallback)."""

LAST_TEMPERATURE = 1.0
MOST_TEMPERATURES = 21

T = TypeVar("T")

_SAME = tuple(field.name for field in fields(DecodingOptions))


def to_message(options: DecodingOptions) -> TranscribeOptions:
    """The options as they travel with a job."""
    return TranscribeOptions(**{name: getattr(options, name) for name in _SAME})


def from_message(message: TranscribeOptions) -> DecodingOptions:
    """The options of a job as the decoder takes them."""
    return DecodingOptions(**{name: getattr(message, name) for name in _SAME})


# --- the command line ---------------------------------------------------------------------------------------


def add_decoding_options(parser: argparse.ArgumentParser) -> None:
    """Add what a user may ask of decoding."""
    add = parser.add_argument_group("what is said").add_argument
    help_text = "spoken, as name or code; found by listening when not given"
    add("--language", type=_or_none(str, "auto"), metavar="L", help=help_text)
    add("--task", default="transcribe", help="transcribe, or translate into English (default: %(default)s)")
    help_text = "words and style to expect, as if said just before"
    add("--prompt", "--initial-prompt", default="", metavar="TEXT", help=help_text)
    add("--hotwords", default="", metavar="TEXT", help="names and terms to expect")
    add_flag(add, "--multilingual", "find the language of every window anew")
    add_flag(add, "--word-timestamps", "find the time of every word", default=None)
    add_flag(add, "--without-timestamps", "no times within a window of up to 30 s")
    add_flag(add, "--no-vad", "decode every window, also one in which nobody seems to speak")
    add_flag(add, "--full-context", "compute all 30 s of every window, not a sample of the silence behind the audio")
    _add_search_options(parser)


def _add_search_options(parser: argparse.ArgumentParser) -> None:
    """Add how the text is looked for; defaults are those of `DecodingOptions`."""
    group = parser.add_argument_group("how it is decoded")
    usual = DecodingOptions()

    def add(name: str, kind: Callable[[str], object], default: object, metavar: str, text: str) -> None:
        help_text = f"{text} (default: %(default)s)"
        group.add_argument(name, type=kind, default=default, metavar=metavar, help=help_text)

    add("--beam-size", _or_none(int), usual.beam_size, "N", "beams at temperature 0")
    add("--best-of", _or_none(int), usual.best_of, "N", "samples at a temperature above 0")
    add("--temperature", float, usual.temperatures[0], "T", "the first one tried")
    text = "tried next, up to 1, while the text is not good enough; None: never"
    add("--temperature-increment-on-fallback", _or_none(float), FALLBACK_STEP, "T", text)
    text = "text that compresses better repeats itself: not good enough; None: never"
    add("--compression-ratio-threshold", _or_none(float), usual.compression_ratio_threshold, "X", text)
    text = "text with a lower mean log-probability is not good enough; None: never"
    add("--logprob-threshold", _or_none(float), usual.logprob_threshold, "X", text)
    text = "such text in a window that is at least so probably without speech is dropped; None: never"
    add("--no-speech-threshold", _or_none(float), usual.no_speech_threshold, "P", text)
    add_flag(group.add_argument, "--condition-on-previous-text", "give the decoder the end of the text before")
    add(
        "--no-repeat-ngram-size",
        int,
        usual.no_repeat_ngram_size,
        "N",
        "no N tokens come twice in a window; 0: they may",
    )


def decoding_options(arguments: argparse.Namespace, *, needs_words: bool = False) -> DecodingOptions:
    """What the options of `add_decoding_options` mean.

    Args:
        arguments: of the command line.
        needs_words: another option is about words, so their times are found without being asked for.

    Raises:
        OptionError: the temperatures make no ladder, or the user wants words without their times.
    """
    if needs_words and arguments.word_timestamps is False:
        raise OptionError("--word-timestamps False: --max-line-width and the like need the times of words")
    return DecodingOptions(
        language=arguments.language,
        task=arguments.task,
        prompt=arguments.prompt,
        hotwords=arguments.hotwords,
        multilingual=arguments.multilingual,
        timestamps=not arguments.without_timestamps,
        word_timestamps=bool(arguments.word_timestamps) or needs_words,
        condition_on_previous_text=arguments.condition_on_previous_text,
        beam_size=1 if arguments.beam_size is None else arguments.beam_size,
        best_of=1 if arguments.best_of is None else arguments.best_of,
        temperatures=ladder(arguments.temperature, arguments.temperature_increment_on_fallback),
        compression_ratio_threshold=arguments.compression_ratio_threshold,
        logprob_threshold=arguments.logprob_threshold,
        no_speech_threshold=arguments.no_speech_threshold,
        no_repeat_ngram_size=arguments.no_repeat_ngram_size,
        vad=not arguments.no_vad,
        full_context=arguments.full_context,
    )


def ladder(first: float, step: float | None) -> tuple[float, ...]:
    """Temperatures from the first up to 1; the first alone without a step, or where it is above 1.

    Raises:
        OptionError: the step goes down, or is so small that there is no end of tries.
    """
    if not step:
        return (first,)
    if not step >= LAST_TEMPERATURE / (MOST_TEMPERATURES - 1):
        raise OptionError(f"--temperature-increment-on-fallback {step:g}: give a step from 0.05, or None")
    count = math.ceil((LAST_TEMPERATURE + 1e-6 - first) / step) if math.isfinite(first) else 1
    return tuple(round(first + index * step, 6) for index in range(max(1, min(count, MOST_TEMPERATURES))))


def fallback_note(options: DecodingOptions) -> str:
    """One sentence when the user's settings turn the retries off, which are what ends loops; empty otherwise."""
    if len(options.temperatures) == 1:
        reason = f"there is only temperature {options.temperatures[0]:g}"
    elif options.compression_ratio_threshold is None and options.logprob_threshold is None:
        reason = "no threshold says what is not good enough"
    else:
        return ""
    return f"{reason}: text that repeats itself or is improbable stays as it is, since nothing is decoded again"


# --- openai-whisper's spellings -----------------------------------------------------------------------------

FLAGS = frozenset(
    f"--{name}"
    for name in (
        "condition-on-previous-text",
        "full-context",
        "highlight-words",
        "multilingual",
        "no-vad",
        "without-timestamps",
        "word-timestamps",
    )
)
"""Switches that may have a value: `--word-timestamps`, or `--word_timestamps True` as in openai-whisper."""

_BOOLEANS = {"true": True, "false": False}


def add_flag(add: Callable[..., argparse.Action], name: str, help_text: str, *, default: bool | None = False) -> None:
    """Add one of `FLAGS` to a parser or a group of it, by its `add_argument`."""
    add(name, nargs="?", const=True, default=default, type=_boolean, metavar="True|False", help=help_text)


def normalised(words: Sequence[str]) -> list[str]:
    """A command line with dashes for the underscores in names of options, and with a value behind each of `FLAGS`.

    A flag takes the next word only when that is True or False: `--word-timestamps clip.wav` names a file.
    """
    result: list[str] = []
    rest = iter(words)
    ahead = next(rest, None)
    while ahead is not None:
        word, ahead = ahead, next(rest, None)
        if word == "--":
            return [*result, word, *([] if ahead is None else [ahead]), *rest]
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            name = name.replace("_", "-")
            if name in FLAGS and not equals:
                has_value = ahead is not None and ahead.lower() in _BOOLEANS
                equals, value = "=", ahead if has_value and ahead is not None else "True"
                ahead = next(rest, None) if has_value else ahead
            word = name + equals + value
        result.append(word)
    return result


def _boolean(text: str) -> bool:
    if text.lower() not in _BOOLEANS:
        raise argparse.ArgumentTypeError(f"{text!r} is neither True nor False")
    return _BOOLEANS[text.lower()]


def _or_none(kind: Callable[[str], T], *nothing: str) -> Callable[[str], T | None]:
    """A type of options that may have no value: the word None, or one of `nothing`."""

    def convert(text: str) -> T | None:
        return None if text in ("None", *nothing) else kind(text)

    convert.__name__ = f"{kind.__name__} or None"  # argparse says it
    return convert
