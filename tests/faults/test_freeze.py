"""Actors, the console and the hub are stopped or hang: what lives is not disturbed, what is dead is replaced."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

import pytest

from susurrus.actors import Pipeline
from susurrus.protocol import Partial, Segment
from tests.actors.fakes import PATIENCE_S, PLAIN
from tests.faults.conftest import ALERT, Start, attempts_of, text_of, transcribe
from tests.faults.scripted import Fault


@pytest.mark.fault(18)
@pytest.mark.parametrize("actor", ["frontend", "encoder", "decoder"])
def test_18_a_stopped_actor_is_replaced_and_its_late_result_is_fenced(
    start: Start, clip: Path, undisturbed: str, actor: str
) -> None:
    pipeline = start(Fault(actor, "begin", deed="stop", window=2), limits=ALERT)
    before = pipeline.pids()[actor]
    events = transcribe(pipeline, clip)
    assert text_of(events) == undisturbed
    assert 2 in attempts_of(events)
    assert pipeline.pids()[actor] != before


@pytest.mark.fault(21)
@pytest.mark.parametrize("actor", ["frontend", "encoder", "decoder"])
def test_21_compute_that_hangs_is_noticed_though_pings_are_answered(
    start: Start, clip: Path, undisturbed: str, actor: str
) -> None:
    events = transcribe(start(Fault(actor, "begin", deed="stuck", window=2)), clip)
    assert text_of(events) == undisturbed
    assert 2 in attempts_of(events)


@pytest.mark.fault(20)
def test_20_a_hub_that_was_stopped_blames_nobody(tiny: Path, clip: Path, undisturbed: str) -> None:
    host = textwrap.dedent(f"""
        from susurrus.actors import Pipeline
        from susurrus.protocol import Done
        from tests.actors.fakes import PLAIN
        from tests.faults.conftest import ALERT
        with Pipeline({str(tiny)!r}, threads=1, limits=ALERT) as pipeline:
            pipeline.wait_until_ready()
            before = pipeline.pids()
            print(*before.values(), flush=True)
            input()
            for event in pipeline.transcribe({str(clip)!r}, **PLAIN):
                if isinstance(event, Done):
                    print(event.text, flush=True)
            print(pipeline.pids() == before, flush=True)
    """)
    root = Path(__file__).parents[2]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", host], cwd=root, text=True, **pipes) as process:  # type: ignore[call-overload]
        assert process.stdout.readline()
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(ALERT.ping_s * ALERT.missed_pings + 1.0)  # longer than anybody may be silent
        process.send_signal(signal.SIGCONT)
        said, _ = process.communicate("\n", timeout=PATIENCE_S)
    assert said.splitlines() == [undisturbed, "True"]


@pytest.mark.fault(31)
def test_a_late_reader_of_events_finds_its_place_after_an_actor_was_replaced(
    start: Start, clip: Path, undisturbed: str
) -> None:
    pipeline = start(Fault("decoder", "token", window=3, nth=4))
    events = []
    for event in pipeline.transcribe(clip, **PLAIN):
        events.append(event)
        if isinstance(event, Partial) and len(events) == 12:
            with pipeline.client() as late:  # comes and goes
                assert late.receive(0.0) is None
    assert text_of(events) == undisturbed
    assert [event.window for event in events if isinstance(event, Segment)] == list(
        range(len(attempts_windows(events)))
    )


def attempts_windows(events: Sequence[object]) -> set[int]:
    """Windows that were committed."""
    return {event.window for event in events if isinstance(event, Segment)}


@pytest.mark.fault(5)
def test_a_pipeline_that_is_closed_while_an_actor_is_being_replaced_leaves_nothing(start: Start, clip: Path) -> None:
    pipeline = start(Fault("encoder", "begin", window=1))
    events = pipeline.transcribe(clip, **PLAIN)
    while not isinstance(next(events), Segment):
        pass
    assert isinstance(pipeline, Pipeline)
    pipeline.close()
    assert pipeline.pids() == {}
