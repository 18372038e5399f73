"""Makes the calibration vectors of a checkpoint: how large each input channel of the encoder's linear layers gets.

`python -m susurrus.models.calibrate --model-source DIR CLIPS... --out FILE` runs the float32 encoder on real speech
and writes the largest absolute value of every channel, nothing of the speech itself. Thirty varied clips do.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from susurrus.models.audio import AudioReader
from susurrus.models.checkpoints.files import Checkpoint, SourceFiles, open_checkpoint
from susurrus.models.config import ModelConfig
from susurrus.models.dimensions import AudioParameters
from susurrus.models.errors import SusurrusError
from susurrus.models.frontend import Frontend
from susurrus.models.graphs.builder import Graph, WeightsFile
from susurrus.models.graphs.contract import TensorSpec
from susurrus.models.graphs.encoder import encoder_graph
from susurrus.models.graphs.layers import FloatArray, FloatLayers
from susurrus.models.graphs.smoothing import calibrated_layers
from susurrus.models.mel import LogMel, pad_frames, slaney_filters
from susurrus.models.runtime import open_session
from susurrus.models.sessions import every_position


class ObservedLayers(FloatLayers):
    """Float layers that also put out the largest absolute value of each input channel.

    Args:
        names: Of the layers to observe; each becomes an output of the graph, float32 (n_inputs,).
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = frozenset(names)

    def linear(self, graph: Graph, x: str, name: str, weight: FloatArray, bias: FloatArray) -> str:
        """See `Layers`."""
        if name in self._names:
            magnitude = graph.node("Abs", [x], f"{name}/magnitude")
            graph.node("ReduceMax", [magnitude, graph.integers([0, 1])], absmax_name(name), keepdims=0)
            graph.expose(absmax_name(name), TensorSpec(np.float32, (weight.shape[1],)))
        return super().linear(graph, x, name, weight, bias)


def absmax_name(name: str) -> str:
    """The output that observes linear layer `name`."""
    return f"{name}/absmax"


def calibrate(checkpoint: Checkpoint, mels: Iterator[NDArray[np.float32]]) -> dict[str, NDArray[np.float16]]:
    """Runs the float32 encoder and keeps the largest absolute value of each input channel.

    Args:
        checkpoint: The weights.
        mels: Log-mel windows, float32 (n_mels, T).

    Returns:
        Canonical name of each linear layer to float16 (n_inputs,).
    """
    names = list(calibrated_layers(checkpoint))
    largest: dict[str, FloatArray] = {}
    with tempfile.TemporaryDirectory() as folder:
        with WeightsFile(Path(folder, "weights.bin")) as weights:
            graph = encoder_graph(checkpoint, ObservedLayers(names), weights)
        graph.save(Path(folder, "encoder.onnx"))
        session = open_session(Path(folder, "encoder.onnx"), graph.contract)
        for mel in mels:
            found = session.run([absmax_name(name) for name in names], every_position(mel))
            for name, vector in zip(names, found, strict=True):
                largest[name] = np.maximum(largest.get(name, 0), vector)
    return {name: vector.astype(np.float16) for name, vector in largest.items()}


def full_windows(clip: Path, audio: AudioParameters, count: int) -> Iterator[NDArray[np.float32]]:
    """Log-mel of the first `count` windows of a clip, each padded to full length with silence."""
    log_mel = LogMel(audio, slaney_filters(audio.sample_rate, audio.n_fft, audio.n_mels))
    with AudioReader(clip, audio.sample_rate) as reader:
        for window in islice(Frontend(audio, log_mel, vad=False).windows(reader), count):
            if window.mel is not None:
                yield pad_frames(window.mel, window.silence, audio.n_frames)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m susurrus.models.calibrate", description=__doc__)
    parser.add_argument("clips", nargs="+", type=Path, metavar="CLIPS", help="recordings of varied speech")
    parser.add_argument("--model-source", required=True, type=Path, metavar="DIR", help="folder of the checkpoint")
    parser.add_argument("--out", required=True, type=Path, metavar="FILE", help="the .npz to write")
    parser.add_argument("--windows", type=int, default=2, help="30 s windows to take of each clip (default: 2)")
    options = parser.parse_args(arguments)
    try:
        files = SourceFiles.from_directory(options.model_source)
        checkpoint = open_checkpoint(files)
        audio = ModelConfig.from_source("calibrated", checkpoint.dimensions, files.config.parent).audio
        mels = (mel for clip in options.clips for mel in full_windows(clip, audio, options.windows))
        vectors = calibrate(checkpoint, mels)
        with options.out.open("wb") as file:  # numpy would add .npz to a name
            np.savez_compressed(file, allow_pickle=False, **vectors)
    except (SusurrusError, OSError) as error:
        print(error, file=sys.stderr)  # noqa: T201  # a command's one line to its user
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
