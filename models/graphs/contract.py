"""What goes into the graphs and comes out of them: the builder declares it, the sessions check it.

A free dimension has a name; B is the batch, S the tokens of one call, C the encoder positions of the window.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from susurrus.models.config import ModelConfig
from susurrus.models.dimensions import Dimensions

GRAPH_FORMAT = "3"
"""Version of these contracts, stamped into the metadata of every graph."""


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """Type and shape of one input or output."""

    dtype: type[np.generic]
    shape: tuple[int | str, ...]

    def __str__(self) -> str:
        return f"{self.dtype.__name__} [{', '.join(map(str, self.shape))}]"


Specs = Mapping[str, TensorSpec]


@dataclass(frozen=True, slots=True)
class Contract:
    """Inputs and outputs of one graph, by name."""

    inputs: Specs
    outputs: Specs


def encoder_contract(dimensions: Dimensions) -> Contract:
    """`mel` [B, n_mels, T], T even and at most 2 n_audio_ctx -> `hidden_states` [B, C, n_audio_state].

    The other inputs say what the C hidden states are (`models/context.py`): `rows` [C], the convolved position, 0 to
    T / 2 - 1, that each takes; `positions` [C], where in the window it stands; `log_counts` [C], the logarithm of how
    many positions it stands for.
    """
    return Contract(
        {
            "mel": TensorSpec(np.float32, ("B", dimensions.n_mels, "T")),
            "rows": TensorSpec(np.int64, ("C",)),
            "positions": TensorSpec(np.int64, ("C",)),
            "log_counts": TensorSpec(np.float32, ("C",)),
        },
        {"hidden_states": TensorSpec(np.float32, ("B", "C", dimensions.n_audio_state))},
    )


def cross_attention_contract(dimensions: Dimensions, *, quantized: bool) -> Contract:
    """`hidden_states` [B, C, D] -> keys and values for every decoder layer, see `cross_cache`."""
    outputs: dict[str, TensorSpec] = {}
    for layer in range(dimensions.n_text_layer):
        outputs |= cross_cache(dimensions, layer, quantized=quantized)
    return Contract({"hidden_states": TensorSpec(np.float32, ("B", "C", dimensions.n_audio_state))}, outputs)


def decoder_contract(dimensions: Dimensions, *, quantized_cross: bool) -> Contract:
    """Appends S tokens to what B rows have: several hypotheses about one window, or one about each of several.

    Inputs: `ids` [B, S]; `positions` [B, S], where in its row each goes; `last_position` [B], that of the last;
    `length`, of the longest row then; the self caches, a row each; the cross caches of W windows, which the B / W rows
    of a window share; `cross_log_counts` [W, L], the logarithm of how many positions each of the first L keys stands
    for (`models/context.py`), with -inf for none.
    With int8 cross caches, S B / W has to be 1 if W is not.
    Outputs: `logits` [B, 1, n_vocab] after the last token; `present_X` for every cache X that is to be bound to X's
    own memory: it is appended to (or, for the int8 cross cache, only handed through) in place.
    """
    inputs = {
        "ids": TensorSpec(np.int64, ("B", "S")),
        "positions": TensorSpec(np.int64, ("B", "S")),
        "last_position": TensorSpec(np.int32, ("B",)),
        "length": TensorSpec(np.int32, ()),
        **_cross_lengths(quantized=quantized_cross),
    }
    outputs = {"logits": TensorSpec(np.float32, ("B", 1, dimensions.n_vocab))}
    for layer in range(dimensions.n_text_layer):
        cross = cross_cache(dimensions, layer, quantized=quantized_cross, batch="W")
        inputs |= self_cache(dimensions, layer) | cross
        outputs |= _present(self_cache(dimensions, layer))
        if quantized_cross:
            outputs |= _present(cross)
    return Contract(inputs, outputs)


def alignment_contract(dimensions: Dimensions, heads: Sequence[tuple[int, int]], *, quantized_cross: bool) -> Contract:
    """`attention` [B, heads, S, A]: how much each of S tokens looks at each of the first A encoder positions.

    Inputs: `ids` [B, S]; `positions` [S], 0 to S - 1; `audio_length` [1], A; of the layers up to the last of the
    (layer, head) pairs, the cross-attention caches, and `cross_log_counts` [1, C] as the decoder takes it. The softmax
    of the output is over A: what comes after the audio has no part.
    """
    inputs = {
        "ids": TensorSpec(np.int64, ("B", "S")),
        "positions": TensorSpec(np.int64, ("S",)),
        "audio_length": TensorSpec(np.int64, (1,)),
        "cross_log_counts": TensorSpec(np.float32, (1, "C")),
    }
    last = max(layer for layer, _ in heads)
    for layer in range(last + 1):
        cache = cross_cache(dimensions, layer, quantized=quantized_cross)
        inputs |= {name: spec for name, spec in cache.items() if layer < last or "key" in name}
    return Contract(inputs, {"attention": TensorSpec(np.float32, ("B", len(heads), "S", "A"))})


def alignment_heads(config: ModelConfig) -> tuple[tuple[int, int], ...]:
    """The (layer, head) pairs that word times are found from, in the order of their layers.

    A model that names none, such as a fine-tuned one, takes every head of the upper half of its layers, as
    openai-whisper does (`whisper/model.py`).
    """
    layers, heads = config.dimensions.n_text_layer, config.dimensions.n_text_head
    upper = [(layer, head) for layer in range(layers // 2, layers) for head in range(heads)]
    return tuple(sorted(config.alignment_heads or upper))


def self_test_contract(dimensions: Dimensions) -> Contract:
    """The int8 cross-attention of layer 0 alone: `query` [W, S, D] -> `attended` [W, S, D]."""
    state = TensorSpec(np.float32, ("W", "S", dimensions.n_text_state))
    cross = cross_cache(dimensions, 0, quantized=True, batch="W")
    return Contract({"query": state, **_cross_lengths(quantized=True), **cross}, {"attended": state, **_present(cross)})


def self_cache(dimensions: Dimensions, layer: int) -> dict[str, TensorSpec]:
    """`self_key_l` and `self_value_l`, float32 [B, H, n_text_ctx, D / H]."""
    shape = ("B", dimensions.n_text_head, dimensions.n_text_ctx, dimensions.head_size)
    return {f"self_{kind}_{layer}": TensorSpec(np.float32, shape) for kind in ("key", "value")}


def cross_cache(
    dimensions: Dimensions, layer: int, *, quantized: bool, batch: int | str = "B"
) -> dict[str, TensorSpec]:
    """`cross_key_l` and `cross_value_l` [B, H, C, D / H].

    They are float32, or int8 and then also `cross_key_scale_l`, `cross_value_scale_l` float32 [B, 1, D]: a value is
    stored * scale of its channel.
    """
    heads, size = dimensions.n_text_head, dimensions.head_size
    cache = TensorSpec(np.int8 if quantized else np.float32, (batch, heads, "C", size))
    specs = {f"cross_{kind}_{layer}": cache for kind in ("key", "value")}
    scale = TensorSpec(np.float32, (batch, 1, heads * size))
    return specs | ({f"cross_{kind}_scale_{layer}": scale for kind in ("key", "value")} if quantized else {})


def _cross_lengths(*, quantized: bool) -> dict[str, TensorSpec]:
    """`cross_log_counts` [W, L]; for int8 caches `cross_last_position` [W], of the last key, and `cross_length`, L."""
    lengths = {"cross_last_position": TensorSpec(np.int32, ("W",)), "cross_length": TensorSpec(np.int32, ())}
    return {"cross_log_counts": TensorSpec(np.float32, ("W", "L")), **(lengths if quantized else {})}


def _present(cache: Specs) -> dict[str, TensorSpec]:
    return {f"present_{name}": spec for name, spec in cache.items() if "scale" not in name}
