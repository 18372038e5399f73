"""Many recordings through one pipeline: a few are submitted ahead, their segments are kept, their files are written.

Runs on the thread that owns the client. What it holds is bounded by the jobs in work, not by their number.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import Protocol, Unpack

from susurrus.actors import exits
from susurrus.actors.client import JobWishes
from susurrus.actors.journal_file import default_path
from susurrus.actors.outputs import OutputFiles
from susurrus.actors.render import clock
from susurrus.actors.terminal import cell_count, neutralise
from susurrus.actors.view import JobEvent, job_text
from susurrus.models.errors import OutputError
from susurrus.models.graphemes import clusters
from susurrus.models.inputs import Input
from susurrus.models.results import Cue, Word
from susurrus.models.writers import Document, DocumentSegment
from susurrus.protocol import Done, Failed, Segment, Started, TerminalEvent, TranscribeOptions

SUBMITTED_AHEAD = 16  # jobs: the frontend reads ahead, and the hub's queue is for everybody
NAME_CELLS = 36  # of a name in the table

log = logging.getLogger(__name__)


class Jobs(Protocol):
    """What a batch needs of a client."""

    def submit(self, source: str, **wishes: Unpack[JobWishes]) -> bytes:
        """Ask for a transcription; return the job's id."""

    def receive(self, timeout: float | None = None) -> JobEvent | None:
        """The next event of our jobs."""


@dataclass(frozen=True, slots=True)
class Row:
    """What became of one input."""

    name: str
    result: str
    """`done`, `damaged`, `failed`, `cancelled`, `not written`, or `there already`."""
    duration: float | None = None
    """Seconds of audio; None where nothing was read."""
    seconds: float = 0.0
    """That the pipeline worked on it, as far as it worked on no input before it."""
    language: str = ""
    """Code and probability; empty without speech."""
    shared: float = 0.0
    """Of its seconds, those that are another's already: several are in work at once."""


@dataclass(slots=True)
class _Open:
    """A job in work."""

    source: Input
    journal: str
    number: int
    """Of the input, in the order in which they are given."""
    before: float
    """When the last of the inputs before it ended."""
    segments: list[Segment] = field(default_factory=list)
    started: float = 0.0


class Batch:
    """Transcribes inputs; a bad one does not keep the others from being transcribed."""

    def __init__(
        self,
        outputs: OutputFiles | None = None,
        *,
        deadline_s: float | None = None,
        resumes: bool = False,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Nothing is submitted yet.

        Args:
            outputs: where results are written; None: nowhere, whoever follows the pipeline shows them.
            deadline_s: of each input, from when the pipeline has accepted it; None for none.
            resumes: keep a journal of each input, and go on from the one of an interrupted run.
            now: a clock, in seconds.
        """
        self.complaints: list[str] = []
        """A line for each file that could not be written. They wait here: meanwhile the terminal is the console's."""
        self.journals: list[Path] = []
        """Of the inputs that are done: to be removed once their text is safe."""
        self._outputs = outputs
        self._deadline_s = deadline_s
        self._resumes = resumes
        self._group = secrets.token_hex(8)  # its inputs are done in order, however many others use the pipeline
        self._now = now
        self._rows: list[tuple[int, Row]] = []
        self._open: dict[bytes, _Open] = {}
        self._last_end = now()

    @property
    def rows(self) -> list[Row]:
        """Of the inputs that are finished, in the order in which they were given."""
        return [row for _, row in sorted(self._rows, key=itemgetter(0))]

    def remove_journals(self) -> None:
        """Of the inputs that are done: their text is where the user wants it."""
        for path in self.journals:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)

    def skip_existing(self, inputs: Sequence[Input]) -> list[Input]:
        """The inputs that have not all their files yet; the others are finished."""
        there = {source for source in inputs if self._outputs is not None and self._outputs.are_there(source)}
        self._rows += [(-1, Row(source.path, "there already")) for source in inputs if source in there]
        return [source for source in inputs if source not in there]

    def run(self, jobs: Jobs, options: TranscribeOptions, inputs: Sequence[Input]) -> int:
        """Transcribe all; return the exit code.

        Args:
            jobs: a client of the pipeline.
            options: of every job.
            inputs: in the order in which they are to be done.

        Raises:
            PipelineError: the pipeline ended first; `rows` tells of the inputs that were finished.
        """
        codes = [exits.OK]
        waiting = deque(enumerate(inputs))
        while waiting or self._open:
            while waiting and len(self._open) < SUBMITTED_AHEAD:
                number, source = waiting.popleft()
                journal = str(default_path(source.source)) if self._resumes and not source.is_stdin else ""
                job = jobs.submit(
                    source.source,
                    name=source.path,
                    options=options,
                    group=self._group,
                    deadline_s=self._deadline_s,
                    journal=journal,
                )
                self._open[job] = _Open(source, journal, number, self._last_end)
            event = jobs.receive()
            if isinstance(event, TerminalEvent):
                codes.append(self._finish(event))
            elif event is not None:
                self._follow(event)
        return exits.worst(codes)

    def _follow(self, event: JobEvent) -> None:
        work = self._open[event.job]
        if isinstance(event, Started):
            work.started = self._now()
        elif isinstance(event, Segment) and self._outputs is not None:
            work.segments.append(event)

    def _finish(self, event: TerminalEvent) -> int:
        """Exit code that this job alone would have."""
        work, now = self._open.pop(event.job), self._now()
        seconds = now - max(work.before, work.started)
        shared = seconds - (now - max(self._last_end, work.started))
        self._last_end = now
        for later in self._open.values():
            later.before = now if later.number > work.number else later.before
        if not isinstance(event, Done):
            result = "failed" if isinstance(event, Failed) else "cancelled"
            self._rows.append((work.number, Row(work.source.path, result)))
            is_input = isinstance(event, Failed) and event.code in ("audio", "option")
            return exits.INPUT if is_input else exits.PIPELINE
        code = exits.OK if event.complete else exits.DAMAGED
        result = "done" if event.complete else "damaged"
        try:
            self._write(work, event)
        except OutputError as error:
            self.complaints.append(str(error))
            code, result = exits.OUTPUT, "not written"
        else:
            self.journals += [Path(work.journal)] if work.journal else []
        language = f"{event.language} {event.language_probability:.0%}" if event.language else ""
        row = Row(work.source.path, result, event.duration, seconds, language, shared)
        self._rows.append((work.number, row))
        return code

    def _write(self, work: _Open, done: Done) -> None:
        if self._outputs is None:
            return
        text = job_text(work.segments)
        windows = [segment.window for segment in work.segments]
        if windows != list(range(len(windows))) or (done.text and done.text != text):
            # A snapshot has not all segments of very much text; Done has none of it then.
            raise OutputError(f"{work.source.path}: some of its text was lost on the way; transcribe it again")
        self._outputs.write(work.source, document(work.source.path, text, work.segments, done))
        log.info("files written", extra={"job": done.job.hex()})


