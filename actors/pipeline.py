"""A pipeline as its user has it: its life, and what it is used for. What runs behind it is `engine`'s.

    with Pipeline("base") as pipeline:
        for event in pipeline.transcribe("clip.wav"):
            ...

A library's manners: no signal handlers, no logging set-up, no fork, no ZeroMQ context but its own. It works from any
thread, without a main guard, inside asyncio and in daemonic workers, because actors are separate commands.
"""

from __future__ import annotations

import atexit
import errno
import sys
from collections.abc import AsyncIterator, Callable, Generator, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypedDict, Unpack

import zmq

from susurrus.actors import exits
from susurrus.actors.client import Client, PipelineError
from susurrus.actors.engine import STOP_S, Engine, Plan
from susurrus.actors.lanes import checked_workers, threads_for
from susurrus.actors.options import to_message
from susurrus.actors.recovery import CONSOLE
from susurrus.actors.samples import as_file
from susurrus.actors.supervisor import Command
from susurrus.actors.view import JobEvent
from susurrus.actors.watch import Limits
from susurrus.models.directories import checked_options
from susurrus.models.options import DecodingOptions, OptionFields
from susurrus.models.providers import CPU
from susurrus.models.threads import usable_cpus
from susurrus.protocol import Connection, Status, TranscribeOptions

if TYPE_CHECKING:
    from susurrus.actors.bridge import Departure
    from susurrus.actors.samples import AudioSource
    from susurrus.protocol.listen import Listener

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
        workers = checked_workers(workers)
        self._engine = Engine(
            Plan(
                model=model,
                precision=precision,
                workers=workers,
                threads=threads or threads_for(workers, usable_cpus()),
                provider=provider,
                console=console,
                audio_fd=audio_fd,
                child_arguments=tuple(child_arguments),
                python=python,
                limits=limits,
                resident=resident,
                listener=listener,
                on_status=on_status,
            )
        )

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
        if self._engine.thread is not None:
            self.raise_if_ended()
            return self
        try:
            self._engine.start()
        except (zmq.ZMQError, OSError) as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                raise
            raise PipelineError("resources", TOO_MANY_FILES) from error
        atexit.register(self.close)
        return self

    def close(self) -> None:
        """Stop everything and wait until it is gone; open jobs fail with `stopped`. Idempotent."""
        if self._engine.thread is not None:
            self._engine.hub.stop()
            self._engine.thread.join()
            atexit.unregister(self.close)

    def interrupt(self) -> bool:
        """Order the end because the user wants it, without waiting; False if it does not run yet.

        Safe in a signal handler.
        """
        if self._engine.thread is None:
            return False
        self._engine.interrupt()
        return True

    def kill(self) -> None:
        """End at once, by SIGKILL. Safe in a signal handler; does nothing while the children are being started."""
        if self._engine.thread is not None:
            self._engine.kill()

    def wait_until_ready(self, timeout: float | None = None) -> bool:
        """Wait until all models are loaded; False when the time is over first.

        Raises:
            PipelineError: the pipeline ended instead.
        """
        in_time = self._engine.settled.wait(timeout)
        self.raise_if_ended()
        return in_time

    def wait(self) -> None:
        """Wait until the pipeline ends.

        Raises:
            PipelineError: it always does, with the reason.
        """
        if self._engine.thread is not None:
            self._engine.thread.join()
        self.raise_if_ended()

    def raise_if_ended(self) -> None:
        """Tell what ended the pipeline, if something did.

        Raises:
            PipelineError: with the reason.
        """
        if self._engine.has_ended:
            outcome = self._engine.hub.outcome
            raise PipelineError(outcome.code or "stopped", outcome.text or "the pipeline was stopped")

    def console_failure(self) -> int:
        """Exit code of the pipeline's own console, once the pipeline is closed; 0 if all went well."""
        return exits.OK if self._engine.thread is None else self._engine.supervisor.exit_code(CONSOLE) or exits.OK

    @property
    def connection(self) -> Connection:
        """What others need to find it, once it is started."""
        return self._engine.connection

    @property
    def connection_file(self) -> Path:
        """Where that is written."""
        return self._engine.connection_file

    def pids(self) -> dict[str, int]:
        """Process ids of the actors that run, by name."""
        return self._engine.supervisor.pids()

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
        if self._engine.thread is None:
            raise PipelineError("not_started", "the pipeline was not started: use `with Pipeline(…)`, or start()")
        if not self._engine.hub.is_running:
            self._engine.thread.join()
        self.raise_if_ended()
        try:
            return Client(self.connection)
        except PipelineError:
            self._engine.thread.join(STOP_S)
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
        return job_options(self._engine.directory, options)

    # --- inside: the caller's thread ---

    def _events(
        self, audio: AudioSource, wanted: DecodingOptions, departure: Departure | None = None
    ) -> Generator[JobEvent, None, None]:
        """As `transcribe`; a departure ends the waiting for the next event."""
        with self.client() as client:
            options = self.check(wanted)
            if departure is not None:
                departure.wake_by(client.wake)
            with as_file(audio, self._engine.folder.path, self._engine.config.audio.sample_rate) as (source, name):
                job = client.submit(source, name=name, options=options)
                yield from client.follow(job, is_left=departure.is_set if departure else lambda: False)


def job_options(directory: Path, options: DecodingOptions) -> TranscribeOptions:
    """Options of a job for the model in `directory`, refused in words before any work is done.

    Raises:
        OptionError: an option has a value that does not exist for this model.
    """
    return to_message(checked_options(directory, options))
