"""One actor inside the host: the same messages, the same results, and nothing left behind."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile

from susurrus.actors import DecoderBehaviour, EmbeddedActor, EncoderBehaviour, FrontendBehaviour, PipelineError
from susurrus.actors import shell as shell_module
from susurrus.actors.options import from_message
from susurrus.models import Decoder, Encoder, LogMel, ModelConfig, ModelError, Tokenizer
from susurrus.models.decoding import WindowDecoder
from susurrus.models.ladder import EncodedWindow
from susurrus.models.mel import pad_frames
from susurrus.models.results import DecodedWindow
from susurrus.protocol import (
    AudioEnd,
    EndpointError,
    Failed,
    Features,
    HiddenStates,
    Message,
    Partial,
    Segment,
    Started,
    Window,
    new_id,
)
from tests.actors.fakes import OPTIONS, PATIENCE_S, RATE, FakeEncoder, features, hidden_states, sounds, submit


def take(actor: EmbeddedActor) -> Message:
    message = actor.receive(PATIENCE_S)
    assert message is not None
    return message


def test_an_encoder_in_the_host_gives_what_its_session_gives(tiny: Path) -> None:
    log_mel = LogMel.from_directory(tiny)
    mel, silence = log_mel(sounds(0.7))
    work = Features(
        job=new_id(),
        window=3,
        attempt=1,
        start=1.0,
        end=1.7,
        options=OPTIONS,
        silence=silence,
        mel=mel,
    )
    with EmbeddedActor(EncoderBehaviour(tiny, "int8", threads=1)) as encoder:
        assert (encoder.ready.model, encoder.ready.sample_rate, encoder.ready.threads) == ("tiny", RATE, 1)
        encoder.send(work)
        result = take(encoder)
    assert isinstance(result, HiddenStates)
    assert (result.job, result.window, result.start, result.end) == (work.job, 3, 1.0, 1.7)
    wanted, _ = Encoder(tiny, threads=1).encode_window(mel, silence)
    assert np.array_equal(result.states, wanted)


def test_a_decoder_in_the_host_gives_partials_and_a_segment(tiny: Path) -> None:
    config, log_mel, tokenizer = (
        ModelConfig.from_directory(tiny),
        LogMel.from_directory(tiny),
        Tokenizer.from_directory(tiny),
    )
    mel, silence = log_mel(sounds(0.9))
    states = Encoder(tiny, threads=1)(pad_frames(mel, silence, config.audio.n_frames))
    here = WindowDecoder(Decoder(tiny, threads=1), tokenizer, config)
    recording = here.recording(replace(from_message(OPTIONS), language="de"))
    steps = here.decode(EncodedWindow(0, states, 0.9, ()), recording)
    hypotheses = []
    while True:
        try:
            hypothesis = next(steps)
        except StopIteration as stop:
            decoded: DecodedWindow = stop.value
            break
        hypotheses += [] if hypothesis is None else [hypothesis.text]
    job = new_id()
    work = HiddenStates(
        job=job,
        window=0,
        attempt=1,
        start=0.0,
        end=0.9,
        options=replace(OPTIONS, language="de"),
        encoder_s=0.5,
        states=states,
    )
    with EmbeddedActor(DecoderBehaviour(tiny, "int8", threads=1)) as decoder:
        decoder.send(work)
        partials = []
        while isinstance(message := take(decoder), Partial):
            partials.append(message.text)
    assert partials == hypotheses
    assert isinstance(message, Segment)
    assert (message.text, message.tokens, message.encoder_s) == (decoded.text, decoded.tokens, 0.5)


def test_a_frontend_in_the_host_reads_a_recording(tiny: Path, tmp_path: Path) -> None:
    samples = sounds(1.6)
    soundfile.write(tmp_path / "clip.wav", samples, RATE, subtype="FLOAT")
    request = submit(source=str(tmp_path / "clip.wav"))
    with EmbeddedActor(FrontendBehaviour(tiny)) as frontend:
        frontend.send(request)
        messages = [take(frontend)]
        while not isinstance(messages[-1], AudioEnd):
            messages.append(take(frontend))
        end = messages[-1]
        while sum(isinstance(message, Features) for message in messages) < end.windows:
            messages.append(take(frontend))
    assert sum(isinstance(message, Started) for message in messages) == 1
    windows = [message.window for message in messages if isinstance(message, Window)]
    mels = [message.window for message in messages if isinstance(message, Features)]
    assert windows == mels == list(range(end.windows))
    assert end.duration == pytest.approx(1.6)


def test_an_unreadable_recording_is_a_failure_of_its_job(tiny: Path, tmp_path: Path) -> None:
    request = submit(source=str(tmp_path / "missing.wav"))
    with EmbeddedActor(FrontendBehaviour(tiny)) as frontend:
        frontend.send(request)
        failed = take(frontend)
    assert isinstance(failed, Failed)
    assert (failed.job, failed.code) == (request.job, "audio")
    assert "missing.wav" in failed.text


def test_more_work_than_all_queues_hold_is_done_completely() -> None:
    job, many = new_id(), 200
    with EmbeddedActor(FakeEncoder()) as encoder:

        def send() -> None:
            for index in range(many):
                encoder.send(features(job, index))

        sender = threading.Thread(target=send)  # the outgoing socket is its own from here on
        sender.start()
        results = [take(encoder) for _ in range(many)]
        sender.join()
    assert [result.window for result in results if isinstance(result, HiddenStates)] == list(range(many))


def test_a_burst_of_work_is_not_dropped_before_anything_is_received() -> None:
    job, many = new_id(), 100
    with EmbeddedActor(FakeEncoder()) as encoder:
        for index in range(many):
            encoder.send(features(job, index))
        results = [take(encoder) for _ in range(many)]
    assert [result.window for result in results if isinstance(result, HiddenStates)] == list(range(many))


def test_receive_gives_none_when_the_time_is_over() -> None:
    with EmbeddedActor(FakeEncoder()) as encoder:
        assert encoder.receive(0.05) is None
        assert encoder.receive(0.0) is None


def test_a_failure_of_one_piece_of_work_is_told_and_the_next_is_done() -> None:
    behaviour, bad = FakeEncoder(), features(new_id())
    behaviour.errors[bad.job] = ValueError("no")
    with EmbeddedActor(behaviour) as encoder:
        encoder.send(bad)
        failed = take(encoder)
        assert isinstance(failed, Failed)
        assert failed.text == "ValueError: no"
        encoder.send(good := features(new_id()))
        result = take(encoder)
        assert isinstance(result, HiddenStates)
        assert result.job == hidden_states(good).job


def test_an_actor_that_does_not_load_raises_and_leaves_nothing() -> None:
    with (
        pytest.raises(PipelineError, match="weights are missing") as raised,
        EmbeddedActor(FakeEncoder(load_error=ModelError("weights are missing"))),
    ):
        pass
    assert raised.value.code == "model"


def test_an_actor_whose_thread_cannot_begin_raises_instead_of_hanging(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_inbox(*_: object) -> None:
        raise EndpointError("cannot be bound")

    monkeypatch.setattr(shell_module, "ReceivePort", no_inbox)
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    with pytest.raises(PipelineError, match="thread has ended"), EmbeddedActor(FakeEncoder()):
        pass


def test_leaving_while_it_works_waits_for_the_work_and_leaves_nothing() -> None:
    behaviour, work = FakeEncoder(), features(new_id())
    behaviour.hold[work.job] = threading.Event()
    behaviour.entered[work.job] = threading.Event()
    with EmbeddedActor(behaviour) as encoder:
        encoder.send(work)
        assert behaviour.entered[work.job].wait(PATIENCE_S)
        threading.Timer(0.05, behaviour.hold[work.job].set).start()
    assert behaviour.handled == [work.job]


def test_the_hosts_exception_passes_through() -> None:
    with pytest.raises(KeyError), EmbeddedActor(FakeEncoder()):
        raise KeyError
