"""Transcribe speech on this machine: `python run.py --wav clip.wav`.

Parses the command line, starts a pipeline with a console, turns signals and failures into exit codes. Nothing else.
"""

from __future__ import annotations

import os
import signal
import sys

# Until the real handlers stand: Ctrl-C during the imports prints no traceback. The installed command imports this file.
if __name__ == "__main__" or os.path.basename(sys.argv[0]) in ("susurrus", "susurrus.exe"):  # noqa: PTH119
    signal.signal(signal.SIGINT, lambda *_: os._exit(130))

import argparse
from collections import deque
from pathlib import Path
from types import FrameType

try:
    from susurrus.actors import exits
    from susurrus.actors.client import PipelineError
    from susurrus.actors.console import add_console_options, console_options, follow
    from susurrus.actors.logs import add_log_options, configure_logs, log_arguments
    from susurrus.actors.pipeline import Pipeline, job_options
    from susurrus.actors.supervisor import Command
    from susurrus.actors.version import VERSION
    from susurrus.models.errors import ModelError, OptionError, SusurrusError
    from susurrus.models.provision import ensure_model, terminal_progress
    from susurrus.models.provisioning.manifest import PRECISIONS
    from susurrus.protocol import (
        Connection,
        Done,
        Failed,
        TerminalEvent,
        TranscribeOptions,
        WireError,
        newest_live,
    )
except ModuleNotFoundError as missing:
    sys.stderr.write(f"error: {missing.name} is not installed; in the checkout run: python -m pip install -e .\n")
    sys.exit(2)

EXIT_BY_SIGNAL = {"SIGINT": exits.INTERRUPTED, "SIGTERM": exits.TERMINATED, "SIGHUP": exits.HUNG_UP}
EXIT_BY_REASON = {"model": exits.MODEL, "output_closed": exits.OUTPUT_CLOSED}
EXIT_BY_WEIGHT = (exits.OK, exits.DAMAGED, exits.INPUT, exits.PIPELINE)
NEWEST = "newest"
STDIN = "-"
SUBMITTED_AHEAD = 16  # jobs: the frontend reads ahead, and the hub's queue is for everybody


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    parser = _parser()
    arguments = parser.parse_args(argv)
    if not arguments.wav and arguments.attach is None:
        parser.error("nothing to do: name an audio file with --wav, or follow a running pipeline with --attach")
    configure_logs(arguments, "hub")
    try:
        return _transcribe(arguments) if arguments.wav else _attach(arguments)
    except SusurrusError as error:
        code = exits.MODEL if isinstance(error, ModelError) else exits.INPUT
        return _complain(str(error), code)
    except WireError as error:
        return _complain(str(error), exits.PIPELINE)
    except KeyboardInterrupt:
        return _complain("interrupted", exits.INTERRUPTED)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="run.py",
        description="Whisper speech-to-text on this machine, offline, with text that grows token by token. "
        "The text goes to stdout, everything else to stderr.",
        epilog="Exit codes: 0 done; 2 wrong option or unreadable input; 3 model missing or damaged; 4 pipeline lost; "
        "5 an input broke off; 129, 130, 143 ended by SIGHUP, Ctrl-C, SIGTERM; 141 nobody reads the output. "
        "Models: python -m susurrus.models.provision --help.",
    )
    add = parser.add_argument
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--wav",
        action="append",
        default=[],
        metavar="FILE",
        help="audio to transcribe: WAV, FLAC, OGG, MP3, M4A, MP4, WebM, at any rate; `-` reads stdin; repeat for more",
    )
    what.add_argument(
        "--attach",
        nargs="?",
        const=NEWEST,
        metavar="CONNECTION",
        help="show the text of a running pipeline: the newest one, or that of a connection file",
    )
    add("--model", default="base", help="name (base, tiny.en) or folder of a model (default: base)")
    add("--language", help="spoken language, as name or code; found by listening when not given")
    add("--task", default="transcribe", help="transcribe, or translate into English (default: transcribe)")
    add("--prompt", default="", metavar="TEXT", help="words and style to expect, as if said just before")
    add("--precision", choices=PRECISIONS, default="int8", help="of the model's arithmetic (default: int8)")
    add(
        "--threads",
        type=int,
        default=0,
        metavar="N",
        help="of each model session; 0 means the CPUs this process may use (default: 0)",
    )
    add_console_options(parser)
    add_log_options(parser)
    add("--version", action="version", version=f"susurrus {VERSION}")
    return parser


