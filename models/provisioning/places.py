"""Where models are, which there are, and what state one is in."""

import difflib
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from susurrus.models.errors import ModelError, OptionError
from susurrus.models.optimum.files import EXPORT_AGAIN, export_precision, is_export
from susurrus.models.provisioning.manifest import (
    BUILDER_VERSION,
    FILE_NAME,
    PRECISIONS,
    Manifest,
    Progress,
    no_progress,
    note_unverified,
    verify,
)
from susurrus.models.provisioning.sources import known_models

VARIABLE = "SUSURRUS_MODELS"
"""Environment variable that names the folder of all models."""

_NAME = re.compile(r"\w[\w.-]{0,99}")


def models_directory(option: Path | None = None) -> Path:
    """Return the folder of all models: option, else SUSURRUS_MODELS, else one in the user's data folder.

    Raises:
        ModelError: If neither is given and the user has no home.
    """
    if option is not None:
        return option
    if os.environ.get(VARIABLE):
        return Path(os.environ[VARIABLE])
    import platformdirs  # noqa: PLC0415  # not needed where a place is named

    try:
        path = platformdirs.user_data_path("susurrus") / "models"
    except RuntimeError:  # no HOME and no passwd entry
        path = Path()
    if not path.is_absolute():  # older versions of platformdirs leave "~" as it is
        raise ModelError(f"this user has no home folder: set {VARIABLE} to a folder for models")
    return path


def available_models(directory: Path | None = None) -> list[str]:
    """Return the names of the known models and of those in the models folder, sorted.

    Raises:
        ModelError: If there is no models folder to look into; see `models_directory`.
    """
    return sorted({*known_models(), *(path.name for path in provisioned_models(directory))})


def provisioned_models(directory: Path | None = None) -> list[Path]:
    """Return the model directories in the models folder, whatever state they are in.

    Raises:
        ModelError: If there is no models folder to look into; see `models_directory`.
    """
    try:
        found = sorted(path for path in models_directory(directory).iterdir() if _NAME.fullmatch(path.name))
    except OSError:  # not there, or not ours to read: nothing there for us
        return []
    return [path for path in found if (path / FILE_NAME).is_file() or is_export(path)]


def resolve_model(model: str | Path, *, directory: Path | None = None) -> Path:
    """Return the model directory that a name or a path means, whether or not a model is there yet.

    Args:
        model: The name of a known or provisioned model, or a path. A string that could be both is a name.
        directory: The folder of all models; None takes `models_directory()`.

    Raises:
        ModelError: If it is neither.
    """
    return locate(model, directory)[0]


def locate(model: str | Path, directory: Path | None = None, *, new: bool = False) -> tuple[Path, str]:
    """Do as `resolve_model`; return the name too, empty for a path.

    Args:
        model: As for `resolve_model`.
        directory: As for `resolve_model`.
        new: Whether the name may be one that no model has yet.

    Raises:
        ModelError: If it is neither.
        OptionError: If a new name cannot be one.
    """
    if isinstance(model, Path) or (not new and (set(model) & {os.sep, os.altsep} or model in {".", ".."})):
        return Path(model), ""
    names = available_models(directory)
    if model in names or new:
        if not _NAME.fullmatch(model):
            raise OptionError(f"{model!r} cannot name a model: use letters, digits, dots and hyphens")
        return models_directory(directory) / model, model
    if Path(model).is_dir():
        return Path(model), ""
    near = difflib.get_close_matches(model, names, n=1, cutoff=0.4)
    hint = f" (did you mean {near[0]}?)" if near else ""
    raise ModelError(f"no model is called {model!r}{hint}: there are {', '.join(names)}, or give a model's folder")


class Kind(Enum):
    """What a model directory needs."""

    READY = "nothing"
    ABSENT = "building"
    DAMAGED = "building again: a file is missing or differs"
    OUTDATED = "building again: other weights, or another builder"
    INCOMPLETE = "building what it lacks: a precision"


@dataclass(frozen=True, slots=True)
class State:
    """What is the matter with a model directory."""

    kind: Kind
    """What it needs."""
    reason: str
    """Why, in words that name the file; empty if it is ready."""
    manifest: Manifest | None
    """What it says it holds, where that can be read."""
    precisions: tuple[str, ...] = ()
    """In which arithmetic it can run, if it is ready."""


def examine(
    path: Path,
    name: str = "",
    precisions: Iterable[str] | None = None,
    *,
    hashes: bool = True,
    progress: Progress = no_progress,
) -> State:
    """Find out whether a model directory can be used.

    Args:
        path: The directory.
        name: What it is called; a known name has known weights.
        precisions: What has to be there; None takes whatever its manifest lists.
        hashes: False trusts files of the right size.
        progress: Told how many bytes are hashed.

    Raises:
        OptionError: If an Optimum export is of another precision.
    """
    if not os.path.lexists(path):
        return State(Kind.ABSENT, f"{path} does not exist", None)
    if is_export(path):
        return _examine_export(path, next(iter(precisions or ()), None), hashes=hashes, progress=progress)
    try:
        manifest = Manifest.read(path)
    except ModelError as error:
        return State(Kind.DAMAGED, str(error), None)
    if reason := _outdated(path, name, manifest):
        return State(Kind.OUTDATED, reason, manifest)
    wanted = manifest.precisions if precisions is None else tuple(precisions)
    if reason := _damaged(path, wanted, hashes=hashes, progress=progress):
        return State(Kind.DAMAGED, reason, manifest)
    if missing := [precision for precision in wanted if precision not in manifest.precisions]:
        return State(Kind.INCOMPLETE, f"{path} has no {missing[0]} graphs", manifest)
    return State(Kind.READY, "", manifest, manifest.precisions)


def _examine_export(path: Path, precision: str | None, *, hashes: bool, progress: Progress) -> State:
    """An Optimum export is whole or not; only its maker can build it again."""
    try:
        manifest = Manifest.read(path) if (path / FILE_NAME).exists() else None
        found = export_precision(path, precision)
    except ModelError as error:
        return State(Kind.DAMAGED, str(error), None)
    if manifest is None and hashes:
        note_unverified(path)
    elif manifest and (reason := _damaged(path, PRECISIONS, hashes=hashes, progress=progress)):
        return State(Kind.DAMAGED, f"{reason}: copy it again, or {EXPORT_AGAIN}", manifest)
    return State(Kind.READY, "", manifest, (found,))


def _outdated(path: Path, name: str, manifest: Manifest) -> str:
    known = known_models().get(name)
    if known is not None and manifest.source != {file: record.sha256 for file, record in known.files.items()}:
        return f"{path / FILE_NAME} tells of other weights than {name}'s"
    if manifest.builder != BUILDER_VERSION:
        return f"{path} was made by another builder ({manifest.builder}, wanted {BUILDER_VERSION})"
    return ""


def _damaged(path: Path, precisions: Iterable[str], *, hashes: bool, progress: Progress) -> str:
    try:
        damages = verify(path, precisions, hashes=hashes, progress=progress)
    except ModelError as error:
        return str(error)
    return f"{path} is damaged: {', '.join(map(str, damages))}" if damages else ""
