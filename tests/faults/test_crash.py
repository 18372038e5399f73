"""Actors are killed at every moment of their work: the text is that of a run in which nothing happened."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from susurrus.actors import Pipeline, PipelineError
from susurrus.actors.view import JobEvent
from susurrus.models import Whisper
from susurrus.protocol import Failed, Partial, RuntimeFolder, Segment
from tests.actors.fakes import PATIENCE_S, PLAIN
from tests.conftest import SAMPLES
from tests.faults.conftest import QUICK, Start, attempts_of, text_of, transcribe
from tests.faults.scripted import Fault

LINE = ("frontend", "encoder", "decoder")
LONG_PERIOD = replace(QUICK, period_s=3600.0)  # four starts can take long


@pytest.mark.parametrize(
    ("actor", "point"),
    [
        pytest.param(actor, point, marks=pytest.mark.fault(3 * LINE.index(actor) + number))
        for actor in LINE
        for number, point in ((1, "import"), (1, "load"), (2, "begin"), (3, "result"))
    ],
)
def test_01_to_09_an_actor_killed_before_ready_amid_a_window_or_behind_its_result(
    start: Start, clip: Path, undisturbed: str, actor: str, point: str
) -> None:
    window = None if point in ("import", "load") else 2
    pipeline = start(Fault(actor, point, window=window))
    events = transcribe(pipeline, clip)
    assert text_of(events) == undisturbed
    assert max(attempts_of(events)) == 2 or window is None
    assert set(pipeline.pids()) == set(LINE)


@pytest.mark.fault(14)
def test_14_all_actors_killed_at_once(start: Start, clip: Path, undisturbed: str) -> None:
    pipeline = start()
    events = pipeline.transcribe(clip, **PLAIN)
    seen = [next(events)]
    while not isinstance(seen[-1], Segment):
        seen.append(next(events))
    for pid in pipeline.pids().values():
        os.kill(pid, signal.SIGKILL)
    seen += events
    assert text_of(seen) == undisturbed


@pytest.mark.fault(15)
@pytest.mark.parametrize("token", [1, 2, 7, 19, 20])
def test_15_the_decoder_killed_after_each_token(start: Start, clip: Path, undisturbed: str, token: int) -> None:
    faults = [Fault("decoder", "token", window=window, nth=token) for window in (0, 3)]
    events = transcribe(start(*faults), clip)
    assert text_of(events) == undisturbed
    committed = {event.window for event in events if isinstance(event, Segment)}
    assert committed == set(range(len(committed)))


@pytest.mark.fault(16)
def test_16_an_actor_that_dies_at_every_start_is_given_up_by_name(start: Start, clip: Path) -> None:
    pipeline = start(Fault("encoder", "load", times=99), limits=LONG_PERIOD)
    with pytest.raises(PipelineError, match="the encoder was killed by SIGKILL 4 times within 3600 s") as raised:
        transcribe(pipeline, clip)
    assert raised.value.code == "actor_lost"


@pytest.mark.fault(16)
def test_16_what_it_said_last_is_told(start: Start, clip: Path) -> None:
    pipeline = start(Fault("encoder", "import", deed="raise", times=99), limits=LONG_PERIOD)
    with pytest.raises(PipelineError, match=r"the encoder ended with code 1 4 times.*RuntimeError: planted"):
        transcribe(pipeline, clip)


@pytest.mark.fault(17)
def test_17_a_window_that_kills_its_worker_each_time_fails_its_job_and_the_next_succeeds(
    start: Start, clip: Path, undisturbed: str
) -> None:
    limits = replace(QUICK, restarts=9)  # a death so sudden that it is blamed on the window before is one more
    pipeline = start(Fault("decoder", "token", window=1, times=99, prompt="poison"), limits=limits)
    events = transcribe(pipeline, clip, prompt="poison")
    failed = events[-1]
    assert isinstance(failed, Failed)
    assert (failed.code, "window 1 ended its decoder 3 times" in failed.text) == ("killer", True)
    assert text_of(transcribe(pipeline, clip)) == undisturbed


@pytest.mark.fault(22)
@pytest.mark.parametrize("deed", ["memory", "abort"])
def test_22_out_of_memory_or_an_abort_within_a_session(start: Start, clip: Path, undisturbed: str, deed: str) -> None:
    pipeline = start(Fault("encoder", "begin", deed=deed, window=1))
    events = transcribe(pipeline, clip)
    if deed == "memory":  # an exception of the work fails its job; the process lives
        assert isinstance(events[-1], Failed)
        events = transcribe(pipeline, clip)
    assert text_of(events) == undisturbed


@pytest.mark.fault(13)
def test_13_a_hub_that_is_killed_takes_its_children_with_it(tiny: Path) -> None:
    host = textwrap.dedent(f"""
        import sys
        from susurrus.actors import Pipeline
        with Pipeline({str(tiny)!r}, threads=1) as pipeline:
            pipeline.wait_until_ready()
            print(*pipeline.pids().values(), flush=True)
            sys.stdin.read()
    """)
    command = [sys.executable, "-c", host]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        children = [psutil.Process(int(pid)) for pid in process.stdout.readline().split()]
        process.kill()
        assert len(children) == 3
        _, alive = psutil.wait_procs(children, timeout=PATIENCE_S)
        assert alive == []
    with RuntimeFolder.create():  # what it has left is removed by the next start
        pass


@pytest.mark.fault(2, 5, 8)
@pytest.mark.parametrize("actor", LINE)
def test_the_real_model_says_the_same_whoever_is_killed(base: Path, actor: str) -> None:
    """Not the tiny one: with timestamps, detection of speech and language, and words that make sense."""
    wanted = Whisper.load(base, threads=1).transcribe(SAMPLES / "jfk.wav").text
    with Pipeline(base, threads=1) as pipeline:
        events: list[JobEvent] = []
        for event in pipeline.transcribe(SAMPLES / "jfk.wav"):
            if isinstance(event, Partial) and not any(isinstance(one, Partial) for one in events):
                os.kill(pipeline.pids()[actor], signal.SIGKILL)
            events.append(event)
        assert text_of(events) == wanted
