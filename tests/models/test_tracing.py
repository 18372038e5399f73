"""A decoder that is looked at decodes as before, and what it tells is what happened."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Generator
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest

from susurrus.models.config import ModelConfig
from susurrus.models.decoding import WindowDecoder
from susurrus.models.dimensions import AudioParameters
from susurrus.models.ladder import EncodedWindow
from susurrus.models.options import DecodingOptions
from susurrus.models.results import DecodedWindow, Hypothesis, Span
from susurrus.models.special_tokens import SpecialTokens
from susurrus.models.tokenizer import Tokenizer
from susurrus.models.tracing import Record, Story, TracedDecoder, WindowTrace, summary, token_table, token_text
from tests.models.scripted import Said, ScriptedSession
from tests.models.tiny import DIMENSIONS, VOCABULARY

SPECIAL = replace(SpecialTokens.from_vocabulary(VOCABULARY), multilingual=True)
TOKENIZER = Tokenizer(VOCABULARY, SPECIAL)
CONFIG = ModelConfig(
    name="scripted",
    dimensions=replace(DIMENSIONS, n_text_ctx=448, n_audio_ctx=1500),
    audio=AudioParameters(n_mels=80),
    suppress_tokens=(ord("#") - 33,),
    begin_suppress_tokens=(),
)
STATES = np.zeros((1500, 64), np.float32)
PLAIN = DecodingOptions(language="en", timestamps=False)
SPEECH = (Span(0.0, 10.0),)

D = TypeVar("D", bound=WindowDecoder)


def run(
    steps: Generator[Hypothesis | None, None, DecodedWindow | None],
) -> tuple[list[Hypothesis], DecodedWindow]:
    hypotheses = list[Hypothesis]()
    while True:
        try:
            hypothesis = next(steps)
        except StopIteration as stop:
            return hypotheses, stop.value
        hypotheses += [] if hypothesis is None else [hypothesis]


def text(words: str) -> list[int]:
    return TOKENIZER.encode(words)


def at(seconds: float) -> int:
    return SPECIAL.timestamp_begin + round(seconds / 0.02)


def saying(*tokens: int) -> Callable[[list[int]], Said]:
    """These tokens, whatever was said before, then the end."""
    return lambda said: tokens[len(said)] if len(said) < len(tokens) else SPECIAL.eot


def doubtful(said: list[int]) -> Said:
    """Letters of which none is sure."""
    return {text("abcdefghi")[len(said)]: 1.0} if len(said) < 9 else SPECIAL.eot


def traced(
    script: Callable[[list[int]], Said],
    options: DecodingOptions = PLAIN,
    *,
    heard: Said | None = None,
    speech: tuple[Span, ...] = (),
) -> tuple[DecodedWindow, list[Record]]:
    """What a script says after the prompt, decoded; and the records, as they come out of a file."""
    starts = {SPECIAL.transcribe, SPECIAL.translate, SPECIAL.no_timestamps}

    def said(row: list[int]) -> Said:
        if row == [SPECIAL.sot]:
            return heard or {SPECIAL.languages["en"]: 9.0}
        return script(row[max(index for index, token in enumerate(row) if token in starts) + 1 :])

    decoder = TracedDecoder(ScriptedSession(len(VOCABULARY), said), TOKENIZER, CONFIG)
    lines: list[str] = []
    decoder.on_record = lambda record: lines.append(json.dumps(record))
    _, decoded = run(decoder.decode(EncodedWindow(0, STATES, 30.0, speech), decoder.recording(options)))
    return decoded, [json.loads(line) for line in lines]


def told(
    script: Callable[[list[int]], Said],
    options: DecodingOptions = PLAIN,
    *,
    heard: Said | None = None,
    speech: tuple[Span, ...] = (),
) -> Story:
    return Story.from_records(traced(script, options, heard=heard, speech=speech)[1])


# --- a real decoder ---


OPTIONS = [
    DecodingOptions(language="en", timestamps=False, temperatures=(0.0,)),
    DecodingOptions(language="en", temperatures=(0.0,)),
    DecodingOptions(language="en", beam_size=3, temperatures=(0.0,)),
    DecodingOptions(language="en", timestamps=False, best_of=3, temperatures=(0.0, 0.7, 1.0), logprob_threshold=-0.01),
]
NAMES = ["greedy", "with times", "beams", "samples"]


def decode(kind: type[D], tiny: Path, options: DecodingOptions) -> tuple[list[Hypothesis], DecodedWindow, D]:
    decoder = kind.load(tiny, precision="float32", threads=1)
    states = np.random.default_rng(1).standard_normal((50, 64)).astype(np.float32)
    window = EncodedWindow(0, states, 1.0, (Span(0.0, 1.0),))
    return *run(decoder.decode(window, decoder.recording(options))), decoder


def real(tiny: Path, options: DecodingOptions) -> tuple[list[Hypothesis], DecodedWindow, Story]:
    records: list[Record] = []

    class Listening(TracedDecoder):
        def _write(self, record: Record) -> None:
            records.append(json.loads(json.dumps(record, allow_nan=False)))

    hypotheses, decoded, _ = decode(Listening, tiny, options)
    return hypotheses, decoded, Story.from_records(records)


@pytest.mark.parametrize("options", OPTIONS, ids=NAMES)
def test_a_decoder_that_is_looked_at_decodes_as_one_that_is_not(tiny: Path, options: DecodingOptions) -> None:
    *plain, _ = decode(WindowDecoder, tiny, options)
    *looked_at, story = real(tiny, options)
    assert looked_at == plain
    assert story.tokens


@pytest.mark.parametrize("options", OPTIONS, ids=NAMES)
def test_probabilities_of_tokens_are_those_of_the_attempt(tiny: Path, options: DecodingOptions) -> None:
    _, _, story = real(tiny, options)
    for attempt in story.attempts:
        if options.beam_size > 1 or attempt["resumed"]:
            continue
        rows = {token["row"] for token in story.of_attempt(attempt["number"])}
        means = []
        for row in rows:
            tokens = [token for token in story.of_attempt(attempt["number"]) if token["row"] == row]
            ids = [token["id"] for token in tokens if token["id"] != TOKENIZER.special.eot]
            assert [token["step"] for token in tokens] == list(range(len(tokens)))
            assert [token["position"] for token in tokens] == [tokens[0]["position"] + i for i in range(len(tokens))]
            if ids == attempt["ids"]:
                means.append(sum(token["logprob"] for token in tokens) / (len(ids) + 1))
        assert any(mean == pytest.approx(attempt["avg_logprob"], abs=1e-5) for mean in means)


@pytest.mark.parametrize("options", OPTIONS, ids=NAMES)
def test_the_best_tokens_are_in_order_and_have_their_probabilities(tiny: Path, options: DecodingOptions) -> None:
    _, _, story = real(tiny, options)
    for token in story.tokens:
        shares = [share for _, _, share in token["top"]]
        assert shares == sorted(shares, reverse=True)
        assert 0 < sum(shares) <= 1 + 1e-5
        own = {each: share for each, _, share in token["top"]}.get(token["id"])
        if own is not None:
            assert own == pytest.approx(math.exp(token["logprob"]), rel=1e-4)
        assert 0 < token["raw"][2] <= 1
        if token["forbidden_by"] is None:
            assert token["raw"][0] == token["top"][0][0]


def test_every_run_of_the_decoder_is_timed_and_names_its_tokens(tiny: Path) -> None:
    _, decoded, story = real(tiny, OPTIONS[0])
    assert [step["what"] for step in story.steps][:2] == ["keys and values of the window", "step"]
    fed = [token for step in story.steps for token in step["tokens"]]
    assert fed[: len(story.prompt_spellings)] == story.prompt_spellings
    assert len(fed) >= len(story.prompt_spellings) + len(decoded.tokens)
    starts = [step["start_ns"] for step in story.steps]
    assert starts == sorted(starts)
    assert all(step["ms"] > 0 for step in story.steps)


# --- what happened, by a script ---


def test_prompt_and_first_step_are_told_by_name() -> None:
    story = told(saying(*text(" Hi")), heard={SPECIAL.languages["de"]: 3.0, SPECIAL.no_speech: 2.0})
    assert story.prompt_spellings == ["<|startoftranscript|>", "<|en|>", "<|transcribe|>", "<|notimestamps|>"]
    assert next(iter(story.heard["languages"])) == "de"
    everything = len(VOCABULARY) - 2 + math.exp(2.0) + math.exp(3.0)
    assert story.heard["no_speech_prob"] == pytest.approx(math.exp(2.0) / everything)
    assert story.language["code"] == "en"


@pytest.mark.parametrize(
    ("likely", "timestamps", "rule"),
    [
        (SPECIAL.eot, False, "SuppressBlank"),
        (ord("#") - 33, False, "SuppressTokens"),
        (SPECIAL.sot_lm, False, "SuppressTokens"),
        (at(5.0), True, "FirstTimestamp"),
        (ord("x") - 33, True, "FirstTimestamp"),
    ],
)
def test_the_rule_that_forbade_the_most_probable_token_is_named(likely: int, timestamps: bool, rule: str) -> None:
    said = at(0.0) if timestamps else text("a")[0]
    options = replace(PLAIN, timestamps=timestamps)
    first = told(lambda so_far: {likely: 9.0, said: 5.0} if not so_far else SPECIAL.eot, options).tokens[0]
    assert (first["id"], first["raw"][0], first["forbidden_by"]) == (said, likely, rule)
    assert first["raw"][2] == pytest.approx(1 / (1 + math.exp(-4.0) + (len(VOCABULARY) - 2) * math.exp(-9.0)), rel=1e-3)


def test_attempts_tell_why_they_are_not_good_enough() -> None:
    story = told(doubtful, replace(PLAIN, temperatures=(0.0, 0.4)))
    assert [attempt["temperature"] for attempt in story.attempts] == [0.0, 0.4]
    assert all("mean log-probability" in attempt["reasons"][0] for attempt in story.attempts)
    assert story.chosen["why"] == "none of 2 is good enough, this is the most probable"
    looping = told(lambda _: text("a")[0], replace(PLAIN, temperatures=(0.0, 0.4)))
    assert looping.attempts[0]["reasons"][0] == "it repeats itself"
    assert (looping.chosen["attempt"], looping.chosen["why"]) == (2, "the same text came again")


def test_the_rows_of_samples_are_their_candidates() -> None:
    """Each candidate's tokens follow from its own last one, so that a row that mixed two would show."""
    letters = text("abcdef")

    def script(said: list[int]) -> Said:
        if not said:
            return dict.fromkeys(letters, 5.0)
        return said[0] if len(said) < 4 else SPECIAL.eot

    story = told(script, replace(PLAIN, temperatures=(0.5,), best_of=4))
    for row in range(4):
        tokens = [token["id"] for token in story.tokens if token["row"] == row]
        assert tokens == [tokens[0]] * 4 + [SPECIAL.eot]


