"""Whether an export computes what the checkpoint computes: torch against ONNX Runtime on the same sound.

Compared are the encoder's hidden states, the logits of the first step, and those of ten greedy steps that go through
decoder_with_past_model; both sides are given torch's tokens, so that no step hides the next.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from susurrus.models.dimensions import AudioParameters
from susurrus.models.errors import ModelError
from susurrus.models.mel import LogMel, slaney_filters
from susurrus.models.runtime import load_graph
from susurrus.models.special_tokens import SpecialTokens

STEPS = 10
"""Greedy steps after the first."""

LIMIT = 5e-4
"""Largest difference, as a share of the largest value, that the order of float32 sums can account for."""

FloatArray = NDArray[np.float32]


class ParityError(ModelError):
    """An export computes something else than its checkpoint."""


@dataclass(frozen=True, slots=True)
class Trace:
    """What one side computed."""

    hidden_states: FloatArray
    """(1, n_audio_ctx, width)."""
    logits: Sequence[FloatArray]
    """(n_vocab,) of the first step and of every one after it."""

    @property
    def tokens(self) -> list[int]:
        """The most probable token of every step."""
        return [int(step.argmax()) for step in self.logits]


@dataclass(frozen=True, slots=True)
class Difference:
    """How far two arrays are apart."""

    stage: str
    largest: float
    mean: float
    scale: float
    """The largest value of torch's."""

    @property
    def share(self) -> float:
        """The largest difference in parts of the largest value; not a number anywhere counts as infinite."""
        share = self.largest / self.scale if self.scale else self.largest
        return share if np.isfinite(share) else float("inf")


def check_parity(checkpoint: Path, folder: Path, audio: AudioParameters, special: SpecialTokens) -> list[Difference]:
    """Run both sides.

    Args:
        checkpoint: A folder of Hugging Face's layout, float32.
        folder: Its export.
        audio: How the model hears.
        special: The model's special tokens.

    Returns:
        The differences, stage by stage.

    Raises:
        ParityError: A stage is too far apart.
        ModelError: The export does not run.
    """
    features = _features(audio)
    prompt = _prompt(special)
    torch = trace_torch(checkpoint, features, prompt)
    found = trace_onnx(folder, features, prompt, torch.tokens)
    return judge(torch, found)


def judge(wanted: Trace, found: Trace) -> list[Difference]:
    """Compare two traces; see `check_parity`."""
    steps = zip(wanted.logits, found.logits, strict=True)
    first, *later = [difference(f"step {index}", theirs, ours) for index, (theirs, ours) in enumerate(steps)]
    worst = max(later, key=lambda step: step.share)
    same = sum(ours == theirs for ours, theirs in zip(found.tokens[1:], wanted.tokens[1:], strict=True))
    differences = [
        difference("encoder", wanted.hidden_states, found.hidden_states),
        Difference("first step", first.largest, first.mean, first.scale),
        Difference(f"{len(later)} steps, {same} the same", worst.largest, worst.mean, worst.scale),
    ]
    if any(stage.share > LIMIT for stage in differences):
        numbers = ", ".join(f"{stage.stage} {stage.share:.1e}" for stage in differences)
        raise ParityError(f"the export differs from torch: {numbers} of the largest value, at most {LIMIT:.0e} wanted")
    return differences


def difference(stage: str, wanted: FloatArray, found: FloatArray) -> Difference:
    """Largest and mean difference of two arrays of one shape.

    Raises:
        ParityError: The shapes are not one.
    """
    if wanted.shape != found.shape:
        raise ParityError(f"the export differs from torch: {stage} has shape {found.shape}, wanted {wanted.shape}")
    apart = np.abs(wanted - found)
    return Difference(stage, float(apart.max()), float(apart.mean()), float(np.abs(wanted).max()))


