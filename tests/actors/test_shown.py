"""A console that takes the place of a lost one shows what that had not shown, and nothing twice."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from susurrus.actors.render import PlainRenderer
from susurrus.actors.shown import Shown
from susurrus.actors.terminal import Output
from susurrus.actors.view import TranscriptView
from susurrus.protocol import Done, Event, Snapshot, new_id
from tests.actors.fakes import segment, started, window

JOBS = (new_id(), new_id())
TEXTS = (" One two.", " Three", " — four.")


def events_of(job: bytes) -> list[Event]:
    """Numbered events of a job of three windows."""
    events: list[Event] = [replace(started(job), seq=1)]
    for index, text in enumerate(TEXTS):
        events.append(replace(window(job, index), seq=2 * index + 2))
        events.append(replace(segment(job, index, text), seq=2 * index + 3))
    whole = "".join(TEXTS).strip()
    events.append(Done(job, 8, whole, "de", 0.75, 90.0, {}, complete=True, warnings=()))
    return events


EVENTS = [event for job in JOBS for event in events_of(job)]
WHOLE = ("".join(TEXTS).strip() + "\n") * 2


def show(path: Path, events: list[Event], known: int) -> str:
    """What a console writes that takes a snapshot of the first `known` events and is then told the others."""
    written = io.StringIO()
    shown = Shown(path)
    renderer = PlainRenderer(Output(written), Output(io.StringIO(), required=False), shown=shown)
    view = TranscriptView()
    view.apply_snapshot(Snapshot(()))
    for event in events[:known]:
        view.apply(event)
    renderer.on_change(view, [])
    for event in events[known:]:
        renderer.on_change(view, view.apply(event))
    shown.close()
    return written.getvalue()


@given(first=st.integers(0, len(EVENTS)), known=st.integers(0, len(EVENTS)))
def test_whenever_a_console_is_lost_the_next_one_completes_the_text(
    tmp_path_factory: pytest.TempPathFactory, first: int, known: int
) -> None:
    path = tmp_path_factory.mktemp("run") / "shown"
    before = show(path, EVENTS[:first], known=0)
    after = show(path, EVENTS, known=max(first, known))
    assert before + after == WHOLE


def test_a_record_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "shown"
    with_one = Shown(path)
    with_one.note(JOBS[0], 7)
    with_one.close()
    with path.open("ab") as file:
        file.write(b"half a record")
    shown = Shown(path)
    assert shown.characters(JOBS[0]) == 7
    shown.close()


def test_without_a_file_nothing_is_kept() -> None:
    shown = Shown()
    shown.note(JOBS[0], 7)
    assert shown.characters(JOBS[0]) == 0
