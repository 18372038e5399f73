"""An interpreter for a pipeline's children that goes wrong where a test wants it to: `Pipeline(python=…)`.

The children are the real actors in real processes. What is planted is one thing: at a named point of its work an actor
kills, stops, hangs or breaks itself. Points are counted, so a test says "after the fifth token of the second window".
"""

from __future__ import annotations

import json
import os
import runpy
import shlex
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

VARIABLE = "SUSURRUS_TEST_FAULTS"
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Fault:
    """What goes wrong, and where."""

    actor: str
    point: str
    """`import` (nothing is said yet), `load`, `begin` (of a window), `token`, `result` (it is out).
    Of the console: `import`, `load`, `shown` (text is out and noted), `result` (it is out, not noted)."""
    deed: str = "kill"
    """`kill`, `stop`, `hang`, `stuck` (since an hour, as it says), `abort`, `memory`, `raise`, `slow`, `count` (it).
    What others release: `wait` (until the job is given up), `hold` (until `release`), `follow` (until `until`)."""
    window: int | None = None
    """Only in this window."""
    nth: int = 1
    """At the so manieth time that the point is come to in this window; 0: every time."""
    times: int = 1
    """In so many lives of the actor."""
    prompt: str = ""
    """Only in jobs with this prompt (encoder and decoder)."""
    until: int = 0
    """`follow`: until so much was counted."""


def interpreter(folder: Path, faults: Iterable[Fault]) -> str:
    """Write a command that starts actors with these faults; `times` is counted in the folder."""
    folder.mkdir(exist_ok=True)
    plan = folder / "faults.json"
    plan.write_text(json.dumps([asdict(fault) for fault in faults]))
    script = folder / "faulty.py"
    lines = [
        "import sys",
        f"sys.path.insert(0, {str(ROOT)!r})",
        "from tests.faults import scripted",
        f"scripted.main({str(plan)!r})",
    ]
    script.write_text("\n".join(lines) + "\n")
    return command_for(script)


def release(folder: Path) -> None:
    """Let those go on that are on `hold`."""
    (folder / "go").touch()


def counted(folder: Path) -> int:
    """How often something was to be counted."""
    count = folder / "count"
    return count.stat().st_size if count.exists() else 0


def command_for(script: Path) -> str:
    """A command that runs a script by this interpreter. By way of a shell: a `#!` line takes no path with spaces."""
    command = script.with_suffix("")
    command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {shlex.quote(str(script))} "$@"\n')
    command.chmod(0o755)
    return str(command)


# --- in the actor's process -------------------------------------------------------------------------------------


def main(plan: str) -> None:
    """Do as `python -P -m MODULE …` does, with the faults of the plan."""
    position = sys.argv.index("-m")
    module, arguments = sys.argv[position + 1], sys.argv[position + 2 :]
    sys.argv = [module, *arguments]
    actor = arguments[arguments.index("--name") + 1] if "--name" in arguments else module.rpartition(".")[2]
    faults = [Fault(**fault) for fault in json.loads(Path(plan).read_text()) if fault["actor"] == actor]
    script = Script(faults, Path(plan).parent)
    script.come_to("import")
    if actor == "console":
        script.plant_in_console()
    else:
        script.plant()
    runpy.run_module(module, run_name="__main__", alter_sys=True)


