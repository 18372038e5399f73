"""The frontend actor: audio in, log-mel windows out. `python -m susurrus.actors.frontend --connection FILE`."""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Iterator
from contextlib import ExitStack, nullcontext
from pathlib import Path

from susurrus.actors.behaviour import Behaviour, Desk, Loaded, Work
from susurrus.models.audio import AudioReader
from susurrus.models.config import ModelConfig
from susurrus.models.frontend import Frontend, MelWindow
from susurrus.models.mel import LogMel
from susurrus.models.silero import silero_network
from susurrus.protocol import AudioEnd, Committed, Features, Reissue, Span, Started, Submit, Window

STDIN = "-"


class OpenRecording:
    """One job's audio, read window by window. Windows are kept until they are committed: they may be asked for again.

    Args:
        submit: the job.
        config: of the model.
        log_mel: of the model.
        audio_fd: descriptor that the source `-` stands for.
    """

    def __init__(self, submit: Submit, config: ModelConfig, log_mel: LogMel, audio_fd: int | None) -> None:
        self.submit = submit
        self.attempt = 1
        self.memory = ""
        """For the next window that is sent; then the decoder has it."""
        self.is_read = False
        self.is_live = submit.source == STDIN and audio_fd is not None
        """Whether its audio comes when it comes."""
        self._rate = config.audio.sample_rate
        self._audio_fd = audio_fd
        self._frontend = Frontend(config.audio, log_mel, vad=submit.options.vad)
        self._resources = ExitStack()
        self._reader: AudioReader | None = None
        self._windows: Iterator[MelWindow] = iter(())
        self._kept: deque[MelWindow] = deque()  # not committed, in order
        self._unsent: deque[MelWindow] = deque()  # those of them that are to be sent (again)
        self._skipped = 0  # windows committed before this frontend knew the job
        self._busy = 0.0

    @property
    def next_index(self) -> int:
        """Of the window that `prepare` gives next."""
        return self._unsent[0].index if self._unsent else max(self._skipped, self._frontend.n_windows)

    @property
    def has_more(self) -> bool:
        """Whether `prepare` may be called."""
        return bool(self._unsent) or not self.is_read

    def open(self) -> Started:
        """Open the audio.

        Raises:
            AudioError: it cannot be read.
        """
        submit = self.submit
        if self.is_live and self._audio_fd is not None:
            stream = self._resources.enter_context(open(self._audio_fd, "rb", buffering=0, closefd=False))  # noqa: SIM115 - it is
            reader = AudioReader(stream, self._rate, name=submit.name)
        else:
            reader = AudioReader(submit.source, self._rate, name=submit.name)
        self._reader = self._resources.enter_context(reader)
        self._windows = self._frontend.windows(self._reader, skip=self._skipped)
        return Started(job=submit.job, seq=0, name=submit.name, duration=self._reader.duration)

    @property
    def is_open(self) -> bool:
        """Whether `open` was called."""
        return self._reader is not None

    def begin_attempt(self, order: Reissue) -> None:
        """Go on behind the committed windows, as another attempt."""
        self.attempt, self.memory = order.attempt, order.memory
        self._skipped = order.window
        self.forget(order.window)
        self._unsent = deque(self._kept)

    def forget(self, windows: int) -> None:
        """The first so many windows are committed: they will not be asked for again."""
        while self._kept and self._kept[0].index < windows:
            self._kept.popleft()

    def prepare(self) -> MelWindow | None:
        """The next window to send; None at the end of the audio.

        Raises:
            AudioError: the audio cannot be read on.
        """
        if self._unsent:
            return self._unsent.popleft()
        started = time.perf_counter()
        window = next(self._windows, None)
        self._busy += time.perf_counter() - started
        if window is None:
            self.is_read = True
        else:
            self._kept.append(window)
        return window

    def announcement(self, window: MelWindow) -> Window:
        """What the hub is told of a window."""
        spoken = window.mel is not None
        return Window(self.submit.job, window.index, self.attempt, window.start, window.end, spoken)

    def features(self, window: MelWindow) -> Features:
        """What the encoder is sent of a window with speech; the first one of an attempt brings the memory."""
        assert window.mel is not None  # noqa: S101 - for the type checker
        memory, self.memory = self.memory, ""
        return Features(
            job=self.submit.job,
            window=window.index,
            attempt=self.attempt,
            start=window.start,
            end=window.end,
            options=self.submit.options,
            silence=window.silence,
            mel=window.mel,
            speech=tuple(Span(span.start, span.end) for span in window.speech),
            memory=memory,
        )

    def end(self) -> AudioEnd:
        """What the hub is told when all is read; windows are still kept."""
        warnings = self._reader.warnings if self._reader is not None else []
        self._resources.close()
        return AudioEnd(
            job=self.submit.job,
            windows=self._frontend.n_windows,
            duration=self._frontend.duration,
            frontend_s=self._busy,
            complete=not warnings,
            warnings=(*warnings, *self._frontend.warnings),
        )

    @property
    def is_finished(self) -> bool:
        """Whether all is read, and nothing is left that could be asked for again."""
        return self.is_read and not self._kept

    def close(self) -> None:
        """Close the audio. Idempotent."""
        self._resources.close()


