"""Characters as people count them: Unicode's extended grapheme clusters (UAX #29)."""

from __future__ import annotations

from itertools import accumulate
from typing import cast


def clusters(text: str) -> list[str]:
    """The pieces that must not be cut: a base with its marks, a flag, an emoji of several code points."""
    if text.isascii() and "\r\n" not in text:
        return list(text)
    import regex  # noqa: PLC0415 - costs 20 ms, and English text never needs it

    return cast("list[str]", regex.findall(r"\X", text))


def cuts(text: str) -> set[int]:
    """Positions at which the text may be cut, its two ends included."""
    return {0, *accumulate(map(len, clusters(text)))}