def trace_torch(checkpoint: Path, features: FloatArray, prompt: Sequence[int]) -> Trace:
    """Run the checkpoint in torch, greedily.

    Args:
        checkpoint: A folder of Hugging Face's layout.
        features: Log-mel frames of a whole window, (1, n_mels, n_frames).
        prompt: Tokens of the first step.
    """
    import torch  # noqa: PLC0415  # an extra
    from transformers import WhisperForConditionalGeneration  # noqa: PLC0415

    model = WhisperForConditionalGeneration.from_pretrained(checkpoint, dtype=torch.float32).eval()
    logits: list[FloatArray] = []
    with torch.inference_mode():
        states = model.model.encoder(torch.from_numpy(features)).last_hidden_state
        tokens, cache = list(prompt), None
        for _ in range(1 + STEPS):
            step = model(
                encoder_outputs=(states,),
                decoder_input_ids=torch.tensor([tokens]),
                past_key_values=cache,
                use_cache=True,
            )
            logits.append(step.logits[0, -1].numpy())
            tokens, cache = [int(logits[-1].argmax())], step.past_key_values
    return Trace(states.numpy(), logits)


def trace_onnx(folder: Path, features: FloatArray, prompt: Sequence[int], tokens: Sequence[int]) -> Trace:
    """Run an export: the first step's keys and values of the encoder stay, the decoder's grow.

    Args:
        folder: The three graphs.
        features: As for `trace_torch`.
        prompt: Tokens of the first step.
        tokens: What to feed the later steps; the last one is not needed.

    Raises:
        ModelError: A graph does not load or run.
    """
    encode = _runner(folder / "encoder_model.onnx")
    states = encode({"input_features": features})["last_hidden_state"]
    step = _runner(folder / "decoder_model.onnx")({"input_ids": _row(prompt), "encoder_hidden_states": states})
    logits, cache = [step["logits"][0, -1]], _cache(step)
    decode = _runner(folder / "decoder_with_past_model.onnx")
    for token in tokens[:-1]:
        step = decode({"input_ids": _row([token]), **cache})
        cache |= _cache(step)
        logits.append(step["logits"][0, -1])
    return Trace(states, logits)


_Run = Callable[[Mapping[str, NDArray[Any]]], dict[str, FloatArray]]


def _runner(path: Path) -> _Run:
    """A function that runs one graph, and keeps its session no longer than it is kept itself."""
    session = load_graph(path, fix="export the checkpoint again, with the versions of the extra")
    names = [output.name for output in session.get_outputs()]

    def run(inputs: Mapping[str, NDArray[Any]]) -> dict[str, FloatArray]:
        try:
            return dict(zip(names, session.run(names, dict(inputs)), strict=True))
        except Exception as error:  # ONNX Runtime's errors have no class of their own in common
            raise ModelError(f"{path.name} does not run: {error}".partition("\n")[0]) from error

    return run


def _cache(step: Mapping[str, FloatArray]) -> dict[str, FloatArray]:
    """Keys and values under the names that the next step wants them by."""
    names = (name for name in step if name.startswith("present."))
    return {name.replace("present", "past_key_values", 1): step[name] for name in names}


def _row(tokens: Sequence[int]) -> NDArray[np.int64]:
    return np.array([tokens], np.int64)


def _prompt(special: SpecialTokens) -> list[int]:
    if not special.multilingual:
        return [special.sot, special.no_timestamps]
    language = special.languages.get("en", special.sot + 1)
    return [special.sot, language, special.transcribe, special.no_timestamps]


def _features(audio: AudioParameters) -> FloatArray:
    """Log-mel frames of a made-up voice: harmonics that come and go in syllables, and noise; then silence."""
    time = np.arange(5 * audio.sample_rate) / audio.sample_rate
    syllables = np.clip(np.sin(2 * np.pi * 3 * time), 0, 1)
    pitch = 2 * np.pi * np.cumsum(120 + 30 * np.sin(2 * np.pi * 0.7 * time)) / audio.sample_rate
    voice = sum(np.sin(k * pitch) / k for k in range(1, 30)) * syllables
    noise = np.random.default_rng(0).standard_normal(len(time))
    samples = (0.2 * voice + 0.003 * noise).astype(np.float32)[: audio.n_samples]
    mel, silence = LogMel(audio, slaney_filters(audio.sample_rate, audio.n_fft, audio.n_mels))(samples)
    features = np.full((1, audio.n_mels, audio.n_frames), silence, np.float32)
    features[0, :, : mel.shape[1]] = mel
    return features
