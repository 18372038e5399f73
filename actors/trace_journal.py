"""What one process did, as Chrome trace events in a file of its own: a line of JSON each, written as it happens.

Format: "Trace Event Format" (Chromium project), which chrome://tracing and ui.perfetto.dev read. Times are
CLOCK_MONOTONIC in microseconds, which all processes of a machine share. A process that is killed loses its tail at
most.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from pathlib import Path
from typing import Any

from susurrus.protocol import Message

log = logging.getLogger(__name__)

EVENTS = "events"
"""Folder of these files within the trace's."""

Event = dict[str, Any]

SHOWN = (
    *("name", "model", "threads", "load_s", "attempt", "start", "end", "text", "code", "speech", "duration"),
    *("windows", "complete", "warnings"),
)
"""Fields of messages that events show."""


class Journal:
    """Writes the events of this process. Any thread calls it.

    A trace must not end the work that it looks at: when nothing can be written any more, it says so once and stops.
    """

    def __init__(self, folder: Path, process: str, *, main: str = "sockets") -> None:
        """Begin the file.

        Args:
            folder: of the trace; made if it is not there.
            process: what people call this process.
            main: what they call its main thread.
        """
        self.folder = folder
        self._pid = os.getpid()
        self._main = main
        self._threads: set[int] = set()
        self._lock = threading.Lock()
        self._descriptor: int | None = None
        self.is_alive = True
        """Whether anything can still be written into the trace's folder."""
        try:
            make_private(make_private(folder) / EVENTS)
            self._descriptor = open_private(folder / EVENTS / f"{process}-{self._pid}.jsonl", os.O_APPEND)
        except OSError as error:
            self.give_up(error)
        self._write({"ph": "M", "name": "process_name", "args": {"name": process}})

    def slice(self, name: str, category: str, start_ns: int, end_ns: int, /, **args: Any) -> None:
        """Something that this thread did from one `monotonic_ns` to another."""
        self._write(
            {"ph": "X", "name": name, "cat": category, "ts": start_ns / 1e3, "dur": (end_ns - start_ns) / 1e3},
            args,
        )

    def instant(self, name: str, category: str, at_ns: int, /, **args: Any) -> None:
        """Something that happened on this thread."""
        self._write({"ph": "i", "s": "t", "name": name, "cat": category, "ts": at_ns / 1e3}, args)

    def span(self, phase: str, name: str, category: str, identity: str, /, **args: Any) -> None:
        """Phase `b` begins, `e` ends something that threads do not do, such as waiting in a queue; now."""
        self._write({"ph": phase, "name": name, "cat": category, "id": identity, "ts": now_ns() / 1e3}, args)

    def arrow(self, phase: str, identity: str, at_ns: int) -> None:
        """Phase `s` begins, `f` ends an arrow, from and to the slice that this thread was in then."""
        event = {"ph": phase, "name": "window", "cat": "flow", "id": identity, "ts": at_ns / 1e3}
        self._write({**event, "bp": "e"} if phase == "f" else event)

    def give_up(self, error: OSError) -> None:
        """Write no more: there is no room, or no right to."""
        if self.is_alive:
            self.is_alive = False
            log.warning("the trace ends here", extra={"folder": str(self.folder), "reason": error.strerror})

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            if self._descriptor is not None:
                os.close(self._descriptor)
                self._descriptor = None

    def _write(self, event: Event, args: Event | None = None) -> None:
        with self._lock:
            thread = threading.get_native_id()
            lines = [{**event, "pid": self._pid, "tid": thread, **({"args": args} if args else {})}]
            if thread not in self._threads:
                self._threads.add(thread)
                current = threading.current_thread()
                name = self._main if current is threading.main_thread() else current.name
                lines.insert(
                    0, {"ph": "M", "name": "thread_name", "pid": self._pid, "tid": thread, "args": {"name": name}}
                )
            data = "".join(json.dumps(line, ensure_ascii=True, allow_nan=False) + "\n" for line in lines).encode()
            if self._descriptor is None or not self.is_alive:
                return
            try:
                os.write(self._descriptor, data)
            except OSError as error:
                self.give_up(error)


def now_ns() -> int:
    """Nanoseconds of the clock that all processes share."""
    return time.monotonic_ns()


def make_private(folder: Path) -> Path:
    """Make a folder for the user alone, unless it is there.

    Raises:
        OSError: it cannot be made.
    """
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def open_private(path: Path, flags: int = os.O_TRUNC) -> int:
    """Descriptor of a file for the user alone, to be written; a trace holds what was said.

    Raises:
        OSError: it cannot be opened.
    """
    return os.open(path, os.O_WRONLY | os.O_CREAT | getattr(os, "O_BINARY", 0) | flags, 0o600)


def write_private(path: Path, data: bytes) -> None:
    """Write a file for the user alone; an older one is replaced.

    Raises:
        OSError: it cannot be written.
    """
    with os.fdopen(open_private(path), "wb") as file:
        file.write(data)


def shown(message: Message) -> dict[str, Any]:
    """What an event shows of a message."""
    values = {name: getattr(message, name) for name in SHOWN if hasattr(message, name)}
    known = {name: value for name, value in values.items() if isinstance(value, str | int | float | tuple)}
    simple = {name: value for name, value in known.items() if not isinstance(value, tuple) or _is_text(value)}
    return {**names(message), **simple}


def _is_text(values: tuple[Any, ...]) -> bool:
    return all(isinstance(value, str) for value in values)


def names(message: Message) -> dict[str, Any]:
    """The job, and the window if it is about one."""
    names: dict[str, Any] = {}
    if (job := getattr(message, "job", None)) is not None:
        names["job"] = job.hex()
    if isinstance(window := getattr(message, "window", None), int):
        names["window"] = window
    return names
