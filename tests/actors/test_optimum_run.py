"""A pipeline of real processes on an Optimum export: the text that our own graphs of the same weights give."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from susurrus.actors import Pipeline, PipelineError
from susurrus.actors.view import JobEvent
from susurrus.models import ModelConfig, OptionError, Whisper
from susurrus.models.provisioning.manifest import describe, write_manifest
from susurrus.protocol import Done
from tests.actors.fakes import PATIENCE_S, PLAIN, sounds, with_plain
from tests.models.exported import DIMENSIONS_V3, vocabulary_v3, write_checkpoint, write_export
from tests.models.tiny import SPECIAL, build_tiny, random_tensors

SECONDS = 6.0  # some windows


@pytest.fixture(scope="module")
def layouts(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Random weights with large-v3's mel bins and languages: an export, and our own float32 graphs."""
    folder, vocabulary, tensors = tmp_path_factory.mktemp("layouts"), vocabulary_v3(), random_tensors(DIMENSIONS_V3)
    eot = vocabulary.index(SPECIAL[0])
    never = [*range(256), *range(eot + 1, len(vocabulary))]  # bytes are halves of characters, the rest is no text
    write_export(folder / "export", tensors, DIMENSIONS_V3, vocabulary=vocabulary, never=never)
    checkpoint = write_checkpoint(folder / "checkpoint", tensors, DIMENSIONS_V3, vocabulary=vocabulary, never=never)
    build_tiny(checkpoint, folder / "own", "float32")
    write_manifest(folder / "own", describe(folder / "own", "own", {}))
    return folder / "export", folder / "own"


def text_of(events: list[JobEvent]) -> str:
    assert isinstance(events[-1], Done), events[-1]
    return events[-1].text


def test_both_layouts_give_the_same_text_in_the_same_actors(layouts: tuple[Path, Path], runtime_parent: Path) -> None:
    """In a precision that nobody named: the export's own."""
    assert runtime_parent.is_dir()
    export, own = layouts
    assert ModelConfig.from_directory(export).dimensions == ModelConfig.from_directory(own).dimensions
    samples = sounds(SECONDS)
    with Pipeline(export) as pipeline:
        assert pipeline.wait_until_ready(PATIENCE_S)
        said = text_of(list(pipeline.transcribe(samples, **PLAIN)))
        beams = text_of(list(pipeline.transcribe(samples, **with_plain({"beam_size": 3}))))
        with pytest.raises(OptionError, match="--word-timestamps: an Optimum export"):
            list(pipeline.transcribe(samples, **with_plain({"word_timestamps": True})))
    whisper = Whisper.load(own, precision="float32", threads=1)
    assert len(said.split()) > 20
    assert said == whisper.transcribe(samples, **PLAIN).text
    assert beams == whisper.transcribe(samples, **with_plain({"beam_size": 3})).text


def test_an_export_that_is_damaged_ends_the_pipeline_with_the_file_and_the_fix(
    layouts: tuple[Path, Path], runtime_parent: Path, tmp_path: Path
) -> None:
    assert runtime_parent.is_dir()
    copy = Path(shutil.copytree(layouts[0], tmp_path / "copy"))
    path = copy / "decoder_model.onnx"
    path.write_bytes(path.read_bytes().replace(b"Softmax", b"Saftmax"))  # whole, but not to be run
    with Pipeline(copy) as pipeline, pytest.raises(PipelineError, match=r"decoder_model\.onnx .*export") as caught:
        pipeline.wait_until_ready(PATIENCE_S)
    assert caught.value.code == "model"
    assert "\n" not in str(caught.value)
