"""What a model is: its sizes, its audio parameters, its special tokens, all read from the model's own files.

A model directory holds `model.json` (`ModelConfig`, written once by the builder) and `vocabulary.txt` (one
byte-level token a line, line number = id); an Optimum export the JSON files of its Hugging Face checkpoint
instead. Special tokens are found by name in the vocabulary; no id is written down in this code, because
English-only models and large-v3 number them differently.

References: `ModelDimensions` and `is_multilingual` in whisper/model.py, the constants of whisper/audio.py
(openai-whisper); config.json of CTranslate2; config.json, generation_config.json and preprocessor_config.json
of Hugging Face.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, Self

from susurrus.models.errors import ModelError
from susurrus.models.languages import SAME_CODE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

FORMAT = 1
MODEL_FILE = "model.json"
CONFIG_FILE = "config.json"
VOCABULARY_FILE = "vocabulary.txt"

MULTILINGUAL_VOCABULARY = 51865
"""Smallest vocabulary of a multilingual model. English-only models have GPT-2's 50,256 text tokens,
multilingual ones one more, and both add the same special tokens, languages included: so a `<|de|>` says
nothing, and openai-whisper too decides by the size (whisper/model.py, `is_multilingual`)."""

TIMESTAMPS = tuple(f"<|{index * 0.02:.2f}|>" for index in range(1501))
"""`<|0.00|>` to `<|30.00|>`: a step of 0.02 s is one encoder position, 30 s one window."""

_REPAIR = "provision the model again: python -m susurrus.models.provision"
_COPY = "take another copy of the checkpoint"


@dataclass(frozen=True, slots=True)
class Dimensions:
    """Sizes of the network, under the names of openai-whisper's `ModelDimensions`."""

    n_mels: int
    """Mel bins of the encoder's input."""
    n_audio_ctx: int
    """Encoder positions of a full window: half its frames."""
    n_audio_state: int
    """Width of the encoder's hidden states."""
    n_audio_head: int
    """Attention heads of an encoder layer."""
    n_audio_layer: int
    """Encoder layers."""
    n_vocab: int
    """Tokens, special ones and timestamps included."""
    n_text_ctx: int
    """Decoder positions: prompt and sampled tokens together."""
    n_text_state: int
    """Width of the decoder's hidden states."""
    n_text_head: int
    """Attention heads of a decoder layer."""
    n_text_layer: int
    """Decoder layers."""

    def __post_init__(self) -> None:
        _require_positive_integers(self)
        for state, head in ((self.n_audio_state, self.n_audio_head), (self.n_text_state, self.n_text_head)):
            if state % head:
                raise ValueError(f"a width of {state} does not divide into {head} attention heads")

    @classmethod
    def from_hugging_face(cls, facts: Mapping[str, Any]) -> Self:
        """From `config.json` of a Hugging Face checkpoint.

        Raises:
            KeyError: One is missing.
            ValueError: One is no whole number above 0, or the heads do not divide the width.
        """
        return cls(
            n_mels=facts["num_mel_bins"],
            n_audio_ctx=facts["max_source_positions"],
            n_audio_state=facts["d_model"],
            n_audio_head=facts["encoder_attention_heads"],
            n_audio_layer=facts["encoder_layers"],
            n_vocab=facts["vocab_size"],
            n_text_ctx=facts["max_target_positions"],
            n_text_state=facts["d_model"],
            n_text_head=facts["decoder_attention_heads"],
            n_text_layer=facts["decoder_layers"],
        )

    @property
    def head_size(self) -> int:
        """Width of one decoder attention head (64 in every published Whisper)."""
        return self.n_text_state // self.n_text_head


@dataclass(frozen=True, slots=True)
class AudioParameters:
    """How samples become mel frames. The defaults are Whisper's published values (whisper/audio.py)."""

    n_mels: int
    """Mel bins: 80, or 128 from large-v3 on."""
    sample_rate: int = 16000
    """Hertz, mono."""
    n_fft: int = 400
    """Samples in the window of one frame (25 ms)."""
    hop_length: int = 160
    """Samples from one frame to the next (10 ms)."""
    chunk_length: int = 30
    """Seconds the model looks at in one window."""

    def __post_init__(self) -> None:
        _require_positive_integers(self)
        if self.n_samples % self.hop_length:
            raise ValueError(f"hop_length {self.hop_length} does not divide a window of {self.n_samples}")

    @property
    def n_samples(self) -> int:
        """Samples of a full window: 480,000."""
        return self.chunk_length * self.sample_rate

    @property
    def n_frames(self) -> int:
        """Mel frames of a full window: 3,000."""
        return self.n_samples // self.hop_length

    @property
    def n_freqs(self) -> int:
        """Frequency bins of one frame: 201."""
        return self.n_fft // 2 + 1

    @property
    def frames_per_second(self) -> int:
        """Mel frames in one second: 100."""
        return self.sample_rate // self.hop_length


