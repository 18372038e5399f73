"""What is written down of an actor that is looked at: its journal, and the files of the windows that pass."""

from __future__ import annotations

import io
import json
import os
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from susurrus.actors.behaviour import Work
from susurrus.actors.trace_journal import Journal, make_private, names, now_ns, open_private, shown, write_private
from susurrus.models.tracing import (
    Record,
    TracedDecoder,
    hidden_state_facts,
    mel_facts,
    mel_picture,
    position_norms,
)
from susurrus.protocol import Features, HiddenStates, Message, Ping, Window

ArrayMessage = Features | HiddenStates

LAST_WORDS_S = 0.3  # for the end of a piece of work; a session that runs longer is not waited for


class ActorTrace:
    """What one actor writes: its journal, and the files of the windows that pass."""

    def __init__(self, folder: Path, actor: str) -> None:
        self.journal = Journal(folder, actor)
        self._folder = folder
        self._actor = actor
        self._arrivals: dict[str, int] = {}  # window -> when it came into the inbox; written by the I/O thread
        self._mark = 0  # since when the compute thread works on the next window
        self._credit_ns = 0  # that it waited for credit since then
        self._prepared: dict[str, tuple[int, int]] = {}  # window -> when its preparation began and ended
        self._decoding: int | None = None  # descriptor of the records of the window that is being decoded
        self.working = threading.Lock()
        """Held while a piece of work is done and written down."""

    # --- the I/O thread ---

    def hears(self, message: Message) -> None:
        """The hub said something."""
        if not isinstance(message, Ping):
            self.journal.instant(message.TYPE, "received", now_ns(), **shown(message))

    def arrived(self, window: ArrayMessage) -> None:
        """A window came into the inbox."""
        identity = _identity(window)
        self._arrivals[identity] = now_ns()
        self.journal.span("b", "in the inbox", "queue", f"{self._actor} {identity}", **names(window))

    # --- the compute thread ---

    @contextmanager
    def works(self, what: str, work: Work | None = None) -> Generator[None, None, None]:
        """All of a piece of work; of one window, if it is about one that came into the inbox."""
        with self.working:
            started = self._begin()
            if isinstance(work, Features | HiddenStates):
                with self._works_on(work, started):
                    yield
                return
            try:
                yield
            finally:
                self.journal.slice(what, "work", started, now_ns(), **({} if work is None else shown(work)))

    @contextmanager
    def _works_on(self, work: ArrayMessage, started: int) -> Generator[None, None, None]:
        identity = _identity(work)
        arrived = self._arrivals.pop(identity, started)
        self.journal.span("e", "in the inbox", "queue", f"{self._actor} {identity}")
        self.journal.arrow("f", f"{identity} {work.TYPE}", now_ns())
        if isinstance(work, HiddenStates):
            self._try_to(lambda: self._open(self._folder_of(work) / "decoding.jsonl"))
        try:
            yield
        finally:
            self._end_records()
            self._finish(work, started, waited=started - arrived)

    def goes_on(self, go_on: Callable[[], bool]) -> bool:
        """A piece of the actor's own work, if there was one to be done."""
        with self.working:
            started = self._begin()
            if done := go_on():
                self.journal.slice("go on", "work", started, now_ns())
            return done

    def waited(self, start_ns: int) -> None:
        """The compute thread got credit that it has waited for since then."""
        end = now_ns()
        self._credit_ns += end - start_ns
        self.journal.slice("wait for credit", "credit", start_ns, end)

    def sent(self, message: Message, sent: int) -> None:
        """A message is on its way since then; what it holds is written down meanwhile."""
        match message:
            case Window():  # cut, and its log-mel computed; it is sent when there is credit
                self.journal.slice(f"prepare window {message.window}", "work", self._mark, sent, **shown(message))
                self._prepared[_identity(message)] = self._mark, sent
            case Features() | HiddenStates():
                self.journal.arrow("s", f"{_identity(message)} {message.TYPE}", sent)
                if prepared := self._prepared.pop(_identity(message), None):
                    self._credit_ns = sent - prepared[1]
                    self._finish(message, sent, worked=prepared[1] - prepared[0])
                self._try_to(lambda: self._write_arrays(message))
                self.journal.slice("write trace", "trace", sent, now_ns())
            case _:
                self.journal.instant(message.TYPE, "sent", sent, **shown(message))
        self._mark = now_ns()

    def _begin(self) -> int:
        self._mark, self._credit_ns = now_ns(), 0
        return self._mark

    def _finish(self, window: ArrayMessage, started: int, *, waited: int = 0, worked: int | None = None) -> None:
        """The slice of a window, with its times; `worked` where other things were done meanwhile."""
        end = now_ns()
        times = {"waited": waited, "worked": end - started - self._credit_ns if worked is None else worked}
        times["credit"] = self._credit_ns
        milliseconds = {f"{name}_ms": value / 1e6 for name, value in times.items()}
        identity = {**names(window), "attempt": window.attempt}
        self.journal.slice(f"window {window.window}", "window", started, end, **identity, **milliseconds)

    def load_decoder(self, directory: Path, *, precision: str, threads: int, provider: str) -> TracedDecoder:
        """As `WindowDecoder.load`: one that is looked at."""
        decoder = TracedDecoder.load(directory, precision=precision, threads=threads, provider=provider)
        decoder.on_record = self.record
        return decoder

    def record(self, record: Record) -> None:
        """The decoder did something."""
        if record["kind"] == "step":
            start = record["start_ns"]
            name = " ".join([record["what"], *map(repr, record["tokens"][:4])])
            self.journal.slice(name, "decoder", start, start + int(record["ms"] * 1e6))
        if self._decoding is not None:
            self._try_to(lambda: self._append(record))

    def close(self) -> None:
        """End the journal, when what is being written down is written (any thread)."""
        if self.working.acquire(timeout=LAST_WORDS_S):
            self.working.release()
        self.journal.close()

    # --- files ---

    def _append(self, record: Record) -> None:
        if self._decoding is not None:
            os.write(self._decoding, json.dumps(record).encode() + b"\n")  # with NaN where the model says so

    def _open(self, path: Path) -> None:
        self._decoding = open_private(path)

    def _end_records(self) -> None:
        if self._decoding is not None:
            with suppress(OSError):
                os.close(self._decoding)
            self._decoding = None

    def _write_arrays(self, message: ArrayMessage) -> None:
        folder = self._folder_of(message)
        if isinstance(message, Features):
            _write_mel(folder, message)
        else:
            _write_hidden_states(folder, message)

    def _folder_of(self, window: ArrayMessage) -> Path:
        again = "" if window.attempt == 1 else f".attempt-{window.attempt}"
        return make_private(make_private(self._folder / window.job.hex()) / f"window-{window.window:03}{again}")

    def _try_to(self, write: Callable[[], None]) -> None:
        """Files of a trace are not worth a job: without room for them it goes on."""
        if not self.journal.is_alive:
            return
        try:
            write()
        except OSError as error:
            self.journal.give_up(error)


