"""From a blocking iterator to asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Generator
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


class Departure:
    """Tells a thread that waits for its next item that nobody wants it any more."""

    def __init__(self) -> None:
        self._left = threading.Event()
        self._wake: Callable[[], None] = _nothing

    def set(self) -> None:
        """Say so, and wake the thread (any thread)."""
        self._left.set()
        self._wake()

    def is_set(self) -> bool:
        """Whether it was said (any thread)."""
        return self._left.is_set()

    def wake_by(self, wake: Callable[[], None]) -> None:
        """Name what ends the waiting; it may be called once too often (the thread that waits)."""
        self._wake = wake
        if self.is_set():
            wake()


def _nothing() -> None:
    pass


async def iterate_in_thread(make: Callable[[Departure], Generator[T, None, None]]) -> AsyncIterator[T]:
    """Items of a blocking iterator, which is made and advanced on a thread of its own from beginning to end.

    One thread, not a pool: what the iterator holds (ZeroMQ sockets) belongs to the thread that made it. What it raises
    is raised here. Leaving the iteration early, or cancelling the task, closes the iterator: before its next item, or
    at once if it listens to the Departure that `make` is given.
    """
    loop = asyncio.get_running_loop()
    items: asyncio.Queue[T | _End] = asyncio.Queue()
    left = Departure()

    def put(item: T | _End) -> None:
        with contextlib.suppress(RuntimeError):  # the loop was closed over our head
            loop.call_soon_threadsafe(items.put_nowait, item)

    def run() -> None:
        error: BaseException | None = None
        try:
            with contextlib.closing(make(left)) as iterator:
                for item in iterator:
                    if left.is_set():
                        break
                    put(item)
        except BaseException as raised:  # noqa: BLE001 - handed to the task that iterates
            error = raised
        put(_End(error))

    threading.Thread(target=run, name="susurrus-events", daemon=True).start()
    ended = False
    try:
        while True:
            item = await items.get()
            if isinstance(item, _End):
                ended = True
                if item.error is not None:
                    raise item.error
                return
            yield item
    finally:
        left.set()
        while not ended:
            ended = isinstance(await items.get(), _End)


@dataclass(frozen=True, slots=True)
class _End:
    """What comes behind the last item."""

    error: BaseException | None
