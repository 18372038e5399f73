"""The log-mel does not depend on how many threads BLAS has, and BLAS gets them back."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest
from threadpoolctl import threadpool_info

from susurrus.models.blas import one_blas_thread

PROGRAM = """
import hashlib, numpy as np
from susurrus.models.dimensions import AudioParameters
from susurrus.models.mel import LogMel, slaney_filters
noise = np.random.default_rng(7).normal(0, 0.1, 11 * 16000).astype(np.float32)
mel, _ = LogMel(AudioParameters(n_mels=80), slaney_filters(16000, 400, 80))(noise)
print(hashlib.sha256(mel.tobytes()).hexdigest())
"""


def _blas_threads() -> list[int]:
    return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="one CPU has one BLAS thread anyway")
def test_a_log_mel_is_the_same_to_the_bit_for_any_number_of_blas_threads() -> None:
    digests = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={**os.environ, "OPENBLAS_NUM_THREADS": threads},
            capture_output=True,
            check=True,
            timeout=60,
        ).stdout
        for threads in ("1", "2")
    }
    assert len(digests) == 1


def test_the_limit_holds_inside_and_is_lifted_outside() -> None:
    before = _blas_threads()
    with one_blas_thread():
        assert set(_blas_threads()) == {1}
    assert _blas_threads() == before


def test_a_second_thread_waits_and_finds_the_same_limit() -> None:
    before = _blas_threads()
    seen = []

    def enter() -> None:
        with one_blas_thread():
            seen.append(_blas_threads())

    threads = [threading.Thread(target=enter) for _ in range(8)]
    with one_blas_thread():
        for thread in threads:
            thread.start()
    for thread in threads:
        thread.join()
    assert seen == [[1] * len(before)] * len(threads)
    assert _blas_threads() == before
