"""The decoder's behaviour: which windows it decodes side by side, which wait, and that each is paid for once."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from susurrus.actors.decoder import ALONE, WINDOWS, DecoderBehaviour
from susurrus.models.errors import OptionError
from susurrus.protocol import HiddenStates, Partial, Redo, Segment, TranscribeOptions, Working, new_id
from tests.models.tiny import build_tiny, random_tensors, write_ctranslate2

if TYPE_CHECKING:
    from pathlib import Path

PLAIN = TranscribeOptions(language="en", temperatures=(0.0,), logprob_threshold=None, compression_ratio_threshold=None)
JOB = new_id()
SAMPLED = 47  # of 50 positions one by one, and one for the three others


class FakeDesk:
    """Notes what is said, and gives jobs up when told to."""

    def __init__(self) -> None:
        self.said: list[Any] = []
        self.released = 0
        self.given_up: set[tuple[bytes, int]] = set()

    def tell(self, message: object) -> None:
        """Note it."""
        self.said.append(message)

    def works_on(self, job: bytes, window: int, attempt: int) -> None:
        """Note it."""
        self.said.append(Working(job=job, window=window, attempt=attempt))

    def fail(self, job: bytes, error: Exception) -> None:
        """Note it."""
        self.said.append((job, error))

    def release(self) -> None:
        """Count it."""
        self.released += 1

    def is_given_up(self, job: bytes, attempt: int = 1) -> bool:
        """As told."""
        return (job, attempt) in self.given_up

    def of(self, kind: type[Any]) -> list[int]:
        """The windows of what was said of a kind, in order."""
        return [message.window for message in self.said if isinstance(message, kind)]


class House:
    """A decoder of the tiny model that decodes for a desk."""

    def __init__(self, directory: Path) -> None:
        self.desk: Any = FakeDesk()
        self.decoder = DecoderBehaviour(directory, "int8", threads=1)
        self.decoder.load()

    def send(self, *windows: HiddenStates) -> None:
        """Into its inbox."""
        for window in windows:
            self.decoder.handle(window, self.desk)

    def work(self) -> None:
        """As long as there is anything to do."""
        while self.decoder.go_on(self.desk):
            pass

    def warm(self) -> None:
        """Past the windows that are decoded one by one."""
        self.send(*(window(index, job=new_id()) for index in range(ALONE)))
        self.work()
        self.desk.said.clear()
        self.desk.released = 0


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model directory with random weights."""
    directory = tmp_path_factory.mktemp("small") / "tiny"
    build_tiny(write_ctranslate2(tmp_path_factory.mktemp("source"), random_tensors()), directory)
    return directory


@pytest.fixture
def house(small: Path) -> House:
    return House(small)


def window(index: int, *, more: bool = False, job: bytes = JOB, **fields: Any) -> HiddenStates:
    """Hidden states of a window of the tiny model's length."""
    length = 48 if fields.get("kept") == SAMPLED else 50
    states = np.random.default_rng(index).standard_normal((length, 64)).astype(np.float32)
    start = float(index)
    plain = HiddenStates(job, index, 1, start, start + 1, PLAIN, 0.1, states, more=more)
    return replace(plain, **fields)


def test_the_first_windows_are_decoded_one_by_one(house: House) -> None:
    """One that kills its decoder is so the one that the decoder has said it works on."""
    house.send(*(window(index, more=True) for index in range(ALONE)))
    house.work()
    order = [(type(message), message.window) for message in house.desk.said if not isinstance(message, Partial)]
    assert order == [(kind, index) for index in range(ALONE) for kind in (Working, Segment)]
    assert house.desk.released == ALONE


def test_the_first_window_of_a_recording_waits_for_no_other(house: House) -> None:
    house.warm()
    house.send(window(0))
    house.work()
    memory = house.desk.said.pop().memory  # what language is spoken is known from here on
    house.desk.said.clear()
    house.send(window(0, job=new_id(), memory=memory, more=True))
    assert house.decoder.go_on(house.desk)
    assert house.desk.of(Working) == [0]


