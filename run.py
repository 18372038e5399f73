"""Transcribe speech on this machine: `python run.py clip.wav`.

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
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

try:
    from susurrus.actors import exits
    from susurrus.actors.batch import Batch, table
    from susurrus.actors.client import PipelineError
    from susurrus.actors.console import add_console_options, console_options, follow
    from susurrus.actors.inputs import add_input_options, find_inputs, names_inputs
    from susurrus.actors.logs import add_log_options, configure_logs, log_arguments
    from susurrus.actors.options import add_decoding_options, decoding_options, fallback_note, normalised
    from susurrus.actors.outputs import add_output_options, layout, output_files
    from susurrus.actors.pipeline import Pipeline, job_options
    from susurrus.actors.supervisor import Command
    from susurrus.actors.terminal import Output
    from susurrus.actors.version import VERSION
    from susurrus.models.errors import ModelError, OptionError, OutputError, SusurrusError
    from susurrus.models.inputs import Input
    from susurrus.models.options import DecodingOptions
    from susurrus.models.provision import ensure_model, terminal_progress
    from susurrus.models.provisioning.manifest import PRECISIONS
    from susurrus.protocol import Connection, WireError, newest_live
except ModuleNotFoundError as missing:
    sys.stderr.write(f"error: {missing.name} is not installed; in the checkout run: python -m pip install -e .\n")
    sys.exit(2)

EXIT_BY_SIGNAL = {"SIGINT": exits.INTERRUPTED, "SIGTERM": exits.TERMINATED, "SIGHUP": exits.HUNG_UP}
EXIT_BY_REASON = {"model": exits.MODEL, "output_closed": exits.OUTPUT_CLOSED}
EXIT_BY_ERROR = {ModelError: exits.MODEL, OutputError: exits.OUTPUT}
NEWEST = "newest"


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    parser = _parser()
    # Intermixed: options may stand between the names of files.
    arguments = parser.parse_intermixed_args(normalised(sys.argv[1:] if argv is None else argv))
    if arguments.attach is None and not names_inputs(arguments):
        parser.error("nothing to do: name an audio file (--wav FILE, or just FILE), or follow a pipeline with --attach")
    if arguments.attach is not None and names_inputs(arguments):
        parser.error("--attach follows a pipeline that has its recordings: name none")
    configure_logs(arguments, "hub")
    try:
        return _transcribe(arguments) if arguments.attach is None else _attach(arguments)
    except SusurrusError as error:
        return _complain(str(error), EXIT_BY_ERROR.get(type(error), exits.INPUT))
    except WireError as error:
        return _complain(str(error), exits.PIPELINE)
    except KeyboardInterrupt:
        return _complain("interrupted", exits.INTERRUPTED)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="run.py",
        usage="%(prog)s [options] FILE_OR_FOLDER ...\n       %(prog)s --attach [CONNECTION]",
        description="Whisper speech-to-text on this machine, offline, with text that grows token by token. "
        "The text goes to stdout, everything else to stderr.",
        epilog="Options are openai-whisper's where the thing is the same; --word_timestamps True does as well. "
        "Exit codes: 0 done; 2 wrong option or unreadable input; 3 model missing or damaged; 4 pipeline lost; "
        "5 an input broke off; 6 a result file cannot be written; 129, 130, 143 ended by SIGHUP, Ctrl-C, SIGTERM; "
        "141 nobody reads the output. Models: python -m susurrus.models.provision --help.",
    )
    add_input_options(parser)
    add_decoding_options(parser)
    add_output_options(parser)
    model = parser.add_argument_group("model")
    model.add_argument("--model", default="base", help="name (base, tiny.en) or folder of a model (default: base)")
    help_text = "of the model's arithmetic (default: int8)"
    model.add_argument("--precision", choices=PRECISIONS, default="int8", help=help_text)
    help_text = "of each model session; 0 means the CPUs this process may use (default: 0)"
    model.add_argument("--threads", type=int, default=0, metavar="N", help=help_text)
    help_text = "show the text of a running pipeline: the newest one, or that of a connection file"
    parser.add_argument("--attach", nargs="?", const=NEWEST, metavar="CONNECTION", help=help_text)
    add_console_options(parser)
    add_log_options(parser)
    parser.add_argument("--version", action="version", version=f"susurrus {VERSION}")
    return parser


def _attach(arguments: argparse.Namespace) -> int:
    """Follow a pipeline that runs elsewhere, in this process."""
    connection = newest_live() if arguments.attach == NEWEST else Connection.read(Path(arguments.attach))
    if connection is None or not connection.is_live:
        return _complain("no pipeline is running: start one with --wav", exits.PIPELINE)
    return follow(connection, console_options(arguments), EXIT_BY_SIGNAL)


def _transcribe(arguments: argparse.Namespace) -> int:
    """Find the recordings, have them transcribed, tell what became of them."""
    if arguments.threads < 0:
        raise OptionError("--threads: give a number of threads, or 0 for the CPUs this process may use")
    lines = layout(arguments)
    options = decoding_options(arguments, needs_words=lines.needs_words)
    inputs = find_inputs(arguments)
    outputs = output_files(arguments, inputs.found, lines)
    if not arguments.quiet:
        for note in filter(None, (lines.note, fallback_note(options))):
            _say(f"warning: {note}")
    codes = [_complain(complaint, exits.INPUT) for complaint in inputs.complaints]
    batch = Batch(outputs)
    todo = batch.skip_existing(inputs.found) if arguments.skip_existing else inputs.found
    if todo:
        codes.append(_run(arguments, options, todo, batch))
    for complaint in batch.complaints:
        _say(f"error: {complaint}")
    if len(batch.rows) > 1 and _is_talkative(arguments):
        for line in table(batch.rows):
            _say(line)
    return exits.worst(codes)


def _run(arguments: argparse.Namespace, wanted: DecodingOptions, inputs: Sequence[Input], batch: Batch) -> int:
    """Exit code of the life of a pipeline with a console, in which the batch is done."""
    with terminal_progress() as progress:
        directory = ensure_model(arguments.model, precisions=(arguments.precision,), progress=progress, verify=False)
    options = job_options(directory, wanted)
    pipeline = Pipeline(
        directory,
        precision=arguments.precision,
        threads=arguments.threads,
        console=Command("console", tuple(_console_arguments(arguments, headings=len(inputs) > 1)), owns_terminal=True),
        audio_fd=_audio_fd() if any(source.is_stdin for source in inputs) else None,
        child_arguments=log_arguments(arguments),
    )
    signals = Signals(pipeline)
    try:
        with pipeline, pipeline.client() as client:
            code = batch.run(client, options, inputs)
        code = _exit_code_of_console(pipeline.console_failure()) or code
    except PipelineError as error:
        code = EXIT_BY_REASON.get(error.code, exits.PIPELINE)
        if pipeline.console_failure() not in (exits.PIPELINE, exits.OUTPUT_CLOSED):  # else it has said why
            _complain(str(error), code)
    except KeyboardInterrupt:  # a signal while it was only being started
        code = _complain("interrupted", signals.exit_code)
    return signals.exit_code or code


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


def _console_arguments(arguments: argparse.Namespace, *, headings: bool) -> list[str]:
    """The same wishes, for the console's own command line."""
    wishes = {"--json": arguments.json, "--quiet": arguments.quiet, "--headings": headings}
    return [*(flag for flag, wanted in wishes.items() if wanted), *log_arguments(arguments)]


def _audio_fd() -> int:
    """A descriptor of our standard input that the frontend can inherit.

    Raises:
        OptionError: standard input cannot be handed on, or is a terminal.
    """
    if sys.platform == "win32" or sys.stdin is None:
        raise OptionError("---: standard input cannot be read here; name a file")
    if sys.stdin.isatty():
        raise OptionError("---: standard input is a terminal; pipe audio into it")
    return os.dup(sys.stdin.fileno())


def _is_talkative(arguments: argparse.Namespace) -> bool:
    """Whether a person wants to read more than errors: piped standard error stays for errors, unless asked with -v."""
    asked = arguments.verbose and arguments.log_format == "console"
    return not arguments.quiet and bool(asked or (sys.stderr is not None and sys.stderr.isatty()))


def _say(line: str) -> None:
    Output(sys.stderr, required=False).say(line)


def _complain(text: str, code: int) -> int:
    _say(f"error: {text}")
    return code


if __name__ == "__main__":
    sys.exit(main())
