"""The decoder actor: hidden states in, growing text out. `python -m susurrus.actors.decoder --connection FILE`."""

from __future__ import annotations

import time
from collections import OrderedDict
from dataclasses import dataclass, replace
from pathlib import Path

from susurrus.actors.behaviour import Behaviour, Desk, Loaded, Work
from susurrus.actors.options import from_message
from susurrus.models.config import ModelConfig
from susurrus.models.context import AudioContext
from susurrus.models.cues import shift_cues
from susurrus.models.decoding import WindowDecoder
from susurrus.models.ladder import EncodedWindow
from susurrus.models.providers import CPU
from susurrus.models.recording import Recording
from susurrus.models.results import DecodedWindow, Hypothesis
from susurrus.models.side_by_side import Finished, Outcome, SideBySide
from susurrus.protocol import Cue, HiddenStates, Partial, Redo, Segment, Word

MAX_JOBS_REMEMBERED = 64  # jobs pass one after another; a few overlap at most
WINDOWS = 4  # decoded side by side: twice as many would gain a tenth more, and take twice the memory
ALONE = 4  # windows that a decoder decodes one by one when it has just started: one that kills it is so found

Place = tuple[bytes, int, int]
"""Job, attempt and index of a window."""


@dataclass(frozen=True, slots=True)
class Begun:
    """A window in work."""

    work: HiddenStates
    recording: Recording
    started: float
    """Seconds of `time.perf_counter`."""


class DecoderBehaviour(Behaviour):
    """Decodes windows, several side by side when they are there; tells the hub every token that shows.

    Windows of one recording come one after another until nothing that one leaves behind changes the next. From then on
    they wait for each other, as long as it is certain that more come: several together take half the time. The first
    of a recording waits for nothing.
    """

    name = "decoder"
    has_inbox = True
    windows_granted = WINDOWS + 1
    keeps_windows = True

    def __init__(self, directory: Path, precision: str, threads: int, provider: str = CPU) -> None:
        self._directory = directory
        self._precision = precision
        self._threads = threads
        self._provider = provider
        self._recordings: OrderedDict[bytes, tuple[int, Recording | None]] = OrderedDict()  # job -> attempt
        self._waiting: list[HiddenStates] = []  # in the order in which they came
        self._begun: dict[Place, Begun] = {}
        self._ended = 0

    def load(self) -> Loaded:
        """Load the sessions and the vocabulary."""
        config = ModelConfig.from_directory(self._directory)
        load = WindowDecoder.load if self.trace is None else self.trace.load_decoder
        self._decoder = load(self._directory, precision=self._precision, threads=self._threads, provider=self._provider)
        self._n_audio_ctx = config.dimensions.n_audio_ctx
        self._side_by_side = SideBySide[Place](self._decoder, WINDOWS)
        return Loaded(config.name, threads=self._threads)

    def handle(self, work: Work, desk: Desk) -> None:
        """Take a window in; a traced decoder decodes it here and now."""
        if not isinstance(work, HiddenStates):
            return
        self._recording(work)  # what is wrong with its options fails its job here, and nothing else
        self._waiting.append(work)
        while self.trace is not None and self.go_on(desk):
            pass

    def go_on(self, desk: Desk) -> bool:
        """A token of every window in work; before it, look which are still wanted, and which can begin."""
        ended = self._ended
        self._leave_out(desk)
        for work in self._next():
            self._begin(work, desk)
        for place, outcome in self._side_by_side.turn():
            self._tell(place, outcome, desk)
        return bool(self._begun) or self._ended > ended  # another may begin in the place of one that has ended

    def _leave_out(self, desk: Desk) -> None:
        """Drop what is not wanted any more."""
        for place, begun in list(self._begun.items()):
            if desk.is_given_up(begun.work.job, begun.work.attempt):
                self._side_by_side.drop(place)
                self._end(place, desk)
        for work in [work for work in self._waiting if desk.is_given_up(work.job, work.attempt)]:
            self._waiting.remove(work)
            desk.release()

    def _next(self) -> list[HiddenStates]:
        """Those that begin now, taken from those that wait."""
        if not self._waiting:
            return []
        room = (1 if self._is_careful else self._side_by_side.room) - len(self._begun)
        bound = {begun.work.job for begun in self._begun.values() if not begun.recording.is_settled}
        ready: list[HiddenStates] = []
        for work in self._waiting:
            if work.job not in bound:
                ready.append(work)
            if not self._is_settled(work):  # the next one has to wait for it
                bound.add(work.job)
        latest = {work.job: work for work in ready}
        may_wait = room > len(ready) and not self._is_careful and all(work.window for work in ready)
        if may_wait and all(work.more and self._is_settled(work) for work in latest.values()):
            return []
        for work in ready[: max(0, room)]:
            self._waiting.remove(work)
        return ready[: max(0, room)]

    @property
    def _is_careful(self) -> bool:
        """Whether it has just started, perhaps in the place of one that a window has ended."""
        return self._ended < ALONE

    def _is_settled(self, work: HiddenStates) -> bool:
        recording = self._recording(work)
        return recording is not None and recording.is_settled

    def _begin(self, work: HiddenStates, desk: Desk) -> None:
        recording = self._recording(work)
        if recording is None:
            desk.release()
            return
        desk.works_on(work.job, work.window, work.attempt)
        encoded = work.states, AudioContext(work.kept or self._n_audio_ctx, self._n_audio_ctx)
        window = EncodedWindow.in_recording(work.window, encoded, work.start, work.end, work.speech)
        window = replace(window, is_final=work.live)
        place = work.job, work.attempt, work.window
        self._begun[place] = Begun(work, recording, time.perf_counter())
        self._side_by_side.begin(place, window, recording)

    def _tell(self, place: Place, outcome: Outcome, desk: Desk) -> None:
        """Tell the hub what a turn has brought of a window."""
        begun = self._begun[place]
        match outcome:
            case Finished(None):
                desk.tell(Redo(job=begun.work.job, window=begun.work.window, attempt=begun.work.attempt))
                self._recordings[begun.work.job] = begun.work.attempt + 1, None  # no more of this attempt
            case Finished(decoded) if decoded is not None:
                desk.tell(_segment(begun, decoded))
            case Exception():
                desk.fail(begun.work.job, outcome)
            case Hypothesis():
                desk.tell(_partial(begun.work, outcome))
                return
        self._end(place, desk)

    def _end(self, place: Place, desk: Desk) -> None:
        del self._begun[place]
        self._ended += 1
        desk.release()

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


def _segment(begun: Begun, decoded: DecodedWindow) -> Segment:
    work = begun.work
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
        decoder_s=time.perf_counter() - begun.started,
        cues=cues,
        speech=work.speech,
        language_probabilities=dict(decoded.language_probabilities),
        temperature=decoded.temperature,
        avg_logprob=decoded.avg_logprob,
        compression_ratio=decoded.compression_ratio,
        no_speech_prob=decoded.no_speech_prob,
        warnings=decoded.warnings,
        memory=begun.recording.memory,
        settled=begun.recording.is_settled,
    )


def main() -> None:
    """The decoder as a process."""
    from susurrus.actors import process  # noqa: PLC0415 - a host that embeds the actor has a process

    process.main(
        "decoder",
        lambda settings, _: DecoderBehaviour(
            Path(settings.model), settings.precision, settings.threads, settings.provider
        ),
    )


if __name__ == "__main__":
    main()
