"""What a pipeline makes of one recording, each stage computed when it is first asked for."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

import numpy as np

from susurrus.models.comparison.pipeline import Float32Array, Pipeline


class Run:
    """A pipeline by itself: every stage goes on from what the one before it gave.

    Args:
        pipeline: The pipeline.
        clip: The recording.
        language: Code; None leaves it to the pipeline.
        teacher: Whose prompt and tokens the logits are about; None takes its own.
    """

    def __init__(self, pipeline: Pipeline, clip: Path, language: str | None, teacher: Run | None = None) -> None:
        self.pipeline = pipeline
        self._clip, self._language = clip, language
        self._teacher = teacher or self

    @cached_property
    def samples(self) -> Float32Array:
        """See `Pipeline`."""
        return self.pipeline.samples(self._clip)

    @cached_property
    def mel(self) -> Float32Array:
        """See `Pipeline`."""
        return self.pipeline.log_mel(self.samples)

    @cached_property
    def hidden_states(self) -> Float32Array:
        """See `Pipeline`."""
        return self.pipeline.encode(self.mel)

    @cached_property
    def cross_attention(self) -> Float32Array | None:
        """See `Pipeline`."""
        return self.pipeline.cross_attention(self.hidden_states)

    @cached_property
    def language(self) -> str:
        """The one that was given, or else the one that is heard."""
        return self._language or self.pipeline.language(self.hidden_states)

    @cached_property
    def prompt(self) -> tuple[int, ...]:
        """See `Pipeline`."""
        return self.pipeline.prompt(self.language)

    @cached_property
    def logits(self) -> Float32Array:
        """See `Pipeline`: of the teacher's prompt and tokens, so that one wrong token does not hide the rest."""
        return self.pipeline.logits(self.hidden_states, self._teacher.prompt, self._teacher.tokens)

    @cached_property
    def tokens(self) -> tuple[int, ...]:
        """See `Pipeline`."""
        return self.pipeline.greedy(self.hidden_states, self.language)

    @cached_property
    def text(self) -> str:
        """See `Pipeline`."""
        return self.pipeline.text(self.tokens)


class Alone:
    """The stages of a pipeline, each given the reference's input: what is wrong here is this stage's own fault.

    Where the pipeline's own input is the same, its result is taken over.

    Args:
        run: Of the pipeline.
        reference: Of the reference.
    """

    def __init__(self, run: Run, reference: Run) -> None:
        self._run, self._reference, self._pipeline = run, reference, run.pipeline

    @cached_property
    def samples(self) -> Float32Array:
        """The recording is everybody's input."""
        return self._run.samples

    @cached_property
    def mel(self) -> Float32Array:
        """From the reference's samples."""
        same = np.array_equal(self._run.samples, self._reference.samples)
        return self._run.mel if same else self._pipeline.log_mel(self._reference.samples)

    @cached_property
    def hidden_states(self) -> Float32Array:
        """From the reference's log-mel."""
        same = np.array_equal(self._run.mel, self._reference.mel)
        return self._run.hidden_states if same else self._pipeline.encode(self._reference.mel)

    @cached_property
    def cross_attention(self) -> Float32Array | None:
        """From the reference's hidden states."""
        return self._pipeline.cross_attention(self._reference.hidden_states)

    @cached_property
    def prompt(self) -> tuple[int, ...]:
        """For the reference's language."""
        return self._pipeline.prompt(self._reference.language)

    @cached_property
    def logits(self) -> Float32Array:
        """From the reference's hidden states, prompt and tokens."""
        reference = self._reference
        return self._pipeline.logits(reference.hidden_states, reference.prompt, reference.tokens)

    @cached_property
    def tokens(self) -> tuple[int, ...]:
        """From the reference's hidden states, in its language."""
        return self._pipeline.greedy(self._reference.hidden_states, self._reference.language)

    @cached_property
    def text(self) -> str:
        """Of the reference's tokens."""
        return self._pipeline.text(self._reference.tokens)
