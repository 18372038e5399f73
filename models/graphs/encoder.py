"""Whisper's encoder and the keys and values that the decoder reads from it, as ONNX graphs.

The network is openai/whisper `whisper/model.py` (`AudioEncoder`, and `key`, `value` of the decoder's `cross_attn`).
Convolutions are matrix products over neighbouring frames: quantized like every other product, and free of
ConvInteger, which mobile builds of ONNX Runtime lack.

A key may stand for several positions (`models/context.py`): the logarithm of their number is added to its scores. An
attention bias would be a matrix of all queries and keys; one more channel, 1 / scale in every query and that logarithm
in every key, adds the same number to the same products at a hundredth of their cost.
"""

import numpy as np

from susurrus.models.checkpoints.checkpoint import Checkpoint
from susurrus.models.graphs.builder import MICROSOFT, Graph, WeightsFile
from susurrus.models.graphs.contract import cross_attention_contract, encoder_contract
from susurrus.models.graphs.layers import FloatArray, FloatLayers, Layers
from susurrus.models.graphs.smoothing import Affine, Calibration, EncoderLayer, read_layer, smooth_layer

EPSILON = 1e-5  # of every LayerNorm in Whisper
_KEY_COUNTS = "key_counts"
_END = int(np.iinfo(np.int64).max)  # ONNX's "to the end" of a slice


def encoder_graph(
    checkpoint: Checkpoint, layers: Layers, weights: WeightsFile, calibration: Calibration | None = None
) -> Graph:
    """Builds the encoder.

    Inputs and outputs: `contract.encoder_contract`.

    Args:
        checkpoint: The weights.
        layers: How linear layers are computed.
        weights: Where tensors go.
        calibration: Smooths the layers and splits outliers off; None leaves the network as it is.
    """
    dimensions = checkpoint.dimensions
    graph = Graph("encoder", encoder_contract(dimensions), weights)
    frames = graph.node("Transpose", ["mel"], "mel/frames", perm=[0, 2, 1])  # [B, T, n_mels]
    x = _convolution(graph, frames, "conv1", checkpoint, layers, stride=1)
    x = _convolution(graph, x, "conv2", checkpoint, layers, stride=2)  # [B, T / 2, D]
    x = _take_positions(graph, x, checkpoint.tensor("encoder/position_encodings/encodings"))
    _add_key_counts(graph, dimensions.n_audio_head, dimensions.n_audio_state)
    for index in range(dimensions.n_audio_layer):
        layer = read_layer(checkpoint, index)
        if calibration is not None:
            layer = smooth_layer(layer, calibration, f"encoder/layer_{index}")
        x = _attention(graph, x, f"encoder/layer_{index}", layer, layers, heads=dimensions.n_audio_head)
        x = _feed_forward(graph, x, f"encoder/layer_{index}", layer, layers)
    norm = Affine(checkpoint.tensor("encoder/layer_norm/gamma"), checkpoint.tensor("encoder/layer_norm/beta"))
    layer_norm(graph, x, "hidden_states", norm)
    return graph


def cross_attention_graph(checkpoint: Checkpoint, layers: Layers, weights: WeightsFile, *, quantized: bool) -> Graph:
    """Builds the projection of hidden states to the keys and values of every decoder layer.

    Inputs and outputs: `contract.cross_attention_contract`. With `quantized`, the scales fit the window at hand.
    """
    dimensions = checkpoint.dimensions
    heads, size = dimensions.n_text_head, dimensions.head_size
    contract = cross_attention_contract(dimensions, quantized=quantized)
    graph = Graph("cross_attention", contract, weights)
    width = heads * size
    for layer in range(dimensions.n_text_layer):
        name = f"decoder/layer_{layer}/attention/linear_1"
        both = Affine(checkpoint.tensor(f"{name}/weight"), checkpoint.tensor(f"{name}/bias"))
        for index, part in enumerate(("key", "value")):  # apart: half of the memory
            affine = both.rows(np.arange(index * width, (index + 1) * width))
            x = linear(graph, "hidden_states", f"{name}/{part}", layers, affine)
            if quantized:
                x = _quantize_channels(graph, x, f"{name}/{part}/cache", f"cross_{part}_scale_{layer}")
            split = graph.node("Reshape", [x, graph.integers([0, 0, heads, size])], f"{name}/{part}/split")
            graph.node("Transpose", [split], f"cross_{part}_{layer}", perm=[0, 2, 1, 3])
    return graph


