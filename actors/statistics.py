"""What a pipeline has done, in numbers. Pure: the time is given from outside, and memory does not grow with use.

Numbers only: nothing here knows what a recording is called or what was said in it.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence

from susurrus.protocol import Segment, TerminalEvent

KEPT = 1024  # values of a kind that percentiles are of, the latest ones: some hours of windows
PERCENTILES = (50, 90, 99)

FRONTEND, ENCODER, DECODER, FIRST_PARTIAL = "frontend", "encoder", "decoder", "first_partial"


def percentiles(values: Iterable[float], wanted: Sequence[float] = PERCENTILES) -> list[float]:
    """Percentiles of values, of which there is at least one; between two of them linearly interpolated."""
    ordered = sorted(values)
    found = []
    for percent in wanted:
        below, part = divmod((len(ordered) - 1) * percent / 100, 1)
        low, high = ordered[int(below)], ordered[min(int(below) + 1, len(ordered) - 1)]
        found.append(low + (high - low) * part)
    return found


class Latency:
    """How long something takes: percentiles of the last `KEPT` times, number and sum of all."""

    def __init__(self) -> None:
        self.count = 0
        self.sum = 0.0
        self._last: deque[float] = deque(maxlen=KEPT)

    def add(self, seconds: float) -> None:
        """It took so long this time."""
        self.count += 1
        self.sum += seconds
        self._last.append(seconds)

    def summary(self) -> dict[str, float]:
        """`p50`, `p90`, `p99`, `count` and `sum`, of at least one time."""
        named = {f"p{wanted}": value for wanted, value in zip(PERCENTILES, percentiles(self._last), strict=True)}
        return {**named, "count": float(self.count), "sum": self.sum}


class Statistics:
    """Of one pipeline, since it began. Belongs to the hub's thread."""

    def __init__(self) -> None:
        self.audio_s = 0.0
        """Seconds of audio of committed windows."""
        self._latency = {name: Latency() for name in (FRONTEND, ENCODER, DECODER, FIRST_PARTIAL)}
        self._ended = Counter[str]()
        self._busy_s = 0.0
        self._busy_since: float | None = None  # monotonic seconds; None while no job runs

    def running(self, *, is_any: bool, now: float) -> None:
        """Tell whether any job is running from now on."""
        if is_any and self._busy_since is None:
            self._busy_since = now
        elif not is_any and self._busy_since is not None:
            self._busy_s += now - self._busy_since
            self._busy_since = None

    def first_partial(self, seconds: float) -> None:
        """A job shows its first text, so many seconds after its Submit."""
        self._latency[FIRST_PARTIAL].add(seconds)

    def committed(self, segment: Segment) -> None:
        """A window is done for good. One without speech has cost no work, and counts as audio alone."""
        self.audio_s += segment.end - segment.start
        if segment.encoder_s:
            self._latency[ENCODER].add(segment.encoder_s)
            self._latency[DECODER].add(segment.decoder_s)

    def read(self, frontend_s: float, windows: int) -> None:
        """The frontend has read a recording to its end: so many seconds of work for so many windows."""
        if windows:
            self._latency[FRONTEND].add(frontend_s / windows)

    def ended(self, event: TerminalEvent) -> None:
        """A job has its terminal event."""
        self._ended[event.TYPE] += 1

    def rejected(self) -> None:
        """A job was not taken."""
        self._ended["rejected"] += 1

    def busy_s(self, now: float) -> float:
        """Seconds in which at least one job was running."""
        return self._busy_s + (0.0 if self._busy_since is None else now - self._busy_since)

    def jobs(self) -> dict[str, int]:
        """How many have ended how."""
        return {state: self._ended[state] for state in ("done", "failed", "cancelled", "rejected")}

    def latency(self) -> dict[str, dict[str, float]]:
        """As Status has it; what has not happened yet is not in it."""
        return {name: latency.summary() for name, latency in self._latency.items() if latency.count}


def job_timings(segments: Iterable[Segment], audio_s: float, seconds: float, attempts: int) -> dict[str, float]:
    """What Done tells of one job beside its sums, under the names and with the meaning of the pipeline's numbers.

    Args:
        segments: of the job, all of them.
        audio_s: seconds of audio that were done in this run.
        seconds: since the frontend opened the audio; 0 if it never did.
        attempts: how often work on the job was begun.

    Returns:
        `encoder_p90` and `decoder_p90`, seconds a window with speech, where there is one; `real_time_factor`, seconds
        of audio a second, where it is known; `attempts`, 1 for a job that no loss of an actor has touched.
    """
    worked = [segment for segment in segments if segment.encoder_s]
    timings = {"attempts": float(attempts)}
    if worked:
        (timings["encoder_p90"],) = percentiles((segment.encoder_s for segment in worked), (90,))
        (timings["decoder_p90"],) = percentiles((segment.decoder_s for segment in worked), (90,))
    if audio_s > 0 and seconds > 0:
        timings["real_time_factor"] = audio_s / seconds
    return timings
