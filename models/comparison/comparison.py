"""Finds the stage at which two pipelines part.

Every stage is compared twice. *Together*: each pipeline goes on from what it computed itself, so that differences add
up, as they do in use. *Alone*: the stage is given the reference's input, so that it shows its own fault only; this is
what is judged. Token ids are judged together as well, because they are what is seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from susurrus.models.comparison.differences import Difference, first_difference, measure
from susurrus.models.comparison.pipeline import Float32Array, Pipeline, Stage
from susurrus.models.comparison.runs import Alone, Run
from susurrus.models.comparison.tolerances import QUANTIZED, tolerances

_LONGEST = 240  # characters of a text that are shown


@dataclass(frozen=True, slots=True)
class StageResult:
    """How one stage came out."""

    stage: Stage
    agrees: bool | None
    """None: it could not be compared."""
    together: Difference | None = None
    """Each pipeline on what it computed itself; None for tokens and text."""
    alone: Difference | None = None
    """The stage on the reference's input; None for tokens and text."""
    allowed: float | None = None
    """Largest `alone.relative` that agrees."""
    note: str = ""
    """What the numbers do not say."""


def shorten(text: str) -> str:
    """The text, or its beginning and end where it is long."""
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST // 2]} … {text[-_LONGEST // 4 :]}"


def complete(results: Iterable[StageResult]) -> bool:
    """Whether what comes after could be compared: what goes on from another shape is an error in most pipelines."""
    return not any(result.alone is not None and result.alone.reshaped for result in results)


class Comparison:
    """Two pipelines on the first window of one recording.

    Args:
        reference: What is taken to be right.
        other: What is looked at.
        clip: The recording.
        language: Code; None leaves it to each of them.

    Raises:
        AudioError: One of them cannot read the recording.
    """

    def __init__(self, reference: Pipeline, other: Pipeline, clip: Path, language: str | None = None) -> None:
        self.reference = Run(reference, clip, language)
        self.other = Run(other, clip, language, teacher=self.reference)
        self.alone = Alone(self.other, self.reference)
        self.exact = reference.exact and other.exact
        self.allowed = tolerances(exact=self.exact)
        self.results = self._compare()
        self.complete = complete(self.results)

    @property
    def parts_at(self) -> Stage | None:
        """The first stage that does not agree; None if all do."""
        return next((result.stage for result in self.results if result.agrees is False), None)

    def _compare(self) -> tuple[StageResult, ...]:
        stages: dict[Stage, Callable[[], StageResult]] = {
            Stage.SAMPLES: partial(self._numbers, Stage.SAMPLES, "samples"),
            Stage.MEL: partial(self._numbers, Stage.MEL, "mel"),
            Stage.ENCODER: partial(self._numbers, Stage.ENCODER, "hidden_states"),
            Stage.CROSS: self._cross_attention,
            Stage.PROMPT: self._prompt,
            Stage.LOGITS: self._logits,
            Stage.TOKENS: self._tokens,
            Stage.TEXT: self._text,
        }
        results: list[StageResult] = []
        for stage, judge in stages.items():
            if not complete(results):
                results.append(StageResult(stage, None, note="not compared: the stage before has another shape"))
            else:
                results.append(judge())
        return tuple(results)

    def _numbers(self, stage: Stage, name: str) -> StageResult:
        wanted: Float32Array = getattr(self.reference, name)
        alone = measure(stage, wanted, getattr(self.alone, name))
        together = alone if alone.reshaped else measure(stage, wanted, getattr(self.other, name))
        limit = self.allowed.relative[stage]
        note = alone.problem or (f"worst: {alone.where}" if alone.where else "")
        return StageResult(stage, alone.relative <= limit, together, alone, limit, note)

    def _cross_attention(self) -> StageResult:
        for run in (self.reference, self.other):
            if run.cross_attention is None:
                return StageResult(Stage.CROSS, None, note=f"not compared: {run.pipeline.name} does not show them")
        return self._numbers(Stage.CROSS, "cross_attention")

    def _prompt(self) -> StageResult:
        wanted, found = self.reference.prompt, self.alone.prompt
        if parted := first_difference(wanted, found, self.reference.pipeline.end):
            return StageResult(Stage.PROMPT, agrees=False, note=self.spell(*parted))
        heard = self.other.language
        note = f"{len(wanted)} tokens, language {self.reference.language}"
        return StageResult(
            Stage.PROMPT,
            agrees=True,
            note=note if heard == self.reference.language else f"{note}, the model hears {heard}",
        )

    def _logits(self) -> StageResult:
        result = self._numbers(Stage.LOGITS, "logits")
        if result.alone is None or result.alone.problem:
            return result
        wanted, found = (logits.argmax(axis=1) for logits in (self.reference.logits, self.alone.logits))
        same = f"first choice the same in {np.count_nonzero(wanted == found)} of {len(wanted)} steps"
        return StageResult(
            result.stage, result.agrees, result.together, result.alone, result.allowed, f"{result.note}; {same}"
        )

    def _tokens(self) -> StageResult:
        notes = []
        for found, when in ((self.other.tokens, ""), (self.alone.tokens, " on the reference's hidden states")):
            if parted := first_difference(self.reference.tokens, found, self.reference.pipeline.end):
                lead = self.lead(*parted)
                notes.append(
                    f"{self.spell(*parted)}{when}, {lead:.3g} nats less probable to the reference"
                    if lead >= 0
                    else f"{self.spell(*parted)}{when}, more probable to the reference too, which does not take it"
                )
        agrees = self.as_good(self.other) and self.as_good(self.alone)
        return StageResult(Stage.TOKENS, agrees, note=notes[0] if notes else f"the same {len(self.reference.tokens)}")

    def _text(self) -> StageResult:
        if self.alone.text != self.reference.text:
            both = f"{shorten(self.alone.text)!r} of tokens that are {shorten(self.reference.text)!r} to the reference"
            return StageResult(Stage.TEXT, agrees=False, note=both)
        same = self.other.text == self.reference.text
        return StageResult(Stage.TEXT, agrees=True, note="the same" if same else "apart no more than the token ids")

    def as_good(self, run: Run | Alone) -> bool:
        """Whether a run's tokens are the reference's, or part from them at a near tie that its logits turn round.

        Where its logits are for the reference's token and it takes another, its rules differ: that is no tie.
        """
        parted = first_difference(self.reference.tokens, run.tokens, self.reference.pipeline.end)
        if parted is None:
            return True
        position, wanted, found = parted
        turned = bool(run.logits[position][found] >= run.logits[position][wanted])
        return turned and 0 <= self.lead(*parted) <= self._tie

    @property
    def _tie(self) -> float:
        """Of two float32 pipelines too the tolerance of int8, where resamplers have made other samples for them."""
        same = np.array_equal(self.reference.samples, self.other.samples)
        return self.allowed.tie if same else max(self.allowed.tie, QUANTIZED.tie)

    def lead(self, position: int, wanted: int, found: int) -> float:
        """How much more probable the reference finds one token than another, in nats; below 0 it forbids the other."""
        logits = self.reference.logits[position]
        return float(logits[wanted]) - float(logits[found])

    def spell(self, position: int, wanted: int, found: int) -> str:
        """Where two sequences part, with both tokens' text."""
        spell = self.reference.pipeline.spell
        return f"from position {position}: {found} {spell(found)!r} instead of {wanted} {spell(wanted)!r}"
