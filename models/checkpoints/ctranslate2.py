"""CTranslate2's `model.bin`, binary version 6.

Layout from CTranslate2 `python/ctranslate2/specs/model_spec.py`: u32 version; spec name; u32 revision; u32 number of
variables, each name, u8 rank, u32 dimensions, u8 type, u32 bytes, data; u32 number of aliases, each two names.
Little endian. A string is a u16 length that counts the final NUL, then the bytes.
"""

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

from susurrus.models.checkpoints.checkpoint import Checkpoint, Loader, dimensions_of
from susurrus.models.checkpoints.mapped_files import JoinedFiles, TensorEntry
from susurrus.models.errors import ModelError

_VERSION = 6
_SPEC = "WhisperSpec"
_TYPES = {0: "<f4", 1: "<i1", 2: "<i2", 3: "<i4", 4: "<f2", 5: "bfloat16"}


def read_ctranslate2(parts: Sequence[Path]) -> Checkpoint:
    """Reads a `model.bin`.

    Args:
        parts: The file, or the files that make it when joined in this order.

    Raises:
        ModelError: The file is damaged, truncated, of another version, or not Whisper.
    """
    data = JoinedFiles(parts)
    entries = _read_entries(_Reader(data))
    dimensions = dimensions_of(
        {name: entry.shape for name, entry in entries.items()},
        audio_heads=_number(data, entries, "encoder/num_heads"),
        text_heads=_number(data, entries, "decoder/num_heads"),
        source=data.name,
    )
    return Checkpoint(dimensions, {name: _loader(data, entries, name) for name in entries}, data.name)


class _Reader:
    """Reads the fields one after the other."""

    def __init__(self, data: JoinedFiles) -> None:
        self.data = data
        self.offset = 0

    def take(self, size: int) -> bytes | memoryview:
        raw = self.data.read(self.offset, size)
        self.offset += size
        return raw

    def unsigned(self, kind: str) -> int:
        """One integer: `B`, `H` or `I` of `struct`."""
        return int(struct.unpack("<" + kind, self.take(struct.calcsize(kind)))[0])

    def string(self) -> str:
        raw = bytes(self.take(self.unsigned("H")))
        try:
            return raw.removesuffix(b"\0").decode()
        except UnicodeDecodeError as error:
            raise ModelError(f"{self.data.name} is damaged at byte {self.offset}: fetch it again") from error


def _read_entries(reader: _Reader) -> dict[str, TensorEntry]:
    source = reader.data.name
    version = reader.unsigned("I")
    if version != _VERSION:
        raise ModelError(f"{source} has binary version {version}, not {_VERSION}: convert the model again")
    spec = reader.string()
    if spec != _SPEC:
        raise ModelError(f"{source} holds a {spec[:40]!r}, not a {_SPEC}: name a Whisper model")
    reader.unsigned("I")  # revision of the spec; what matters of it, names and shapes, is checked
    entries = dict(_read_variable(reader) for _ in range(reader.unsigned("I")))
    for _ in range(reader.unsigned("I")):
        alias, variable = reader.string(), reader.string()
        if variable not in entries:
            raise ModelError(f"{source}: alias {alias} names {variable}, which is missing: fetch it again")
        entries[alias] = entries[variable]
    if reader.offset != len(reader.data):
        raise ModelError(f"{source} goes on {len(reader.data) - reader.offset} bytes too long: fetch it again")
    return entries


def _read_variable(reader: _Reader) -> tuple[str, TensorEntry]:
    name = reader.string()
    shape = tuple(reader.unsigned("I") for _ in range(reader.unsigned("B")))
    kind, size = reader.unsigned("B"), reader.unsigned("I")
    if kind not in _TYPES:
        raise ModelError(f"{reader.data.name}: {name} has type {kind}, which version {_VERSION} lacks")
    entry = TensorEntry(shape, _TYPES[kind], reader.offset, size)
    if not entry.fits:
        raise ModelError(f"{reader.data.name}: {name} has {size} bytes for shape {shape}: fetch it again")
    reader.take(size)
    return name, entry


def _loader(data: JoinedFiles, entries: Mapping[str, TensorEntry], name: str) -> Loader:
    """Undoes CTranslate2's INT8 and INT16 storage: value = stored / scale, with a scale for each row."""
    entry, scale = entries[name], entries.get(f"{name}_scale")
    if scale is None:
        return lambda: data.array(entry)
    rows = (-1,) + (1,) * (len(entry.shape) - 1)
    return lambda: data.array(entry) / data.array(scale).reshape(rows)


def _number(data: JoinedFiles, entries: Mapping[str, TensorEntry], name: str) -> int:
    if name not in entries or entries[name].shape not in ((), (1,)):
        raise ModelError(f"{data.name} has no number {name}: it is not a whole Whisper checkpoint")
    return int(data.array(entries[name]).item())
