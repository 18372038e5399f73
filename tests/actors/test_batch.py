"""Many recordings: bounded work ahead, files when a job is done, one bad input for itself, a table that adds up."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from susurrus.actors import exits
from susurrus.actors.batch import SUBMITTED_AHEAD, Batch, Row, table, totals
from susurrus.actors.client import PipelineError
from susurrus.actors.outputs import OutputFiles
from susurrus.actors.terminal import cell_count
from susurrus.actors.view import JobEvent
from susurrus.models.inputs import Input
from susurrus.models.writers import Layout
from susurrus.protocol import Cancelled, Cue, Done, Failed, Started, TranscribeOptions, Word, new_id
from tests.actors.fakes import OPTIONS, partial, segment, window


class Script:
    """A pipeline that does its jobs in order, each by its script of events; the job's id is put in."""

    def __init__(self, **scripts: Iterable[JobEvent]) -> None:
        self.submitted: list[tuple[str, str, TranscribeOptions | None]] = []
        self.most_open = 0
        self._scripts = {name: list(events) for name, events in scripts.items()}
        self._events: deque[JobEvent] = deque()
        self._open = 0

    def submit(self, source: str, *, name: str = "", options: TranscribeOptions | None = None, **_how: object) -> bytes:
        """Take the next script."""
        job = new_id()
        self.submitted.append((source, name, options))
        events = self._scripts.get(Path(name).stem, [done()])
        self._events += [replace(event, job=job) for event in events]
        self._open += 1
        self.most_open = max(self.most_open, self._open)
        return job

    def receive(self, timeout: float | None = None) -> JobEvent | None:
        """The next event of all jobs."""
        del timeout
        if not self._events:
            raise PipelineError("actor_lost", "the encoder was killed")
        event = self._events.popleft()
        self._open -= isinstance(event, Done | Failed | Cancelled)
        return event


class Woven(Script):
    """The same, for jobs that are done at once: their events in another order."""

    def __init__(self, order: Iterable[int], **scripts: Iterable[JobEvent]) -> None:
        super().__init__(**scripts)
        self._order = deque(order)

    def receive(self, timeout: float | None = None) -> JobEvent | None:
        """The next one; once all are submitted."""
        if self._order:
            self._events = deque(self._events[index] for index in self._order)
            self._order.clear()
        return super().receive(timeout)


def started(duration: float = 60.0) -> Started:
    return Started(job=b"", seq=1, name="clip.wav", duration=duration)


def done(text: str = "", **changes: Any) -> Done:
    base = Done(
        job=b"",
        seq=9,
        text=text,
        language="de",
        language_probability=0.75,
        duration=60.0,
        timings={"total": 1000.0},
        complete=True,
        warnings=("prompt cut",),
        language_probabilities={"de": 0.75},
        speech_s=50.0,
        coverage=0.875,
    )
    return replace(base, **changes)


def failed(code: str = "audio") -> Failed:
    return Failed(job=b"", code=code, text="no")


CUES = (
    Cue(0.5, 1.5, " first", (1,), (Word(0.5, 1.5, " first", 0.5),)),
    Cue(1.5, 29.0, " second", (2,), (Word(1.5, 29.0, " second", 0.25),)),
)
TALK: list[JobEvent] = [
    started(),
    window(b"", 0),
    partial(b"", 0),
    replace(segment(b"", 0, " first second"), cues=CUES, temperature=0.2, avg_logprob=-0.5),
    window(b"", 1),
    replace(segment(b"", 1, " third"), cues=(Cue(30.0, 31.0, " third", (3,), ()),)),
    done("first second third"),
]


def inputs(*names: str) -> list[Input]:
    return [Input(name) for name in names]


def outputs(folder: Path, sources: list[Input], *formats: str) -> OutputFiles:
    return OutputFiles(folder, formats or ("srt",), sources, Layout())


# --- jobs -------------------------------------------------------------------------------------------------------


def test_every_input_is_submitted_under_its_own_name_by_its_absolute_path(tmp_path: Path) -> None:
    script = Script()
    options = replace(OPTIONS, language="de")
    assert Batch().run(script, options, inputs("a.wav", "-", str(tmp_path / "b.wav"))) == exits.OK
    assert script.submitted == [
        (str(Path("a.wav").absolute()), "a.wav", options),
        ("-", "-", options),
        (str(tmp_path / "b.wav"), str(tmp_path / "b.wav"), options),
    ]


