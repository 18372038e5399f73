"""INT8 arithmetic on weights, in numpy: nothing here knows of graphs.

Rounding is to the nearest even number; ranges are symmetric (-127 to 127), so zero stays zero.
"""

import numpy as np
from numpy.typing import NDArray

from susurrus.models.errors import ModelError

FloatArray = NDArray[np.float32]

# Inputs that share one scale in block quantization. The operators quantize activations by the same blocks, so smaller
# ones are more exact: of 130 transcripts of speech, decoding in blocks of 128, 64 and 32 changed 17, 10 and 8 against
# float32. Each halving costs 1.5 MB for the embedding and 0.7 MB for the layers of Base.
EMBEDDING_BLOCK = 64
LAYER_BLOCK = 32
_MIN_BLOCK = 16  # of MatMulNBits and GatherBlockQuantized
_LARGEST = 127
_LARGEST_PAIR = np.iinfo(np.int16).max // np.iinfo(np.uint8).max  # 128
_ROUNDED = 1 / 1024  # so much less, and two that are rounded up do not pass it


def quantize_rows(weight: FloatArray) -> tuple[NDArray[np.int8], FloatArray]:
    """Quantizes with one scale for each output, for products with uint8 that any processor computes exactly.

    Without VNNI, x86 multiplies two neighbours by uint8 activations and adds the products in 16 bits (VPMADDUBSW of
    AVX2). That cannot overflow if two stored neighbours, inputs 2 i and 2 i + 1, add up to no more than 128: where the
    largest weights of an output are neighbours of one sign its step is up to twice the usual one, and 1.2 times on
    average of Whisper base. Seven bits for all would be twice everywhere.

    Args:
        weight: float32 (n_outputs, n_inputs).

    Returns:
        int8 (n_outputs, n_inputs) and float32 (n_outputs,): weight is about stored * scale.
    """
    pairs = np.abs(np.add.reduceat(weight, np.arange(0, weight.shape[1], 2), axis=1)).max(axis=1)
    largest = np.maximum(np.abs(weight).max(axis=1), pairs * (_LARGEST / (_LARGEST_PAIR - _ROUNDED)))
    scales = _scales(largest.astype(np.float32))
    return np.rint(weight / scales[:, None]).astype(np.int8), scales


def quantize_blocks(weight: FloatArray, block: int) -> tuple[NDArray[np.uint8], FloatArray]:
    """Quantizes with one scale for each `block` neighbouring inputs, as MatMulNBits and GatherBlockQuantized read it.

    Args:
        weight: float32 (n_outputs, n_inputs).
        block: A divisor of n_inputs.

    Returns:
        uint8 (n_outputs, n_inputs / block, block) around 128, and float32 (n_outputs, n_inputs / block).
    """
    blocks = weight.reshape(len(weight), -1, block)
    scales = _scales(np.abs(blocks).max(axis=2))
    return (np.rint(blocks / scales[:, :, None]) + 128).astype(np.uint8), scales


def block_size(n_inputs: int, most: int) -> int:
    """The largest power of two up to `most` that divides `n_inputs`.

    Raises:
        ModelError: It is smaller than the operators take.
    """
    block = min(most, n_inputs & -n_inputs)
    if block < _MIN_BLOCK:
        raise ModelError(f"a width of {n_inputs} is no multiple of {_MIN_BLOCK}: use --precision float32")
    return block


def _scales(absmax: FloatArray) -> FloatArray:
    """The step that brings the largest value to 127; 1 where it would be nothing."""
    steps = absmax / np.float32(_LARGEST)
    return np.where(steps >= np.finfo(np.float32).tiny, steps, np.float32(1)).astype(np.float32)
