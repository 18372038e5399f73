"""A pipeline that stays, and the command line as its client: `run.py --serve`, `run.py --connect clip.wav`."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Unpack

from susurrus.actors.batch import Batch
from susurrus.actors.client import Client, JobWishes
from susurrus.actors.console import ConsoleOptions
from susurrus.actors.pipeline import Pipeline
from susurrus.actors.render import Renderer, make_renderer
from susurrus.actors.view import JobEvent, JobView, TranscriptView
from susurrus.models.inputs import Input
from susurrus.protocol import Connection, ConnectionFileError, TranscribeOptions, newest_live

NEWEST = "newest"


def add_pipeline_options(parser: argparse.ArgumentParser) -> None:
    """Add the options about pipelines that run elsewhere, and about a run that is not to be lost."""
    add = parser.add_argument_group("pipelines that stay").add_argument
    help_text = "start a pipeline that stays: other runs use it with --connect, and need not load the model"
    add("--serve", action="store_true", help=help_text)
    help_text = "let clients on other machines in, whose keys are known; see docs/security.md"
    add("--listen", metavar="tcp://HOST:PORT", help=help_text)
    help_text = "use the pipeline of a --serve, if one is there; otherwise start one as usual"
    add("--connect", action="store_true", help=help_text)
    help_text = "connection file of the one to use, instead of the newest; it has to be there"
    add("--connection", metavar="FILE", help=help_text)
    help_text = "show the text of a running pipeline: the newest one, or that of a connection file"
    add("--attach", nargs="?", const=NEWEST, metavar="CONNECTION", help=help_text)
    help_text = "tell how a running pipeline is, and what it has done: the newest one, or that of a connection file"
    add("--status", nargs="?", const=NEWEST, metavar="CONNECTION", help=help_text)
    help_text = "serve the numbers of --status to Prometheus, at this port of the loopback; 0 picks one"
    add("--metrics", metavar="PORT", help=help_text)
    add = parser.add_argument_group("long recordings").add_argument
    help_text = "go on where an interrupted run of the same recording broke off, and keep what that needs"
    add("--resume", action="store_true", help=help_text)
    help_text = "give up a recording that takes longer than so many seconds"
    add("--deadline", type=_seconds, metavar="S", help=help_text)


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds < math.inf:
        raise argparse.ArgumentTypeError("give a number of seconds above 0")
    return seconds


def find_pipeline(name: str) -> Connection:
    """The running pipeline that a user means.

    Raises:
        ConnectionFileError: it does not run, or the file is none of ours.
    """
    connection = newest_live() if name == NEWEST else Connection.read(Path(name))
    if connection is None or not connection.is_live:
        raise ConnectionFileError("no pipeline is running: start one with --serve, or with a recording")
    return connection


def find_service(arguments: argparse.Namespace) -> Connection | None:
    """The pipeline that `--connect` asks for; None when none was asked for, or none runs.

    Raises:
        ConnectionFileError: the user named one that does not run.
    """
    if arguments.connection is not None:
        return find_pipeline(arguments.connection)
    return newest_live(resident=True) if arguments.connect else None


def serve(pipeline: Pipeline, say: Callable[[str], object]) -> None:
    """Keep a pipeline until it ends: by a signal, or because it cannot go on.

    Args:
        pipeline: not started yet.
        say: tells the user a line.

    Raises:
        ModelError: the model is missing and cannot be had.
        PipelineError: it has ended; the reason tells whether somebody wanted that.
    """
    with pipeline:
        pipeline.wait_until_ready()
        say(f"ready: run.py --connect FILE uses it, Ctrl-C ends it; its connection: {pipeline.connection_file}")
        pipeline.wait()


class Displayed:
    """A client's jobs, shown on this process's own streams as they go on; what `Batch` runs on.

    One thread. Others' jobs are not seen: a client is told of its own.
    """

    def __init__(self, client: Client, renderer: Renderer) -> None:
        self._client = client
        self._renderer = renderer
        self._view = TranscriptView()
        self._open: set[bytes] = set()

    def submit(self, source: str, **wishes: Unpack[JobWishes]) -> bytes:
        """Ask for a transcription; return the job's id."""
        job = self._client.submit(source, **wishes)
        self._view.jobs[job] = JobView(job, name=wishes.get("name", ""))
        self._open.add(job)
        return job

    def receive(self, timeout: float | None = None) -> JobEvent | None:
        """The next event of our jobs, after it was shown."""
        event = self._client.receive(self._renderer.timeout() if timeout is None else timeout)
        if event is None:
            self._renderer.on_change(self._view, [])
            return None
        view = self._view.jobs[event.job]
        view.update(event)
        if view.end is not None:
            self._open.discard(event.job)
        self._renderer.on_change(self._view, [event])
        self._view.forget_ended(in_order=True)
        return event

    def cancel(self) -> None:
        """Give up what is not finished."""
        for job in self._open:
            self._client.cancel(job)


def use(
    connection: Connection, options: TranscribeOptions, inputs: Sequence[Input], batch: Batch, shown: ConsoleOptions
) -> int:
    """Have inputs transcribed by a pipeline that runs elsewhere; return the exit code.

    What is not finished when this is left, by an exception or a signal, is cancelled.

    Raises:
        OutputClosedError: nobody reads our output any more (of `terminal`).
        PipelineError: the pipeline is gone, or does not take a job.
        SusurrusError: the output cannot be written.
    """
    renderer = make_renderer(
        sys.stdout,
        sys.stderr,
        as_json=shown.as_json,
        quiet=shown.quiet,
        progress=shown.progress,
        headings=shown.headings,
    )
    with Client(connection) as client:
        displayed = Displayed(client, renderer)
        try:
            return batch.run(displayed, options, inputs)
        finally:
            displayed.cancel()
            renderer.close()
