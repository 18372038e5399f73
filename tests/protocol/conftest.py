"""One message of every type, real transports, and helpers to compare and to build frames."""

from __future__ import annotations

import dataclasses
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgpack  # type: ignore[import-untyped]  # ships no types
import numpy as np
import pytest
import zmq

from susurrus.protocol import (
    Accepted,
    ActorStatus,
    AudioEnd,
    Beat,
    Cancel,
    Cancelled,
    Committed,
    Credit,
    Cue,
    Done,
    Downstream,
    Error,
    Failed,
    Features,
    Fence,
    Hello,
    HiddenStates,
    Identity,
    JobState,
    Message,
    Partial,
    Ping,
    Pong,
    Ready,
    Redo,
    Reissue,
    Rejected,
    RuntimeFolder,
    Segment,
    SendPort,
    Snapshot,
    SnapshotRequest,
    Span,
    Started,
    Status,
    StatusRequest,
    Stop,
    Stopped,
    Submit,
    TranscribeOptions,
    Transport,
    Upstream,
    Welcome,
    Window,
    Word,
    Working,
    encode,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

JOB = bytes(range(16))
INSTANCE = bytes(range(0xF0, 0x100))
OPTIONS = TranscribeOptions(
    language="de",
    task="translate",
    prompt="Grüße, 世界",
    hotwords="Köln",
    multilingual=True,
    timestamps=False,
    word_timestamps=True,
    condition_on_previous_text=True,
    beam_size=3,
    best_of=2,
    temperatures=(0.0, 0.5),
    compression_ratio_threshold=None,
    logprob_threshold=-1.5,
    no_speech_threshold=0.75,
    no_repeat_ngram_size=4,
    vad=False,
    full_context=True,
)
SPEECH = (Span(30.25, 41.0), Span(42.5, 59.75))
CUE = Cue(30.25, 31.0, "ask not", (1029, 406), (Word(30.25, 30.5, "ask", 0.75), Word(30.5, 31.0, " not", 0.5)))
PORT = SendPort("ipc:///run/user/1000/susurrus-abcdefgh/encoder-f0f1f2f3", INSTANCE)
MEMORY = '{"votes": 1, "languages": [0.75, 0.25], "previous": [], "warned": []}'
PARTIAL = Partial(JOB, 2, 1, 60.0, 89.5, "And so, my fellow 🌍", 8, (400, 370, 11, 452, 7177), 9, 0.25)
SEGMENT = Segment(
    *(JOB, 1, 1, 30.0, 60.0, "ask not", (1029, 406), "en", 0.984375, False, 0.5, 0.25, 7),
    cues=(CUE,),
    speech=SPEECH,
    language_probabilities={"en": 0.984375, "de": 0.0078125},
    temperature=0.25,
    avg_logprob=-0.5,
    compression_ratio=0.875,
    no_speech_prob=0.125,
    warnings=("prompt of 600 tokens cut to the last 223",),
    memory=MEMORY,
    settled=True,
)
SUBMIT = Submit(JOB, "/tmp/talk.wav", "talk.wav", OPTIONS, "talks", 90.5, "/tmp/talk.jsonl")  # noqa: S108  never opened
DONE = Done(
    *(JOB, 12, "ask not", "en", 0.984375, 89.5, {"encoder": 0.5, "total": 2.0}, False, ("damaged",)),
    language_probabilities={"en": 0.984375},
    speech_s=28.0,
    coverage=0.5,
)
ALL = [
    Hello("encoder", "0.1.0", 4242),
    Ready("encoder", PORT, "base", 16000, 80, 2, 0.125),
    Downstream(PORT, 2),
    Upstream(),
    Credit(2, 2),
    Ping(7),
    Pong(7, 12.5, 2),
    Stop(),
    Stopped("pipeline", "actor_lost", "The decoder ended without being asked to."),
    Error("unknown_type", "'shout' is not in protocol 1.0"),
    SUBMIT,
    Reissue(JOB, 2, 3, SUBMIT, MEMORY, True, (2,)),
    Committed(JOB, 2, MEMORY, True),
    Fence(JOB, 3),
    Working(JOB, 2, 3),
    Accepted(JOB),
    Rejected(JOB, "busy", "1024 jobs wait already."),
    Cancel(JOB),
    Started(JOB, 1, "talk.wav", 89.5),
    Window(JOB, 2, 1, 60.0, 89.5, True, 3),
    AudioEnd(JOB, 3, 89.5, 0.25, False, ("damaged after 80 s", "too quiet")),
    Features(
        JOB, 2, 1, 60.0, 89.5, OPTIONS, -1.5, np.arange(6, dtype=np.float32).reshape(2, 3), SPEECH, MEMORY, True, True
    ),
    HiddenStates(
        JOB, 2, 1, 60.0, 89.5, OPTIONS, 0.5, np.arange(8, dtype=np.float32).reshape(4, 2), SPEECH, MEMORY, 3, True
    ),
    Redo(JOB, 2, 3),
    PARTIAL,
    SEGMENT,
    DONE,
    Failed(JOB, "audio", "talk.wav: no audio in it; give a file that plays elsewhere.", 2),
    Cancelled(JOB, 5),
    Welcome(INSTANCE),
    Beat(3, {JOB.hex(): 9}),
    SnapshotRequest(),
    Snapshot(
        (
            JobState(JOB, 9, "talk.wav", "running", 89.5, (SEGMENT,), PARTIAL, None),
            JobState(INSTANCE, 12, "-", "done", None, (), None, DONE),
        )
    ),
    StatusRequest(),
    Status(
        package="0.1.0",
        model="base",
        uptime_s=3600.5,
        actors=(ActorStatus("decoder", 4242, "working", 1, 2, 150_000_000, 12.5),),
        jobs={"queued": 3, "done": 12},
        latency={"encoder": {"p50": 0.25, "count": 40.0}},
        audio_s=1200.5,
        busy_s=150.25,
        bad_frames=0,
        subscribers=2,
    ),
]
SAMPLES: dict[str, Message] = {message.TYPE: message for message in ALL}


@pytest.fixture(params=sorted(SAMPLES))
def sample(request: pytest.FixtureRequest) -> Message:
    """One message of every type, in turn."""
    return SAMPLES[request.param]


@pytest.fixture
def samples() -> dict[str, Message]:
    """One message of every type by its name on the wire."""
    return dict(SAMPLES)


@pytest.fixture
def plain() -> Callable[[Message], dict[str, Any]]:
    """A message's fields in a form that `==` compares, arrays with dtype, shape and bytes."""

    def convert(message: Message) -> dict[str, Any]:
        fields = {field.name: getattr(message, field.name) for field in dataclasses.fields(message)}  # type: ignore[arg-type]
        return {
            name: (value.dtype.str, value.shape, value.tobytes()) if isinstance(value, np.ndarray) else value
            for name, value in fields.items()
        }

    return convert


@pytest.fixture
def frames_of() -> Callable[..., list[Any]]:
    """Frames of a message as bytes, with parts of its header or body replaced; `...` removes a part."""

    def build(
        message: Message, *, header: dict[str, Any] | None = None, body: dict[str, Any] | None = None
    ) -> list[Any]:
        frames = [bytes(frame) for frame in encode(message, sender="tester", instance=INSTANCE)]
        for index, changes in ((1, header), (2, body)):
            if changes:
                merged = msgpack.unpackb(frames[index]) | changes
                frames[index] = msgpack.packb({key: value for key, value in merged.items() if value is not ...})
        return frames

    return build


@pytest.fixture
def context() -> Iterator[zmq.Context[Any]]:
    """A context of the test's own; ends only if every port was closed."""
    context = zmq.Context()
    yield context
    context.term()


@pytest.fixture
def runtime_folder() -> Iterator[Path]:
    """A private runtime folder."""
    with RuntimeFolder.create() as folder:
        yield folder.path


@pytest.fixture(params=["ipc", "tcp"])
def transport(request: pytest.FixtureRequest, runtime_folder: Path) -> Transport:
    """Both transports in turn."""
    if request.param == "ipc" and not zmq.has("ipc"):
        pytest.skip("no ipc here")
    return Transport.choose(runtime_folder, request.param)


@pytest.fixture
def hub() -> Identity:
    """The hub's identity."""
    return Identity.new("hub")


@pytest.fixture
def actor() -> Identity:
    """An actor's identity."""
    return Identity.new("decoder")


@pytest.fixture
def short_folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A private folder with a short path, set as the only one where runtime folders go first."""
    folder = Path(tempfile.mkdtemp(prefix="t", dir="/tmp"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)
