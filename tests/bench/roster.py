"""Who takes part, where each engine's interpreter and weights are, and with which options it hears what.

The file is TOML; `weights.py` writes one. A table is one engine:

    ["whisper.cpp q8_0"]
    kind = "whisper.cpp"                 # default: the table's name
    python = "/path/to/venv/bin/python"  # default: the interpreter that runs the benchmark
    model = "/path/to/q8_0.bin"
    options = {}                         # of loading, as adapters.py names them
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.bench.corpus import BenchError

ROOT = Path(__file__).resolve().parents[2]
OURS = "susurrus"
"""The engine that all others are compared with: the actors."""
IN_PROCESS, FULL_CONTEXT, TWO_WORKERS = f"{OURS}, one process", f"{OURS}, full context", f"{OURS}, 2 workers"

Options = dict[str, Any]

KINDS = {
    "openvino": "openvino_genai",
    "faster-whisper": "faster_whisper",
    "whisper.cpp": "pywhispercpp",
    "sherpa-onnx": "sherpa_onnx",
    "openai-whisper": "whisper",
}
"""Peers, and the module that each needs."""

SHORT: Mapping[str, Options] = {
    "pipeline": {"timestamps": False},
    "ours": {"timestamps": False},
    "openvino": {"return_timestamps": False},
    "faster-whisper": {"beam_size": 1, "temperature": 0.0, "without_timestamps": True},
    "whisper.cpp": {"no_timestamps": True, "temperature_inc": 0.0},
    "sherpa-onnx": {},
    "openai-whisper": {"temperature": 0.0, "without_timestamps": True},
}
"""Options for up to 30 s: greedy, without timestamps."""

LONG: Mapping[str, Options] = {
    "pipeline": {},
    "ours": {},
    "openvino": {"return_timestamps": True},
    "faster-whisper": {"beam_size": 1},
    "whisper.cpp": {"no_timestamps": False, "temperature_inc": 0.2},
    "sherpa-onnx": {},
    "openai-whisper": {},
}
"""Options for more: one beam, with timestamps, and otherwise as the engine has it."""

BATCHED: Options = {"beam_size": 1, "batched": True, "batch_size": 8}
"""faster-whisper's pipeline for long recordings, as its README has it."""


@dataclass(frozen=True, slots=True)
class Entry:
    """An engine that takes part."""

    name: str
    kind: str
    """A name in `adapters.ENGINES`."""
    model: str
    """A path, or a name of this project's."""
    python: str = sys.executable
    options: Options = field(default_factory=dict)
    """Of loading."""


@dataclass(frozen=True, slots=True)
class Contestant:
    """An entry with options of hearing: one row of a table."""

    label: str
    entry: Entry
    options: Options

    @property
    def key(self) -> str:
        """Contestants with one key are one process."""
        return self.entry.name


def read_roster(path: Path | None, model: str = "base") -> list[Entry]:
    """This project, then the engines of the file in its order.

    Raises:
        BenchError: the file cannot be read, or says something that does not exist.
    """
    tables: dict[str, Any] = {}
    if path is not None:
        try:
            tables = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise BenchError(f"--peers {path}: {error}") from error
    own = tables.pop(OURS, {})
    return [
        _entry(path, OURS, {"model": model, **own, "kind": "pipeline"}),
        *(_entry(path, name, table) for name, table in tables.items()),
    ]


def _entry(path: Path | None, name: str, table: Any) -> Entry:
    fields = {"kind": name, **table} if isinstance(table, dict) else {}
    if unknown := sorted(fields.keys() - {"kind", "model", "python", "options"}):
        raise BenchError(f"--peers {path}: [{name}] has no {unknown[0]}; there are kind, python, model and options")
    if fields.get("kind") not in {*KINDS, "pipeline"} or "model" not in fields:
        raise BenchError(f"--peers {path}: [{name}] wants model, and kind of {', '.join(KINDS)}")
    return Entry(name, **fields)


def missing(entry: Entry) -> str | None:
    """Why a peer cannot take part, in a line; None when it can."""
    if entry.kind not in KINDS:
        return None
    if not Path(entry.model).exists():
        return f"{entry.name} is passed over: {entry.model} does not exist"
    module = KINDS[entry.kind]
    code = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({module!r}) is None)"
    try:
        found = subprocess.run([entry.python, "-c", code], check=False).returncode == 0
    except OSError as error:
        return f"{entry.name} is passed over: {entry.python}: {error.strerror}"
    return None if found else f"{entry.name} is passed over: {entry.python} has no {module}"


def for_short(entries: Sequence[Entry]) -> Iterator[Contestant]:
    """Everybody on a recording of at most 30 s.

    This project also in one process, and with the whole context of 30 s, which is what the peers have anyway.
    """
    for entry in entries:
        options = SHORT[entry.kind]
        yield Contestant(entry.name, entry, options)
        if entry.name == OURS:
            yield Contestant(IN_PROCESS, replace(entry, name=IN_PROCESS, kind="ours", options={}), options)
            # In processes of its own: memory that the full context took once is not given back.
            yield Contestant(FULL_CONTEXT, replace(entry, name=FULL_CONTEXT), {**options, "full_context": True})


def for_long(entries: Sequence[Entry]) -> Iterator[Contestant]:
    """Everybody on a long recording; this project also with two workers, faster-whisper also in batches."""
    for entry in entries:
        yield Contestant(entry.name, entry, LONG[entry.kind])
        if entry.name == OURS:
            two = replace(entry, name=TWO_WORKERS, options={**entry.options, "workers": 2})
            yield Contestant(two.name, two, LONG[entry.kind])
        if entry.kind == "faster-whisper":
            batched = replace(entry, name=f"{entry.name}, batched")
            yield Contestant(batched.name, batched, BATCHED)
