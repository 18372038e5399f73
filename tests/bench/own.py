"""This project as an engine: in one process, and as its actors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.bench.hearing import Engine, OnText, Result, segments


def ours(model: str, threads: int, options: Result) -> Engine:
    """This project in one process; load options: `precision`, and `model`, another directory."""
    from susurrus.models import Partial, Transcript, Whisper  # noqa: PLC0415 - each engine is in another interpreter

    whisper = Whisper.load(options.pop("model", model), precision=options.pop("precision", None), threads=threads)

    def hear(audio: Any, language: str | None, options: Result, on_text: OnText) -> Result:
        for item in whisper.stream(audio, language=language, **options):
            if isinstance(item, Partial) and item.hypothesis.text:
                on_text()
        assert isinstance(item, Transcript)
        return _of_transcript(item)

    return Engine(hear)


def _of_transcript(transcript: Any) -> Result:
    cues = [(segment.window, cue) for segment in transcript.segments for cue in segment.cues]
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
        "segments": segments((window, cue.start, cue.end, cue.text) for window, cue in cues),
        "words": [(word.text, word.start, word.end, word.probability) for _, cue in cues for word in cue.words],
        "coverage": transcript.coverage,
        "speech_s": transcript.speech_s,
        "warnings": transcript.warnings,
        "windows": windows,
    }


def pipeline(model: str, threads: int, options: Result) -> Engine:
    """This project as its actors, through a client that stays; load options are those of `Pipeline`."""
    from susurrus.actors import Pipeline  # noqa: PLC0415
    from susurrus.models.options import DecodingOptions  # noqa: PLC0415
    from susurrus.protocol import Done, Partial, TerminalEvent  # noqa: PLC0415

    running = Pipeline(model, threads=threads, **options).start()
    running.wait_until_ready()
    client = running.client()

    def hear(audio: Any, language: str | None, options: Result, on_text: OnText) -> Result:
        job = client.submit(str(audio), options=running.check(DecodingOptions(language=language, **options)))
        for event in client.follow(job):
            if isinstance(event, Partial) and event.text:
                on_text()
        if not isinstance(event, Done):
            raise RuntimeError(f"{event.TYPE}: {getattr(event, 'text', '')}")  # noqa: TRY004 - no type is wrong
        return {"text": event.text, "language": event.language, "segments": [], "timings": event.timings}

    def hear_all(audios: Sequence[str], language: str | None, options: Result) -> list[str]:
        wanted = running.check(DecodingOptions(language=language, **options))
        jobs = [client.submit(audio, options=wanted) for audio in audios]
        texts: dict[bytes, str] = {}
        while len(texts) < len(jobs):
            event = client.receive()
            if isinstance(event, TerminalEvent):
                texts[event.job] = event.text if isinstance(event, Done) else ""
        return [texts[job] for job in jobs]

    return Engine(hear, hear_all)
