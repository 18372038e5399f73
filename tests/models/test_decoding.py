"""Decoding a window: prompt, language, fallback, going on to the end of the speech, cues. With scripted sessions."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from susurrus.models.config import ModelConfig
from susurrus.models.context import AudioContext
from susurrus.models.decoding import WindowDecoder
from susurrus.models.ladder import EncodedWindow
from susurrus.models.options import DecodingOptions
from susurrus.models.recording import Recording
from susurrus.models.results import Cue, DecodedWindow, Hypothesis, Span
from susurrus.models.special_tokens import SpecialTokens
from susurrus.models.tokenizer import Tokenizer
from tests.models.scripted import Said, ScriptedSession

STATES = np.zeros((1500, 512), np.float32)
ENGLISH = DecodingOptions(language="en", timestamps=False)
TIMED = DecodingOptions(language="en")


@dataclass
class Stage:
    """A decoder on a scripted session, with the real vocabulary of a multilingual model."""

    config: ModelConfig
    tokenizer: Tokenizer
    session: ScriptedSession = field(init=False)
    recording: Recording = field(init=False)

    @property
    def special(self) -> SpecialTokens:
        """The model's special tokens."""
        return self.tokenizer.special

    def at(self, seconds: float) -> int:
        """The timestamp token."""
        return self.special.timestamp_begin + round(seconds / 0.02)

    def text(self, text: str) -> list[int]:
        """Its tokens."""
        return self.tokenizer.encode(text)

    def decoder(
        self, script: Callable[[list[int]], Said], options: DecodingOptions, *, heard: Mapping[str, float] | None = None
    ) -> WindowDecoder:
        """A decoder that hears these languages (logits), then says what the script has after the prompt."""
        starts = {self.special.transcribe, self.special.translate, self.special.no_timestamps}

        def said(row: list[int]) -> Said:
            if row == [self.special.sot]:
                languages = heard or {"en": 9.0}
                return {
                    self.special.languages[code]: value for code, value in languages.items() if code != "silence"
                } | {self.special.no_speech: (heard or {}).get("silence", 0.0)}
            after = max(index for index, token in enumerate(row) if token in starts) + 1
            return script(row[after:])

        self.session = ScriptedSession(self.config.dimensions.n_vocab, said)
        decoder = WindowDecoder(self.session, self.tokenizer, self.config)
        self.recording = decoder.recording(options)
        return decoder

    def decode(
        self,
        script: Callable[[list[int]], Said],
        options: DecodingOptions = ENGLISH,
        *,
        heard: Mapping[str, float] | None = None,
        duration: float = 30.0,
        speech: tuple[Span, ...] = (),
    ) -> tuple[list[Hypothesis], DecodedWindow]:
        """One window decoded by a script."""
        decoder = self.decoder(script, options, heard=heard)
        return finish(decoder, EncodedWindow(0, STATES, duration, speech), self.recording)

    def saying(self, *tokens: int) -> Callable[[list[int]], Said]:
        """These tokens, whatever was said before, then the end."""
        return lambda said: tokens[len(said)] if len(said) < len(tokens) else self.special.eot


def finish(
    decoder: WindowDecoder, window: EncodedWindow, recording: Recording
) -> tuple[list[Hypothesis], DecodedWindow]:
    steps, hypotheses = decoder.decode(window, recording), list[Hypothesis]()
    while True:
        try:
            hypothesis = next(steps)
        except StopIteration as stop:
            return hypotheses, stop.value
        hypotheses += [] if hypothesis is None else [hypothesis]


@pytest.fixture(scope="module")
def stage(base: Path) -> Stage:
    return Stage(ModelConfig.from_directory(base), Tokenizer.from_directory(base))


@pytest.fixture(scope="module")
def english_only(tiny_en: Path) -> Stage:
    return Stage(ModelConfig.from_directory(tiny_en), Tokenizer.from_directory(tiny_en))


# --- the prompt ---


def test_the_first_step_asks_what_is_heard_the_second_is_the_rest_of_the_prompt(stage: Stage) -> None:
    special = stage.special
    _, decoded = stage.decode(stage.saying(*stage.text(" Hello")))
    assert decoded.text == " Hello"
    assert stage.session.asked[:2] == [
        [special.sot],
        [special.languages["en"], special.transcribe, special.no_timestamps],
    ]
    stage.decode(stage.saying(stage.at(0), *stage.text(" Hallo")), DecodingOptions(language="de", task="translate"))
    assert stage.session.asked[1] == [special.languages["de"], special.translate]


