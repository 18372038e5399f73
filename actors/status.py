"""How a running pipeline is: asked over its connection; told as a table for people, as JSON for programs."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict

import zmq

from susurrus.actors.client import PipelineError
from susurrus.actors.io import Context
from susurrus.actors.render import clock
from susurrus.actors.terminal import Output
from susurrus.protocol import (
    ActorStatus,
    Connection,
    Error,
    HubLine,
    Identity,
    ProtocolError,
    Rejected,
    Status,
    StatusRequest,
)

ANSWER_S = 3.0  # a hub that runs needs milliseconds
MB = 1_000_000


def show(connection: Connection, *, as_json: bool) -> None:
    """Write on standard output how a pipeline is.

    Raises:
        OutputClosedError: nobody reads it.
        PipelineError: as `ask` does.
        SusurrusError: it cannot be written.
    """
    status, output = ask(connection), Output(sys.stdout)
    for line in [to_json(status)] if as_json else as_table(status):
        output.say(line)


def ask(connection: Connection, timeout: float = ANSWER_S) -> Status:
    """Ask a pipeline how it is. Blocks, at most for the timeout in seconds.

    Raises:
        EndpointError: the connection names endpoints outside of its own folder.
        PipelineError: it does not answer, or does not know the question.
    """
    context: Context = zmq.Context()
    try:
        with HubLine(context, connection.transport, Identity.new("status"), connection.hub) as line:
            line.send(StatusRequest(), answer=True)
            answer = _answer(line, time.monotonic() + timeout)
            if answer is not None:
                return answer
            trouble = line.trouble()
    finally:
        context.term()
    who = f"its process {connection.pid}" if connection.is_local else connection.hub
    why = trouble or f"{who} is stopped, or too busy; after its end, start another"
    raise PipelineError("silent", f"the pipeline does not answer within {timeout:g} s: {why}")


def _answer(line: HubLine, deadline: float) -> Status | None:
    """What comes until the deadline, monotonic seconds; None when it is nothing."""
    while (left := deadline - time.monotonic()) > 0:
        try:
            received = line.receive(left)
        except ProtocolError:  # one bad frame more or less: the answer may still come
            continue
        if received is None:
            break
        match received.message:
            case Status() as status:
                return status
            case Error(code=code) | Rejected(code=code):
                raise PipelineError(code, "the pipeline is of another version of susurrus, which cannot tell how it is")
            case _:
                pass
    return None


def real_time_factor(status: Status) -> float | None:
    """Seconds of audio done in a second in which there was something to do; None before the first window."""
    return status.audio_s / status.busy_s if status.audio_s > 0 and status.busy_s > 0 else None


def to_json(status: Status) -> str:
    """One line: the fields of Status, and `real_time_factor`."""
    return json.dumps({**asdict(status), "real_time_factor": real_time_factor(status)})


# --- for people ---------------------------------------------------------------------------------------------


def as_table(status: Status) -> list[str]:
    """Lines, about half a screen. Names come from the pipeline as they are: `Output.say` makes them harmless."""
    factor = real_time_factor(status)
    speed = "nothing done yet" if factor is None else f"{clock(status.audio_s)} of audio, {factor:.1f}x real time"
    return [
        f"susurrus {status.package}, model {status.model or '(loading)'}, up {clock(status.uptime_s)}",
        "",
        *_table([("actor", "state", "pid", "restarts", "backlog", "memory", "CPU"), *map(_actor, status.actors)], 2),
        "",
        *_table([("seconds for", "p50", "p90", "p99", "count"), *_latencies(status)], 1),
        "",
        "jobs: " + ", ".join(f"{count} {state}" for state, count in status.jobs.items()),
        f"done: {speed}, busy for {clock(status.busy_s)}",
        f"subscribers: {status.subscribers}; bad frames: {status.bad_frames}",
    ]


def _actor(actor: ActorStatus) -> tuple[str, ...]:
    return (
        actor.name,
        actor.state,
        str(actor.pid or "-"),
        str(actor.restarts),
        str(actor.backlog),
        f"{actor.rss_bytes / MB:.0f} MB" if actor.rss_bytes else "-",
        f"{actor.cpu_s:.1f} s" if actor.rss_bytes else "-",
    )


def _latencies(status: Status) -> Iterator[tuple[str, ...]]:
    """A row each. The frontend's is its mean over a recording; first_partial counts from Submit."""
    for name, values in status.latency.items():
        times = (f"{values[key]:.3f}" if key in values else "-" for key in ("p50", "p90", "p99"))
        yield (name.replace("_", " "), *times, f"{values.get('count', 0.0):.0f}")


def _table(rows: Iterable[tuple[str, ...]], n_words: int) -> Iterator[str]:
    """Columns of words to the left, those of numbers behind them to the right."""
    cells = list(rows)
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        padded = [cell.ljust(width) for cell, width in zip(row[:n_words], widths, strict=False)]
        padded += [cell.rjust(width) for cell, width in zip(row[n_words:], widths[n_words:], strict=True)]
        yield "  ".join(padded).rstrip()
