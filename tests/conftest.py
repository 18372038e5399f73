"""Fixtures of the whole suite: models to test with, and a check that no test leaves anything behind."""

from __future__ import annotations

import gc
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import zmq
from hypothesis import HealthCheck, settings

from susurrus.models.provision import ensure_model
from susurrus.protocol.runtime import runtime_folders

ROOT = Path(__file__).parent.parent
SAMPLES = ROOT / "samples"
GONE_WITHIN_S = 30.0  # how long something that is ending may take to be gone

# What an example costs says more about what else the machine does than about what is tested.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


@pytest.fixture(scope="session", autouse=True)
def zero_copy() -> None:
    """Make the first zero-copy send of the process: pyzmq then starts a thread and a context of its own for good."""
    with zmq.Context() as context, context.socket(zmq.PAIR) as here, context.socket(zmq.PAIR) as there:
        here.bind("inproc://here")
        there.connect("inproc://here")
        there.send(bytearray(zmq.COPY_THRESHOLD + 1), copy=False)
        here.recv()


@pytest.fixture(scope="session", autouse=True)
def runtime_parent() -> Iterator[Path]:
    """Where this test run's runtime folders are: apart from those of other pipelines on this machine."""
    with tempfile.TemporaryDirectory(prefix="run-") as parent, pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", parent)
        yield Path(parent)


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A models folder of this test run."""
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="session")
def base(models: Path) -> Path:
    """Whisper Base, INT8, built from the installed weight packages."""
    return ensure_model("base", directory=models)


@pytest.fixture(scope="session")
def tiny_en(models: Path) -> Path:
    """Whisper tiny.en, INT8, built from the installed weight package."""
    return ensure_model("tiny.en", directory=models)


class Belongings:
    """What this process has: children, descriptors, threads of ours, runtime folders."""

    def __init__(self, runtime_parent: Path) -> None:
        self._runtime_parent = runtime_parent
        self._process = psutil.Process()
        self._descriptors = self._count_descriptors()
        self._children = set(self._process.children(recursive=True))
        self._threads = set(threading.enumerate())
        self._folders = self._find_folders()

    def left_behind(self) -> list[str]:
        """What is there now and was not at first, in words."""
        children = [child for child in self._process.children(recursive=True) if child not in self._children]
        threads = [t.name for t in threading.enumerate() if t not in self._threads and t.name.startswith(OUR_THREADS)]
        left = [f"process {child.pid} ({' '.join(_command(child))})" for child in children]
        left += [f"thread {name}" for name in threads]
        left += [f"folder {path}" for path in self._find_folders() - self._folders]
        if (more := self._count_descriptors() - self._descriptors) > 0:
            left.append(f"{more} descriptors")
        return left

    @staticmethod
    def _count_descriptors() -> int:
        descriptors = Path("/proc/self/fd")
        return len(list(descriptors.iterdir())) if descriptors.is_dir() else 0

    def _find_folders(self) -> set[Path]:
        return set(runtime_folders(self._runtime_parent))


OUR_THREADS = ("susurrus", "frontend", "encoder", "decoder", "wait-", "lifeline")


def _command(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except psutil.Error:
        return ["ended"]


@pytest.fixture(autouse=True)
def nothing_left_behind(runtime_parent: Path) -> Iterator[None]:
    """Fail a test that leaves a process, thread, descriptor, socket or runtime folder behind."""
    before = Belongings(runtime_parent)
    yield
    deadline = time.monotonic() + GONE_WITHIN_S
    while left := before.left_behind():
        gc.collect()
        if time.monotonic() > deadline:
            pytest.fail(f"left behind: {', '.join(left)}")
        threading.Event().wait(0.02)