def test_an_english_model_takes_neither_language_nor_task(english_only: Stage) -> None:
    special = english_only.special
    decoder = english_only.decoder(lambda _: special.eot, replace(ENGLISH, language=None))
    english_only.session._script = lambda row: english_only.text(" yes")[0] if len(row) < 3 else special.eot
    _, decoded = finish(decoder, EncodedWindow(0, STATES, 30.0, ()), english_only.recording)
    assert english_only.session.asked[:2] == [[special.sot], [special.no_timestamps]]
    assert (decoded.text, decoded.language, decoded.language_probability) == (" yes", "en", 1.0)
    assert decoded.language_probabilities == {}


def test_hotwords_and_prompt_stand_before_the_start(stage: Stage) -> None:
    options = replace(ENGLISH, prompt="Susurrus speaks.", hotwords="Köln")
    stage.decode(stage.saying(*stage.text(" Hi")), options)
    special = stage.special
    before = [special.sot_prev, *stage.text(" Köln"), *stage.text(" Susurrus speaks.")]
    assert stage.session.asked[1][: len(before) + 1] == [*before, special.sot]


@pytest.mark.parametrize(
    ("prompt", "hotwords"), [(" cat" * 600, ""), ("", " dog" * 600), (" cat" * 600, " dog" * 600), ("世界" * 400, "")]
)
def test_what_is_too_long_before_the_text_is_cut_with_one_warning_and_numbers(
    stage: Stage, prompt: str, hotwords: str
) -> None:
    options = replace(ENGLISH, prompt=prompt, hotwords=hotwords)
    decoder = stage.decoder(stage.saying(*stage.text(" Hi")), options)
    window = EncodedWindow(0, STATES, 30.0, ())
    _, first = finish(decoder, window, stage.recording)
    _, second = finish(decoder, window, stage.recording)
    assert first.text == second.text == " Hi"
    (warning,) = first.warnings
    assert str(max(len(stage.recording.prompt), len(stage.recording.hotwords))) in warning
    assert second.warnings == ()


@pytest.mark.parametrize("length", [0, 1, 222, 223, 224, 600])
def test_prompt_and_text_together_never_pass_the_context(stage: Stage, length: int) -> None:
    options = replace(ENGLISH, prompt=" cat" * length, temperatures=(0.0,))
    words = stage.text(" one two three four five six seven eight nine ten")
    _, decoded = stage.decode(lambda said: words[(len(said) * 7) % 10] if len(said) % 11 else words[0], options)
    assert len(stage.session.rows[0]) <= stage.config.dimensions.n_text_ctx
    assert decoded.tokens
    assert decoded.truncated


def test_the_text_before_is_given_to_the_next_window_only_when_asked_for(stage: Stage) -> None:
    window = EncodedWindow(0, STATES, 30.0, ())
    for wanted in (False, True):
        options = replace(ENGLISH, condition_on_previous_text=wanted)
        decoder = stage.decoder(stage.saying(*stage.text(" Hello world")), options)
        finish(decoder, window, stage.recording)
        asked = len(stage.session.asked)
        finish(decoder, window, stage.recording)
        previous = [stage.special.sot_prev, *stage.text(" Hello world"), stage.special.sot]
        assert (stage.session.asked[asked + 1][: len(previous)] == previous) == wanted


def test_a_loop_is_not_given_to_the_next_window(stage: Stage) -> None:
    options = replace(ENGLISH, condition_on_previous_text=True, temperatures=(0.0,))
    loop = stage.text(" Thank you.")
    decoder = stage.decoder(lambda said: loop[len(said) % len(loop)], options)
    window = EncodedWindow(0, STATES, 30.0, ())
    _, decoded = finish(decoder, window, stage.recording)
    assert decoded.text == " Thank you."
    assert stage.recording.previous == ()


# --- the language ---


def test_the_language_is_the_most_probable_of_the_languages_alone(stage: Stage) -> None:
    _, decoded = stage.decode(
        stage.saying(*stage.text(" Hallo")), DecodingOptions(timestamps=False), heard={"de": 9.0, "en": 8.0}
    )
    languages = np.zeros(len(stage.special.languages))
    languages[:2] = 9, 8
    expected = 1 / np.exp(languages - 9).sum()
    assert decoded.language == "de"
    assert decoded.language_probability == pytest.approx(expected)
    assert list(decoded.language_probabilities)[:2] == ["de", "en"]
    assert stage.session.asked[1][0] == stage.special.languages["de"]


