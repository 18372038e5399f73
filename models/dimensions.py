"""The sizes of a model: its network's, and how samples become mel frames.

References: `ModelDimensions` in whisper/model.py and the constants of whisper/audio.py (openai-whisper);
config.json of Hugging Face.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Mapping


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


def _require_positive_integers(sizes: Dimensions | AudioParameters) -> None:
    for field in fields(sizes):
        value = getattr(sizes, field.name)
        if type(value) is not int or value < 1:  # bool is an int to isinstance
            raise ValueError(f"{field.name} is {value!r}, not a whole number above 0")
