"""The command line of run.py: every option, and which of them make no sense together."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from susurrus.actors.console import add_console_options
from susurrus.actors.inputs import add_input_options, names_inputs
from susurrus.actors.logs import add_log_options
from susurrus.actors.options import add_decoding_options, normalised
from susurrus.actors.outputs import add_output_options
from susurrus.actors.service import add_pipeline_options
from susurrus.actors.trace import add_trace_option
from susurrus.actors.version import VERSION
from susurrus.models.provisioning.manifest import PRECISIONS


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """What a command line says; ends the process with a line and exit code 2 when that makes no sense."""
    parser = make_parser()
    # Intermixed: options may stand between the names of files.
    arguments = parser.parse_intermixed_args(normalised(argv))
    if not arguments.doctor:
        _refuse_nonsense(parser, arguments)
    return arguments


def make_parser() -> argparse.ArgumentParser:
    """Every option that there is."""
    parser = argparse.ArgumentParser(
        prog="run.py",
        usage="%(prog)s [options] FILE_OR_FOLDER ...\n       %(prog)s --serve [options]\n"
        "       %(prog)s --attach [CONNECTION]\n       %(prog)s --status [CONNECTION]",
        description="Whisper speech-to-text on this machine, offline, with text that grows token by token. "
        "The text goes to stdout, everything else to stderr.",
        epilog="Options are openai-whisper's where the thing is the same; --word_timestamps True does as well. "
        "Exit codes: 0 done; 1 --doctor found an error; 2 wrong option or unreadable input; 3 model missing or "
        "damaged; 4 pipeline lost; 5 an input broke off; 6 a result file cannot be written; 129, 130, 143 ended by "
        "SIGHUP, Ctrl-C, SIGTERM; 141 nobody reads the output. Models: python -m susurrus.models.provision --help.",
    )
    add_input_options(parser)
    add_decoding_options(parser)
    add_output_options(parser)
    _add_model_options(parser)
    add_pipeline_options(parser)
    help_text = "say what of this machine and its models matters here, and what is wrong; 1 if something is"
    parser.add_argument("--doctor", action="store_true", help=help_text)
    add_console_options(parser)
    add_log_options(parser)
    add_trace_option(parser)
    parser.add_argument("--version", action="version", version=f"susurrus {VERSION}")
    return parser


def _add_model_options(parser: argparse.ArgumentParser) -> None:
    model = parser.add_argument_group("model")
    help_text = "name (base, tiny.en) or folder of a model, be it an Optimum export (default: base)"
    model.add_argument("--model", default="base", help=help_text)
    help_text = "of the model's arithmetic (default: int8, or what an Optimum export has)"
    model.add_argument("--precision", choices=PRECISIONS, help=help_text)
    help_text = "what of ONNX Runtime runs the model, such as cuda or openvino (default: cpu)"
    model.add_argument("--provider", default="cpu", metavar="NAME", help=help_text)
    help_text = "encoders, and decoders, that work side by side; 0 means what suits the CPUs (default: 0)"
    model.add_argument("--workers", type=int, default=0, metavar="N", help=help_text)
    help_text = "of each model session; 0 shares the CPUs this process may use among the workers (default: 0)"
    model.add_argument("--threads", type=int, default=0, metavar="N", help=help_text)


def _refuse_nonsense(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> None:
    """End with a line when nothing is to be done, or two things at once."""
    modes = [name for name in ("attach", "serve", "status") if getattr(arguments, name) not in (None, False)]
    if len(modes) > 1:
        parser.error(f"--{modes[0]} and --{modes[1]} are two things: choose one")
    if modes and names_inputs(arguments):
        parser.error(f"--{modes[0]} transcribes nothing by itself: name no recordings")
    if arguments.trace is not None and (modes or arguments.connect or arguments.connection is not None):
        parser.error("--trace looks at a pipeline of its own: leave out --attach, --serve, --connect, --connection")
    if not modes and not names_inputs(arguments):
        parser.error("nothing to do: name an audio file (--wav FILE, or just FILE), or follow a pipeline with --attach")
    if arguments.metrics is not None and (modes not in ([], ["serve"]) or arguments.connect or arguments.connection):
        parser.error("--metrics is for who starts a pipeline: give it to --serve, or to a run that has its own")
