"""Which files of a folder are an Optimum export, whether they are whole, and in which arithmetic they compute.

    encoder_model.onnx  decoder_model.onnx  decoder_with_past_model.onnx      as `optimum-cli export onnx` writes them
    encoder_model.onnx  decoder_model_merged.onnx                             both decoders in one, behind a switch

`optimum-cli onnxruntime quantize` calls what it writes `..._quantized.onnx`, and repositories on the Hugging Face hub
keep all of these in a folder `onnx` below the JSON files.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from susurrus.models.config import MODEL_FILE
from susurrus.models.errors import ModelError, OptionError
from susurrus.models.optimum.protobuf import Outline, read_outline

EXPORT_AGAIN = "export the model again: python -m susurrus.models.export"

ENCODER = "encoder_model"
DECODER = "decoder_model"
WITH_PAST = "decoder_with_past_model"
MERGED = "decoder_model_merged"

_QUANTIZED = ("_quantized", "_int8")  # endings of names, the usual one first
_INTEGER_OPERATORS = frozenset(
    {
        "ConvInteger",
        "DequantizeLinear",
        "DynamicQuantizeLinear",
        "DynamicQuantizeMatMul",
        "MatMulInteger",
        "MatMulIntegerToFloat",
        "MatMulNBits",
        "QLinearConv",
        "QLinearMatMul",
    }
)


@dataclass(frozen=True, slots=True)
class ExportFiles:
    """The graphs of one export."""

    encoder: Path
    decoder: Path
    """Of the first step, or of all steps."""
    with_past: Path | None
    """Of the steps after the first; None where `decoder` holds these too, behind a switch."""


def is_export(directory: Path) -> bool:
    """Whether a model directory holds an Optimum export, be it in parts, and not our own graphs."""
    stems = (ENCODER, DECODER, WITH_PAST, MERGED)
    return not (directory / MODEL_FILE).exists() and any(_pick(directory, stem, None) for stem in stems)


def find_export(directory: Path, precision: str | None = None) -> ExportFiles:
    """Finds the graphs by their names.

    Args:
        directory: The model directory.
        precision: `float32` passes over files that are called quantised; otherwise they come first.

    Raises:
        ModelError: A file is missing.
    """
    encoder, decoder, with_past, merged = (
        _pick(directory, stem, precision) for stem in (ENCODER, DECODER, WITH_PAST, MERGED)
    )
    if merged and not (decoder and with_past):
        decoder, with_past = merged, None
    if encoder is None or decoder is None or (with_past is None and decoder != merged):
        missing = ENCODER if encoder is None else DECODER if decoder is None else WITH_PAST
        raise ModelError(
            f"{directory} has no {missing}.onnx: an Optimum export has {ENCODER}, {DECODER} and {WITH_PAST} "
            f"(or {MERGED}); export with --task automatic-speech-recognition-with-past"
        )
    return ExportFiles(encoder, decoder, with_past)


def export_precision(directory: Path, wanted: str | None = None) -> str:
    """In which arithmetic an export computes; its files are walked through, which takes 0.1 s, and found whole.

    Args:
        directory: The model directory.
        wanted: `int8` or `float32`, as the user asked for; None takes what there is.

    Returns:
        `int8` when one of the graphs computes with integers, else `float32`.

    Raises:
        ModelError: A file is missing, cut off, or no ONNX file.
        OptionError: The files compute in another precision than was asked for.
    """
    files = find_export(directory, wanted)
    graphs = (path for path in (files.encoder, files.decoder, files.with_past) if path)
    operators = set[str]().union(*map(_operators, graphs))
    found = "int8" if _INTEGER_OPERATORS & operators else "float32"
    if wanted not in {None, found}:
        raise OptionError(
            f"--precision {wanted}: the files of {directory} are {found}; leave the option away, "
            f"or name the folder of an export in {wanted}"
        )
    return found


def _pick(directory: Path, stem: str, precision: str | None) -> Path | None:
    """The file of that stem: the quantised one, unless `float32` is wanted; in the folder itself, or in its `onnx`."""
    endings = ("",) if precision == "float32" else (*_QUANTIZED, "")
    places = (folder / f"{stem}{ending}.onnx" for ending in endings for folder in (directory, directory / "onnx"))
    return next((path for path in places if path.is_file()), None)


def _operators(path: Path) -> set[str]:
    state = path.stat()
    outline = _outline(path, state.st_mtime_ns, state.st_size)
    for name in sorted(outline.external):
        if not (path.parent / name).is_file():
            raise ModelError(f"{path.parent / name} is missing: it holds weights of {path.name}; copy it too")
    return outline.operators


@lru_cache(maxsize=16)
def _outline(path: Path, _mtime_ns: int, _size: int) -> Outline:
    """Walked through once a process: a pipeline asks several times while it starts."""
    return read_outline(path)
