"""Several windows at once: each says what it says alone, to the bit, however they come and go."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from susurrus.models.config import ModelConfig
from susurrus.models.context import AudioContext
from susurrus.models.decoder_batch import DecoderBatch
from susurrus.models.decoding import WindowDecoder
from susurrus.models.ladder import EncodedWindow
from susurrus.models.options import DecodingOptions
from susurrus.models.results import DecodedWindow, Hypothesis, Span
from susurrus.models.sessions import Decoder
from susurrus.models.side_by_side import Finished, SideBySide
from susurrus.models.tokenizer import Tokenizer
from tests.models.tiny import DIMENSIONS

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

SIZES = [(20, 20), (7, 7), (19, 50), (50, 50), (30, 50)]  # kept positions and all, of five windows


def states(number: int) -> tuple[NDArray[np.float32], AudioContext]:
    """Hidden states of a window, and which positions they are."""
    context = AudioContext(*SIZES[number])
    rng = np.random.default_rng(number)
    return rng.standard_normal((len(context.counts), 64)).astype(np.float32), context


@pytest.fixture(scope="module")
def single(tiny: Path) -> Decoder:
    """One to compare with."""
    return Decoder(tiny, threads=1)


@pytest.fixture(scope="module")
def batch(single: Decoder) -> DecoderBatch:
    """Three others."""
    return DecoderBatch(single.graphs, 3)


@st.composite
def rounds(draw: st.DrawFn) -> list[list[tuple[str, int]]]:
    """What each of three decoders does, round after round."""
    token = st.integers(0, DIMENSIONS.n_vocab - 1)
    deed = st.tuples(st.sampled_from(["step", "step", "step", "other", "rewind", "begin", "rows", "rest"]), token)
    return draw(st.lists(st.lists(deed, min_size=3, max_size=3), min_size=1, max_size=12))


@given(plan=rounds())
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_steps_run_ahead_in_a_batch_are_the_steps_themselves(
    single: Decoder, batch: DecoderBatch, plan: list[list[tuple[str, int]]]
) -> None:
    """Windows begin, are rewound, step otherwise than they said or with several rows, and rest, at any time."""
    members = batch.decoders
    windows, said, found = [0, 1, 2], [[1], [2], [3]], [np.zeros(0, np.float32)] * 3
    for number, decoder in enumerate(members):
        begin(decoder, number)
        found[number] = decoder.step([number + 1]).copy()
    for deeds in plan:
        for decoder, (deed, token), row in zip(members, deeds, said, strict=True):
            if deed in ("step", "other") and len(row) < 30:
                decoder.announce(token)
        batch.run()
        for number, decoder in enumerate(members):
            deed, token = deeds[number]
            if deed == "begin":
                windows[number] = (windows[number] + 3) % len(SIZES)
                begin(decoder, windows[number])
            logits = do(decoder, deed, token, said[number])
            found[number] = found[number] if logits is None else logits
    for number, row in enumerate(said):
        if row and plan[-1][number][0] in ("step", "other", "begin"):
            begin(single, windows[number])
            assert np.array_equal(found[number], [single.step([token]).copy() for token in row][-1])


def do(decoder: Decoder, deed: str, token: int, said: list[int]) -> NDArray[np.float32] | None:
    """One deed, noted in what the decoder has said; the logits of a step."""
    if deed == "begin":
        said.clear()
    if deed == "rewind":
        del said[len(said) // 2 :]
        decoder.rewind(len(said))
    if deed == "rows" and said:
        decoder.expand(2)
        decoder.step_rows([token, token])
        decoder.rewind(len(said))
    if deed not in ("step", "other", "begin") or len(said) >= 30:
        return None
    said.append(token if deed == "step" else (token + 1) % DIMENSIONS.n_vocab)  # not what was announced
    return decoder.step(said[-1:]).copy()


def begin(decoder: Decoder, number: int) -> None:
    hidden_states, context = states(number)
    decoder.begin(hidden_states, context.log_counts)


@pytest.mark.parametrize("options", [DecodingOptions(language="en"), DecodingOptions(language="en", timestamps=False)])
def test_windows_side_by_side_give_what_each_gives_alone(tiny: Path, options: DecodingOptions) -> None:
    config, tokenizer = ModelConfig.from_directory(tiny), Tokenizer.from_directory(tiny)
    decoder = WindowDecoder(Decoder(tiny, threads=1), tokenizer, config)
    windows = [
        EncodedWindow.in_recording(number, (hidden, AudioContext(50, 50)), 0.0, 1.0, (Span(0.1, 0.9),))
        for number, hidden in enumerate(
            np.random.default_rng(number).standard_normal((50, 64)).astype(np.float32) for number in range(7)
        )
    ]
    alone = [decode_alone(decoder, window, options) for window in windows]
    side_by_side = SideBySide[int](decoder, 3)
    assert side_by_side.room == 3
    found: dict[int, tuple[list[Hypothesis], DecodedWindow | None]] = {}
    hypotheses: dict[int, list[Hypothesis]] = {number: [] for number in range(7)}
    waiting = list(range(7))
    while waiting or side_by_side.keys:
        while waiting and len(side_by_side.keys) < side_by_side.room:
            number = waiting.pop(0)
            side_by_side.begin(number, windows[number], decoder.recording(options))
        for number, outcome in side_by_side.turn():
            if isinstance(outcome, Finished):
                found[number] = hypotheses[number], outcome.window
            else:
                assert isinstance(outcome, Hypothesis)
                hypotheses[number].append(outcome)
    assert [found[number] for number in range(7)] == alone


def decode_alone(
    decoder: WindowDecoder, window: EncodedWindow, options: DecodingOptions
) -> tuple[list[Hypothesis], DecodedWindow | None]:
    steps, hypotheses = decoder.decode(window, decoder.recording(options)), list[Hypothesis]()
    while True:
        try:
            hypothesis = next(steps)
        except StopIteration as stop:
            return hypotheses, stop.value
        hypotheses += [] if hypothesis is None else [hypothesis]


def test_an_error_ends_its_window_alone(tiny: Path) -> None:
    config, tokenizer = ModelConfig.from_directory(tiny), Tokenizer.from_directory(tiny)
    decoder = WindowDecoder(Decoder(tiny, threads=1), tokenizer, config)
    side_by_side = SideBySide[str](decoder, 2)
    full, options = AudioContext(50, 50), DecodingOptions(language="en")
    good = EncodedWindow(0, np.ones((50, 64), np.float32), 1.0, (), full)
    side_by_side.begin("bad", EncodedWindow(0, np.ones((50, 3), np.float32), 1.0, (), full), decoder.recording(options))
    side_by_side.begin("good", good, decoder.recording(options))
    ended: dict[str, object] = {}
    while side_by_side.keys:
        ended |= {key: outcome for key, outcome in side_by_side.turn() if not isinstance(outcome, Hypothesis)}
    assert isinstance(ended["bad"], ValueError)
    assert isinstance(ended["good"], Finished)
    assert ended["good"].window == decode_alone(decoder, good, options)[1]


def test_a_window_that_is_dropped_makes_room(tiny: Path) -> None:
    config, tokenizer = ModelConfig.from_directory(tiny), Tokenizer.from_directory(tiny)
    decoder = WindowDecoder(Decoder(tiny, threads=1), tokenizer, config)
    side_by_side = SideBySide[int](decoder, 1)
    window = EncodedWindow(0, np.ones((50, 64), np.float32), 1.0, (), AudioContext(50, 50))
    for key in range(3):
        side_by_side.begin(key, window, decoder.recording(DecodingOptions(language="en")))
        side_by_side.turn()
        side_by_side.drop(key)
    assert side_by_side.keys == []


def test_float32_windows_are_decoded_one_at_a_time(tiny: Path) -> None:
    """The order of its sums depends on the number of rows, and a reference says the same every time."""
    config, tokenizer = ModelConfig.from_directory(tiny), Tokenizer.from_directory(tiny)
    decoder = WindowDecoder(Decoder(tiny, precision="float32", threads=1), tokenizer, config)
    assert SideBySide[int](decoder, 4).room == 1