def layer_norm(graph: Graph, x: str, name: str, norm: Affine) -> str:
    """Adds a LayerNorm over the last axis."""
    weights = [graph.tensor(f"{name}/gamma", norm.weight), graph.tensor(f"{name}/beta", norm.bias)]
    return graph.node("LayerNormalization", [x, *weights], name, axis=-1, epsilon=EPSILON)


def linear(graph: Graph, x: str, name: str, layers: Layers, affine: Affine) -> str:
    """Adds a linear layer."""
    return layers.linear(graph, x, name, affine.weight, affine.bias)


def _convolution(graph: Graph, x: str, name: str, checkpoint: Checkpoint, layers: Layers, *, stride: int) -> str:
    """Adds Gelu(convolution of width 3, one frame of padding at each end) over [B, T, channels]."""
    weight = checkpoint.tensor(f"encoder/{name}/weight")  # (outputs, channels, 3)
    channels = weight.shape[1]
    padded = graph.node("Pad", [x, graph.integers([0, 1, 0, 0, 1, 0])], f"{name}/padded")  # [B, T + 2, channels]
    neighbours = _neighbours(graph, padded, name, channels, stride)
    columns = weight.transpose(0, 2, 1).reshape(len(weight), -1)  # frame by frame, as the neighbours lie
    bias = checkpoint.tensor(f"encoder/{name}/bias")
    return graph.node("Gelu", [layers.linear(graph, neighbours, name, columns, bias)], f"{name}/gelu")


def _neighbours(graph: Graph, padded: str, name: str, channels: int, stride: int) -> str:
    """Every frame beside its two neighbours: [B, T + 2, channels] -> [B, T / stride, 3 * channels]."""
    if stride == 1:
        pieces = [_slice(graph, padded, f"{name}/{i}", (i, i - 2 or _END)) for i in range(3)]
    else:  # pairs of frames lie together already: one and a half pairs are three neighbours
        shape = graph.integers([0, -1, 2 * channels])
        pairs = graph.node("Reshape", [padded, shape], f"{name}/pairs")  # [B, T / 2 + 1, 2 * channels]
        following = _slice(graph, pairs, f"{name}/following", (1, _END))
        pieces = [
            _slice(graph, pairs, f"{name}/pair", (0, -1)),
            _slice(graph, following, f"{name}/third", (0, channels), axis=2),
        ]
    return graph.node("Concat", pieces, f"{name}/neighbours", axis=2)


def _slice(graph: Graph, x: str, name: str, edges: tuple[int, int], axis: int = 1) -> str:
    start, end = edges
    return graph.node("Slice", [x, *(graph.integers([value]) for value in (start, end, axis))], name)


def _take_positions(graph: Graph, x: str, encodings: FloatArray) -> str:
    """The rows asked for of what is convolved, [B, T / 2, D], with the encodings of their positions: [B, C, D]."""
    table = graph.tensor("encoder/position_encodings", encodings)
    taken = [graph.node("Gather", [x, "rows"], "rows/taken", axis=1)]
    taken.append(graph.node("Gather", [table, "positions"], "positions/taken"))
    return graph.node("Add", taken, "positions/added")


