"""The console's talk with the hub: the test is the hub, a list is the screen."""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any, TypeVar

import pytest
import zmq

from susurrus.actors import console as module
from susurrus.actors import exits
from susurrus.actors.console import Console, ConsoleOptions, follow
from susurrus.actors.terminal import OutputClosedError
from susurrus.actors.view import Change, TranscriptView
from susurrus.models.errors import SusurrusError
from susurrus.protocol import (
    Connection,
    Hello,
    HubPort,
    Identity,
    JobState,
    Message,
    Publisher,
    RuntimeFolder,
    Snapshot,
    SnapshotRequest,
    Started,
    Stopped,
    Transport,
    Welcome,
    Window,
)

JOB = bytes(range(16))
PATIENCE_S = 50.0
ORDERLY_END = Stopped("pipeline", "", "")
QUEUED = Snapshot((JobState(JOB, 0, "clip.wav", "queued", None, (), None, None),))

M = TypeVar("M", bound=Message)


def started(seq: int = 1) -> Started:
    return Started(JOB, seq, "clip.wav", 60.0)


def window(seq: int) -> Window:
    return Window(JOB, seq - 2, 1, 0.0, 30.0, True, seq)


class Recorder:
    """A renderer that keeps what it is told."""

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self.errors: list[str] = []
        self.closed = False
        self.trouble: Exception | None = None
        self.news = threading.Condition()

    def on_change(self, view: TranscriptView, changes: Sequence[Change]) -> None:  # noqa: ARG002 - a list is enough
        """Keep them."""
        if self.trouble is not None and changes:
            raise self.trouble
        with self.news:
            self.changes += changes
            self.news.notify_all()

    def timeout(self) -> float | None:
        """Nothing waits."""
        return None

    def error(self, text: str) -> None:
        """Keep it."""
        self.errors.append(text)

    def close(self) -> None:
        """Remember it."""
        self.closed = True

    def wait_for(self, n: int) -> list[Change]:
        """The changes, once there are n of them."""
        with self.news:
            assert self.news.wait_for(lambda: len(self.changes) >= n, PATIENCE_S), self.changes
            return list(self.changes)


class Hub:
    """The other side of the console's two sockets, in the hands of the test."""

    def __init__(self, resources: ExitStack) -> None:
        self.folder = resources.enter_context(RuntimeFolder.create())
        self.context: zmq.Context[Any] = zmq.Context()
        resources.callback(self.context.term)
        identity, transport = Identity.new("hub"), Transport.choose(self.folder.path)
        self.port = resources.enter_context(HubPort(self.context, transport, identity))
        self.publisher = resources.enter_context(Publisher(self.context, transport, identity))
        self.connection = Connection(
            pid=os.getpid(),
            instance=identity.instance,
            hub=self.port.endpoint,
            events=self.publisher.endpoint,
            transport=transport,
            started=time.time(),
        )
        self._resources = resources

    def open_console(self) -> None:
        """A console in a thread."""
        self.recorder = Recorder()
        self.console = Console(self.connection, self.recorder, self.context)
        self.result: int | Exception | None = None
        self.thread = threading.Thread(target=self._run, name="susurrus-console")
        self.thread.start()
        self._resources.callback(self.thread.join, PATIENCE_S)
        self._resources.callback(self.console.stop, 0)

    def _run(self) -> None:
        try:
            self.result = self.console.run()
        except (OutputClosedError, SusurrusError) as error:
            self.result = error

    def welcome(self) -> None:
        """Wait for the subscription and answer it."""
        assert self.publisher.socket.poll(int(PATIENCE_S * 1000))
        for topic in self.publisher.poll_subscriptions():
            self.publisher.publish(Welcome(self.connection.instance), topic=topic)

    def hear(self, kind: type[M]) -> M:
        """The next thing the console says, which must be of that type; but it asks again for what takes its time."""
        while True:
            received = self.port.receive(PATIENCE_S)
            assert received is not None, f"no {kind.__name__} came"
            self.peer, message = received[0], received[1].message
            if isinstance(message, kind):
                return message
            assert isinstance(message, SnapshotRequest)

    def answer(self, snapshot: Snapshot) -> None:
        """Answer the request heard last."""
        self.port.send(self.peer, snapshot)

    def meet(self, snapshot: Snapshot = QUEUED) -> None:
        """Everything up to where the console is live."""
        self.welcome()
        self.hear(SnapshotRequest)
        self.answer(snapshot)
        self.hear(Hello)

    def end(self) -> int | Exception | None:
        """What the console's run came to."""
        self.thread.join(PATIENCE_S)
        assert not self.thread.is_alive()
        return self.result


