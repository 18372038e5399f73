"""Three signs of a loss, and a limit to patience; with a clock that the test turns."""

from __future__ import annotations

import pytest

from susurrus.actors.watch import Limits, Watch

LIMITS = Limits()


@pytest.fixture
def watch() -> Watch:
    """Over an actor that is ready since 0 s."""
    watch = Watch(LIMITS, 0.0)
    watch.ready()
    return watch


def test_an_actor_is_frozen_when_it_says_nothing_for_three_pings(watch: Watch) -> None:
    assert watch.suspicion(3.0) == ""
    assert "nothing for 3 s" in watch.suspicion(3.1)


def test_any_word_counts_as_a_sign_of_life(watch: Watch) -> None:
    watch.heard(2.5)
    assert watch.suspicion(5.5) == ""
    assert watch.suspicion(6.0) != ""


def test_an_actor_that_loads_may_be_silent_for_longer() -> None:
    watch = Watch(LIMITS, 0.0)
    assert watch.suspicion(60.0) == ""
    assert "nothing for 60 s" in watch.suspicion(60.1)


def test_an_actor_is_stuck_when_it_answers_but_gets_nowhere(watch: Watch) -> None:
    watch.stalled(180.0)
    assert watch.suspicion(0.5) == ""
    watch.stalled(180.1)
    assert "nowhere for 180 s" in watch.suspicion(0.5)
    watch.stalled(0.0)
    assert watch.suspicion(0.5) == ""


def test_silence_while_the_hub_itself_slept_proves_nothing(watch: Watch) -> None:
    watch.slept(3600.0)
    assert watch.suspicion(3602.9) == ""
    assert watch.suspicion(3603.1) != ""


def test_a_new_process_begins_with_a_clean_slate(watch: Watch) -> None:
    watch.stalled(999.0)
    watch.started(100.0)
    assert watch.suspicion(150.0) == ""


def test_each_restart_within_a_minute_waits_twice_as_long_and_the_fourth_loss_is_the_last(watch: Watch) -> None:
    assert [watch.lost(float(when)) for when in range(4)] == [0.1, 0.2, 0.4, None]
    assert watch.restarts == 3


def test_losses_that_are_a_minute_old_do_not_count(watch: Watch) -> None:
    assert [watch.lost(25.0 * turn) for turn in range(10)] == [0.1, 0.2, 0.4, *[0.4] * 7]


def test_no_pause_is_longer_than_the_longest() -> None:
    watch = Watch(Limits(restarts=10), 0.0)
    pauses = [watch.lost(0.0) for _ in range(11)]
    assert pauses[5:] == [2.0] * 5 + [None]


def test_losses_that_are_forgiven_do_not_count(watch: Watch) -> None:
    for _ in range(3):
        watch.lost(0.0)
    watch.forgive()
    assert watch.lost(0.0) == 0.1
