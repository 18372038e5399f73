"""Nobody sends a window without credit, and nobody waits for it for ever."""

from __future__ import annotations

import threading

import pytest

from susurrus.actors.credit import CreditGate, Stopping
from tests.actors.fakes import PATIENCE_S


class Taker:
    """A thread that takes credit `times` times."""

    def __init__(self, gate: CreditGate, times: int) -> None:
        self.taken = threading.Semaphore(0)
        self.ended = threading.Event()
        self.stopped = False
        self._gate, self._times = gate, times
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        try:
            for _ in range(self._times):
                self._gate.take()
                self.taken.release()
        except Stopping:
            self.stopped = True
        self.ended.set()


def test_what_was_granted_can_be_taken_and_no_more() -> None:
    gate = CreditGate()
    gate.grant(2)
    taker = Taker(gate, 3)
    assert taker.taken.acquire(timeout=PATIENCE_S)
    assert taker.taken.acquire(timeout=PATIENCE_S)
    assert not taker.taken.acquire(timeout=0.05)
    gate.grant(1)
    assert taker.taken.acquire(timeout=PATIENCE_S)
    assert taker.ended.wait(PATIENCE_S)


def test_grants_add_up() -> None:
    gate = CreditGate()
    gate.grant(1)
    gate.grant(2)
    for _ in range(3):
        gate.take()


def test_reset_forgets_what_was_granted_before() -> None:
    gate = CreditGate()
    gate.grant(5)
    gate.reset()
    taker = Taker(gate, 1)
    assert not taker.taken.acquire(timeout=0.05)
    gate.grant(1)
    assert taker.taken.acquire(timeout=PATIENCE_S)


def test_close_wakes_who_waits() -> None:
    gate = CreditGate()
    taker = Taker(gate, 1)
    gate.close()
    assert taker.ended.wait(PATIENCE_S)
    assert taker.stopped


def test_after_close_even_granted_credit_is_worth_nothing() -> None:
    gate = CreditGate()
    gate.grant(1)
    gate.close()
    with pytest.raises(Stopping):
        gate.take()