@pytest.fixture
def lonely_hub() -> Iterator[Hub]:
    """A hub without a console."""
    with ExitStack() as resources:
        yield Hub(resources)


@pytest.fixture
def hub(lonely_hub: Hub) -> Hub:
    """A hub whose console runs in a thread."""
    lonely_hub.open_console()
    return lonely_hub


def test_it_asks_for_a_snapshot_once_it_is_welcome_and_says_hello_once_it_has_one(hub: Hub) -> None:
    hub.welcome()
    hub.hear(SnapshotRequest)
    hub.answer(QUEUED)
    hello = hub.hear(Hello)
    assert (hello.name, hello.pid) == ("console", os.getpid())


def test_before_it_is_welcome_it_asks_for_nothing(hub: Hub) -> None:
    assert hub.publisher.socket.poll(int(PATIENCE_S * 1000))
    assert hub.port.receive(2 * module.SNAPSHOT_PAUSE_S) is None
    hub.meet()


def test_events_are_shown_in_order(hub: Hub) -> None:
    hub.meet()
    events = [started(), window(2), window(3)]
    for event in events:
        hub.publisher.publish(event)
    assert hub.recorder.wait_for(3) == events


def test_a_lost_event_is_made_up_for_by_another_snapshot(hub: Hub) -> None:
    hub.meet()
    hub.publisher.publish(started())
    hub.publisher.publish(window(3))  # the second never comes
    hub.hear(SnapshotRequest)
    state = JobState(JOB, 2, "clip.wav", "running", 60.0, (), None, None)
    hub.answer(Snapshot((state,)))
    assert hub.recorder.wait_for(3) == [started(), Snapshot((state,)), window(3)]
    hub.publisher.publish(ORDERLY_END)
    assert hub.end() == exits.OK
    while (received := hub.port.receive()) is not None:  # and Hello is said once
        assert isinstance(received[1].message, SnapshotRequest)


