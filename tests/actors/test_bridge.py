"""From a blocking iterator to asyncio: one thread, every item, every error, and nobody left waiting."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Generator
from contextlib import aclosing
from typing import Any, cast

import pytest

from susurrus.actors.bridge import Departure, iterate_in_thread
from tests.actors.fakes import PATIENCE_S

Make = Callable[[Departure], Generator[int, None, None]]


def run(main: Coroutine[Any, Any, Any]) -> Any:
    async def bounded() -> Any:
        async with asyncio.timeout(PATIENCE_S):
            return await main

    return asyncio.run(bounded())


def counting(items: int, closed: threading.Event | None = None) -> Make:
    def make(_departure: Departure) -> Generator[int, None, None]:
        try:
            yield from range(items)
        finally:
            if closed is not None:
                closed.set()

    return make


def waiting(closed: threading.Event) -> Make:
    """Gives one item, then waits for one that never comes, as a client of a job in a queue does."""

    def make(departure: Departure) -> Generator[int, None, None]:
        woken = threading.Event()
        departure.wake_by(woken.set)
        try:
            yield 0
            assert woken.wait(PATIENCE_S)
        finally:
            closed.set()

    return make


def iterate(make: Make) -> aclosing[Any]:
    """The asynchronous iterator, closed when its block is left."""
    return aclosing(cast("Any", iterate_in_thread(make)))


async def collect(items: AsyncIterator[int]) -> list[int]:
    return [item async for item in items]


def test_every_item_comes_in_order() -> None:
    assert run(collect(iterate_in_thread(counting(1000)))) == list(range(1000))


def test_an_iterator_without_items_ends() -> None:
    assert run(collect(iterate_in_thread(counting(0)))) == []


def test_the_iterator_lives_on_one_thread_from_beginning_to_end() -> None:
    threads = set()

    def make(_departure: Departure) -> Generator[int, None, None]:
        try:
            for item in range(5):
                threads.add(threading.get_ident())
                yield item
        finally:
            threads.add(threading.get_ident())

    run(collect(iterate_in_thread(make)))
    assert len(threads) == 1
    assert threading.get_ident() not in threads


def test_what_the_iterator_raises_is_raised_here_after_the_items_before_it() -> None:
    def make(_departure: Departure) -> Generator[int, None, None]:
        yield 1
        raise OSError("broken")

    async def main() -> None:
        items = cast("Any", iterate_in_thread(make))
        assert await anext(items) == 1
        with pytest.raises(OSError, match="broken"):
            await anext(items)

    run(main())


def test_what_its_making_raises_is_raised_here() -> None:
    def make(_departure: Departure) -> Generator[int, None, None]:
        raise OSError("cannot begin")

    with pytest.raises(OSError, match="cannot begin"):
        run(collect(iterate_in_thread(make)))


def test_leaving_early_closes_the_iterator() -> None:
    closed = threading.Event()

    async def main() -> None:
        async with iterate(counting(10**9, closed)) as items:
            async for item in items:
                if item == 3:
                    break
        assert closed.is_set()

    run(main())


def test_leaving_wakes_an_iterator_that_waits() -> None:
    closed = threading.Event()

    async def main() -> None:
        async with iterate(waiting(closed)) as items:
            assert await anext(items) == 0
        assert closed.is_set()

    run(main())


def test_cancelling_the_task_wakes_an_iterator_that_waits() -> None:
    closed, begun = threading.Event(), asyncio.Event()

    async def consume() -> None:
        async with iterate(waiting(closed)) as items:
            async for _ in items:
                begun.set()

    async def main() -> None:
        task = asyncio.create_task(consume())
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert closed.is_set()

    run(main())


def test_other_tasks_run_while_the_iterator_waits() -> None:
    release = threading.Event()

    def make(_departure: Departure) -> Generator[int, None, None]:
        assert release.wait(PATIENCE_S)
        yield 1

    async def main() -> None:
        async def let_go() -> None:
            release.set()

        items = asyncio.create_task(collect(iterate_in_thread(make)))
        await let_go()
        assert await items == [1]

    run(main())


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # asyncio's, of the iterator it dropped
def test_a_loop_that_is_closed_over_the_iterators_head_does_not_break_its_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    unraised: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", unraised.append)
    closed, release = threading.Event(), threading.Event()

    def make(_departure: Departure) -> Generator[int, None, None]:
        try:
            yield 1
            assert release.wait(PATIENCE_S)
            yield 2
        finally:
            closed.set()

    loop = asyncio.new_event_loop()
    items = iterate_in_thread(make)
    assert loop.run_until_complete(cast("Any", anext(items))) == 1
    loop.close()
    release.set()
    assert closed.wait(PATIENCE_S)
    assert unraised == []


def test_a_departure_that_was_set_before_wakes_at_once() -> None:
    departure, woken = Departure(), threading.Event()
    departure.set()
    departure.wake_by(woken.set)
    assert departure.is_set()
    assert woken.is_set()
