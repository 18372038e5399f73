"""A model's vocabulary, from `vocabulary.txt` or from whichever files of a Hugging Face folder have it.

`vocabulary.txt` has one byte-level token a line, line number = id. `tokenizer.json` has all tokens, or all but the
timestamps; checkpoints whose tokenizer was saved in the older form have `vocab.json` (text) and `added_tokens.json`
(the rest).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from susurrus.models.errors import COPY, REPAIR, ModelError, reason

VOCABULARY_FILE = "vocabulary.txt"
TOKENIZER_FILES = ("tokenizer.json", "vocab.json")
"""One of them has to be there."""
TIMESTAMPS = tuple(f"<|{index * 0.02:.2f}|>" for index in range(1501))
"""`<|0.00|>` to `<|30.00|>`: a step of 0.02 s is one encoder position, 30 s one window."""

_NO_TIMESTAMPS = "<|notimestamps|>"


def load_vocabulary(directory: Path, n_vocab: int) -> tuple[list[str], Path]:
    """The vocabulary of a model directory of either layout, and the file that it was read from.

    Raises:
        ModelError: A file is missing or damaged, or has another number of tokens.
    """
    path = directory / VOCABULARY_FILE
    if not path.is_file():
        found = next((directory / name for name in TOKENIZER_FILES if (directory / name).is_file()), None)
        if found is not None:
            return read_hugging_face_tokens(directory, n_vocab), found
    return read_vocabulary(path, n_vocab), path


def read_vocabulary(path: Path, n_vocab: int) -> list[str]:
    r"""Reads `vocabulary.txt`: token i is line i, and `\n` alone ends a line.

    Raises:
        ModelError: The file is missing, not UTF-8 or not of `n_vocab` tokens.
    """
    try:
        vocabulary = path.read_bytes().decode().removesuffix("\n").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ModelError(f"{path}: {reason(error)}; {REPAIR}") from error
    if len(vocabulary) != n_vocab:
        raise ModelError(f"{path}: {len(vocabulary)} tokens, the model has {n_vocab}; {REPAIR}")
    return vocabulary


def read_hugging_face_tokens(directory: Path, n_vocab: int) -> list[str]:
    """Token i at index i.

    Args:
        directory: The folder.
        n_vocab: Tokens of the model, special ones and timestamps included.

    Raises:
        ModelError: No file has the vocabulary of such a model.
    """
    refusals = []
    for path in (directory / name for name in TOKENIZER_FILES if (directory / name).is_file()):
        try:
            return complete_tokens(_in_order(_read_ids(path)), n_vocab)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            refusals.append(f"{path} holds no vocabulary of this model ({error})")
    if not refusals:
        raise ModelError(
            f"{directory} has neither {' nor '.join(TOKENIZER_FILES)}: copy the checkpoint's tokenizer too"
        )
    raise ModelError(f"{'; '.join(refusals)}: {COPY}")


def _read_ids(path: Path) -> dict[str, int]:
    """Token -> id of `tokenizer.json`, or of `vocab.json` and `added_tokens.json` beside it."""
    document = json.loads(path.read_bytes())
    if path.name == TOKENIZER_FILES[0]:
        return {**document["model"]["vocab"], **{entry["content"]: entry["id"] for entry in document["added_tokens"]}}
    added = path.with_name("added_tokens.json")
    return {**document, **(json.loads(added.read_bytes()) if added.is_file() else {})}


def _in_order(ids: Mapping[str, int]) -> list[str]:
    if sorted(ids.values()) != list(range(len(ids))):
        raise ValueError("its ids are not one run from 0")
    return sorted(ids, key=ids.__getitem__)


def complete_tokens(tokens: Sequence[str], n_vocab: int) -> list[str]:
    """The same tokens; timestamps are added when they are what is missing, and nothing else.

    Args:
        tokens: Token i at index i.
        n_vocab: How many the model has.

    Raises:
        ValueError: These are not the tokens of such a model.
    """
    missing = len(tokens) == n_vocab - len(TIMESTAMPS) and tokens[-1] == _NO_TIMESTAMPS
    complete = [*tokens, *(TIMESTAMPS if missing else ())]
    if len(complete) != n_vocab:
        raise ValueError(f"it has {len(tokens)} tokens, the model has {n_vocab}")
    if any(not isinstance(token, str) or "\n" in token for token in complete):
        raise ValueError("a token is not one line of text")
    return complete
