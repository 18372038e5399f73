"""The benchmark beside the peers: turns, what becomes of an engine that fails, tables, goals. No peer is needed."""

from __future__ import annotations

import json
import os
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from susurrus.models import ModelConfig
from tests.bench import __main__ as command_line
from tests.bench import cold, contest, fleet, worker
from tests.bench.adapters import ENGINES
from tests.bench.budget import Floors
from tests.bench.contest import Contest, Rules
from tests.bench.corpus import BenchError, Clip, ErrorRate
from tests.bench.fleet import Fleet, Worker, WorkerError
from tests.bench.footprint import Peak, cpu_seconds, proportional_mb, size_mb
from tests.bench.goals import goals
from tests.bench.hearing import Engine, read
from tests.bench.page import fill, page, seconds, times_table
from tests.bench.roster import OURS, Contestant, Entry, for_long, for_short, missing, read_roster
from tests.bench.spread import Spread, ratio
from tests.bench.weights import peers_file
from tests.conftest import SAMPLES

ENGINE = """
import json, os, sys
for line in sys.stdin:
    request = json.loads(line)
    options, answer = request["options"], {"total_s": 0.5}
    if request["do"] == "load":
        name, log = options["name"], options["log"]
    else:
        with open(log, "a") as file:
            file.write(name + " ")
        answer |= {"text": name, "first_s": 0.25, "timings": {}, "texts": [name] * len(request["audio"])}
        answer["total_s"] = options.get("takes", 0.5)
        if options.get("dies"):
            os._exit(3)
        if options.get("refuses"):
            answer = {"error": "ValueError: no"}
    if not options.get("hangs"):
        print(json.dumps(answer), flush=True)
"""
"""An engine that says its name, and writes down its turns."""

positive = st.floats(min_value=1e-3, max_value=1e3)


def entry(name: str, log: Path, **options: Any) -> Entry:
    return Entry(name, "openvino", "model", options={"name": name, "log": str(log), **options})


def contestant(name: str, log: Path, **options: Any) -> Contestant:
    return Contestant(name, entry(name, log), options)


def clips(n: int) -> list[Clip]:
    return [Clip(f"{index}.wav", Path(f"{index}.wav"), "text", "en") for index in range(n)]


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def workers(tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Fleet]:
    """Workers that are `ENGINE`; nobody waits for the machine to be quiet."""
    monkeypatch.setattr(fleet, "wait_until_quiet", lambda _pids: True)

    def start(entry: Entry, threads: int, timeout_s: float, log: Path) -> Worker:
        return Worker(entry, threads, timeout_s, log, [sys.executable, "-c", ENGINE])

    with Fleet(1, 30.0, tmp_path, said.append, start) as running:
        yield running


# --- turns --------------------------------------------------------------------------------------------------------


def test_engines_take_turns_on_every_clip(workers: Fleet, tmp_path: Path) -> None:
    log = tmp_path / "turns"
    running = Contest(workers, [contestant("A", log), contestant("B", log)], Rules(2, 60.0))
    running.warm_up(Path("warm.wav"))
    running.run(clips(2))
    assert log.read_text(encoding="utf-8").split() == ["A", "B"] * 5
    assert running.rows["A"].total_s == [0.5] * 4
    assert running.rows["B"].first_s == [0.25] * 4
    assert running.rows["B"].texts == {"0.wav": "B", "1.wav": "B"}


def test_contestants_of_one_entry_are_one_process(workers: Fleet, tmp_path: Path) -> None:
    shared = entry("A", tmp_path / "turns")
    pids = {workers.worker(Contestant(label, shared, {})).pid for label in ("one", "other")}
    assert len(pids) == 1


def test_a_slow_engine_does_fewer_turns_and_at_least_one(workers: Fleet, tmp_path: Path) -> None:
    log = tmp_path / "turns"
    contestants = [contestant("slow", log, takes=50.0), contestant("slowest", log, takes=99.0), contestant("fast", log)]
    running = Contest(workers, contestants, Rules(4, 100.0))
    running.run(clips(1))
    assert [len(running.rows[name].total_s) for name in ("slow", "slowest", "fast")] == [2, 1, 4]
    assert running.rows["slowest"].note == "1 of 4 turns: more would take longer than 100 s"
    assert not running.rows["fast"].note