@dataclass(frozen=True, slots=True)
class SpecialTokens:
    """Ids of the tokens that are not text, found by name in the model's vocabulary."""

    eot: int
    """`<|endoftext|>`: the decoder is done; every id below is text."""
    sot: int
    """`<|startoftranscript|>`."""
    translate: int
    """`<|translate|>`: into English."""
    transcribe: int
    """`<|transcribe|>`: in the language spoken."""
    sot_lm: int
    """`<|startoflm|>`, never sent: after it the decoder says a few words, then nothing."""
    sot_prev: int
    """`<|startofprev|>`: the prompt follows."""
    no_speech: int
    """`<|nospeech|>`, spelt `<|nocaptions|>` in some files: never sampled, only its probability counts."""
    no_timestamps: int
    """`<|notimestamps|>`."""
    timestamp_begin: int
    """`<|0.00|>`; the other timestamps follow it in steps of 0.02 s."""
    languages: Mapping[str, int]
    """Language code -> id. English-only models list languages too, without having learnt them."""
    multilingual: bool
    """Whether the model takes a language and a task."""

    @classmethod
    def from_vocabulary(cls, vocabulary: Sequence[str], *, source: str = VOCABULARY_FILE) -> Self:
        """Finds the special tokens by name.

        Args:
            vocabulary: Token i at index i, in GPT-2's byte-level spelling.
            source: The file to name in errors.

        Raises:
            ModelError: A special token is missing or the timestamps are not one run of 0.02 s steps.
        """
        try:
            eot = vocabulary.index("<|endoftext|>")  # the other special tokens come after it in every Whisper
            ids = {token: eot + offset for offset, token in enumerate(vocabulary[eot:])}
            sot, translate, begin = ids["<|startoftranscript|>"], ids["<|translate|>"], ids[TIMESTAMPS[0]]
            no_speech = ids["<|nospeech|>"] if "<|nospeech|>" in ids else ids["<|nocaptions|>"]
            special = cls(
                eot=eot,
                sot=sot,
                translate=translate,
                transcribe=ids["<|transcribe|>"],
                sot_lm=ids["<|startoflm|>"],
                sot_prev=ids["<|startofprev|>"],
                no_speech=no_speech,
                no_timestamps=ids["<|notimestamps|>"],
                timestamp_begin=begin,
                languages=_languages(vocabulary, sot + 1, translate),
                multilingual=len(vocabulary) >= MULTILINGUAL_VOCABULARY,
            )
        except (KeyError, ValueError) as error:
            raise ModelError(f"{source}: not a Whisper vocabulary ({error}); {_fix(source)}") from error
        if tuple(vocabulary[begin : begin + len(TIMESTAMPS)]) != TIMESTAMPS:
            raise ModelError(
                f"{source}: timestamps are not one run from {TIMESTAMPS[0]} to {TIMESTAMPS[-1]}; {_fix(source)}"
            )
        return special


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
            raise ModelError(f"{path}: format {content.get('format')!r} instead of {FORMAT}; {_REPAIR}")
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
            raise ModelError(f"{path}: {_reason(error)}; {_REPAIR}") from error

    @classmethod
    def from_hugging_face(cls, directory: Path) -> Self:
        """Collects the facts, the sizes too, from the JSON files of a Hugging Face checkpoint or an export of one.

        Raises:
            ModelError: See `from_source`.
        """
        path = directory / CONFIG_FILE
        try:
            dimensions = Dimensions.from_hugging_face(_read_json(path, _COPY))
        except (KeyError, ValueError) as error:
            raise ModelError(f"{path}: {_reason(error)}; {_COPY}") from error
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
        facts = _read_json(directory / CONFIG_FILE, _COPY)
        try:
            if (directory / "processor_config.json").exists():
                facts |= _read_json(directory / "processor_config.json", _COPY).get("feature_extractor") or {}
            for optional in ("generation_config.json", "preprocessor_config.json"):
                if (directory / optional).exists():
                    facts |= _read_json(directory / optional, _COPY)
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
            raise ModelError(f"{directory}: {_reason(error)}; {_COPY}") from error

    def to_json(self) -> str:
        """The text of `model.json`."""
        return json.dumps({"format": FORMAT, **asdict(self)}, indent=1) + "\n"

    def write(self, path: Path) -> None:
        """Writes `model.json` to `path`."""
        path.write_text(self.to_json(), encoding="utf-8")


def read_vocabulary(path: Path, n_vocab: int) -> list[str]:
    r"""Reads `vocabulary.txt`: token i is line i, and `\n` alone ends a line.

    Raises:
        ModelError: The file is missing, not UTF-8 or not of `n_vocab` tokens.
    """
    try:
        vocabulary = path.read_bytes().decode().removesuffix("\n").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ModelError(f"{path}: {_reason(error)}; {_REPAIR}") from error
    if len(vocabulary) != n_vocab:
        raise ModelError(f"{path}: {len(vocabulary)} tokens, the model has {n_vocab}; {_REPAIR}")
    return vocabulary


def _languages(vocabulary: Sequence[str], start: int, stop: int) -> Mapping[str, int]:
    """Language code -> id, from the names `<|xx|>` of tokens `start` to `stop`."""
    codes = ((token, vocabulary[token].removeprefix("<|").removesuffix("|>")) for token in range(start, stop))
    return {SAME_CODE.get(code, code): token for token, code in codes}


def _read_json(path: Path, fix: str = _REPAIR) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:  # json and UTF-8 errors are ValueErrors
        raise ModelError(f"{path}: {_reason(error)}; {fix}") from error
    if not isinstance(content, dict):
        raise ModelError(f"{path}: not a JSON object; {fix}")
    return content


def _fix(source: str) -> str:
    """What to do about a vocabulary: ours is written by the builder."""
    return _REPAIR if source.endswith(VOCABULARY_FILE) else _COPY


def _reason(error: Exception) -> str:
    """One line for an exception of Python's own."""
    if isinstance(error, KeyError):
        return f"{error.args[0]} is missing"
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)


def _require_positive_integers(sizes: Dimensions | AudioParameters) -> None:
    for field in fields(sizes):
        value = getattr(sizes, field.name)
        if type(value) is not int or value < 1:  # bool is an int to isinstance
            raise ValueError(f"{field.name} is {value!r}, not a whole number above 0")


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
