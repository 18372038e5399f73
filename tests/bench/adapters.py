"""The peers as engines. Each is in an interpreter of its own: imports are inside. Options are its functions'."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from tests.bench.hearing import SAMPLE_RATE, Engine, OnText, Result, each, join, read, segments
from tests.bench.own import ours, pipeline


def faster_whisper(model: str, threads: int, options: Result) -> Engine:
    """faster-whisper; load option `compute_type`; `batched` takes its pipeline for long recordings."""
    from faster_whisper import BatchedInferencePipeline, WhisperModel  # noqa: PLC0415

    compute_type = options.pop("compute_type", "int8")
    whisper = WhisperModel(model, device="cpu", compute_type=compute_type, cpu_threads=threads)
    in_batches = BatchedInferencePipeline(whisper)

    def hear(audio: Any, language: str | None, options: Result, on_text: OnText) -> Result:
        batched = options.pop("batched", False)
        run = in_batches.transcribe if batched else whisper.transcribe
        stream, info = run(read(audio), language=language, **options)
        found = list(each(stream, on_text))
        heard = [(segment.seek, segment.start, segment.end, segment.text) for segment in found]
        if batched:  # every chunk is decoded for itself, and is one segment
            heard = [(index, *segment[1:]) for index, segment in enumerate(heard)]
        words = [
            (word.word, float(word.start), float(word.end), float(word.probability))
            for segment in found
            for word in segment.words or ()
        ]
        return {"text": join(heard), "language": info.language, "segments": segments(heard), "words": words}

    return Engine(hear)


def openai_whisper(model: str, threads: int, options: Result) -> Engine:
    """openai-whisper, float32; load option `alignment_heads`: of which model.

    A .pt file does not bring the heads that word times are found from.
    """
    import torch  # noqa: PLC0415
    import whisper  # noqa: PLC0415

    torch.set_num_threads(threads)
    loaded = whisper.load_model(model, device="cpu").float().eval()
    if heads := options.pop("alignment_heads", None):
        loaded.set_alignment_heads(whisper._ALIGNMENT_HEADS[heads])

    def hear(audio: Any, language: str | None, options: Result, _on_text: OnText) -> Result:
        torch.manual_seed(0)  # temperatures above 0 draw
        found = loaded.transcribe(read(audio), language=language, fp16=False, verbose=None, **options)
        heard = [(segment["seek"], segment["start"], segment["end"], segment["text"]) for segment in found["segments"]]
        words = [
            (word["word"], float(word["start"]), float(word["end"]), float(word["probability"]))
            for segment in found["segments"]
            for word in segment.get("words", ())
        ]
        return {"text": found["text"], "language": found["language"], "segments": segments(heard), "words": words}

    return Engine(hear)


def openvino(model: str, threads: int, _options: Result) -> Engine:
    """OpenVINO GenAI's pipeline. It streams the text of short recordings when no timestamps are asked for."""
    import openvino_genai  # noqa: PLC0415

    loaded = openvino_genai.WhisperPipeline(model, "CPU", INFERENCE_NUM_THREADS=threads)

    def hear(audio: Any, language: str | None, options: Result, on_text: OnText) -> Result:
        settings = {"return_timestamps": True, "task": "transcribe", **options}
        if language is not None:
            settings["language"] = f"<|{language}|>"
        if not settings["return_timestamps"]:
            settings["streamer"] = lambda text: on_text() if text else None
        found = loaded.generate(read(audio), **settings)
        heard = [(0, chunk.start_ts, chunk.end_ts, chunk.text) for chunk in found.chunks or []]
        return {"text": found.texts[0], "language": found.language or language, "segments": segments(heard)}

    return Engine(hear)


def whisper_cpp(model: str, threads: int, _options: Result) -> Engine:
    """whisper.cpp by pywhispercpp, from a ggml file."""
    loaded = import_module("pywhispercpp.model").Model(
        model, n_threads=threads, print_progress=False, redirect_whispercpp_logs_to=None
    )

    def hear(audio: Any, language: str | None, options: Result, on_text: OnText) -> Result:
        found = loaded.transcribe(
            read(audio), language=language or "auto", new_segment_callback=lambda _segment: on_text(), **options
        )
        heard = [(0, segment.t0 / 100, segment.t1 / 100, f" {segment.text}") for segment in found]
        return {"text": join(heard), "language": language, "segments": segments(heard)}

    return Engine(hear)


def sherpa_onnx(model: str, threads: int, options: Result) -> Engine:
    """sherpa-onnx, from a folder; load options: `language`, and `vad`, Silero's file, for more than 30 s at once."""
    sherpa = import_module("sherpa_onnx")
    paths = {
        part: str(next(Path(model).glob(pattern)))
        for part, pattern in (("encoder", "*encoder*.onnx"), ("decoder", "*decoder*.onnx"), ("tokens", "*tokens.txt"))
    }
    recognizer = sherpa.OfflineRecognizer.from_whisper(
        **paths, language=options.pop("language", "en"), task="transcribe", num_threads=threads
    )
    vad = options.pop("vad", None)

    def decode(samples: Any) -> str:
        stream = recognizer.create_stream()
        stream.accept_waveform(SAMPLE_RATE, samples)
        recognizer.decode_stream(stream)
        return str(stream.result.text).strip()

    def hear(audio: Any, language: str | None, _options: Result, on_text: OnText) -> Result:
        samples, texts = read(audio), list[str]()
        for piece in _spoken(sherpa, vad, samples):
            texts.append(decode(piece))
            on_text()
        return {"text": " ".join(texts), "language": language, "segments": []}

    return Engine(hear)


def _spoken(sherpa: Any, vad: str | None, samples: Any) -> Iterable[Any]:
    """Pieces that Whisper takes at once, cut as in sherpa-onnx's `vad-with-non-streaming-asr.py`."""
    if len(samples) <= 30 * SAMPLE_RATE:
        yield samples
        return
    if vad is None:
        raise ValueError("more than 30 s want the option vad, Silero's file")
    config = sherpa.VadModelConfig()
    config.silero_vad.model, config.sample_rate = vad, SAMPLE_RATE
    config.silero_vad.max_speech_duration = 20.0
    detector, size = sherpa.VoiceActivityDetector(config, buffer_size_in_seconds=100), 512
    for start in range(0, len(samples), size):
        detector.accept_waveform(samples[start : start + size])
        if start + size >= len(samples):
            detector.flush()
        while not detector.empty():
            yield np.array(detector.front.samples, np.float32)
            detector.pop()


ENGINES: dict[str, Callable[[str, int, Result], Engine]] = {
    "ours": ours,
    "pipeline": pipeline,
    "faster-whisper": faster_whisper,
    "openai-whisper": openai_whisper,
    "openvino": openvino,
    "whisper.cpp": whisper_cpp,
    "sherpa-onnx": sherpa_onnx,
}