@pytest.mark.parametrize(("option", "reason"), [("dies", "ended with code 3"), ("refuses", "ValueError: no")])
def test_an_engine_that_fails_is_told_of_and_left_out(
    workers: Fleet, tmp_path: Path, said: list[str], option: str, reason: str
) -> None:
    log = tmp_path / "turns"
    running = Contest(workers, [contestant("bad", log, **{option: True}), contestant("good", log)], Rules(2, 60.0))
    running.run(clips(1))
    assert log.read_text(encoding="utf-8").split() == ["bad", "good", "good"]
    assert reason in running.rows["bad"].note
    assert any("bad" in line and reason in line for line in said)
    assert running.to_json()["good"]["total_s"] == [0.5, 0.5]


def test_an_engine_that_died_is_started_anew_by_the_next_task(workers: Fleet, tmp_path: Path) -> None:
    bad = contestant("bad", tmp_path / "turns", dies=True)
    first = workers.worker(bad).pid
    with pytest.raises(WorkerError):
        workers.ask(bad, "hear", audio="clip.wav", language="en")
    assert workers.worker(bad).pid != first


def test_an_engine_that_does_not_answer_is_ended(tmp_path: Path) -> None:
    stuck = Worker(entry("stuck", tmp_path / "log"), 1, 0.01, tmp_path / "err", [sys.executable, "-c", ENGINE])
    with pytest.raises(WorkerError, match="no answer"):
        stuck.ask("load", options={"name": "stuck", "log": "", "hangs": True})
    assert not stuck.is_alive


def test_an_engine_that_cannot_be_started_is_an_error_in_words(tmp_path: Path) -> None:
    nobody = Contestant("nobody", Entry("nobody", "openvino", "model", str(tmp_path / "python")), {})
    with Fleet(1, 30.0, tmp_path, print) as running, pytest.raises(WorkerError, match="No such file"):
        running.worker(nobody)


def test_clips_given_at_once_are_one_turn(workers: Fleet, tmp_path: Path) -> None:
    running = Contest(workers, [contestant("A", tmp_path / "turns")], Rules(1, 60.0))
    running.run_together(clips(3))
    assert running.rows["A"].total_s == [0.5]
    assert list(running.rows["A"].texts) == ["0.wav", "1.wav", "2.wav"]


def test_only_clips_that_were_heard_are_scored(workers: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contest, "error_rate", lambda heard, _texts: ErrorRate("WER", 1, len(heard), len(heard)))
    log = tmp_path / "turns"
    running = Contest(workers, [contestant("A", log), contestant("B", log, takes=70.0)], Rules(1, 100.0))
    running.run(clips(3))
    running.score(clips(3))
    assert [running.rows[name].words for name in "AB"] == [3, 1]


# --- the process of an engine --------------------------------------------------------------------------------------


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> worker.Worker:
    """A worker with an engine that says its options, first their first letter."""

    def hear(audio: Any, _language: str | None, options: dict[str, Any], on_text: Any) -> dict[str, Any]:
        if audio == "bad.wav":
            raise ValueError("two\nlines")
        on_text()
        on_text()
        return {"text": options.pop("says")}

    monkeypatch.setitem(ENGINES, "fake", lambda _model, _threads, _options: Engine(hear))
    made = worker.Worker()
    assert made.answer({"do": "load", "kind": "fake", "model": "", "threads": 1, "options": {}})["total_s"] >= 0
    return made


def test_a_worker_tells_text_and_times(loaded: worker.Worker) -> None:
    found = loaded.answer({"do": "hear", "audio": "clip.wav", "language": "en", "options": {"says": "yes"}})
    assert found["text"] == "yes"
    assert 0 <= found["first_s"] <= found["total_s"]


def test_a_worker_hears_one_after_another_with_the_same_options(loaded: worker.Worker) -> None:
    found = loaded.answer({"do": "hear_all", "audio": ["a.wav", "b.wav"], "language": "en", "options": {"says": "yes"}})
    assert found["texts"] == ["yes", "yes"]


