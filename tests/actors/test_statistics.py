"""The numbers of a pipeline: as numpy and brute force have them, and no larger for a longer life."""

from __future__ import annotations

import random
import statistics
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from susurrus.actors.ledger import Ledger
from susurrus.actors.reports import JobReport
from susurrus.actors.statistics import KEPT, Latency, Statistics, job_timings
from susurrus.protocol import Done, new_id
from tests.actors.fakes import audio_end, failed, partial, segment, started, submit, window

NOISE = random.Random(5)  # noqa: S311 - noise is all it is for


@pytest.mark.parametrize("count", [1, 2, 3, 100, KEPT, 3 * KEPT + 17])
def test_percentiles_are_those_of_the_last_times_and_sums_those_of_all(count: int) -> None:
    times = [NOISE.expovariate(3.0) for _ in range(count)]
    latency = Latency()
    for seconds in times:
        latency.add(seconds)
    summary, last = latency.summary(), times[-KEPT:]
    assert summary["count"] == count
    assert summary["sum"] == pytest.approx(sum(times))
    for name, percent in (("p50", 50), ("p90", 90), ("p99", 99)):
        assert summary[name] == pytest.approx(float(np.percentile(last, percent)))
        if len(last) > 1:
            wanted = statistics.quantiles(last, n=100, method="inclusive")[percent - 1]
            assert summary[name] == pytest.approx(wanted)


def test_memory_does_not_grow_with_what_was_done() -> None:
    numbers, job = Statistics(), new_id()
    ended = failed(job)

    def work(windows: int) -> int:
        for index in range(windows):
            numbers.committed(replace(segment(job, index), encoder_s=NOISE.random(), decoder_s=NOISE.random()))
            numbers.first_partial(NOISE.random())
            numbers.read(NOISE.random(), 2)
            numbers.ended(ended)
            numbers.rejected()
            numbers.running(is_any=index % 2 == 0, now=float(index))
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        before = work(KEPT)
        assert work(8 * KEPT) - before < 10_000
    finally:
        tracemalloc.stop()


@given(st.lists(st.tuples(st.integers(0, 200), st.integers(0, 40)), max_size=20))
def test_the_pipeline_is_busy_while_any_job_runs_and_that_counts_once(jobs: list[tuple[int, int]]) -> None:
    spans = [(start, start + length) for start, length in jobs]
    numbers = Statistics()
    for now in range(260):
        numbers.running(is_any=any(start <= now < end for start, end in spans), now=float(now))
        covered = {moment for start, end in spans for moment in range(start, min(end, now))}
        assert numbers.busy_s(float(now)) == len(covered)


def test_a_window_without_speech_is_audio_without_work() -> None:
    numbers, job = Statistics(), new_id()
    numbers.committed(replace(segment(job, 0), encoder_s=0.0, decoder_s=0.0))
    assert (numbers.audio_s, numbers.latency()) == (30.0, {})
    numbers.committed(segment(job, 1))
    assert numbers.audio_s == 60.0
    assert {name: values["count"] for name, values in numbers.latency().items()} == {"encoder": 1, "decoder": 1}


def ledger_with(job: bytes, *, at: float = 10.0) -> Ledger:
    ledger = Ledger()
    ledger.submit(submit(job), at)
    ledger.next_to_read()
    return ledger


def apply(ledger: Ledger, *reports: tuple[float, JobReport]) -> Done | None:
    events = [event for now, report in reports for event in ledger.apply(report, now)]
    return next((event for event in events if isinstance(event, Done)), None)


def test_the_ledger_counts_what_takes_effect_and_that_once() -> None:
    job, cancelled, unread = new_id(), new_id(), new_id()
    ledger = ledger_with(job)
    for other in (cancelled, unread):
        ledger.submit(submit(other), 0.0)
    assert (ledger.counts(), ledger.is_busy) == ({"queued": 2, "running": 1}, True)
    ledger.cancel(cancelled)
    ledger.cancel(cancelled)
    twice: list[tuple[float, JobReport]] = [(12.0, window(job, index)) for index in range(3)]
    twice.insert(0, (12.0, started(job)))
    twice += [(12.5, partial(job, 0)), (13.0, segment(job, 1)), (13.0, segment(job, 0))]
    apply(ledger, *twice, *twice)
    done = apply(ledger, (14.0, segment(job, 2)), (15.0, audio_end(job, 3)), (15.0, audio_end(job, 3)))
    assert done is not None
    ledger.fail(job, "internal", "too late")
    numbers = ledger.statistics
    assert numbers.jobs() == {"done": 1, "failed": 0, "cancelled": 1, "rejected": 0}
    counts = {name: (values["count"], values["p50"]) for name, values in numbers.latency().items()}
    wanted = {"encoder": (3, 0.25), "decoder": (3, 0.5), "frontend": (1, 0.125 / 3), "first_partial": (1, 2.5)}
    assert counts == wanted
    assert numbers.audio_s == 90.0
    assert (ledger.counts(), ledger.is_busy) == ({"queued": 1, "running": 0}, False)


def test_done_tells_the_same_numbers_of_its_job() -> None:
    job = new_id()
    ledger = ledger_with(job)
    apply(ledger, (12.0, started(job)), *[(12.0, window(job, index)) for index in range(10)])
    works = [NOISE.random() for _ in range(10)]
    segments = [replace(segment(job, index), encoder_s=work, decoder_s=2 * work) for index, work in enumerate(works)]
    done = apply(ledger, *[(13.0, piece) for piece in segments], (72.0, audio_end(job, 10)))
    assert done is not None
    assert done.timings["real_time_factor"] == pytest.approx(300 / 60)
    assert done.timings["encoder_p90"] == pytest.approx(float(np.percentile(works, 90)))
    assert done.timings["decoder_p90"] == pytest.approx(2 * float(np.percentile(works, 90)))
    assert done.timings["attempts"] == 1


def test_done_tells_how_often_its_work_was_begun_and_of_a_resumed_job_how_fast_the_rest_was() -> None:
    job = new_id()
    ledger = Ledger()
    ledger.submit(submit(job), 0.0, [segment(job, index) for index in range(8)])
    ledger.next_to_read()
    apply(ledger, (10.0, started(job)))
    ledger.begin_attempt()
    done = apply(
        ledger,
        *[(11.0, window(job, index, attempt=2)) for index in (8, 9)],
        *[(12.0, segment(job, index, attempt=2)) for index in (8, 9)],
        (30.0, audio_end(job, 10)),
    )
    assert done is not None
    assert done.timings["attempts"] == 2
    assert done.timings["real_time_factor"] == pytest.approx(60 / 20)
    assert ledger.statistics.audio_s == 60.0


def test_a_job_without_speech_has_no_percentiles() -> None:
    silent = replace(segment(new_id(), 0), encoder_s=0.0, decoder_s=0.0)
    assert job_timings([silent], 30.0, 2.0, 1) == {"attempts": 1.0, "real_time_factor": 15.0}
    assert job_timings([], 0.0, 0.0, 1) == {"attempts": 1.0}