def test_only_a_few_jobs_are_submitted_ahead() -> None:
    script = Script()
    Batch().run(script, OPTIONS, inputs(*(f"{n}.wav" for n in range(100))))
    assert len(script.submitted) == 100
    assert script.most_open == SUBMITTED_AHEAD


@pytest.mark.parametrize(
    ("ends", "code"),
    [
        ([done()], exits.OK),
        ([done(), done(complete=False)], exits.DAMAGED),
        ([done(complete=False), failed("audio"), done()], exits.INPUT),
        ([failed("option")], exits.INPUT),
        ([failed("audio"), failed("internal"), done()], exits.PIPELINE),
        ([Cancelled(job=b"", seq=1)], exits.PIPELINE),
    ],
)
def test_the_exit_code_is_that_of_the_worst_input(ends: list[JobEvent], code: int) -> None:
    script = Script(**{f"clip{n}": [started(), end] for n, end in enumerate(ends)})
    assert Batch().run(script, OPTIONS, inputs(*(f"clip{n}.wav" for n in range(len(ends))))) == code


def test_a_pipeline_that_ends_leaves_the_rows_of_what_was_done() -> None:
    script = Script(good=TALK, lost=[started()])
    batch = Batch()
    with pytest.raises(PipelineError):
        batch.run(script, OPTIONS, inputs("good.wav", "lost.wav"))
    assert [(row.name, row.result) for row in batch.rows] == [("good.wav", "done")]


# --- files ------------------------------------------------------------------------------------------------------


def test_files_hold_the_cues_of_all_windows_and_what_the_end_says(tmp_path: Path) -> None:
    sources = inputs("talk.wav")
    code = Batch(outputs(tmp_path, sources, "srt", "json")).run(Script(talk=TALK), OPTIONS, sources)
    assert code == exits.OK
    times = [line for line in (tmp_path / "talk.srt").read_text().splitlines() if "-->" in line]
    assert [line[:12] for line in times] == ["00:00:00,500", "00:00:01,500", "00:00:30,000"]
    value = json.loads((tmp_path / "talk.json").read_text())
    assert {key: value[key] for key in ("text", "language", "coverage", "speech_duration", "warnings", "name")} == {
        "text": "first second third",
        "language": "de",
        "coverage": 0.875,
        "speech_duration": 50.0,
        "warnings": ["prompt cut"],
        "name": "talk.wav",
    }
    assert [item["seek"] for item in value["segments"]] == [0, 0, 3000]
    assert [item["temperature"] for item in value["segments"]] == [0.2, 0.2, 0.0]
    assert value["segments"][1]["words"] == [{"word": " second", "start": 1.5, "end": 29.0, "probability": 0.25}]


def test_the_files_of_a_job_are_there_before_the_next_one_is_done(tmp_path: Path) -> None:
    sources = inputs("a.wav", "b.wav")
    with pytest.raises(PipelineError):
        Batch(outputs(tmp_path, sources)).run(Script(b=[started()]), OPTIONS, sources)
    assert [path.name for path in tmp_path.iterdir()] == ["a.srt"]


def test_an_input_that_failed_has_no_files_and_the_others_have(tmp_path: Path) -> None:
    sources = inputs("bad.wav", "talk.wav")
    script = Script(bad=[started(), replace(segment(b"", 0), cues=CUES), failed("internal")], talk=TALK)
    Batch(outputs(tmp_path, sources, "txt")).run(script, OPTIONS, sources)
    assert [path.name for path in tmp_path.iterdir()] == ["talk.txt"]


def test_of_a_damaged_recording_the_good_part_is_written(tmp_path: Path) -> None:
    sources = inputs("talk.wav")
    script = Script(talk=[*TALK[:-1], done("first second third", complete=False)])
    assert Batch(outputs(tmp_path, sources, "json")).run(script, OPTIONS, sources) == exits.DAMAGED
    assert json.loads((tmp_path / "talk.json").read_text())["complete"] is False


def test_a_window_without_cues_keeps_its_text(tmp_path: Path) -> None:
    sources = inputs("talk.wav")
    script = Script(talk=[started(), segment(b"", 0, " all of it"), done("all of it")])
    Batch(outputs(tmp_path, sources)).run(script, OPTIONS, sources)
    assert (tmp_path / "talk.srt").read_text() == "1\n00:00:00,000 --> 00:00:30,000\nall of it\n\n"


