"""What runs when a pipeline does: runtime folder, hub, processes; and an end that leaves nothing of it behind.

The thread that starts it makes everything; the hub's thread serves to the end and then takes everything down. One more
hashes the model's files meanwhile, and each child has one that waits for its end.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import zmq

from susurrus.actors import exits
from susurrus.actors.hub import Hub
from susurrus.actors.lanes import FRONTEND, KINDS, station_name
from susurrus.actors.recovery import CONSOLE
from susurrus.actors.supervisor import KILL, Command, Supervisor, describe_exit
from susurrus.actors.watch import Limits
from susurrus.models.config import ModelConfig
from susurrus.models.directories import repair, resolve_precision
from susurrus.models.errors import ModelError
from susurrus.models.provision import ensure_model
from susurrus.models.provisioning.manifest import verify
from susurrus.protocol import ActorSettings, Connection, RuntimeFolder, Status, Submit, Transport

if TYPE_CHECKING:
    from susurrus.actors.journal import Journal
    from susurrus.protocol.listen import Listener

STOP_S = 0.75  # a child that was told to stop gets SIGTERM after this, and SIGKILL after as long again


@dataclass(frozen=True, slots=True)
class Plan:
    """What is started. `Pipeline` tells what each setting means; here none is left open."""

    model: str | Path
    precision: str | None
    workers: int
    threads: int
    provider: str
    console: Command | None
    audio_fd: int | None
    child_arguments: tuple[str, ...]
    python: str
    limits: Limits | None
    resident: bool
    listener: Listener | None
    on_status: Callable[[Status], None] | None


class Engine:
    """Frontend, encoders and decoders as processes, and the hub in a thread of this one. It lives once."""

    def __init__(self, plan: Plan) -> None:
        """Nothing runs yet."""
        self.settled = threading.Event()
        """Ready, or ended."""
        self.has_ended = False
        self.thread: threading.Thread | None = None
        """The hub's; None until there is something to stop."""
        self._plan = plan
        self._console_settled = threading.Event()  # it has ended, or the user no longer wants to wait for it
        self._is_hasty = False  # the user does not

    # --- the thread that starts it ---

    def start(self) -> None:
        """Start everything and return at once.

        Raises:
            ModelError: the model is missing and cannot be had.
            OSError: the interpreter of the children cannot be started, or the system has no descriptors left.
            WireError: there is no private place for the sockets.
            ZMQError: the system has no descriptors left.
        """
        plan = self._plan
        self.directory = ensure_model(
            plan.model, precisions=(plan.precision,) if plan.precision else None, verify=False
        )
        self._precision = resolve_precision(self.directory, plan.precision)
        self.config = ModelConfig.from_directory(self.directory)
        with contextlib.ExitStack() as resources:
            self._make_hub(resources)
            for command in self._commands():
                self.supervisor.start(command)
            # From here on a signal handler's `interrupt` finds something to stop, and need not raise.
            self.thread = threading.Thread(target=self._serve, name="susurrus-hub", daemon=True)
            self._resources = resources.pop_all()
        self.thread.start()
        threading.Thread(target=self._verify_model, name="susurrus-verify", daemon=True).start()

    def _make_hub(self, resources: contextlib.ExitStack) -> None:
        """The folder, the hub and the supervisor; what they hold is let go of with the resources."""
        plan = self._plan
        self.folder = resources.enter_context(RuntimeFolder.create())
        context: zmq.Context[Any] = zmq.Context()
        resources.callback(context.destroy, linger=0)  # `term` waits for sockets that a failing start left open
        transport = Transport.choose(self.folder.path)
        self.hub = Hub(
            context,
            transport,
            self.settled.set,
            lanes=plan.workers,
            waits_for_console=plan.console is not None,
            limits=plan.limits,
            open_journal=self._open_journal,
        )
        resources.callback(self.hub.close)
        if plan.listener is not None:
            self.hub.door = plan.listener.open(context, self.hub.port, self.hub.publisher)
        self.connection = self._describe()
        self.connection_file = self.connection.write()
        self.supervisor = Supervisor(self.connection_file, self._on_exit, python=plan.python)
        resources.callback(self.supervisor.close)
        self.hub.use(self.supervisor)
        self.hub.on_status = plan.on_status

    def _describe(self) -> Connection:
        plan = self._plan
        return Connection(
            pid=os.getpid(),
            instance=self.hub.identity.instance,
            hub=self.hub.port.endpoint,
            events=self.hub.publisher.endpoint,
            transport=self.hub.transport,
            started=time.time(),
            resident=plan.resident,
            listens=self.hub.door.endpoint if self.hub.door is not None else "",
            settings=ActorSettings(str(self.directory), self._precision, plan.threads, plan.provider),
        )

    def _commands(self) -> Iterator[Command]:
        plan = self._plan
        arguments, pass_fds = plan.child_arguments, tuple[int, ...]()
        if plan.audio_fd is not None:
            arguments, pass_fds = (*arguments, "--audio-fd", str(plan.audio_fd)), (plan.audio_fd,)
        yield Command(FRONTEND, arguments, pass_fds=pass_fds)
        for lane in range(1, plan.workers + 1):
            for kind in KINDS:
                yield Command(station_name(kind, lane), plan.child_arguments, module=kind)
        if plan.console is not None:
            shown = ("--shown", str(self.folder.path / "shown"))
            yield replace(plan.console, arguments=(*plan.console.arguments, *shown))

    # --- any thread ---

    def interrupt(self) -> None:
        """Order the end because the user wants it, without waiting. Safe in a signal handler."""
        self._is_hasty = True
        self.hub.stop("interrupted", "interrupted")
        self._console_settled.set()

    def kill(self) -> None:
        """End at once, by SIGKILL. Safe in a signal handler."""
        self.hub.stop("killed", "the pipeline was killed")
        self.supervisor.signal(self.supervisor.running(), KILL)

    # --- inside: other threads ---

    def _open_journal(self, submit: Submit) -> Journal:
        """Runs on the hub's thread."""
        from susurrus.actors.journal import Journal, JournalKey  # noqa: PLC0415 - for those who resume

        key = JournalKey.of(submit.source, self.directory, self._precision, submit.options)
        return Journal.open(Path(submit.journal), key)

    def _verify_model(self) -> None:
        """Runs beside the start-up of the actors: no job begins before every model file has its hash."""
        try:
            damages = ", ".join(map(str, verify(self.directory, (self._precision,))))
        except (ModelError, OSError) as error:
            damages = str(error)
        if damages:
            self.hub.stop("model", f"{self.directory}: {damages}; {repair(self.directory, self.config.name)}")
        else:
            self.hub.allow_jobs()

    def _on_exit(self, name: str, code: int) -> None:
        """Runs on the waiting thread of a child that has just ended; in an orderly end the hub has stopped already.

        A console that cannot write its output would not be able to the next time; any other loss is made good.
        """
        if name == CONSOLE:
            self._console_settled.set()
        if name == CONSOLE and code == exits.OUTPUT_CLOSED:
            self.hub.stop("output_closed", "nobody reads the output any more")
        elif name == CONSOLE and code == exits.PIPELINE:
            self.hub.stop("actor_lost", f"the {name} {describe_exit(code)}; run again with -v to see its log")
        else:
            self.hub.actor_ended(name, describe_exit(code))

    def _serve(self) -> None:
        """The hub's thread: serve to the end, then take everything down."""
        try:
            self.hub.run()
        finally:
            self._stop_children()
            self._resources.close()
            self.has_ended = True
            self.settled.set()

    def _stop_children(self) -> None:
        """All have been told to stop. In an orderly end the console shows what it has, however slow its reader.

        One that never came so far as to subscribe has nothing to show, and would wait for the last event for ever.
        """
        self._console_settled.clear()  # it may be that of one that was lost and replaced
        if self._is_hasty:
            self._console_settled.set()
        children = self.supervisor.running()
        subscribed = self.supervisor.pids().get(CONSOLE) in self.hub.console_pids
        patient = [name for name in children if name == CONSOLE and subscribed and not self.hub.outcome.code]
        self._end_for_certain([name for name in children if name not in patient])
        if patient:
            self._console_settled.wait()
            self._end_for_certain(patient)

    def _end_for_certain(self, names: list[str]) -> None:
        for signum in (signal.SIGTERM, KILL):
            names = self.supervisor.reap(names, time.monotonic() + STOP_S)
            self.supervisor.signal(names, signum)
