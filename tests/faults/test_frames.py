"""Frames that break the protocol, at a pipeline that works: each costs a counted line, and nobody is disturbed."""

from __future__ import annotations

import dataclasses
import logging
import random
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import msgpack  # type: ignore[import-untyped]  # ships no types
import numpy as np
import pytest
import zmq

from susurrus.actors import Pipeline
from susurrus.actors.status import ask
from susurrus.protocol import (
    Cancel,
    Error,
    Features,
    HubLine,
    Identity,
    Rejected,
    Segment,
    SendPort,
    Snapshot,
    SnapshotRequest,
    Stop,
    encode,
    new_id,
)
from susurrus.protocol.codec import MAX_HEADER_BYTES, TAG
from tests.actors.fakes import OPTIONS, PATIENCE_S
from tests.faults.conftest import text_of, transcribe
from tests.run.conftest import wait_until

GOLDEN = Path(__file__).parents[1] / "protocol" / "golden"
Frames = Sequence[bytes]


def golden_messages() -> list[list[bytes]]:
    """Frames of every message of every minor version."""
    found = []
    for path in sorted(GOLDEN.glob("*/*.frames")):
        data, frames = path.read_bytes(), []
        while data:
            (size,) = struct.unpack_from(">I", data)
            frames.append(data[4 : 4 + size])
            data = data[4 + size :]
        found.append(frames)
    return found


@pytest.fixture(scope="module")
def pipeline(tiny: Path, runtime_parent: Path) -> Iterator[Pipeline]:
    """One for all these tests: it must survive each of them."""
    assert runtime_parent.is_dir()
    with Pipeline(tiny, threads=1) as pipeline:
        assert pipeline.wait_until_ready(PATIENCE_S)
        yield pipeline


class Stranger:
    """A peer on a line of its own that sends whatever it likes."""

    def __init__(self, pipeline: Pipeline, resources: ExitStack) -> None:
        self.context = resources.enter_context(zmq.Context())
        self.identity = Identity.new("stranger")
        connection = pipeline.connection
        self.line = resources.enter_context(HubLine(self.context, connection.transport, self.identity, connection.hub))

    def send(self, *frames: bytes) -> None:
        """As they are."""
        self.line.socket.send_multipart(frames)

    def wait_for_answer(self) -> None:
        """Until the hub has read all that was sent: it answers a sound message behind it."""
        self.line.send(SnapshotRequest())
        while (received := self.line.receive(PATIENCE_S)) is not None:
            if isinstance(received.message, Snapshot):
                return
        pytest.fail("the hub does not answer any more")

    def frames(self, message: Any) -> list[Any]:
        """A message of this peer's."""
        return [bytes(frame) for frame in encode(message, sender="stranger", instance=self.identity.instance)]


@pytest.fixture
def stranger(pipeline: Pipeline) -> Iterator[Stranger]:
    """Somebody who has the connection file."""
    with ExitStack() as resources:
        yield Stranger(pipeline, resources)


