"""`python -m tests.faults.host PYTHON [arguments of run.py]`: run.py, with another interpreter for its actors."""

from __future__ import annotations

import sys
from functools import partial

from susurrus import run
from susurrus.actors.pipeline import Pipeline
from tests.faults.conftest import QUICK

if __name__ == "__main__":
    vars(run)["Pipeline"] = partial(Pipeline, python=sys.argv.pop(1), limits=QUICK)
    sys.exit(run.main(sys.argv[1:]))
