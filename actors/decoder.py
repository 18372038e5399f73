"""The decoder actor: hidden states in, growing text out. `python -m susurrus.actors.decoder --connection FILE`."""

from __future__ import annotations

import time
from pathlib import Path

from susurrus.actors.shell import Behaviour, Desk, Loaded, Work
from susurrus.models.config import ModelConfig
from susurrus.models.decoding import WindowDecoder, WindowOptions, check_language, check_task, encode_prompt
from susurrus.models.results import DecodedWindow, Hypothesis
from susurrus.models.sessions import Decoder
from susurrus.models.tokenizer import Tokenizer
from susurrus.protocol import HiddenStates, Partial, Segment

MAX_JOBS_REMEMBERED = 64  # jobs pass one after another; a few overlap at most


class DecoderBehaviour(Behaviour):
    """Decodes one window after another and tells the hub every token that shows."""

    name = "decoder"
    has_inbox = True

    def __init__(self, directory: Path, precision: str, threads: int) -> None:
        self._directory = directory
        self._precision = precision
        self._threads = threads
        self._languages: dict[bytes, str] = {}  # job -> language of its first window with speech

    def load(self) -> Loaded:
        """Load the sessions and the vocabulary."""
        config = ModelConfig.from_directory(self._directory)
        self._tokenizer = Tokenizer.from_directory(self._directory)
        session = Decoder(self._directory, precision=self._precision, threads=self._threads)
        self._decoder = WindowDecoder(session, self._tokenizer, config)
        return Loaded(config.name, threads=self._threads)

    def handle(self, work: Work, desk: Desk) -> None:
        """Decode a window; between two tokens look whether the job is still wanted."""
        if not isinstance(work, HiddenStates):
            return
        started = time.perf_counter()
        steps = self._decoder.decode(work.states, self._options(work))
        while not desk.is_given_up(work.job):
            try:
                hypothesis = next(steps)
            except StopIteration as stop:
                decoded: DecodedWindow = stop.value
                self._remember(work.job, decoded.language)
                desk.tell(_segment(work, decoded, time.perf_counter() - started))
                return
            desk.tell(_partial(work, hypothesis))

    def _remember(self, job: bytes, language: str) -> None:
        self._languages.setdefault(job, language)
        if len(self._languages) > MAX_JOBS_REMEMBERED:
            del self._languages[next(iter(self._languages))]

    def _options(self, work: HiddenStates) -> WindowOptions:
        special = self._tokenizer.special
        check_task(work.options.task, multilingual=special.multilingual)
        language = check_language(work.options.language, special) or self._languages.get(work.job)
        return WindowOptions(language, work.options.task, encode_prompt(self._tokenizer, work.options.prompt))


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
    )


def _segment(work: HiddenStates, decoded: DecodedWindow, decoder_s: float) -> Segment:
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
    )


if __name__ == "__main__":
    from susurrus.actors.process import main

    main(
        "decoder",
        lambda settings, _: DecoderBehaviour(Path(settings.model), settings.precision, settings.threads),
    )
