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
    try:
        from susurrus.actors import standby

        standby.begin(sys.argv[1:])
    except ModuleNotFoundError:
        pass  # said below

import argparse
import atexit
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

try:
    from susurrus.actors import exits
    from susurrus.actors.batch import Batch, table
    from susurrus.actors.client import PipelineError
    from susurrus.actors.commandline import parse
    from susurrus.actors.console import console_options, follow
    from susurrus.actors.inputs import find_inputs
    from susurrus.actors.logs import configure_logs, log_arguments
    from susurrus.actors.options import decoding_options, fallback_note, to_message
    from susurrus.actors.outputs import layout, output_files
    from susurrus.actors.pipeline import Pipeline, PipelineSettings, job_options
    from susurrus.actors.service import find_pipeline, find_service, serve, use
    from susurrus.actors.supervisor import Command
    from susurrus.actors.terminal import Output, OutputClosedError
    from susurrus.actors.trace import trace_arguments, tracing
    from susurrus.models.errors import ModelError, OptionError, OutputError, SusurrusError
    from susurrus.models.inputs import Input
    from susurrus.models.options import DecodingOptions
    from susurrus.models.providers import check_provider
    from susurrus.models.provision import ensure_model, terminal_progress
    from susurrus.protocol import Connection, Status, WireError
except ModuleNotFoundError as missing:
    sys.stderr.write(f"error: {missing.name} is not installed; in the checkout run: python -m pip install -e .\n")
    sys.exit(2)

if TYPE_CHECKING:
    from susurrus.protocol.listen import Listener

EXIT_BY_SIGNAL = {"SIGINT": exits.INTERRUPTED, "SIGTERM": exits.TERMINATED, "SIGHUP": exits.HUNG_UP}
EXIT_BY_REASON = {"model": exits.MODEL, "output_closed": exits.OUTPUT_CLOSED}
EXIT_BY_ERROR = {ModelError: exits.MODEL, OutputError: exits.OUTPUT}


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    arguments = parse(sys.argv[1:] if argv is None else argv)
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # not before: what it raises is caught below
        if arguments.doctor:
            from susurrus.actors import doctor  # noqa: PLC0415 - it imports what a transcription does not

            return doctor.main(as_json=arguments.json)
        configure_logs(arguments, "hub")
        if arguments.attach is not None:
            return _attach(arguments)
        if arguments.status is not None:
            return _status(arguments)
        return _serve(arguments) if arguments.serve else _transcribe(arguments)
    except SusurrusError as error:
        return _complain(str(error), EXIT_BY_ERROR.get(type(error), exits.INPUT))
    except WireError as error:
        return _complain(str(error), exits.PIPELINE)
    except OutputClosedError:
        return exits.OUTPUT_CLOSED
    except KeyboardInterrupt:
        return _complain("interrupted", exits.INTERRUPTED)


def _attach(arguments: argparse.Namespace) -> int:
    """Follow a pipeline that runs elsewhere, in this process."""
    return follow(find_pipeline(arguments.attach), console_options(arguments), EXIT_BY_SIGNAL)


def _status(arguments: argparse.Namespace) -> int:
    """Tell how a pipeline is that runs elsewhere."""
    from susurrus.actors.status import show  # noqa: PLC0415 - most runs are not asked

    try:
        show(find_pipeline(arguments.status), as_json=arguments.json)
    except PipelineError as error:
        return _complain(str(error), exits.PIPELINE)
    return exits.OK


def _metrics(address: str) -> Callable[[Status], None]:
    """Serve the numbers to Prometheus as long as this process lives; return what takes them."""
    from susurrus.actors.metrics import Metrics  # noqa: PLC0415 - an extra, for those who ask

    metrics = Metrics(address)
    atexit.register(metrics.close)
    _say(f"metrics: {metrics.url}")
    return metrics.update


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
    batch = Batch(outputs, deadline_s=arguments.deadline, resumes=arguments.resume)
    todo = batch.skip_existing(inputs.found) if arguments.skip_existing else inputs.found
    if todo:
        service = find_service(arguments)
        run = partial(_use, service) if service is not None else _run
        codes.append(run(arguments, options, todo, batch))
    for complaint in batch.complaints:
        _say(f"error: {complaint}")
    if len(batch.rows) > 1 and _is_talkative(arguments):
        for line in table(batch.rows):
            _say(line)
    return exits.worst(codes)


