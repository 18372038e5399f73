"""What all actors have in common: they answer while they work, obey at once, and outlive bad jobs and bad frames."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import zmq

from susurrus.actors import progress as progress_module
from susurrus.actors import shell as shell_module
from susurrus.actors.behaviour import WINDOWS_GRANTED, Behaviour, Desk, Loaded
from susurrus.models.errors import AudioError, ModelError, OptionError
from susurrus.protocol import (
    Cancel,
    Credit,
    Downstream,
    Error,
    Failed,
    Features,
    Fence,
    Hello,
    HiddenStates,
    Identity,
    Message,
    Outlet,
    Ping,
    Pong,
    Ready,
    ReceivePort,
    Rejected,
    Stop,
    Stopped,
    Upstream,
    Working,
    encode,
    new_id,
)
from tests.actors.fakes import PATIENCE_S, FakeEncoder, Stage, features

MakeStage = Callable[[Behaviour], Stage]


@pytest.fixture
def encoder() -> FakeEncoder:
    return FakeEncoder()


@pytest.fixture
def on_stage(stage: MakeStage, encoder: FakeEncoder) -> Stage:
    """A loaded fake encoder whose downstream is the test, without credit as yet."""
    found = stage(encoder)
    found.hear(Hello)
    assert found.upstream is not None
    found.wire()
    return found


def held(stage: Stage, encoder: FakeEncoder) -> tuple[bytes, threading.Event]:
    """A job whose work has begun and goes on until the event is set."""
    job, release = new_id(), threading.Event()
    encoder.hold[job] = release
    encoder.entered[job] = threading.Event()
    stage.upstream.send(features(job))
    assert encoder.entered[job].wait(PATIENCE_S)
    return job, release


def window_of(message: Message | None) -> int:
    assert isinstance(message, HiddenStates)
    return message.window


def test_an_actor_says_hello_then_ready_then_grants_credit(stage: MakeStage, encoder: FakeEncoder) -> None:
    found = stage(encoder)
    assert found.hear(Hello).name == "encoder"
    ready = found.hear(Ready)
    assert (ready.name, ready.model, ready.sample_rate, ready.n_mels, ready.threads) == (
        "encoder",
        "fake",
        16000,
        80,
        1,
    )
    assert ready.inbox is not None
    assert found.hear(Credit).windows == WINDOWS_GRANTED


def test_an_actor_that_can_use_more_windows_at_once_grants_more(stage: MakeStage) -> None:
    class Wide(FakeEncoder):
        windows_granted = 6

    assert stage(Wide()).hear(Credit).windows == 6


def test_an_actor_of_a_further_lane_goes_by_its_name(stage: MakeStage, encoder: FakeEncoder) -> None:
    found = stage(encoder)
    found.hear(Ready)
    shell = shell_module.Shell(FakeEncoder(), found.shell._connection, found.context, name="encoder-2")
    thread = threading.Thread(target=shell.run, kwargs={"join": True})
    thread.start()
    try:
        assert found.hear(Hello, lambda hello: hello.name != "encoder").name == "encoder-2"
        assert found.hear(Ready).name == "encoder-2"
    finally:
        shell.stop()
        thread.join(PATIENCE_S)


def test_work_comes_out_downstream_and_is_credited_upstream(on_stage: Stage) -> None:
    assert on_stage.hear(Credit).windows == WINDOWS_GRANTED
    on_stage.say(Credit(windows=1))
    work = features(new_id(), 7)
    on_stage.upstream.send(work)
    result = on_stage.result()
    assert isinstance(result, HiddenStates)
    assert (result.job, result.window) == (work.job, 7)
    assert np.array_equal(result.states, np.full((2, 4), 7))
    assert on_stage.hear(Credit).windows == 1


def test_pings_are_answered_while_the_compute_thread_is_busy(on_stage: Stage, encoder: FakeEncoder) -> None:
    _, release = held(on_stage, encoder)
    for number in range(3):
        on_stage.say(Ping(number=number))
        assert on_stage.hear(Pong).number == number
    release.set()


def test_cancel_overtakes_work_that_waits(on_stage: Stage, encoder: FakeEncoder) -> None:
    _, release = held(on_stage, encoder)
    cancelled, wanted = new_id(), new_id()
    on_stage.upstream.send(features(cancelled))
    on_stage.upstream.send(features(wanted))
    on_stage.say(Cancel(job=cancelled))
    on_stage.say(Ping(number=1))
    on_stage.hear(Pong)  # the Cancel before it has been read as well
    on_stage.say(Credit(windows=3))
    release.set()
    assert [on_stage.result().job for _ in range(2)][-1] == wanted  # type: ignore[union-attr]  # HiddenStates
    assert cancelled not in encoder.handled


def test_cancelled_work_is_credited_all_the_same(on_stage: Stage) -> None:
    on_stage.hear(Credit)
    job = new_id()
    on_stage.say(Cancel(job=job))
    on_stage.say(Ping(number=1))
    on_stage.hear(Pong)
    on_stage.upstream.send(features(job))
    assert on_stage.hear(Credit).windows == 1


def test_an_exception_fails_its_job_and_the_next_one_works(on_stage: Stage, encoder: FakeEncoder) -> None:
    bad, good = new_id(), new_id()
    encoder.errors[bad] = ZeroDivisionError("in the middle\nof a run")
    on_stage.say(Credit(windows=2))
    on_stage.upstream.send(features(bad))
    on_stage.upstream.send(features(good))
    failed = on_stage.hear(Failed)
    assert (failed.job, failed.code, failed.text) == (bad, "internal", "ZeroDivisionError: in the middle")
    result = on_stage.result()
    assert isinstance(result, HiddenStates)
    assert result.job == good


@pytest.mark.parametrize(
    ("error", "code"),
    [(AudioError("a.wav: empty"), "audio"), (OptionError("no such task"), "option"), (MemoryError(), "internal")],
)
def test_the_code_of_a_failed_job_tells_whose_fault_it_is(
    on_stage: Stage, encoder: FakeEncoder, error: Exception, code: str
) -> None:
    job = new_id()
    encoder.errors[job] = error
    on_stage.upstream.send(features(job))
    failed = on_stage.hear(Failed)
    assert failed.code == code
    assert str(error) in failed.text


def test_an_error_text_that_cannot_travel_is_told_as_far_as_it_can(on_stage: Stage, encoder: FakeEncoder) -> None:
    job, other = new_id(), new_id()
    encoder.errors[job] = AudioError("caf\udce9.wav: no such file" + "!" * 100_000)
    on_stage.upstream.send(features(job))
    assert on_stage.hear(Failed).text.startswith("caf\\udce9.wav: no such file")
    on_stage.say(Credit(windows=1))
    on_stage.upstream.send(features(other))
    assert isinstance(on_stage.result(), HiddenStates)


def test_a_result_that_cannot_travel_fails_its_job_and_not_the_actor(
    on_stage: Stage, monkeypatch: pytest.MonkeyPatch, encoder: FakeEncoder
) -> None:
    real = encoder.handle
    job, other = new_id(), new_id()

    def scrambled(work: object, desk: Desk) -> None:
        assert isinstance(work, Features)
        if work.job == other:
            return real(work, desk)
        states = np.zeros((4, 4), np.float32).T[:, :2]
        message = HiddenStates(
            job=work.job,
            window=0,
            attempt=1,
            start=0.0,
            end=1.0,
            options=work.options,
            encoder_s=0.0,
            states=states,
        )
        return desk.forward(message)

    monkeypatch.setattr(encoder, "handle", scrambled)
    on_stage.say(Credit(windows=2))
    on_stage.upstream.send(features(job))
    failed = on_stage.hear(Failed)
    assert (failed.job, failed.code) == (job, "internal")
    assert "bad_array" in failed.text
    on_stage.upstream.send(features(other))
    assert isinstance(on_stage.result(), HiddenStates)


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (ModelError("encoder.onnx is missing"), "model", "encoder.onnx is missing"),
        (RuntimeError("out of something"), "internal", "RuntimeError: out of something"),
    ],
)
def test_a_model_that_does_not_load_is_told_to_the_hub(
    stage: MakeStage, error: Exception, code: str, text: str
) -> None:
    found = stage(FakeEncoder(load_error=error))
    told = found.hear(Error)
    assert (told.code, told.text) == (code, text)
    found.say(Stop())
    assert found.hear(Stopped).name == "encoder"


def test_no_more_windows_are_in_flight_than_were_granted(on_stage: Stage) -> None:
    job = new_id()
    for index in range(6):
        on_stage.upstream.send(features(job, index))
    for index in (0, 2, 4):
        on_stage.say(Credit(windows=2))
        assert [window_of(on_stage.result()) for _ in range(2)] == [index, index + 1]
        assert on_stage.result(0.05) is None


def test_stop_while_the_work_waits_for_credit_ends_the_actor(on_stage: Stage, encoder: FakeEncoder) -> None:
    job = new_id()
    encoder.entered[job] = threading.Event()
    on_stage.upstream.send(features(job))
    assert encoder.entered[job].wait(PATIENCE_S)
    on_stage.say(Stop())
    on_stage.hear(Stopped)
    on_stage.thread.join(PATIENCE_S)
    assert not on_stage.thread.is_alive()


def test_the_host_can_stop_an_actor_without_its_hub(on_stage: Stage) -> None:
    on_stage.shell.stop()
    on_stage.hear(Stopped)
    on_stage.thread.join(PATIENCE_S)
    assert not on_stage.thread.is_alive()
    assert on_stage.shell.refusal == ""


def test_a_new_downstream_takes_the_results_and_grants_anew(on_stage: Stage) -> None:
    on_stage.say(Credit(windows=5))
    with ReceivePort(on_stage.context, on_stage.transport, Identity.new("other")) as other:
        on_stage.say(Downstream(port=other.send_port))
        pong(on_stage)  # it has taken that in: what comes by the other socket might overtake it
        on_stage.upstream.send(features(new_id(), 3))
        assert other.receive(0.1) is None  # the five were the former one's
        on_stage.say(Credit(windows=1))
        received = other.receive(PATIENCE_S)
        assert received is not None
        assert isinstance(received.message, HiddenStates)
    assert on_stage.result(0.0) is None


def test_bad_frames_do_not_end_an_actor(on_stage: Stage, encoder: FakeEncoder) -> None:
    noise = random.Random(1)  # noqa: S311 - noise is all it is for
    good = encode(features(new_id()), sender="frontend", instance=new_id())
    bad: list[list[bytes]] = [
        [noise.randbytes(noise.randrange(60)) for _ in range(noise.randrange(1, 9))] for _ in range(99)
    ]
    bad.append([b"SUSU99", *map(bytes, good[1:])])
    bad.append([bytes(frame) for frame in good[:-1]])
    with Outlet(on_stage.context, on_stage.transport, Identity.new("noise"), on_stage.upstream.port) as outlet:
        for frames in bad:
            outlet.socket.send_multipart(frames)
            on_stage.hub.socket.send_multipart([on_stage.peer, *frames])
    on_stage.say(Ping(number=9))
    assert on_stage.hear(Pong).number == 9
    on_stage.say(Credit(windows=1))
    on_stage.upstream.send(features(new_id()))
    assert isinstance(on_stage.result(), HiddenStates)
    assert len(encoder.handled) == 1


def test_messages_that_mean_nothing_to_an_actor_are_ignored(on_stage: Stage) -> None:
    on_stage.say(Pong(number=1))
    on_stage.upstream.send(Ping(number=1))
    on_stage.say(Ping(number=2))
    assert on_stage.hear(Pong).number == 2


def test_an_actor_that_the_hub_does_not_take_ends_with_its_reason(on_stage: Stage) -> None:
    on_stage.say(Rejected(job=b"", code="taken", text="this pipeline has its encoder already"))
    on_stage.thread.join(PATIENCE_S)
    assert not on_stage.thread.is_alive()
    assert on_stage.shell.refusal == "this pipeline has its encoder already"


def test_an_actor_ends_when_its_pipeline_was_killed(
    stage: MakeStage, encoder: FakeEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shell_module, "HUB_CHECK_S", 0.05)
    on_stage = stage(encoder)
    on_stage.hear(Ready)
    on_stage.folder.close()  # the kernel lets go of the lock like this when it kills the hub's process
    on_stage.thread.join(PATIENCE_S)
    assert not on_stage.thread.is_alive()
    assert "killed" in on_stage.shell.refusal


def test_nothing_is_lost_when_the_hub_does_not_read_for_a_while(
    on_stage: Stage, encoder: FakeEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    many, said = 5000, threading.Event()  # more than all queues between the two hold

    def chatter(work: object, desk: Desk) -> None:
        assert isinstance(work, Features)
        for number in range(many):
            desk.tell(Error(code="test", text=f"{number}" + "." * 200))
        said.set()

    monkeypatch.setattr(encoder, "handle", chatter)
    on_stage.upstream.send(features(new_id()))
    assert said.wait(PATIENCE_S)  # the test, its hub, has read nothing as yet
    heard = [int(on_stage.hear(Error).text.rstrip(".")) for _ in range(many)]
    assert heard == list(range(many))


def test_an_actor_without_inbox_takes_submits_and_grants_nothing(stage: MakeStage) -> None:
    class Frontend(FakeEncoder):
        name = "frontend"
        has_inbox = False

        def load(self) -> Loaded:
            return Loaded("fake")

    found = stage(Frontend())
    assert found.hear(Ready).inbox is None
    found.say(Ping(number=1))
    found.hear(Pong)
    assert not any(isinstance(message, Credit) for message in found.heard)


def test_ended_jobs_are_remembered_up_to_a_bound(on_stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_module, "MAX_FENCES", 3)
    jobs = [new_id() for _ in range(5)]
    for job in jobs:
        on_stage.say(Cancel(job=job))
    on_stage.say(Ping(number=1))
    on_stage.hear(Pong)
    assert [on_stage.shell.fences.excludes(job, 1) for job in jobs] == [False, False, True, True, True]


def test_sockets_are_closed_when_an_actor_cannot_begin(stage: MakeStage, encoder: FakeEncoder) -> None:
    on_stage = stage(encoder)
    on_stage.hear(Ready)
    with zmq.Context() as context:  # its exit would wait for a socket that is left open
        shell = shell_module.Shell(FakeEncoder(), on_stage.shell._connection, context)
        (on_stage.folder.path / f"encoder-{shell._identity.instance.hex()[:8]}").touch()
        with pytest.raises(Exception, match="exists already"):
            shell.run()


# --- attempts and losses ----------------------------------------------------------------------------------------


def pong(stage: Stage, number: int = 1) -> Pong:
    """What the actor says of itself, after everything said to it before."""
    stage.say(Ping(number=number))
    return stage.hear(Pong, lambda message: message.number == number)


def test_work_of_an_attempt_that_is_over_is_not_done_and_its_credit_comes_back(
    on_stage: Stage, encoder: FakeEncoder
) -> None:
    _, release = held(on_stage, encoder)
    on_stage.hear(Credit)
    stale, job = features(new_id()), new_id()
    on_stage.upstream.send(stale)
    on_stage.say(Fence(job=stale.job, attempt=2))
    pong(on_stage)
    release.set()
    on_stage.say(Credit(windows=3))
    assert isinstance(on_stage.result(), HiddenStates)
    assert [on_stage.hear(Credit).windows for _ in range(2)] == [1, 1]
    on_stage.upstream.send(replace(stale, attempt=2))
    on_stage.upstream.send(features(job))
    assert [message.job for message in (on_stage.result(), on_stage.result()) if isinstance(message, HiddenStates)] == [
        stale.job,
        job,
    ]
    assert encoder.handled.count(stale.job) == 1


def test_a_result_whose_attempt_ends_while_it_waits_for_credit_is_not_sent_and_costs_none(
    on_stage: Stage, encoder: FakeEncoder
) -> None:
    stale, wanted = features(new_id()), features(new_id())
    encoder.entered[stale.job] = threading.Event()
    on_stage.upstream.send(stale)
    assert encoder.entered[stale.job].wait(PATIENCE_S)
    on_stage.upstream.send(wanted)
    on_stage.say(Fence(job=stale.job, attempt=2))
    pong(on_stage)
    on_stage.say(Credit(windows=1))
    result = on_stage.result()
    assert isinstance(result, HiddenStates)
    assert result.job == wanted.job


def test_a_new_upstream_is_granted_what_the_old_one_has_not_used(on_stage: Stage, encoder: FakeEncoder) -> None:
    assert on_stage.hear(Credit).windows == WINDOWS_GRANTED
    on_stage.say(Upstream())
    assert on_stage.hear(Credit).windows == WINDOWS_GRANTED
    _, release = held(on_stage, encoder)
    on_stage.say(Upstream())
    assert on_stage.hear(Credit).windows == WINDOWS_GRANTED - 1
    release.set()


def test_an_actor_names_the_window_before_it_works_on_it(on_stage: Stage, encoder: FakeEncoder) -> None:
    job, release = held(on_stage, encoder)
    assert on_stage.hear(Working) == Working(job, 0, 1)
    release.set()


def test_a_pong_tells_how_long_the_work_has_got_nowhere(on_stage: Stage, encoder: FakeEncoder) -> None:
    while pong(on_stage).stalled_s > 0:
        pass  # it has said that it is ready, and is about to find that there is nothing to do
    _, release = held(on_stage, encoder)
    first = pong(on_stage, 2).stalled_s
    assert pong(on_stage, 3).stalled_s > first > 0
    release.set()
    on_stage.upstream.send(features(new_id(), 1))
    while (said := pong(on_stage, 4)).stalled_s > 0 or said.backlog == 0:
        pass  # it waits for credit, and that is not its own fault
    on_stage.say(Credit(windows=2))
    assert window_of(on_stage.result()) == 0
