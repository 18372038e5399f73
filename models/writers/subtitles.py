"""Subtitles: cues with a time span, broken into lines by the times of words.

Reference: `SubtitlesWriter` in whisper/utils.py (openai-whisper), with the same meaning of every option. Different on
purpose: `-->` never ends a cue, `&` and `<` are escaped in WebVTT, a cue has no blank lines, a cue without word times
keeps its text, and a line break never comes between a letter and its marks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from susurrus.models.errors import OptionError
from susurrus.models.graphemes import clusters, cuts
from susurrus.models.results import Cue, Word
from susurrus.models.writers.documents import Document, one_line, span_ms

UNLIMITED = 1000
"""Characters in a line and words in a subtitle, where the user sets no limit (openai-whisper's number)."""

LONG_PAUSE_S = 3.0
"""A subtitle that may span several cues ends before such a pause."""

_ARROW = re.compile("-{2,}>")
_INDENT = re.compile(r"\s*")
_ENTITIES = {ord("&"): "&amp;", ord("<"): "&lt;", ord(">"): "&gt;"}

Timed = tuple[int, int, str]
"""Start and end in milliseconds, text of one line or more."""


@dataclass(frozen=True, slots=True)
class Layout:
    """How subtitles are broken. Every setting needs word times."""

    max_line_width: int | None = None
    """Characters in a line; longer words stay whole. Alone it breaks lines, with `max_line_count` subtitles too."""
    max_line_count: int | None = None
    """Lines in a subtitle; means something together with `max_line_width` only."""
    max_words_per_line: int | None = None
    """Words in a subtitle."""
    highlight_words: bool = False
    """A subtitle for every word, in which it is underlined."""

    def __post_init__(self) -> None:
        """Refuse numbers that mean nothing.

        Raises:
            OptionError: a limit is below 1.
        """
        for name in ("max_line_width", "max_line_count", "max_words_per_line"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise OptionError(f"--{name.replace('_', '-')} {value}: give a number from 1")

    @property
    def needs_words(self) -> bool:
        """Whether word times have to be found for it."""
        return self != Layout()

    @property
    def note(self) -> str:
        """One sentence when a setting has no effect, empty otherwise."""
        if self.max_line_count is not None and self.max_line_width is None:
            return "--max-line-count has no effect without --max-line-width"
        if self.max_words_per_line is not None and self.joins_cues:
            return "--max-words-per-line has no effect with --max-line-width and --max-line-count"
        return ""

    @property
    def joins_cues(self) -> bool:
        """Whether lines are filled across the borders of cues."""
        return self.max_line_width is not None and self.max_line_count is not None


def to_srt(document: Document, layout: Layout) -> str:
    """SubRip: numbered from 1, `hh:mm:ss,mmm`."""
    blocks = [
        f"{number}\n{_clock(start, ',', hours=True)} --> {_clock(end, ',', hours=True)}\n{_ARROW.sub('->', text)}\n\n"
        for number, (start, end, text) in enumerate(_timed(document, layout, lambda text: text), start=1)
    ]
    return "".join(blocks)


def to_vtt(document: Document, layout: Layout) -> str:
    """WebVTT: `mm:ss.mmm`, with hours when there are any; a recording without text keeps the header."""
    blocks = [
        f"{_clock(start, '.')} --> {_clock(end, '.')}\n{text}\n\n"
        for start, end, text in _timed(document, layout, lambda text: text.translate(_ENTITIES))
    ]
    return "WEBVTT\n\n" + "".join(blocks)


def _clock(ms: int, marker: str, *, hours: bool = False) -> str:
    second, ms = divmod(ms, 1000)
    minute, second = divmod(second, 60)
    hour, minute = divmod(minute, 60)
    return (f"{hour:02}:" if hours or hour else "") + f"{minute:02}:{second:02}{marker}{ms:03}"


# --- from cues to subtitles -----------------------------------------------------------------------------------


def _timed(document: Document, layout: Layout, escape: Callable[[str], str]) -> Iterator[Timed]:
    """The subtitles in order of time; each text has a line at least, and no blank one."""
    if not document.has_words:
        for segment in document.spoken:
            yield *span_ms(segment.cue.start, segment.cue.end, document.duration), escape(segment.text)
        return
    for subtitle in _subtitles([whole_words(segment.cue) for segment in document.spoken], layout):
        escaped = [replace(word, text=escape(word.text)) for word in subtitle]
        for start, end, text in _highlighted(escaped) if layout.highlight_words else [_plain(escaped)]:
            lines = [line.strip() for line in text.split("\n")]
            yield *span_ms(start, end, document.duration), "\n".join(line for line in lines if line)


def whole_words(cue: Cue) -> list[Word]:
    """The words of a cue as pieces that may stand apart: none begins with a mark of the one before, none is blank.

    A cue whose word times could not be found is one piece.
    """
    if not cue.words:
        return [Word(cue.start, cue.end, one_line(cue.text).strip(), 1.0)]
    allowed = cuts("".join(word.text for word in cue.words))
    pieces: list[Word] = []
    position = 0
    for word in cue.words:
        if pieces and (position not in allowed or not pieces[-1].text.strip() or not word.text.strip()):
            pieces[-1] = replace(pieces[-1], end=word.end, text=pieces[-1].text + one_line(word.text))
        else:
            pieces.append(replace(word, text=one_line(word.text)))
        position += len(word.text)
    return pieces


def _subtitles(cues: list[list[Word]], layout: Layout) -> Iterator[list[Word]]:
    r"""Fill lines and subtitles with words; the text of a word that begins a line starts with `\n`.

    Where lines are not filled across cues, every cue, and every `max_words_per_line` words of it, is a subtitle.
    """
    width, most = layout.max_line_width or UNLIMITED, layout.max_words_per_line or UNLIMITED
    subtitle: list[Word] = []
    used, n_lines = 0, 1  # characters in the current line, lines in the current subtitle
    for words in cues:
        for index, word in enumerate(words):
            n = len(clusters(word.text))
            pause = layout.joins_cues and bool(subtitle) and word.start - subtitle[-1].start > LONG_PAUSE_S
            border = not layout.joins_cues and bool(subtitle) and index % most == 0
            if subtitle and used + n <= width and not pause and not border:
                subtitle.append(word)
                used += n
                continue
            text = word.text.strip()
            used = len(clusters(text))
            full = layout.max_line_count is not None and (pause or n_lines >= layout.max_line_count)
            if subtitle and (border or full):
                yield subtitle
                subtitle, n_lines = [], 1
            elif subtitle:
                text, n_lines = "\n" + text, n_lines + 1
            subtitle.append(replace(word, text=text))
    if subtitle:
        yield subtitle


def _plain(words: list[Word]) -> tuple[float, float, str]:
    return words[0].start, words[-1].end, "".join(word.text for word in words)


def _highlighted(words: list[Word]) -> Iterator[tuple[float, float, str]]:
    """The subtitle once for every word, and without a mark for the time between two words."""
    last, _, plain = _plain(words)
    texts = [word.text for word in words]
    for index, word in enumerate(words):
        if word.start > last:
            yield last, word.start, plain
        yield word.start, word.end, "".join([*texts[:index], _underlined(word.text), *texts[index + 1 :]])
        last = word.end


def _underlined(text: str) -> str:
    indent = _INDENT.match(text)
    n = indent.end() if indent else 0
    return f"{text[:n]}<u>{text[n:]}</u>"
