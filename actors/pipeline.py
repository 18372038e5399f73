"""A pipeline and its life: runtime folder, hub, processes, and an end that leaves nothing behind.

    with Pipeline("base") as pipeline:
        for event in pipeline.transcribe("clip.wav"):
            ...

A library's manners: no signal handlers, no logging set-up, no fork, no ZeroMQ context but its own. It works from any
thread, without a main guard, inside asyncio and in daemonic workers, because actors are separate commands.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import os
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypedDict, Unpack

import zmq

from susurrus.actors import exits
from susurrus.actors.client import Client, PipelineError
from susurrus.actors.hub import Hub
from susurrus.actors.lanes import FRONTEND, KINDS, checked_workers, station_name, threads_for
from susurrus.actors.options import to_message
from susurrus.actors.recovery import CONSOLE
from susurrus.actors.samples import as_file
from susurrus.actors.supervisor import KILL, Command, Supervisor, describe_exit
from susurrus.actors.view import JobEvent
from susurrus.actors.watch import Limits
from susurrus.models.config import ModelConfig
from susurrus.models.directories import checked_options, repair, resolve_precision
from susurrus.models.errors import ModelError
from susurrus.models.options import DecodingOptions, OptionFields
from susurrus.models.providers import CPU
from susurrus.models.provision import ensure_model
from susurrus.models.provisioning.manifest import verify
from susurrus.models.threads import usable_cpus
from susurrus.protocol import ActorSettings, Connection, RuntimeFolder, Status, Submit, TranscribeOptions, Transport

if TYPE_CHECKING:
    from susurrus.actors.bridge import Departure
    from susurrus.actors.journal import Journal
    from susurrus.actors.samples import AudioSource
    from susurrus.protocol.listen import Listener

STOP_S = 0.75  # a child that was told to stop gets SIGTERM after this, and SIGKILL after as long again

TOO_MANY_FILES = "too many open files: raise the limit (ulimit -n), a pipeline takes some 50"


class PipelineSettings(TypedDict, total=False):
    """What a pipeline is started with, beside its model; see `Pipeline`."""

    precision: str | None
    workers: int
    threads: int
    provider: str
    child_arguments: Sequence[str]
    python: str
    limits: Limits | None
    listener: Listener | None
    on_status: Callable[[Status], None] | None


class Pipeline:
    """Frontend, encoders and decoders as processes, and the hub in a thread of this one.

    Thread-safe: any thread may call any method; each call to `transcribe` has its own line to the hub.
    """

    def __init__(
        self,
        model: str | Path = "base",
        *,
        precision: str | None = None,
        workers: int = 1,
        threads: int = 0,
        provider: str = CPU,
        console: Command | None = None,
        audio_fd: int | None = None,
        child_arguments: Sequence[str] = (),
        python: str = sys.executable,
        limits: Limits | None = None,
        resident: bool = False,
        listener: Listener | None = None,
        on_status: Callable[[Status], None] | None = None,
    ) -> None:
        """Keep the settings; `start`, or entering the context, starts the processes.

        Args:
            model: a known name, provisioned if need be, or a model directory.
            precision: `int8` or `float32`; None takes `int8`, and of an Optimum export what there is.
            workers: how many encoders there are, and decoders; 0 takes what suits the CPUs this process may use.
            threads: of each encoder's and decoder's sessions; 0 shares these CPUs among the workers.
            provider: execution provider of the sessions, a name of `susurrus.models.providers`.
            console: a console to run as a child of this pipeline.
            audio_fd: descriptor that the source `-` stands for; the frontend inherits it.
            child_arguments: log options for the children.
            python: their interpreter; a frozen host names one.
            limits: what is put up with before an actor is killed and started again.
            resident: it stays for others: `run.py --connect` finds it.
            listener: where clients on other machines come in (`susurrus.protocol.listen`); None lets none in.
            on_status: told about once a second how the pipeline is, on the hub's thread: it must not wait for anything.

        Raises:
            OptionError: there cannot be so many workers.
        """
        self._workers = checked_workers(workers)
        self._is_resident = resident
        self._listener = listener
        self._on_status = on_status
        self._model = model
        self._wanted_precision = precision
        self._threads = threads or threads_for(self._workers, usable_cpus())
        self._provider = provider
        self._console = console
        self._audio_fd = audio_fd
        self._child_arguments = tuple(child_arguments)
        self._python = python
        self._limits = limits
        self._settled = threading.Event()  # ready, or ended
        self._ended = False
        self._console_settled = threading.Event()  # it has ended, or the user no longer wants to wait for it
        self._is_hasty = False  # the user does not
        self._thread: threading.Thread | None = None

    # --- life ---

    def start(self) -> Self:
        """Start everything and return at once: jobs may be submitted while the models load.

        Does nothing when it was started already; a pipeline lives once.

        Raises:
            ModelError: the model is missing and cannot be had.
            OSError: the interpreter of the children cannot be started.
            PipelineError: this pipeline has ended; make another. Or the system has no descriptors left.
            WireError: there is no private place for the sockets.
        """
        if self._thread is not None:
            self.raise_if_ended()
            return self
        try:
            self._start()
        except (zmq.ZMQError, OSError) as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                raise
            raise PipelineError("resources", TOO_MANY_FILES) from error
        return self

    def _start(self) -> None:
        wanted = self._wanted_precision
        self._directory = ensure_model(self._model, precisions=(wanted,) if wanted else None, verify=False)
        self._precision = resolve_precision(self._directory, wanted)
        self._config = ModelConfig.from_directory(self._directory)
        with contextlib.ExitStack() as resources:
            self._folder = resources.enter_context(RuntimeFolder.create())
            context: zmq.Context[Any] = zmq.Context()
            resources.callback(context.destroy, linger=0)  # `term` waits for sockets that a failing start left open
            transport = Transport.choose(self._folder.path)
            self._hub = Hub(
                context,
                transport,
                self._settled.set,
                lanes=self._workers,
                waits_for_console=self._console is not None,
                limits=self._limits,
                open_journal=self._open_journal,
            )
            resources.callback(self._hub.close)
            if self._listener is not None:
                self._hub.door = self._listener.open(context, self._hub.port, self._hub.publisher)
            self.connection = self._describe()
            self.connection_file = self.connection.write()
            self._supervisor = Supervisor(self.connection_file, self._on_exit, python=self._python)
            resources.callback(self._supervisor.close)
            self._hub.use(self._supervisor)
            self._hub.on_status = self._on_status
            for command in self._commands():
                self._supervisor.start(command)
            # From here on a signal handler's `interrupt` finds something to stop, and need not raise.
            self._thread = threading.Thread(target=self._serve, name="susurrus-hub", daemon=True)
            self._resources = resources.pop_all()
        self._thread.start()
        threading.Thread(target=self._verify_model, name="susurrus-verify", daemon=True).start()
        atexit.register(self.close)

    def close(self) -> None:
        """Stop everything and wait until it is gone; open jobs fail with `stopped`. Idempotent."""
        if self._thread is not None:
            self._hub.stop()
            self._thread.join()
            atexit.unregister(self.close)

    def interrupt(self) -> bool:
        """Order the end because the user wants it, without waiting; False if it does not run yet.

        Safe in a signal handler.
        """
        if self._thread is None:
            return False
        self._is_hasty = True
        self._hub.stop("interrupted", "interrupted")
        self._console_settled.set()
        return True

    def kill(self) -> None:
        """End at once, by SIGKILL. Safe in a signal handler; does nothing while the children are being started."""
        if self._thread is not None:
            self._hub.stop("killed", "the pipeline was killed")
            self._supervisor.signal(self._supervisor.running(), KILL)

    def wait_until_ready(self, timeout: float | None = None) -> bool:
        """Wait until all models are loaded; False when the time is over first.

        Raises:
            PipelineError: the pipeline ended instead.
        """
        in_time = self._settled.wait(timeout)
        self.raise_if_ended()
        return in_time

    def wait(self) -> None:
        """Wait until the pipeline ends.

        Raises:
            PipelineError: it always does, with the reason.
        """
        if self._thread is not None:
            self._thread.join()
        self.raise_if_ended()

    def raise_if_ended(self) -> None:
        """Tell what ended the pipeline, if something did.

        Raises:
            PipelineError: with the reason.
        """
        if self._ended:
            outcome = self._hub.outcome
            raise PipelineError(outcome.code or "stopped", outcome.text or "the pipeline was stopped")

    def console_failure(self) -> int:
        """Exit code of the pipeline's own console, once the pipeline is closed; 0 if all went well."""
        return exits.OK if self._thread is None else self._supervisor.exit_code(CONSOLE) or exits.OK

    def pids(self) -> dict[str, int]:
        """Process ids of the actors that run, by name."""
        return self._supervisor.pids()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- use ---

    def client(self) -> Client:
        """A line to this pipeline for the calling thread.

        Raises:
            PipelineError: the pipeline has ended, or was not started.
        """
        if self._thread is None:
            raise PipelineError("not_started", "the pipeline was not started: use `with Pipeline(…)`, or start()")
        if not self._hub.is_running:
            self._thread.join()
        self.raise_if_ended()
        try:
            return Client(self.connection)
        except PipelineError:
            self._thread.join(STOP_S)
            self.raise_if_ended()  # it ended over our head, and knows better why
            raise

    def transcribe(self, audio: AudioSource, **options: Unpack[OptionFields]) -> Generator[JobEvent, None, None]:
        """Transcribe one recording; yield its events up to Done, Failed or Cancelled.

        Leaving the iteration early cancels the job.

        Args:
            audio: a path, `-`, or float32 mono samples (n,) at the model's sample rate, in [-1, 1].
            options: fields of `DecodingOptions`, such as `language="en"` or `word_timestamps=True`.

        Raises:
            OptionError: an option has a value that does not exist for this model, or the array is no such samples.
            OutputError: the array cannot be handed over, because there is no room for it.
            PipelineError: the pipeline ended first, or does not take the job.
        """
        return self._events(audio, DecodingOptions(**options))

    def stream(self, audio: AudioSource, **options: Unpack[OptionFields]) -> AsyncIterator[JobEvent]:
        """`transcribe` for asyncio: `async for event in pipeline.stream("clip.wav")`."""
        from susurrus.actors.bridge import iterate_in_thread  # noqa: PLC0415 - asyncio is for those who have it

        wanted = DecodingOptions(**options)
        return iterate_in_thread(lambda departure: self._events(audio, wanted, departure))

    def check(self, options: DecodingOptions) -> TranscribeOptions:
        """Options for this model, refused in words before any work is done.

        Raises:
            OptionError: an option has a value that does not exist for this model.
        """
        return job_options(self._directory, options)

    # --- inside: the caller's thread ---

    def _events(
        self, audio: AudioSource, wanted: DecodingOptions, departure: Departure | None = None
    ) -> Generator[JobEvent, None, None]:
        """As `transcribe`; a departure ends the waiting for the next event."""
        with self.client() as client:
            options = self.check(wanted)
            if departure is not None:
                departure.wake_by(client.wake)
            with as_file(audio, self._folder.path, self._config.audio.sample_rate) as (source, name):
                job = client.submit(source, name=name, options=options)
                yield from client.follow(job, is_left=departure.is_set if departure else lambda: False)

    def _describe(self) -> Connection:
        return Connection(
            pid=os.getpid(),
            instance=self._hub.identity.instance,
            hub=self._hub.port.endpoint,
            events=self._hub.publisher.endpoint,
            transport=self._hub.transport,
            started=time.time(),
            resident=self._is_resident,
            listens=self._hub.door.endpoint if self._hub.door is not None else "",
            settings=ActorSettings(str(self._directory), self._precision, self._threads, self._provider),
        )

    def _commands(self) -> Iterator[Command]:
        arguments, pass_fds = self._child_arguments, tuple[int, ...]()
        if self._audio_fd is not None:
            arguments, pass_fds = (*arguments, "--audio-fd", str(self._audio_fd)), (self._audio_fd,)
        yield Command(FRONTEND, arguments, pass_fds=pass_fds)
        for lane in range(1, self._workers + 1):
            for kind in KINDS:
                yield Command(station_name(kind, lane), self._child_arguments, module=kind)
        if self._console is not None:
            shown = ("--shown", str(self._folder.path / "shown"))
            yield replace(self._console, arguments=(*self._console.arguments, *shown))

    # --- inside: other threads ---

    def _open_journal(self, submit: Submit) -> Journal:
        """Runs on the hub's thread."""
        from susurrus.actors.journal import Journal, JournalKey  # noqa: PLC0415 - for those who resume

        key = JournalKey.of(submit.source, self._directory, self._precision, submit.options)
        return Journal.open(Path(submit.journal), key)

    def _verify_model(self) -> None:
        """Runs beside the start-up of the actors: no job begins before every model file has its hash."""
        try:
            damages = ", ".join(map(str, verify(self._directory, (self._precision,))))
        except (ModelError, OSError) as error:
            damages = str(error)
        if damages:
            self._hub.stop("model", f"{self._directory}: {damages}; {repair(self._directory, self._config.name)}")
        else:
            self._hub.allow_jobs()

    def _on_exit(self, name: str, code: int) -> None:
        """Runs on the waiting thread of a child that has just ended; in an orderly end the hub has stopped already.

        A console that cannot write its output would not be able to the next time; any other loss is made good.
        """
        if name == CONSOLE:
            self._console_settled.set()
        if name == CONSOLE and code == exits.OUTPUT_CLOSED:
            self._hub.stop("output_closed", "nobody reads the output any more")
        elif name == CONSOLE and code == exits.PIPELINE:
            self._hub.stop("actor_lost", f"the {name} {describe_exit(code)}; run again with -v to see its log")
        else:
            self._hub.actor_ended(name, describe_exit(code))

    def _serve(self) -> None:
        """The hub's thread: serve to the end, then take everything down."""
        try:
            self._hub.run()
        finally:
            self._stop_children()
            self._resources.close()
            self._ended = True
            self._settled.set()

    def _stop_children(self) -> None:
        """All have been told to stop. In an orderly end the console shows what it has, however slow its reader.

        One that never came so far as to subscribe has nothing to show, and would wait for the last event for ever.
        """
        self._console_settled.clear()  # it may be that of one that was lost and replaced
        if self._is_hasty:
            self._console_settled.set()
        children = self._supervisor.running()
        subscribed = self._supervisor.pids().get(CONSOLE) in self._hub.console_pids
        patient = [name for name in children if name == CONSOLE and subscribed and not self._hub.outcome.code]
        self._end_for_certain([name for name in children if name not in patient])
        if patient:
            self._console_settled.wait()
            self._end_for_certain(patient)

    def _end_for_certain(self, names: list[str]) -> None:
        for signum in (signal.SIGTERM, KILL):
            names = self._supervisor.reap(names, time.monotonic() + STOP_S)
            self._supervisor.signal(names, signum)


def job_options(directory: Path, options: DecodingOptions) -> TranscribeOptions:
    """Options of a job for the model in `directory`, refused in words before any work is done.

    Raises:
        OptionError: an option has a value that does not exist for this model.
    """
    return to_message(checked_options(directory, options))
