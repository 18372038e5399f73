"""`--trace DIR`: every process writes what it sees and sends; at the end that is put together.

    DIR/trace.json              all processes on one clock, for chrome://tracing or ui.perfetto.dev
    DIR/events/*.jsonl          the same as each process wrote it
    DIR/<recording>/            summary.txt, queues.tsv
    DIR/<recording>/window-000/ mel.png, mel.npz, hidden_states.npz, tokens.txt, tokens.tsv, ...

A pipeline that was killed leaves its processes' own files; `python -m susurrus.actors.trace DIR` puts them together.
What an actor writes is in `traced.py`, the putting together in `trace_report.py`: both are imported by those alone who
want a trace.
"""

from __future__ import annotations

import argparse
import functools
import os
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from susurrus.models.errors import OptionError, OutputError, SusurrusError

if TYPE_CHECKING:
    from susurrus.actors.batch import Jobs
    from susurrus.actors.render import Renderer
    from susurrus.actors.shell import Shell
    from susurrus.actors.trace_journal import Journal

HELP = (
    "write into a new folder what every process sees and does: mel as picture, token tables, times, a summary; "
    "it holds the audio's features and the text, and is readable by you alone"
)


def add_trace_option(parser: argparse.ArgumentParser) -> None:
    """Add `--trace`."""
    parser.add_argument("--trace", type=Path, metavar="DIR", help=HELP)


def trace_arguments(arguments: argparse.Namespace) -> tuple[str, ...]:
    """The same option again, for a child's command line."""
    return () if arguments.trace is None else ("--trace", str(arguments.trace.absolute()))


def shell_type(folder: Path | None) -> Callable[..., Shell]:
    """What makes the shell of an actor that writes its trace there, or none."""
    if folder is None:
        from susurrus.actors.shell import Shell  # noqa: PLC0415 - the command line is parsed without it

        return Shell
    from susurrus.actors.traced import TracedShell  # noqa: PLC0415 - for those who want it

    return functools.partial(TracedShell, folder=folder)


def watched(renderer: Renderer, folder: Path | None) -> Renderer:
    """A console's renderer, with a look at what it is shown; itself when there is no trace."""
    if folder is None:
        return renderer
    from susurrus.actors.trace_watch import TracedRenderer  # noqa: PLC0415 - for those who want it

    return TracedRenderer(renderer, folder)


# --- the process that owns the pipeline -------------------------------------------------------------------------


class Tracing:
    """The trace of a run, as its owner sees it."""

    def __init__(self, journal: Journal | None = None) -> None:
        self._journal = journal

    def watch(self, jobs: Jobs) -> Jobs:
        """The client, with a look at what it asks for and gets; itself when there is no trace."""
        if self._journal is None:
            return jobs
        from susurrus.actors.trace_watch import TracedJobs  # noqa: PLC0415 - for those who want it

        return TracedJobs(jobs, self._journal)


@contextmanager
def tracing(folder: Path | None) -> Generator[Tracing, None, None]:
    """Prepare the folder, and put the trace together when the pipeline within has ended.

    Raises:
        OptionError: there is something in the folder.
        OutputError: nothing can be written there.
    """
    if folder is None:
        yield Tracing()
        return
    prepare(folder)
    from susurrus.actors.trace_journal import Journal  # noqa: PLC0415 - for those who want it
    from susurrus.actors.trace_report import put_together  # noqa: PLC0415

    journal = Journal(folder, "run", main="client")
    try:
        yield Tracing(journal)
    except BaseException:
        journal.close()
        with suppress(OutputError):  # what ended the run says more
            put_together(folder)
        raise
    journal.close()
    put_together(folder)


def prepare(folder: Path) -> None:
    """Make the folder, for the user alone.

    Raises:
        OptionError: there is something in it.
        OutputError: it cannot be made.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise OptionError(f"--trace {folder}: there is something in this folder; name a new one")
        folder.chmod(0o700)
    except OSError as error:
        raise OutputError(f"--trace {folder}: cannot be written: {error.strerror}") from error


def main(arguments: list[str] | None = None) -> int:
    """Put together what a pipeline that was killed has left. Returns 0, or 6 when there is nothing to be had."""
    from susurrus.actors import exits  # noqa: PLC0415
    from susurrus.actors.trace_report import put_together  # noqa: PLC0415

    parser = argparse.ArgumentParser(
        prog="python -m susurrus.actors.trace",
        description="Put together the trace of a pipeline that was killed: run.py --trace does it at the end.",
    )
    parser.add_argument("folder", type=Path, metavar="DIR", help="what was given to --trace")
    folder: Path = parser.parse_args(arguments).folder
    try:
        made = put_together(folder)
    except SusurrusError as error:
        sys.stderr.write(f"error: {error}\n")
        return exits.OUTPUT
    sys.stdout.writelines(f"{os.fspath(path)}\n" for path in made)
    return exits.OK


if __name__ == "__main__":
    sys.exit(main())
