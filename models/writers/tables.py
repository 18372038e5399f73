"""One line per cue: plain text, tab-separated values, lyrics.

References: `WriteTXT` and `WriteTSV` in whisper/utils.py (openai-whisper); LRC, "simple format", as players read it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from susurrus.models.writers.documents import Document, span_ms

if TYPE_CHECKING:
    from susurrus.models.writers.subtitles import Layout


def to_txt(document: Document, _layout: Layout) -> str:
    """The texts alone."""
    return "".join(f"{segment.text}\n" for segment in document.spoken)


def to_tsv(document: Document, _layout: Layout) -> str:
    """Start and end in whole milliseconds, text; a header line."""
    lines = ["start\tend\ttext\n"]
    for segment in document.spoken:
        start, end = span_ms(segment.cue.start, segment.cue.end, document.duration)
        text = segment.text.replace("\t", " ")
        lines.append(f"{start}\t{end}\t{text}\n")
    return "".join(lines)


def to_lrc(document: Document, _layout: Layout) -> str:
    """`[mm:ss.xx]` with hundredths of a second, and the text; minutes go on counting after an hour."""
    return "".join(f"[{_lrc_time(segment.cue.start)}]{segment.text}\n" for segment in document.spoken)


def _lrc_time(seconds: float) -> str:
    minutes, hundredths = divmod(round(100 * max(0.0, seconds)), 60 * 100)
    return f"{minutes:02}:{hundredths // 100:02}.{hundredths % 100:02}"
