"""Transcripts to compare with: openai-whisper in float32, greedy, on the first 30 s of a clip.

    python -m tests.bench.reference CORPUS --set english --checkpoint base.pt --output reference.jsonl

A reference file has one object a line: `path`, `language` (the one decoded in), `tokens`, `text`, `samples` (how many
were heard), `samples_fingerprint`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.bench.corpus import BenchError, Clip, fingerprint, load_samples, optional, read_corpus


@dataclass(frozen=True, slots=True)
class Reference:
    """What the reference heard in one clip."""

    path: str
    language: str
    tokens: tuple[int, ...]
    """Token ids without prompt and end token."""
    text: str
    samples: int
    samples_fingerprint: str
    """See `corpus.fingerprint`; empty where the maker did not say."""


def read_references(path: Path) -> dict[str, Reference]:
    """References of a file by clip; fields that are not ours are overlooked."""
    references = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        references[row["path"]] = Reference(
            row["path"],
            row["language"],
            tuple(row["tokens"]),
            row["text"],
            row["samples"],
            row.get("samples_fingerprint", ""),
        )
    return references


def compute_references(clips: Iterable[Clip], checkpoint: str, *, timestamps: bool = False) -> Iterator[Reference]:
    """Transcribe with openai-whisper.

    Args:
        clips: recordings; one without a language is decoded in the language that the reference detects.
        checkpoint: a `.pt` file, or a name that openai-whisper knows and may fetch.
        timestamps: whether it says when.
    """
    whisper = optional("whisper", "openai-whisper")
    model = whisper.load_model(checkpoint, device="cpu").float().eval()
    for clip in clips:
        yield _transcribe(whisper, model, clip, timestamps=timestamps)


def _transcribe(whisper: Any, model: Any, clip: Clip, *, timestamps: bool) -> Reference:
    samples = load_samples(clip.path, whisper.audio.SAMPLE_RATE, whisper.audio.N_SAMPLES)
    mel = whisper.log_mel_spectrogram(whisper.pad_or_trim(samples), n_mels=model.dims.n_mels)
    known = clip.language if clip.language in whisper.tokenizer.LANGUAGES else None
    options = whisper.DecodingOptions(language=known, without_timestamps=not timestamps, temperature=0.0, fp16=False)
    result = whisper.decode(model, mel, options)
    return Reference(clip.name, result.language, tuple(result.tokens), result.text, len(samples), fingerprint(samples))


def main(arguments: list[str] | None = None) -> int:
    """Write a reference file."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.reference", description=__doc__)
    parser.add_argument("corpus", type=Path, help="folder with a manifest.jsonl")
    parser.add_argument("--set", help="only this set of the manifest")
    parser.add_argument("--checkpoint", default="base", help="openai-whisper's .pt file or model name (default: base)")
    parser.add_argument("--timestamps", action="store_true", help="decode with timestamps")
    parser.add_argument("--output", type=Path, required=True, help="the file to write, .jsonl")
    options = parser.parse_args(arguments)
    try:
        clips = read_corpus(options.corpus, options.set)
        with options.output.open("w", encoding="utf-8") as out:
            for reference in compute_references(clips, options.checkpoint, timestamps=options.timestamps):
                print(json.dumps(asdict(reference), ensure_ascii=False), file=out)
    except (BenchError, OSError) as error:
        sys.exit(f"error: {error}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