def test_what_an_engine_raises_is_one_line(loaded: worker.Worker) -> None:
    found = loaded.answer({"do": "hear", "audio": "bad.wav", "language": "en", "options": {}})
    assert found == {"error": "ValueError: two lines"}


def test_peers_hear_the_samples_of_the_file() -> None:
    samples = read(SAMPLES / "six.wav")
    assert samples.dtype == np.float32
    assert len(samples) == 12800
    assert 0.05 < np.abs(samples).max() <= 1


# --- who takes part ------------------------------------------------------------------------------------------------


def test_without_a_file_only_this_project_takes_part() -> None:
    (only,) = read_roster(None)
    assert (only.name, only.kind, only.model, only.python) == (OURS, "pipeline", "base", sys.executable)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[openvino]\nmodel = 1\npath = 2", "has no path"),
        ("[something]\nmodel = ''", "kind of openvino"),
        ("[openvino]", "wants model"),
        ("[openvino", "--peers"),
    ],
)
def test_a_wrong_list_of_peers_is_refused_in_words(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "peers.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(BenchError, match=complaint):
        read_roster(path)


def test_the_list_that_the_converter_writes_is_read(tmp_path: Path) -> None:
    (tmp_path / "ctranslate2").mkdir()
    (tmp_path / "peers.toml").write_text(peers_file(tmp_path, "base", {"faster-whisper": "/py"}), encoding="utf-8")
    _, peer = read_roster(tmp_path / "peers.toml")
    assert peer == Entry("faster-whisper", "faster-whisper", str(tmp_path / "ctranslate2"), "/py")


def test_a_peer_that_is_not_installed_is_passed_over_with_a_line(tmp_path: Path) -> None:
    here = str(tmp_path)
    assert missing(Entry(OURS, "pipeline", "base")) is None
    assert "no openvino_genai" in str(missing(Entry("openvino", "openvino", here)))
    assert "does not exist" in str(missing(Entry("openvino", "openvino", f"{here}/nothing")))
    assert "No such file" in str(missing(Entry("openvino", "openvino", here, f"{here}/python")))


def test_this_project_takes_part_in_several_ways() -> None:
    entries = [*read_roster(None), Entry("faster-whisper", "faster-whisper", "model")]
    short, long = list(for_short(entries)), list(for_long(entries))
    assert [c.label for c in short] == [OURS, f"{OURS}, one process", f"{OURS}, full context", "faster-whisper"]
    assert len({c.key for c in short}) == 4  # memory of each is its own
    assert [c.label for c in long] == [OURS, f"{OURS}, 2 workers", "faster-whisper", "faster-whisper, batched"]
    assert len({c.key for c in long}) == 4


# --- the command line ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--only", "shrot"], "shrot: no such task; there are short"),
        (["--engine", "whisperx", "--busy"], "--engine whisperx: there are susurrus"),
        (["--peers", "nowhere.toml", "--busy"], "--peers nowhere.toml"),
    ],
)
def test_nonsense_is_refused_in_a_line(tmp_path: Path, arguments: list[str], complaint: str) -> None:
    with pytest.raises(SystemExit, match=complaint):
        command_line.main([str(tmp_path), "--output", str(tmp_path / "out"), *arguments])
    assert not (tmp_path / "out").exists()


def test_a_busy_machine_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (0.8, 0.0, 0.0))
    with pytest.raises(SystemExit, match=r"load average is 0.80.*--busy"):
        command_line.main([str(tmp_path), "--output", str(tmp_path / "out")])


def test_what_is_done_is_not_done_again_unless_asked_for() -> None:
    parse = command_line._parser().parse_args

    def todo(*arguments: str) -> list[str]:
        return command_line.tasks_to_do(parse(["corpus", "--output", "out", *arguments]), ["short", "growth"])

    assert todo() == ["small", "idle", "clips", "many", "cold", "long", "budget"]
    assert todo("--only", "long,short") == ["long"]
    assert todo("--only", "growth", "--again", "growth,short") == ["short", "growth"]


# --- numbers -------------------------------------------------------------------------------------------------------