def _add_key_counts(graph: Graph, heads: int, width: int) -> None:
    """What is added to all keys, [1, C, width + heads]: in the last channel of every head, the logarithms asked for."""
    last = np.zeros((1, 1, heads, width // heads + 1), np.float32)
    last[..., -1] = 1
    column = graph.node("Unsqueeze", ["log_counts", graph.integers([0, 2])], "log_counts/column")
    channel = graph.tensor("last_channel", last.reshape(1, 1, -1))
    graph.node("Mul", [column, channel], _KEY_COUNTS)


def _with_channel(affine: Affine, heads: int, value: float) -> Affine:
    """A linear layer with one more output for every head, which is always `value`."""
    n_outputs, n_inputs = affine.weight.shape
    weight = np.zeros((heads, n_outputs // heads + 1, n_inputs), np.float32)
    weight[:, :-1] = affine.weight.reshape(heads, -1, n_inputs)
    bias = np.full((heads, n_outputs // heads + 1), value, np.float32)
    bias[:, :-1] = affine.bias.reshape(heads, -1)
    return Affine(weight.reshape(-1, n_inputs), bias.reshape(-1))


def _attention(graph: Graph, x: str, name: str, layer: EncoderLayer, layers: Layers, *, heads: int) -> str:
    name = f"{name}/self_attention"
    normal = layer_norm(graph, x, f"{name}/layer_norm", layer.attention_norm)
    width = layer.out.weight.shape[0]
    scale = (width // heads) ** -0.5
    query, key, value = (layer.qkv.rows(np.arange(part * width, (part + 1) * width)) for part in range(3))
    all_parts = [_with_channel(query, heads, 1 / scale), _with_channel(key, heads, 0), value]
    weight, bias = (
        np.concatenate(each) for each in zip(*((part.weight, part.bias) for part in all_parts), strict=True)
    )
    qkv = linear(graph, normal, f"{name}/linear_0", layers, Affine(weight, bias))
    sizes = graph.integers([len(part.bias) for part in all_parts])
    query_of, key_of, value_of = graph.nodes("Split", [qkv, sizes], [f"{name}/{part}" for part in "qkv"], axis=2)
    parts = [query_of, graph.node("Add", [key_of, _KEY_COUNTS], f"{name}/weighted"), value_of]
    attributes = {"num_heads": heads, "scale": scale}
    mixed = graph.node("MultiHeadAttention", parts, f"{name}/mixed", domain=MICROSOFT, **attributes)
    # A plain Add: SkipLayerNormalization would join it to the next norm, but takes five times as long here.
    return graph.node("Add", [x, linear(graph, mixed, f"{name}/linear_1", layers, layer.out)], f"{name}/added")


def _feed_forward(graph: Graph, x: str, name: str, layer: EncoderLayer, layers: Layers) -> str:
    name = f"{name}/ffn"
    normal = layer_norm(graph, x, f"{name}/layer_norm", layer.ffn_norm)
    if layer.outlier_fc1 is not None and layer.outlier_fc2 is not None:
        few = linear(graph, normal, f"{name}/outlier_0", FloatLayers(), layer.outlier_fc1)
        few = graph.node("Gelu", [few], f"{name}/outlier_gelu")
        few = graph.node(
            "MatMul",
            [few, graph.tensor(f"{name}/outlier_1/weight", layer.outlier_fc2.T)],
            f"{name}/outlier_1",
        )
        x = graph.node("Add", [x, few], f"{name}/outlier_added")
    inner = graph.node("Gelu", [linear(graph, normal, f"{name}/linear_0", layers, layer.fc1)], f"{name}/gelu")
    return graph.node("Add", [x, linear(graph, inner, f"{name}/linear_1", layers, layer.fc2)], f"{name}/added")


def _quantize_channels(graph: Graph, x: str, name: str, scale: str) -> str:
    """Quantizes [B, C, channels] to int8; adds the scale of each window and channel, [B, 1, channels], as `scale`.

    QuantizeLinear with a vector of scales takes a hundred times as long as a division before a plain one, and ReduceMax
    over all positions three times as long as one over the maxima of each eight.
    """
    magnitude = graph.node("Abs", [x], f"{name}/magnitude")
    image = graph.node("Unsqueeze", [magnitude, graph.integers([1])], f"{name}/image")  # [B, 1, C, channels]
    eight = [8, 1]
    largest = graph.node("MaxPool", [image], f"{name}/largest", kernel_shape=eight, strides=eight, ceil_mode=1)
    absmax = graph.node("ReduceMax", [largest, graph.integers([2])], f"{name}/absmax", keepdims=0)  # [B, 1, channels]
    step = graph.node("Mul", [absmax, graph.tensor("per_step", np.array(1 / 127, np.float32))], f"{name}/step")
    graph.node("Max", [step, graph.tensor("least_step", np.array(1e-8, np.float32))], scale)
    steps = graph.node("Div", [x, scale], f"{name}/steps")
    unit, zero = np.array(1, np.float32), np.array(0, np.int8)
    plain = [steps, graph.tensor("unit_scale", unit), graph.tensor("zero_point", zero)]
    return graph.node("QuantizeLinear", plain, f"{name}/quantized")
