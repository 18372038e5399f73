"""Cold start: seconds from process start to the first text and to exit, of `run.py` and of each peer's shortest script.

    python -m tests.bench CORPUS --only cold --peers peers.toml --output FOLDER
    python -m tests.bench.cold --peer-model FOLDER --peer-python /path/to/python

The second form is for looking at one peer, faster-whisper, while working on the start. All take turns (A B A B ...).
The peers decode as this project does: one beam, temperature 0, no timestamps, the language given, as many threads. None
of them has partial text in so few lines: the first that they print stands for it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.bench.roster import OURS, ROOT, Entry

TIMEOUT_S = 300

_SAMPLES = """
import wave
import numpy as np
with wave.open(audio) as file:
    samples = np.frombuffer(file.readframes(file.getnframes()), np.int16).astype(np.float32) / 32768
"""

SCRIPTS = {
    "faster-whisper": """
from faster_whisper import WhisperModel
model = WhisperModel(folder, device="cpu", compute_type="int8", cpu_threads=int(threads))
segments, _ = model.transcribe(audio, language=language, beam_size=1, temperature=0.0, without_timestamps=True)
for segment in segments:
    print(segment.text, flush=True)
""",
    "openvino": f"""
import openvino_genai
{_SAMPLES}
model = openvino_genai.WhisperPipeline(folder, "CPU", INFERENCE_NUM_THREADS=int(threads))
print(model.generate(samples, language=f"<|{{language}}|>", task="transcribe"), flush=True)
""",
    "whisper.cpp": """
from pywhispercpp.model import Model
model = Model(folder, n_threads=int(threads), print_progress=False, redirect_whispercpp_logs_to=None)
for segment in model.transcribe(audio, language=language, no_timestamps=True, temperature_inc=0.0):
    print(segment.text, flush=True)
""",
    "sherpa-onnx": f"""
from pathlib import Path
import sherpa_onnx
{_SAMPLES}
ends = ("encoder.int8.onnx", "decoder.int8.onnx", "tokens.txt")
encoder, decoder, tokens = (str(next(Path(folder).glob("*" + end))) for end in ends)
model = sherpa_onnx.OfflineRecognizer.from_whisper(
    encoder=encoder, decoder=decoder, tokens=tokens, language=language, num_threads=int(threads))
stream = model.create_stream()
stream.accept_waveform(16000, samples)
model.decode_stream(stream)
print(stream.result.text, flush=True)
""",
    "openai-whisper": f"""
import torch, whisper
{_SAMPLES}
torch.set_num_threads(int(threads))
model = whisper.load_model(folder, device="cpu")
options = dict(language=language, fp16=False, temperature=0.0, without_timestamps=True)
print(model.transcribe(samples, **options)["text"], flush=True)
""",
}
"""By kind of engine; `folder`, `audio`, `language` and `threads` are there."""

_HEAD = "import sys\nfolder, audio, language, threads = sys.argv[1:]\n"


@dataclass(frozen=True, slots=True)
class Run:
    """One process from start to exit."""

    first_s: float
    """Seconds until the first text."""
    exit_s: float
    """Seconds until the process was gone."""
    text: str
    """What it printed."""


class RunError(Exception):
    """A measured command failed."""


@dataclass(frozen=True, slots=True)
class Command:
    """What is run, and which of the lines that it prints are text."""

    words: Sequence[str]
    text_of: Callable[[str], str] = str.strip
    """The text in a line; empty for none."""


def command(entry: Entry, audio: Path, language: str, threads: int) -> Command:
    """The shortest way to a text on stdout with an engine."""
    if entry.name == OURS:
        words = [entry.python, "run.py", str(audio), "--json", "--language", language, "--without-timestamps"]
        return Command([*words, "--model", entry.model, "--threads", str(threads)], partial_text)
    script = _HEAD + SCRIPTS[entry.kind]
    return Command([entry.python, "-c", script, entry.model, str(audio), language, str(threads)])


def partial_text(line: str) -> str:
    """The text in a line of `--json` that has a part of it."""
    event = json.loads(line)
    return str(event["text"]) if event["type"] == "partial" else ""


def measure(what: Command) -> Run:
    """Run a command, noting when the first line of text comes and when the process is gone.

    Raises:
        RunError: it failed, showed no text, or took longer than the time limit.
    """
    first, texts = None, list[str]()
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    started = time.perf_counter()
    with subprocess.Popen(
        what.words, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, encoding="utf-8"
    ) as process:
        guard = threading.Timer(TIMEOUT_S, process.kill)
        guard.start()
        for line in process.stdout or ():
            if text := what.text_of(line):
                first = first or time.perf_counter() - started
                texts.append(text)
        process.wait()
        ended = time.perf_counter() - started
        guard.cancel()
    if process.returncode or first is None:
        raise RunError(f"exit code {process.returncode}, {'no' if first is None else 'some'} text")
    return Run(first, ended, texts[-1])


def interleave(
    commands: Mapping[str, Command], rounds: int, say: Callable[[str], None] = lambda _line: None
) -> dict[str, list[Run]]:
    """Measure the commands in turns; one round before the first warms the page cache and is not counted.

    One that fails is told of and left out from then on; it has no runs when it failed at once.
    """
    runs: dict[str, list[Run]] = {name: [] for name in commands}
    failed = set[str]()
    for number in range(rounds + 1):
        for name in [name for name in commands if name not in failed]:
            try:
                run = measure(commands[name])
            except (RunError, OSError) as error:
                say(f"  {name}: {error}")
                failed.add(name)
                continue
            if number:
                runs[name].append(run)
    return runs


def summary(runs: Mapping[str, Sequence[Run]], ours: str, peer: str) -> dict[str, object]:
    """Medians, our time over the peer's, and every single run, for JSON."""
    medians = {
        name: {field: statistics.median(getattr(run, field) for run in series) for field in ("first_s", "exit_s")}
        for name, series in runs.items()
    }
    return {
        "rounds": len(runs[ours]),
        "median": medians,
        "ratio": {field: round(medians[ours][field] / medians[peer][field], 3) for field in ("first_s", "exit_s")},
        "runs": {name: [asdict(run) for run in series] for name, series in runs.items()},
    }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.cold", description=__doc__)
    add = parser.add_argument
    add("--peer-model", type=Path, required=True, help="folder of a CTranslate2 model with the same weights")
    add("--peer-python", default=sys.executable, help="interpreter that has faster-whisper (default: this one)")
    add("--audio", type=Path, default=ROOT / "samples" / "jfk.wav")
    add("--language", default="en")
    add("--model", default="base", help="model name or directory of this project (default: base)")
    add("--threads", type=int, default=2, help="of both (default: 2)")
    add("--rounds", type=int, default=7)
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Print the measurements as JSON."""
    options = _parser().parse_args(arguments)
    peer = Entry("faster-whisper", "faster-whisper", str(options.peer_model.resolve()), options.peer_python)
    entries = [Entry(OURS, "pipeline", options.model), peer]
    audio = options.audio.resolve()
    commands = {entry.name: command(entry, audio, options.language, options.threads) for entry in entries}
    runs = interleave(commands, options.rounds, lambda line: print(line, file=sys.stderr))
    if not all(runs.values()):
        return 1
    print(json.dumps(summary(runs, OURS, peer.name), indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
