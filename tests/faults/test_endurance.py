"""What stays stays as it is: hundreds of jobs, a long recording, in little; `tests/bench/endurance.py` is the whole."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import psutil
import pytest
import soundfile

from susurrus.actors import Pipeline
from susurrus.actors.ledger import MAX_FINISHED
from tests.actors.fakes import OPTIONS, PATIENCE_S, RATE, sounds
from tests.bench.corpus import read_corpus
from tests.bench.curves import Phase
from tests.bench.lengths import SPARSE_RATE, Recording, long_recordings, short_recordings, sparse_recording
from tests.bench.loads import JOBS, Plan, hear, one_by_one, side_by_side, watch
from tests.bench.sampling import COLUMNS, Sampler, Series, slope, trend
from tests.conftest import SAMPLES

SHORT_S, LONG_S = 15.0, 120.0
FEW_MB = 2.0


@pytest.fixture(scope="module")
def pipeline(tiny: Path, runtime_parent: Path) -> Iterator[Pipeline]:
    """One for all."""
    assert runtime_parent.is_dir()
    with Pipeline(tiny, threads=1) as pipeline:
        assert pipeline.wait_until_ready(PATIENCE_S)
        yield pipeline


@pytest.mark.fault(35)
def test_hundreds_of_jobs_leave_memory_descriptors_files_and_queue_as_they_were(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    short = Recording(tmp_path / "short.wav", 0.5)
    soundfile.write(short.path, sounds(short.seconds), RATE)
    plans = [
        Plan("warm up", JOBS, partial(side_by_side, at_once=4, options=OPTIONS), [short] * (MAX_FINISHED + 8)),
        Plan("each its client", JOBS, partial(one_by_one, options=OPTIONS), [short] * 60),
        Plan("four at once", JOBS, partial(side_by_side, at_once=4, options=OPTIONS), [short] * 120),
    ]
    with Sampler(
        lambda: {**pipeline.pids(), "hub": os.getpid()}, pipeline.connection.folder, interval_s=0.05
    ) as sampler:
        phases = [watch(plan, pipeline.connection, sampler) for plan in plans]
    for plan, phase in zip(plans, phases, strict=True):
        assert (phase.name, phase.jobs, phase.failures, phase.left) == (plan.name, len(list(plan.recordings)), [], [])
    for phase in phases[1:]:
        assert {row["process"] for row in phase.rows() if row["private_mb_change"] > FEW_MB} == set()
        assert {row["process"] for row in phase.rows() if row["descriptors"][1] > row["descriptors"][0] + 2} == set()


@pytest.mark.fault(36)
def test_a_long_recording_needs_no_more_memory_than_a_short_one_and_its_text_comes_before_it_is_read(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    clips = read_corpus(SAMPLES)
    short = sparse_recording(clips, tmp_path / "short.wav", SHORT_S / 3600)
    long = sparse_recording(clips, tmp_path / "long.wav", LONG_S / 3600)
    assert soundfile.info(long.path).samplerate == SPARSE_RATE
    few, many = (hear(pipeline.connection, recording, OPTIONS) for recording in (short, long))
    assert many.characters > 4 * few.characters
    assert many.read_s < LONG_S / 4
    assert {name for name in pipeline.pids() if many.peaks[name] > few.peaks[name] + FEW_MB} == set()


def made_phase(*, leak_mb: float = 0.0, descriptors: int = 0) -> Phase:
    """200 jobs in 200 s, with noise, a warm-up, and what leaks for 100 of them."""
    time = np.arange(200.0)
    values = np.zeros((200, len(COLUMNS)))
    values[:, 0], values[:, 1] = time, time / 100
    noise = np.random.default_rng(0).normal(0, 0.05, 200)
    values[:, 3] = 100 * np.minimum(1, time / 20) + leak_mb * time / 100 + noise
    values[:, 4] = 20 + descriptors * time // 100
    return Phase("made", JOBS, 200, 2.0, 200.0, 100.0, {"hub": Series(values)}, {"hub": 100.0})


@pytest.mark.fault(35)
def test_a_leak_is_told_from_a_warm_up_and_from_noise() -> None:
    assert list(made_phase().faults()) == []
    (memory,) = made_phase(leak_mb=1.0).faults()
    assert memory.startswith("made: hub grows by")
    (descriptors,) = made_phase(descriptors=4).faults()
    assert "descriptors" in descriptors
    (row,) = made_phase(leak_mb=1.0).rows()
    assert row["private_mb_per_hour"] == pytest.approx(36.0, rel=0.05)


@pytest.mark.fault(35)
def test_the_slope_is_that_of_the_least_squares_line() -> None:
    random = np.random.default_rng(1)
    x, y = random.normal(size=50), random.normal(size=50)
    assert slope(x, y) == pytest.approx(np.polyfit(x, y, 1)[0])
    assert slope(np.ones(5), y[:5]) == 0


@pytest.mark.fault(35)
def test_a_sampler_sees_what_the_process_has(tmp_path: Path) -> None:
    sampler = Sampler(lambda: {"self": os.getpid()}, tmp_path)
    sampler.look()
    files = [(tmp_path / name).open("w") for name in ("one", "two")]
    ballast = np.ones(10_000_000)
    sampler.work = 1.0
    sampler.look()
    for file in files:
        file.close()
    series = sampler.series()["self"]
    assert series["work"].tolist() == [0, 1]
    assert np.diff(series["descriptors"]).tolist() == np.diff(series["files"]).tolist() == [2]
    assert np.diff(series["private"]) == pytest.approx(ballast.nbytes / 1e6, abs=FEW_MB)
    assert len(series.behind(0.0).values) == 1
    assert trend(series.behind(0.0), "threads").last >= psutil.Process().num_threads()


@pytest.mark.fault(36)
def test_recordings_are_as_long_as_they_say(tmp_path: Path) -> None:
    clips = read_corpus(SAMPLES)
    long = long_recordings(clips, tmp_path, 50 / 3600, each_s=20.0)
    assert [recording.seconds for recording in long] == [20.0, 20.0, 10.0]
    assert [soundfile.info(recording.path).duration for recording in long] == [20.0, 20.0, 10.0]
    short = short_recordings(clips, 20)
    assert len(short) == 20
    assert all(1.0 <= recording.seconds <= 15.0 for recording in short)
