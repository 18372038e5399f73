"""What the real models compute, stage by stage: openai-whisper's numbers, kept in tests/golden/network.npz."""

from __future__ import annotations

import runpy
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from susurrus.models.comparison.differences import measure
from susurrus.models.comparison.own import OwnPipeline
from susurrus.models.comparison.pipeline import Stage
from susurrus.models.comparison.runs import Run
from susurrus.models.provision import ensure_model
from tests.conftest import SAMPLES

GOLDEN = Path(__file__).parents[1] / "golden"
MAKE_NETWORK = runpy.run_path(str(GOLDEN / "make_network.py"))
THIN: Callable[[str, NDArray[np.float32]], NDArray[np.float32]] = MAKE_NETWORK["thin"]
CLIPS = {model: (clip, language) for model, clip, language in MAKE_NETWORK["CASES"]}
NAMES = {
    Stage.MEL: "mel",
    Stage.ENCODER: "hidden_states",
    Stage.CROSS: "cross_attention",
    Stage.LOGITS: "logits",
}
TOLERANCES = {
    "float32": dict.fromkeys(NAMES, 2e-5),
    "int8": {Stage.MEL: 2e-5, Stage.ENCODER: 0.15, Stage.CROSS: 0.15, Stage.LOGITS: 0.15},
}
"""Largest relative difference (`differences.Difference`). Every stage goes on from what the one before it gave, so the
differences add up. Measured: float32 6e-6; int8 0.12, 0.11, 0.09."""


@pytest.fixture(scope="module")
def golden() -> Mapping[str, Any]:
    """The file's arrays."""
    with np.load(GOLDEN / "network.npz") as arrays:
        return {name: arrays[name] for name in arrays.files}


class Forced:
    """The golden prompt and tokens, as what the logits are about."""

    def __init__(self, golden: Mapping[str, Any], key: str) -> None:
        self.prompt = tuple(golden[f"{key}/prompt"].tolist())
        self.tokens = tuple(golden[f"{key}/tokens"].tolist())


@pytest.fixture(
    scope="module", params=[(model, precision) for model in CLIPS for precision in TOLERANCES], ids="-".join
)
def run(
    request: pytest.FixtureRequest, golden: Mapping[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, str, Run]:
    """Key in the file, precision, and our pipeline on the recording."""
    model, precision = request.param
    clip, language = CLIPS[model]
    key = f"{model}/{clip}"
    if precision == "int8":
        directory = request.getfixturevalue(model.replace(".", "_"))
    else:
        directory = ensure_model(model, directory=tmp_path_factory.mktemp("float32"), precisions=(precision,))
    pipeline = OwnPipeline.load(directory, precision=precision, threads=1)
    teacher: Any = Forced(golden, key)
    return key, precision, Run(pipeline, SAMPLES / clip, language, teacher)


@pytest.mark.parametrize("stage", NAMES)
def test_every_stage_is_openai_whispers(run: tuple[str, str, Run], golden: Mapping[str, Any], stage: Stage) -> None:
    key, precision, ours = run
    name = NAMES[stage]
    difference = measure(stage, golden[f"{key}/{name}"], THIN(name, getattr(ours, name)))
    assert difference.relative <= TOLERANCES[precision][stage], difference


def test_prompt_tokens_and_text_are_openai_whispers(run: tuple[str, str, Run], golden: Mapping[str, Any]) -> None:
    key, _, ours = run
    assert list(ours.prompt) == golden[f"{key}/prompt"].tolist()
    assert list(ours.tokens) == golden[f"{key}/tokens"].tolist()
    assert ours.text == str(golden[f"{key}/text"])
