"""Where each millisecond of a short recording goes, and the least that this machine's arithmetic and memory allow.

    python -m tests.bench.budget samples/jfk.wav --model base --threads 2

In one process every run of an ONNX Runtime session is timed; reading and the log-mel are timed alone. What the actors
add is the time through them less the work that they report. Medians of several runs.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import wraps
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

from susurrus.actors import Pipeline
from susurrus.models import AudioReader, LogMel, ModelConfig, Whisper, ensure_model
from susurrus.models.context import AudioContext
from susurrus.protocol import Done
from tests.bench.ceilings import ceilings

OPTIONS: dict[str, Any] = {"language": "en", "timestamps": False}
PROMPT = 4  # tokens

Runs = dict[str, list[float]]
"""Milliseconds of every run of a session, by the stem of its graph's file."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One row."""

    stage: str
    ms: float
    floor_ms: float | None = None
    """None where no ceiling of the machine bounds it."""
    floor: str = ""
    """What does."""


@contextmanager
def watched_sessions() -> Iterator[Runs]:
    """Take the time of all sessions' runs meanwhile."""
    runs: Runs = {}
    kept = {name: getattr(ort.InferenceSession, name) for name in ("run", "run_with_iobinding")}

    def timed(original: Any) -> Any:
        @wraps(original)
        def run(session: ort.InferenceSession, *arguments: Any, **named: Any) -> Any:
            started = time.perf_counter()
            found = original(session, *arguments, **named)
            label = Path(str(session._model_path or "graph in memory")).stem
            runs.setdefault(label, []).append(1000 * (time.perf_counter() - started))
            return found

        return run

    for name, original in kept.items():
        setattr(ort.InferenceSession, name, timed(original))
    try:
        yield runs
    finally:
        for name, original in kept.items():
            setattr(ort.InferenceSession, name, original)


@dataclass(frozen=True, slots=True)
class Heard:
    """One run in one process, milliseconds."""

    sessions: Runs
    frontend: float
    rest: float
    """Of encoder's and decoder's work that no session does: rules, tokens, text, alignment of arrays."""


def hear(whisper: Whisper, clip: Path) -> Heard:
    """Transcribe once."""
    with watched_sessions() as runs:
        transcript = whisper.transcribe(clip, **OPTIONS)
    work = {name: 1000 * seconds for name, seconds in transcript.timings.items()}
    models = {name: times for name, times in runs.items() if "silero" not in name and "memory" not in name}
    rest = work["encoder"] + work["decoder"] - sum(map(sum, models.values()))
    return Heard(models, work["frontend"], rest)


def through_actors(model: str, threads: int, clip: Path, rounds: int) -> tuple[float, float]:
    """Milliseconds from path to text, and of those the work that the actors report; medians."""
    totals, work = [], []
    with Pipeline(model, threads=threads) as pipeline:
        pipeline.wait_until_ready()
        for _ in range(rounds + 1):
            started = time.perf_counter()
            *_, end = pipeline.transcribe(clip, **OPTIONS)
            assert isinstance(end, Done)
            totals.append(1000 * (time.perf_counter() - started))
            work.append(1000 * sum(end.timings.get(name, 0.0) for name in ("frontend", "encoder", "decoder")))
    return statistics.median(totals[1:]), statistics.median(work[1:])


