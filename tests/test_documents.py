"""The documents say what is true: their examples run, their tables agree with the code."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import susurrus.actors
from susurrus.actors import exits
from susurrus.actors.version import VERSION

ROOT = Path(__file__).parent.parent
GUIDE = (ROOT / "docs/embedding.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES, ids=[f"example {i + 1}" for i in range(len(EXAMPLES))])
def test_an_example_of_the_embedding_guide_runs_as_it_stands(example: str, base: Path) -> None:
    environment = {**os.environ, "SUSURRUS_MODELS": str(base.parent)}
    run = subprocess.run(
        [sys.executable, "-c", example],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (run.returncode, run.stderr) == (0, "")
    assert "young man" in run.stdout or "your country" in run.stdout or "(276, 512)" in run.stdout


def test_the_guide_has_examples() -> None:
    assert len(EXAMPLES) >= 6


def test_the_readme_lists_every_exit_code() -> None:
    codes = {value for name, value in vars(exits).items() if name.isupper()}
    listed = {int(code) for code in re.findall(r"^\| (\d+) \|", README, re.MULTILINE)}
    assert listed == codes


def test_the_gate_runs_the_commands_of_the_readme() -> None:
    block = re.search(r"^```sh\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    assert block is not None
    install, test = (line for line in block.group(1).splitlines() if line)
    gate = (ROOT / ".ci/run").read_text(encoding="utf-8")
    assert install in gate
    assert test in gate


def test_tests_run_the_checkout_and_not_an_installed_copy() -> None:
    assert susurrus.actors.__file__ is not None
    assert Path(susurrus.actors.__file__).is_relative_to(ROOT)


def test_links_between_documents_lead_somewhere() -> None:
    for document in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", document.read_text(encoding="utf-8")):
            assert (document.parent / target).exists(), f"{document.name} links to {target}"


def test_the_version_is_the_one_of_the_package() -> None:
    assert importlib.metadata.version("susurrus") == VERSION
