"""How a child learns that its parent died, by whatever cause: its standard input ends.

The parent holds the other end of the pipe and never writes to it. SIGKILL of the parent closes it as well, and a
blocking read notices at once, without polling, on every platform. (Not taken: comparing getppid every second, which
is late and does not exist on Windows; PR_SET_PDEATHSIG, which is Linux only and tied to the parent's thread.)
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

EXIT_ORPHANED = 1


def watch(fd: int, on_death: Callable[[], None] | None = None) -> None:
    """End this process when the pipe behind `fd` closes.

    Runs a daemon thread that only reads. `os._exit` is meant: the compute thread may be inside a native call, and
    there is nobody left to tell.
    """

    def wait() -> None:
        try:
            while os.read(fd, 1):
                pass
        except OSError:
            pass  # a closed descriptor says the same
        if on_death is not None:
            on_death()
        os._exit(EXIT_ORPHANED)

    threading.Thread(target=wait, name="lifeline", daemon=True).start()
