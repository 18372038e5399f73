"""One thread in BLAS, while it matters.

A BLAS that splits a product among threads rounds it otherwise than one that does not, and an INT8 model can turn the
last bit of a log-mel into another word: the text would depend on the number of CPUs. Two BLAS threads also spin against
ONNX Runtime's for the same cores (a log-mel of 3 ms then takes 30).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

_lock = threading.Lock()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Hold this process's BLAS libraries to one thread. 20 us once the libraries are known.

    BLAS has one setting for the whole process, and OpenBLAS gives threads back only to the thread that took them away:
    so any thread may enter, and a second one waits until the first has left.
    """
    with _lock, _controller().limit(limits=1):
        yield


@cache
def _controller() -> Any:
    from threadpoolctl import ThreadpoolController  # noqa: PLC0415 - looks for libraries when it is first needed

    return ThreadpoolController().select(user_api="blas")
