"""Builds one model and puts it into its place: once, whole, whatever happens to the process.

A model is built into ``<models>/.<name>.<random>.partial``, synced, and renamed into place; a lock beside it
lets one process work while others wait. What a killed process left is removed by the next that takes the
lock, except for ``.<name>.download``, which is gone on with.

Ways not taken: mending single files in place (a reader could pair old graphs with new weights), and keeping
the checkpoint (145 MB) beside the graphs for later repairs.
"""

import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from susurrus.models.errors import ModelError
from susurrus.models.provisioning.manifest import PRECISIONS, Manifest, Progress, describe, sync_folder, write_manifest
from susurrus.models.provisioning.places import VARIABLE, Kind, State, examine
from susurrus.models.provisioning.sources import Weights, find_weights, is_weights, known_models
from susurrus.models.vocabulary import TOKENIZER_FILES


@dataclass(frozen=True, slots=True)
class Installation:
    """One model to be put into its place by the calling process and thread."""

    name: str
    """The model's name."""
    path: Path
    """Its directory, which may be a link."""
    source: Path | None
    """The folder of a checkpoint that the user named."""
    precisions: tuple[str, ...]
    """The sets of graphs that are wanted."""
    progress: Progress
    """Told what is done, and remarks."""

    def run(self, found: State, *, hashes: bool) -> None:
        """Take the lock, look again, and build what is missing.

        Args:
            found: The state that the directory was found in.
            hashes: False trusts files of the right size.

        Raises:
            ModelError: If there are no weights, the folder cannot be written, or it holds something else.
        """
        # A link is followed, so that what it leads to is built on the same disk, beside its old self.
        real = replace(self, path=Path(os.path.realpath(self.path)))
        try:
            real.path.parent.mkdir(parents=True, exist_ok=True)
            with real.locked():
                real.sweep()
                real.provision(hashes=hashes)
        except OSError as error:
            where = error.filename or self.path.parent
            raise ModelError(
                f"{found.reason or self.name}, and {where} cannot be written ({error.strerror or error}): "
                f"name a folder that can by --model-dir or {VARIABLE}"
            ) from error

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the model's lock. The system drops it when its holder dies, however it dies."""
        from filelock import FileLock, Timeout  # noqa: PLC0415  # not needed where all is in place

        lock = FileLock(self.path.parent / f".{self.name}.lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            self.progress(f"waiting for another process that is provisioning {self.name}", 0, 0)
            lock.acquire()
        try:
            yield
        finally:
            lock.release()

    def sweep(self) -> None:
        """Remove what killed processes left half-built."""
        leftover = re.compile(rf"\.{re.escape(self.name)}\.[0-9a-f]{{8}}\.partial")
        for path in self.path.parent.iterdir():
            if leftover.fullmatch(path.name):
                shutil.rmtree(path, ignore_errors=True)

    def provision(self, *, hashes: bool) -> None:
        """Build what the directory lacks, if it still does. The lock is held."""
        state = examine(self.path, self.name, self.precisions, hashes=hashes)
        if state.kind is Kind.READY and not self.source_may_differ():
            return
        self._refuse_foreign(state)
        if state.kind in {Kind.DAMAGED, Kind.OUTDATED}:
            self.progress(f"{state.reason}; building it again", 0, 0)
        work = self.path.parent / f".{self.name}.{os.urandom(4).hex()}.partial"
        downloads = self.path.parent / f".{self.name}.download"
        try:
            (work / "source").mkdir(parents=True)
            weights = self._find(state, work / "source", downloads)
            self._install(state, weights, work)
        finally:
            shutil.rmtree(work, ignore_errors=True)
        shutil.rmtree(downloads, ignore_errors=True)

    def source_may_differ(self) -> bool:
        """Whether the user may have named other weights than the model was made from."""
        return self.source is not None and self.name not in known_models()

    def _refuse_foreign(self, state: State) -> None:
        """Keep away from a folder that never was a model: the user may keep anything under that name."""
        if state.kind is not Kind.DAMAGED or state.manifest is not None:
            return
        if not self.path.is_dir() or not ({p.name for p in self.path.iterdir()} & {"manifest.json", "model.json"}):
            raise ModelError(f"{self.path} is something else than a model: name another folder by --model-dir")

    def _find(self, state: State, work: Path, downloads: Path) -> Weights:
        try:
            known = known_models().get(self.name)
            weights = find_weights(
                self.name, known, source=self.source, work=work, downloads=downloads, progress=self.progress
            )
        except ModelError as error:
            if state.kind in {Kind.READY, Kind.ABSENT}:
                raise
            raise ModelError(f"{state.reason}; {error}") from error
        if not weights.verified:
            self.progress(f"no hashes are known for {self.name}: the {weights.origin} is taken as it is", 0, 0)
        return weights

    def _install(self, state: State, weights: Weights, work: Path) -> None:
        old = state.manifest
        if old is None or old.source != weights.hashes or state.kind in {Kind.DAMAGED, Kind.OUTDATED}:
            self._replace(weights, work)
        elif state.kind is Kind.INCOMPLETE:
            self._add(old, weights, work)

    def _replace(self, weights: Weights, work: Path) -> None:
        """Build every set of graphs that is wanted or was there, and swap directories."""
        precisions = [p for p in PRECISIONS if p in self.precisions or (self.path / p).is_dir()]
        write_manifest(work / "model", self._build(weights, work / "model", precisions))
        if self.path.exists():
            self.path.rename(work / "old")
        (work / "model").rename(self.path)
        sync_folder(self.path.parent)

    def _add(self, old: Manifest, weights: Weights, work: Path) -> None:
        """Build the sets of graphs that are missing; they count once the manifest names them."""
        precisions = [p for p in self.precisions if p not in old.precisions]
        new = self._build(weights, work / "model", precisions)
        for precision in precisions:
            if (self.path / precision).exists():  # a process was killed between these two steps
                (self.path / precision).rename(work / f"old-{precision}")
            (work / "model" / precision).rename(self.path / precision)
        sync_folder(self.path)
        added = {name: record for name, record in new.files.items() if name.partition("/")[0] in precisions}
        write_manifest(self.path, replace(old, files={**old.files, **added}))

    def _build(self, weights: Weights, directory: Path, precisions: Sequence[str]) -> Manifest:
        build(weights, directory, self.name, precisions, self.progress)
        manifest = describe(directory, self.name, weights.hashes)
        _sync_tree(directory)
        return manifest


def build(weights: Weights, directory: Path, name: str, precisions: Sequence[str], progress: Progress) -> None:
    """Build a model directory, all but its manifest, from weights on this machine.

    Args:
        weights: The checkpoint.
        directory: Where the model goes; made here.
        name: The model's name.
        precisions: The sets of graphs to build.
        progress: Told how far it is.

    Raises:
        ModelError: If the weights are no Whisper checkpoint.
        OSError: If the directory cannot be written.
    """
    from susurrus.models.checkpoints.files import SourceFiles, open_checkpoint  # noqa: PLC0415
    from susurrus.models.graphs.build import build_model  # noqa: PLC0415  # onnx, only when something is built

    def report(_what: str, fraction: float) -> None:
        progress(f"building {name}", round(fraction * 1000), 1000)

    tokenizer = next(weights.files[name] for name in TOKENIZER_FILES if name in weights.files)
    vocabulary = next((weights.files[v] for v in ("vocabulary.txt", "vocabulary.json") if v in weights.files), None)
    files = SourceFiles(
        weights=tuple(part for file, parts in weights.files.items() if is_weights(file) for part in parts),
        config=weights.files["config.json"][0],
        tokenizer=tokenizer[0],
        vocabulary=vocabulary[0] if vocabulary else None,
    )
    directory.mkdir()
    checkpoint = open_checkpoint(files)
    for warning in build_model(checkpoint, files, directory, name=name, precisions=precisions, progress=report):
        progress(warning, 0, 0)


def _sync_tree(directory: Path) -> None:
    for path in (directory, *directory.rglob("*")):
        if path.is_dir():
            sync_folder(path)
        else:
            with path.open("rb+") as file:
                os.fsync(file.fileno())
