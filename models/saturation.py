"""Whether this processor's fast INT8 product is exact.

The product of uint8 activations and int8 weights is summed in pairs. Without VNNI instructions ONNX Runtime's x86
kernels add a pair in 16 bits and clamp it (VPMADDUBSW): 255 * 127 + 255 * 127 becomes 32767. Its session option
`session.x64quantprecision` rewrites the weights to uint8, whose kernels are exact; but they are the slower ones, and
the option rewrites on every processor with AVX2, on those with VNNI too (`MlasPlatformU8S8Overflow` in ONNX Runtime's
core/mlas/lib/platform.cpp compares the kernels' dispatch tables, which differ there as well). So the product is tried.

Before ONNX Runtime 1.30 the option leaves layers without a zero point as they are, or ends the process. Weights outside
the branch of an If that multiplies by them are left as they are by every version (1.32 was tried).
"""

from functools import cache

import numpy as np
import onnxruntime as ort

PRECISION_MODE = "session.x64quantprecision"
_WORKS_FROM = (1, 30)
_DEPTH = 64  # values summed: a multiple of what any kernel takes at once
_LARGEST, _SMALLEST = 127, -127
# y = MatMulInteger(x uint8, w int8) in ONNX: importing the library that writes graphs would take 0.1 s of every start.
_PRODUCT = bytes.fromhex(
    "08083a3e0a180a01780a0177120179220d4d61744d756c496e7465676572"
    "1201675a090a017812040a0208025a090a017712040a02080362090a017912040a02080642040a00100d"
)


@cache
def products_saturate() -> bool:
    """Multiplies the largest numbers there are, one row and several at once; true where a sum is not what it must be.

    Takes a millisecond, once a process.
    """
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(_PRODUCT, options, providers=["CPUExecutionProvider"])
    weights = np.full((_DEPTH, 32), _LARGEST, np.int8)
    weights[:, ::2] = _SMALLEST
    for rows in (1, 8):  # a row alone has a kernel of its own
        activations = np.full((rows, _DEPTH), 255, np.uint8)
        product = session.run(None, {"x": activations, "w": weights})[0]
        if not np.array_equal(product, activations.astype(np.int64) @ weights.astype(np.int64)):
            return True
    return False


def precision_mode_works() -> bool:
    """Whether `PRECISION_MODE` does what it should in this version of ONNX Runtime."""
    major, minor = ort.__version__.split(".")[:2]
    return (int(major), int(minor)) >= _WORKS_FROM
