"""Disks that are full or read-only, models and recordings that are damaged, places that do not do, odd terminals."""

from __future__ import annotations

import json
import os
import pty
import shutil
import subprocess
import sys
import tempfile
import termios
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyte
import pytest
import soundfile

from susurrus.actors import Pipeline, PipelineError, exits
from susurrus.models import ModelError, Whisper
from susurrus.models.errors import OutputError
from susurrus.protocol import Done, Failed, Partial, RuntimeFolderError, Segment, Started, Window
from tests.actors.fakes import PLAIN, RATE, sounds
from tests.faults.conftest import Start, TinyCli, text_of, transcribe
from tests.faults.scripted import Fault, release
from tests.faults.worlds import fill, make_read_only, small_disk
from tests.run.conftest import Finished

MIB = 1024 * 1024


def the_only_line(done: Finished) -> str:
    """What a user is told: one line, and no traceback."""
    (line,) = done.err.splitlines()
    assert line.startswith("error: ")
    return line


# --- disks ------------------------------------------------------------------------------------------------------


@pytest.mark.fault(39)
def test_a_runtime_folder_that_is_read_only_is_passed_over_and_a_full_one_is_named(
    cli: TinyCli, clip: Path, undisturbed: str, tmp_path: Path
) -> None:
    with small_disk(kib=64) as disk:
        places = {"XDG_RUNTIME_DIR": str(disk), "TMPDIR": str(tmp_path)}
        fill(disk)
        full = cli(*cli.plain, clip, env=places)
        assert (full.code, full.out) == (exits.PIPELINE, "")
        assert "No space left" in the_only_line(full)
        assert [path.name for path in disk.iterdir()] == ["ballast"]
        make_read_only(disk)
        assert cli(*cli.plain, clip, env=places) == (exits.OK, undisturbed + "\n", "")


