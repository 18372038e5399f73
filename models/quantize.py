"""An Optimum export in INT8: ``python -m susurrus.models.quantize``.

Without options it is what phone builds of ONNX Runtime run: signed 8-bit weights, activations quantised as they come,
convolutions left in float32.
"""

import argparse
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from susurrus.models.errors import ModelError, OutputError, SusurrusError
from susurrus.models.optimum.files import DECODER, ENCODER, MERGED, WITH_PAST, find_export
from susurrus.models.optimum.integers import Contents, Recipe, quantize_graph
from susurrus.models.optimum.output import new_folder, read_name, seal
from susurrus.models.provisioning.manifest import FILE_NAME, hash_stream


@dataclass(frozen=True, slots=True)
class Quantized:
    """One graph before and after."""

    before: int
    """Bytes of the float32 file, its weights included."""
    after: int
    """Bytes of the quantised one."""
    contents: Contents


def quantize(source: Path, out: Path, recipe: Recipe | None = None) -> dict[str, Quantized]:
    """Quantise every graph of an export into a new folder, and copy all else.

    Args:
        source: The folder of a float32 export.
        out: The folder to be made.
        recipe: How; None is the default one.

    Returns:
        What became of each file.

    Raises:
        ModelError: The folder is no float32 export.
        OutputError: The new folder cannot be made.
    """
    graphs = _graphs(source)
    done: dict[str, Quantized] = {}
    with new_folder(out) as folder:
        for name, path in graphs.items():
            sys.stderr.write(f"quantizing {name}\n")
            contents = quantize_graph(path, folder / name, recipe or Recipe(), encoder=name.startswith(ENCODER))
            done[name] = Quantized(_size(path), _size(folder / name), contents)
        for path in source.iterdir():
            if path.is_file() and path.name != FILE_NAME and ".onnx" not in path.name:
                shutil.copyfile(path, folder / path.name)
        seal(folder, read_name(source), {name: hash_stream([path], len) for name, path in graphs.items()})
    return done


def _graphs(source: Path) -> dict[str, Path]:
    """Name in the new folder -> file."""
    if not source.is_dir():
        raise ModelError(f"{source} is not a folder: give the folder of an Optimum export")
    files = find_export(source, "float32")
    if files.with_past is None:
        return {f"{ENCODER}.onnx": files.encoder, f"{MERGED}.onnx": files.decoder}
    return {f"{ENCODER}.onnx": files.encoder, f"{DECODER}.onnx": files.decoder, f"{WITH_PAST}.onnx": files.with_past}


def _size(path: Path) -> int:
    return sum(part.stat().st_size for part in path.parent.glob(f"{path.name}*"))  # weights may lie beside


def in_words(done: Mapping[str, Quantized]) -> Iterator[str]:
    """Yield the tables at the end: sizes, operators, and what stayed in float32."""
    width = max(map(len, done))
    yield f"{'':{width}}  {'float32':>13}  {'INT8':>13}"
    yield from (f"{name:{width}}  {file.before:>13,}  {file.after:>13,}" for name, file in done.items())
    before, after = sum(file.before for file in done.values()), sum(file.after for file in done.values())
    yield f"{'together':{width}}  {before:>13,}  {after:>13,}"
    for name, file in done.items():
        yield ""
        yield name
        yield f"  integers  {_counted(file.contents.integer_operators)}"
        yield f"  float32   {_counted(file.contents.float_operators)}"
        weights = {op: size for op, size in file.contents.float_bytes.items() if size}
        yield f"  weights in float32: {sum(weights.values()):,} bytes ({_counted(weights)})"


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in counts.items())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line. Returns 0, 2 for a wrong option, 3 for no export, 6 for a folder that cannot be written."""
    options = _parser().parse_args(arguments)
    recipe = Recipe(per_channel=options.per_channel, reduce_range=options.reduce_range, plain=options.plain)
    try:
        done = quantize(options.export, options.out, recipe)
    except SusurrusError as error:
        sys.stderr.write(f"quantize: {error}\n")
        return 6 if isinstance(error, OutputError) else 3
    except KeyboardInterrupt:
        sys.stderr.write("quantize: interrupted\n")
        return 130
    sys.stdout.writelines(f"{line}\n" for line in in_words(done))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m susurrus.models.quantize",
        description="Make INT8 files of an Optimum export: signed 8-bit weights, activations quantised as they come; "
        "of the encoder only MatMul and Gemm, because phone builds of ONNX Runtime have no ConvInteger, of the "
        "decoders all that ONNX Runtime knows how to.",
        epilog="Exit codes: 0 done, 2 wrong option, 3 no float32 export, 6 the new folder cannot be written.",
    )
    add = parser.add_argument
    add("export", type=Path, metavar="DIR", help="folder of a float32 export")
    add("--out", required=True, type=Path, metavar="DIR", help="the folder to be made")
    add("--per-channel", action="store_true", help="a scale for each output of a layer; best with --reduce-range")
    add("--reduce-range", action="store_true", help="7-bit weights: 8 bits saturate on CPUs without VNNI")
    add(
        "--plain",
        action="store_true",
        help="exactly what quantize_dynamic writes: the logits' weights are made float32 again at every step",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
