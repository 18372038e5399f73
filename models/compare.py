"""Where two pipelines part on one recording: ``python -m susurrus.models.compare CLIP``.

One is this project's; the other is openai-whisper, transformers, or another model directory. Both hear the first
window, greedily and without timestamps; samples, log-mel, hidden states, cross-attention keys and values, prompt,
logits, token ids and text are compared one after the other.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from susurrus.models.comparison.comparison import Comparison
from susurrus.models.comparison.own import OwnPipeline
from susurrus.models.comparison.pipeline import Pipeline
from susurrus.models.comparison.references import MODULES, OPENAI, load_reference
from susurrus.models.comparison.report import as_object, in_words
from susurrus.models.errors import OptionError, SusurrusError
from susurrus.models.languages import to_code
from susurrus.models.provision import ensure_model, terminal_progress
from susurrus.models.provisioning.manifest import PRECISIONS
from susurrus.models.provisioning.places import locate


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line. Returns 0 if they agree, 1 if they part, 2 for a wrong option, 3 for a damaged file."""
    options = _parser().parse_args(arguments)
    try:
        comparison = _compare(options)
    except SusurrusError as error:
        sys.stderr.write(f"compare: {error}\n")
        return 2 if isinstance(error, OptionError) else 3
    except KeyboardInterrupt:
        sys.stderr.write("compare: interrupted\n")
        return 130
    if options.json:
        lines = [json.dumps(as_object(comparison, options.clip), ensure_ascii=False, allow_nan=False)]
    else:
        lines = list(in_words(comparison, options.clip))
    sys.stdout.writelines(f"{line}\n" for line in lines)
    return 0 if comparison.parts_at is None else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m susurrus.models.compare",
        description="Compare two pipelines stage by stage on the first window of a recording, and say at which stage "
        "they part. Every stage is also given the reference's input, so that one fault does not hide another.",
        epilog="Exit codes: 0 they agree, 1 they part, 2 wrong option or missing library, 3 a file is damaged or "
        "missing.",
    )
    add = parser.add_argument
    add("clip", type=Path, metavar="CLIP", help="a recording of any format")
    add("--model", default="base", metavar="DIR", help="a known model or a model's folder (default: base)")
    add("--precision", choices=PRECISIONS, help="graphs to run (default: int8, or what an Optimum export has)")
    add(
        "--against",
        default=OPENAI,
        metavar="REFERENCE",
        help=f"{', '.join(MODULES)}, or a known model or a model's folder (default: {OPENAI})",
    )
    add(
        "--against-precision", choices=PRECISIONS, help="of a model's folder as the reference (default: as --precision)"
    )
    add(
        "--reference-checkpoint",
        type=Path,
        metavar="PATH",
        help="weights of openai-whisper or transformers: a checkpoint's folder, or a .pt file of openai-whisper "
        "(default: those the known model was made from)",
    )
    add("--language", help="code or name (default: what each of them hears)")
    add("--threads", type=int, default=0, help="of each session; 0 takes the CPUs this process may use")
    add("--json", action="store_true", help="write one JSON object instead of the table")
    return parser


def _compare(options: argparse.Namespace) -> Comparison:
    language = to_code(options.language) if options.language else None
    directory = _directory(options.model, options.precision)
    reference = _reference(options, directory)
    other = OwnPipeline.load(directory, precision=options.precision, threads=options.threads)
    if language and other.tokenizer.special.multilingual and language not in other.tokenizer.special.languages:
        raise OptionError(f"--language {options.language}: {directory} does not know it")
    return Comparison(reference, other, options.clip, language)


def _reference(options: argparse.Namespace, directory: Path) -> Pipeline:
    if options.against in MODULES:
        with terminal_progress() as progress:
            return load_reference(
                options.against, directory, options.reference_checkpoint, threads=options.threads, progress=progress
            )
    if options.reference_checkpoint is not None:
        raise OptionError(f"--reference-checkpoint goes with --against {' or '.join(MODULES)}")
    precision = options.against_precision or options.precision
    return OwnPipeline.load(_directory(options.against, precision), precision=precision, threads=options.threads)


def _directory(model: str, precision: str | None) -> Path:
    """The model directory: a name's is provisioned, a folder is taken as it is, faulty or not."""
    path, name = locate(model)
    if not name:
        return path
    with terminal_progress() as progress:
        return ensure_model(model, precisions=(precision,) if precision else None, progress=progress)


if __name__ == "__main__":
    sys.exit(main())
