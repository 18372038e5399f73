"""Exit codes, for scripts that call us. The README has the same table, and a test holds it against this one."""

from collections.abc import Iterable

OK = 0
"""Everything was transcribed."""
UNHEALTHY = 1
"""`--doctor` found something that keeps recordings from being transcribed."""
INPUT = 2
"""An input cannot be read, or an option has a value that does not exist; the other inputs were transcribed."""
MODEL = 3
"""The model is missing or damaged."""
PIPELINE = 4
"""The pipeline broke: an actor was lost, or there is nothing to attach to."""
DAMAGED = 5
"""An input broke off: what came before was transcribed."""
OUTPUT = 6
"""A result file, or the folder for them, cannot be written."""
INTERRUPTED = 130
"""Ctrl-C (128 + SIGINT)."""
HUNG_UP = 129
"""The terminal went away (128 + SIGHUP)."""
OUTPUT_CLOSED = 141
"""Nobody reads our output any more, as in `run.py … | head` (128 + SIGPIPE)."""
TERMINATED = 143
"""SIGTERM (128 + SIGTERM)."""


def worst(codes: Iterable[int]) -> int:
    """The code to end with when several things happened: the one that says most."""
    by_weight = (OK, DAMAGED, INPUT, OUTPUT, PIPELINE)  # and what ended everything is worse than any of them
    return max(codes, key=lambda code: by_weight.index(code) if code in by_weight else len(by_weight), default=OK)
