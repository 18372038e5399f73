"""A Whisper checkpoint as one value, with CTranslate2's tensor names as the canonical ones.

`encoder/layer_0/self_attention/linear_0/weight`, for instance, holds query, key and value stacked along the output
axis. Names and shapes are those of CTranslate2's `WhisperSpec` (`python/ctranslate2/specs/whisper_spec.py`).
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from susurrus.models.checkpoints.mapped_files import FloatArray
from susurrus.models.dimensions import Dimensions
from susurrus.models.errors import ModelError

Loader = Callable[[], FloatArray]

# (outputs, inputs) of every linear layer, in widths of the hidden states
ENCODER_LINEARS = {
    "self_attention/linear_0": (3, 1),  # query, key, value
    "self_attention/linear_1": (1, 1),
    "ffn/linear_0": (4, 1),
    "ffn/linear_1": (1, 4),
}
DECODER_LINEARS = ENCODER_LINEARS | {
    "attention/linear_0": (1, 1),  # query
    "attention/linear_1": (2, 1),  # key, value of the encoder's hidden states
    "attention/linear_2": (1, 1),
}


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A model's weights under canonical names."""

    dimensions: Dimensions
    """From the tensors' shapes and the number of heads."""
    tensors: Mapping[str, Loader]
    """Name to a function that reads the tensor as float32; nothing is held in between."""
    source: str
    """The file to name in errors."""

    def tensor(self, name: str) -> FloatArray:
        """Reads one tensor, float32.

        Raises:
            ModelError: The checkpoint has no tensor of that name.
        """
        loader = self.tensors.get(name)
        if loader is None:
            raise ModelError(f"{self.source} has no tensor {name}: it is not a whole Whisper checkpoint")
        return loader()


def layer_count(names: Iterable[str], pattern: str) -> int:
    """One more than the highest layer number that `pattern` finds; `encoder/layer_norm` is no layer."""
    return max((int(match[1]) + 1 for name in names if (match := re.match(pattern, name))), default=0)


def dimensions_of(
    shapes: Mapping[str, tuple[int, ...]], *, audio_heads: int, text_heads: int, source: str
) -> Dimensions:
    """Derives the dimensions from canonical shapes and checks every tensor the graphs need against them.

    Raises:
        ModelError: A tensor is missing or has another shape than the rest asks for.
    """

    def shape(name: str, rank: int) -> tuple[int, ...]:
        if len(shapes.get(name, ())) != rank:
            raise ModelError(f"{source} has no {name} of {rank} axes: it is not a whole Whisper checkpoint")
        return shapes[name]

    n_audio_ctx, n_audio_state = shape("encoder/position_encodings/encodings", 2)
    n_vocab, n_text_state = shape("decoder/embeddings/weight", 2)
    try:
        dimensions = Dimensions(
            n_mels=shape("encoder/conv1/weight", 3)[1],
            n_audio_ctx=n_audio_ctx,
            n_audio_state=n_audio_state,
            n_audio_head=audio_heads,
            n_audio_layer=layer_count(shapes, r"encoder/layer_(\d+)/"),
            n_vocab=n_vocab,
            n_text_ctx=shape("decoder/position_encodings/encodings", 2)[0],
            n_text_state=n_text_state,
            n_text_head=text_heads,
            n_text_layer=layer_count(shapes, r"decoder/layer_(\d+)/"),
        )
    except ValueError as error:
        raise ModelError(f"{source}: {error}; it is not a Whisper checkpoint") from error
    for name, wanted in expected_shapes(dimensions).items():
        if shape(name, len(wanted)) != wanted:
            raise ModelError(f"{source}: {name} has shape {list(shapes[name])}, wanted {list(wanted)}")
    return dimensions


def expected_shapes(dimensions: Dimensions) -> dict[str, tuple[int, ...]]:
    """Canonical name to shape of every tensor the graphs are built from."""
    width = dimensions.n_audio_state
    return {
        "encoder/conv1/weight": (width, dimensions.n_mels, 3),
        "encoder/conv1/bias": (width,),
        "encoder/conv2/weight": (width, width, 3),
        "encoder/conv2/bias": (width,),
        "encoder/position_encodings/encodings": (dimensions.n_audio_ctx, width),
        "decoder/embeddings/weight": (dimensions.n_vocab, width),
        "decoder/position_encodings/encodings": (dimensions.n_text_ctx, width),
        **_stack_shapes("encoder", dimensions.n_audio_layer, ENCODER_LINEARS, width),
        **_stack_shapes("decoder", dimensions.n_text_layer, DECODER_LINEARS, width),
    }


def _stack_shapes(
    side: str, layers: int, linears: Mapping[str, tuple[int, int]], width: int
) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {}
    norms = [f"{side}/layer_norm"]
    for prefix in (f"{side}/layer_{layer}" for layer in range(layers)):
        for part, (outputs, inputs) in linears.items():
            shapes[f"{prefix}/{part}/weight"] = (outputs * width, inputs * width)
            shapes[f"{prefix}/{part}/bias"] = (outputs * width,)
            norms.append(f"{prefix}/{part.split('/')[0]}/layer_norm")
    shapes |= {f"{norm}/{kind}": (width,) for norm in norms for kind in ("gamma", "beta")}
    return shapes
