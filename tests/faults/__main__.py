"""`python -m tests.faults [pytest's arguments]`: run the fault tests, and print what became of each of the fifty."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.faults.table import Table

if __name__ == "__main__":
    sys.exit(pytest.main([str(Path(__file__).parent), *sys.argv[1:]], plugins=[Table()]))
