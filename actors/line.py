"""The line that a window goes along, as the hub sees it: who is there, where it receives, what it has granted.

    frontend ==mel==> encoder   ==hidden states==> decoder      lane 1
             ==mel==> encoder-2 ==hidden states==> decoder-2    lane 2, and so on

Each station is told where the next one receives (Downstream); credit goes the other way. An actor that comes in the
place of a lost one is another receiver and another sender: its neighbours are told, and credit begins afresh.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from susurrus.actors.lanes import FRONTEND, KINDS, station_name
from susurrus.actors.watch import Limits, Watch
from susurrus.protocol import Credit, Downstream, Message, Ping, Pong, Ready, SendPort, Upstream, Working

STATIONS = (FRONTEND, *KINDS)  # of a pipeline with one lane, left to right

Send = Callable[[bytes, Message], bool]


@dataclass(slots=True)
class Station:
    """One actor of the line."""

    name: str
    watch: Watch
    instance: bytes = b""
    """Empty until its Hello."""
    pid: int = 0
    inbox: SendPort | None = None
    ready: bool = False
    source: bytes = b""
    """Instance of the upstream that was told of this one."""
    credit: int = 0
    """Granted by this actor and not yet passed on to its upstream."""
    backlog: int = 0
    """Pieces of work that wait in its inbox, as it said last."""
    batches: bool = False
    """Whether it may have several windows in work: a decoder, whose results come to the hub."""
    works: list[Working] = field(default_factory=list)
    """What it works on, as far as the hub knows: one of them is to blame if it is lost now."""
    awaited: int = 0
    """Ping whose answer will prove that it has taken in its new Downstream; 0 when there is nothing to wait for."""
    doubt: str = ""
    """Why it was killed; empty for one that ended by itself."""
    unsent: deque[Message] = field(default_factory=deque)
    """For an actor that does not read at the moment, and whose queue is full."""

    def begins(self, work: Working) -> None:
        """It says that it begins to work on a window."""
        self.works = [*self.works, work] if self.batches else [work]

    def has_done(self, is_open: Callable[[Working], bool]) -> None:
        """It says that it has done a window, but not which.

        Args:
            is_open: whether the hub lacks the result of some work, and still wants it.
        """
        self.works = [work for work in self.works if self.batches and is_open(work)]

    def leave(self, now: float) -> None:
        """Forget the instance that is lost."""
        self.instance, self.pid, self.inbox, self.ready, self.source = b"", 0, None, False, b""
        self.credit, self.backlog, self.awaited, self.doubt = 0, 0, 0, ""
        self.works.clear()
        self.unsent.clear()
        self.watch.started(now)


@dataclass(frozen=True, slots=True)
class Link:
    """Two neighbours."""

    upstream: Station
    station: Station
    lane: int
    """Which of the upstream's ways on this is; 1 for an encoder, which has no other."""


class Line:
    """All stations. Belongs to the hub's thread."""

    def __init__(self, send: Send, limits: Limits, lanes: int = 1) -> None:
        """Nobody is there yet.

        Args:
            send: queues a message for an instance; False when it does not read.
            limits: of every watch.
            lanes: each with an encoder and a decoder.
        """
        now = time.monotonic()
        self.frontend = Station(FRONTEND, Watch(limits, now))
        self.stations = {FRONTEND: self.frontend}
        self._links: list[Link] = []
        self._send = send
        self._pings = 0
        for lane in range(1, lanes + 1):
            upstream = self.frontend
            for kind in KINDS:
                station = Station(station_name(kind, lane), Watch(limits, now), batches=kind == KINDS[-1])
                self.stations[station.name] = station
                self._links.append(Link(upstream, station, lane if upstream is self.frontend else 1))
                upstream = station

    def __iter__(self) -> Iterator[Station]:
        return iter(self.stations.values())

    def __getitem__(self, name: str) -> Station:
        return self.stations[name]

    @property
    def is_ready(self) -> bool:
        """Whether everybody has loaded."""
        return all(station.ready for station in self)

    @property
    def is_settled(self) -> bool:
        """Whether everybody is ready and has taken in where the next one receives: what is sent now arrives."""
        wired = all(link.station.source == link.upstream.instance for link in self._links)
        return self.is_ready and wired and not any(station.awaited for station in self)

    def of(self, instance: bytes) -> Station | None:
        """The station that an instance stands at; None for a foreign or former one."""
        return next((station for station in self if station.instance == instance), None)

    def arrive(self, name: str, instance: bytes, pid: int) -> bool:
        """An actor says Hello; False if its place is taken."""
        station = self[name]
        if station.instance not in (b"", instance):
            return False
        station.instance, station.pid = instance, pid
        self._connect()
        return True

    def ready(self, station: Station, message: Ready) -> None:
        """An actor has loaded."""
        station.ready, station.inbox = True, message.inbox
        station.watch.ready()
        self._connect()

    def grant(self, station: Station, message: Credit) -> None:
        """An actor takes more windows."""
        station.credit += message.windows
        self._connect()

    def answered(self, station: Station, message: Pong) -> None:
        """An actor answers a ping."""
        station.watch.stalled(message.stalled_s)
        station.backlog = message.backlog
        if message.number >= station.awaited:
            station.awaited = 0

    def tell(self, station: Station, message: Message) -> None:
        """To an actor that has said Hello; one that is gone is noticed by its exit, not here."""
        if station.instance:
            station.unsent.append(message)
            self._flush(station)

    def tell_all(self, message: Message) -> None:
        """To everybody who is there."""
        for station in self:
            self.tell(station, message)

    def ping(self) -> None:
        """Ask everybody for a sign of life. One that does not read gets no more pings than its queue holds."""
        self._pings += 1
        for station in self:
            if station.instance and not station.unsent:
                self._send(station.instance, Ping(number=self._pings))

    def flush(self) -> None:
        """Try again what could not be sent."""
        for station in self:
            self._flush(station)

    def _connect(self) -> None:
        """Tell neighbours of each other, and pass on the credit that downstream has granted."""
        for link in self._links:
            upstream, station = link.upstream, link.station
            if not upstream.instance or not station.instance or not station.ready:
                continue
            if station.inbox is not None and station.source != upstream.instance:
                if station.source:  # what it granted went to one that is gone
                    station.credit = 0
                    self.tell(station, Upstream())
                station.source = upstream.instance
                self.tell(upstream, Downstream(port=station.inbox, lane=link.lane))
                self._pings += 1
                upstream.awaited = self._pings
                self.tell(upstream, Ping(number=self._pings))
            if station.credit:
                self.tell(upstream, Credit(windows=station.credit, lane=link.lane))
                station.credit = 0

    def _flush(self, station: Station) -> None:
        """Nothing gets lost for an actor that does not read: it would wait for ever for a lost Credit or Submit."""
        while station.unsent and self._send(station.instance, station.unsent[0]):
            station.unsent.popleft()