@pytest.mark.parametrize("seed", range(5))
def test_a_detected_language_is_the_most_probable_of_the_languages(stage: Stage, seed: int) -> None:
    """However probable the other tokens are."""
    logits = np.random.default_rng(seed).normal(0, 5, stage.config.dimensions.n_vocab).astype(np.float32)
    best = max(stage.special.languages, key=lambda code: float(logits[stage.special.languages[code]]))
    options = DecodingOptions(timestamps=False, no_speech_threshold=None)
    decoder = stage.decoder(stage.saying(*stage.text(" Hm")), options)
    answer, heard = stage.session._script, dict(enumerate(logits.tolist()))
    stage.session._script = lambda row: heard if len(row) == 1 else answer(row)
    _, decoded = finish(decoder, EncodedWindow(0, STATES, 30.0, ()), stage.recording)
    assert decoded.language == best
    assert decoded.language_probabilities.keys() <= stage.special.languages.keys()


def test_a_language_that_was_named_is_taken_and_doubted_if_it_sounds_otherwise(stage: Stage) -> None:
    _, decoded = stage.decode(stage.saying(*stage.text(" Hello")), heard={"de": 20.0})
    assert (decoded.language, decoded.language_probability) == ("en", 1.0)
    (warning,) = decoded.warnings
    assert "German" in warning
    assert stage.session.asked[1][0] == stage.special.languages["en"]


def test_windows_that_are_not_sure_are_heard_together(stage: Stage) -> None:
    heard = [{"en": 4.0, "de": 3.8}, {"de": 9.0}, {"en": 9.0}]
    decoder = stage.decoder(stage.saying(*stage.text(" Hm")), DecodingOptions(timestamps=False))
    answer, said = stage.session._script, []
    for sounds in heard:
        logits = {stage.special.languages[code]: value for code, value in sounds.items()}
        stage.session._script = lambda row, logits=logits: logits if len(row) == 1 else answer(row)  # type: ignore[misc]
        said.append(finish(decoder, EncodedWindow(0, STATES, 30.0, ()), stage.recording)[1].language)
    assert said == ["en", "de", "de"]  # the second window decides; the third is not asked


def test_every_window_decides_for_itself_when_the_recording_is_in_several_languages(stage: Stage) -> None:
    decoder = stage.decoder(stage.saying(*stage.text(" Hm")), DecodingOptions(timestamps=False, multilingual=True))
    answer, said = stage.session._script, []
    for code in ("en", "de", "ja"):
        logits = {stage.special.languages[code]: 9.0}
        stage.session._script = lambda row, logits=logits: logits if len(row) == 1 else answer(row)  # type: ignore[misc]
        said.append(finish(decoder, EncodedWindow(0, STATES, 30.0, ()), stage.recording)[1].language)
    assert said == ["en", "de", "ja"]


# --- the text ---


def test_a_decoder_that_never_ends_is_stopped_and_what_it_said_is_kept(stage: Stage) -> None:
    words = stage.text(" one two three four five six seven eight nine ten eleven twelve")

    def said(tokens: list[int]) -> Said:
        return words[int(np.random.default_rng(len(tokens)).integers(len(words)))]

    options = replace(ENGLISH, temperatures=(0.0,))
    hypotheses, decoded = stage.decode(said, options)
    assert len(decoded.tokens) == len(hypotheses) == stage.config.dimensions.n_text_ctx // 2
    assert decoded.truncated
    assert decoded.text == hypotheses[-1].text


def test_a_short_window_is_not_asked_for_more_tokens_than_it_can_hold(stage: Stage) -> None:
    words = stage.text(" one two three four five six seven eight nine ten eleven twelve")

    def said(tokens: list[int]) -> Said:
        return words[int(np.random.default_rng(len(tokens)).integers(len(words)))]

    _, decoded = stage.decode(said, replace(ENGLISH, temperatures=(0.0,)), duration=1.0)
    assert len(decoded.tokens) == 60
    assert decoded.truncated


def test_no_half_character_is_shown_and_none_is_lost(stage: Stage) -> None:
    tokens = [token for character in "n世é🎉!" for token in stage.text(character)]
    hypotheses, decoded = stage.decode(stage.saying(*tokens))
    assert decoded.text == "n世é🎉!"
    assert [hypothesis.text for hypothesis in hypotheses] == ["n", "n世", "n世é", "n世é🎉", "n世é🎉!"]


