"""Which engines are compared, with which options, and running them one after another, each in its own interpreter."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.bench.corpus import BenchError

ROOT = Path(__file__).resolve().parents[2]

KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "ours": ("ours", {}),
    "faster-whisper-1": ("faster-whisper", {"beam_size": 1}),
    "faster-whisper-5": ("faster-whisper", {"beam_size": 5}),
    "faster-whisper-batched-1": ("faster-whisper", {"beam_size": 1, "batched": True}),
    "faster-whisper-batched-5": ("faster-whisper", {"beam_size": 5, "batched": True}),
    "openai-whisper": ("openai-whisper", {}),
    "openvino": ("openvino", {}),
    "whisper.cpp": ("whisper.cpp", {}),
}
"""Names that `--engine` takes: engines of `adapters.py` and options. What is not named is as the engine has it."""


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine with options."""

    label: str
    """As on the command line: `ours:vad=False`."""
    kind: str
    """A name in `adapters.ENGINES`."""
    options: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def parse(cls, label: str) -> Engine:
        """Read `NAME` or `NAME:option=value:option=value`; values are Python literals, or text.

        Raises:
            BenchError: there is no such engine, or an option has no value.
        """
        name, *pairs = label.split(":")
        if name not in KINDS:
            raise BenchError(f"--engine {name}: no such engine; there are {', '.join(KINDS)}")
        kind, options = KINDS[name]
        given = {}
        for pair in pairs:
            key, equals, value = pair.partition("=")
            if not equals:
                raise BenchError(f"--engine {label}: write options as name=value")
            given[key] = _literal(value)
        return cls(label, kind, {**options, **given})

    def output(self, cache: Path) -> Path:
        """Where its transcripts are kept."""
        safe = "".join(letter if letter.isalnum() or letter in "-_.=," else "_" for letter in self.label)
        return cache / f"{safe}.jsonl"


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def pairs(given: Sequence[str], option: str) -> dict[str, str]:
    """Read repeated `ENGINE=VALUE` of an option.

    Raises:
        BenchError: one has no `=`, or names no engine.
    """
    kinds = {kind for kind, _ in KINDS.values()}
    found = {}
    for pair in given:
        kind, equals, value = pair.partition("=")
        if not equals or kind not in kinds:
            raise BenchError(f"{option} {pair}: write ENGINE=VALUE with one of {', '.join(sorted(kinds))}")
        found[kind] = value
    return found


def run(
    engine: Engine, jobs: Path, output: Path, *, models: Mapping[str, str], pythons: Mapping[str, str], threads: int
) -> None:
    """Transcribe what the output lacks.

    Args:
        engine: what to run.
        jobs: the list of recordings.
        output: the file to add to.
        models: name or path of the weights, by kind of engine; `base` where none is given.
        pythons: the interpreter, by kind of engine; this one where none is given.
        threads: of the engine.

    Raises:
        BenchError: the engine cannot be started, or ends with an error.
    """
    command = [
        *(pythons.get(engine.kind, sys.executable), "-m", "tests.bench.peers"),
        *(engine.kind, models.get(engine.kind, "base"), str(jobs), str(output)),
        *("--threads", str(threads), "--options", json.dumps(engine.options)),
    ]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": str(threads)}
    print(f"{engine.label} ...", file=sys.stderr, flush=True)
    try:
        ended = subprocess.run(command, cwd=ROOT, env=environment, check=False)
    except OSError as error:
        raise BenchError(f"--python-of {engine.kind}: {error}") from error
    if ended.returncode:
        raise BenchError(f"{engine.label} ended with exit code {ended.returncode}")


def read_rows(engine: Engine, cache: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """Transcripts by name and fingerprint of the recording; the last of each."""
    output = engine.output(cache)
    if not output.exists():
        return {}
    rows = (json.loads(line) for line in output.read_text(encoding="utf-8").splitlines())
    return {(row["name"], row["fingerprint"]): row for row in rows}