def test_beams_tell_from_which_row_they_go_on() -> None:
    first, second = text("ab")

    def script(said: list[int]) -> Said:
        if not said:
            return {first: 6.0, second: 5.0}
        return {said[-1]: 9.0} if len(said) < 3 else SPECIAL.eot

    story = told(script, replace(PLAIN, beam_size=2))
    later = [token for token in story.tokens if token["step"] == 1 and token["logprob"] > -1]
    assert {(token["row"], token["id"]) for token in later} == {(0, first), (1, second)}


def test_going_on_to_the_end_of_the_speech_is_told_with_what_it_gave() -> None:
    early, late = [at(0.0), *text(" one"), at(2.0)], [at(2.0), *text(" two"), at(9.8)]
    full = [*early, *late]
    options = replace(PLAIN, timestamps=True)
    speech = (Span(0.0, 2.0), Span(4.0, 9.8))

    def script(said: list[int]) -> Said:
        if said == early:
            return {SPECIAL.eot: 9.0, at(2.0): 8.0}
        return full[len(said)] if len(said) < len(full) else SPECIAL.eot

    decoded, records = traced(script, options, speech=speech)
    story = Story.from_records(records)
    assert decoded.text == " one two"
    assert [attempt["resumed"] for attempt in story.attempts] == [False, True]
    assert story.resumed == {"kind": "resumed", "runs": 1, "taken": 2}
    assert story.attempts[1]["reasons"] == []
    assert story.taken_attempt["number"] == 2
    forced = next(token for token in story.tokens if token["resumed"])
    assert (forced["raw"][0], forced["forbidden_by"]) == (SPECIAL.eot, "speech goes on")