def _use(
    service: Connection, arguments: argparse.Namespace, wanted: DecodingOptions, inputs: Sequence[Input], batch: Batch
) -> int:
    """Exit code of the batch, done by a pipeline that runs already."""
    signals = Signals()
    # What the model of a pipeline elsewhere does not have, it says itself.
    options = job_options(Path(service.settings.model), wanted) if service.is_local else to_message(wanted)
    try:
        code = use(service, options, inputs, batch, console_options(arguments, headings=len(inputs) > 1))
        batch.remove_journals()
    except PipelineError as error:
        return _complain(str(error), exits.PIPELINE)
    except KeyboardInterrupt:
        return _complain("interrupted", signals.exit_code)
    return code


def _serve(arguments: argparse.Namespace) -> int:
    """Exit code of a pipeline that stays until a signal ends it."""
    directory = _model(arguments)
    pipeline = Pipeline(directory, **_settings(arguments), resident=True)
    signals = Signals(pipeline)
    try:
        serve(pipeline, _say)
    except PipelineError as error:
        return signals.exit_code or _complain(str(error), EXIT_BY_REASON.get(error.code, exits.PIPELINE))
    except KeyboardInterrupt:
        return _complain("interrupted", signals.exit_code)
    return signals.exit_code


def _model(arguments: argparse.Namespace) -> Path:
    """The model's directory, once it is there. Its files are hashed while the actors start."""
    with terminal_progress() as progress:
        precisions = (arguments.precision,) if arguments.precision else None
        return ensure_model(arguments.model, precisions=precisions, progress=progress, verify=False)


def _settings(arguments: argparse.Namespace) -> PipelineSettings:
    """What every pipeline of ours is started with."""
    check_provider(arguments.provider)
    return {
        "precision": arguments.precision,
        "workers": arguments.workers,
        "threads": arguments.threads,
        "provider": arguments.provider,
        "child_arguments": (*log_arguments(arguments), *trace_arguments(arguments)),
        "listener": None if arguments.listen is None else _listener(arguments.listen),
        "on_status": None if arguments.metrics is None else _metrics(arguments.metrics),
    }


def _listener(endpoint: str) -> Listener:
    """What `--listen` asks for."""
    from susurrus.protocol.listen import Listener  # noqa: PLC0415 - for those who listen

    return Listener.parse(endpoint)


def _run(arguments: argparse.Namespace, wanted: DecodingOptions, inputs: Sequence[Input], batch: Batch) -> int:
    """Exit code of the life of a pipeline with a console, in which the batch is done."""
    directory = _model(arguments)
    options = job_options(directory, wanted)
    pipeline = Pipeline(
        directory,
        **_settings(arguments),
        console=Command("console", tuple(_console_arguments(arguments, headings=len(inputs) > 1)), owns_terminal=True),
        audio_fd=_audio_fd() if any(source.is_stdin for source in inputs) else None,
    )
    signals = Signals(pipeline)
    try:
        with tracing(arguments.trace) as trace, pipeline, pipeline.client() as client:
            code = batch.run(trace.watch(client), options, inputs)
        code = _exit_code_of_console(pipeline.console_failure()) or code
        if code in (exits.OK, exits.DAMAGED, exits.INPUT):
            batch.remove_journals()
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

    Without a pipeline of ours the first unwinds what is done. Runs on the main thread.
    """

    def __init__(self, pipeline: Pipeline | None = None) -> None:
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
        if self._count == 2 and self._pipeline is not None:
            self._pipeline.kill()
        elif self._pipeline is None or not self._pipeline.interrupt():
            raise KeyboardInterrupt  # it is only being started, or another's: unwind


def _console_arguments(arguments: argparse.Namespace, *, headings: bool) -> list[str]:
    """The same wishes, for the console's own command line."""
    wishes = {"--json": arguments.json, "--quiet": arguments.quiet, "--headings": headings}
    flags = [flag for flag, wanted in wishes.items() if wanted]
    return [*flags, *log_arguments(arguments), *trace_arguments(arguments)]


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


def command() -> NoReturn:
    """Run the command line as this process, and end it without taking the interpreter apart, which takes 20 ms."""
    code = main()
    atexit._run_exitfuncs()  # noqa: SLF001 - multiprocessing ends its children so
    try:
        for stream in filter(None, (sys.stdout, sys.stderr)):
            stream.flush()
    except (OSError, ValueError):
        sys.exit(code)  # the interpreter says it in its own way
    os._exit(code)


if __name__ == "__main__":
    command()
