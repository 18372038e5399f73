"""What the actors' tests play with: a tiny model, a hub and actors made of scripts, reports, sounds."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self, TypeVar, cast

import numpy as np
import zmq
from numpy.typing import NDArray

from susurrus.actors.behaviour import Behaviour, Desk, Loaded, Work
from susurrus.actors.hub import Hub
from susurrus.actors.io import receive_all
from susurrus.actors.shell import Shell
from susurrus.actors.watch import Limits
from susurrus.models.options import OptionFields
from susurrus.models.provisioning.manifest import describe, write_manifest
from susurrus.models.vocabulary import TIMESTAMPS
from susurrus.protocol import (
    ActorSettings,
    AudioEnd,
    BadFrames,
    Beat,
    Connection,
    Credit,
    Downstream,
    Failed,
    Features,
    Hello,
    HiddenStates,
    HubLine,
    HubPort,
    Identity,
    Message,
    Outlet,
    Partial,
    Ping,
    Pong,
    Ready,
    ReceivePort,
    RuntimeFolder,
    Segment,
    SendPort,
    Snapshot,
    SnapshotRequest,
    Started,
    Submit,
    Subscriber,
    TranscribeOptions,
    Transport,
    Welcome,
    Window,
    new_id,
)
from tests.models.tiny import (
    CHUNK_LENGTH,
    DIMENSIONS,
    SPECIAL,
    build_tiny,
    byte_tokens,
    ctranslate2_bytes,
    random_tensors,
)

PATIENCE_S = 50.0  # until a test is sure that what it waits for will not come
RATE = 16000
PLAIN: OptionFields = {
    "vad": False,
    "timestamps": False,
    "temperatures": (0.0,),
    "compression_ratio_threshold": None,
    "logprob_threshold": None,
    "no_speech_threshold": None,
}
"""For models that have learnt nothing and recordings that are no speech: every window is decoded, once."""
OPTIONS = TranscribeOptions(**PLAIN)


def with_plain(options: OptionFields) -> OptionFields:
    """These options, for such a model and such recordings."""
    return cast("OptionFields", {**PLAIN, **options})


M = TypeVar("M", bound=Message)


# --- a model ----------------------------------------------------------------------------------------------------


def write_tiny_model(folder: Path, *precisions: str) -> Path:
    """A model directory with its manifest: random weights, windows of 1 s, at most 20 tokens each.

    It has as many tokens as the multilingual Whispers, which is how such a model is recognised. Its words are
    `w0`, `w1`, …, so that every token shows.
    """
    source, directory = folder / "source", folder / "tiny"
    source.mkdir()
    n_words = 51865 - 256 - len(SPECIAL) - len(TIMESTAMPS)
    text = [*byte_tokens(), *(f"Ġw{index}" for index in range(n_words))]
    vocabulary = [*text, *SPECIAL, *TIMESTAMPS]
    eot = len(text)
    dimensions = replace(DIMENSIONS, n_vocab=len(vocabulary), n_audio_layer=1, n_text_layer=1)
    heads = {"encoder/num_heads": dimensions.n_audio_head, "decoder/num_heads": dimensions.n_text_head}
    variables = {**random_tensors(dimensions), **{name: np.array(count, np.int16) for name, count in heads.items()}}
    (source / "model.bin").write_bytes(ctranslate2_bytes(variables))
    never = [*range(256), *range(eot + 1, len(vocabulary))]  # bytes are halves of characters, the rest is no text
    config = {"suppress_ids": never, "suppress_ids_begin": [eot], "alignment_heads": []}
    (source / "config.json").write_text(json.dumps(config))
    (source / "preprocessor_config.json").write_text(json.dumps({"chunk_length": CHUNK_LENGTH}))
    (source / "vocabulary.txt").write_text("".join(f"{token}\n" for token in vocabulary), encoding="utf-8")
    added = [{"id": eot + index, "content": token} for index, token in enumerate(SPECIAL)]
    words = {token: index for index, token in enumerate(text)}
    tokenizer = {"model": {"type": "BPE", "vocab": words, "merges": []}, "added_tokens": added}
    (source / "tokenizer.json").write_text(json.dumps(tokenizer))
    build_tiny(source, directory, *(precisions or ("int8",)))
    write_manifest(directory, describe(directory, "tiny", {}))
    return directory


def sounds(seconds: float, seed: int = 0) -> NDArray[np.float32]:
    """Tones that change four times a second, float32 (n,) at 16 kHz: another log-mel in every window."""
    random = np.random.default_rng(seed)
    n = round(seconds * RATE)
    pitches = np.repeat(random.uniform(100, 4000, n // 4000 + 1), 4000)[:n]
    loudness = np.repeat(random.uniform(0.05, 0.5, n // 4000 + 1), 4000)[:n]
    noise = 0.01 * random.standard_normal(n)
    return (loudness * np.sin(2 * np.pi * np.cumsum(pitches) / RATE) + noise).astype(np.float32)


# --- reports and work -------------------------------------------------------------------------------------------


def submit(job: bytes | None = None, source: str = "clip.wav", prompt: str = "", group: str = "") -> Submit:
    """A job."""
    options = replace(OPTIONS, prompt=prompt)
    return Submit(job=job or new_id(), source=source, name=source, options=options, group=group)


def started(job: bytes) -> Started:
    """The frontend opened it."""
    return Started(job=job, seq=0, name="clip.wav", duration=60.0)


def window(job: bytes, index: int, *, attempt: int = 1, speech: bool = True) -> Window:
    """The frontend cut a window of 30 s."""
    return Window(job=job, window=index, attempt=attempt, start=30.0 * index, end=30.0 * index + 30, speech=speech)


def partial(job: bytes, index: int, text: str = " so far", *, attempt: int = 1) -> Partial:
    """The decoder has a hypothesis."""
    return Partial(
        job=job,
        window=index,
        attempt=attempt,
        start=30.0 * index,
        end=30.0 * index + 30,
        text=text,
        stable=0,
        tokens=(5, 6),
    )


def segment(
    job: bytes, index: int, text: str | None = None, *, attempt: int = 1, tokens: int = 2, memory: str = ""
) -> Segment:
    """The decoder has finished a window."""
    return Segment(
        job=job,
        window=index,
        attempt=attempt,
        start=30.0 * index,
        end=30.0 * index + 30,
        text=f" text {index}" if text is None else text,
        tokens=tuple(range(50_000, 50_000 + tokens)),
        language="de",
        language_probability=0.75,
        truncated=False,
        encoder_s=0.25,
        decoder_s=0.5,
        memory=memory,
    )


def audio_end(job: bytes, windows: int) -> AudioEnd:
    """The frontend has read all of it."""
    return AudioEnd(job=job, windows=windows, duration=30.0 * windows, frontend_s=0.125, complete=True, warnings=())


def failed(job: bytes, code: str = "audio") -> Failed:
    """An actor cannot do the job."""
    return Failed(job=job, code=code, text="clip.wav: no such file")


def features(job: bytes, index: int = 0, prompt: str = "") -> Features:
    """Work for an encoder."""
    return Features(
        job=job,
        window=index,
        attempt=1,
        start=0.0,
        end=1.0,
        options=replace(OPTIONS, prompt=prompt),
        silence=-1.0,
        mel=np.zeros((80, 4), np.float32),
    )


def hidden_states(work: Features) -> HiddenStates:
    """What an encoder makes of it."""
    return HiddenStates(
        job=work.job,
        window=work.window,
        attempt=work.attempt,
        start=work.start,
        end=work.end,
        options=work.options,
        encoder_s=0.0,
        states=np.full((2, 4), work.window, np.float32),
    )


# --- actors -----------------------------------------------------------------------------------------------------


class FakeEncoder(Behaviour):
    """Hands work on, one by one; it can be made to hold, to fail and to refuse loading."""

    name: ClassVar[str] = "encoder"
    has_inbox: ClassVar[bool] = True

    def __init__(self, *, load_error: Exception | None = None) -> None:
        self.hold: dict[bytes, threading.Event] = {}  # job -> what its work waits for
        self.errors: dict[bytes, Exception] = {}  # job -> what its work raises
        self.entered: dict[bytes, threading.Event] = {}
        self.handled: list[bytes] = []
        self._load_error = load_error

    def load(self) -> Loaded:
        """Load nothing."""
        if self._load_error is not None:
            raise self._load_error
        return Loaded("fake", sample_rate=RATE, n_mels=80, threads=1)

    def handle(self, work: Work, desk: Desk) -> None:
        """Do as the test has it."""
        assert isinstance(work, Features)
        self.handled.append(work.job)
        self.entered.setdefault(work.job, threading.Event()).set()
        if work.job in self.hold:
            assert self.hold[work.job].wait(PATIENCE_S)
        if work.job in self.errors:
            raise self.errors[work.job]
        desk.forward(hidden_states(work))


class Stage:
    """One actor in threads of this process; the test is its hub, its upstream and its downstream."""

    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour
        self.heard: list[Message] = []
        """Everything the actor told its hub and that no `hear` has taken."""

    def __enter__(self) -> Self:
        with ExitStack() as resources:
            self.folder = resources.enter_context(RuntimeFolder.create())
            self.context: zmq.Context[Any] = zmq.Context()
            resources.callback(self.context.term)
            self.transport, self.identity = Transport.choose(self.folder.path), Identity.new("hub")
            self.hub = resources.enter_context(HubPort(self.context, self.transport, self.identity))
            self.downstream = resources.enter_context(ReceivePort(self.context, self.transport, self.identity))
            connection = Connection(
                pid=os.getpid(),
                instance=self.identity.instance,
                hub=self.hub.endpoint,
                events="",
                transport=self.transport,
                started=time.time(),
                settings=ActorSettings(),
            )
            self.shell = Shell(self.behaviour, connection, self.context)
            self.thread = threading.Thread(target=self.shell.run, kwargs={"join": True}, name=self.behaviour.name)
            self.thread.start()
            resources.callback(self.thread.join, PATIENCE_S)
            resources.callback(self.shell.stop)
            self.peer = b""
            self._upstream: Outlet | None = None
            self._resources = resources.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._upstream is not None:
            self._upstream.close()
        self._resources.close()

    def hear(self, kind: type[M], where: Callable[[M], bool] = lambda _: True) -> M:
        """The next message of that type that the actor told its hub; others are kept."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            for index, message in enumerate(self.heard):
                if isinstance(message, kind) and where(message):
                    del self.heard[index]
                    return message
            received = self.hub.receive(max(0.0, deadline - time.monotonic()))
            assert received is not None, f"no {kind.__name__} came; there are {[m.TYPE for m in self.heard]}"
            self.peer = received[0]
            self.heard.append(received[1].message)

    def say(self, message: Message) -> None:
        """Tell the actor something as its hub."""
        assert self.hub.send(self.peer, message)

    def wire(self) -> None:
        """Tell the actor its downstream: the test."""
        self.say(Downstream(port=self.downstream.send_port))

    @property
    def upstream(self) -> Outlet:
        """The line into the actor's inbox; after its Ready."""
        if self._upstream is None:
            inbox = self.hear(Ready).inbox
            assert inbox is not None
            self._upstream = Outlet(self.context, self.transport, Identity.new("frontend"), inbox)
        return self._upstream

    def result(self, timeout: float = PATIENCE_S) -> Message | None:
        """The next message that came downstream."""
        received = self.downstream.receive(timeout)
        return None if received is None else received.message