def test_a_decoder_that_is_stopped_has_told_all_until_then() -> None:
    decoder = TracedDecoder(
        ScriptedSession(len(VOCABULARY), lambda row: text("a")[0] if len(row) > 1 else SPECIAL.no_speech),
        TOKENIZER,
        CONFIG,
    )
    records: list[Record] = []
    decoder.on_record = records.append
    steps = decoder.decode(EncodedWindow(0, STATES, 30.0, ()), decoder.recording(PLAIN))
    for _ in range(3):
        next(steps)
    steps.close()
    story = Story.from_records(records)
    assert [token["text"] for token in story.tokens] == ["a", "a", "a"]
    assert not story.result
    assert "broken off" in token_text(story)


# --- tables ---


def test_the_table_has_a_row_for_every_token_and_texts_survive_it() -> None:
    odd = text("\ta\n\\")
    story = told(saying(*odd))
    header, *rows = [line.split("\t") for line in token_table(story).splitlines()]
    assert all(len(row) == len(header) for row in rows)
    column = header.index("text")
    shown = [row[column] for row in rows]
    assert shown == [r"\t", "a", r"\n", r"\\", "<|endoftext|>"]
    assert [int(row[header.index("id")]) for row in rows] == [*odd, SPECIAL.eot]


def test_a_trace_that_breaks_off_anywhere_can_be_told() -> None:
    _, records = traced(
        lambda said: [at(0.0), *text(" a")][len(said)] if len(said) < 3 else {SPECIAL.eot: 9.0, at(1.0): 5.0},
        replace(PLAIN, timestamps=True, temperatures=(0.0, 0.2), logprob_threshold=-0.001),
        speech=SPEECH,
    )
    assert {record["kind"] for record in records} >= {"window", "heard", "prompt", "token", "attempt", "resumed"}
    for count in range(len(records) + 1):
        story = Story.from_records(records[:count])
        assert token_table(story).count("\n") == 1 + len(story.tokens)
        page = token_text(story) + summary("clip", [WindowTrace("window 0", story=story)])
        assert "clip" in page