class Script:
    """Counts the points that an actor comes to, and does the deeds."""

    def __init__(self, faults: list[Fault], folder: Path) -> None:
        self._faults = faults
        self._folder = folder
        self._shell: Any = None
        self._window: int | None = None
        self._prompt = ""
        self._counts: dict[tuple[str, int | None], int] = {}

    def plant(self) -> None:  # noqa: C901 - a list of hooks
        """Have the shell's desk tell of every point."""
        from susurrus.actors import behaviour, compute  # noqa: PLC0415 - after `import` faults
        from susurrus.protocol import Features, HiddenStates, Partial, Segment, Window, Working  # noqa: PLC0415

        script, desk = self, behaviour.Desk

        def after(name: str, note: Callable[[Any, Any], None]) -> None:
            real = getattr(desk, name)

            def wrapped(self: Any, *arguments: Any, **how: Any) -> Any:
                result = real(self, *arguments, **how)
                note(self, arguments[0])
                return result

            setattr(desk, name, wrapped)

        def told(_desk: Any, message: Any) -> None:
            if isinstance(message, Working):
                script.begin(message.window)
            elif isinstance(message, Partial):
                script.goes_on(message.window)
                script.come_to("token", job=lambda: not _desk.is_given_up(message.job, message.attempt))
            elif isinstance(message, Segment | Window):
                script.goes_on(message.window)
                script.come_to("result", _desk)

        def forwarded(_desk: Any, message: Any) -> None:
            if isinstance(message, Features | HiddenStates):
                script.come_to("result", _desk)

        after("tell", told)
        after("forward", forwarded)
        loop = compute.ComputeLoop
        real_do = loop._do

        def do(self: Any, work: Any, desk: Any) -> None:
            script._prompt = work.options.prompt if hasattr(work, "options") else ""
            real_do(self, work, desk)

        loop._do = do  # type: ignore[method-assign]
        real_run = loop.run

        def run(self: Any) -> None:
            script._shell = self._shell
            script.come_to("load")
            real_run(self)

        loop.run = run  # type: ignore[method-assign]

    def plant_in_console(self) -> None:
        """Have the console tell of every point."""
        from susurrus.actors.shown import Shown  # noqa: PLC0415 - after `import` faults
        from susurrus.protocol import Hello, HubLine  # noqa: PLC0415

        script, real_send, real_note = self, HubLine.send, Shown.note

        def send(line: Any, message: Any, **how: Any) -> bool:
            if isinstance(message, Hello):
                script.come_to("load")
            return real_send(line, message, **how)

        def note(shown: Any, job: bytes, characters: int, *, ended: bool = False) -> None:
            is_new = characters != shown.characters(job)
            if is_new:
                script.come_to("result")
            real_note(shown, job, characters, ended=ended)
            if is_new:
                script.come_to("shown")

        HubLine.send = send  # type: ignore[assignment, method-assign]
        Shown.note = note  # type: ignore[assignment, method-assign]

    def begin(self, window: int) -> None:
        """Another window is worked on."""
        self._window = window
        self.come_to("begin")

    def goes_on(self, window: int) -> None:
        """Of those that are in work side by side, the actor comes to this one."""
        self._window = window

    def come_to(self, point: str, desk: Any = None, job: Callable[[], bool] | None = None) -> None:
        """Count the point; do what the plan says for it."""
        key = (point, self._window)
        self._counts[key] = self._counts.get(key, 0) + 1
        for number, fault in enumerate(self._faults):
            at = fault.point == point and fault.nth in (0, self._counts[key])
            here = fault.window in (None, self._window)
            mine = fault.prompt in ("", self._prompt)
            if not (at and here and mine):
                continue
            if fault.deed == "slow":
                time.sleep(0.05)
            elif fault.deed == "count":
                with (self._folder / "count").open("a") as file:
                    file.write("1")
            elif self._is_due(number, fault):
                if desk is not None:
                    _flush(desk)
                self._do(fault, job)

    def _do(self, fault: Fault, job: Callable[[], bool] | None) -> None:
        if fault.deed == "hold":
            _wait_until((self._folder / "go").exists)
        elif fault.deed == "follow":
            _wait_until(lambda: counted(self._folder) >= fault.until)
        elif fault.deed == "wait":
            _wait_until(lambda: job is None or not job())  # the I/O thread hears of it
        elif fault.deed == "stuck":
            self._shell.progress._last -= 3600
            threading.Event().wait()
        else:
            _do(fault.deed)

    def _is_due(self, number: int, fault: Fault) -> bool:
        """Whether it was done less often than planned; counts it as done."""
        for life in range(fault.times):
            try:
                os.close(os.open(self._folder / f"{fault.actor}-{number}-{life}", os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                continue
            return True
        return False


def _flush(desk: Any) -> None:
    """Wait until what was told is out of the process: what is queued dies with it."""
    shell = desk._shell
    while not shell._outgoing.empty() or shell._has_unsent:
        time.sleep(0.001)  # the I/O thread is at it
    time.sleep(0.05)  # and libzmq's own


def _wait_until(holds: Callable[[], bool]) -> None:
    while not holds():
        time.sleep(0.001)


def _do(deed: str) -> None:
    if deed == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif deed == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif deed == "hang":
        threading.Event().wait()
    elif deed == "abort":
        os.abort()
    elif deed == "memory":
        raise MemoryError
    else:
        raise RuntimeError("planted")
