"""How far this project's transcripts are from a reference's, clip by clip, and what the processes change (nothing).

    python -m tests.bench.parity CORPUS --set english --reference reference.jsonl --precision float32
    python -m tests.bench.parity CORPUS --set english --pipeline

Both sides hear the first 30 s of a clip, decode greedily in one try, in the same language; with `--timestamps` they
also say when.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from susurrus.actors import Pipeline
from susurrus.models import SusurrusError
from susurrus.protocol import Done
from tests.bench.corpus import BenchError, Clip, error_rate, fingerprint, load_samples, read_corpus, same_words
from tests.bench.engine import Difference, Engine
from tests.bench.reference import Reference, compute_references, read_references

OPENAI = "openai-whisper"


@dataclass(frozen=True, slots=True)
class Comparison:
    """One clip, heard by both."""

    clip: Clip
    reference: Reference
    text: str
    """Ours."""
    same_samples: bool
    difference: Difference | None
    """None: identical token ids."""


def compare(engine: Engine, clip: Clip, reference: Reference) -> Comparison:
    """Transcribe one clip and find the first token that the reference chose otherwise."""
    audio = engine.config.audio
    samples = load_samples(clip.path, audio.sample_rate, audio.n_samples)
    tokens, text = engine.transcribe(samples, reference.language)
    difference = None
    if tokens != reference.tokens:
        difference = engine.explain(samples, reference.language, tokens, reference.tokens)
    same_samples = len(samples) == min(reference.samples, audio.n_samples)
    if reference.samples_fingerprint:
        same_samples = fingerprint(samples) == reference.samples_fingerprint
    return Comparison(clip, reference, text, same_samples, difference)


def report(engine: Engine, found: Sequence[Comparison]) -> None:
    """Print every difference, then the counts."""
    for comparison in found:
        if comparison.difference is not None:
            _print_difference(engine, comparison, comparison.difference)
    clips = [comparison.clip for comparison in found]
    apart = [comparison for comparison in found if comparison.difference is not None]
    texts = [c for c in found if c.text.strip() != c.reference.text.strip()]
    words = [c for c in texts if not same_words(c.text, c.reference.text, c.reference.language)]
    print(f"identical token ids   {_share(len(found) - len(apart), len(found))}")
    print(f"different transcripts {_share(len(texts), len(found))}, {len(words)} of them after normalising")
    print(f"different samples     {_share(sum(not c.same_samples for c in found), len(found))}")
    print(f"ours                  {error_rate(clips, (c.text for c in found))}")
    print(f"reference             {error_rate(clips, (c.reference.text for c in found))}")


def _print_difference(engine: Engine, comparison: Comparison, difference: Difference) -> None:
    ours, theirs = engine.spell(difference.ours), engine.spell(difference.theirs)
    print(f"{comparison.clip.name}: step {difference.step}, ours {ours}, reference {theirs}")
    print(
        f"    gap {difference.gap:.4f} nats in our logits, reference's rank {difference.rank}, "
        f"our top two {difference.top_two:.4f} apart"
    )
    print(f"    ours      {comparison.text.strip()}")
    print(f"    reference {comparison.reference.text.strip()}")


def _share(part: int, whole: int) -> str:
    return f"{part} of {whole} ({100.0 * part / whole:.1f} %)"


def compare_pipeline(engine: Engine, clips: Sequence[Clip], precision: str, threads: int) -> int:
    """Transcribe whole clips in this process and by actors; print what differs and return how many do."""
    different = 0
    with Pipeline(engine.directory, precision=precision, threads=threads) as pipeline:
        for clip in clips:
            language = clip.language if clip.language in engine.tokenizer.special.languages else None
            here = _text_here(engine, clip, language)
            there = _text_there(pipeline, clip, language)
            if here != there:
                different += 1
                print(f"{clip.name}\n    in-process {here}\n    pipeline   {there}")
    print(f"pipeline's text equals the in-process text in {_share(len(clips) - different, len(clips))}")
    return different


def _text_here(engine: Engine, clip: Clip, language: str | None) -> str:
    try:
        return engine.whisper.transcribe(clip.path, language=language).text
    except SusurrusError as error:
        return f"(failed: {error})"


def _text_there(pipeline: Pipeline, clip: Clip, language: str | None) -> str:
    *_, end = pipeline.transcribe(clip.path, language=language)
    return end.text if isinstance(end, Done) else f"(failed: {getattr(end, 'text', '')})"


def references_for(clips: Sequence[Clip], source: str, checkpoint: str, *, timestamps: bool) -> dict[str, Reference]:
    """References by clip, read from a file or computed now.

    Raises:
        BenchError: the file lacks a clip, or does not exist.
    """
    if source == OPENAI:
        computed = compute_references(clips, checkpoint, timestamps=timestamps)
        return {reference.path: reference for reference in computed}
    if not Path(source).is_file():
        raise BenchError(f"--reference {source}: no such file; name one, or {OPENAI} to compute them")
    references = read_references(Path(source))
    missing = [clip.name for clip in clips if clip.name not in references]
    if missing:
        raise BenchError(f"--reference {source}: lacks {len(missing)} clips, the first is {missing[0]}")
    return references


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.parity", description=__doc__)
    add = parser.add_argument
    add("corpus", type=Path, help="folder with a manifest.jsonl")
    add("--set", help="only this set of the manifest")
    add("--model", default="base", help="model name or directory (default: base)")
    add("--precision", choices=("int8", "float32"), default="int8")
    add("--threads", type=int, default=0, help="0 takes the CPUs this process may use")
    add("--reference", default=OPENAI, help=f"a .jsonl file, or {OPENAI} (default) to compute it now")
    add("--checkpoint", default="base", help="weights of the reference that is computed: .pt file or name")
    add("--timestamps", action="store_true", help="decode with timestamps, in a file of references too")
    add("--pipeline", action="store_true", help="compare with the actors' text instead of a reference")
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Print the comparison; exit code 1 when the pipeline's text differs from the in-process one."""
    options = _parser().parse_args(arguments)
    try:
        clips = read_corpus(options.corpus, options.set)
        engine = Engine(options.model, options.precision, options.threads, timestamps=options.timestamps)
        if options.pipeline:
            return int(compare_pipeline(engine, clips, options.precision, options.threads) > 0)
        references = references_for(clips, options.reference, options.checkpoint, timestamps=options.timestamps)
        report(engine, [compare(engine, clip, references[clip.name]) for clip in clips])
    except (BenchError, SusurrusError) as error:
        sys.exit(f"error: {error}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
