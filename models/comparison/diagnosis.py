"""Says in words where two pipelines part, and what a fault there usually is."""

from __future__ import annotations

from collections.abc import Iterator

from susurrus.models.comparison.comparison import Comparison, StageResult, shorten
from susurrus.models.comparison.differences import measure
from susurrus.models.comparison.mel_faults import recognise
from susurrus.models.comparison.pipeline import Float32Array, Stage
from susurrus.models.dimensions import AudioParameters

CAUSES = {
    Stage.SAMPLES: (
        "channels are mixed otherwise (opposite phases cancel in a mean), or another one is taken",
        "the sample rate is read wrongly, or the resampler differs",
        "a codec's delay at the start or padding at the end is kept",
        "the scale is not -1 to 1, or the bytes are read in the wrong order or width",
    ),
    Stage.MEL: (
        "n_fft, hop_length or the window (periodic Hann) are not the model's",
        "the filters are HTK's, of unit height, or for another number of bins or sample rate",
        "the floor: 1e-10 before log10, then 8 decades below the loudest value, then (x + 4) / 4",
        "frames beyond the audio are zeros and not the log-mel of silence",
    ),
    Stage.ENCODER: (
        "weights of another model or fine-tuning, or a layer that was renamed wrongly on the way",
        "transposed axes, a convolution with another padding or stride, another Gelu",
        "the position encodings, or queries, keys and values stacked in another order",
        "quantization: an activation that is clipped, or a product that saturates on this processor",
    ),
    Stage.CROSS: (
        "keys and values are swapped, or the layers are in another order",
        "heads are split before the axes are moved, or moved otherwise",
        "a scale is taken into the keys, or a bias is added to them (Whisper's keys have none)",
        "a quantized cache is read with the wrong scale",
    ),
    Stage.PROMPT: (
        "a special token's id is of another vocabulary: .en models and large-v3 number them differently",
        "<|startoflm|> is sent in place of <|transcribe|>: a few words come, then nothing",
        "the language, the task or <|notimestamps|> is missing, or the order is another one",
    ),
    Stage.LOGITS: (
        "position offset: positions do not go on from the number of tokens in the cache",
        "the self-attention cache is updated late, twice, or not at all; the causal mask is missing",
        "cross-attention reads the wrong cache, or the wrong length of it",
        "the tied output matrix, an embedding or the last layer norm is another one",
    ),
    Stage.TOKENS: (
        "the lists of tokens that are never sampled, or not first, are not the model's",
        "the search: another temperature, beams, or a penalty on repetition",
        "the end token or the limit of tokens is another one",
    ),
    Stage.TEXT: (
        "another vocabulary, or another order of it",
        "bytes of a character that are decoded token by token, before the character is whole",
        "special tokens and timestamps that are not left out",
    ),
}

_MADE_OF = {
    Stage.CROSS: (Stage.LOGITS, Stage.TOKENS),
    Stage.PROMPT: (Stage.TOKENS,),
    Stage.LOGITS: (Stage.TOKENS,),
}
"""Stages that a fault goes on into even where their input is the reference's."""

_INPUTS = {
    Stage.MEL: "the same samples",
    Stage.ENCODER: "the same log-mel",
    Stage.CROSS: "the same hidden states",
    Stage.LOGITS: "the same hidden states and the same tokens",
}


def explain(comparison: Comparison) -> Iterator[str]:
    """Yields the verdict, line by line."""
    parts_at = comparison.parts_at
    if parts_at is None:
        yield from _agreement(comparison)
        return
    result = next(each for each in comparison.results if each.stage is parts_at)
    yield f"THE TWO PIPELINES PART AT: {parts_at}"
    yield f"  {_how(result)}."
    if parts_at is Stage.LOGITS:
        yield from _steps(result)
    if parts_at is Stage.TOKENS and comparison.as_good(comparison.alone):
        yield "  On the reference's hidden states they are the same: small differences of all stages before add up."
    if found := recognise_fault(comparison, parts_at):
        yield f"  This is the fault: {found}."
    yield from _others(comparison, parts_at)
    if not found:
        yield "  Likely causes of a fault there:"
        yield from (f"  - {cause}" for cause in CAUSES[parts_at])
    if comparison.complete and comparison.other.text != comparison.reference.text:
        yield f"  The reference says  {shorten(comparison.reference.text)!r}"
        yield f"  The model says      {shorten(comparison.other.text)!r}"


def recognise_fault(comparison: Comparison, stage: Stage) -> str | None:
    """Which known mistake gives exactly what the stage gave; None where it is another one."""
    if stage is Stage.MEL:
        mel = comparison.reference.mel
        return recognise(comparison.reference.samples, comparison.alone.mel, _audio(comparison, len(mel)))
    if stage is Stage.CROSS:
        return _cross_fault(comparison.reference.cross_attention, comparison.alone.cross_attention)
    if stage is Stage.LOGITS and comparison.complete:
        return _position_fault(comparison)
    return None