def bad_frames(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Codes of the lines that were logged for refused messages."""
    return [record.__dict__["code"] for record in caplog.records if record.getMessage() == "bad frame dropped"]


@pytest.mark.fault(23)
def test_23_every_truncation_of_every_golden_message(
    pipeline: Pipeline, stranger: Stranger, caplog: pytest.LogCaptureFixture
) -> None:
    noise = random.Random(1)  # noqa: S311 - any few will do
    sent = 0
    for frames in golden_messages():
        for index, frame in enumerate(frames):
            for size in sorted(noise.sample(range(len(frame)), min(len(frame), 12))):
                stranger.send(*frames[:index], frame[:size], *frames[index + 1 :])
                sent += 1
        stranger.send(*frames[:-1])
        stranger.wait_for_answer()
    assert sent > 1000
    assert len(bad_frames(caplog)) >= sent  # every one is counted
    assert pipeline.wait_until_ready(0)


@pytest.mark.fault(24)
def test_24_bit_flips_and_random_frames_while_a_job_runs(
    pipeline: Pipeline, stranger: Stranger, clip: Path, undisturbed: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "susurrus.protocol.ports")  # thousands of lines are not looked at here
    noise, golden, over = random.Random(2), golden_messages(), threading.Event()  # noqa: S311

    def flood() -> None:
        while not over.is_set():
            frames = [bytearray(frame) for frame in noise.choice(golden)]
            frame = noise.choice([frame for frame in frames if frame])
            frame[noise.randrange(len(frame))] ^= 1 << noise.randrange(8)
            try:
                stranger.line.socket.send_multipart(list(map(bytes, frames)), zmq.DONTWAIT)
                junk = [noise.randbytes(noise.randrange(40)) for _ in range(noise.randrange(1, 12))]
                stranger.line.socket.send_multipart(junk, zmq.DONTWAIT)
            except zmq.Again:
                over.wait(0.001)

    before = ask(pipeline.connection, PATIENCE_S).bad_frames
    flooding = threading.Thread(target=flood)
    flooding.start()
    try:
        wait_until(lambda: ask(pipeline.connection, PATIENCE_S).bad_frames > before + 100, "the flood")
        assert text_of(transcribe(pipeline, clip)) == undisturbed
    finally:
        over.set()
        flooding.join()


@pytest.mark.fault(25)
def test_25_another_major_is_refused_once_and_a_newer_minor_with_more_fields_is_understood(
    pipeline: Pipeline, stranger: Stranger
) -> None:
    tag, header, body = stranger.frames(SnapshotRequest())
    stranger.send(b"SUSU99", header, body)
    received = stranger.line.receive(PATIENCE_S)
    assert received is not None
    assert isinstance(received.message, Rejected)
    assert "99" in received.message.text
    newer = msgpack.packb(msgpack.unpackb(header) | {"minor": 99, "mood": {"of": ["the", "day"]}})
    stranger.send(tag, newer, msgpack.packb({"depth": 3}))
    received = stranger.line.receive(PATIENCE_S)
    assert received is not None
    assert isinstance(received.message, Snapshot)
    assert pipeline.wait_until_ready(0)


HOSTILE: dict[str, Callable[[dict[str, Any]], Any]] = {
    "100,000 items": lambda body: body | {"more": list(range(20_000))},
    "depth": lambda body: msgpack.packb(body)[:1] + b"\x81\xa1x" * 400 + b"\xc0",
    "equal keys": lambda _: b"\x82\xa1a\x01\xa1a\x02",
    "keys that are numbers": lambda _: b"\x81\x01\x02",
    "NaN": lambda _: b"\x81\xa7windows\xcb\x7f\xf8\x00\x00\x00\x00\x00\x00",
    "an extension type": lambda _: b"\x81\xa7windows\xd4\x05\x00",
    "a claim of 4 billion items": lambda _: b"\xdf\xff\xff\xff\xff",
    "a list": lambda _: b"\x91\x01",
    "nothing": lambda _: b"",
}


@pytest.mark.fault(26)
@pytest.mark.parametrize("kind", HOSTILE)
def test_26_bodies_that_attack_the_parser(pipeline: Pipeline, stranger: Stranger, kind: str) -> None:
    tag, header, body = stranger.frames(Cancel(new_id()))
    made = HOSTILE[kind](msgpack.unpackb(body))
    stranger.send(tag, header, made if isinstance(made, bytes) else msgpack.packb(made))
    stranger.wait_for_answer()
    assert pipeline.wait_until_ready(0)


@pytest.mark.fault(26)
def test_26_frames_over_their_limit_cost_the_connection_and_no_more(
    pipeline: Pipeline, stranger: Stranger, clip: Path, undisturbed: str
) -> None:
    stranger.send(TAG, b"\x00" * (MAX_HEADER_BYTES + 1), b"\x80")
    stranger.send(*[b"x"] * 10_000)
    stranger.wait_for_answer()
    stranger.send(TAG, b"\x00" * 5_000_000, b"\x80")  # libzmq closes the line
    assert text_of(transcribe(pipeline, clip)) == undisturbed


@pytest.mark.fault(27)
@pytest.mark.parametrize("shape", [[-1, 4], [2**40, 2**40], [0], [80, 4, 1, 1, 1], [80, 5], ["80", 4], []], ids=str)
def test_27_an_array_that_is_not_what_its_header_says(
    pipeline: Pipeline, stranger: Stranger, clip: Path, undisturbed: str, shape: list[Any]
) -> None:
    """Straight into the encoder's inbox, which only the frontend should know."""
    inbox = next(pipeline.connection.folder.glob("encoder-*"))
    work = Features(new_id(), 0, 1, 0.0, 1.0, OPTIONS, -1.0, np.zeros((80, 4), np.float32))
    frames = stranger.frames(work)
    header = msgpack.unpackb(frames[1])
    for dtype in ("<f4", ">f4", "|O", "<f8", "<f4,<f4"):
        header["arrays"] = [{"dtype": dtype, "shape": shape}]
        with closing(stranger.context.socket(zmq.PUSH)) as socket:
            socket.linger = 1000
            socket.connect(f"ipc://{inbox}")
            socket.send_multipart([frames[0], msgpack.packb(header), *frames[2:]])
    assert text_of(transcribe(pipeline, clip)) == undisturbed


@pytest.mark.fault(28)
def test_28_an_unknown_type_is_answered_where_an_answer_is_expected(pipeline: Pipeline, stranger: Stranger) -> None:
    tag, header, body = stranger.frames(SnapshotRequest())
    fields = msgpack.unpackb(header) | {"type": "shout"}
    stranger.send(tag, msgpack.packb(fields), body)
    stranger.wait_for_answer()  # nothing else came: it skips what is no snapshot
    reply_to = dataclasses.asdict(SendPort("", stranger.identity.instance))
    stranger.send(tag, msgpack.packb(fields | {"reply_to": reply_to}), body)
    received = stranger.line.receive(PATIENCE_S)
    assert received is not None
    assert isinstance(received.message, Error)
    assert received.message.code == "unknown_type"
    assert pipeline.wait_until_ready(0)


@pytest.mark.fault(29)
def test_29_what_a_stranger_replays_and_a_foreign_instance_says_changes_nothing(
    pipeline: Pipeline, stranger: Stranger, clip: Path, undisturbed: str
) -> None:
    seen = []
    for event in pipeline.transcribe(
        clip,
        vad=False,
        timestamps=False,
        temperatures=(0.0,),
        no_speech_threshold=None,
        compression_ratio_threshold=None,
        logprob_threshold=None,
    ):
        seen.append(event)
        if isinstance(event, Segment):  # as its own decoder would, later and with another text
            stranger.line.send(dataclasses.replace(event, text=" forged", seq=0))
            foreign = encode(dataclasses.replace(event, text=" forged"), sender="decoder", instance=new_id())
            stranger.send(*map(bytes, foreign))
            stranger.send(*stranger.frames(Stop()))
    assert text_of(seen) == undisturbed
    assert all(" forged" not in event.text for event in seen if isinstance(event, Segment))