@pytest.mark.fault(39)
def test_a_runtime_folder_that_fills_up_amid_the_work_costs_no_text(
    tiny: Path, clip: Path, undisturbed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Samples cannot be handed over any more, and that is said; files can."""
    with small_disk(kib=64) as disk:
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(disk))
        with Pipeline(tiny, threads=1) as pipeline:
            assert disk in pipeline.connection.folder.parents
            fill(disk)
            with pytest.raises(OutputError, match="make room on its disk"):
                list(pipeline.transcribe(sounds(3.0), **PLAIN))
            assert text_of(transcribe(pipeline, clip)) == undisturbed
        assert [path.name for path in disk.iterdir()] == ["ballast"]


@pytest.mark.fault(39)
def test_a_console_that_cannot_note_what_it_has_shown_shows_it_nevertheless(
    cli: TinyCli, clip: Path, undisturbed: str
) -> None:
    with small_disk(kib=64) as disk:
        run = cli.start(
            *(*cli.plain, "--wav", "-", "--wav", clip), env={"XDG_RUNTIME_DIR": str(disk)}, stdin=subprocess.PIPE
        )
        while not list(disk.glob("*/shown")):  # it is open, and nothing is in it
            assert run.process.poll() is None
            with pytest.raises(subprocess.TimeoutExpired):
                run.process.wait(0.02)
        fill(disk)
        run.feed(clip.read_bytes())
        assert run.finish() == (exits.OK, f"{undisturbed}\n" * 2, "")


@pytest.mark.fault(39)
def test_a_log_that_cannot_be_written_stops_nothing(cli: TinyCli, clip: Path, undisturbed: str) -> None:
    with Path("/dev/full").open("wb") as full:
        done = cli(*cli.plain, "-vv", clip, stderr=full)
    assert (done.code, done.out) == (exits.OK, undisturbed + "\n")


@pytest.mark.fault(39)
@pytest.mark.parametrize("make_unusable", [fill, make_read_only])
def test_a_result_file_that_cannot_be_written_is_a_line_and_the_text_is_shown(
    cli: TinyCli, clip: Path, undisturbed: str, make_unusable: Callable[[Path], None]
) -> None:
    with small_disk(kib=16) as disk:
        run = cli.start(
            *(*cli.plain, "--output-dir", disk, "--format", "json", "--wav", "-"), stdin=subprocess.PIPE
        )  # it has looked whether it may write there before standard input ends
        data = clip.read_bytes()
        run.feed(data[:-1000])
        assert run.out is not None
        run.out.wait_for_text()
        make_unusable(disk)
        run.feed(data[-1000:])
        done = run.finish()
        assert done.code == exits.OUTPUT
        assert done.out == undisturbed + "\n"
        assert "stdin.json" in the_only_line(done)
        assert {path.name for path in disk.iterdir()} <= {"ballast"}, "and no half of one"


@pytest.mark.fault(39)
def test_a_limit_on_the_size_of_files_is_as_a_full_disk(
    cli: TinyCli, clip: Path, undisturbed: str, tmp_path: Path
) -> None:
    limited = (sys.executable, "-c", LIMITED, "RLIMIT_FSIZE", "1024", *cli.command)
    done = cli(*cli.plain, "--output-dir", tmp_path, "--format", "json", clip, command=limited)
    assert (done.code, done.out) == (exits.OUTPUT, undisturbed + "\n")
    assert "clip.json" in the_only_line(done)
    assert not list(tmp_path.glob("*clip*"))


LIMITED = """
import os, resource, sys
limit = getattr(resource, sys.argv[1])
resource.setrlimit(limit, (int(sys.argv[2]),) * 2)
os.execv(sys.argv[3], sys.argv[3:])
"""


# --- models and recordings --------------------------------------------------------------------------------------


def damaged(model: Path, copy: Path, name: str, change: Callable[[Path], object]) -> Path:
    shutil.copytree(model, copy)
    change(copy / name)
    return copy


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size * 7 // 10)


@pytest.mark.fault(40)
@pytest.mark.parametrize(
    ("name", "change"), [("int8/weights.bin", flip), ("int8/weights.bin", cut), ("int8/decoder.onnx", cut)]
)
def test_a_damaged_model_file_is_named_before_any_text(
    tiny: Path, tmp_path: Path, name: str, change: Callable[[Path], object]
) -> None:
    """At the start, when its size tells; else before the first job begins."""
    directory = damaged(tiny, tmp_path / "модель", name, change)
    with pytest.raises((ModelError, PipelineError), match=Path(name).name) as raised, Pipeline(directory) as pipeline:
        next(event for event in pipeline.transcribe(sounds(2.0), **PLAIN) if isinstance(event, Partial | Segment))
    assert getattr(raised.value, "code", "model") == "model"


@pytest.mark.fault(40)
@pytest.mark.parametrize("name", ["int8/weights.bin", "model.json", "manifest.json", "vocabulary.txt"])
def test_a_missing_model_file_is_an_error_at_once(tiny: Path, tmp_path: Path, name: str) -> None:
    with pytest.raises(ModelError, match=Path(name).name):
        Pipeline(damaged(tiny, tmp_path / "model", name, Path.unlink)).start()


@pytest.mark.fault(40)
def test_a_manifest_that_is_damaged_after_the_start_ends_the_pipeline(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def verify(*_: object) -> None:
        raise ModelError("manifest.json is damaged")

    monkeypatch.setattr("susurrus.actors.engine.verify", verify)
    with (
        Pipeline(tiny) as pipeline,
        pytest.raises(PipelineError, match="manifest") as raised,
    ):
        list(pipeline.transcribe(sounds(0.5), **PLAIN))
    assert raised.value.code == "model"


def wav(rate: int = RATE, channels: int = 1, *, claims: int = 400, data: bytes = bytes(400)) -> bytes:
    """A PCM16 WAV whose header may lie."""
    block = 2 * channels
    head = [b"WAVEfmt ", *(n.to_bytes(size, "little") for n, size in ((16, 4), (1, 2), (channels, 2), (rate, 4)))]
    head += [n.to_bytes(size, "little") for n, size in ((rate * block % 2**32, 4), (block, 2), (16, 2))]
    head += [b"data", claims.to_bytes(4, "little")]
    return b"RIFF" + (36 + claims).to_bytes(4, "little") + b"".join(head) + data


UNREADABLE = {
    "empty": b"",
    "no audio": b"this is no audio\n",
    "a header alone": b"RIFF\x24\0\0\0WAVEfmt \x10\0\0\0",
    "no rate": wav(0),
    "no channels": wav(channels=0),
    "a picture": b"\xff\xd8\xff\xe0\x00\x10JFIF" * 20,
    "zeros": bytes(5000),
}
SHORTER = {
    "claims more than there is": wav(claims=100_000, data=sounds(1.0).astype("<i2").tobytes()[:20_000]),
    "ends in half a sample": wav(claims=401, data=bytes(401)),
}


@pytest.mark.fault(40)
def test_bad_recordings_fail_alone_in_words_and_sound_ones_go_on(
    tiny: Path, clip: Path, undisturbed: str, tmp_path: Path
) -> None:
    with Pipeline(tiny, threads=1) as pipeline:
        for name, content in UNREADABLE.items():
            path = tmp_path / f"{name}.wav"
            path.write_bytes(content)
            failed = list(pipeline.transcribe(path, **PLAIN))[-1]
            assert isinstance(failed, Failed), name
            assert failed.code == "audio"
            assert path.name in failed.text
            assert "\n" not in failed.text
        for name, content in SHORTER.items():
            path = tmp_path / f"{name}.wav"
            path.write_bytes(content)
            assert isinstance(list(pipeline.transcribe(path, **PLAIN))[-1], Done | Failed)
        soundfile.write(tmp_path / "eight.wav", np.tile(sounds(1.0)[:, None], 8), RATE, subtype="DOUBLE")
        assert isinstance(list(pipeline.transcribe(tmp_path / "eight.wav", **PLAIN))[-1], Done)
        assert text_of(transcribe(pipeline, clip)) == undisturbed


@pytest.mark.fault(40)
@pytest.mark.parametrize("how", ["unlinked", "truncated", "overwritten"])
def test_a_recording_that_vanishes_while_it_is_read(
    start: Start, tiny: Path, clip: Path, tmp_path: Path, how: str
) -> None:
    """Unlinked it is still there for who has it open; of a truncated one there is what was read."""
    path = tmp_path / "talk.wav"
    soundfile.write(path, sounds(60.0, 9), RATE, subtype="FLOAT")
    change: dict[str, Callable[[], object]] = {
        "unlinked": path.unlink,
        "truncated": partial(os.truncate, path, 100_000),
        "overwritten": partial(path.write_bytes, b"no audio"),
    }
    whole = Whisper.load(tiny).transcribe(path, **PLAIN).text if how == "unlinked" else ""
    pipeline = start(Fault("decoder", "begin", deed="hold", window=0))  # so no more is read than was granted
    events = []
    for event in pipeline.transcribe(path, **PLAIN):
        if isinstance(event, Window) and event.window == 0:
            change[how]()
            release(tmp_path / "faults")
        events.append(event)
    end = events[-1]
    if how == "unlinked":
        assert text_of(events) == whole
    else:
        assert isinstance(end, Done | Failed)
        assert not end.complete if isinstance(end, Done) else end.code == "audio"
    assert isinstance(transcribe(pipeline, clip)[-1], Done)


@pytest.mark.fault(40)
def test_five_hours_are_begun_at_once_and_not_read_into_memory(tiny: Path, tmp_path: Path) -> None:
    path = tmp_path / "long.wav"
    with path.open("wb") as file:
        size = 5 * 3600 * RATE * 2
        file.write(wav(claims=size, data=(sounds(2.0) * 30_000).astype("<i2").tobytes()))
        file.truncate(44 + size)  # sparse: it takes no room on the disk
    with Pipeline(tiny, threads=1) as pipeline:
        list(pipeline.transcribe(sounds(2.0), **PLAIN))
        frontend = psutil.Process(pipeline.pids()["frontend"])
        before = frontend.memory_info().rss
        events = pipeline.transcribe(path, **PLAIN)
        started = next(events)
        assert isinstance(started, Started)
        assert started.duration == pytest.approx(5 * 3600)
        seen = 0
        for event in events:
            seen += isinstance(event, Segment)
            if seen == 200:
                break
        grown = frontend.memory_info().rss - before
        events.close()
        assert isinstance(list(pipeline.transcribe(sounds(0.5), **PLAIN))[-1], Done)
    assert grown < 16 * MIB


# --- places -----------------------------------------------------------------------------------------------------


@pytest.mark.fault(41)
def test_a_deep_temporary_folder_with_spaces_and_accents_is_passed_over(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / ("ein Ordner é " * 9) / ("x" * 60)
    deep.mkdir(parents=True)
    monkeypatch.setenv("TMPDIR", str(deep))
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    with Pipeline(tiny) as pipeline:
        assert isinstance(list(pipeline.transcribe(sounds(0.5), **PLAIN))[-1], Done)
        assert len(os.fsencode(pipeline.connection.folder)) < 60
    monkeypatch.setattr(tempfile, "tempdir", None)


@pytest.mark.fault(41)
@pytest.mark.parametrize("mode", [0o777, None])
def test_an_unusable_runtime_folder_is_passed_over(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int | None
) -> None:
    place = tmp_path / "run"
    if mode is not None:
        place.mkdir()
        place.chmod(mode)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(place))
    with Pipeline(tiny) as pipeline:
        assert place not in pipeline.connection.folder.parents
        pipeline.wait_until_ready()


@pytest.mark.fault(41)
def test_no_place_for_the_sockets_at_all_is_one_sentence_and_leaves_nothing(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("susurrus.protocol.runtime.candidates", lambda: [Path("/nowhere")])
    with pytest.raises(RuntimeFolderError, match="XDG_RUNTIME_DIR"):
        Pipeline(tiny).start()


@pytest.mark.fault(41)
def test_five_pipelines_started_in_the_same_second_do_not_meet(tiny: Path) -> None:
    def live(seed: int) -> str:
        with Pipeline(tiny, threads=1) as pipeline:
            return text_of(list(pipeline.transcribe(sounds(0.9, seed), **PLAIN)))

    with ThreadPoolExecutor(5) as pool:
        texts = list(pool.map(live, range(5)))
    whisper = Whisper.load(tiny)
    assert texts == [whisper.transcribe(sounds(0.9, seed), **PLAIN).text for seed in range(5)]


@pytest.mark.fault(41)
def test_a_run_leaves_nothing_in_the_home_and_the_temporary_folder(
    cli: TinyCli, clip: Path, undisturbed: str, tmp_path: Path
) -> None:
    """Nor do the libraries: ONNX Runtime would keep a device id and a session there, for its telemetry."""
    home, temporary = tmp_path / "home", tmp_path / "tmp"
    home.mkdir()
    temporary.mkdir()
    places = {"HOME": str(home), "TMPDIR": str(temporary), "XDG_CACHE_HOME": None, "XDG_DATA_HOME": None}
    assert cli(*cli.plain, clip, env={**places, "ORT_DISABLE_TELEMETRY": None}) == (exits.OK, undisturbed + "\n", "")
    assert list(home.rglob("*")) == list(temporary.rglob("*")) == []


# --- connection files -------------------------------------------------------------------------------------------


def loosen(path: Path) -> None:
    path.chmod(0o644)


def speak_another_version(path: Path) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | {"protocol": "2.0"}))


def point_elsewhere(path: Path) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | {"hub": "ipc:///tmp/somebody-elses"}))


FILES: dict[str, tuple[Callable[[Path], object], str]] = {
    "absent": (Path.unlink, "no such connection file"),
    "half-written": (cut, "half-written"),
    "empty": (partial(os.truncate, length=0), "half-written"),
    "for everybody to read": (loosen, "chmod 600"),
    "of another version": (speak_another_version, "protocol 2.0"),
    "that points elsewhere": (point_elsewhere, ""),
    "a list": (lambda path: path.write_text("[]"), "not a connection file"),
}


@pytest.mark.fault(42)
def test_a_connection_file_that_is_not_as_it_should_be_is_refused_in_one_line_that_says_why(
    cli: TinyCli, tiny: Path, clip: Path, undisturbed: str, tmp_path: Path
) -> None:
    with Pipeline(tiny, threads=1) as pipeline:
        runs = {}
        for kind, (change, _) in FILES.items():
            path = pipeline.connection.write(tmp_path / f"{kind}.json")
            change(path)
            runs[kind] = cli.start("--attach", path)
        for kind, run in runs.items():
            done = run.finish()
            assert (done.code, done.out) == (exits.PIPELINE, ""), kind
            assert FILES[kind][1] in the_only_line(done)
        assert text_of(transcribe(pipeline, clip)) == undisturbed


# --- descriptors, terminals -------------------------------------------------------------------------------------


@pytest.mark.fault(44)
@pytest.mark.parametrize("limit", [64, 24, 12])
def test_few_descriptors_are_enough_or_that_is_said(cli: TinyCli, clip: Path, undisturbed: str, limit: int) -> None:
    limited = (sys.executable, "-c", LIMITED, "RLIMIT_NOFILE", str(limit), *cli.command)
    done = cli(*cli.plain, clip, command=limited)
    if limit == 64:
        assert done == (exits.OK, undisturbed + "\n", "")
    else:
        assert done.code == exits.PIPELINE
        assert "too many open files" in the_only_line(done).lower()


@pytest.mark.fault(44)
def test_a_closed_standard_output_ends_the_run_quietly(cli: TinyCli, clip: Path) -> None:
    closing = ("sh", "-c", 'exec "$0" "$@" >&-', *cli.command)
    assert cli(*cli.plain, clip, command=closing) == (exits.OUTPUT_CLOSED, "", "")


@pytest.mark.fault(44)
def test_without_any_standard_stream_the_files_are_written(
    cli: TinyCli, clip: Path, undisturbed: str, tmp_path: Path
) -> None:
    closing = ("sh", "-c", 'exec "$0" "$@" <&- >/dev/null 2>&-', *cli.command)
    done = cli(*cli.plain, "--output-dir", tmp_path, "--format", "txt", clip, command=closing)
    assert done.code == exits.OK
    assert "".join((tmp_path / "clip.txt").read_text().split()) == "".join(undisturbed.split())


@pytest.mark.fault(44)
def test_twenty_columns_show_all_the_text_and_no_more(cli: TinyCli, clip: Path, undisturbed: str) -> None:
    screen = pyte.HistoryScreen(20, 10, history=1000)
    stream = pyte.ByteStream(screen)
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (10, 20))
    arguments = [word for word in cli.plain if word != "--quiet"]
    run = cli.start(*arguments, clip, env={"TERM": "xterm-256color"}, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    while data := read(ours):
        stream.feed(data)
    os.close(ours)
    assert run.finish().code == exits.OK
    above: list[dict[int, Any]] = list(screen.history.top)
    rows = ["".join(line[column].data for column in range(20)).rstrip() for line in above] + list(screen.display)
    shown = "".join("".join(rows).split())
    assert "".join(undisturbed.split()) in shown
    assert not screen.cursor.hidden


def read(terminal: int) -> bytes:
    """What is written to it; nothing once all writers are gone."""
    try:
        return os.read(terminal, 65536)
    except OSError:
        return b""
