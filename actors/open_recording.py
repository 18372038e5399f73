"""One recording as the frontend reads it: its windows, and by which lane each of them goes.

A decoder keeps, for each recording, what earlier windows say about later ones: the language, the text before. Until
that is settled all windows of an attempt go by one lane; then by any, and each brings what a decoder has to know.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import ExitStack

from susurrus.models.audio import AudioReader
from susurrus.models.config import ModelConfig
from susurrus.models.frontend import Frontend, MelWindow
from susurrus.models.mel import LogMel
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
        self.prepared: MelWindow | None = None
        """The next window to send: it waits for credit."""
        self.is_read = False
        self.is_live = submit.source == STDIN and audio_fd is not None
        """Whether its audio comes when it comes."""
        self._memory = ""  # for a decoder that has not seen the windows before
        self._is_settled = False  # it will not change any more
        self._full: tuple[int, ...] = ()  # windows that are wanted with every encoder position
        self._lane: int | None = None  # by which the last window of this attempt went
        self._is_promised = False  # its decoder was told that the next one follows
        self._rate = config.audio.sample_rate
        self._audio_fd = audio_fd
        self._frontend = Frontend(config.audio, log_mel, vad=submit.options.vad)
        self._resources = ExitStack()
        self._reader: AudioReader | None = None
        self._windows: Iterator[MelWindow] = iter(())
        self._kept: deque[MelWindow] = deque()  # not committed, in order
        self._unsent: deque[MelWindow] = deque()  # those of them that are to be sent again
        self._ahead: MelWindow | None = None  # read before its turn
        self._is_exhausted = False  # there is no window behind these
        self._skipped = 0  # windows committed before this frontend knew the job
        self._busy = 0.0

    @property
    def turn(self) -> str:
        """What it shares its turn to be read with: those of its group, of which the first comes first."""
        return self.submit.group or self.submit.job.hex()

    @property
    def next_index(self) -> int:
        """Of the window that `read` gives next."""
        return self._next.index if self._next is not None else max(self._skipped, self._frontend.n_windows)

    @property
    def _next(self) -> MelWindow | None:
        """What `read` gives next, where that is known."""
        return self._unsent[0] if self._unsent else self._ahead

    @property
    def can_look_ahead(self) -> bool:
        """Whether it is not known what comes behind the prepared window, and need not be waited for."""
        return not (self._is_exhausted or self.is_live) and self._next is None

    @property
    def has_more(self) -> bool:
        """Whether `read` may be called."""
        return bool(self._unsent) or not self.is_read

    @property
    def is_open(self) -> bool:
        """Whether `open` was called."""
        return self._reader is not None

    @property
    def is_finished(self) -> bool:
        """Whether all is read, and nothing is left that could be asked for again."""
        return self.is_read and not self._kept

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

    def begin_attempt(self, order: Reissue) -> None:
        """Go on behind the committed windows, as another attempt."""
        self.attempt, self._memory, self._is_settled = order.attempt, order.memory, order.settled
        self._full = order.full
        self._lane, self._is_promised, self.prepared, self._ahead = None, False, None, None
        self._skipped = order.window
        self._forget(order.window)
        self._unsent = deque(self._kept)

    def commit(self, message: Committed) -> None:
        """These windows will not be asked for again; perhaps what later ones are decoded by is settled now."""
        self._forget(message.windows)
        if message.settled:
            self._memory, self._is_settled = message.memory, True

    def _forget(self, windows: int) -> None:
        while self._kept and self._kept[0].index < windows:
            self._kept.popleft()

    def read(self) -> MelWindow | None:
        """The next window; None at the end of the audio.

        Raises:
            AudioError: the audio cannot be read on.
        """
        if self._unsent:
            return self._unsent.popleft()
        if self._ahead is None:
            self.look_ahead()
        window, self._ahead = self._ahead, None
        self.is_read = window is None
        return window

    def look_ahead(self) -> None:
        """Read the window that `read` gives next.

        Raises:
            AudioError: the audio cannot be read on.
        """
        started = time.perf_counter()
        self._ahead = None if self._is_exhausted else next(self._windows, None)
        self._busy += time.perf_counter() - started
        if self._ahead is None:
            self._is_exhausted = True
        else:
            self._kept.append(self._ahead)

    def lane(self, credit: Mapping[int, int]) -> int | None:
        """By which the prepared window goes now: the one that can take most, of equals the last one; None for none.

        Args:
            credit: lane -> windows that it takes.
        """
        if self._lane is not None and (self._is_promised or not self._is_settled):
            return self._lane if credit.get(self._lane) else None
        return max(credit, key=lambda lane: (credit[lane], lane == self._lane, -lane), default=None)

    def announcement(self, window: MelWindow) -> Window:
        """What the hub is told of a window."""
        spoken = window.mel is not None
        return Window(self.submit.job, window.index, self.attempt, window.start, window.end, spoken)

    def features(self, window: MelWindow, lane: int, *, is_only: bool) -> Features:
        """What an encoder is sent of a window with speech; the memory too, if it is settled or the attempt begins.

        Args:
            window: that was prepared.
            lane: by which it goes.
            is_only: there is no other that might be free before this one, so the next window is promised to it.
        """
        assert window.mel is not None  # noqa: S101 - for the type checker
        is_first = self._lane is None  # no decoder is to wait with the first text
        memory, self._lane = self._memory, lane
        self._is_promised = is_only and not is_first and self._next is not None and self._next.mel is not None
        if not self._is_settled:
            self._memory = ""  # the decoder of this lane has it
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
            full_context=window.index in self._full,
            live=self.is_live,
            more=self._is_promised,
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

    def close(self) -> None:
        """Close the audio. Idempotent."""
        self._resources.close()
