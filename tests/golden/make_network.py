"""Writes network.npz: what openai-whisper computes of recordings in samples/, stage by stage, thinned out.

Run by hand with openai-whisper installed, which is no dependency of this project; the weights are those of the models
that are provisioned here:

    python tests/golden/make_network.py

For every (model, clip) of CASES the file holds, under "<model>/<clip>/...",

- "mel", "hidden_states", float32 (n,): every so many values of the flattened array, see `thin`;
- "cross_attention", float32 (n_text_layer, 2, n): the same of the keys and of the values of every decoder layer;
- "logits", float32 (steps, n): the same of the logits after the prompt and after each token;
- "prompt", "tokens", int64; "text", the text as an array without axes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from susurrus.models.comparison.references import OPENAI, load_reference
from susurrus.models.comparison.runs import Run
from susurrus.models.provision import ensure_model
from susurrus.models.provisioning.manifest import no_progress

SAMPLES = Path(__file__).parents[2] / "samples"
CASES = (("base", "jfk.wav", "en"), ("tiny.en", "librispeech_en.flac", "en"))
"""Model, recording, language. The recordings have 16 bits and 16 kHz: every reader gives the same samples."""

STEPS = {"mel": 127, "hidden_states": 331, "cross_attention": 4001, "logits": 397}
"""Of how many values one is kept: primes, so that every bin, channel and head has its turn."""


def thin(name: str, values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Every so many values of a stage."""
    if name in {"mel", "hidden_states"}:
        return values.reshape(-1)[:: STEPS[name]]
    if name == "cross_attention":
        return values.reshape(*values.shape[:2], -1)[..., :: STEPS[name]]
    return values[:, :: STEPS[name]]


def main() -> None:
    """Writes network.npz beside this file."""
    arrays: dict[str, Any] = {}
    references = {
        model: load_reference(OPENAI, ensure_model(model), None, threads=1, progress=no_progress)
        for model in {model for model, *_ in CASES}
    }
    for model, clip, language in CASES:
        run, key = Run(references[model], SAMPLES / clip, language), f"{model}/{clip}"
        for name in STEPS:
            arrays[f"{key}/{name}"] = thin(name, getattr(run, name))
        arrays[f"{key}/prompt"], arrays[f"{key}/tokens"] = np.array(run.prompt), np.array(run.tokens)
        arrays[f"{key}/text"] = np.array(run.text)
    np.savez_compressed(Path(__file__).with_name("network.npz"), **arrays)


if __name__ == "__main__":
    main()
