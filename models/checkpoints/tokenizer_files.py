"""Writes a tokenizer in every form that other tools look for, from the vocabulary alone.

Forms: https://github.com/huggingface/tokenizers (`tokenizer.json`) and transformers `tokenization_utils_base.py`. The
merges are derived: those that come with CTranslate2's base lack their first line.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from susurrus.models.errors import ModelError
from susurrus.models.special_tokens import SpecialTokens
from susurrus.models.vocabulary import VOCABULARY_FILE

_BYTE_LEVEL = {"type": "ByteLevel", "trim_offsets": True, "use_regex": True}
_MERGES_HEADER = "#version: 0.2\n"  # GPT-2's; readers skip the line


def write_tokenizer_files(vocabulary: Sequence[str], special: SpecialTokens, directory: Path) -> None:
    """Writes tokenizer.json, vocab.json, merges.txt, added_tokens.json, vocabulary.txt and the settings.

    Args:
        vocabulary: Token i at index i, special tokens and timestamps included.
        special: Which of them are not text.
        directory: An existing folder.

    Raises:
        ModelError: A text token is not made of two others.
        OSError: The folder cannot be written.
    """
    pairs = [" ".join(pair) for pair in merges(vocabulary[: special.eot])]
    text = {token: index for index, token in enumerate(vocabulary[: special.eot + 1])}
    added = {vocabulary[index]: index for index in range(special.eot + 1, len(vocabulary))}
    contents = {
        "tokenizer.json": _tokenizer(vocabulary, special, text, pairs),
        "vocab.json": text,
        "added_tokens.json": added,
        "special_tokens_map.json": _special_tokens(vocabulary, special),
        "tokenizer_config.json": _settings(vocabulary, special),
    }
    for name, content in contents.items():
        _write(directory / name, json.dumps(content, ensure_ascii=False) + "\n")
    _write(directory / "merges.txt", _MERGES_HEADER + "".join(f"{pair}\n" for pair in pairs))
    _write(directory / VOCABULARY_FILE, "".join(f"{token}\n" for token in vocabulary))


def merges(tokens: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The byte pair merges that make text tokens, in order.

    The rank of a merge is the id of its token, so the two parts are what is left of the token's characters when all
    merges of lower ranks are done (as tiktoken's vocabularies are turned into lists of merges).

    Args:
        tokens: Token i at index i, in byte-level spelling.

    Raises:
        ModelError: A token is not made of two others.
    """
    ranks = {token: rank for rank, token in enumerate(tokens)}
    for rank, token in enumerate(tokens):
        parts = list(token)
        while len(parts) > 2:
            pairs = [ranks.get(first + second, rank) for first, second in pairwise(parts)]
            if (best := min(pairs)) == rank:
                raise ModelError(f"token {rank} of the vocabulary, {token!r}, is not made of two others: take another")
            at = pairs.index(best)
            parts[at : at + 2] = [tokens[best]]
        if len(parts) == 2:  # single bytes are given
            yield parts[0], parts[1]


def _write(path: Path, text: str) -> None:
    path.write_bytes(text.encode())  # the same bytes on every system


def _tokenizer(
    vocabulary: Sequence[str], special: SpecialTokens, text: Mapping[str, int], pairs: Sequence[str]
) -> dict[str, Any]:
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": i, "content": vocabulary[i], **_added(timestamp=i >= special.timestamp_begin)}
            for i in range(special.eot, len(vocabulary))
        ],
        "normalizer": None,
        "pre_tokenizer": {**_BYTE_LEVEL, "add_prefix_space": False},
        "post_processor": _template(vocabulary, special),
        "decoder": {**_BYTE_LEVEL, "add_prefix_space": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": "",
            "end_of_word_suffix": "",
            "fuse_unk": False,
            "vocab": text,
            "merges": pairs,
        },
    }


def _added(*, timestamp: bool) -> dict[str, bool]:
    """Timestamps are not special: transformers counts them from the last special token on."""
    strips = dict.fromkeys(("single_word", "lstrip", "rstrip"), False)
    return {**strips, "normalized": timestamp, "special": not timestamp}


def _template(vocabulary: Sequence[str], special: SpecialTokens) -> dict[str, Any]:
    """How a text without its language and task is wrapped."""
    start = [_special(vocabulary[token], 0) for token in (special.sot, special.no_timestamps)]
    first, second = ({"Sequence": {"id": name, "type_id": index}} for index, name in enumerate("AB"))
    end = vocabulary[special.eot]
    return {
        "type": "TemplateProcessing",
        "single": [*start, first, _special(end, 0)],
        "pair": [*start, first, second, _special(end, 1)],
        "special_tokens": {
            vocabulary[token]: {"id": vocabulary[token], "ids": [token], "tokens": [vocabulary[token]]}
            for token in (special.eot, special.sot, special.no_timestamps)
        },
    }


def _special(token: str, sequence: int) -> dict[str, Any]:
    return {"SpecialToken": {"id": token, "type_id": sequence}}


def _special_tokens(vocabulary: Sequence[str], special: SpecialTokens) -> dict[str, Any]:
    ends = dict.fromkeys(("bos_token", "eos_token", "pad_token", "unk_token"), vocabulary[special.eot])
    return {**ends, "additional_special_tokens": list(vocabulary[special.eot : special.timestamp_begin])}


def _settings(vocabulary: Sequence[str], special: SpecialTokens) -> dict[str, Any]:
    return {
        **_special_tokens(vocabulary, special),
        "add_prefix_space": False,
        "clean_up_tokenization_spaces": True,
        "errors": "replace",
        "model_max_length": 1024,
        "processor_class": "WhisperProcessor",
        "tokenizer_class": "WhisperTokenizer",
    }
