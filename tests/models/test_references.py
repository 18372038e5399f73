"""The references that a model is compared with: which weights they get, and that they are what they say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from susurrus.models import AudioError, OptionError
from susurrus.models.audio import AudioReader
from susurrus.models.checkpoints.files import SourceFiles, open_checkpoint
from susurrus.models.comparison.comparison import Comparison
from susurrus.models.comparison.diagnosis import explain
from susurrus.models.comparison.libraries import read_window
from susurrus.models.comparison.openai_whisper import state_dict
from susurrus.models.comparison.own import OwnPipeline
from susurrus.models.comparison.references import MODULES, load_reference, weights_of
from susurrus.models.provisioning.manifest import FILE_NAME, no_progress
from tests.conftest import SAMPLES
from tests.models.tiny import random_tensors

if TYPE_CHECKING:
    from collections.abc import Mapping


def test_the_weights_of_a_known_model_are_found_by_its_manifest(base: Path, tiny_en: Path) -> None:
    assert (weights_of(base), weights_of(tiny_en)) == ("base", "tiny.en")


def manifest_of(directory: Path, target: Path, **changes: object) -> Path:
    """The small files of a model directory, with another manifest."""
    target.mkdir()
    for path in directory.iterdir():
        if path.is_file():
            (target / path.name).write_bytes(path.read_bytes())
    manifest = json.loads((target / FILE_NAME).read_text())
    (target / FILE_NAME).write_text(json.dumps(manifest | changes))
    return target


def test_a_model_of_other_weights_is_not_compared_with_known_ones(base: Path, tmp_path: Path) -> None:
    source = json.loads((base / FILE_NAME).read_text())["source"]
    directory = manifest_of(base, tmp_path / "tuned", source=source | {"model.bin": "0" * 64})
    with pytest.raises(OptionError, match="other weights than those known as base: name them by --reference"):
        weights_of(directory)


def test_a_model_of_unknown_weights_needs_them_named(tiny: Path) -> None:
    with pytest.raises(OptionError, match="is no known model: name the weights"):
        weights_of(tiny)


@pytest.mark.parametrize("name", ["jfk.wav", "librispeech_en.flac"])
def test_a_reference_hears_what_we_hear(name: str) -> None:
    with AudioReader(SAMPLES / name, 16000) as reader:
        ours = np.concatenate([block.copy() for block in reader])
    theirs = read_window(SAMPLES / name, 16000, 480000)
    assert theirs.dtype == np.float32
    np.testing.assert_array_equal(theirs, ours)


def test_a_reference_hears_one_window_and_no_more() -> None:
    whole = read_window(SAMPLES / "jfk.wav", 16000, 480000)
    np.testing.assert_array_equal(read_window(SAMPLES / "jfk.wav", 16000, 16000), whole[:16000])


@pytest.mark.parametrize("content", [None, b"", b"no audio at all"])
def test_a_recording_that_no_reference_reads_is_one_line(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "clip.wav"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(AudioError, match=r"clip\.wav: FFmpeg cannot read it") as caught:
        read_window(path, 16000, 480000)
    assert "\n" not in str(caught.value)


def test_openai_whispers_names_are_one_for_every_tensor(tiny_source: Path) -> None:
    checkpoint = open_checkpoint(SourceFiles.from_directory(tiny_source))
    state: Mapping[str, np.ndarray[tuple[int, ...], np.dtype[np.float32]]] = dict(state_dict(checkpoint))
    tensors = random_tensors()
    biases = [name for name in state if name.endswith("key.bias")]
    keys = 3 + 2 * 2  # layers of the encoder, two attentions in each of the decoder's
    width = checkpoint.dimensions.n_audio_state
    assert not biases
    assert sum(values.size for values in state.values()) == sum(map(np.size, tensors.values())) - keys * width
    value = tensors["decoder/layer_1/attention/linear_1/weight"][width:]
    np.testing.assert_array_equal(state["decoder.blocks.1.cross_attn.value.weight"], value)
    query = tensors["encoder/layer_2/self_attention/linear_0/weight"][:width]
    np.testing.assert_array_equal(state["encoder.blocks.2.attn.query.weight"], query)


@pytest.mark.parametrize("library", MODULES)
@pytest.mark.filterwarnings("default")  # theirs are none of ours
def test_the_reference_agrees_with_us(base: Path, library: str) -> None:
    pytest.importorskip(MODULES[library])
    reference = load_reference(library, base, None, threads=1, progress=no_progress)
    comparison = Comparison(reference, OwnPipeline.load(base, precision="int8", threads=1), SAMPLES / "jfk.wav")
    assert comparison.parts_at is None, list(explain(comparison))
