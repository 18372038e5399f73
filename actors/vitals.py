"""How the processes of a pipeline are, as the hub sees them: what they do, how much memory and time they take."""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from pathlib import Path

from susurrus.actors.ledger import Ledger
from susurrus.actors.line import Line, Station
from susurrus.actors.recovery import CONSOLE, Recovery
from susurrus.actors.version import VERSION
from susurrus.protocol import ActorStatus, Status


def usage(pid: int) -> tuple[int, float]:
    """Resident memory in bytes and processor time in seconds of a process; zeros where /proc does not tell (proc(5)).

    Not the proportional share (PSS): the kernel walks the whole address space for it, milliseconds a process.
    """
    folder = Path("/proc", str(pid))
    try:
        resident = int((folder / "statm").read_bytes().split()[1])
        fields = (folder / "stat").read_bytes().rpartition(b")")[2].split()  # the name before it may hold anything
    except OSError:
        return 0, 0.0
    ticks = int(fields[11]) + int(fields[12])  # utime, stime
    return resident * os.sysconf("SC_PAGE_SIZE"), ticks / os.sysconf("SC_CLK_TCK")


def actor_statuses(
    line: Iterable[Station],
    pids: Mapping[str, int],
    restarting: Container[str],
    is_open: Callable[[bytes], bool],
) -> Iterator[ActorStatus]:
    """The actors of the line.

    Args:
        line: of the pipeline.
        pids: of the processes that run, as far as the supervisor has them.
        restarting: names of those that were lost and are not started again yet.
        is_open: whether a job has no terminal event yet.
    """
    for station in line:
        pid = pids.get(station.name, station.pid)
        if station.name in restarting:
            state = "restarting"
        elif not station.ready:
            state = "starting"
        elif any(is_open(work.job) for work in station.works):
            state = "working"
        else:
            state = "ready"
        yield ActorStatus(station.name, pid, state, station.watch.restarts, station.backlog, *usage(pid))


def pipeline_status(
    line: Line,
    ledger: Ledger,
    recovery: Recovery,
    *,
    model: str,
    began: float,
    now: float,
    bad_frames: int,
    subscribers: int,
) -> Status:
    """How a pipeline is at this moment.

    Args:
        line: of the pipeline.
        ledger: of the pipeline.
        recovery: of the pipeline.
        model: its name; empty while it loads.
        began: when the pipeline did, monotonic seconds.
        now: monotonic seconds.
        bad_frames: refused since then.
        subscribers: to events.
    """
    pids = {} if recovery.crew is None else recovery.crew.pids()
    actors = [ActorStatus("hub", os.getpid(), "ready", 0, 0, *usage(os.getpid()))]
    actors += actor_statuses(line, pids, recovery.restarts, ledger.is_open)
    if CONSOLE in pids:
        pid = pids[CONSOLE]
        actors.append(ActorStatus(CONSOLE, pid, "ready", recovery.console.restarts, 0, *usage(pid)))
    return Status(
        package=VERSION,
        model=model,
        uptime_s=now - began,
        actors=tuple(actors),
        jobs={**ledger.counts(), **ledger.statistics.jobs()},
        latency=ledger.statistics.latency(),
        audio_s=ledger.statistics.audio_s,
        busy_s=ledger.statistics.busy_s(now),
        bad_frames=bad_frames,
        subscribers=subscribers,
    )
