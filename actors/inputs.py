"""The recordings that a command line names."""

from __future__ import annotations

import argparse
import sys

from susurrus.models.errors import OptionError
from susurrus.models.inputs import STDIN, Inputs, expand, parse_list, read_list


def add_input_options(parser: argparse.ArgumentParser) -> None:
    """Add the ways to name recordings."""
    add = parser.add_argument_group("recordings").add_argument
    help_text = (
        "WAV, FLAC, OGG, MP3, M4A, MP4, WebM, at any rate; a folder or a pattern means the files in it; - is stdin"
    )
    add("audio", nargs="*", default=[], metavar="FILE_OR_FOLDER", help=help_text)
    add("--wav", action="append", default=[], metavar="FILE", help="the same; repeat it for more")
    add("--recursive", action="store_true", help="look in the folders of folders too")
    help_text = "take names from a list, one a line or separated by NUL; - reads it from stdin"
    add("--files-from", action="append", default=[], metavar="LIST", help=help_text)


def names_inputs(arguments: argparse.Namespace) -> bool:
    """Whether there is anything to transcribe."""
    return bool(arguments.wav or arguments.audio or arguments.files_from)


def find_inputs(arguments: argparse.Namespace) -> Inputs:
    """The recordings: those of `--wav`, then the others, then the lists.

    Raises:
        OptionError: a list cannot be read, or standard input cannot be what the user wants of it.
    """
    named = arguments.wav + arguments.audio
    lists = arguments.files_from
    if STDIN in lists and (STDIN in named or lists.count(STDIN) > 1):
        raise OptionError("--files-from -: standard input is one thing, the list or a recording; name a file instead")
    for path in lists:
        listed = _piped_list() if path == STDIN else read_list(path)
        if not listed:
            raise OptionError(f"--files-from {path}: the list is empty")
        named += listed
    inputs = expand(named, recursive=arguments.recursive)
    for source in [source for source in inputs.found if not _can_travel(source.source)]:
        inputs.found.remove(source)
        inputs.complaints.append(f"{source.path}: its name is no UTF-8 here; rename it")
    return inputs


def _can_travel(path: str) -> bool:
    """Whether a message can hold it: not with bytes that are no UTF-8, or in a locale that is not."""
    try:
        return bool(path.encode())
    except UnicodeEncodeError:
        return False


def _piped_list() -> list[str]:
    if sys.stdin is None or sys.stdin.isatty():
        raise OptionError("--files-from -: pipe a list into standard input, or name a file")
    return parse_list(sys.stdin.buffer.read())
