"""The decoder actor: hidden states in, growing text out. `python -m susurrus.actors.decoder --connection FILE`."""

from __future__ import annotations

import time
from collections import OrderedDict
from pathlib import Path

from susurrus.actors.behaviour import Behaviour, Desk, Loaded, Work
from susurrus.actors.options import from_message
from susurrus.models.config import ModelConfig
from susurrus.models.cues import shift_cues
from susurrus.models.decoding import WindowDecoder
from susurrus.models.ladder import EncodedWindow
from susurrus.models.providers import CPU
from susurrus.models.recording import Recording
from susurrus.models.results import DecodedWindow, Hypothesis
from susurrus.protocol import Cue, HiddenStates, Partial, Segment, Word

MAX_JOBS_REMEMBERED = 64  # jobs pass one after another; a few overlap at most


class DecoderBehaviour(Behaviour):
    """Decodes one window after another; tells the hub every token that shows."""

    name = "decoder"
    has_inbox = True

    def __init__(self, directory: Path, precision: str, threads: int, provider: str = CPU) -> None:
        self._directory = directory
        self._precision = precision
        self._threads = threads
        self._provider = provider
        self._recordings: OrderedDict[bytes, tuple[int, Recording]] = OrderedDict()  # job -> attempt and recording

    def load(self) -> Loaded:
        """Load the sessions and the vocabulary."""
        config = ModelConfig.from_directory(self._directory)
        load = WindowDecoder.load if self.trace is None else self.trace.load_decoder
        self._decoder = load(self._directory, precision=self._precision, threads=self._threads, provider=self._provider)
        return Loaded(config.name, threads=self._threads)

    def handle(self, work: Work, desk: Desk) -> None:
        """Decode a window; between two tokens look whether the job is still wanted."""
        if not isinstance(work, HiddenStates) or (recording := self._recording(work)) is None:
            return
        started = time.perf_counter()
        window = EncodedWindow.in_recording(work.window, work.states, work.start, work.end, work.speech)
        steps = self._decoder.decode(window, recording)
        while not desk.is_given_up(work.job, work.attempt):
            try:
                hypothesis = next(steps)
            except StopIteration as stop:
                desk.tell(_segment(work, stop.value, recording.memory, time.perf_counter() - started))
                return
            desk.tell(_partial(work, hypothesis))

    def _recording(self, work: HiddenStates) -> Recording | None:
        """What the windows of the job before this one have left; None for work of an attempt that is over."""
        attempt, recording = self._recordings.get(work.job, (0, None))
        if work.attempt < attempt:
            return None
        if recording is None or work.attempt > attempt:
            recording = self._decoder.recording(from_message(work.options))
            if work.memory:
                recording.recall(work.memory)
            self._recordings[work.job] = work.attempt, recording
        self._recordings.move_to_end(work.job)
        if len(self._recordings) > MAX_JOBS_REMEMBERED:
            self._recordings.popitem(last=False)
        return recording


def _partial(work: HiddenStates, hypothesis: Hypothesis) -> Partial:
    return Partial(
        job=work.job,
        window=work.window,
        attempt=work.attempt,
        start=work.start,
        end=work.end,
        text=hypothesis.text,
        stable=hypothesis.stable,
        tokens=hypothesis.tokens,
        temperature=hypothesis.temperature,
    )


def _segment(work: HiddenStates, decoded: DecodedWindow, memory: str, decoder_s: float) -> Segment:
    cues = tuple(
        Cue(
            cue.start,
            cue.end,
            cue.text,
            cue.tokens,
            tuple(Word(word.start, word.end, word.text, word.probability) for word in cue.words),
        )
        for cue in shift_cues(decoded.cues, work.start, work.end)
    )
    return Segment(
        job=work.job,
        window=work.window,
        attempt=work.attempt,
        start=work.start,
        end=work.end,
        text=decoded.text,
        tokens=decoded.tokens,
        language=decoded.language,
        language_probability=decoded.language_probability,
        truncated=decoded.truncated,
        encoder_s=work.encoder_s,
        decoder_s=decoder_s,
        cues=cues,
        speech=work.speech,
        language_probabilities=dict(decoded.language_probabilities),
        temperature=decoded.temperature,
        avg_logprob=decoded.avg_logprob,
        compression_ratio=decoded.compression_ratio,
        no_speech_prob=decoded.no_speech_prob,
        warnings=decoded.warnings,
        memory=memory,
    )


if __name__ == "__main__":
    from susurrus.actors.process import main

    main(
        "decoder",
        lambda settings, _: DecoderBehaviour(
            Path(settings.model), settings.precision, settings.threads, settings.provider
        ),
    )
