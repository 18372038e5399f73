"""Loads a reference pipeline, with weights that are on this machine already where it can: no download is needed."""

from __future__ import annotations

import tempfile
from pathlib import Path

from susurrus.models.checkpoints.files import SourceFiles, open_checkpoint
from susurrus.models.comparison.hugging_face import Transformers
from susurrus.models.comparison.libraries import need, set_threads
from susurrus.models.comparison.openai_whisper import OpenAIWhisper
from susurrus.models.comparison.pipeline import Pipeline
from susurrus.models.config import ModelConfig
from susurrus.models.errors import OptionError
from susurrus.models.optimum.checkpoints import find_checkpoint
from susurrus.models.provisioning.manifest import FILE_NAME, Manifest, Progress
from susurrus.models.provisioning.sources import known_models

OPENAI = "openai-whisper"
TRANSFORMERS = "transformers"
MODULES = {OPENAI: "whisper", TRANSFORMERS: "transformers"}
"""Library on the command line, which is its name on PyPI too -> module."""


def load_reference(
    library: str, directory: Path, checkpoint: Path | None, *, threads: int, progress: Progress
) -> Pipeline:
    """A library with the weights that a model was made from.

    Args:
        library: A key of `MODULES`.
        directory: The model directory that it is to be compared with.
        checkpoint: The weights: a folder of either layout, or a `.pt` file of openai-whisper. None takes those of
            the known model that `directory` says it was made from, which are verified.
        threads: Of torch; 0 leaves the choice to it.
        progress: Told what is read.

    Raises:
        ModelError: The weights are damaged or missing.
        OptionError: The library is not installed, or nobody says which weights it is to have.
    """
    need(MODULES[library], library)
    set_threads(threads)
    if checkpoint is not None and checkpoint.is_file():
        if library != OPENAI:
            raise OptionError(f"--reference-checkpoint {checkpoint} is a file: {library} wants a checkpoint's folder")
        return OpenAIWhisper.from_file(checkpoint)
    if checkpoint is not None and not checkpoint.is_dir():
        raise OptionError(f"--reference-checkpoint {checkpoint} does not exist: name a folder or a .pt file")
    with tempfile.TemporaryDirectory(prefix="susurrus-compare-") as work:
        name = str(checkpoint) if checkpoint else weights_of(directory)
        found = find_checkpoint(name, revision=None, work=Path(work), progress=progress)
        if library == TRANSFORMERS:
            return Transformers(found.folder, found.name)
        return OpenAIWhisper.from_checkpoint(open_checkpoint(SourceFiles.from_directory(found.folder)), found.name)


def weights_of(directory: Path) -> str:
    """The known model whose weights a model directory was made from.

    Raises:
        ModelError: The directory's configuration or manifest is missing or damaged.
        OptionError: It was made from others, or does not say.
    """
    known, source = known_models(), None
    name = ModelConfig.from_directory(directory).name
    if (directory / FILE_NAME).is_file():
        manifest = Manifest.read(directory)
        name, source = manifest.name, manifest.source
    if name not in known:
        raise OptionError(f"{directory} is no known model: name the weights it was made from by --reference-checkpoint")
    pinned = {file: record.sha256 for file, record in known[name].files.items()}
    if source is not None and any(source.get(file) != digest for file, digest in pinned.items()):
        raise OptionError(
            f"{directory} was made from other weights than those known as {name}: name them by --reference-checkpoint"
        )
    return name
