"""Finds a checkpoint's files and opens them, whichever layout they have."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Self

from susurrus.models.checkpoints.checkpoint import Checkpoint
from susurrus.models.checkpoints.ctranslate2 import read_ctranslate2
from susurrus.models.checkpoints.safetensors import read_safetensors
from susurrus.models.errors import ModelError
from susurrus.models.vocabulary import TOKENIZER_FILES

__all__ = ["Checkpoint", "SourceFiles", "open_checkpoint"]


@dataclass(frozen=True, slots=True)
class SourceFiles:
    """The files a model is built from, wherever they were found."""

    weights: tuple[Path, ...]
    """`model.bin`, or its parts in order, or the `*.safetensors` shards."""
    config: Path
    """`config.json`; `generation_config.json` and `preprocessor_config.json` are looked for beside it."""
    tokenizer: Path
    """`tokenizer.json`, or `vocab.json` with `added_tokens.json` beside it."""
    vocabulary: Path | None = None
    """`vocabulary.txt` or `vocabulary.json`; None takes the vocabulary from `tokenizer`."""

    @classmethod
    def from_directory(cls, directory: Path) -> Self:
        """Finds the files of a checkpoint folder of either layout.

        Raises:
            ModelError: The folder holds no weights, or lacks `config.json` or the tokenizer.
        """
        patterns = ("model.bin", "model.bin.part*", "*.safetensors")
        in_order = partial(sorted, key=lambda path: (len(path.name), path.name))  # part10 after part9
        weights = next((found for pattern in patterns if (found := in_order(directory.glob(pattern)))), [])
        if not weights:
            raise ModelError(f"{directory} holds no model.bin and no *.safetensors: name a Whisper checkpoint")
        tokenizers = (directory / name for name in TOKENIZER_FILES)
        tokenizer = next((path for path in tokenizers if path.is_file()), directory / TOKENIZER_FILES[0])
        for required in (directory / "config.json", tokenizer):
            if not required.is_file():
                raise ModelError(f"{required} is missing: it belongs to the checkpoint")
        vocabularies = (directory / "vocabulary.txt", directory / "vocabulary.json")
        return cls(
            weights=tuple(weights),
            config=directory / "config.json",
            tokenizer=tokenizer,
            vocabulary=next((path for path in vocabularies if path.is_file()), None),
        )


def open_checkpoint(files: SourceFiles) -> Checkpoint:
    """Opens the weights of `files`; nothing but headers is read yet.

    Raises:
        ModelError: A file is missing, damaged, truncated, or not a Whisper checkpoint.
    """
    if files.weights[0].suffix == ".safetensors":
        return read_safetensors(files.weights, files.config)
    return read_ctranslate2(files.weights)
