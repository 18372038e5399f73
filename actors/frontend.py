"""The frontend actor: audio in, log-mel windows out. `python -m susurrus.actors.frontend --connection FILE`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from susurrus.actors.shell import Behaviour, Desk, Loaded, Work
from susurrus.models.audio import AudioReader
from susurrus.models.config import ModelConfig
from susurrus.models.frontend import Frontend, MelWindow
from susurrus.models.mel import LogMel
from susurrus.models.silero import silero_network
from susurrus.protocol import AudioEnd, Features, Span, Started, Submit, Window

FIRST_ATTEMPT = 1
STDIN = "-"


class FrontendBehaviour(Behaviour):
    """Reads one recording after another, never more than the windows downstream has credit for."""

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

    def load(self) -> Loaded:
        """Load the log-mel filters, and the speech detector's weights so that the first job does not wait for them."""
        self._config = ModelConfig.from_directory(self._directory)
        self._log_mel = LogMel.from_directory(self._directory)
        silero_network()
        return Loaded(self._config.name, self._config.audio.sample_rate, self._config.dimensions.n_mels)

    def handle(self, work: Work, desk: Desk) -> None:
        """Read a recording to its end, window by window, or until the job is given up."""
        if not isinstance(work, Submit):
            return
        clock = time.perf_counter
        frontend = Frontend(self._config.audio, self._log_mel, vad=work.options.vad)
        busy, windows = 0.0, 0
        started = clock()
        with self._open(work) as reader:
            desk.tell(Started(job=work.job, seq=0, name=work.name, duration=reader.duration))
            for window in frontend.windows(reader):
                busy += clock() - started
                if desk.is_given_up(work.job):
                    return
                windows += 1
                _send(work, window, desk)
                started = clock()
            desk.tell(
                AudioEnd(
                    job=work.job,
                    windows=windows,
                    duration=frontend.duration,
                    frontend_s=busy + clock() - started,
                    complete=not reader.warnings,
                    warnings=(*reader.warnings, *frontend.warnings),
                )
            )

    @contextmanager
    def _open(self, work: Submit) -> Iterator[AudioReader]:
        rate = self._config.audio.sample_rate
        if work.source != STDIN or self._audio_fd is None:
            with AudioReader(work.source, rate, name=work.name) as reader:
                yield reader
            return
        with (
            open(self._audio_fd, "rb", buffering=0, closefd=False) as stream,
            AudioReader(stream, rate, name=work.name) as reader,
        ):
            yield reader


def _send(work: Submit, window: MelWindow, desk: Desk) -> None:
    """Announce a window to the hub; then, if somebody speaks in it, send it down the line."""
    desk.tell(
        Window(
            job=work.job,
            window=window.index,
            attempt=FIRST_ATTEMPT,
            start=window.start,
            end=window.end,
            speech=window.mel is not None,
        )
    )
    if window.mel is None:
        return
    desk.forward(
        Features(
            job=work.job,
            window=window.index,
            attempt=FIRST_ATTEMPT,
            start=window.start,
            end=window.end,
            options=work.options,
            silence=window.silence,
            mel=window.mel,
            speech=tuple(Span(span.start, span.end) for span in window.speech),
        )
    )


if __name__ == "__main__":
    from susurrus.actors.process import actor_parser, main

    parser = actor_parser("frontend")
    parser.add_argument("--audio-fd", type=int, metavar="N", help="descriptor that the source `-` stands for")
    main(
        "frontend",
        lambda settings, options: FrontendBehaviour(Path(settings.model), options.audio_fd),
        parser,
    )
