"""Transcribe clips with one engine: a script of its own, run by `quality.py` in the interpreter that has the engine.

    /path/to/python tests/bench/peers.py ENGINE MODEL JOBS.jsonl OUTPUT.jsonl --threads 2 --options '{"beam_size": 1}'

A job is one line: `name`, `samples` (a .npy file: float32 mono at 16 kHz, so that all engines hear the same),
`language` (null: the engine finds it), `fingerprint`. To each the output gains a line: `name`, `fingerprint`, `text`,
`language`, `segments` (`start`, `end`, `text`, `window`: index of the stretch of audio that was decoded at once),
`words` (text, start, end, probability; with the option `word_timestamps`), `seconds` taken, for an exception `error`.
What the output holds already is not computed again.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

SAMPLE_RATE = 16000

Result = dict[str, Any]
Transcribe = Callable[[Any, "str | None"], Result]
"""Takes samples and a language and gives `text`, `language`, `segments` and what else the engine tells."""


def ours(model: str, threads: int, options: Result) -> Transcribe:
    """Load this project; the options are those of `Whisper.transcribe`, `precision`, and `model`: another directory."""
    from susurrus.models import Whisper  # noqa: PLC0415 - each engine is in another interpreter

    model = options.pop("model", model)
    whisper = Whisper.load(model, precision=options.pop("precision", None), threads=threads)

    def transcribe(samples: Any, language: str | None) -> Result:
        transcript = whisper.transcribe(samples, language=language, **options)
        cues = [
            (segment.window, cue.start, cue.end, cue.text) for segment in transcript.segments for cue in segment.cues
        ]
        windows = [
            {
                "start": segment.start,
                "end": segment.end,
                "speech": [[span.start, span.end] for span in segment.speech],
                "temperature": segment.decoded.temperature,
                "avg_logprob": segment.decoded.avg_logprob,
                "compression_ratio": segment.decoded.compression_ratio,
                "no_speech_prob": segment.decoded.no_speech_prob,
                "text": segment.text,
            }
            for segment in transcript.segments
        ]
        return {
            "text": transcript.text,
            "language": transcript.language,
            "segments": _segments(cues),
            "words": [
                (word.text, word.start, word.end, word.probability)
                for segment in transcript.segments
                for cue in segment.cues
                for word in cue.words
            ],
            "coverage": transcript.coverage,
            "speech_s": transcript.speech_s,
            "warnings": transcript.warnings,
            "windows": windows,
        }

    return transcribe


def faster_whisper(model: str, threads: int, options: Result) -> Transcribe:
    """Load faster-whisper; `batched` takes its pipeline for long recordings, the other options are `transcribe`'s."""
    from faster_whisper import BatchedInferencePipeline, WhisperModel  # noqa: PLC0415

    compute_type = options.pop("compute_type", "int8")
    whisper = WhisperModel(model, device="cpu", compute_type=compute_type, cpu_threads=threads)
    batched = options.pop("batched", False)
    run = BatchedInferencePipeline(whisper).transcribe if batched else whisper.transcribe

    def transcribe(samples: Any, language: str | None) -> Result:
        found, info = run(samples, language=language, **options)
        found = list(found)
        heard = [(segment.seek, segment.start, segment.end, segment.text) for segment in found]
        if batched:  # every chunk is decoded for itself, and is one segment
            heard = [(index, *segment[1:]) for index, segment in enumerate(heard)]
        words = [
            (word.word, float(word.start), float(word.end), float(word.probability))
            for segment in found
            for word in segment.words or ()
        ]
        return {"text": _join(heard), "language": info.language, "segments": _segments(heard), "words": words}

    return transcribe