def test_what_is_stable_begins_every_later_hypothesis_of_its_temperature(stage: Stage) -> None:
    hypotheses, decoded = stage.decode(stage.saying(*stage.text(" né 世界 x, and more")))
    for former, latter in pairwise(hypotheses):
        assert latter.text.startswith(former.text[: former.stable])
        assert latter.stable >= former.stable
    assert decoded.text.startswith(hypotheses[-1].text[: hypotheses[-1].stable])


def test_nothing_runs_between_two_hypotheses_once_the_caller_has_left(stage: Stage) -> None:
    decoder = stage.decoder(stage.saying(*stage.text(" Hello world")), ENGLISH)
    steps = decoder.decode(EncodedWindow(0, STATES, 30.0, ()), stage.recording)
    next(steps)
    asked = len(stage.session.asked)
    steps.close()
    assert len(stage.session.asked) == asked == 2


# --- fallback ---


def test_a_loop_at_temperature_0_is_decoded_again_hotter_and_the_hypotheses_say_so(stage: Stage) -> None:
    loop, good = stage.text(" Thank you."), stage.text(" Thank goodness for that.")

    def said(tokens: list[int]) -> Said:
        if len(stage.session.rows) == 1:
            return loop[len(tokens) % len(loop)]
        return good[len(tokens)] if len(tokens) < len(good) else stage.special.eot

    hypotheses, decoded = stage.decode(said)
    assert decoded.text == " Thank goodness for that."
    assert decoded.temperature == 0.2
    assert {hypothesis.temperature for hypothesis in hypotheses} == {0.0, 0.2}
    assert all(hypothesis.stable == 0 for hypothesis in hypotheses if hypothesis.temperature > 0)


def test_a_text_that_comes_again_at_a_higher_temperature_is_what_is_said(stage: Stage) -> None:
    sentence = stage.text(" It is a fine day today.")
    _, decoded = stage.decode(stage.saying(*sentence * 3), replace(ENGLISH, compression_ratio_threshold=1.2))
    assert decoded.text == " It is a fine day today." * 3
    assert decoded.temperature == 0.2
    assert len(stage.session.asked) <= 4 * (len(sentence) * 3 + 2)


def test_one_temperature_is_no_fallback_and_a_loop_is_cut_to_its_first_copy(stage: Stage) -> None:
    loop = stage.text(" Thank you.")
    _, decoded = stage.decode(lambda said: loop[len(said) % len(loop)], replace(ENGLISH, temperatures=(0.0,)))
    assert decoded.text == " Thank you."
    assert decoded.temperature == 0.0
    assert decoded.truncated


def test_a_window_that_never_gets_good_takes_a_bounded_number_of_steps(stage: Stage) -> None:
    words = stage.text(" one two three four five six seven eight nine ten eleven twelve")

    def said(_tokens: list[int]) -> Said:
        return dict.fromkeys(words, 1.0) | dict.fromkeys(range(1000, 9000), 1.0)

    _, decoded = stage.decode(said, duration=2.0)
    limit = 90
    assert len(stage.session.asked) <= 4 * (limit + 3)
    assert decoded.avg_logprob < -1


def test_the_same_window_is_sampled_the_same_every_time(stage: Stage) -> None:
    def said(tokens: list[int]) -> Said:
        return dict.fromkeys(range(1000, 1400), 1.0) | {stage.special.eot: 3.0 + len(tokens)}

    options = replace(ENGLISH, temperatures=(0.8,))
    assert stage.decode(said, options)[1] == stage.decode(said, options)[1]


def test_beams_are_used_at_temperature_0_when_asked_for(stage: Stage) -> None:
    tokens = stage.text(" Hello world")
    _, decoded = stage.decode(stage.saying(*tokens), replace(ENGLISH, beam_size=3))
    assert decoded.text == " Hello world"
    assert len(stage.session.rows) == 3


def test_a_window_in_which_neither_half_believes_in_speech_has_no_text(stage: Stage) -> None:
    def said(tokens: list[int]) -> Said:
        return dict.fromkeys(range(1000, 3000), 1.0) if len(tokens) < 5 else stage.special.eot

    _, decoded = stage.decode(said, heard={"en": 1.0, "silence": 20.0})
    assert (decoded.text, decoded.cues, decoded.tokens) == ("", (), ())
    assert decoded.no_speech_prob > 0.9
    assert decoded.avg_logprob < -1
    assert decoded.temperature == 0.0  # and is not asked again


