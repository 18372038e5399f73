"""Workers, one a process: started when first asked for, asked one at a time, ended when they fail or take too long."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

from tests.bench.footprint import cpu_seconds, tree, wait_until_quiet
from tests.bench.roster import ROOT, Contestant, Entry

LEAVE_S = 10.0  # to end by itself

Answer = dict[str, Any]


class WorkerError(Exception):
    """An engine failed, or took too long: one sentence."""


class Worker:
    """An engine in a process of its own.

    Args:
        entry: which.
        threads: of the engine.
        timeout_s: for any one answer; the worker is ended when it takes longer.
        log: file for what it prints.
        command: what to run; None runs `worker.py` in the engine's interpreter.
    """

    def __init__(
        self, entry: Entry, threads: int, timeout_s: float, log: Path, command: Sequence[str] | None = None
    ) -> None:
        self.entry = entry
        self._timeout_s = timeout_s
        environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": str(threads)}
        with log.open("ab") as file:
            self._process = subprocess.Popen(
                command or [entry.python, "-m", "tests.bench.worker"],
                cwd=ROOT,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                text=True,
                encoding="utf-8",
            )
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, name=f"answers of {entry.name}", daemon=True)
        self._reader.start()

    @property
    def is_alive(self) -> bool:
        """Whether it can be asked."""
        return self._process.poll() is None

    @property
    def pid(self) -> int:
        """Of the root of its processes."""
        return self._process.pid

    def ask(self, what: str, *, timeout_s: float | None = None, **fields: Any) -> Answer:
        """Send a request and wait for its answer, as long as the worker may take, or so long.

        Raises:
            WorkerError: the engine says why not, has ended, or takes too long; it is ended in the latter cases.
        """
        assert self._process.stdin is not None
        patience = timeout_s or self._timeout_s
        try:
            self._process.stdin.write(json.dumps({"do": what, **fields}) + "\n")
            self._process.stdin.flush()
            line = self._lines.get(timeout=patience)
        except queue.Empty:
            self.end()
            raise WorkerError(f"no answer after {patience:.0f} s") from None
        except OSError:
            line = ""
        if not line:
            self.end()
            raise WorkerError(f"its process has ended with code {self._process.returncode}")
        answer: Answer = json.loads(line)
        if "error" in answer:
            raise WorkerError(answer["error"])
        return answer

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put("")

    def leave(self) -> None:
        """Let it end by itself; not for long."""
        with suppress(OSError):
            assert self._process.stdin is not None
            self._process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(LEAVE_S)
        self.end()

    def end(self) -> None:
        """End it and all that it has started, at once. Idempotent."""
        for process in tree(self.pid):
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self._process.wait()
        self._reader.join(LEAVE_S)
        for pipe in (self._process.stdin, self._process.stdout):
            with suppress(OSError):  # what was not written any more
                assert pipe is not None
                pipe.close()


class Fleet:
    """The workers of a run, by key of their contestants. Leaving the context ends them.

    Args:
        threads: of every engine.
        timeout_s: for one answer.
        folder: for logs.
        say: told what is worth a line.
        start: makes a worker that has not loaded its engine.
    """

    def __init__(
        self,
        threads: int,
        timeout_s: float,
        folder: Path,
        say: Callable[[str], None],
        start: Callable[[Entry, int, float, Path], Worker] = Worker,
    ) -> None:
        self.load_s: dict[str, float] = {}
        """How long engines took to load, by name."""
        self.restless: dict[str, float] = {}
        """Processor time that engines used while it was another's turn, seconds."""
        self.say = say
        self._threads, self._timeout_s, self._folder, self._start = threads, timeout_s, folder, start
        self._workers: dict[str, Worker] = {}

    def worker(self, contestant: Contestant) -> Worker:
        """The one of a contestant, with its engine loaded.

        Raises:
            WorkerError: it cannot be started, or does not load.
        """
        key, entry = contestant.key, contestant.entry
        if key in self._workers and not self._workers[key].is_alive:
            del self._workers[key]
        if key not in self._workers:
            log = self._folder / f"{key.replace('/', '_')}.log"
            try:
                worker = self._start(entry, self._threads, self._timeout_s, log)
            except OSError as error:
                raise WorkerError(f"{entry.python}: {error}") from error
            facts: dict[str, Any] = {"kind": entry.kind, "model": entry.model, "options": entry.options}
            try:
                self.load_s[key] = worker.ask("load", threads=self._threads, **facts)["total_s"]
            except WorkerError:
                worker.end()
                raise
            self._workers[key] = worker
        return self._workers[key]

    def ask(self, contestant: Contestant, what: str, *, timeout_s: float | None = None, **fields: Any) -> Answer:
        """Have a contestant do something while all others rest; processor time in `cpu_s`.

        Raises:
            WorkerError: as `Worker.ask`.
        """
        worker = self.worker(contestant)
        wait_until_quiet([other.pid for other in self._workers.values()])
        before = {key: cpu_seconds(other.pid) for key, other in self._workers.items()}
        answer = worker.ask(what, timeout_s=timeout_s, options=contestant.options, **fields)
        for key, other in self._workers.items():
            if other is not worker:
                self.restless[key] = self.restless.get(key, 0.0) + cpu_seconds(other.pid) - before[key]
        wait_until_quiet([worker.pid])
        answer["cpu_s"] = cpu_seconds(worker.pid) - before[contestant.key]
        return answer

    def dismiss(self, contestant: Contestant) -> None:
        """End a contestant's process; the next request starts another."""
        if worker := self._workers.pop(contestant.key, None):
            worker.leave()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self._workers.values():
            worker.leave()