def test_text_that_the_end_leaves_out_for_its_length_is_that_of_the_segments(tmp_path: Path) -> None:
    sources = inputs("talk.wav")
    Batch(outputs(tmp_path, sources, "json")).run(Script(talk=[*TALK[:-1], done("")]), OPTIONS, sources)
    assert json.loads((tmp_path / "talk.json").read_text())["text"] == "first second third"


@pytest.mark.parametrize("lost", [3, 5], ids=["first", "last"])
def test_a_file_with_a_gap_is_not_written(tmp_path: Path, lost: int) -> None:
    sources = inputs("talk.wav")
    batch = Batch(outputs(tmp_path, sources))
    script = Script(talk=[event for index, event in enumerate(TALK) if index != lost])
    assert batch.run(script, OPTIONS, sources) == exits.OUTPUT
    assert list(tmp_path.iterdir()) == []
    assert "transcribe it again" in batch.complaints[0]


def test_a_file_that_cannot_be_written_is_a_complaint_and_the_rest_goes_on(tmp_path: Path) -> None:
    sources = inputs("talk.wav", "other.wav")
    (tmp_path / "talk.srt").mkdir()
    batch = Batch(outputs(tmp_path, sources))
    assert batch.run(Script(talk=TALK), OPTIONS, sources) == exits.OUTPUT
    (complaint,) = batch.complaints
    assert complaint.startswith(f"{tmp_path / 'talk.srt'}: cannot be written: ")
    assert (tmp_path / "other.srt").exists()
    assert [row.result for row in batch.rows] == ["not written", "done"]


def test_what_is_there_already_is_left_out_and_told(tmp_path: Path) -> None:
    sources = inputs("a.wav", "b.wav")
    (tmp_path / "a.srt").touch()
    batch = Batch(outputs(tmp_path, sources))
    assert batch.skip_existing(sources) == inputs("b.wav")
    assert [(row.name, row.result) for row in batch.rows] == [("a.wav", "there already")]


# --- the table --------------------------------------------------------------------------------------------------


def test_speed_is_that_of_the_work_and_not_of_waiting_in_the_queue() -> None:
    ticks = iter([0.0, 2.0, 5.0, 5.0, 11.0])  # made; first started, done; second started, done
    batch = Batch(now=lambda: next(ticks))
    script = Script(a=[started(), done()], b=[started(), done()])
    batch.run(script, OPTIONS, inputs("a.wav", "b.wav"))
    assert [row.seconds for row in batch.rows] == [3.0, 6.0]
    assert table(batch.rows) == [
        "file   length  language  speed  result",
        "a.wav  1:00    de 75%    20.0x  done",
        "b.wav  1:00    de 75%    10.0x  done",
        "2 files: 2 done; 2:00 of audio in 9.0 s (13.3x)",
    ]


def test_the_table_keeps_columns_whatever_names_are_in_it() -> None:
    rows = [
        Row("短い.wav", "done", 3.0, 1.0, "ja 99%"),
        Row("e\u0301\x1b[31m.wav", "failed"),
        Row("/a/very/long/path/" + "x" * 60 + "/the end.wav", "there already"),
    ]
    lines = table(rows)
    assert all("\x1b" not in line for line in lines)
    column = lines[0].index("result")
    assert [cell_count(line[: line.rindex(row.result)]) for line, row in zip(lines[1:], rows, strict=False)] == [
        column
    ] * 3
    assert lines[3].startswith("…")
    assert "/the end.wav" in lines[3]
    assert max(map(cell_count, lines)) <= 80


def test_the_sums_count_every_result() -> None:
    rows = [Row("a", "failed"), Row("b", "done", 90.0, 10.0), Row("c", "failed")]
    assert totals(rows) == "3 files: 2 failed, 1 done; 1:30 of audio in 10.0 s (9.0x)"
    assert totals([Row("a", "there already")] * 2) == "2 files: 2 there already"


def test_of_inputs_in_work_at_once_each_has_its_own_speed_and_no_second_is_summed_twice() -> None:
    ticks = iter([0.0, 1.0, 1.0, 6.0, 11.0])  # made; both started; the second done, the first done
    batch = Batch(now=lambda: next(ticks))
    script = Woven([0, 2, 3, 1], a=[started(), done()], b=[started(), done()])
    batch.run(script, OPTIONS, inputs("a.wav", "b.wav"))
    assert [(row.name, row.seconds) for row in batch.rows] == [("a.wav", 10.0), ("b.wav", 5.0)]
    assert totals(batch.rows) == "2 files: 2 done; 2:00 of audio in 10.0 s (12.0x)"