def _attach(arguments: argparse.Namespace) -> int:
    """Follow a pipeline that runs elsewhere, in this process."""
    connection = newest_live() if arguments.attach == NEWEST else Connection.read(Path(arguments.attach))
    if connection is None or not connection.is_live:
        return _complain("no pipeline is running: start one with --wav", exits.PIPELINE)
    return follow(connection, console_options(arguments), EXIT_BY_SIGNAL)


def _transcribe(arguments: argparse.Namespace) -> int:
    """Start a pipeline with a console, give it every input, wait for the last terminal event."""
    if arguments.threads < 0:
        raise OptionError("--threads: give a number of threads, or 0 for the CPUs this process may use")
    with terminal_progress() as progress:
        directory = ensure_model(arguments.model, precisions=(arguments.precision,), progress=progress, verify=False)
    options = job_options(directory, language=arguments.language, task=arguments.task, prompt=arguments.prompt)
    pipeline = Pipeline(
        directory,
        precision=arguments.precision,
        threads=arguments.threads,
        console=Command("console", tuple(_console_arguments(arguments)), owns_terminal=True),
        audio_fd=_audio_fd() if STDIN in arguments.wav else None,
        child_arguments=log_arguments(arguments),
    )
    signals = Signals(pipeline)
    try:
        with pipeline:
            code = _submit_and_wait(pipeline, arguments.wav, options)
        code = _exit_code_of_console(pipeline.console_failure()) or code
    except PipelineError as error:
        code = EXIT_BY_REASON.get(error.code, exits.PIPELINE)
        if pipeline.console_failure() not in (exits.PIPELINE, exits.OUTPUT_CLOSED):  # else it has said why
            _complain(str(error), code)
    except KeyboardInterrupt:  # a signal while it was only being started
        code = _complain("interrupted", signals.exit_code)
    return signals.exit_code or code


def _submit_and_wait(pipeline: Pipeline, sources: list[str], options: TranscribeOptions) -> int:
    """Exit code of the batch: one bad input does not keep the others from being transcribed."""
    codes = set()
    waiting, open_jobs = deque(sources), 0
    with pipeline.client() as client:
        while waiting or open_jobs:
            while waiting and open_jobs < SUBMITTED_AHEAD:
                source = waiting.popleft()
                path = source if source == STDIN else str(Path(source).absolute())
                client.submit(path, name=source, options=options)
                open_jobs += 1
            event = client.receive()
            if isinstance(event, TerminalEvent):
                open_jobs -= 1
                codes.add(_exit_code(event))
    return max(codes, key=EXIT_BY_WEIGHT.index)


def _exit_code(event: TerminalEvent) -> int:
    if isinstance(event, Done):
        return exits.OK if event.complete else exits.DAMAGED
    code = event.code if isinstance(event, Failed) else ""
    return exits.INPUT if code in ("audio", "option") else exits.PIPELINE


def _exit_code_of_console(code: int) -> int:
    """Ours, when everything was transcribed but perhaps not shown: the output is full, or nobody reads it."""
    return code if code in (exits.OK, exits.OUTPUT_CLOSED) else exits.PIPELINE


class Signals:
    """The first signal ends the pipeline in order, the second its children at once, the third everything.

    Runs on the main thread.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self.exit_code = 0
        """Non-zero once a signal came."""
        self._pipeline = pipeline
        self._count = 0
        for name in EXIT_BY_SIGNAL:
            if hasattr(signal, name):
                signal.signal(getattr(signal, name), self._on_signal)

    def _on_signal(self, signum: int, _frame: FrameType | None) -> None:
        self._count += 1
        self.exit_code = EXIT_BY_SIGNAL[signal.Signals(signum).name]
        if self._count > 2:
            os._exit(self.exit_code)
        if self._count == 2:
            self._pipeline.kill()
        elif not self._pipeline.interrupt():
            raise KeyboardInterrupt  # it is only being started: unwind


def _console_arguments(arguments: argparse.Namespace) -> list[str]:
    """The same wishes, for the console's own command line."""
    flags = [flag for flag, wanted in (("--json", arguments.json), ("--quiet", arguments.quiet)) if wanted]
    return [*flags, *(["--headings"] if len(arguments.wav) > 1 else []), *log_arguments(arguments)]


def _audio_fd() -> int:
    """A descriptor of our standard input that the frontend can inherit.

    Raises:
        OptionError: standard input cannot be handed on, or is a terminal.
    """
    if sys.platform == "win32" or sys.stdin is None:
        raise OptionError("--wav -: standard input cannot be read here; name a file")
    if sys.stdin.isatty():
        raise OptionError("--wav -: standard input is a terminal; pipe audio into it")
    return os.dup(sys.stdin.fileno())


def _complain(text: str, code: int) -> int:
    sys.stderr.write(f"error: {text}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