def test_while_it_lags_behind_it_does_not_ask_for_every_lost_event(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.meet()
    monkeypatch.setattr(module, "SNAPSHOT_PAUSE_S", PATIENCE_S)
    hub.publisher.publish(started())
    for seq in range(3, 100):
        hub.publisher.publish(window(seq))
    hub.publisher.publish(ORDERLY_END)
    assert hub.end() == exits.OK
    requests = 0
    while hub.port.receive() is not None:
        requests += 1
    assert requests <= 1


@pytest.mark.parametrize(
    ("stopped", "code"), [(ORDERLY_END, exits.OK), (Stopped("pipeline", "actor_lost", "x"), exits.PIPELINE)]
)
def test_it_ends_with_the_pipeline_and_tells_how_that_ended(hub: Hub, stopped: Stopped, code: int) -> None:
    hub.meet()
    hub.publisher.publish(stopped)
    assert hub.end() == code
    assert hub.recorder.changes == [stopped]
    assert hub.recorder.closed


@pytest.mark.parametrize("is_live", [False, True], ids=["before the snapshot", "after it"])
def test_it_can_be_stopped_at_any_time(hub: Hub, *, is_live: bool) -> None:
    if is_live:
        hub.meet()
    hub.console.stop(exits.INTERRUPTED)
    assert hub.end() == exits.INTERRUPTED
    assert hub.recorder.closed


def test_a_pipeline_whose_process_was_killed_is_noticed_and_named(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SILENCE_S", 0.01)
    hub.meet()
    hub.folder.close()  # as the kernel does it: the lock is free
    assert hub.end() == exits.PIPELINE
    (text,) = hub.recorder.errors
    assert "killed" in text


def test_a_hub_that_is_silent_but_alive_is_waited_for(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    looked = threading.Semaphore(0)
    is_live = Connection.is_live.fget  # type: ignore[attr-defined]  # a property

    def look(connection: Connection) -> bool:
        looked.release()
        return bool(is_live(connection))

    monkeypatch.setattr(module, "SILENCE_S", 0.01)
    monkeypatch.setattr(Connection, "is_live", property(look))
    hub.meet()
    for _ in range(3):
        assert looked.acquire(timeout=PATIENCE_S)
    hub.publisher.publish(started())
    assert hub.recorder.wait_for(1) == [started()]


def test_what_came_while_nobody_read_the_output_is_shown_however_long_that_was(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    paused, goes_on = threading.Event(), threading.Event()
    real = hub.recorder.on_change

    def on_change(view: TranscriptView, changes: Sequence[Change]) -> None:
        real(view, changes)
        if changes:
            paused.set()
            assert goes_on.wait(PATIENCE_S)

    monkeypatch.setattr(hub.recorder, "on_change", on_change)
    hub.meet()
    hub.publisher.publish(started())
    assert paused.wait(PATIENCE_S)
    hub.publisher.publish(ORDERLY_END)
    hub.folder.close()
    hub.console._heard -= 100.0
    goes_on.set()
    assert hub.end() == exits.OK
    assert hub.recorder.changes == [started(), ORDERLY_END]


@pytest.mark.parametrize("trouble", [OutputClosedError(), SusurrusError("the disk is full")])
def test_when_the_text_cannot_be_written_it_ends(hub: Hub, trouble: Exception) -> None:
    hub.recorder.trouble = trouble
    hub.meet()
    hub.publisher.publish(started())
    assert hub.end() is trouble
    assert hub.recorder.closed


def test_a_frame_that_is_none_of_ours_is_passed_over(hub: Hub) -> None:
    hub.meet()
    hub.publisher.socket.send_multipart([b"job/", b"SUSU01", b"garbage", b"\xff" * 100])
    hub.publisher.publish(started())
    assert hub.recorder.wait_for(1) == [started()]


class FullDisk(io.StringIO):
    """A stream whose disk is full."""

    def write(self, text: str) -> int:  # noqa: ARG002 - none of it fits
        """Fail."""
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


# --- as run.py uses it ------------------------------------------------------------------------------------------


@pytest.fixture
def restored_handlers() -> Iterator[None]:
    """`follow` installs signal handlers."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.usefixtures("restored_handlers")
@pytest.mark.parametrize(
    ("make_stdout", "code", "complaints"),
    [(io.StringIO, exits.OK, 0), (lambda: None, exits.OUTPUT_CLOSED, 0), (FullDisk, exits.PIPELINE, 1)],
    ids=["all is well", "nobody reads", "the disk is full"],
)
def test_trouble_with_the_output_is_an_exit_code_of_its_own(
    lonely_hub: Hub,
    monkeypatch: pytest.MonkeyPatch,
    make_stdout: Callable[[], io.StringIO | None],
    code: int,
    complaints: int,
) -> None:
    stderr = io.StringIO()
    monkeypatch.setattr(sys, "stdout", make_stdout())
    monkeypatch.setattr(sys, "stderr", stderr)
    talking = threading.Thread(target=_talk, args=(lonely_hub,))
    talking.start()
    try:
        assert follow(lonely_hub.connection, ConsoleOptions(as_json=True), {"SIGTERM": exits.TERMINATED}) == code
    finally:
        talking.join(PATIENCE_S)
    assert stderr.getvalue().count("\n") == complaints


def _talk(hub: Hub) -> None:
    """One job's beginning, and the end."""
    hub.meet()
    hub.publisher.publish(started())
    hub.publisher.publish(ORDERLY_END)