@dataclass(frozen=True, slots=True)
class Floors:
    """The least time of each stage, milliseconds."""

    config: ModelConfig
    n_frames: int
    """That hold audio."""
    limits: dict[str, float]
    """As `ceilings` gives them."""

    @property
    def positions(self) -> int:
        """Of the encoder, that are computed."""
        total = self.config.dimensions.n_audio_ctx
        return len(AudioContext.of_audio(self.n_frames, total, self.config.audio.chunk_length).positions)

    def mel(self) -> float:
        """Fourier transform as a matrix product, and the filters."""
        audio = self.config.audio
        operations = 2 * self.n_frames * audio.n_freqs * (2 * audio.n_fft + audio.n_mels)
        return operations / self.limits["fp32 GF/s"] / 1e6

    def encoder(self) -> float:
        """Linear layers and convolutions in int8, attention in float32."""
        size, n = self.config.dimensions, self.positions
        width, layers = size.n_audio_state, size.n_audio_layer
        linear = 24 * width**2 * n * layers + 2 * 3 * width * (2 * n * size.n_mels + n * width)
        return linear / self.limits["int8 GOP/s"] / 1e6 + 4 * n**2 * width * layers / self.limits["fp32 GF/s"] / 1e6

    def cross(self) -> float:
        """Keys and values of the encoder's states, in int8."""
        size = self.config.dimensions
        return 4 * size.n_text_state**2 * self.positions * size.n_text_layer / self.limits["int8 GOP/s"] / 1e6

    def step(self, past: float) -> float:
        """All of the decoder's weights, int8 keys and values of the audio, float32 ones of the text, read once."""
        size = self.config.dimensions
        width, layers = size.n_text_state, size.n_text_layer
        weights = 14 * width**2 * layers + size.n_vocab * width
        caches = 2 * layers * width * (self.positions + 4 * past)
        return (weights + caches) / self.limits["memory GB/s"] / 1e6


def stages(heard: Sequence[Heard], read_ms: float, mel_ms: float, hops_ms: float, floors: Floors) -> list[Stage]:
    """The rows, medians of what was heard."""

    def middle(values: Iterator[float]) -> float:
        return statistics.median(values)

    names = list(heard[0].sessions)
    step_name = max(names, key=lambda name: len(heard[0].sessions[name]))  # run once a token
    n_steps = len(heard[0].sessions[step_name]) - 1
    frontend = middle(run.frontend for run in heard)
    found = [
        Stage("reading, resampling", read_ms),
        Stage("speech detector, cutting", max(0.0, frontend - read_ms - mel_ms)),
        Stage("log-mel", mel_ms, floors.mel(), "float32 products"),
    ]
    bounds = {"encoder": (floors.encoder(), f"int8 and float32 products, {floors.positions} positions")}
    bounds["cross_attention"] = (floors.cross(), "int8 products")
    found += [
        Stage(f"graph {name}", middle(sum(run.sessions[name]) for run in heard), *bounds.get(name, ()))
        for name in names
        if name != step_name
    ]
    prefill = middle(run.sessions[step_name][0] for run in heard)
    steps = middle(sum(run.sessions[step_name][1:]) for run in heard)
    floor = floors.step(PROMPT + n_steps / 2)
    return [
        *found,
        Stage("prompt", prefill, floor, "memory, read once"),
        Stage(
            f"{n_steps} steps of {steps / max(1, n_steps):.2f} ms", steps, n_steps * floor, "memory, read every step"
        ),
        Stage("rules, tokens, text", max(0.0, middle(run.rest for run in heard))),
        Stage("client, hub, messages", hops_ms),
    ]


def budget(model: str, clip: Path, threads: int, rounds: int) -> dict[str, Any]:
    """All of it, for JSON."""
    directory = ensure_model(model)
    config, log_mel = ModelConfig.from_directory(directory), LogMel.from_directory(directory)
    whisper = Whisper.load(directory, threads=threads)
    whisper.transcribe(clip, **OPTIONS)
    heard = [hear(whisper, clip) for _ in range(rounds)]
    reads, mels = [], []
    for _ in range(rounds):
        started = time.perf_counter()
        with AudioReader(clip, config.audio.sample_rate) as reader:
            samples = np.concatenate([block.copy() for block in reader])
        reads.append(1000 * (time.perf_counter() - started))
        started = time.perf_counter()
        log_mel(samples)
        mels.append(1000 * (time.perf_counter() - started))
    total, work = through_actors(model, threads, clip, rounds)
    limits = ceilings(threads)
    floors = Floors(config, len(samples) // config.audio.hop_length, limits)
    rows = stages(heard, statistics.median(reads), statistics.median(mels), max(0.0, total - work), floors)
    return {"stages": [asdict(row) for row in rows], "ceilings": limits, "through_actors_ms": total}


def main(arguments: list[str] | None = None) -> int:
    """Print it as JSON."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.budget", description=__doc__)
    parser.add_argument("clip", type=Path)
    parser.add_argument("--model", default="base")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args(arguments)
    print(json.dumps(budget(options.model, options.clip, options.threads, max(1, options.rounds)), indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
