"""What has to be known of a model directory before a session is opened, whichever layout it has.

Apart from `models/layouts.py`, because ONNX Runtime takes longer to import than all of this.
"""

from __future__ import annotations

from pathlib import Path

from susurrus.models.errors import OptionError
from susurrus.models.optimum.files import EXPORT_AGAIN, export_precision, is_export
from susurrus.models.options import DecodingOptions
from susurrus.models.provisioning.manifest import DEFAULT_PRECISION
from susurrus.models.tokenizer import Tokenizer

NO_WORD_TIMES = (
    "--word-timestamps: an Optimum export gives no attention weights, from which words get their times; "
    "make this project's layout of its checkpoint: python -m susurrus.models.provision NAME --from CHECKPOINT"
)


def resolve_precision(directory: Path, wanted: str | None = None) -> str:
    """In which arithmetic the sessions of a model will compute.

    Args:
        directory: The model directory.
        wanted: `int8` or `float32`, as the user asked for; None takes `int8` of our own layout, and of an export what
            there is.

    Raises:
        ModelError: A file of an export is missing or cut off.
        OptionError: An export computes in another precision than was asked for.
    """
    return export_precision(directory, wanted) if is_export(directory) else wanted or DEFAULT_PRECISION


def checked_options(directory: Path, options: DecodingOptions) -> DecodingOptions:
    """See `DecodingOptions.checked`, for the model in `directory`.

    Raises:
        ModelError: A file of the vocabulary is missing or damaged.
        OptionError: An option has a value that does not exist for this model.
    """
    checked = options.checked(Tokenizer.from_directory(directory).special)
    if checked.word_timestamps and is_export(directory):
        raise OptionError(NO_WORD_TIMES)
    return checked


def repair(directory: Path, name: str) -> str:
    """What the user can do about a damaged model.

    Args:
        directory: The model directory.
        name: The model's name.
    """
    if is_export(directory):
        return f"copy it again, or {EXPORT_AGAIN}"
    return f"repair it with: python -m susurrus.models.provision {name}"