def _write_mel(folder: Path, features: Features) -> None:
    spans = [(span.start, span.end) for span in features.speech]
    facts = mel_facts(features.mel, features.silence)
    facts |= {"start": features.start, "end": features.end, "speech": spans}
    write_private(folder / "mel.json", json.dumps(facts, indent=1).encode())
    times = {"start": np.float64(features.start), "end": np.float64(features.end)}
    speech = np.array(spans, np.float64).reshape(-1, 2)
    _write_npz(folder / "mel.npz", mel=features.mel, silence=np.float32(features.silence), speech=speech, **times)
    picture = mel_picture(features.mel, features.start, features.end, spans, floor=features.silence)
    write_private(folder / "mel.png", picture)


def _write_hidden_states(folder: Path, message: HiddenStates) -> None:
    facts = {**hidden_state_facts(message.states), "encoder_ms": 1e3 * message.encoder_s}
    write_private(folder / "hidden_states.json", json.dumps(facts, indent=1).encode())
    _write_npz(folder / "hidden_states.npz", norms=position_norms(message.states))


def _write_npz(path: Path, **arrays: Any) -> None:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    write_private(path, buffer.getvalue())


def _identity(window: ArrayMessage | Window) -> str:
    return f"{window.job.hex()} {window.window} {window.attempt}"