# --- to the end of the speech ---


def test_a_decoder_that_stops_while_somebody_speaks_goes_on(stage: Stage) -> None:
    first, rest = stage.text(" One two."), stage.text(" Three four.")
    early = [stage.at(0.0), *first, stage.at(8.0)]
    whole = [*early, stage.at(8.0), *rest, stage.at(20.0)]

    def said(tokens: list[int]) -> Said:
        if tokens == early:
            return {stage.special.eot: 30.0, stage.at(8.0): 25.0}
        return whole[len(tokens)] if tokens == whole[: len(tokens)] and len(tokens) < len(whole) else stage.special.eot

    hypotheses, decoded = stage.decode(said, TIMED, duration=21.0, speech=(Span(0.2, 20.5),))
    assert decoded.text == " One two. Three four."
    assert [(cue.start, cue.end) for cue in decoded.cues] == [(0.2, 8.0), (8.0, 20.0)]
    assert hypotheses[-1].text == decoded.text
    assert hypotheses[-1].text.startswith(hypotheses[-2].text[: hypotheses[-2].stable])


def test_an_open_cue_ends_at_its_most_probable_time_so_that_what_follows_is_read(stage: Stage) -> None:
    """The decoder may end without saying when its last cue does."""
    first, rest = stage.text(" One two."), stage.text(" Three four.")
    early = [stage.at(0.0), *first]
    whole = [*early, stage.at(8.0), stage.at(8.0), *rest, stage.at(20.0)]

    def said(tokens: list[int]) -> Said:
        if tokens == early:
            return {stage.special.eot: 30.0, stage.at(8.0): 5.0}
        return whole[len(tokens)] if tokens == whole[: len(tokens)] and len(tokens) < len(whole) else stage.special.eot

    _, decoded = stage.decode(said, TIMED, duration=21.0, speech=(Span(0.2, 20.5),))
    assert decoded.text == " One two. Three four."
    assert [(cue.start, cue.end) for cue in decoded.cues] == [(0.2, 8.0), (8.0, 20.0)]


@pytest.mark.parametrize(
    ("speech", "asked"),
    [((Span(0.5, 11.0),), False), ((Span(0.5, 14.0),), True), ((Span(0.5, 3.0), Span(5.0, 8.0)), True), ((), True)],
    ids=["one utterance", "long", "a pause", "not known"],
)
def test_a_single_utterance_is_decoded_without_timestamps(
    stage: Stage, speech: tuple[Span, ...], *, asked: bool
) -> None:
    stage.decode(stage.saying(*stage.text(" Hi")), TIMED, duration=15.0, speech=speech)
    assert (stage.special.no_timestamps not in stage.session.asked[1]) == asked


def test_when_an_utterance_ends_is_asked_afterwards_and_what_was_not_read_is_read(stage: Stage) -> None:
    first, rest = stage.text(" One two."), stage.text(" Three four.")
    timed = [stage.at(0.0), *first, stage.at(4.0), stage.at(4.0), *rest, stage.at(9.5)]

    def said(tokens: list[int]) -> Said:
        if not tokens or tokens[0] < stage.special.timestamp_begin:
            return first[len(tokens)] if len(tokens) < len(first) else stage.special.eot
        if len(tokens) == 1 + len(first):
            return {stage.special.eot: 30.0, stage.at(4.0): 9.0}
        return timed[len(tokens)] if len(tokens) < len(timed) else stage.special.eot

    _, decoded = stage.decode(said, TIMED, duration=10.0, speech=(Span(0.2, 9.8),))
    assert decoded.text == " One two. Three four."
    assert [(cue.start, cue.end) for cue in decoded.cues] == [(0.2, 4.0), (4.0, 9.5)]


@pytest.mark.parametrize(
    "speech", [(), (Span(0.2, 14.5),), (Span(0.2, 4.0), Span(5.0, 14.6))], ids=["none", "breath", "little"]
)
def test_a_decoder_that_stops_where_the_speech_does_is_done(stage: Stage, speech: tuple[Span, ...]) -> None:
    tokens = [stage.at(0.0), *stage.text(" One two."), stage.at(14.0)]
    _, decoded = stage.decode(stage.saying(*tokens), TIMED, duration=20.0, speech=speech)
    assert decoded.text == " One two."
    assert len(stage.session.asked) == 2 + len(tokens)


