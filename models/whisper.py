"""The whole pipeline in one process: no sockets, no children. The actors run the same stages and give the same text."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from susurrus.models.audio import AudioReader
from susurrus.models.config import AudioParameters, ModelConfig
from susurrus.models.decoding import WindowDecoder, WindowOptions, check_language, check_task, encode_prompt
from susurrus.models.frontend import Frontend, MelWindow, check_samples
from susurrus.models.mel import LogMel, pad_frames
from susurrus.models.provision import ensure_model
from susurrus.models.results import Partial, Segment, Transcript, join_text
from susurrus.models.sessions import Decoder, Encoder
from susurrus.models.threads import usable_cpus
from susurrus.models.tokenizer import Tokenizer

Float32Array = NDArray[np.float32]
AudioSource = str | Path | Float32Array


class Whisper:
    """Transcribes files and arrays in this process.

    One thread at a time: the decoder's KV cache is state. `Whisper.load("base")` finds, and if need be provisions, a
    model by name; a path names a model directory.
    """

    def __init__(
        self, config: ModelConfig, log_mel: LogMel, encoder: Encoder, decoder: Decoder, tokenizer: Tokenizer
    ) -> None:
        self.config = config
        self.tokenizer = tokenizer
        self._log_mel = log_mel
        self._encoder = encoder
        self._decoder = WindowDecoder(decoder, tokenizer, config)

    @classmethod
    def load(cls, model: str | Path = "base", *, precision: str = "int8", threads: int = 0) -> Whisper:
        """Load a model.

        Args:
            model: a known name (`base`, `tiny.en`) or a model directory.
            precision: `int8` or `float32`.
            threads: intra-op threads of each session; 0 takes the CPUs this process may use.

        Raises:
            ModelError: files are missing or damaged and cannot be had.
        """
        directory = ensure_model(model, precisions=(precision,))
        threads = threads or usable_cpus()
        return cls(
            ModelConfig.from_directory(directory),
            LogMel.from_directory(directory),
            Encoder(directory, precision=precision, threads=threads),
            Decoder(directory, precision=precision, threads=threads),
            Tokenizer.from_directory(directory),
        )

    def transcribe(
        self,
        audio: AudioSource,
        *,
        language: str | None = None,
        task: str = "transcribe",
        prompt: str = "",
        on_partial: Callable[[Partial], None] | None = None,
    ) -> Transcript:
        """Transcribe a file or array to its end; see `stream`."""
        for item in self.stream(audio, language=language, task=task, prompt=prompt):
            if isinstance(item, Transcript):
                return item
            if on_partial is not None and isinstance(item, Partial):
                on_partial(item)
        raise AssertionError("stream ends with a Transcript")  # pragma: no cover

    def stream(
        self, audio: AudioSource, *, language: str | None = None, task: str = "transcribe", prompt: str = ""
    ) -> Iterator[Partial | Segment | Transcript]:
        """Transcribe, yielding a Partial for every token that shows, a Segment per window, at last the Transcript.

        Args:
            audio: a path, or float32 mono samples (n,) at the model's sample rate, in [-1, 1].
            language: name or code; None detects it on the first window with speech.
            task: `transcribe` or `translate`.
            prompt: text given to the decoder before every window, as if it had just been said.

        Raises:
            AudioError: the input cannot be read.
            OptionError: language or task do not exist for this model.
        """
        check_task(task, multilingual=self.tokenizer.special.multilingual)
        language = check_language(language, self.tokenizer.special)
        work = dict.fromkeys(("frontend", "encoder", "decoder"), 0.0)
        frontend = Frontend(self.config.audio, self._log_mel)
        segments: list[Segment] = []
        options = WindowOptions(language, task, encode_prompt(self.tokenizer, prompt))
        with _open_blocks(audio, self.config.audio) as (blocks, warnings):
            for window in _timed(frontend.windows(blocks), work):
                segment = yield from self._window(window, options, work)
                if segment.language and options.language is None:
                    options = WindowOptions(segment.language, task, options.prompt)
                segments.append(segment)
                yield segment
        spoken = next((s for s in segments if s.language), None)
        yield Transcript(
            text=join_text(segment.text for segment in segments),
            segments=tuple(segments),
            language=spoken.language if spoken else "",
            language_probability=spoken.language_probability if spoken else 0.0,
            duration=frontend.duration,
            warnings=(*warnings, *frontend.warnings),
            timings=work,
        )

    def _window(
        self, window: MelWindow, options: WindowOptions, work: dict[str, float]
    ) -> Generator[Partial, None, Segment]:
        if window.mel is None:
            return Segment(window.index, window.start, window.end, "", (), "", 0.0, truncated=False)
        started = time.perf_counter()
        hidden_states = self._encoder(pad_frames(window.mel, window.silence, self.config.audio.n_frames))
        work["encoder"] += time.perf_counter() - started
        started = time.perf_counter()
        steps = self._decoder.decode(hidden_states, options)
        while True:
            try:
                hypothesis = next(steps)
            except StopIteration as stop:
                decoded = stop.value
                break
            yield Partial(window.index, window.start, window.end, hypothesis)
        work["decoder"] += time.perf_counter() - started
        return Segment(
            window.index,
            window.start,
            window.end,
            decoded.text,
            decoded.tokens,
            decoded.language,
            decoded.language_probability,
            decoded.truncated,
        )


@contextmanager
def _open_blocks(
    audio: AudioSource, parameters: AudioParameters
) -> Generator[tuple[Iterable[Float32Array], list[str]], None, None]:
    """Blocks of samples and the list that warnings about them come to stand in."""
    if isinstance(audio, np.ndarray):
        check_samples(audio, parameters.sample_rate)
        yield (audio,), []
        return
    with AudioReader(audio, parameters.sample_rate) as reader:
        yield reader, reader.warnings


def _timed(windows: Iterator[MelWindow], work: dict[str, float]) -> Iterator[MelWindow]:
    """The same windows; the time their making takes is added to the frontend's."""
    while True:
        started = time.perf_counter()
        window = next(windows, None)
        work["frontend"] += time.perf_counter() - started
        if window is None:
            return
        yield window
