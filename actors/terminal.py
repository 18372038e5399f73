"""Text on its way to a terminal or a pipe: made harmless, laid out in rows, written while somebody reads.

Transcripts and file names come from strangers: neither may drive the terminal.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import unicodedata
from typing import TYPE_CHECKING, TextIO

from susurrus.models.errors import SusurrusError
from susurrus.models.graphemes import clusters

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping

_C0 = {code: chr(0x2400 + code) for code in range(0x20)}  # U+2400: the Control Pictures, so ESC is seen as ␛
_C1 = dict.fromkeys(range(0x80, 0xA0), "\N{REPLACEMENT CHARACTER}")  # 0x9b is CSI in one character
_BIDI = dict.fromkeys([*range(0x202A, 0x202F), *range(0x2066, 0x206A)])  # they reorder what stands after them
_SURROGATES = dict.fromkeys(range(0xD800, 0xE000), "\N{REPLACEMENT CHARACTER}")  # no UTF-8 for these
_BREAKS = dict.fromkeys([0x09, 0x0A, 0x2028, 0x2029], " ")
_HARMLESS: Mapping[int, str | None] = _C0 | {0x7F: "\N{SYMBOL FOR DELETE}"} | _C1 | _BIDI | _SURROGATES | _BREAKS

_GONE = {
    errno.EPIPE,
    errno.EIO,
    errno.EBADF,
    errno.ENXIO,
    errno.EINVAL,
}  # EIO: no terminal; EINVAL: Windows' EPIPE


class OutputClosedError(Exception):
    """Nobody reads standard output any more, as after `| head -1`: a reason to end quietly, not a failure."""


def neutralise(text: str) -> str:
    """Text that a terminal only shows: one line, no control characters, no bidirectional overrides.

    Works character by character, so a sequence cut in two by the border of two texts is harmless as well.
    Line breaks and tabs become spaces, control characters a visible sign, overrides and isolates (U+202A to
    U+202E, U+2066 to U+2069) nothing. The marks Arabic and Hebrew need (U+200E, U+200F, U+061C) stay.
    """
    return text.translate(_HARMLESS)


# --- rows ---------------------------------------------------------------------------------------------------


def cell_count(text: str) -> int:
    """The most cells that terminals give this text.

    They differ about emoji sequences; a row that is too short does no harm, one that wraps by surprise does.
    """
    return sum(map(_cells, text))


def _cells(character: str) -> int:
    if " " <= character <= "~":
        return 1
    if character == "\N{VARIATION SELECTOR-16}":  # makes the sign before it an emoji, which is wide
        return 1
    # The emoji planes by number: the interpreter's Unicode data may be older than the emoji.
    if 0x1F000 <= ord(character) <= 0x1FAFF or unicodedata.east_asian_width(character) in "WF":
        return 2
    return 0 if unicodedata.category(character) in ("Mn", "Me", "Cf") else 1


def wrap(text: str, width: int) -> list[str]:
    """Break text into rows of at most `width` cells: at spaces, beside wide characters, or in a long word.

    Nothing is dropped: the rows joined are the text, the spaces at a row's end hang over its border. Appended
    text changes only the last row and what follows: all rows but the last can be printed for good. There is
    at least one row.
    """
    rows, row, cells = [], "", 0
    for unit in _units(text):
        visible = cell_count(unit.rstrip(" "))
        if row and cells + visible > width:
            rows.append(row)
            row, cells = "", 0
        if visible > width:
            *full, unit = _chop(unit, width)  # noqa: PLW2901 - the last piece goes on as the unit did
            rows += full
        row += unit
        cells += cell_count(unit)
    return [*rows, row]


def _units(text: str) -> Iterator[str]:
    """Pieces that are not broken: a word and the spaces behind it, a wide character and its punctuation."""
    unit, before = "", ""
    for cluster in clusters(text):
        if before and _may_break(before[0], cluster[0]):
            yield unit
            unit = ""
        unit += cluster
        before = cluster
    if unit:
        yield unit


def _may_break(before: str, after: str) -> bool:
    if " " in (before, after):
        return after != " "
    wide = _cells(before) == 2 or _cells(after) == 2
    # Closing signs such as 、。」 begin no row, opening ones end none.
    return wide and unicodedata.category(after) not in ("Pe", "Pf", "Po") and unicodedata.category(before) != "Ps"


def _chop(word: str, width: int) -> list[str]:
    rows, row = [], ""
    for cluster in clusters(word):
        if row and cell_count(row + cluster.rstrip(" ")) > width:
            rows.append(row)
            row = ""
        row += cluster
    return [*rows, row]


# --- streams ------------------------------------------------------------------------------------------------


class Output:
    """A text stream that speaks UTF-8 whatever the locale says, and tells when its reader is gone."""

    encoding = "utf-8"

    def __init__(self, stream: TextIO | None, *, required: bool = True) -> None:
        """Take the stream over.

        Args:
            stream: `sys.stdout` or the like; None when the process was started without it.
            required: False for standard error: what cannot be written there is dropped in silence.
        """
        self._stream = stream
        self._required = required
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")

    def write(self, text: str) -> int:
        """Write text.

        Raises:
            OutputClosedError: the stream is closed or its reader gone.
            SusurrusError: it cannot be written for another reason, such as a full disk.
        """
        with self._errors():
            return self._open_stream().write(text)
        return len(text)

    def flush(self) -> None:
        """Hand over what was written; raises as `write` does."""
        with self._errors():
            self._open_stream().flush()

    def isatty(self) -> bool:
        """Whether a person looks at it."""
        return self._stream is not None and not self._stream.closed and self._stream.isatty()

    def fileno(self) -> int:
        """The descriptor below; raises OSError where there is none, as streams do."""
        return self._open_stream().fileno()

    def say(self, line: str) -> None:
        """Write one line that cannot do harm, at once."""
        self.write(neutralise(line) + "\n")
        self.flush()

    def _open_stream(self) -> TextIO:
        if self._stream is None or self._stream.closed:
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
        return self._stream

    @contextlib.contextmanager
    def _errors(self) -> Generator[None, None, None]:
        try:
            yield
        except OSError as error:
            if not self._required:
                return
            self._abandon()
            if error.errno not in _GONE:
                raise SusurrusError(f"cannot write the text to standard output: {error.strerror}") from error
            raise OutputClosedError from error

    def _abandon(self) -> None:
        """Point the descriptor at nothing: the interpreter flushes once more at exit and would complain."""
        with contextlib.suppress(OSError, ValueError):
            descriptor = self.fileno()
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, descriptor)
            os.close(null)
