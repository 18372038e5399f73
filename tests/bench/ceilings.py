"""What this machine can do at best: float32 and int8 products by ONNX Runtime, reading memory.

    python -m tests.bench.ceilings --threads 2

Graphs of one product each, of the size of Whisper base's, and the best of many runs.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnx
import onnxruntime as ort
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from threadpoolctl import threadpool_limits

ROWS, INNER, COLUMNS = 600, 512, 2048
READ_BYTES = 256 * 2**20  # far more than any cache holds
RUNS = 60

Work = Callable[[], object]


def best_s(work: Work, runs: int = RUNS) -> float:
    """Seconds of the fastest of several runs, after one that does not count."""
    work()
    times = []
    for _ in range(runs):
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return min(times)


def product(kind: str, weights: NDArray[np.generic], rows: NDArray[np.generic], threads: int) -> Work:
    """One matrix product by ONNX Runtime: `MatMul` of float32, `MatMulInteger` of uint8 and int8."""
    types = {np.dtype(np.float32): TensorProto.FLOAT, np.dtype(np.uint8): TensorProto.UINT8}
    result = TensorProto.FLOAT if kind == "MatMul" else TensorProto.INT32
    graph = helper.make_graph(
        [helper.make_node(kind, ["x", "w"], ["y"])],
        "product",
        [helper.make_tensor_value_info("x", types[rows.dtype], rows.shape)],
        [helper.make_tensor_value_info("y", result, (rows.shape[0], weights.shape[1]))],
        [numpy_helper.from_array(weights, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    onnx.checker.check_model(model)
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, {"x": rows})


def reading(threads: int) -> Work:
    """Reads memory once, every thread its part of it: dot products, which compute next to nothing."""
    values = np.ones(READ_BYTES // 4, np.float32)
    parts = np.array_split(values, threads)
    pool = ThreadPoolExecutor(threads)
    return lambda: list(pool.map(lambda part: np.dot(part, part), parts))


def ceilings(threads: int) -> dict[str, float]:
    """Products in 10^9 operations a second, a multiplication and an addition being two; reading in GB a second."""
    random = np.random.default_rng(0)
    floats = random.standard_normal((ROWS, INNER), np.float32), random.standard_normal((INNER, COLUMNS), np.float32)
    bytes_ = random.integers(0, 256, (ROWS, INNER), np.uint8), random.integers(-127, 128, (INNER, COLUMNS), np.int8)
    operations = 2 * ROWS * INNER * COLUMNS / 1e9
    with threadpool_limits(1):
        read = READ_BYTES / 1e9 / best_s(reading(threads))
    return {
        "fp32 GF/s": operations / best_s(product("MatMul", floats[1], floats[0], threads)),
        "int8 GOP/s": operations / best_s(product("MatMulInteger", bytes_[1], bytes_[0], threads)),
        "memory GB/s": read,
    }


def main(arguments: list[str] | None = None) -> int:
    """Print them as JSON."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.ceilings", description=__doc__)
    parser.add_argument("--threads", type=int, default=2)
    print(json.dumps(ceilings(parser.parse_args(arguments).threads), indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
