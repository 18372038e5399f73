"""The encoder actor: log-mel in, hidden states out. `python -m susurrus.actors.encoder --connection FILE`."""

from __future__ import annotations

import time
from pathlib import Path

from susurrus.actors.behaviour import Behaviour, Desk, Loaded, Work
from susurrus.models.config import ModelConfig
from susurrus.models.layouts import load_encoder
from susurrus.models.providers import CPU
from susurrus.protocol import Features, HiddenStates


class EncoderBehaviour(Behaviour):
    """Runs the encoder session on one window after another."""

    name = "encoder"
    has_inbox = True

    def __init__(self, directory: Path, precision: str, threads: int, provider: str = CPU) -> None:
        self._directory = directory
        self._precision = precision
        self._threads = threads
        self._provider = provider

    def load(self) -> Loaded:
        """Load the session."""
        config = ModelConfig.from_directory(self._directory)
        self._encoder = load_encoder(
            self._directory, precision=self._precision, threads=self._threads, provider=self._provider
        )
        return Loaded(config.name, config.audio.sample_rate, config.dimensions.n_mels, self._threads)

    def handle(self, work: Work, desk: Desk) -> None:
        """Encode a window: what holds audio, and of the silence behind it a sample, or all if that is wanted."""
        if not isinstance(work, Features) or desk.is_given_up(work.job, work.attempt):
            return
        started = time.perf_counter()
        full = work.full_context or work.options.full_context
        states, context = self._encoder.encode_window(work.mel, work.silence, full=full)
        desk.forward(
            HiddenStates(
                job=work.job,
                window=work.window,
                attempt=work.attempt,
                start=work.start,
                end=work.end,
                options=work.options,
                encoder_s=time.perf_counter() - started,
                states=states,
                speech=work.speech,
                memory=work.memory,
                kept=0 if context.is_full else context.kept,
                more=work.more,
                live=work.live,
            )
        )


def main() -> None:
    """The encoder as a process."""
    from susurrus.actors import process  # noqa: PLC0415 - a host that embeds the actor has a process

    process.main(
        "encoder",
        lambda settings, _: EncoderBehaviour(
            Path(settings.model), settings.precision, settings.threads, settings.provider
        ),
    )


if __name__ == "__main__":
    main()
