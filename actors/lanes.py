"""Lanes: how many encoders and decoders a pipeline has, and what they are called.

    frontend ==mel==> encoder   ==hidden states==> decoder      lane 1
             ==mel==> encoder-2 ==hidden states==> decoder-2    lane 2, and so on

One frontend deals the windows to them.
"""

from __future__ import annotations

from susurrus.models.errors import OptionError
from susurrus.models.threads import usable_cpus

FRONTEND = "frontend"
KINDS = ("encoder", "decoder")  # of a lane, left to right
MAX_LANES = 64  # each has two processes, and the model's buffers twice


def station_name(kind: str, lane: int) -> str:
    """What the actor of a lane is called: `encoder` in the first, `encoder-2` in the second."""
    return kind if lane == 1 else f"{kind}-{lane}"


def workers_for(cpus: int) -> int:  # noqa: ARG001 - one lane is the best that was measured, on any number
    """How many lanes are fastest on so many CPUs."""
    return 1


def checked_workers(wanted: int) -> int:
    """The number of lanes; 0 leaves it to `workers_for`.

    Raises:
        OptionError: there cannot be so many.
    """
    if not 0 <= wanted <= MAX_LANES:
        raise OptionError(f"--workers {wanted}: give 1 to {MAX_LANES}, or 0 for what suits the CPUs of this machine")
    return wanted or workers_for(usable_cpus())


def threads_for(workers: int, cpus: int) -> int:
    """Threads of each session, when the user does not say: the lanes share the CPUs."""
    return max(1, cpus // workers)
