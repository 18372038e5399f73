"""What an engine is to the benchmarks: loaded once, it hears recordings. Runs in any interpreter that has numpy."""

from __future__ import annotations

import itertools
import wave
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

SAMPLE_RATE = 16000

Result = dict[str, Any]
OnText = Callable[[], None]
Hear = Callable[[Any, "str | None", Result, OnText], Result]
"""Takes a path or samples, a language, options and `on_text`; gives `text`, `language`, `segments` and what else the
engine tells."""


@dataclass(frozen=True, slots=True)
class Engine:
    """A loaded engine."""

    hear: Hear
    hear_all: Callable[[Sequence[str], str | None, Result], list[str]] | None = None
    """Texts of many recordings given at once; None: the engine takes them one by one."""


def read(audio: Any) -> Any:
    """Samples, float32 (n,), of a path; samples are given back. Faster than any of the engines' own readers."""
    if not isinstance(audio, str | Path):
        return audio
    with wave.open(str(audio), "rb") as file:
        if (file.getframerate(), file.getnchannels(), file.getsampwidth()) != (SAMPLE_RATE, 1, 2):
            raise ValueError(f"{audio} is not 16-bit mono at {SAMPLE_RATE} Hz")
        return np.frombuffer(file.readframes(file.getnframes()), "<i2").astype(np.float32) / 32768.0


def each(stream: Iterable[Any], on_text: OnText) -> Iterator[Any]:
    """The same, telling of every piece of text that comes."""
    for piece in stream:
        on_text()
        yield piece


def join(heard: Iterable[tuple[Any, float, float, str]]) -> str:
    return "".join(text for *_, text in heard)


def segments(heard: Iterable[tuple[Any, float, float, str]]) -> list[Result]:
    """Segments of (window, start, end, text), windows numbered from 0 in the order in which they come."""
    grouped = itertools.groupby(heard, key=lambda segment: segment[0])
    return [
        {"start": float(start), "end": float(end), "text": text, "window": index}
        for index, (_, group) in enumerate(grouped)
        for _, start, end, text in group
    ]
