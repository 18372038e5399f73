"""Compressed audio with damage in it, read by libraries in C: the rules are those of `wav`."""

from __future__ import annotations

import io
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import av
import numpy as np
import soundfile

from tests.fuzz.mutations import mutate
from tests.fuzz.wav import check, check_memory

if TYPE_CHECKING:
    from random import Random

__all__ = ["SEEDS", "check", "check_memory", "generate"]

SAMPLES = Path(__file__).parents[2] / "samples"
_KEPT = 12_000  # bytes of each sample: a second or so
_SUBTYPES = (
    *(("FLAC", "PCM_16"), ("OGG", "VORBIS"), ("OGG", "OPUS"), ("MP3", None), ("AIFF", None), ("AU", None)),
    *(("CAF", "ALAC_16"), ("W64", None), ("WAV", "IMA_ADPCM"), ("WAV", "MS_ADPCM"), ("WAV", "GSM610")),
)
_CODECS = (("ipod", "aac"), ("webm", "libopus"), ("adts", "aac"))


@cache
def seeds() -> list[bytes]:
    """The beginnings of the samples, and a tone in every format that can be written here."""
    tone = 0.5 * np.sin(np.arange(4800) / 5)
    found = [
        path.read_bytes()[:_KEPT] for path in sorted(SAMPLES.iterdir()) if path.suffix in {".flac", ".mp3", ".opus"}
    ]
    found += [_with_soundfile(tone, container, subtype) for container, subtype in _SUBTYPES]
    return found + [_with_ffmpeg(tone, container, codec) for container, codec in _CODECS]


def _with_soundfile(tone: np.ndarray[Any, Any], container: str, subtype: str | None) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, tone, 8000 if subtype == "GSM610" else 16000, format=container, subtype=subtype)
    return file.getvalue()


def _with_ffmpeg(tone: np.ndarray[Any, Any], container: str, codec: str) -> bytes:
    file = io.BytesIO()
    with av.open(file, "w", format=container) as output:
        stream: Any = output.add_stream(codec, rate=48000, layout="mono")
        frame = av.AudioFrame.from_ndarray(tone.astype(np.float32)[None], format="fltp", layout="mono")
        frame.sample_rate = 48000
        for packet in [*stream.encode(frame), *stream.encode(None)]:
            output.mux(packet)
    return file.getvalue()


def generate(dice: Random) -> bytes:
    """A seed with some bytes changed, most of them near its start, where the headers are."""
    data = dice.choice(seeds())
    head = dice.choice((64, 400, len(data)))
    data = mutate(data[:head], dice, most=6) + data[head:]
    return data[: dice.randint(1, len(data))] if dice.random() < 0.2 else data


SEEDS = seeds()
