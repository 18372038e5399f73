"""`--model` with the folder of an Optimum export."""

from __future__ import annotations

from pathlib import Path

import pytest
import soundfile

from tests.actors.fakes import sounds
from tests.models.exported import DIMENSIONS_V3, vocabulary_v3, write_export
from tests.models.tiny import SPECIAL, random_tensors
from tests.run.conftest import Cli

ONE_TRY = (
    *("--quiet", "--no-vad", "--without-timestamps", "--language=en"),
    *("--no-speech-threshold=None", "--logprob-threshold=None", "--compression-ratio-threshold=None"),
)


@pytest.fixture(scope="module")
def export(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A float32 export of random weights, every token of which is a word."""
    vocabulary = vocabulary_v3()
    never = [*range(256), *range(vocabulary.index(SPECIAL[0]) + 1, len(vocabulary))]
    folder = tmp_path_factory.mktemp("run") / "export"
    return write_export(folder, random_tensors(DIMENSIONS_V3), DIMENSIONS_V3, vocabulary=vocabulary, never=never)


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two seconds of tones."""
    path = tmp_path_factory.mktemp("clip") / "clip.wav"
    soundfile.write(path, sounds(2.0), 16000)
    return path


def test_an_export_runs_in_its_own_precision(cli: Cli, export: Path, clip: Path) -> None:
    run = cli("--model", export, *ONE_TRY, clip)
    assert (run.code, run.err) == (0, "")
    assert len(run.out.split()) > 5


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(("--precision", "int8"), "are float32; leave the option away"), (("--word-timestamps",), "attention weights")],
)
def test_what_an_export_cannot_do_is_refused_in_one_line(
    cli: Cli, export: Path, clip: Path, arguments: tuple[str, ...], said: str
) -> None:
    run = cli("--model", export, *ONE_TRY, *arguments, clip)
    assert (run.code, run.out) == (2, "")
    assert said in run.err
    assert run.err.count("\n") == 1


def test_an_incomplete_export_is_refused_with_the_file(cli: Cli, tmp_path: Path, clip: Path) -> None:
    (tmp_path / "encoder_model.onnx").write_bytes(b"")
    run = cli("--model", tmp_path, clip)
    assert (run.code, run.out) == (3, "")
    assert "has no decoder_model.onnx" in run.err
    assert run.err.count("\n") == 1
