"""The frontend reads in turns, keeps what may be asked for again, and begins anew where it is told to."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import soundfile

from susurrus.actors.frontend import FrontendBehaviour
from susurrus.protocol import (
    AudioEnd,
    Cancel,
    Committed,
    Credit,
    Failed,
    Features,
    Fence,
    Ping,
    Pong,
    Ready,
    Reissue,
    Started,
    Submit,
    Window,
    Working,
)
from tests.actors.fakes import RATE, Stage, sounds, submit

ALL = 100  # windows: more than any of the clips has


@pytest.fixture
def frontend(tiny: Path) -> Iterator[Stage]:
    """A frontend whose downstream and hub are the test; it has no credit yet."""
    with Stage(FrontendBehaviour(tiny)) as stage:
        stage.hear(Ready)
        stage.wire()
        yield stage


@pytest.fixture(scope="module")
def clips(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Two recordings of some windows each, with other sounds."""
    folder = tmp_path_factory.mktemp("clips")
    for seed in (1, 2):
        soundfile.write(folder / f"{seed}.wav", sounds(4.0, seed), RATE, subtype="FLOAT")
    return str(folder / "1.wav"), str(folder / "2.wav")


def features(stage: Stage, count: int) -> list[Features]:
    """The next windows that it sends."""
    found = [stage.result() for _ in range(count)]
    assert all(isinstance(message, Features) for message in found)
    return [message for message in found if isinstance(message, Features)]


def whole(stage: Stage, request: Submit) -> list[Features]:
    """All windows of a job, to its end."""
    stage.say(request)
    stage.say(Credit(windows=ALL))
    end = stage.hear(AudioEnd)
    return features(stage, end.windows)


def test_recordings_are_read_in_turns_a_window_of_each(frontend: Stage, clips: tuple[str, str]) -> None:
    first, second = submit(source=clips[0]), submit(source=clips[1])
    frontend.say(first)
    frontend.hear(Started)
    frontend.say(second)
    frontend.say(Credit(windows=6))
    jobs = [message.job for message in features(frontend, 6)]
    assert set(jobs) == {first.job, second.job}
    assert all(former != latter for former, latter in pairwise(jobs[1:]))  # one was ready when the second came


def test_without_credit_nothing_is_sent_and_one_window_is_ready(frontend: Stage, clips: tuple[str, str]) -> None:
    frontend.say(submit(source=clips[0]))
    frontend.hear(Window)
    frontend.say(Ping(number=1))
    frontend.hear(Pong)
    assert not any(isinstance(message, Window) for message in frontend.heard)
    assert frontend.result(timeout=0.0) is None


def test_what_is_not_committed_is_sent_again_as_the_next_attempt(frontend: Stage, clips: tuple[str, str]) -> None:
    request = submit(source=clips[0])
    before = whole(frontend, request)
    assert len(before) > 3
    frontend.say(Committed(job=request.job, windows=2))
    frontend.say(Fence(job=request.job, attempt=2))
    frontend.say(Reissue(request.job, 2, 2, request, "what was said"))
    after = features(frontend, len(before) - 2)
    assert [(message.window, message.attempt) for message in after] == [(i, 2) for i in range(2, len(before))]
    assert [message.memory for message in after] == ["what was said"] + [""] * (len(after) - 1)
    for mine, wanted in zip(after, before[2:], strict=True):
        np.testing.assert_array_equal(mine.mel, wanted.mel)


def test_a_frontend_that_does_not_know_the_job_leaves_out_what_is_committed(
    frontend: Stage, tiny: Path, clips: tuple[str, str]
) -> None:
    request = submit(source=clips[0])
    with Stage(FrontendBehaviour(tiny)) as other:
        other.hear(Ready)
        other.wire()
        before = whole(other, request)
    frontend.say(Reissue(request.job, 2, 3, request, ""))
    frontend.say(Credit(windows=ALL))
    end = frontend.hear(AudioEnd)
    assert end.windows == len(before)
    after = features(frontend, len(before) - 2)
    assert [(message.window, message.attempt) for message in after] == [(i, 3) for i in range(2, len(before))]
    for mine, wanted in zip(after, before[2:], strict=True):
        np.testing.assert_array_equal(mine.mel, wanted.mel)


def test_between_the_fence_and_the_new_attempt_nothing_is_sent(frontend: Stage, clips: tuple[str, str]) -> None:
    request = submit(source=clips[0])
    frontend.say(request)
    frontend.hear(Window)
    frontend.say(Fence(job=request.job, attempt=2))
    frontend.say(Credit(windows=ALL))
    frontend.say(Reissue(request.job, 0, 2, request, ""))
    assert {message.attempt for message in features(frontend, 3)} == {2}


def test_a_job_that_has_ended_is_let_go_of(frontend: Stage, clips: tuple[str, str]) -> None:
    first, second = submit(source=clips[0]), submit(source=clips[1])
    frontend.say(first)
    frontend.hear(Window)
    frontend.say(Cancel(job=first.job))
    assert {message.job for message in whole(frontend, second)} == {second.job}
    behaviour = frontend.behaviour
    assert isinstance(behaviour, FrontendBehaviour)
    assert first.job not in behaviour._recordings


def test_a_recording_is_let_go_of_when_all_of_it_is_committed(frontend: Stage, clips: tuple[str, str]) -> None:
    request = submit(source=clips[0])
    windows = len(whole(frontend, request))
    behaviour = frontend.behaviour
    assert isinstance(behaviour, FrontendBehaviour)
    assert request.job in behaviour._recordings
    frontend.say(Committed(job=request.job, windows=windows))
    whole(frontend, submit(source=clips[1]))
    assert request.job not in behaviour._recordings


def test_a_recording_that_cannot_be_read_fails_alone(frontend: Stage, clips: tuple[str, str]) -> None:
    missing, good = submit(source="/no/such.wav"), submit(source=clips[0])
    frontend.say(missing)
    assert frontend.hear(Failed).job == missing.job
    assert len(whole(frontend, good)) > 3


def test_a_window_that_had_to_wait_tells_whether_the_next_one_follows(frontend: Stage, clips: tuple[str, str]) -> None:
    request = submit(source=clips[0])
    frontend.say(request)
    frontend.hear(Working, lambda work: work.window == 1)  # it looks ahead
    frontend.say(Credit(windows=1))
    assert [message.more for message in features(frontend, 1)] == [False]  # the first text does not wait
    frontend.hear(Working, lambda work: work.window == 2)
    assert not any(isinstance(said, Window) and said.window == 2 for said in frontend.heard)  # it is told in its turn
    frontend.say(Credit(windows=1))
    assert [message.more for message in features(frontend, 1)] == [True]
    frontend.say(Credit(windows=ALL))
    assert not features(frontend, frontend.hear(AudioEnd).windows - 2)[-1].more


def test_nothing_waits_to_see_whether_more_follows(frontend: Stage, clips: tuple[str, str]) -> None:
    frontend.say(Credit(windows=ALL))
    assert not any(message.more for message in whole(frontend, submit(source=clips[0])))


def test_a_new_attempt_sends_what_was_read_ahead_as_well(frontend: Stage, clips: tuple[str, str]) -> None:
    request = submit(source=clips[0])
    frontend.say(request)
    frontend.hear(Working, lambda work: work.window == 1)
    frontend.say(Fence(job=request.job, attempt=2))
    frontend.say(Reissue(request.job, 0, 2, request, ""))
    frontend.say(Credit(windows=ALL))
    end = frontend.hear(AudioEnd)
    assert [message.window for message in features(frontend, end.windows)] == list(range(end.windows))
