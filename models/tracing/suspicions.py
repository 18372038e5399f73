"""What in a window's trace is unusual, in sentences: where to look first, not a verdict.

The bounds come from windows that were transcribed well; each rule says which number it looked at.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from susurrus.models.tracing.story import Story

Facts = dict[str, Any]

FEW_TOKENS_PER_SECOND = 1.0
"""Text tokens per second of speech; slow speech has two."""
LONG_SPEECH = 3.0
"""Seconds of speech from which on so few tokens are suspicious."""
MUCH_FLOOR = 0.95
"""Share of the mel at the floor; a quiet recording of one voice has up to 0.7."""
EMPTY_BINS = 0.2
"""Share of the bins, from the top, without anything: telephone speech has a third."""
DOUBTFUL_LOGPROB = -0.8
DOUBTFUL_NO_SPEECH = 0.5
DOUBTFUL_LANGUAGE = 0.5
OFTEN_FORBIDDEN = 0.3
"""Share of the steps at which a rule forbade what was most probable; healthy text has it at a few timestamps."""
UNREAD_SECONDS = 1.0
"""Speech behind the last cue."""


def suspicions(mel: Facts, hidden: Facts, story: Story) -> list[str]:
    """Everything unusual about a window, a sentence each.

    Args:
        mel: of `mel_facts`; empty when there is no trace of it. As all three.
        hidden: of `hidden_state_facts`.
        story: of the decoder.
    """
    return [*_of_mel(mel), *_of_hidden_states(hidden), *_of_prompt(story), *_of_hearing(story), *_of_text(story)]


def _of_mel(mel: Facts) -> Iterator[str]:
    if not mel:
        return
    bins = mel["shape"][0]
    if mel["nan"]:
        yield f"mel: {mel['nan']} values are no numbers"
    elif mel["floor_share"] > MUCH_FLOOR:
        yield f"mel: {mel['floor_share']:.0%} of it lies at the floor: (nearly) silence went in"
    elif mel["empty_bins"] >= EMPTY_BINS * bins:
        yield (
            f"mel: the upper {mel['empty_bins']} of {bins} bins are empty: audio of a lower sample rate "
            "(telephone), or filters that do not fit"
        )


def _of_hidden_states(hidden: Facts) -> Iterator[str]:
    if not hidden:
        return
    if hidden["nan"]:
        yield f"hidden states: {hidden['nan']} values are no numbers"
    elif hidden["norm_max"] - hidden["norm_min"] < 1e-3 * hidden["norm_max"]:
        yield "hidden states: the same norm at every position: the encoder hears nothing"


def _of_prompt(story: Story) -> Iterator[str]:
    """The task token's number is compared with its neighbours': every published Whisper has them in this order."""
    if not story.prompt:
        return
    spellings = story.prompt_spellings
    if spellings and spellings[-1] == "<|notimestamps|>":
        spellings = spellings[:-1]
    start = spellings.index("<|startoftranscript|>") if "<|startoftranscript|>" in spellings else None
    if start is None:
        yield "prompt: it has no <|startoftranscript|>"
    elif len(behind := spellings[start + 1 :]) not in (0, 2):
        yield f"prompt: {len(behind)} tokens behind <|startoftranscript|>, wanted language and task"
    elif behind and behind[1] not in ("<|transcribe|>", "<|translate|>"):
        yield f"prompt: {behind[1]} stands where the task belongs"
    numbers = story.window.get("tasks", {})
    if numbers and list(numbers.values()) != list(range(numbers["translate"], numbers["translate"] + len(numbers))):
        listed = ", ".join(f"{name} {number}" for name, number in numbers.items())
        yield f"prompt: the numbers of the task tokens are not in a row as in every published Whisper: {listed}"


def _of_hearing(story: Story) -> Iterator[str]:
    if not story.heard:
        return
    no_speech, languages = story.heard["no_speech_prob"], story.heard["languages"]
    if no_speech > DOUBTFUL_NO_SPEECH:
        yield f"first step: {no_speech:.0%} that nobody speaks, though {story.speech_seconds:.1f} s of speech were sent"
    best, share = next(iter(languages.items()), ("", 1.0))
    if languages and share < DOUBTFUL_LANGUAGE:
        yield f"first step: no language is sure, the best is {best} with {share:.0%}"
    taken = story.language.get("code", best)
    if languages and taken != best and share >= DOUBTFUL_LANGUAGE:
        yield f"first step: it sounds like {best} ({share:.0%}) and is decoded as {taken}"


def _of_text(story: Story) -> Iterator[str]:
    attempt, tokens = story.taken_attempt, story.taken_tokens
    if broken := [token for token in story.tokens if math.isnan(token["logprob"])]:
        yield f"decoder: the logits are no numbers from step {broken[0]['step']} of attempt {broken[0]['attempt']} on"
    if not attempt:
        if story.prompt:
            yield "decoder: it was stopped before its first attempt ended"
        return
    if attempt["reasons"] and not attempt["resumed"]:
        yield f"decoder: no attempt is good enough; of the one taken: {'; '.join(attempt['reasons'])}"
    elif attempt["avg_logprob"] < DOUBTFUL_LOGPROB:
        yield f"decoder: mean log-probability {attempt['avg_logprob']:.2f}: it does not believe in its words"
    if attempt["temperature"] > 0:
        yield f"decoder: temperature {attempt['temperature']:g}: cooler attempts were rejected"
    if not attempt["ended"]:
        yield "decoder: cut off before its end token: a loop, or the limit of tokens"
    yield from _of_special_tokens(story)
    forbidden = [token for token in tokens if token["forbidden_by"]]
    if len(forbidden) > max(1, OFTEN_FORBIDDEN * len(tokens)):
        yield (
            f"decoder: at {len(forbidden)} of {len(tokens)} steps a rule forbade the most probable token "
            f"(first {forbidden[0]['raw'][1]} at step {forbidden[0]['step']}, by {forbidden[0]['forbidden_by']})"
        )
    yield from _of_the_end(story)


def _of_special_tokens(story: Story) -> Iterator[str]:
    spelt = {token["id"]: token["text"] for token in story.tokens}
    found = dict.fromkeys(spelt[each] for each in story.taken_attempt["ids"] if each in spelt)
    if odd := [text for text in found if text.startswith("<|") and text.endswith("|>") and not text[2].isdigit()]:
        yield f"decoder: special tokens among the text: {' '.join(odd)}"


def _of_the_end(story: Story) -> Iterator[str]:
    """The text against the speech."""
    speech, result = story.window.get("speech", []), story.result
    if not result or not speech:
        return
    seconds, words = story.speech_seconds, sum(not each.startswith("<|") for each in _texts(story))
    if seconds >= LONG_SPEECH and words < FEW_TOKENS_PER_SECOND * seconds:
        yield f"text: only {words} tokens of text for {seconds:.1f} s of speech"
    last = max((end for _, end, _ in result["cues"]), default=0.0)
    unread = sum(max(0.0, end - max(start, last)) for start, end in speech)
    if result["cues"] and unread > UNREAD_SECONDS:
        yield f"text: it ends at {last:.1f} s of the window, and {unread:.1f} s of speech come after it"
    if (threshold := story.options.get("compression_ratio_threshold")) and result["compression_ratio"] > threshold:
        yield f"text: it repeats itself (compression ratio {result['compression_ratio']:.1f})"


def _texts(story: Story) -> list[str]:
    spelt = {token["id"]: token["text"] for token in story.tokens}
    return [spelt.get(each, "") for each in story.result["tokens"]]