def test_what_is_not_believed_when_going_on_is_not_kept(stage: Stage) -> None:
    early = [stage.at(0.0), *stage.text(" One two."), stage.at(8.0)]

    def said(tokens: list[int]) -> Said:
        if tokens[: len(early)] != early:
            return early[len(tokens)]
        if len(tokens) == len(early):
            return {stage.special.eot: 30.0, stage.at(8.0): 25.0}
        return dict.fromkeys(range(1000, 3000), 1.0) if len(tokens) < 20 else stage.special.eot

    hypotheses, decoded = stage.decode(said, TIMED, duration=21.0, speech=(Span(0.2, 20.5),))
    assert decoded.text == hypotheses[-1].text == " One two."
    assert decoded.tokens == tuple(early)


def test_going_on_ends_though_the_decoder_never_gets_further(stage: Stage) -> None:
    """B18: a pair of timestamps at 0.00 keeps the place still."""

    def said(tokens: list[int]) -> Said:
        return stage.at(0.0) if len(tokens) < 2 else {stage.special.eot: 9.0, stage.at(0.0): 8.0}

    _, decoded = stage.decode(said, TIMED, duration=30.0, speech=(Span(0.0, 30.0),))
    assert len(decoded.text) < 5
    assert len(stage.session.asked) < 500


# --- cues ---


def test_cues_lie_in_the_window_and_their_texts_join_to_the_text(stage: Stage) -> None:
    tokens = [stage.at(0.0), *stage.text(" One."), stage.at(2.0), stage.at(2.5), *stage.text(" Two."), stage.at(30.0)]
    _, decoded = stage.decode(stage.saying(*tokens), TIMED, duration=14.0, speech=(Span(0.0, 14.0),))
    assert decoded.cues == (
        Cue(0.0, 2.0, " One.", tuple(stage.text(" One."))),
        Cue(2.5, 14.0, " Two.", tuple(stage.text(" Two."))),
    )
    assert "".join(cue.text for cue in decoded.cues) == decoded.text


def test_without_timestamps_a_window_is_one_cue_around_its_speech(stage: Stage) -> None:
    _, decoded = stage.decode(stage.saying(*stage.text(" One. Two.")), duration=9.0, speech=(Span(0.5, 3), Span(4, 8)))
    assert [(cue.start, cue.end, cue.text) for cue in decoded.cues] == [(0.5, 8, " One. Two.")]


def test_words_are_asked_for_only_when_wanted_and_only_of_text(stage: Stage) -> None:
    asked: list[str] = []

    class Aligner:
        def __call__(
            self, window: EncodedWindow, cues: Sequence[Cue], logprobs: Sequence[float], *, language: str, task: str
        ) -> tuple[Cue, ...]:
            asked.append(f"{language} {task} {window.duration} {len(logprobs)}")
            return tuple(cues)

        def beside(self, decoder: object) -> Aligner:
            raise AssertionError(decoder)

    for options, text in ((TIMED, " Hi"), (replace(TIMED, word_timestamps=True), " Hi")):
        stage.decoder(stage.saying(stage.at(0), *stage.text(text), stage.at(1)), options)
        decoder = WindowDecoder(stage.session, stage.tokenizer, stage.config, Aligner)
        finish(decoder, EncodedWindow(0, STATES, 2.0, ()), decoder.recording(options))
    assert asked == ["en transcribe 2.0 1"]


def test_decoding_logs_no_text(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        stage.decode(stage.saying(*stage.text(" secret words")))
    assert "secret" not in caplog.text


@pytest.mark.parametrize(
    ("words", "length", "is_sound"), [(1, 0.8, True), (1, 2.9, True), (5, 3.0, True), (4, 3.0, False), (12, 9.0, False)]
)
def test_a_text_far_too_short_for_its_speech_is_not_taken_from_a_sample(
    stage: Stage, words: int, length: float, is_sound: bool
) -> None:
    speech, options = (Span(0.0, length),), replace(ENGLISH, timestamps=False)
    decoder = stage.decoder(stage.saying(*stage.text(" a") * words), options)
    context = AudioContext(1000, 1500)
    window = EncodedWindow(0, np.zeros((len(context.counts), 512), np.float32), 10.0, speech, context)
    for final in (False, True):
        _, decoded = finish(decoder, replace(window, is_final=final), stage.recording)
        assert (decoded is not None) == (is_sound or final)
