"""Builds a model directory from a checkpoint: graphs, weights, vocabulary, mel filters, configuration.

The same checkpoint and the same versions of this package and of `onnx` give the same bytes. The manifest, which makes
the directory count, is written by the caller.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from susurrus.models.checkpoints.checkpoint import Checkpoint
from susurrus.models.checkpoints.files import SourceFiles
from susurrus.models.config import MODEL_FILE, ModelConfig
from susurrus.models.dimensions import AudioParameters
from susurrus.models.errors import ModelError, OptionError
from susurrus.models.graphs.alignment import alignment_graph
from susurrus.models.graphs.builder import Graph, WeightsFile, write_whole
from susurrus.models.graphs.contract import alignment_heads
from susurrus.models.graphs.decoder import decoder_graph, self_test_graph
from susurrus.models.graphs.encoder import cross_attention_graph, encoder_graph
from susurrus.models.graphs.layers import BlockInt8Layers, DynamicInt8Layers, FloatLayers, Layers
from susurrus.models.graphs.smoothing import Calibration, calibration_fits, load_calibration
from susurrus.models.mel import FILTERS_FILE, slaney_filters
from susurrus.models.vocabulary import VOCABULARY_FILE, complete_tokens, read_hugging_face_tokens, read_vocabulary

__all__ = ["PRECISIONS", "Precision", "SourceFiles", "build_model"]

WEIGHTS_FILE = "weights.bin"

Progress = Callable[[str, float], None]
"""Called as (what is being done, fraction done in all)."""

_Make = Callable[[WeightsFile], Graph]


@dataclass(frozen=True, slots=True)
class Precision:
    """How the layers of one folder of graphs are computed."""

    encoder: Layers
    decoder: Layers
    quantized: bool
    """Whether the encoder is smoothed and the cross-attention cache is int8, with float graphs to fall back to."""


PRECISIONS: Mapping[str, Precision] = {
    "int8": Precision(DynamicInt8Layers(), BlockInt8Layers(), quantized=True),
    "float32": Precision(FloatLayers(), FloatLayers(), quantized=False),
}


def build_model(
    checkpoint: Checkpoint,
    source_files: SourceFiles,
    directory: Path,
    *,
    name: str,
    precisions: Sequence[str] = ("int8",),
    progress: Progress | None = None,
) -> list[str]:
    """Writes everything of a model directory but its manifest.

    Args:
        checkpoint: The weights.
        source_files: The checkpoint's other files.
        directory: Where the model goes: made here, or empty.
        name: The model's name, which also chooses the calibration vectors.
        precisions: Folders of graphs to write: `int8`, `float32`.
        progress: Told about every step, if given.

    Returns:
        Warnings, one line each.

    Raises:
        ModelError: The checkpoint's files contradict each other.
        OptionError: A precision does not exist.
        OSError: The directory cannot be written.
    """
    if unknown := set(precisions) - set(PRECISIONS):
        raise OptionError(f"precision {min(unknown)} does not exist: choose from {', '.join(PRECISIONS)}")
    report = progress or (lambda _what, _fraction: None)
    directory.mkdir(parents=True, exist_ok=True)
    config = ModelConfig.from_source(name, checkpoint.dimensions, source_files.config.parent)
    _write_small_files(config, source_files, directory)
    calibration, warnings = _calibration(checkpoint, name) if "int8" in precisions else (None, [])
    for index, precision in enumerate(precisions):
        graphs = _graphs(checkpoint, PRECISIONS[precision], calibration, alignment_heads(config))
        _write_graphs(
            graphs,
            directory / precision,
            precision,
            lambda what, part, index=index: report(what, (index + part) / len(precisions)),  # type: ignore[misc]  # mypy wants no default here
        )
    report("built", 1.0)
    return warnings


def _graphs(
    checkpoint: Checkpoint, precision: Precision, calibration: Calibration | None, heads: Sequence[tuple[int, int]]
) -> dict[str, _Make]:
    """File stem -> what makes the graph, in the order of the weights file."""
    cross = partial(cross_attention_graph, checkpoint, precision.encoder)
    decoder = partial(decoder_graph, checkpoint, precision.decoder)
    alignment = partial(alignment_graph, checkpoint, precision.decoder, heads=heads)
    if not precision.quantized:
        return {
            "encoder": partial(encoder_graph, checkpoint, precision.encoder),
            "cross_attention": partial(cross, quantized=False),
            "decoder": partial(decoder, quantized_cross=False),
            "alignment": partial(alignment, quantized_cross=False),
        }
    return {
        "encoder": partial(encoder_graph, checkpoint, precision.encoder, calibration=calibration),
        "cross_attention": partial(cross, quantized=True),
        "cross_attention_float": partial(cross, quantized=False),
        "decoder": partial(decoder, quantized_cross=True),
        "decoder_float": partial(decoder, quantized_cross=False),
        "alignment": partial(alignment, quantized_cross=True),
        "alignment_float": partial(alignment, quantized_cross=False),
        "self_test": partial(self_test_graph, checkpoint.dimensions),
    }


def _write_graphs(graphs: Mapping[str, _Make], folder: Path, precision: str, report: Progress) -> None:
    folder.mkdir()
    with WeightsFile(folder / WEIGHTS_FILE) as weights:
        for index, (stem, make) in enumerate(graphs.items()):
            report(f"{precision}/{stem}", index / len(graphs))
            make(weights).save(folder / f"{stem}.onnx", precision=precision)


def _calibration(checkpoint: Checkpoint, name: str) -> tuple[Calibration | None, list[str]]:
    calibration = load_calibration(name)
    if calibration is None:
        reason = f"{name} has no calibration vectors"
    elif not calibration_fits(calibration, checkpoint):
        reason = f"the calibration vectors of {name} belong to another encoder"
    else:
        return calibration, []
    return None, [
        f"{reason}: its INT8 encoder is less exact than it could be (python -m susurrus.models.calibrate makes them)"
    ]


def _write_small_files(config: ModelConfig, files: SourceFiles, directory: Path) -> None:
    n_vocab = config.dimensions.n_vocab
    write_whole(directory / VOCABULARY_FILE, "".join(f"{token}\n" for token in _vocabulary(files, n_vocab)).encode())
    write_whole(directory / FILTERS_FILE, _filters(config.audio).encode())
    write_whole(directory / MODEL_FILE, config.to_json().encode())


def _filters(audio: AudioParameters) -> str:
    filters = slaney_filters(audio.sample_rate, audio.n_fft, audio.n_mels)
    facts = {
        "sample_rate": audio.sample_rate,
        "n_fft": audio.n_fft,
        "n_mels": audio.n_mels,
        "scale": "slaney",
    }
    return json.dumps({**facts, "filters": filters.tolist()}) + "\n"


def _vocabulary(files: SourceFiles, n_vocab: int) -> list[str]:
    """Token i at index i, from whichever file has it."""
    path = files.vocabulary
    if path is None:
        return read_hugging_face_tokens(files.tokenizer.parent, n_vocab)
    if path.suffix == ".txt":
        return read_vocabulary(path, n_vocab)
    try:
        return complete_tokens(json.loads(path.read_bytes()), n_vocab)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(f"{path} holds no vocabulary of this model ({error}): fetch it again") from error
