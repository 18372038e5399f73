"""The sessions: caches in place, contracts checked at load, and the way out where int8 cross-attention fails."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tracemalloc
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
import soundfile
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from susurrus.models import decoder_graphs
from susurrus.models.errors import ModelError
from susurrus.models.graphs.contract import self_test_contract
from susurrus.models.graphs.self_test import TOLERANCE, float_cross_attention, relative_error, self_test_inputs
from susurrus.models.mel import LogMel
from susurrus.models.sessions import Decoder, Encoder
from susurrus.models.tokenizer import Tokenizer
from tests.conftest import SAMPLES
from tests.models.numpy_whisper import attend, relative_rms
from tests.models.tiny import DIMENSIONS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

INT8_NOISE = 0.05  # relative; a prompt in one run and in several rounds activations differently
HIDDEN_STATES = np.random.default_rng(0).standard_normal((20, 64)).astype(np.float32)
OTHER_WINDOW = np.random.default_rng(1).standard_normal((7, 64)).astype(np.float32)
TOKENS = [257, 258, 5, 9, 300, 17, 40, 41, 1000, 3]


@pytest.fixture(scope="module")
def exact(tiny: Path) -> Decoder:
    """A float32 decoder, which every test begins anew."""
    return Decoder(tiny, precision="float32", threads=1)


@pytest.fixture(scope="module")
def quantized(tiny: Path) -> Decoder:
    """An INT8 decoder, which every test begins anew."""
    return Decoder(tiny, precision="int8", threads=1)


def logits_of(decoder: Decoder, *pieces: Sequence[int]) -> NDArray[np.float32]:
    """Logits after the last of some steps."""
    for piece in pieces:
        logits = decoder.step(piece)
    return logits.copy()


@given(cuts=st.sets(st.integers(1, len(TOKENS) - 1)))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_tokens_in_pieces_give_what_they_give_at_once(exact: Decoder, cuts: set[int]) -> None:
    exact.begin(HIDDEN_STATES)
    at_once = logits_of(exact, TOKENS)
    exact.begin(HIDDEN_STATES)
    edges = [0, *sorted(cuts), len(TOKENS)]
    in_pieces = logits_of(exact, *(TOKENS[a:b] for a, b in pairwise(edges)))
    assert np.abs(in_pieces - at_once).max() < 1e-5
    assert exact.position == len(TOKENS)


def test_prompt_then_steps_is_the_same_to_rounding_in_int8(quantized: Decoder) -> None:
    quantized.begin(HIDDEN_STATES)
    at_once = logits_of(quantized, TOKENS)
    quantized.begin(HIDDEN_STATES)
    assert relative_rms(logits_of(quantized, TOKENS[:4], *([token] for token in TOKENS[4:])), at_once) < INT8_NOISE


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_a_rewound_decoder_is_as_if_the_tokens_had_never_been(tiny: Path, precision: str) -> None:
    decoder = Decoder(tiny, precision=precision, threads=1)
    decoder.begin(HIDDEN_STATES)
    straight = logits_of(decoder, TOKENS[:4], [11])
    decoder.rewind()
    decoder.step(TOKENS[:4])
    decoder.step([999])
    decoder.step([1000, 1001])
    decoder.rewind(4)
    assert decoder.position == 4
    assert np.array_equal(logits_of(decoder, [11]), straight)


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_a_new_window_forgets_the_old_one(tiny: Path, precision: str) -> None:
    decoder = Decoder(tiny, precision=precision, threads=1)
    decoder.begin(OTHER_WINDOW)
    fresh = logits_of(decoder, TOKENS[:3], [7])
    decoder.begin(HIDDEN_STATES)
    decoder.step(TOKENS)
    decoder.begin(OTHER_WINDOW)
    assert decoder.position == 0
    assert np.array_equal(logits_of(decoder, TOKENS[:3], [7]), fresh)


@pytest.mark.parametrize("positions", [1, 2, 3])
def test_a_prompt_may_be_longer_than_the_window(quantized: Decoder, exact: Decoder, positions: int) -> None:
    found = []
    for decoder in (quantized, exact):
        decoder.begin(HIDDEN_STATES[:positions])
        found.append(logits_of(decoder, TOKENS))
    assert relative_rms(found[0], found[1]) < INT8_NOISE


def test_the_context_can_be_filled_to_its_last_position(exact: Decoder) -> None:
    exact.begin(HIDDEN_STATES)
    exact.step([5] * (DIMENSIONS.n_text_ctx - 1))
    exact.step([6])
    with pytest.raises(ValueError, match="41 tokens do not fit"):
        exact.step([7])
    assert exact.position == DIMENSIONS.n_text_ctx
    exact.rewind(2)
    exact.step([8])


def test_logits_are_a_view_that_the_next_step_overwrites(exact: Decoder) -> None:
    exact.begin(HIDDEN_STATES)
    first = exact.step([5])
    held = first.copy()
    second = exact.step([900])
    assert first.shape == (DIMENSIONS.n_vocab,)
    assert np.shares_memory(first, second)
    assert not np.array_equal(held, second)


def test_the_same_steps_give_the_same_bits(tiny: Path) -> None:
    found = []
    for _ in range(2):
        decoder = Decoder(tiny, threads=2)
        decoder.begin(HIDDEN_STATES)
        found.append(logits_of(decoder, TOKENS[:4], *([token] for token in TOKENS[4:])))
    assert np.array_equal(found[0], found[1])


def test_a_step_needs_a_window(tiny: Path) -> None:
    with pytest.raises(RuntimeError, match="begin"):
        Decoder(tiny, threads=1).step([5])


@pytest.mark.parametrize("tokens", [[], [-1], [DIMENSIONS.n_vocab], [5, 10**9]])
def test_tokens_outside_the_vocabulary_are_refused(exact: Decoder, tokens: list[int]) -> None:
    exact.begin(HIDDEN_STATES)
    with pytest.raises(ValueError, match="tokens"):
        exact.step(tokens)
    assert exact.position == 0


@pytest.mark.parametrize("position", [-1, 4])
def test_rewinding_to_where_nothing_was_is_refused(exact: Decoder, position: int) -> None:
    exact.begin(HIDDEN_STATES)
    exact.step([1, 2, 3])
    with pytest.raises(ValueError, match="3 tokens are in the cache"):
        exact.rewind(position)


# Several rows -----------------------------------------------------------------------------------------------------

ROWS = [[7, 8, 9, 10, 11], [300, 5, 5, 1000, 2], [17, 40, 41, 3, 260]]  # what three hypotheses go on with


def alone(decoder: Decoder, tokens: Sequence[int]) -> NDArray[np.float32]:
    """Logits after some tokens, one by one and in the only row of the window."""
    decoder.rewind()
    return logits_of(decoder, *([token] for token in tokens))


@pytest.mark.parametrize(("precision", "tolerance"), [("float32", 1e-5), ("int8", INT8_NOISE)])
def test_rows_side_by_side_say_what_each_says_alone(tiny: Path, precision: str, tolerance: float) -> None:
    decoder, single = (Decoder(tiny, precision=precision, threads=1) for _ in range(2))
    decoder.begin(HIDDEN_STATES)
    single.begin(HIDDEN_STATES)
    for token in TOKENS:
        decoder.step([token])
    decoder.expand(3)
    for count in range(1, 6):
        found = decoder.step_rows([row[count - 1] for row in ROWS])
        assert found.shape == (3, DIMENSIONS.n_vocab)
        assert found.dtype == np.float32
        for row, logits in zip(ROWS, found, strict=True):
            assert relative_rms(logits, alone(single, TOKENS + row[:count])) < tolerance
    assert decoder.position == len(TOKENS) + 5


def test_rows_side_by_side_say_what_each_says_alone_with_float_cross_attention(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoder_graphs, "_int8_cross_attention_works", lambda *_: False)
    decoder, single = (Decoder(tiny, threads=1) for _ in range(2))
    decoder.begin(HIDDEN_STATES)
    single.begin(HIDDEN_STATES)
    decoder.expand(3)
    found = decoder.step_rows([row[0] for row in ROWS])
    for row, logits in zip(ROWS, found, strict=True):
        assert relative_rms(logits, alone(single, row[:1])) < INT8_NOISE


def test_five_hypotheses_of_a_real_model_say_what_each_says_alone(base: Path) -> None:
    """Every row is computed for itself, in INT8 too: the most probable token is the same."""
    samples, _ = soundfile.read(SAMPLES / "jfk.wav", dtype="float32")
    mel, _ = LogMel.from_directory(base)(samples)
    special = Tokenizer.from_directory(base).special
    prompt = [special.sot, special.languages["en"], special.transcribe, special.timestamp_begin]
    decoder, single = Decoder(base), Decoder(base)
    hidden_states = Encoder(base)(mel[:, :600])
    single.begin(hidden_states)
    decoder.begin(hidden_states)
    single.step(prompt)
    rows = [[int(token)] for token in decoder.step(prompt).argsort()[-5:]]  # as a beam search would
    decoder.expand(5)
    for _ in range(4):
        found = decoder.step_rows([row[-1] for row in rows])
        for row, logits in zip(rows, found, strict=True):
            single.rewind(len(prompt))
            expected = logits_of(single, *([token] for token in row))
            assert logits.argmax() == expected.argmax()
            assert relative_rms(logits, expected) < 1e-3
            row.append(int(logits.argmax()))


@st.composite
def searches(draw: st.DrawFn) -> tuple[list[int], int, list[tuple[list[int], list[int]]]]:
    """A prompt, a number of rows, and what happens in every step: how rows are reordered, and their tokens."""
    token = st.integers(0, DIMENSIONS.n_vocab - 1)
    rows = draw(st.integers(1, 5))
    prompt, steps, left = draw(st.lists(token, max_size=8)), [], rows
    for _ in range(draw(st.integers(1, 5))):
        order = draw(st.lists(st.integers(0, left - 1), min_size=1, max_size=left))
        left = len(order)
        steps.append((order, draw(st.lists(token, min_size=left, max_size=left))))
    return prompt, rows, steps


@given(searches())
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_reordered_rows_are_what_computing_them_anew_gives(
    exact: Decoder, search: tuple[list[int], int, list[tuple[list[int], list[int]]]]
) -> None:
    """Copies, swaps, cycles and fewer rows than before, in caches that earlier searches have left full."""
    prompt, count, steps = search
    exact.begin(HIDDEN_STATES)
    if prompt:
        exact.step(prompt)
    exact.expand(count)
    rows = [list(prompt) for _ in range(count)]
    for order, tokens in steps:
        exact.reorder(order)
        found = exact.step_rows(tokens).copy()
        rows = [[*rows[origin], token] for origin, token in zip(order, tokens, strict=True)]
    assert exact.rows == len(rows)
    for row, logits in zip(rows, found, strict=True):
        assert np.abs(alone(exact, row) - logits).max() < 1e-5


def test_after_several_rows_a_rewound_decoder_is_as_if_they_had_never_been(exact: Decoder) -> None:
    exact.begin(HIDDEN_STATES)
    straight = logits_of(exact, TOKENS, [11])
    exact.rewind(len(TOKENS))
    exact.expand(4)
    exact.step_rows([1, 2, 3, 4])
    exact.reorder([3, 2, 1, 0])
    exact.step_rows([1, 2, 3, 4])
    exact.rewind(len(TOKENS))
    assert exact.rows == 1
    assert np.array_equal(logits_of(exact, [11]), straight)


def test_a_new_window_has_one_row(exact: Decoder) -> None:
    exact.begin(OTHER_WINDOW)
    fresh = logits_of(exact, TOKENS[:3])
    exact.begin(HIDDEN_STATES)
    exact.expand(3)
    exact.step_rows([1, 2, 3])
    exact.begin(OTHER_WINDOW)
    assert (exact.rows, exact.position) == (1, 0)
    assert np.array_equal(logits_of(exact, TOKENS[:3]), fresh)


def test_the_memory_of_more_rows_is_taken_once(tiny: Path) -> None:
    decoder = Decoder(tiny, precision="float32", threads=1)
    decoder.begin(HIDDEN_STATES)
    peaks = []
    for rows in (5, 5, 3, 5):
        tracemalloc.start()
        decoder.step(TOKENS)
        decoder.expand(rows)
        decoder.step_rows([0] * rows)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        decoder.rewind()
    caches = 5 * 4 * 40 * 64 * np.dtype(np.float32).itemsize  # rows, keys and values of two layers, positions, width
    assert peaks[0] > caches
    assert max(peaks[1:]) < caches / 10


def test_what_several_rows_cannot_do_is_refused(exact: Decoder, quantized: Decoder, tiny: Path) -> None:
    with pytest.raises(RuntimeError, match="begin"):
        Decoder(tiny, threads=1).expand(2)
    exact.begin(HIDDEN_STATES)
    exact.step([5])
    with pytest.raises(ValueError, match="2 tokens for 1 rows"):
        exact.step_rows([1, 2])
    for order in ([], [1], [-1], [0, 0]):
        with pytest.raises(ValueError, match="there are 1"):
            exact.reorder(order)
    with pytest.raises(ValueError, match="cannot make 0 rows"):
        exact.expand(0)
    exact.expand(3)
    with pytest.raises(ValueError, match="use step_rows"):
        exact.step([5])
    with pytest.raises(ValueError, match="cannot make 2 rows of 3"):
        exact.expand(2)
    with pytest.raises(ValueError, match="tokens have to be"):
        exact.step_rows([0, 1, DIMENSIONS.n_vocab])
    for _ in range(DIMENSIONS.n_text_ctx - 1):
        exact.step_rows([1, 2, 3])
    with pytest.raises(ValueError, match="41 tokens do not fit"):
        exact.step_rows([1, 2, 3])
    quantized.begin(OTHER_WINDOW)  # 7 positions: the operator takes no more queries than keys
    quantized.expand(7)
    quantized.rewind()
    with pytest.raises(ValueError, match="give 1 to 7"):
        quantized.expand(8)


@pytest.mark.parametrize("shape", [(80, 0), (80, 3), (80, 102), (79, 10), (80,), (1, 80, 10)])
def test_mel_of_another_shape_is_refused(tiny: Path, shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="mel"):
        Encoder(tiny, precision="float32", threads=1)(np.zeros(shape, np.float32))


@pytest.mark.parametrize("shape", [(0, 64), (5, 63), (64,)])
def test_hidden_states_of_another_shape_are_refused(exact: Decoder, shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="hidden states"):
        exact.begin(np.zeros(shape, np.float32))


def test_arrays_of_any_layout_are_taken(tiny: Path, exact: Decoder) -> None:
    encoder = Encoder(tiny, precision="float32", threads=1)
    mel = np.random.default_rng(2).standard_normal((80, 40)).astype(np.float32)
    hidden_states = encoder(mel)
    assert np.array_equal(encoder(np.asfortranarray(mel)), hidden_states)
    exact.begin(hidden_states)
    straight = logits_of(exact, [5])
    exact.begin(np.repeat(hidden_states, 2, axis=0)[::2])
    assert np.array_equal(logits_of(exact, [5]), straight)


def change_graph(path: Path, change: Any) -> None:
    """Rewrites one graph file."""
    model = onnx.load(path, load_external_data=False)
    change(model.graph)
    path.write_bytes(model.SerializeToString())


@pytest.fixture
def copy(tiny: Path, tmp_path: Path) -> Path:
    """A model directory that a test may damage."""
    shutil.copytree(tiny, tmp_path / "tiny")
    return tmp_path / "tiny"


# The self-test and its way out -----------------------------------------------------------------------------------


def test_the_self_test_compares_with_attention_as_numpy_knows_it() -> None:
    contract = self_test_contract(DIMENSIONS)
    inputs = self_test_inputs(contract)
    key, value = (
        inputs[f"cross_{kind}_0"][0].transpose(1, 0, 2).reshape(7, 64) * inputs[f"cross_{kind}_scale_0"][0]
        for kind in ("key", "value")
    )
    inputs["cross_log_counts"] *= 0
    wanted = attend(inputs["query"][0], key, value, 2, causal=False)
    found = float_cross_attention(inputs, 2)
    assert np.abs(found[0] - wanted).max() < 1e-5
    causal = np.stack(
        [attend(inputs["query"][0][i : i + 1], key[: 5 + i], value[: 5 + i], 2, causal=False)[0] for i in range(3)]
    )
    assert relative_error(causal[np.newaxis], found) > 2 * TOLERANCE  # the mistake to look for would be seen
    assert not relative_error(np.full_like(found, np.nan), found) < TOLERANCE


def test_this_runtime_passes_the_self_test(quantized: Decoder) -> None:
    assert quantized.quantized_cross


def test_where_int8_cross_attention_is_wrong_the_float_graphs_take_over(
    tiny: Path, quantized: Decoder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(
        decoder_graphs, "float_cross_attention", lambda inputs, _heads: np.zeros_like(inputs["query"]) + 1
    )
    decoder = Decoder(tiny, threads=1)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert not decoder.quantized_cross
    quantized.begin(HIDDEN_STATES)
    decoder.begin(HIDDEN_STATES)
    for token in TOKENS:
        assert relative_rms(decoder.step([token]), quantized.step([token])) < INT8_NOISE


def test_where_the_operator_is_refused_the_float_graphs_take_over(copy: Path, caplog: pytest.LogCaptureFixture) -> None:
    change_graph(copy / "int8/self_test.onnx", lambda graph: setattr(graph.node[1], "op_type", "NoSuchOperator"))
    decoder = Decoder(copy, threads=1)
    assert len(caplog.records) == 1
    assert not decoder.quantized_cross
    decoder.begin(HIDDEN_STATES)
    decoder.step(TOKENS)


# Loading -----------------------------------------------------------------------------------------------------------


def rename_cache(graph: onnx.GraphProto) -> None:
    """Gives a cache the name that another exporter uses."""
    for node in graph.node:
        for index, name in enumerate(node.input):
            if name == "self_key_0":
                node.input[index] = "past_key_values.0.decoder.key"
    for value in graph.input:
        if value.name == "self_key_0":
            value.name = "past_key_values.0.decoder.key"


def test_a_graph_with_other_inputs_is_refused_with_wanted_and_found(copy: Path) -> None:
    change_graph(copy / "float32/decoder.onnx", rename_cache)
    with pytest.raises(ModelError) as caught:
        Decoder(copy, precision="float32", threads=1)
    message = str(caught.value)
    assert "decoder.onnx" in message
    assert "wanted input self_key_0 float32 [B, 2, 40, 32], found none" in message
    assert "wanted input past_key_values.0.decoder.key absent, found tensor(float) [B, 2, 40, 32]" in message
    assert "\n" not in message


def test_a_graph_of_another_size_is_refused(copy: Path) -> None:
    def widen(graph: onnx.GraphProto) -> None:
        graph.input[0].type.tensor_type.shape.dim[1].dim_value = 128

    change_graph(copy / "int8/encoder.onnx", widen)
    with pytest.raises(ModelError, match=r"encoder\.onnx"):
        Encoder(copy, threads=1)


def test_a_graph_of_another_format_is_refused(copy: Path) -> None:
    path = copy / "int8/encoder.onnx"
    model = onnx.load(path, load_external_data=False)
    onnx.helper.set_model_props(model, {"format": "99"})
    path.write_bytes(model.SerializeToString())
    with pytest.raises(ModelError, match="wanted format 3, found 99"):
        Encoder(copy, threads=1)


@pytest.mark.parametrize("damage", [b"", b"not a graph", None])
def test_a_damaged_graph_is_refused_by_name_in_one_line(copy: Path, damage: bytes | None) -> None:
    path = copy / "int8/decoder.onnx"
    if damage is None:
        path.unlink()
    else:
        path.write_bytes(damage)
    with pytest.raises(ModelError, match=r"decoder\.onnx") as caught:
        Decoder(copy, threads=1)
    assert "\n" not in str(caught.value)


def test_truncated_weights_are_refused(copy: Path) -> None:
    os.truncate(copy / "int8/weights.bin", 5000)
    with pytest.raises(ModelError, match=r"encoder\.onnx"):
        Encoder(copy, threads=1)


def test_a_precision_that_was_not_built_is_named_with_the_command_that_builds_it(copy: Path) -> None:
    shutil.rmtree(copy / "float32")
    for session in (Encoder, Decoder):
        with pytest.raises(ModelError, match=r"python -m susurrus\.models\.provision --precision float32"):
            session(copy, precision="float32")


LOAD_AND_RUN = """
import os, pathlib, sys, numpy
if sys.argv[2] == "one CPU":
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
from susurrus.models.sessions import Decoder, Encoder
directory, before = pathlib.Path(sys.argv[1]), len(os.listdir("/proc/self/task"))
encoder = Encoder(directory, threads=int(sys.argv[3]))
between = len(os.listdir("/proc/self/task"))
decoder = Decoder(directory, threads=int(sys.argv[3]))
decoder.begin(encoder(numpy.zeros((80, 40), numpy.float32)))
decoder.step([1, 2, 3])
print(between - before, len(os.listdir("/proc/self/task")) - between)
"""


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="CPU sets and /proc are Linux's")
@pytest.mark.parametrize(
    ("cpus", "threads", "started"),
    [("one CPU", "0", "0 0"), ("all CPUs", "1", "0 0"), ("all CPUs", "3", "2 4"), ("one CPU", "3", "2 4")],
)
def test_sessions_start_quietly_with_as_many_threads_as_they_may(
    tiny: Path, cpus: str, threads: str, started: str
) -> None:
    command = [sys.executable, "-c", LOAD_AND_RUN, str(tiny), cpus, threads]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert result.stderr == ""  # nothing about CPUs that threads cannot be pinned to
    assert result.stdout.strip() == started  # the caller's own thread works too; the decoder has two sessions