@given(st.lists(positive, min_size=1, max_size=12))
def test_quartiles_are_numpys(values: list[float]) -> None:
    found = Spread.of(values)
    assert [found.lower, found.median, found.upper] == pytest.approx(np.percentile(values, [25, 50, 75]))
    assert (found.n, found.least) == (len(values), min(values))


@given(st.lists(positive, min_size=1, max_size=9), st.lists(positive, min_size=1, max_size=9))
def test_a_ratio_is_of_medians(ours: list[float], theirs: list[float]) -> None:
    assert ratio(ours, theirs) == pytest.approx(statistics.median(ours) / statistics.median(theirs))
    assert ratio(ours, []) is None


def row(*total: float, first: float = 0.1, **more: Any) -> dict[str, Any]:
    return {"total_s": list(total), "first_s": [first] * len(total), "cpu_s": [0.2] * len(total), **more}


TASKS: dict[str, Any] = {
    "short": {
        "audio_s": 11.0,
        "rows": {
            OURS: row(0.1, 0.2, 0.3, peak_mb=250.0, edits=1, words=20),
            "openvino": row(0.5, 0.5, 0.5, first=0.2, peak_mb=400.0),
            "faster-whisper": {"note": "ValueError: no", "total_s": []},
        },
    },
    "growth": {
        "points": [
            {"minutes": 5, "total_s": [5.0], "peak_mb": 300.0},
            {"minutes": 180, "total_s": [198.0], "peak_mb": 310.0},
        ]
    },
    "clips": {"audio_s": 9.0, "clips": 3, "rows": {OURS: row(0.1, 0.2, 0.6), "openvino": row(0.3, 0.3)}},
    "many": {"audio_s": 9.0, "clips": 3, "together": True, "rows": {OURS: row(0.6), "openvino": row(1.2)}},
}
RESULTS: dict[str, Any] = {
    "tasks": TASKS,
    "disk": {OURS: 90.0},
    "about": {},
    "skipped": ["x"],
    "load_s": {},
}


def test_every_command_is_named_with_what_it_measured_and_when() -> None:
    when = {"time": "12:00", "load_before": "0.10"}
    tasks = {"short": TASKS["short"] | when | {"command": "a"}, "growth": TASKS["growth"] | when | {"command": "b"}}
    told = page(RESULTS | {"tasks": tasks})
    assert "- `a`: short (12:00, load 0.10)\n- `b`: growth (12:00, load 0.10)\n" in told


def test_goals_are_met_or_not_or_not_measured() -> None:
    found = {(goal.what, goal.unit): goal for goal in goals({**TASKS, "disk": {OURS: 90.0}})}
    warm = found["11 s, warm, through the actors", "of OpenVINO GenAI"]
    assert warm.measured == pytest.approx(0.4)
    assert warm.is_met is True
    assert found["first text of the 11 s", "of OpenVINO GenAI"].is_met is False
    assert found["11 s, warm, through the actors", "of faster-whisper"].is_met is None
    assert found["memory of all processes, 11 s", "MB"].is_met is True
    assert found["model files", "MB"].is_met is False
    assert found["a minute of 180 min", "of one of 5 min"].measured == pytest.approx(1.1)


def test_a_table_has_times_ratios_and_error_rates() -> None:
    table = times_table(TASKS["short"])
    assert "| susurrus | 200 ms | 100 ms | 150 ms to 250 ms | 1 | 100 ms | 200 ms | 5.0 % | 3 |" in table
    assert "| openvino | 500 ms | 500 ms | 500 ms to 500 ms | 0.4 | 200 ms | 200 ms | - | 3 |" in table
    assert "faster-whisper: ValueError: no." in table


def test_different_clips_are_averaged_over_those_that_both_heard() -> None:
    assert "| openvino | 300 ms | 300 ms | 300 ms to 300 ms | 0.5 |" in times_table(TASKS["clips"])


def test_clips_given_at_once_are_shared_out() -> None:
    assert "| openvino | 400 ms | 400 ms | - | 0.5 |" in times_table(TASKS["many"])


def test_the_page_has_a_part_for_everything_measured() -> None:
    made = page(RESULTS)
    for title in ("Goals", "11 s, warm", "Longer recordings", "Memory, files, idling", "The run"):
        assert f"## {title}\n" in made
    assert "- x did not take part" in made
    assert "Where the time" not in made


