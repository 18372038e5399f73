"""What a model is, all read from its own files: its sizes, its audio parameters, what it must never sample.

A model directory holds `model.json` (`ModelConfig`, written once by the builder) and `vocabulary.txt`; an Optimum
export the JSON files of its Hugging Face checkpoint instead.

References: config.json of CTranslate2; config.json, generation_config.json and preprocessor_config.json of Hugging
Face.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Self

from susurrus.models.dimensions import AudioParameters, Dimensions
from susurrus.models.errors import COPY, REPAIR, ModelError, reason

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

FORMAT = 1
MODEL_FILE = "model.json"
CONFIG_FILE = "config.json"


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Everything about a model that is not weights or words: the content of `model.json`."""

    name: str
    """`base`, `tiny.en`, ..."""
    dimensions: Dimensions
    audio: AudioParameters
    suppress_tokens: tuple[int, ...]
    """Never sampled: symbols that stand for sounds or speakers, and special tokens."""
    begin_suppress_tokens: tuple[int, ...]
    """Never sampled first: a lone space and the end."""
    alignment_heads: tuple[tuple[int, int], ...] = ()
    """(layer, head) pairs of the decoder whose cross-attention follows the audio."""

    def __post_init__(self) -> None:
        size = self.dimensions
        for token in (*self.suppress_tokens, *self.begin_suppress_tokens):
            if not 0 <= token < size.n_vocab:
                raise ValueError(f"suppressed token {token} is outside the vocabulary of {size.n_vocab}")
        for layer, head in self.alignment_heads:
            if not (0 <= layer < size.n_text_layer and 0 <= head < size.n_text_head):
                raise ValueError(f"alignment head [{layer}, {head}] does not exist in this decoder")
        if size.n_mels != self.audio.n_mels:
            raise ValueError(f"the encoder takes {size.n_mels} mel bins, the audio has {self.audio.n_mels}")
        if 2 * size.n_audio_ctx != self.audio.n_frames:
            raise ValueError(f"{size.n_audio_ctx} encoder positions are not half of {self.audio.n_frames} frames")

    @classmethod
    def from_directory(cls, directory: Path) -> Self:
        """Reads `model.json` of a model directory, or what an Optimum export has instead.

        Raises:
            ModelError: A file is missing, not JSON, of another format, or contradicts itself.
        """
        path = directory / MODEL_FILE
        if not path.exists() and (directory / CONFIG_FILE).exists():
            return cls.from_hugging_face(directory)
        content = _read_json(path)
        if content.get("format") != FORMAT:
            raise ModelError(f"{path}: format {content.get('format')!r} instead of {FORMAT}; {REPAIR}")
        try:
            return cls(
                name=str(content["name"]),
                dimensions=Dimensions(**content["dimensions"]),
                audio=AudioParameters(**content["audio"]),
                suppress_tokens=_integers(content["suppress_tokens"]),
                begin_suppress_tokens=_integers(content["begin_suppress_tokens"]),
                alignment_heads=_pairs(content["alignment_heads"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ModelError(f"{path}: {reason(error)}; {REPAIR}") from error

    @classmethod
    def from_hugging_face(cls, directory: Path) -> Self:
        """Collects the facts, the sizes too, from the JSON files of a Hugging Face checkpoint or an export of one.

        Raises:
            ModelError: See `from_source`.
        """
        path = directory / CONFIG_FILE
        try:
            dimensions = Dimensions.from_hugging_face(_read_json(path, COPY))
        except (KeyError, ValueError) as error:
            raise ModelError(f"{path}: {reason(error)}; {COPY}") from error
        return cls.from_source(directory.resolve().name, dimensions, directory)

    @classmethod
    def from_source(cls, name: str, dimensions: Dimensions, directory: Path) -> Self:
        """Collects the facts from a checkpoint's own JSON files, CTranslate2's or Hugging Face's.

        Reads `config.json`, `generation_config.json` and `preprocessor_config.json` (or the part of newer
        ones' `processor_config.json`), the last two where they exist; a later file wins. CTranslate2's `lang_ids`
        is not used: for tiny.en it is off by one.

        Args:
            name: The model's name.
            dimensions: From the shapes of the weights.
            directory: Where the checkpoint's files lie.

        Raises:
            ModelError: A file is missing, not JSON, lacks suppressed tokens or contradicts the dimensions.
        """
        facts = _read_json(directory / CONFIG_FILE, COPY)
        try:
            if (directory / "processor_config.json").exists():
                facts |= _read_json(directory / "processor_config.json", COPY).get("feature_extractor") or {}
            for optional in ("generation_config.json", "preprocessor_config.json"):
                if (directory / optional).exists():
                    facts |= _read_json(directory / optional, COPY)
            return cls(
                name=name,
                dimensions=dimensions,
                audio=AudioParameters(
                    n_mels=facts.get("feature_size", dimensions.n_mels),
                    **_renamed(facts, sample_rate="sampling_rate"),
                    **_renamed(facts, n_fft="n_fft", hop_length="hop_length", chunk_length="chunk_length"),
                ),
                suppress_tokens=_either(facts, "suppress_ids", "suppress_tokens"),
                begin_suppress_tokens=_either(facts, "suppress_ids_begin", "begin_suppress_tokens"),
                alignment_heads=_pairs(facts.get("alignment_heads") or ()),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ModelError(f"{directory}: {reason(error)}; {COPY}") from error

    def to_json(self) -> str:
        """The text of `model.json`."""
        return json.dumps({"format": FORMAT, **asdict(self)}, indent=1) + "\n"

    def write(self, path: Path) -> None:
        """Writes `model.json` to `path`."""
        path.write_text(self.to_json(), encoding="utf-8")


def _read_json(path: Path, fix: str = REPAIR) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:  # json and UTF-8 errors are ValueErrors
        raise ModelError(f"{path}: {reason(error)}; {fix}") from error
    if not isinstance(content, dict):
        raise ModelError(f"{path}: not a JSON object; {fix}")
    return content


def _integers(values: Any) -> tuple[int, ...]:
    if any(type(value) is not int for value in values):
        raise ValueError(f"{values!r} is not a list of whole numbers")
    return tuple(values)


def _pairs(values: Any) -> tuple[tuple[int, int], ...]:
    return tuple((layer, head) for layer, head in map(_integers, values))


def _either(facts: Mapping[str, Any], first: str, second: str) -> tuple[int, ...]:
    """The token list under either name; a null means an empty one, which transformers leaves out."""
    if first not in facts and second not in facts and "model_type" not in facts:
        raise KeyError(f"{first} or {second}")
    return _integers(facts.get(first, facts.get(second)) or ())


def _renamed(facts: Mapping[str, Any], **names: str) -> dict[str, Any]:
    return {ours: facts[theirs] for ours, theirs in names.items() if theirs in facts}