def openai_whisper(model: str, threads: int, options: Result) -> Transcribe:
    """Load openai-whisper, float32; the options are those of `transcribe`, and `alignment_heads`: of which model.

    A .pt file does not bring the heads that word times are found from.
    """
    import torch  # noqa: PLC0415
    import whisper  # noqa: PLC0415

    torch.set_num_threads(threads)
    loaded = whisper.load_model(model, device="cpu").float().eval()
    if heads := options.pop("alignment_heads", None):
        loaded.set_alignment_heads(whisper._ALIGNMENT_HEADS[heads])

    def transcribe(samples: Any, language: str | None) -> Result:
        torch.manual_seed(0)  # temperatures above 0 draw
        found = loaded.transcribe(samples, language=language, fp16=False, verbose=None, **options)
        heard = [(segment["seek"], segment["start"], segment["end"], segment["text"]) for segment in found["segments"]]
        words = [
            (word["word"], float(word["start"]), float(word["end"]), float(word["probability"]))
            for segment in found["segments"]
            for word in segment.get("words", ())
        ]
        return {"text": found["text"], "language": found["language"], "segments": _segments(heard), "words": words}

    return transcribe


def openvino(model: str, threads: int, options: Result) -> Transcribe:
    """Load OpenVINO GenAI's pipeline; the options are those of `generate`."""
    import openvino_genai  # noqa: PLC0415

    pipeline = openvino_genai.WhisperPipeline(model, "CPU", INFERENCE_NUM_THREADS=threads)

    def transcribe(samples: Any, language: str | None) -> Result:
        named = {} if language is None else {"language": f"<|{language}|>"}
        found = pipeline.generate(samples.tolist(), return_timestamps=True, task="transcribe", **named, **options)
        heard = [(0, chunk.start_ts, chunk.end_ts, chunk.text) for chunk in found.chunks or []]
        return {"text": found.texts[0], "language": found.language or language, "segments": _segments(heard)}

    return transcribe


ENGINES: dict[str, Callable[[str, int, Result], Transcribe]] = {
    "ours": ours,
    "faster-whisper": faster_whisper,
    "openai-whisper": openai_whisper,
    "openvino": openvino,
}


def _join(heard: Iterable[tuple[Any, float, float, str]]) -> str:
    return "".join(text for *_, text in heard)


def _segments(heard: Iterable[tuple[Any, float, float, str]]) -> list[Result]:
    """Segments of (window, start, end, text), windows numbered from 0 in the order in which they come."""
    grouped = itertools.groupby(heard, key=lambda segment: segment[0])
    return [
        {"start": float(start), "end": float(end), "text": text, "window": index}
        for index, (_, group) in enumerate(grouped)
        for _, start, end, text in group
    ]


def transcribed(output: Path) -> set[tuple[str, str]]:
    """Name and fingerprint of every clip that an output file holds."""
    if not output.exists():
        return set()
    rows = (json.loads(line) for line in output.read_text(encoding="utf-8").splitlines())
    return {(row["name"], row["fingerprint"]) for row in rows}


def main() -> int:
    """Add to the output a line for every job that is not in it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("engine", choices=sorted(ENGINES))
    parser.add_argument("model")
    parser.add_argument("jobs", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--options", type=json.loads, default={})
    arguments = parser.parse_args()
    jobs = [json.loads(line) for line in arguments.jobs.read_text(encoding="utf-8").splitlines()]
    done = transcribed(arguments.output)
    jobs = [job for job in jobs if (job["name"], job["fingerprint"]) not in done]
    if not jobs:
        return 0
    transcribe = ENGINES[arguments.engine](arguments.model, arguments.threads, arguments.options)
    transcribe(np.zeros(SAMPLE_RATE, np.float32), "en")  # the first call of a process is slower than any other
    with arguments.output.open("a", encoding="utf-8") as out:
        for job in jobs:
            started = time.perf_counter()
            try:
                result = transcribe(np.load(job["samples"]), job["language"])
            except Exception as error:  # noqa: BLE001 - an engine that fails on a clip is a finding
                result = {"text": "", "segments": [], "error": f"{type(error).__name__}: {error}"}
            seconds = round(time.perf_counter() - started, 3)
            row = {"name": job["name"], "fingerprint": job["fingerprint"], "seconds": seconds, **result}
            print(json.dumps(row, ensure_ascii=False), file=out, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
