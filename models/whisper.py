"""The whole pipeline in one process: no sockets, no children. The actors run the same stages and give the same text."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import numpy as np
from numpy.typing import NDArray

from susurrus.models.audio import AudioReader
from susurrus.models.config import ModelConfig
from susurrus.models.cues import shift_cues
from susurrus.models.decoding import WindowDecoder
from susurrus.models.dimensions import AudioParameters
from susurrus.models.frontend import Frontend, MelWindow, check_samples
from susurrus.models.ladder import EncodedWindow
from susurrus.models.layouts import load_encoder
from susurrus.models.mel import LogMel
from susurrus.models.options import DecodingOptions, OptionFields
from susurrus.models.providers import CPU
from susurrus.models.provision import ensure_model
from susurrus.models.recording import Recording
from susurrus.models.results import NOTHING, DecodedWindow, Partial, Segment, Transcript
from susurrus.models.summary import summarise
from susurrus.models.threads import usable_cpus

if TYPE_CHECKING:
    from susurrus.models.layouts import AnyEncoder

Float32Array = NDArray[np.float32]
AudioSource = str | Path | Float32Array


class Whisper:
    """Transcribes files and arrays in this process.

    One thread at a time: the decoder's KV cache is state. `Whisper.load("base")` finds, and if need be provisions, a
    model by name; a path names a model directory.
    """

    def __init__(self, config: ModelConfig, log_mel: LogMel, encoder: AnyEncoder, decoder: WindowDecoder) -> None:
        self.config = config
        self._log_mel = log_mel
        self._encoder = encoder
        self._decoder = decoder

    @classmethod
    def load(
        cls, model: str | Path = "base", *, precision: str | None = None, threads: int = 0, provider: str = CPU
    ) -> Whisper:
        """Load a model.

        Args:
            model: a known name (`base`, `tiny.en`) or a model directory, an Optimum export for one.
            precision: `int8` or `float32`; None takes `int8`, and of an Optimum export what there is.
            threads: intra-op threads of each session; 0 takes the CPUs this process may use.
            provider: that runs the graphs, a name of `models/providers.py`.

        Raises:
            ModelError: files are missing or damaged and cannot be had.
            OptionError: an Optimum export is of another precision.
        """
        directory = ensure_model(model, precisions=(precision,) if precision else None)
        threads = threads or usable_cpus()
        return cls(
            ModelConfig.from_directory(directory),
            LogMel.from_directory(directory),
            load_encoder(directory, precision=precision, threads=threads, provider=provider),
            WindowDecoder.load(directory, precision=precision, threads=threads, provider=provider),
        )

    def transcribe(
        self,
        audio: AudioSource,
        *,
        on_partial: Callable[[Partial], None] | None = None,
        **options: Unpack[OptionFields],
    ) -> Transcript:
        """Transcribe a file or array to its end; see `stream`."""
        for item in self.stream(audio, **options):
            if isinstance(item, Transcript):
                return item
            if on_partial is not None and isinstance(item, Partial):
                on_partial(item)
        raise AssertionError("stream ends with a Transcript")  # pragma: no cover

    def stream(self, audio: AudioSource, **options: Unpack[OptionFields]) -> Iterator[Partial | Segment | Transcript]:
        """Transcribe, yielding a Partial for every token that shows, a Segment per window, at last the Transcript.

        Args:
            audio: a path, or float32 mono samples (n,) at the model's sample rate, in [-1, 1].
            options: fields of `DecodingOptions`, such as `language="en"` or `word_timestamps=True`.

        Raises:
            AudioError: the input cannot be read.
            OptionError: an option has a value that does not exist for this model.
        """
        recording = self._decoder.recording(DecodingOptions(**options))
        work = dict.fromkeys(("frontend", "encoder", "decoder"), 0.0)
        frontend = Frontend(self.config.audio, self._log_mel, vad=recording.options.vad)
        segments: list[Segment] = []
        with _open_blocks(audio, self.config.audio) as (blocks, warnings):
            for window in _timed(frontend.windows(blocks), work):
                segment = yield from self._window(window, recording, work)
                segments.append(segment)
                yield segment
        summary = summarise(segments)
        yield Transcript(
            text=summary.text,
            segments=tuple(segments),
            language=summary.language,
            language_probability=summary.language_probability,
            language_probabilities=summary.language_probabilities,
            duration=frontend.duration,
            speech_s=summary.speech_s,
            coverage=summary.coverage,
            warnings=(*warnings, *frontend.warnings, *summary.warnings),
            timings=work,
        )

    def _window(
        self, window: MelWindow, recording: Recording, work: dict[str, float]
    ) -> Generator[Partial, None, Segment]:
        if window.mel is None:
            return Segment(window.index, window.start, window.end, window.speech, NOTHING)
        decoded = yield from self._decoded(window, recording, work, full=recording.options.full_context)
        if decoded is None:
            decoded = yield from self._decoded(window, recording, work, full=True)
        assert decoded is not None  # noqa: S101 - for the type checker: a full context is never too little
        cues = shift_cues(decoded.cues, window.start, window.end)
        return Segment(window.index, window.start, window.end, window.speech, replace(decoded, cues=cues))

    def _decoded(
        self, window: MelWindow, recording: Recording, work: dict[str, float], *, full: bool
    ) -> Generator[Partial, None, DecodedWindow | None]:
        """The text of a window in its full context or another; None if it takes the full one."""
        assert window.mel is not None  # noqa: S101 - for the type checker
        started = time.perf_counter()
        states = self._encoder.encode_window(window.mel, window.silence, full=full)
        work["encoder"] += time.perf_counter() - started
        started = time.perf_counter()
        encoded = EncodedWindow.in_recording(window.index, states, window.start, window.end, window.speech)
        steps = self._decoder.decode(encoded, recording)
        while True:
            try:
                hypothesis = next(steps)
            except StopIteration as stop:
                work["decoder"] += time.perf_counter() - started
                decoded: DecodedWindow | None = stop.value
                return decoded
            if hypothesis is not None:
                yield Partial(window.index, window.start, window.end, hypothesis)


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
