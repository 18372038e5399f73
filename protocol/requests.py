"""What clients ask of the hub, and its answers."""

from __future__ import annotations

from dataclasses import field
from typing import ClassVar

from susurrus.protocol.events import Cancelled, Done, Failed, Partial, Segment
from susurrus.protocol.records import record
from susurrus.protocol.values import Message, TranscribeOptions, since


@record
class Submit(Message):
    """Please transcribe. Followed by Accepted or Rejected, then by events, then by exactly one terminal event."""

    TYPE: ClassVar[str] = "submit"
    job: bytes
    """16 random bytes made by the client: a resent Submit is answered, not run twice."""
    source: str
    """Path of the audio as the frontend sees it, or `-` for the frontend's standard input."""
    name: str
    """What people call it; shown, never opened."""
    options: TranscribeOptions = field(default_factory=TranscribeOptions)
    group: str = since(2, "")
    """Jobs of one group are read in order, as many at a time as there are lanes; groups, and jobs without one, side by
    side."""
    deadline_s: float | None = since(2, None)
    """Seconds from Accepted after which the job fails with `deadline`; None never."""
    journal: str = since(2, "")
    """File that committed segments are kept in, and that an interrupted job goes on from; empty for none."""


@record
class Accepted(Message):
    """The hub has the job in its ledger."""

    TYPE: ClassVar[str] = "accepted"
    job: bytes


@record
class Rejected(Message):
    """The hub does not take the job: `busy`, `version`, `stopping`."""

    TYPE: ClassVar[str] = "rejected"
    job: bytes
    code: str
    text: str


@record
class Cancel(Message):
    """Stop working on the job. Idempotent. Followed by Cancelled, or by Done if that came first."""

    TYPE: ClassVar[str] = "cancel"
    job: bytes


@record
class SnapshotRequest(Message):
    """Where do things stand? Sent after Welcome. Followed by Snapshot."""

    TYPE: ClassVar[str] = "snapshot_request"


@record
class JobState:
    """One job as the ledger has it, inside a Snapshot. Apply events with a larger seq to it."""

    job: bytes
    seq: int
    """Number of the last event that this state contains."""
    name: str
    state: str
    """`queued`, `running`, `done`, `failed`, `cancelled`."""
    duration: float | None
    segments: tuple[Segment, ...]
    """Committed so far, by window."""
    partial: Partial | None
    """Hypothesis of the window that is being decoded."""
    end: Done | Failed | Cancelled | None
    """The terminal event, once there is one."""


@record
class Snapshot(Message):
    """Every active job and the last finished ones."""

    TYPE: ClassVar[str] = "snapshot"
    jobs: tuple[JobState, ...]


@record
class StatusRequest(Message):
    """How is the pipeline? Followed by Status."""

    TYPE: ClassVar[str] = "status_request"


@record
class ActorStatus:
    """One process of the pipeline."""

    name: str
    pid: int
    """0 while it is not there."""
    state: str
    """`starting`, `ready`, `working`, `restarting`."""
    restarts: int
    """Since the pipeline began."""
    backlog: int
    """Windows or jobs that wait in its inbox."""
    rss_bytes: int
    """Resident memory; 0 where it cannot be told."""
    cpu_s: float
    """Processor time used; 0 where it cannot be told."""


@record
class Status(Message):
    """Answer to StatusRequest: what the pipeline does and has done. Nothing of what was said in the audio."""

    TYPE: ClassVar[str] = "status"
    package: str
    model: str
    uptime_s: float
    actors: tuple[ActorStatus, ...]
    jobs: dict[str, int]
    """State -> jobs: `queued` and `running` now, `done`, `failed`, `cancelled`, `rejected` since the beginning."""
    latency: dict[str, dict[str, float]]
    """Stage -> seconds: `encoder`, `decoder` a window with speech, `frontend` a window (the mean of a recording),
    `first_partial` a job. As `p50`, `p90`, `p99` of the last 1024, `count` and `sum` of all; what never happened is
    left out."""
    audio_s: float
    """Seconds of audio of committed windows."""
    busy_s: float
    """Seconds in which at least one job was running."""
    bad_frames: int
    subscribers: int
