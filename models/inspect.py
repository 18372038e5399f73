"""What is inside a Whisper ONNX model: ``python -m susurrus.models.inspect DIR_OR_FILE``.

Works on a model directory, on a folder of any exporter's ONNX files, and on one file.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from susurrus.models.errors import ModelError
from susurrus.models.graphs.report import GraphReport, inspect_file
from susurrus.models.special_tokens import SpecialTokens


@dataclass(frozen=True, slots=True)
class Report:
    """What is inside a folder or a file."""

    path: str
    files: dict[str, int]
    """Every file below, with its bytes."""
    graphs: list[GraphReport]
    special_tokens: SpecialTokens | None
    """From the vocabulary that lies there, if one does."""
    notes: list[str]
    """Why something could not be told."""


def inspect(path: Path) -> Report:
    """Report on an ONNX file, or on a folder of them with everything else that lies there.

    Raises:
        ModelError: If there is no ONNX file, or one is damaged.
    """
    files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
    names = {p: p.relative_to(path).as_posix() if path.is_dir() else p.name for p in files}
    graphs = [p for p in files if p.suffix == ".onnx" or p == path]
    if not graphs:
        raise ModelError(f"{path} holds no .onnx file: give a model's folder or an ONNX file")
    reports = [inspect_file(p, names[p]) for p in graphs]
    notes: list[str] = []
    try:
        special = special_tokens(path if path.is_dir() else path.parent)
    except ModelError as error:
        special, notes = None, [str(error)]
    return Report(str(path), {name: p.stat().st_size for p, name in names.items()}, reports, special, notes)


def special_tokens(directory: Path) -> SpecialTokens | None:
    """Return a directory's special tokens, from vocabulary.txt or tokenizer.json; None if neither tells.

    Raises:
        ModelError: If the vocabulary is no Whisper vocabulary.
    """
    lines, tokenizer = directory / "vocabulary.txt", directory / "tokenizer.json"
    if lines.is_file():
        tokens = lines.read_text(encoding="utf-8").removesuffix("\n").split("\n")
        return SpecialTokens.from_vocabulary(tokens, source=str(lines))
    if not tokenizer.is_file():
        return None
    try:
        fields = json.loads(tokenizer.read_bytes())
        ids = {**fields["model"]["vocab"], **{t["content"]: t["id"] for t in fields["added_tokens"]}}
        tokens = [""] * (max(ids.values()) + 1)
        for token, index in ids.items():
            tokens[index] = token
    except (ValueError, KeyError, TypeError) as error:
        raise ModelError(f"{tokenizer} is damaged: {error}") from error
    return SpecialTokens.from_vocabulary(tokens, source=str(tokenizer))


def in_words(report: Report) -> Iterator[str]:
    """Yield the lines of a report for people."""
    yield f"{report.path}: {sum(report.files.values()):,} bytes in {len(report.files)} files"
    width = max(map(len, report.files))
    yield from (f"  {name:{width}}  {size:>13,}" for name, size in report.files.items())
    for graph in report.graphs:
        yield ""
        yield from _graph_in_words(graph)
    yield ""
    if report.special_tokens is None:
        yield from (f"special tokens: {note}" for note in report.notes or ["no vocabulary there"])
        return
    fields = asdict(report.special_tokens)
    languages = fields.pop("languages")
    yield "special tokens"
    yield from (f"  {name:16}  {value}" for name, value in fields.items())
    yield f"  {'languages':16}  {' '.join(f'{code}={index}' for code, index in languages.items())}"


def _graph_in_words(graph: GraphReport) -> Iterator[str]:
    opsets = ", ".join(f"{domain} {version}" for domain, version in graph.opsets.items())
    yield f"{graph.file}: opset {opsets}"
    if graph.metadata:
        yield f"  metadata  {', '.join(f'{key}={value}' for key, value in graph.metadata.items())}"
    for kind, ports in (("input", graph.inputs), ("output", graph.outputs)):
        yield from (f"  {kind:8}  {port}" for port in ports)
    yield f"  nodes     {sum(graph.nodes.values())}"
    yield from (f"    {count:5}  {operator}" for operator, count in graph.nodes.items())
    share = graph.integer_bytes / graph.weight_bytes if graph.weight_bytes else 0.0
    yield f"  INT8      {share:.1%} of {graph.weight_bytes:,} bytes of weights"
    products = f"{graph.integer_products} of {graph.products}"
    yield f"  INT8      {graph.integer_share:.1%} of the weights in products ({products} products)"
    yield from (f"  warning   {warning}" for warning in graph.warnings)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line. Returns 0, 2 for a wrong option, 3 for a damaged file or none."""
    parser = argparse.ArgumentParser(
        prog="python -m susurrus.models.inspect",
        description="Show every input and output of a Whisper ONNX model, its operators, sizes, special ids "
        "and how much of it is computed in integers. Any exporter's files will do; weights are not loaded.",
        epilog="Exit codes: 0 done, 2 wrong option, 3 a file is damaged or not ONNX.",
    )
    parser.add_argument("path", type=Path, metavar="DIR_OR_FILE", help="a model's folder, or one ONNX file")
    parser.add_argument("--json", action="store_true", help="write one JSON object instead of text")
    options = parser.parse_args(arguments)
    try:
        report = inspect(options.path)
    except ModelError as error:
        sys.stderr.write(f"inspect: {error}\n")
        return 3
    lines = [json.dumps(asdict(report), ensure_ascii=False)] if options.json else in_words(report)
    sys.stdout.writelines(f"{line}\n" for line in lines)
    return 0


if __name__ == "__main__":
    sys.exit(main())
