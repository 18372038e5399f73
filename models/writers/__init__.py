"""Finished recordings as text files: plain text, subtitles, tables, documents.

    Transcript ──┐
                 ├─> Document ──> render("srt") ──> str, to be written as UTF-8
    events ──────┘

Pure: nothing here opens a file. Formats that openai-whisper has too are the same byte for byte, except where its
own would be damaged: see `subtitles` and docs/output.md.
"""

from __future__ import annotations

from collections.abc import Callable

from susurrus.models.errors import OptionError
from susurrus.models.writers.documents import Document, DocumentSegment, to_json, to_jsonl
from susurrus.models.writers.subtitles import Layout, to_srt, to_vtt
from susurrus.models.writers.tables import to_lrc, to_tsv, to_txt

__all__ = ["ALL", "FORMATS", "Document", "DocumentSegment", "Layout", "parse_formats", "render"]

_WRITERS: dict[str, Callable[[Document, Layout], str]] = {
    "txt": to_txt,
    "srt": to_srt,
    "vtt": to_vtt,
    "tsv": to_tsv,
    "json": to_json,
    "jsonl": to_jsonl,
    "lrc": to_lrc,
}

FORMATS = tuple(_WRITERS)
"""Names of the formats, which are their file extensions too."""

ALL = "all"


def parse_formats(text: str) -> tuple[str, ...]:
    """The formats of a list such as `txt,srt` or `all`, each once.

    Raises:
        OptionError: one does not exist, or there is none.
    """
    names = [name.strip().lower() for name in text.split(",") if name.strip()]
    if unknown := [name for name in names if name not in (*FORMATS, ALL)]:
        raise OptionError(f"--format {unknown[0]!r} does not exist: use {', '.join(FORMATS)} or {ALL}")
    if not names:
        raise OptionError(f"--format is empty: use {', '.join(FORMATS)} or {ALL}")
    return FORMATS if ALL in names else tuple(dict.fromkeys(names))


def render(document: Document, kind: str, layout: Layout | None = None) -> str:
    r"""The content of a file: lines that end with `\n`, no byte order mark.

    Args:
        document: the finished recording.
        kind: one of `FORMATS`.
        layout: how subtitles are broken into lines.
    """
    return _WRITERS[kind](document, layout or Layout())
