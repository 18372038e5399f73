"""What is imported on the way from `run.py --wav clip.wav` to its text: no process loads what it does not need.

Where the start is slow again, these say of what, without a clock. Python writes every import to standard error when
PYTHONPROFILEIMPORTTIME is set; copies of a process import nothing that it has imported.
"""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.run.conftest import Cli

UNNEEDED = {
    "asyncio",
    "av",
    "email",
    "filelock",
    "http",
    "huggingface_hub",
    "importlib.metadata",
    "multiprocessing",
    "onnx",
    "prometheus_client",
    "regex",
    "rich",
    "soundfile",
    "soxr",
    "structlog",
    "susurrus.actors.actor_trace",
    "susurrus.actors.journal",
    "susurrus.actors.json_lines",
    "susurrus.actors.screen",
    "susurrus.actors.traced",
    "susurrus.models.checkpoints",
    "susurrus.models.graphs.build",
    "susurrus.models.optimum.decoder",
    "susurrus.protocol.listen",
    "zmq.asyncio",
    "zmq.auth",
    "zmq.green",
}


@pytest.fixture
def imports(cli: Cli, austen: Path) -> Counter[str]:
    """How often each module was imported, all processes of a run together."""
    finished = cli("--quiet", austen, "--language", "en", env={"PYTHONPROFILEIMPORTTIME": "1"})
    assert finished.code == 0, finished.err
    lines = [line for line in finished.err.splitlines() if line.startswith("import time:")]
    return Counter(line.rpartition("|")[2].strip() for line in lines)


def test_a_wav_whose_text_is_piped_loads_nothing_for_other_files_screens_or_networks(imports: Counter[str]) -> None:
    assert not UNNEEDED & imports.keys()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere every process imports for itself")
def test_what_several_processes_need_is_imported_once(imports: Counter[str]) -> None:
    assert imports["numpy"] == imports["zmq"] == imports["msgpack"] == imports["susurrus.protocol"] == 1
    assert imports["onnxruntime"] == 2, "it has threads from its import on, so each that needs it imports it"


@pytest.mark.parametrize("module", ["susurrus.run", "susurrus.actors.console", "susurrus.actors.client"])
def test_who_handles_no_arrays_does_without_numpy(module: str) -> None:
    program = f"import sys, {module}; sys.exit('numpy' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_the_frontend_does_without_onnx_runtime() -> None:
    program = "import sys, susurrus.actors.frontend; sys.exit('onnxruntime' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)