def document(name: str, text: str, segments: Sequence[Segment], done: Done) -> Document:
    """What the events of a finished job say, for the writers."""
    return Document(
        name=name,
        text=text,
        segments=tuple(made for segment in segments for made in _document_segments(segment)),
        language=done.language,
        language_probability=done.language_probability,
        language_probabilities=done.language_probabilities,
        duration=done.duration,
        speech_s=done.speech_s,
        coverage=done.coverage,
        complete=done.complete,
        warnings=done.warnings,
    )


def _document_segments(segment: Segment) -> Iterator[DocumentSegment]:
    for cue in _cues(segment):
        yield DocumentSegment(
            cue=cue,
            window_start=segment.start,
            language=segment.language,
            temperature=segment.temperature,
            avg_logprob=segment.avg_logprob,
            compression_ratio=segment.compression_ratio,
            no_speech_prob=segment.no_speech_prob,
        )


def _cues(segment: Segment) -> Iterator[Cue]:
    """Its cues; an actor that does not know of cues yet gives the text of a window alone."""
    if segment.text and not segment.cues:
        yield Cue(segment.start, segment.end, segment.text, segment.tokens)
    for cue in segment.cues:
        words = tuple(Word(word.start, word.end, word.text, word.probability) for word in cue.words)
        yield Cue(cue.start, cue.end, cue.text, cue.tokens, words)


# --- the table at the end -------------------------------------------------------------------------------------


def table(rows: Sequence[Row]) -> list[str]:
    """What became of the inputs, a line each, and one of sums."""
    cells = [("file", "length", "language", "speed", "result"), *(_cells(row) for row in rows)]
    widths = [max(map(cell_count, column)) for column in zip(*cells, strict=True)]
    return [_line(line, widths) for line in cells] + [totals(rows)]


def totals(rows: Sequence[Row]) -> str:
    """Such as `3 files: 2 done, 1 failed; 12:34 of audio in 85 s (8.9x)`."""
    results = list(dict.fromkeys(row.result for row in rows))
    counts = ", ".join(f"{sum(row.result == result for row in rows)} {result}" for result in results)
    audio, seconds = sum(row.duration or 0.0 for row in rows), sum(row.seconds - row.shared for row in rows)
    speed = f"; {clock(audio)} of audio in {seconds:.1f} s ({audio / seconds:.1f}x)" if audio and seconds else ""
    return f"{len(rows)} files: {counts}{speed}"


def _cells(row: Row) -> tuple[str, ...]:
    length = "" if row.duration is None else clock(row.duration)
    speed = f"{row.duration / row.seconds:.1f}x" if row.duration and row.seconds else ""
    return _shortened(neutralise(row.name)), length, row.language, speed, row.result


def _line(cells: Iterable[str], widths: Iterable[int]) -> str:
    return "  ".join(
        cell + " " * (width - cell_count(cell)) for cell, width in zip(cells, widths, strict=True)
    ).rstrip()


def _shortened(name: str) -> str:
    """The end of a long name, which is what tells files apart."""
    characters = clusters(name)
    if cell_count(name) <= NAME_CELLS:
        return name
    while cell_count("".join(characters)) >= NAME_CELLS:
        del characters[0]
    return "…" + "".join(characters)
