"""The pipeline's own console is waited for when it is behind, and no other."""

from __future__ import annotations

from susurrus.actors.audience import ASK_EVERY, MAX_BEHIND, Audience
from susurrus.actors.ledger import MAX_FINISHED, MAX_READ
from susurrus.protocol import Message, Ping

CONSOLE, STRANGER = b"c" * 16, b"s" * 16


class Line:
    """Keeps what is sent."""

    def __init__(self) -> None:
        self.sent: list[tuple[bytes, Message]] = []

    def send(self, peer: bytes, message: Message) -> bool:
        """Keep it."""
        self.sent.append((peer, message))
        return True


def test_without_a_console_nobody_is_asked_and_nothing_waits() -> None:
    line = Line()
    audience = Audience(line.send)
    for _ in range(10 * MAX_BEHIND):
        audience.job_ended()
    assert (line.sent, audience.is_here, audience.is_behind) == ([], False, False)


def test_it_is_asked_at_once_and_now_and_then() -> None:
    line = Line()
    audience = Audience(line.send)
    audience.come(CONSOLE)
    for _ in range(2 * ASK_EVERY):
        audience.job_ended()
    assert line.sent == [(CONSOLE, Ping(number)) for number in (0, ASK_EVERY, 2 * ASK_EVERY)]


def test_jobs_begin_until_too_much_is_not_shown_and_again_once_it_is() -> None:
    audience = Audience(Line().send)
    audience.come(CONSOLE)
    for _ in range(MAX_BEHIND):
        audience.job_ended()
    assert not audience.is_behind
    audience.job_ended()
    assert audience.is_behind
    assert not audience.answers(STRANGER, MAX_BEHIND + 1)
    assert audience.is_behind
    assert not audience.answers(CONSOLE, ASK_EVERY)
    assert not audience.is_behind
    assert audience.answers(CONSOLE, MAX_BEHIND + 1)


def test_one_that_is_lost_is_waited_for() -> None:
    audience = Audience(Line().send)
    audience.come(CONSOLE)
    audience.go()
    for _ in range(MAX_BEHIND + 1):
        audience.job_ended()
    assert (audience.is_here, audience.is_behind) == (False, True)
    assert not audience.answers(CONSOLE, MAX_BEHIND + 1)
    audience.come(STRANGER)
    assert audience.answers(STRANGER, MAX_BEHIND + 1)


def test_what_is_in_work_may_end_as_well_before_anything_is_forgotten() -> None:
    assert MAX_BEHIND + MAX_READ < MAX_FINISHED