def test_windows_of_a_settled_recording_wait_for_each_other_while_more_come(house: House) -> None:
    house.warm()
    house.send(window(0))
    house.work()  # what language is spoken is known from here on
    assert house.desk.said.pop().settled
    house.desk.said.clear()
    for index in range(1, WINDOWS):
        house.send(window(index, more=True))
        assert not house.decoder.go_on(house.desk)
    assert house.desk.said == []
    house.send(window(WINDOWS, more=True))
    house.decoder.go_on(house.desk)
    assert house.desk.of(Working) == [1, 2, 3, 4]
    house.work()
    assert sorted(house.desk.of(Segment)) == [1, 2, 3, 4]
    house.send(window(5, more=True), window(6))
    house.work()  # the last one is not waited for
    assert sorted(house.desk.of(Segment)) == [1, 2, 3, 4, 5, 6]
    assert house.desk.released == 7


def test_windows_that_come_while_others_are_decoded_join_them_when_there_is_no_more_room_then(house: House) -> None:
    """One that joins alone would keep the batch small: it waits for others, or for room for one only."""
    house.warm()
    house.send(window(0))
    house.work()
    house.send(window(1, more=True), window(2))
    house.decoder.go_on(house.desk)
    house.send(window(3, more=True))
    house.decoder.go_on(house.desk)
    assert house.desk.of(Working) == [0, 1, 2]
    house.send(window(4, more=True))
    house.decoder.go_on(house.desk)
    assert house.desk.of(Working) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("options", [replace(PLAIN, condition_on_previous_text=True)])
def test_windows_that_depend_on_the_one_before_are_decoded_in_order(house: House, options: TranscribeOptions) -> None:
    house.warm()
    others = [window(index, job=new_id(), options=options) for index in (7, 8)]
    house.send(window(0, options=options), window(1, options=options), *others)
    house.decoder.go_on(house.desk)
    assert house.desk.of(Working) == [0, 7, 8]  # those of other recordings need not wait
    house.work()
    said = [(type(m), m.window) for m in house.desk.said if isinstance(m, Working | Segment) and m.job == JOB]
    assert said == [(Working, 0), (Segment, 0), (Working, 1), (Segment, 1)]


def test_side_by_side_the_text_is_what_it_is_one_by_one(house: House, small: Path) -> None:
    alone = House(small)
    for index in range(6):
        alone.send(window(index))
        alone.work()
    house.warm()
    house.send(*(window(index) for index in range(6)))
    house.work()
    found, wanted = (
        {m.window: replace(m, decoder_s=0.0) for m in each.desk.said if isinstance(m, Segment)}
        for each in (house, alone)
    )
    assert found == wanted


def test_what_is_given_up_is_dropped_and_makes_room(house: House) -> None:
    house.warm()
    gone = new_id()
    house.send(window(0), window(1, job=gone), window(2, job=gone), window(3, job=gone, attempt=2))
    house.decoder.go_on(house.desk)
    house.desk.given_up |= {(gone, 1), (gone, 2)}
    house.work()
    assert house.desk.of(Segment) == [0]
    assert house.desk.released == 4


def test_a_doubtful_text_of_a_sampled_window_is_asked_for_in_full_and_nothing_follows_it(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.warm()
    monkeypatch.setattr("susurrus.models.decoding.is_sound", lambda *_: False)
    house.send(window(0, kept=SAMPLED), window(1, kept=SAMPLED))
    house.work()
    assert next(m for m in house.desk.said if isinstance(m, Redo | Segment)) == Redo(JOB, 0, 1)
    assert house.desk.of(Segment) == []
    assert house.desk.released == 2
    house.send(window(0, attempt=2), window(1, attempt=2))
    house.work()
    assert [(m.window, m.attempt) for m in house.desk.said if isinstance(m, Segment)] == [(0, 2), (1, 2)]


def test_an_error_fails_its_job_alone(house: House) -> None:
    house.warm()
    bad = new_id()
    house.send(window(0), window(1, job=bad, states=np.zeros((5, 3), np.float32)), window(2, job=new_id()))
    house.work()
    assert sorted(house.desk.of(Segment)) == [0, 2]
    assert [message[0] for message in house.desk.said if isinstance(message, tuple)] == [bad]
    assert house.desk.released == 3


def test_options_that_this_model_does_not_know_fail_on_arrival(house: House) -> None:
    """There the shell fails the job; later on the actor would end."""
    with pytest.raises(OptionError, match="klingon"):
        house.send(window(0, options=replace(PLAIN, language="klingon")))
    house.send(window(1, job=new_id()))
    house.work()
    assert house.desk.of(Segment) == [1]
