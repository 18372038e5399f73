"""One thread in BLAS, while it matters.

A BLAS that splits a product among threads rounds it otherwise than one that does not, and an INT8 model can turn the
last bit of a log-mel into another word: the text would depend on the number of CPUs. Two BLAS threads also spin against
ONNX Runtime's for the same cores (a log-mel of 3 ms then takes 30).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_lock = threading.Lock()
_users = 0
_limit: Any = None
_controller: Any = None


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Hold this process's BLAS libraries to one thread.

    Any thread may enter, several at once: the first sets the limit, the last one lifts it. 20 us once the libraries
    are known.
    """
    global _users, _limit, _controller  # noqa: PLW0603 - BLAS has one setting for the whole process
    from threadpoolctl import ThreadpoolController  # noqa: PLC0415 - looks for libraries when it is first needed

    with _lock:
        if _controller is None:
            _controller = ThreadpoolController().select(user_api="blas")
        if _users == 0:
            _limit = _controller.limit(limits=1)
        _users += 1
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0:
                _limit.restore_original_limits()
