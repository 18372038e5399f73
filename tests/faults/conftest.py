"""What the fault tests share: a tiny model in real processes, and what every one of them must leave behind: nothing."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
import soundfile

from susurrus.actors import Pipeline
from susurrus.actors.view import JobEvent
from susurrus.actors.watch import Limits
from susurrus.models import Whisper
from susurrus.protocol import Done, Segment, TerminalEvent
from tests.actors.fakes import PLAIN, RATE, House, sounds, with_plain, write_tiny_model
from tests.faults.scripted import Fault, interpreter
from tests.run.conftest import Cli

QUICK = Limits(ping_s=0.25, missed_pings=1000, first_pause_s=0.01, longest_pause_s=0.05)
"""Nobody is taken for frozen: on a machine that is busy otherwise any process may fall silent for a while."""
ALERT = replace(QUICK, missed_pings=12)
"""For tests with somebody who is: after three seconds, as by default."""
SECONDS = 6.0  # of sound: about eight windows


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model directory with random weights and windows of 1 s."""
    return write_tiny_model(tmp_path_factory.mktemp("faults"))


@pytest.fixture(scope="session")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some seconds of sound."""
    path = tmp_path_factory.mktemp("audio") / "clip.wav"
    soundfile.write(path, sounds(SECONDS), RATE, subtype="FLOAT")
    return path


@pytest.fixture(scope="session")
def undisturbed(tiny: Path, clip: Path) -> str:
    """The clip's text, by the same model in one process."""
    return Whisper.load(tiny).transcribe(clip, **PLAIN).text


@pytest.fixture(autouse=True)
def numbered(request: pytest.FixtureRequest, record_property: Callable[[str, object], None]) -> None:
    """Tell the table which of the fifty faults a test is about."""
    for mark in request.node.iter_markers("fault"):
        for number in mark.args:
            record_property("fault", number)


PLAIN_FLAGS = (
    *("--threads", "1", "--no-vad", "--without-timestamps", "--no-speech-threshold", "None"),
    *("--compression-ratio-threshold", "None", "--logprob-threshold", "None"),
    *("--temperature-increment-on-fallback", "None"),
)
"""What PLAIN is on the command line."""
WARNING = "warning: there is only temperature 0"
"""What is said of it, unless `--quiet`; `--json` is not quiet."""


class TinyCli(Cli):
    """The command line with the tiny model: arguments for its text, and for its events."""

    def __init__(self, tiny: Path, runtime: Path) -> None:
        super().__init__(tiny.parent, runtime)
        self.model = ("--model", str(tiny))
        self.plain = (*self.model, *PLAIN_FLAGS, "--quiet")
        self.json = (*self.model, *PLAIN_FLAGS, "--json")


@pytest.fixture
def cli(tiny: Path) -> Iterator[TinyCli]:
    """A command line with a runtime folder of its own, which must be empty again at the end."""
    with tempfile.TemporaryDirectory(prefix="run-") as folder:
        runtime = Path(folder, "0")
        runtime.mkdir(mode=0o700)
        made = TinyCli(tiny, runtime)
        yield made
        made.close()
        assert made.leftovers() == []


@pytest.fixture
def house() -> Iterator[House]:
    """A hub in a thread of this process; the test plays actors, clients and subscribers."""
    with ExitStack() as resources:
        yield House(resources)


Start = Callable[..., Pipeline]


@pytest.fixture
def start(tiny: Path, tmp_path: Path) -> Iterator[Start]:
    """Starts pipelines whose actors go wrong as planned."""
    with ExitStack() as pipelines:

        def make(*faults: Fault, limits: Limits = QUICK, workers: int = 1) -> Pipeline:
            python = interpreter(tmp_path / "faults", faults)
            return pipelines.enter_context(Pipeline(tiny, python=python, limits=limits, workers=workers, threads=1))

        yield make


def transcribe(pipeline: Pipeline, clip: Path, prompt: str = "") -> list[JobEvent]:
    """All events of the clip, held to the protocol: no gap in the numbers, one end, windows committed in order."""
    events = list(pipeline.transcribe(clip, **with_plain({"prompt": prompt})))
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert [isinstance(event, TerminalEvent) for event in events] == [False] * (len(events) - 1) + [True]
    windows = [event.window for event in events if isinstance(event, Segment)]
    assert windows == list(range(len(windows)))
    return events


def text_of(events: list[JobEvent]) -> str:
    """The text of a job that is done."""
    assert isinstance(events[-1], Done), events[-1]
    return events[-1].text


def attempts_of(events: list[JobEvent]) -> set[int]:
    """The attempts that its windows were committed in."""
    return {event.attempt for event in events if isinstance(event, Segment)}
