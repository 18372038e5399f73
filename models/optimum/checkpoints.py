"""Which checkpoint a name on the exporter's command line means, as a folder of Hugging Face's layout.

A known model's is made from its verified weights, so nothing has to reach the Hugging Face hub; and so is one of a
folder in CTranslate2's layout.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from susurrus.models.checkpoints.files import SourceFiles, open_checkpoint
from susurrus.models.checkpoints.hugging_face import write_hugging_face
from susurrus.models.config import MODEL_FILE, ModelConfig
from susurrus.models.errors import ModelError
from susurrus.models.provisioning.manifest import Progress, hash_stream
from susurrus.models.provisioning.sources import WEIGHTS, Weights, find_weights, is_weights, known_models
from susurrus.models.vocabulary import load_vocabulary

_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+", re.ASCII)
_WEIGHT_NAMES = ("*.safetensors", "pytorch_model*.bin")
_HUB_FILES = ("*.json", "*.txt")
_HUB_WEIGHTS = (("model.safetensors", "model-*-of-*.safetensors"), ("pytorch_model*.bin",))  # the first that is there


@dataclass(frozen=True, slots=True)
class FoundCheckpoint:
    """A checkpoint in Hugging Face's layout."""

    name: str
    """What to call the model."""
    folder: Path
    """Nothing here may be written to."""
    hashes: Mapping[str, str]
    """SHA-256 of the files that were given: of a known model those that are pinned."""


def find_checkpoint(model: str, *, revision: str | None, work: Path, progress: Progress) -> FoundCheckpoint:
    """Find the checkpoint, fetch it, or make it.

    Args:
        model: The name of a known model, a folder, or an id of the Hugging Face hub, in this order.
        revision: Branch, tag or commit of the hub's repository; None takes its newest.
        work: Existing folder for what is made, the caller's to remove.
        progress: Told what is read.

    Raises:
        ModelError: It is none of them, or damaged, or the hub cannot be reached.
    """
    if model in known_models():
        return _from_known(model, work, progress)
    if Path(model).is_dir():
        return _from_folder(Path(model), work)
    if _HUB_ID.fullmatch(model):
        return _from_hub(model, revision)
    names = ", ".join(known_models())
    raise ModelError(f"{model} is no folder and no known model: give {names}, a checkpoint's folder, or a hub id")


def _from_known(name: str, work: Path, progress: Progress) -> FoundCheckpoint:
    (work / "source").mkdir()
    weights = find_weights(
        name, known_models()[name], source=None, work=work / "source", downloads=work / "download", progress=progress
    )
    return FoundCheckpoint(name, _made(name, _source_files(weights), work / "checkpoint"), weights.hashes)


def _source_files(weights: Weights) -> SourceFiles:
    """As the readers want them; known models have a `vocabulary.txt`."""
    return SourceFiles(
        weights=tuple(part for file, parts in weights.files.items() if is_weights(file) for part in parts),
        config=weights.files["config.json"][0],
        tokenizer=weights.files["tokenizer.json"][0],
        vocabulary=weights.files["vocabulary.txt"][0],
    )


def _made(name: str, files: SourceFiles, folder: Path) -> Path:
    checkpoint = open_checkpoint(files)
    config = ModelConfig.from_source(name, checkpoint.dimensions, files.config.parent)
    vocabulary, _ = load_vocabulary(files.config.parent, checkpoint.dimensions.n_vocab)
    folder.mkdir()
    write_hugging_face(checkpoint, config, vocabulary, folder)
    return folder


def _from_folder(folder: Path, work: Path) -> FoundCheckpoint:
    name = folder.resolve().name
    if any(next(folder.glob(pattern), None) for pattern in _WEIGHT_NAMES):
        if not (folder / "config.json").is_file():
            raise ModelError(f"{folder / 'config.json'} is missing: it belongs to the checkpoint")
        return FoundCheckpoint(name, folder, _hashes(folder))
    if (folder / MODEL_FILE).is_file():
        raise ModelError(f"{folder} is a built model: export its checkpoint, or a known model by its name")
    return FoundCheckpoint(name, _made(name, SourceFiles.from_directory(folder), work / "checkpoint"), _hashes(folder))


def _hashes(folder: Path) -> dict[str, str]:
    wanted = {".json", ".txt", ".safetensors", ".bin"}
    files = sorted(path for path in folder.iterdir() if path.suffix in wanted or path.name.startswith(WEIGHTS))
    return {path.name: hash_stream([path], len) for path in files}


def _from_hub(model: str, revision: str | None) -> FoundCheckpoint:
    from huggingface_hub import snapshot_download  # noqa: PLC0415  # a third of a second, only when needed

    try:
        for patterns in _HUB_WEIGHTS:
            folder = Path(snapshot_download(model, revision=revision, allow_patterns=[*_HUB_FILES, *patterns]))
            if any(next(folder.glob(pattern), None) for pattern in patterns):
                return FoundCheckpoint(model.partition("/")[2], folder, _hashes(folder))
    except Exception as error:  # they come from whichever HTTP client the library's version uses
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        known = model.partition("/")[2].removeprefix("whisper-")
        hint = f"; {known} alone names the same weights, verified" if known in known_models() else ""
        raise ModelError(f"{model} cannot be had from the Hugging Face hub ({reason}){hint}") from error
    raise ModelError(f"{model} has no weights on the Hugging Face hub that can be read: give a checkpoint's folder")