class ScriptedActor:
    """An actor of the line, or a client, as the hub sees it: a line of its own and nothing behind it."""

    def __init__(self, context: zmq.Context[Any], transport: Transport, hub: str, name: str) -> None:
        self.identity = Identity.new(name)
        self.line = HubLine(context, transport, self.identity, hub)
        self.heard: list[Message] = []
        self._bad_frames = BadFrames()

    def say(self, *messages: Message) -> None:
        """Tell the hub. A line may be full for a moment: its queue is emptied by a thread of libzmq's."""
        for message in messages:
            assert self.line.socket.poll(round(PATIENCE_S * 1000), zmq.POLLOUT)
            assert self.line.send(message)

    def hear(self, kind: type[M]) -> M:
        """The hub's next message of that type; others are kept in `heard`."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            for index, message in enumerate(self.heard):
                if isinstance(message, kind):
                    del self.heard[index]
                    return message
            left = max(0.0, deadline - time.monotonic())
            there = {message.TYPE for message in self.heard}
            assert self.line.socket.poll(round(left * 1000)), f"no {kind.__name__} came; there are {there}"
            self._read()

    def take(self) -> list[Message]:
        """What has come so far, all of it."""
        self._read()
        taken, self.heard = self.heard, []
        return taken

    def _read(self) -> None:
        """Take in what has come; pings are answered and not kept."""
        for received in receive_all(self.line, self._bad_frames):
            if isinstance(received.message, Ping):
                self.say(Pong(number=received.message.number))
            else:
                self.heard.append(received.message)


class House:
    """A hub in a thread, and the test as everybody else."""

    def __init__(self, resources: ExitStack, limits: Limits | None = None, *, lanes: int = 1) -> None:
        self.folder = resources.enter_context(RuntimeFolder.create())
        self.context: zmq.Context[Any] = zmq.Context()
        resources.callback(self.context.term)
        self.transport = Transport.choose(self.folder.path)
        self.ready = threading.Event()
        self.hub = Hub(self.context, self.transport, self.ready.set, lanes=lanes, limits=limits)
        self.thread = threading.Thread(target=self.hub.run, name="susurrus-hub")
        self.thread.start()
        resources.callback(self.thread.join, PATIENCE_S)
        resources.callback(self.hub.stop)
        self._resources = resources
        self.actors: dict[str, ScriptedActor] = {}

    def actor(self, name: str) -> ScriptedActor:
        """Somebody on a line to the hub."""
        actor = ScriptedActor(self.context, self.transport, self.hub.port.endpoint, name)
        self._resources.callback(actor.line.close)
        self.actors.setdefault(name, actor)
        return actor

    @property
    def connection(self) -> Connection:
        """What a client needs."""
        return Connection(
            pid=os.getpid(),
            instance=self.hub.identity.instance,
            hub=self.hub.port.endpoint,
            events=self.hub.publisher.endpoint,
            transport=self.transport,
            started=time.time(),
        )

    def subscriber(self, topic: bytes = b"") -> Subscriber:
        """A subscriber that has had its Welcome."""
        endpoint = self.hub.publisher.endpoint
        subscriber = Subscriber(self.context, self.transport, Identity.new("watcher"), endpoint, [topic])
        self._resources.callback(subscriber.close)
        # An event that is published between its subscription and the hub's answer to it comes before the Welcome.
        while (received := subscriber.receive(PATIENCE_S)) is not None and not isinstance(received.message, Welcome):
            assert isinstance(received.message, Beat), received.message
        assert received is not None
        return subscriber

    def start_line(self) -> None:
        """All actors, ready and wired; jobs may begin."""
        for name in self.names:
            self.actor(name).say(*self.introduction(name))
        assert self.ready.wait(PATIENCE_S)
        self.hub.allow_jobs()

    @property
    def names(self) -> list[str]:
        """Of all actors of the line: the frontend, then lane by lane."""
        return list(self.hub._line.stations)

    def inbox(self, name: str) -> SendPort | None:
        """Where an actor has its arrays sent, as it says."""
        endpoint = f"ipc://{self.folder.path}/{name}"
        return None if name == "frontend" else SendPort(endpoint, self.actors[name].identity.instance)

    def introduction(self, name: str) -> list[Message]:
        """What an actor says while it starts."""
        hello = Hello(name=name, package="0", pid=1)
        ready = Ready(name=name, inbox=self.inbox(name), model="m", sample_rate=RATE, n_mels=80, threads=1, load_s=0.5)
        return [hello, ready] if name == "frontend" else [hello, ready, Credit(windows=2)]


def settle(*actors: ScriptedActor) -> None:
    """Wait until the hub has read what these have said, and what it told any of them of it has come.

    What one says is read in order, between two there is none: so once more, when all are read.
    """
    for _ in range(2):
        for actor in actors:
            actor.say(SnapshotRequest())
        for actor in actors:
            actor.hear(Snapshot)