def _agreement(comparison: Comparison) -> Iterator[str]:
    skipped = [result.stage for result in comparison.results if result.agrees is None]
    yield f"THE TWO PIPELINES AGREE within the tolerances of {'float32' if comparison.exact else 'int8'}."
    if skipped:
        yield f"  Not compared: {', '.join(skipped)}."
    if comparison.other.tokens != comparison.reference.tokens:
        yield "  Their tokens differ by a near tie: both are as good to the reference, within the tolerance."


def _how(result: StageResult) -> str:
    if result.alone is None or result.allowed is None:
        return result.note
    given = f"given {_INPUTS[result.stage]}, " if result.stage in _INPUTS else ""
    if result.alone.problem:
        return f"{given}it has {result.alone.problem}"
    where = f" ({result.note})" if result.note else ""
    return (
        f"{given}it differs by {result.alone.relative:.2g} of the reference's spread, "
        f"where {result.allowed:.2g} is allowed{where}"
    )


def _steps(result: StageResult) -> Iterator[str]:
    """Which steps are apart: it tells a fault of the first one from a fault of the cache."""
    if result.alone is None or result.allowed is None or not result.alone.parts:
        return
    least = min(result.allowed, result.alone.relative / 3)  # a third of the worst is no rounding
    apart = [step for step, relative in result.alone.parts.items() if not relative <= least]
    first, count = next(iter(result.alone.parts)), f"{len(apart)} of {len(result.alone.parts)} steps are apart"
    if apart[0] == first:
        yield f"  {count}, the first too: look at what the prompt's step reads and where its positions begin."
    else:
        yield f"  {count}, from {apart[0]} on: look at the cache, and at the positions of the steps behind the first."


def _others(comparison: Comparison, parts_at: Stage) -> Iterator[str]:
    """What is to be said of the stages behind the one at fault."""
    if not comparison.complete:
        yield "  What comes after it cannot be compared."
        return
    wrong = [result.stage for result in comparison.results if result.agrees is False and result.stage is not parts_at]
    if comparison.as_good(comparison.alone):
        wrong = [stage for stage in wrong if stage is not Stage.TOKENS]
    hidden = [stage for stage in wrong if stage in _MADE_OF.get(parts_at, ())]
    others = [stage for stage in wrong if stage not in hidden]
    if hidden:
        yield f"  It goes on into {' and '.join(hidden)} whatever their input is: compare again when it is right."
    if others:
        yield f"  Also apart, on the reference's input: {', '.join(others)}."
    if not wrong:
        yield "  No other stage is apart where it is given the reference's input: there is no second fault."


def _audio(comparison: Comparison, n_mels: int) -> AudioParameters:
    """Whisper's audio parameters, for the reference's number of bins and window."""
    seconds = comparison.reference.mel.shape[1] // 100
    return AudioParameters(n_mels=n_mels, chunk_length=seconds)


def _cross_fault(wanted: Float32Array | None, found: Float32Array | None) -> str | None:
    if wanted is None or found is None or wanted.shape != found.shape:
        return None
    size = wanted.shape[-1]
    guesses = {
        "keys and values are swapped": found[:, ::-1],
        f"the keys are scaled by 1 / sqrt({size}), the size of a head": _with_keys(found, size**0.5),
        f"the keys are scaled by the fourth root of 1 / {size}, the size of a head": _with_keys(found, size**0.25),
        "the layers are in the reverse order": found[::-1],
        "something is added to every position alike, such as a bias": _without_bias(found, wanted),
    }
    near = {words: measure(Stage.CROSS, wanted, guess).relative for words, guess in guesses.items()}
    best = min(near, key=near.__getitem__)
    return best if near[best] < 0.2 * measure(Stage.CROSS, wanted, found).relative else None


def _position_fault(comparison: Comparison) -> str | None:
    run, found = comparison.reference, comparison.alone.logits
    for first in (1, 2):
        shifted = run.pipeline.shifted_logits(run.hidden_states, run.prompt, run.tokens, first)
        if shifted is None:
            return None
        if measure(Stage.LOGITS, shifted, found).relative <= comparison.allowed.relative[Stage.LOGITS]:
            return f"positions begin at {first}, where the reference's begin at 0"
    return None


def _with_keys(values: Float32Array, factor: float) -> Float32Array:
    scaled = values.copy()
    scaled[:, 0] *= factor
    return scaled


def _without_bias(values: Float32Array, wanted: Float32Array) -> Float32Array:
    """The values with the reference's mean over the positions."""
    centred: Float32Array = values - values.mean(axis=3, keepdims=True) + wanted.mean(axis=3, keepdims=True)
    return centred