def test_a_document_is_filled_where_it_says_so_and_nowhere_else() -> None:
    document = "# A\n\n<!-- results: short -->\nold\n<!-- end -->\n\nB\n\n<!-- results: long --><!-- end -->\n"
    filled = fill(document, RESULTS, {"first": "a-first.png"})
    assert filled.startswith("# A\n\n<!-- results: short -->\n\n11 s of audio.")
    assert filled.endswith("![11 s, warm](a-first.png)\n\n<!-- end -->\n\nB\n\n<!-- results: long --><!-- end -->\n")
    assert "old" not in filled
    assert fill(filled, RESULTS, {"first": "a-first.png"}) == filled


def test_results_are_json(tmp_path: Path, workers: Fleet) -> None:
    running = Contest(workers, [contestant("A", tmp_path / "turns")], Rules(1, 60.0))
    running.run(clips(1))
    (found,) = json.loads(json.dumps(running.to_json())).values()
    assert (found["total_s"], found["texts"]) == ([0.5], {"0.wav": "A"})


def test_times_are_written_with_the_digits_that_mean_something() -> None:
    assert [seconds(value) for value in (None, 0.0123, 0.9994, 12.345)] == ["-", "12 ms", "999 ms", "12.35 s"]


def test_the_most_memory_is_kept() -> None:
    sizes = iter([10.0, 30.0, 20.0])
    peak = Peak(os.getpid(), 1.0, look=lambda _pids: next(sizes, 0.0))
    for _ in range(3):
        assert peak.look() >= 0
    assert peak.mb == 30.0


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="proc(5)")
def test_a_process_costs_something_and_one_that_has_gone_nothing() -> None:
    assert proportional_mb([os.getpid()]) > 5
    assert cpu_seconds(os.getpid()) > 0
    assert proportional_mb([2**22]) == cpu_seconds(2**22) == 0


def test_sizes_are_of_a_file_or_of_all_files_in_a_folder(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for path in (tmp_path / "one", tmp_path / "in" / "other"):
        path.write_bytes(bytes(1_000_000))
    assert (size_mb(tmp_path / "one"), size_mb(tmp_path)) == (1.0, 2.0)


def test_floors_count_the_operations_of_whisper_base(base: Path) -> None:
    """In 10^9: 56.6 of linear layers, 3.1 of convolutions, 27.6 of attention. In MB: 22 of layers, 26.6 of logits."""
    unit = {"fp32 GF/s": 1.0, "int8 GOP/s": 1.0, "memory GB/s": 1.0}
    full = Floors(ModelConfig.from_directory(base), 3000, unit)
    assert full.positions == 1500
    assert full.encoder() == pytest.approx(1e3 * (56.6 + 3.1 + 27.6), rel=0.01)
    assert full.cross() == pytest.approx(1e3 * 9.4, rel=0.01)
    assert full.step(0) == pytest.approx(22.0 + 26.6 + 9.2, rel=0.01)


# --- new processes -------------------------------------------------------------------------------------------------


def test_new_processes_take_turns_and_one_that_fails_is_left_out(tmp_path: Path) -> None:
    log, said = tmp_path / "turns", list[str]()

    def command(name: str, then: str) -> cold.Command:
        return cold.Command([sys.executable, "-c", f"open({str(log)!r}, 'a').write('{name}'); {then}"])

    runs = cold.interleave({"A": command("A", "print('yes')"), "B": command("B", "exit(1)")}, 2, said.append)
    assert log.read_text(encoding="utf-8") == "ABAA"
    assert [run.text for run in runs["A"]] == ["yes", "yes"]
    assert all(0 < run.first_s <= run.exit_s for run in runs["A"])
    assert not runs["B"]
    assert said == ["  B: exit code 1, no text"]


def test_the_first_text_of_this_project_is_its_first_partial() -> None:
    lines = [{"type": "started"}, {"type": "partial", "text": " And"}, {"type": "done", "text": "And so"}]
    assert [cold.partial_text(json.dumps(line)) for line in lines] == ["", " And", ""]
