"""Loads for a pipeline that runs, and what becomes of its processes meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from susurrus.actors import Client
from susurrus.actors.status import ask
from susurrus.protocol import Connection, Done, Partial, Started, Status, TerminalEvent, TranscribeOptions, Window
from tests.bench.corpus import BenchError
from tests.bench.curves import Phase
from tests.bench.lengths import Recording
from tests.bench.sampling import Sampler, Series, peak

JOBS, HOURS = "100 jobs", "hour of audio"  # what work is counted in
SETTLE_S = 5.0  # until a client that has left is noticed

Load = Callable[[Connection, Iterable[Recording]], Iterable[tuple[Recording, TerminalEvent]]]


def one_by_one(
    connection: Connection, recordings: Iterable[Recording], options: TranscribeOptions | None = None
) -> Iterator[tuple[Recording, TerminalEvent]]:
    """Have recordings transcribed one after another, each by a client that comes and goes."""
    for recording in recordings:
        with Client(connection) as client:
            job = client.submit(str(recording.path), options=options)
            *_, end = client.follow(job)
        assert isinstance(end, TerminalEvent)
        yield recording, end


def side_by_side(
    connection: Connection, recordings: Iterable[Recording], at_once: int, options: TranscribeOptions | None = None
) -> Iterator[tuple[Recording, TerminalEvent]]:
    """Have recordings transcribed by one client that always has some open."""
    waiting, submitted = iter(recordings), dict[bytes, Recording]()
    with Client(connection) as client:
        while True:
            for recording in islice(waiting, at_once - len(submitted)):
                submitted[client.submit(str(recording.path), options=options)] = recording
            if not submitted:
                break
            event = client.receive()
            if isinstance(event, TerminalEvent):
                yield submitted.pop(event.job), event


@dataclass(frozen=True, slots=True)
class Plan:
    """One kind of load."""

    name: str
    unit: str
    load: Load
    recordings: Iterable[Recording]


def watch(plan: Plan, connection: Connection, sampler: Sampler) -> Phase:
    """Run a load while a sampler looks at the processes; what it has seen before is not of this phase."""
    before, files, done = ask(connection), set(connection.folder.iterdir()), sampler.work
    n_samples = {process: len(series.values) for process, series in sampler.series().items()}
    failures, audio, began = list[str](), list[float](), time.monotonic()
    for recording, end in plan.load(connection, plan.recordings):
        audio.append(recording.seconds)
        sampler.work += 0.01 if plan.unit == JOBS else recording.seconds / 3600
        if not isinstance(end, Done):
            failures.append(f"{recording.path.name}: {end.TYPE} {getattr(end, 'text', '')}")
    seconds = time.monotonic() - began
    sampler.look()
    return Phase(
        name=plan.name,
        unit=plan.unit,
        jobs=len(audio),
        work=sampler.work - done,
        seconds=seconds,
        audio_s=sum(audio),
        series={name: Series(whole.values[n_samples[name] :]) for name, whole in sampler.series().items()},
        proportional=sampler.proportional(),
        failures=failures,
        left=_left(connection, before, files),
    )


def _left(connection: Connection, before: Status, files: set[Path]) -> list[str]:
    """What the pipeline has too much of once all jobs have ended; who has just left it may take a moment to be gone."""
    deadline = time.monotonic() + SETTLE_S
    while (left := list(_surplus(before, ask(connection)))) and time.monotonic() < deadline:
        time.sleep(0.05)
    new_files = set(connection.folder.iterdir()) - files
    return left + [f"the file {path.name} is left in the runtime folder" for path in new_files]


def _surplus(before: Status, after: Status) -> Iterator[str]:
    yield from (f"{after.jobs[state]} jobs are {state}" for state in ("queued", "running") if after.jobs[state])
    for actor, earlier in zip(after.actors, before.actors, strict=True):
        if actor.restarts > earlier.restarts:
            yield f"{actor.name} was restarted"
        if actor.backlog:
            yield f"{actor.backlog} messages wait for {actor.name}"
    if after.bad_frames > before.bad_frames:
        yield f"{after.bad_frames - before.bad_frames} messages were refused"
    if after.subscribers > before.subscribers:
        yield f"{after.subscribers} subscriptions, {before.subscribers} before"


# --- one recording ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Heard:
    """How one recording went."""

    audio_s: float
    seconds: float
    """From when it was opened to the end of the job."""
    first_text_s: float
    """From when it was opened to the first partial text."""
    read_s: float
    """Seconds of audio that the frontend had cut into windows by then."""
    characters: int
    peaks: Mapping[str, float]
    """The largest resident set of each process, MB."""


def hear(connection: Connection, recording: Recording, options: TranscribeOptions | None = None) -> Heard:
    """Have one recording transcribed, and keep nothing of it.

    Raises:
        BenchError: it has no text.
    """
    opened = read = 0.0
    first: tuple[float, float] | None = None
    with Client(connection) as client:
        for event in client.follow(client.submit(str(recording.path), options=options)):
            match event:
                case Started():
                    opened = time.monotonic()
                case Window():
                    read = max(read, event.end)
                case Partial() if first is None and event.text:
                    first = time.monotonic() - opened, read
    seconds = time.monotonic() - opened
    if not isinstance(event, Done) or first is None:
        raise BenchError(f"{recording.path}: {event.TYPE}, {getattr(event, 'text', '') or 'no text'}")
    peaks = {actor.name: peak(actor.pid) for actor in ask(connection).actors}
    return Heard(recording.seconds, seconds, *first, len(event.text), peaks)