class FrontendBehaviour(Behaviour):
    """Reads recordings in turns, a window of each, never more than one window ahead of downstream's credit."""

    name = "frontend"
    has_inbox = False

    def __init__(self, directory: Path, audio_fd: int | None = None) -> None:
        """Keep what `load` needs.

        Args:
            directory: of the model.
            audio_fd: descriptor that the source `-` stands for.
        """
        self._directory = directory
        self._audio_fd = audio_fd
        self._recordings: OrderedDict[bytes, OpenRecording] = OrderedDict()  # whose turn it is comes first
        self._next: tuple[OpenRecording, MelWindow] | None = None  # prepared, and waits for credit

    def load(self) -> Loaded:
        """Load the log-mel filters, and the speech detector's weights so that the first job does not wait for them."""
        self._config = ModelConfig.from_directory(self._directory)
        self._log_mel = LogMel.from_directory(self._directory)
        silero_network()
        return Loaded(self._config.name, self._config.audio.sample_rate, self._config.dimensions.n_mels)

    def handle(self, work: Work, desk: Desk) -> None:
        """Take a job, or the order to do what is left of it once more; it is read in `go_on`."""
        match work:
            case Submit():
                self._recording(work)
            case Reissue():
                self._recording(work.submit).begin_attempt(work)
                if self._next is not None and self._next[0].submit.job == work.job:
                    self._next = None
            case Committed(job=job, windows=windows) if job in self._recordings:
                self._recordings[job].forget(windows)
                self._drop_finished(desk)

    def go_on(self, desk: Desk) -> bool:
        """Send the window that is prepared, if there is credit; prepare the next one otherwise."""
        self._drop_finished(desk)
        if self._next is not None:
            recording, window = self._next
            if desk.is_given_up(recording.submit.job, recording.attempt):
                self._next = None
                return True
            if not desk.has_credit:
                return False
            self._next = None
            desk.forward(recording.features(window))
            return True
        for job, recording in self._recordings.items():
            if recording.has_more and not desk.is_given_up(job, recording.attempt):
                self._recordings.move_to_end(job)
                self._read(recording, desk)
                return True
        return False

    def close(self) -> None:
        """Close what is open."""
        for job in list(self._recordings):
            self._drop(job)

    def _recording(self, submit: Submit) -> OpenRecording:
        if submit.job not in self._recordings:
            self._recordings[submit.job] = OpenRecording(submit, self._config, self._log_mel, self._audio_fd)
        return self._recordings[submit.job]

    def _read(self, recording: OpenRecording, desk: Desk) -> None:
        """Prepare the next window of a recording. What cannot be read fails its job alone."""
        job = recording.submit.job
        desk.works_on(job, recording.next_index, recording.attempt)
        try:
            if not recording.is_open:
                desk.tell(recording.open())
            with desk.waiting() if recording.is_live else nullcontext():
                window = recording.prepare()
        except Exception as error:  # noqa: BLE001 - one bad file must not take the others with it
            desk.fail(job, error)
            self._drop(job)
            return
        if window is None:
            desk.tell(recording.end())
            return
        desk.tell(recording.announcement(window))
        if window.mel is not None:
            self._next = recording, window

    def _drop_finished(self, desk: Desk) -> None:
        for job, recording in list(self._recordings.items()):
            if recording.is_finished or desk.is_over(job):
                self._drop(job)

    def _drop(self, job: bytes) -> None:
        self._recordings.pop(job).close()


if __name__ == "__main__":
    from susurrus.actors.process import actor_parser, main

    parser = actor_parser("frontend")
    parser.add_argument("--audio-fd", type=int, metavar="N", help="descriptor that the source `-` stands for")
    main(
        "frontend",
        lambda settings, options: FrontendBehaviour(Path(settings.model), options.audio_fd),
        parser,
    )
