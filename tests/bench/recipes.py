"""Recordings that are made, not found: what is hard about silence, noise, gaps, repeats and the ends of windows.

Made of numpy with fixed seeds and of the recordings in `samples/`, so everybody has the same. Each says what a
transcript of it must be.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tests.bench.cases import SAMPLE_RATE, Case
from tests.bench.corpus import load_samples

Float32Array = NDArray[np.float32]

SAMPLES = Path(__file__).resolve().parents[2] / "samples"
SILENCE_SET, SPEECH_SET = "made-silence", "made-speech"
ONSET = 0.03  # share of the loudest sample from which on the speaker is taken to speak: about -30 dB

_LEAST_STEP = 2.0**-15  # of 16-bit audio


def zeros(seconds: float) -> Float32Array:
    """Digital silence."""
    return np.zeros(round(seconds * SAMPLE_RATE), np.float32)


def dither(seconds: float, seed: int = 1) -> Float32Array:
    """Silence of a 16-bit recorder: every sample -1, 0 or 1 steps."""
    steps = np.random.default_rng(seed).integers(-1, 2, round(seconds * SAMPLE_RATE))
    return (steps * _LEAST_STEP).astype(np.float32)


def _scaled(samples: NDArray[np.floating], level_db: float) -> Float32Array:
    """The same with an RMS level in dBFS."""
    gain = 10.0 ** (level_db / 20) / float(np.sqrt(np.mean(samples.astype(np.float64) ** 2)))
    scaled: Float32Array = (gain * samples).astype(np.float32)
    return scaled


def noise(seconds: float, level_db: float, *, slope: float = 1.0, seed: int = 2) -> Float32Array:
    """Noise of an RMS level in dBFS whose power falls with frequency ** slope: 0 white, 1 pink, 2 brown."""
    n = round(seconds * SAMPLE_RATE)
    spectrum = np.fft.rfft(np.random.default_rng(seed).standard_normal(n))
    frequency = np.maximum(np.fft.rfftfreq(n, 1 / SAMPLE_RATE), 20.0)  # below hearing, no more rise
    shaped = np.fft.irfft(spectrum / frequency ** (slope / 2), n)
    return _scaled(shaped, level_db)


def tone(seconds: float, frequency: float, level_db: float = -20.0) -> Float32Array:
    """A sine of an RMS level in dBFS."""
    times = np.arange(round(seconds * SAMPLE_RATE)) / SAMPLE_RATE
    return _scaled(np.sin(2 * np.pi * frequency * times), level_db)


def clicks(seconds: float) -> Float32Array:
    """A click of 1 ms every second."""
    samples = zeros(seconds)
    for start in range(SAMPLE_RATE // 2, len(samples), SAMPLE_RATE):
        samples[start : start + SAMPLE_RATE // 1000] = 0.5
    return samples


def ringing(seconds: float) -> Float32Array:
    """The ring-back tone of a European telephone: 425 Hz, 1 s on, 4 s off."""
    samples = tone(seconds, 425.0)
    samples[(np.arange(len(samples)) // SAMPLE_RATE) % 5 != 0] = 0
    return samples


def silence_cases() -> Iterator[Case]:
    """Recordings in which nobody speaks."""
    made = {f"zeros_{seconds:g}s": zeros(seconds) for seconds in (1.2, 5, 6.6, 30, 65)}
    made |= {f"dither_{seconds:g}s": dither(seconds) for seconds in (1.2, 5, 30, 65)}
    for colour, slope in (("white", 0.0), ("pink", 1.0), ("brown", 2.0)):
        made |= {f"{colour}_{level}dB": noise(20, level, slope=slope) for level in (-20, -30, -45, -60)}
    made["pink_-50dB_6.6s"] = noise(6.6, -50)
    made |= {f"tone_{frequency}Hz": tone(20, frequency) for frequency in (50, 440, 1000)}
    made["hum"] = tone(20, 50, -26) + tone(20, 100, -32) + tone(20, 150, -38) + noise(20, -60)
    made |= {"clicks": clicks(20), "ringing": ringing(40)}
    for name, samples in made.items():
        yield Case(f"made/{name}", SILENCE_SET, samples, "", None)


@cache
def sample(name: str) -> Float32Array:
    """One of `samples/`."""
    return load_samples(SAMPLES / name, SAMPLE_RATE, 120 * SAMPLE_RATE)


@cache
def _texts() -> dict[str, str]:
    rows = map(json.loads, (SAMPLES / "manifest.jsonl").read_text(encoding="utf-8").splitlines())
    return {row["path"]: row["text"] for row in rows}


def at_level(samples: Float32Array, level_db: float) -> Float32Array:
    """The same as loud as `level_db`, dBFS RMS, in steps of 16 bits."""
    steps: Float32Array = np.rint(_scaled(samples, level_db) / np.float32(_LEAST_STEP))
    return steps * np.float32(_LEAST_STEP)


Part = str | Float32Array
"""The name of a sample, or what is between samples."""


def joined(name: str, *parts: Part, language: str | None = "en", expected_language: str | None = None) -> Case:
    """A recording of samples and what is between them."""
    blocks: list[Float32Array] = []
    spoken: list[tuple[float, float]] = []
    texts: list[str] = []
    for part in parts:
        if isinstance(part, str):
            start = sum(map(len, blocks))
            loud = np.flatnonzero(np.abs(sample(part)) > ONSET * np.abs(sample(part)).max())
            spoken.append(((start + int(loud[0])) / SAMPLE_RATE, (start + int(loud[-1])) / SAMPLE_RATE))
            texts.append(_texts()[part])
        blocks.append(sample(part) if isinstance(part, str) else part)
    return Case(
        f"made/{name}",
        SPEECH_SET,
        np.concatenate(blocks),
        " ".join(texts),
        language,
        spoken=tuple(spoken),
        expected_language=expected_language,
    )


CUTS = (15.0, 25.0, 26.0, 28.0, 29.4, 29.5, 29.99, 30.0, 30.01, 31.0, 44.9)
"""Seconds of the reading that is cut, around the length of a window and within words."""
READING = "sonnet_2.mp3"


def cut_cases() -> Iterator[Case]:
    """One reading, stopped: a longer one has the words of a shorter one."""
    for seconds in CUTS:
        samples = sample(READING)[: round(seconds * SAMPLE_RATE)]
        yield Case(f"made/cut_{seconds:g}s", SPEECH_SET, samples, _texts()[READING], "en", is_cut=True)


def speech_cases() -> Iterator[Case]:
    """Speech with something around it."""
    jfk, short, english, japanese, spanish = (
        "jfk.wav",
        "austen.wav",
        "librispeech_en.flac",
        "common_voice_ja.mp3",
        "mls_es.opus",
    )
    pause = zeros(0.4)
    yield joined("noise_between", jfk, noise(30, -45), READING)
    yield joined("three_times", short, zeros(0.6), short, zeros(0.6), short)
    yield joined("five_times", jfk, pause, jfk, pause, jfk, pause, jfk, pause, jfk)
    yield joined("gap_30s", jfk, zeros(30), jfk)
    yield joined("gaps_5s", short, zeros(5), english, zeros(5), jfk, zeros(5), short)
    yield joined("readings_95s", READING, pause, jfk, pause, english, pause, short, pause, jfk, pause, english, short)
    yield joined("unbroken_58s", jfk, english, short, jfk, english, short, jfk, english, short)
    for level in (-40, -50):
        for name in (jfk, english):
            case = joined(f"quiet_{level}dB_{Path(name).stem}", name)
            yield Case(case.name, case.set, at_level(case.samples, level), case.text, "en", spoken=case.spoken)
    yield joined("zeros_37s_japanese", zeros(37), japanese, language=None, expected_language="ja")
    yield joined("zeros_10s_japanese", zeros(10), japanese, language=None, expected_language="ja")
    yield joined("ringing_40s_spanish", ringing(40), spanish, language=None, expected_language="es")
    yield from cut_cases()


def made_cases() -> Iterator[Case]:
    """All of them."""
    yield from silence_cases()
    yield from speech_cases()
