"""With several encoders and decoders: one is killed, stopped or poisoned; the text is that of an undisturbed run."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest
import soundfile

from susurrus.actors import PipelineError
from susurrus.models import Whisper
from susurrus.protocol import Failed, Segment
from tests.actors.fakes import PLAIN, RATE, sounds
from tests.faults.conftest import ALERT, QUICK, Start, attempts_of, text_of, transcribe
from tests.faults.scripted import Fault, counted
from tests.run.conftest import DEADLINE_S

ALL = {"frontend", "encoder", "decoder", "encoder-2", "decoder-2"}


@pytest.fixture(scope="module")
def long_clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some twenty windows: the second lane gets its share."""
    path = tmp_path_factory.mktemp("audio") / "long.wav"
    soundfile.write(path, sounds(16.0, 5), RATE, subtype="FLOAT")
    return path


@pytest.fixture(scope="module")
def text(tiny: Path, long_clip: Path) -> str:
    """By the same model in one process."""
    return Whisper.load(tiny).transcribe(long_clip, **PLAIN).text


@pytest.mark.parametrize(
    ("actor", "point"),
    [
        pytest.param("encoder-2", "import", marks=pytest.mark.fault(4)),
        pytest.param("encoder-2", "begin", marks=pytest.mark.fault(5)),
        pytest.param("encoder-2", "result", marks=pytest.mark.fault(6)),
        pytest.param("decoder-2", "load", marks=pytest.mark.fault(7)),
        pytest.param("decoder-2", "begin", marks=pytest.mark.fault(8)),
        pytest.param("decoder-2", "token", marks=pytest.mark.fault(15)),
        pytest.param("decoder-2", "result", marks=pytest.mark.fault(9)),
        pytest.param("decoder", "token", marks=pytest.mark.fault(8)),
        pytest.param("frontend", "result", marks=pytest.mark.fault(3)),
    ],
)
def test_an_actor_of_any_lane_killed_in_the_middle_loses_nothing_and_gives_nothing_twice(
    start: Start, long_clip: Path, text: str, actor: str, point: str
) -> None:
    pipeline = start(Fault(actor, point), workers=2)
    if point not in ("import", "load"):  # else all may be done before the second lane has loaded
        assert pipeline.wait_until_ready(DEADLINE_S)
    events = transcribe(pipeline, long_clip)
    assert text_of(events) == text
    assert max(attempts_of(events)) == 2 or point in ("import", "load")
    assert set(pipeline.pids()) == ALL


@pytest.mark.fault(14)
def test_a_whole_lane_killed_at_once_is_replaced(start: Start, long_clip: Path, text: str) -> None:
    pipeline = start(workers=2)
    events = pipeline.transcribe(long_clip, **PLAIN)
    seen = [next(events)]
    while not isinstance(seen[-1], Segment):
        seen.append(next(events))
    for name in ("encoder-2", "decoder-2"):
        os.kill(pipeline.pids()[name], signal.SIGKILL)
    seen += events
    assert text_of(seen) == text


@pytest.mark.fault(18)
def test_a_decoder_of_the_second_lane_that_freezes_is_replaced(start: Start, long_clip: Path, text: str) -> None:
    pipeline = start(Fault("decoder-2", "begin", deed="stop"), workers=2, limits=ALERT)
    assert pipeline.wait_until_ready(DEADLINE_S)
    before = pipeline.pids()
    events = transcribe(pipeline, long_clip)
    assert text_of(events) == text
    after = pipeline.pids()
    assert {name for name in ALL if before[name] != after[name]} == {"decoder-2"}


@pytest.mark.fault(16)
def test_an_actor_of_the_second_lane_that_dies_at_every_start_is_given_up_by_name(start: Start) -> None:
    limits = replace(QUICK, period_s=3600.0)  # four starts can take long
    pipeline = start(Fault("encoder-2", "load", times=99), workers=2, limits=limits)
    with pytest.raises(PipelineError, match="the encoder-2 was killed by SIGKILL 4 times within 3600 s"):
        pipeline.wait()


@pytest.mark.fault(4)
def test_a_lane_that_cannot_start_yet_keeps_the_other_from_nothing(start: Start, long_clip: Path, text: str) -> None:
    pipeline = start(Fault("encoder-2", "load", times=2), workers=2)
    events = transcribe(pipeline, long_clip)
    assert text_of(events) == text
    assert attempts_of(events) == {1}


@pytest.mark.fault(17)
def test_a_window_that_kills_the_worker_of_whatever_lane_fails_its_job_alone(
    start: Start, long_clip: Path, text: str
) -> None:
    faults = [Fault(name, "token", window=9, times=99, prompt="poison") for name in ("decoder", "decoder-2")]
    limits = replace(QUICK, restarts=9)  # a death so sudden that it is blamed on another window is one more
    pipeline = start(*faults, workers=2, limits=limits)
    failed = transcribe(pipeline, long_clip, prompt="poison")[-1]
    assert isinstance(failed, Failed)
    assert (failed.code, "window 9 ended its decoder" in failed.text) == ("killer", True)
    assert text_of(transcribe(pipeline, long_clip)) == text


@pytest.mark.fault(36)
def test_a_lane_that_is_slow_is_given_less_and_keeps_nobody_waiting(
    start: Start, long_clip: Path, text: str, tmp_path: Path
) -> None:
    """It comes to the second token of its first window when the other lane has begun more than half of them all."""
    half = 11  # of 22 windows
    slow = Fault("decoder-2", "token", deed="follow", until=half + 1)
    count = Fault("decoder", "begin", deed="count", nth=0)
    pipeline = start(slow, count, workers=2)
    assert pipeline.wait_until_ready(DEADLINE_S)
    events = transcribe(pipeline, long_clip)
    assert text_of(events) == text
    assert sum(isinstance(event, Segment) for event in events) == 2 * half
    assert half < counted(tmp_path / "faults") < 2 * half
