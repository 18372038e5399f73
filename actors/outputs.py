"""Result files: what they are called, which are there already, and how they are written: whole or not at all.

Runs on the caller's thread. Nothing here is bigger than one recording's text.
"""

from __future__ import annotations

import argparse
import os
import secrets
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from susurrus.actors.options import add_flag
from susurrus.models.errors import OptionError, OutputError
from susurrus.models.inputs import Input
from susurrus.models.writers import ALL, FORMATS, Document, Layout, parse_formats, render

STDIN_NAME = "stdin"


def add_output_options(parser: argparse.ArgumentParser) -> None:
    """Add what files are written."""
    add = parser.add_argument_group("result files, besides the text on stdout").add_argument
    help_text = f"{', '.join(FORMATS)}, several with commas, or {ALL} (default with --output-dir: {ALL})"
    add("--format", "--output-format", "-f", metavar="LIST", help=help_text)
    add("--output-dir", "-o", metavar="FOLDER", help="where they go (default with --format: the current folder)")
    add("--skip-existing", action="store_true", help="leave out recordings whose files are all there")
    add("--max-line-width", type=int, metavar="N", help="characters in a line of subtitles")
    add("--max-line-count", type=int, metavar="N", help="lines in a subtitle; together with --max-line-width")
    add("--max-words-per-line", type=int, metavar="N", help="words in a subtitle")
    add_flag(add, "--highlight-words", "underline each word in srt and vtt as it is spoken")


def layout(arguments: argparse.Namespace) -> Layout:
    """How the user wants subtitles to be broken.

    Raises:
        OptionError: a limit means nothing.
    """
    return Layout(
        max_line_width=arguments.max_line_width,
        max_line_count=arguments.max_line_count,
        max_words_per_line=arguments.max_words_per_line,
        highlight_words=arguments.highlight_words,
    )


def output_files(arguments: argparse.Namespace, inputs: Sequence[Input], lines: Layout) -> OutputFiles | None:
    """The files the user wants, in a folder that is ready for them; None: no files.

    Raises:
        OptionError: a format does not exist, or an option is about files that are not written.
        OutputError: nothing can be written there.
    """
    wanted = arguments.format is not None or arguments.output_dir is not None
    formats = parse_formats(ALL if arguments.format is None else arguments.format) if wanted else ()
    if arguments.skip_existing and not wanted:
        raise OptionError("--skip-existing is about result files: say which with --format")
    if lines.needs_words and not {"srt", "vtt"} & set(formats):
        raise OptionError("--max-line-width and the like are about subtitles: add --format srt or vtt")
    if not wanted:
        return None
    files = OutputFiles(Path(arguments.output_dir or os.curdir), formats, inputs, lines)
    files.check()
    return files


class OutputFiles:
    """The files of a batch, one for each input and format."""

    def __init__(self, folder: Path, formats: Sequence[str], inputs: Sequence[Input], layout: Layout) -> None:
        """Name the files; nothing is written yet.

        Args:
            folder: where they go; made when it is missing.
            formats: such as `srt`, which are their extensions too.
            inputs: of the whole batch: names depend on all of them.
            layout: how subtitles are broken into lines.
        """
        self._folder = folder
        self._formats = tuple(formats)
        self._layout = layout
        self._names = dict(zip(inputs, output_names(inputs, folder, formats), strict=True))

    def paths(self, source: Input) -> dict[str, Path]:
        """Where the result of an input goes, by format."""
        name = self._names[source]
        return {kind: self._folder / f"{name}.{kind}" for kind in self._formats}

    def are_there(self, source: Input) -> bool:
        """Whether there is nothing left to write for an input."""
        return all(path.is_file() for path in self.paths(source).values())

    def check(self) -> None:
        """Make the folder, and see that a file can be written there.

        Raises:
            OutputError: it cannot.
        """
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            probe = _temporary(self._folder)
            probe.touch(exist_ok=False)
            probe.unlink()
        except OSError as error:
            raise OutputError(f"--output-dir {self._folder}: no file can be written there: {error.strerror}") from error

    def write(self, source: Input, document: Document) -> None:
        """Write the files of one input, replacing older ones.

        Raises:
            OutputError: one cannot be written; an older one of that name is still there.
        """
        for kind, path in self.paths(source).items():
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                write_whole(path, render(document, kind, self._layout))
            except OSError as error:
                raise OutputError(f"{path}: cannot be written: {error.strerror}") from error


def write_whole(path: Path, text: str) -> None:
    """Write UTF-8, whatever the locale, so that nobody ever sees half of it, even after a crash.

    Raises:
        OSError: it cannot be written; nothing is left behind.
    """
    temporary = _temporary(path.parent)
    try:
        with temporary.open("xb") as file:
            # A name may hold bytes that are no UTF-8, which Python has as surrogates; text never does.
            file.write(text.encode("utf-8", "backslashreplace"))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _temporary(folder: Path) -> Path:
    """A name of its own: with the final one in it, it could be too long."""
    return folder / f".susurrus-{secrets.token_hex(8)}"


# --- names --------------------------------------------------------------------------------------------------


def output_names(inputs: Sequence[Input], folder: Path, formats: Sequence[str]) -> list[str]:
    """A name without extension for each input, all different, as a path below the output folder.

    `clip.wav` is `clip`, and `talks/day 1/clip.wav`, found below the folder `talks`, is `day 1/clip`. Where two would
    have the same name, or would overwrite an input, each of them keeps its extension (`clip.wav`, `clip.mp3`); where
    that does not help they go into folders named as theirs are; in the end they are numbered. Letters that differ in
    case or composition alone count as the same, since many file systems think so.
    """
    common, endings = _common_folder(inputs), tuple(f".{kind}" for kind in formats)
    candidates = [_candidates(source, common) for source in inputs]
    # Only an input that is called like a result can be overwritten by one.
    originals = {_key(source.source) for source in inputs if source.source.lower().endswith(endings)}

    def overwrites(name: str) -> bool:
        return bool(originals) and any(_key(os.path.abspath(folder / (name + end))) in originals for end in endings)  # noqa: PTH100

    levels = [0] * len(inputs)
    while True:
        names = [options[level] for options, level in zip(candidates, levels, strict=True)]
        counts = Counter(map(_key, names))
        clashing = [index for index, name in enumerate(names) if counts[_key(name)] > 1 or overwrites(name)]
        climbing = [index for index in clashing if levels[index] + 1 < len(candidates[index])]
        if not climbing:
            return list(_numbered(names, overwrites))
        for index in climbing:
            levels[index] += 1


def _candidates(source: Input, common: str) -> list[str]:
    if source.is_stdin:
        return [STDIN_NAME]
    path = Path(source.source)
    mirrored = path.parent.relative_to(common) if common else Path(source.below)
    return [str(where / name) for where in (Path(source.below), mirrored) for name in (path.stem, path.name)]


def _common_folder(inputs: Sequence[Input]) -> str:
    """The folder that all inputs are below; empty on several drives."""
    try:
        return os.path.commonpath([os.path.dirname(source.source) for source in inputs if not source.is_stdin])  # noqa: PTH120
    except ValueError:
        return ""


def _numbered(names: Sequence[str], is_forbidden: Callable[[str], bool]) -> Iterator[str]:
    wanted, given = set(map(_key, names)), set[str]()
    for name in names:
        unique, number = name, 1
        while _key(unique) in given or is_forbidden(unique) or (number > 1 and _key(unique) in wanted):
            number += 1
            unique = f"{name}-{number}"
        given.add(_key(unique))
        yield unique


def _key(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold()
