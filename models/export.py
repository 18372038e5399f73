"""Any Whisper checkpoint as Optimum's three ONNX files: ``python -m susurrus.models.export``.

They are what other runtimes and phone builds take, and an independent witness for this project's own graphs. Needs the
extra `export` (torch, transformers, optimum-onnx, accelerate); running what it writes does not.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from susurrus.models.errors import OptionError, OutputError, SusurrusError
from susurrus.models.optimum.checkpoints import find_checkpoint
from susurrus.models.optimum.exporter import OPSETS, complete, export_graphs, quiet
from susurrus.models.optimum.output import new_folder, seal
from susurrus.models.optimum.parity import STEPS, Difference, ParityError, check_parity
from susurrus.models.optimum.versions import ExtraError, check_versions
from susurrus.models.provision import terminal_progress
from susurrus.models.provisioning.sources import known_models

_CODES = (
    (OptionError, 2),
    (ExtraError, 4),
    (ParityError, 5),
    (OutputError, 6),
    (SusurrusError, 3),
)  # of the first class that an error is of


def export(model: str, out: Path, *, opset: int = 17, revision: str | None = None) -> list[Difference]:
    """Export a checkpoint into a new folder, which is there only if its parity test was passed.

    Args:
        model: A known model, a checkpoint's folder, or an id of the Hugging Face hub.
        out: The folder to be made.
        opset: ONNX operator set.
        revision: Branch, tag or commit on the hub.

    Returns:
        How far the export is from torch.

    Raises:
        ExtraError: A package is missing.
        OptionError: The operator set cannot be written.
        ModelError: The checkpoint cannot be had or exported.
        ParityError: The export computes something else than torch.
        OutputError: The folder cannot be made.
    """
    check_versions()
    if opset not in OPSETS:
        raise OptionError(f"--opset {opset}: choose from {OPSETS[0]} to {OPSETS[-1]}")
    with new_folder(out) as folder, tempfile.TemporaryDirectory(prefix="susurrus-export-") as work:
        with terminal_progress() as progress:
            found = find_checkpoint(model, revision=revision, work=Path(work), progress=progress)
        _say(f"exporting {found.name} with opset {opset} (about a minute for base)")
        export_graphs(found, folder, opset)
        audio, special = complete(found, folder)
        _say("comparing the export with torch")
        with quiet():
            differences = check_parity(found.folder, folder, audio, special)
        seal(folder, found.name, found.hashes)
    return differences


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def in_words(folder: Path, differences: Sequence[Difference]) -> Iterator[str]:
    """Yield the tables at the end: files with their sizes, then how far every stage is from torch."""
    sizes = {path.name: path.stat().st_size for path in sorted(folder.iterdir())}
    width = max(map(len, sizes))
    yield f"{folder}: {sum(sizes.values()):,} bytes in {len(sizes)} files"
    yield from (f"  {name:{width}}  {size:>13,}" for name, size in sizes.items())
    yield ""
    yield f"{'torch against ONNX Runtime':28}  {'largest':>9}  {'mean':>9}  {'of the largest value':>20}"
    for stage in differences:
        yield f"  {stage.stage:26}  {stage.largest:9.2e}  {stage.mean:9.2e}  {stage.share:20.1e}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line. Returns what the help says."""
    options = _parser().parse_args(arguments)
    try:
        differences = export(options.model, options.out, opset=options.opset, revision=options.revision)
    except SusurrusError as error:
        _say(f"export: {error}")
        return next(code for kind, code in _CODES if isinstance(error, kind))
    except KeyboardInterrupt:
        _say("export: interrupted")
        return 130
    sys.stdout.writelines(f"{line}\n" for line in in_words(options.out, differences))
    return 0


def _parser() -> argparse.ArgumentParser:
    known = " or ".join(known_models())
    parser = argparse.ArgumentParser(
        prog="python -m susurrus.models.export",
        description="Export a Whisper checkpoint by Hugging Face's Optimum: encoder_model.onnx, decoder_model.onnx, "
        "decoder_with_past_model.onnx, and everything that is needed to run them. At the end the export is run "
        f"against torch: hidden states, the first step's logits, {STEPS} greedy steps.",
        epilog="Needs the extra export. Exit codes: 0 done, 2 wrong option, 3 the checkpoint is damaged or cannot be "
        "had, 4 a package is missing or of an untried version, 5 the export differs from torch, 6 the folder cannot "
        "be written.",
    )
    add = parser.add_argument
    add(
        "--model",
        required=True,
        metavar="MODEL",
        help=f"{known} (made from its verified weights), the folder of a checkpoint (Hugging Face's or CTranslate2's), "
        "or an id of the Hugging Face hub such as openai/whisper-small",
    )
    add("--out", required=True, type=Path, metavar="DIR", help="the folder to be made")
    add("--opset", type=int, default=17, help="ONNX operator set (default: 17)")
    add("--revision", help="branch, tag or commit of the hub's repository")
    return parser


if __name__ == "__main__":
    sys.exit(main())
