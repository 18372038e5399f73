"""What is committed outlives power cuts, kills and full disks; what is not whole is not there."""

from __future__ import annotations

import dataclasses
import errno
import json
import logging
import os
import stat
import subprocess
import sys
import types
import typing
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from susurrus.actors import journal as module
from susurrus.actors.journal import MAX_LINE_BYTES, Journal, JournalError, JournalKey, default_path
from susurrus.actors.journal_file import open_private
from susurrus.models.errors import AudioError, ModelError
from susurrus.protocol import Cue, Segment, Span, TranscribeOptions, Word, new_id

KEY = JournalKey(
    source="/talks/Tag 1, 世界.wav",
    size=1234,
    mtime_ns=1_700_000_000_123_456_789,
    model="0f" * 32,
    precision="int8",
    options=TranscribeOptions(prompt='"Grüße"\n', temperatures=(0.0, 0.2)),
    version="0.1.0",
)


def segment(window: int, text: str = " Grüße, 世界\n\u2028") -> Segment:
    """A segment with something in every field."""
    span = Span(30.0 * window, 30.0 * window + 0.1)
    word = Word(span.start, span.end, text, 1 / 3)
    return Segment(
        job=new_id(),
        window=window,
        attempt=2,
        start=span.start,
        end=30.0 * window + 30,
        text=text,
        tokens=(1, 50_000),
        language="de",
        language_probability=0.1 + 0.2,
        truncated=True,
        encoder_s=0.25,
        decoder_s=5e-324,
        seq=7,
        cues=(Cue(span.start, span.end, text, (1, 50_000), (word,)),),
        speech=(span,),
        language_probabilities={"de": 0.75, "nl": 0.25},
        temperature=0.2,
        avg_logprob=-0.5,
        compression_ratio=1.5,
        no_speech_prob=0.01,
        warnings=("language doubtful",),
        memory='{"prompt":[1,2],"languages":{"de":0.75}}',
    )


SEGMENTS = tuple(segment(window) for window in range(3))


def as_kept(segments: typing.Iterable[Segment]) -> tuple[Segment, ...]:
    """What a journal has of them: the job and the number are of the run."""
    return tuple(replace(segment, job=bytes(16), seq=0) for segment in segments)


@contextmanager
def opened(path: Path, key: JournalKey = KEY) -> Iterator[Journal]:
    with closing(Journal.open(path, key)) as journal:
        yield journal


def write(path: Path, segments: typing.Iterable[Segment] = SEGMENTS, key: JournalKey = KEY) -> bytes:
    with opened(path, key) as journal:
        for each in segments:
            journal.append(each)
    return path.read_bytes()


def committed(path: Path) -> tuple[Segment, ...]:
    with opened(path) as journal:
        return journal.committed


def refill(path: Path, content: bytes) -> Path:
    """A journal's file with this in it."""
    path.unlink(missing_ok=True)  # some file systems wait for the disk when a file is emptied and filled again
    path.write_bytes(content)
    path.chmod(0o600)
    return path


def line(**fields: Any) -> bytes:
    """A line as the journal writes them, whatever is in it."""
    body = json.dumps(fields).encode()[:-1]
    return body + b',"crc32":%d}\n' % zlib.crc32(body)


@pytest.fixture(scope="module", autouse=True)
def unsynced() -> Iterator[None]:
    """Do not wait for the disk thousands of times: a process loses nothing that it has written."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _file: None)
        yield


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.jsonl"


# --- what is written comes back -----------------------------------------------------------------------------------

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
SCALARS: dict[Any, st.SearchStrategy[Any]] = {
    bool: st.booleans(),
    int: st.integers(0, 2**63 - 1),
    float: st.floats(allow_nan=False, allow_infinity=False),
    str: TEXT,
    bytes: st.binary(min_size=16, max_size=16),
}


def values(hint: Any) -> st.SearchStrategy[Any]:
    """Anything that a field so declared may hold."""
    if hint in SCALARS:
        return SCALARS[hint]
    arguments = typing.get_args(hint)
    if typing.get_origin(hint) is tuple:
        return st.lists(values(arguments[0]), max_size=3).map(tuple)
    if typing.get_origin(hint) is dict:
        return st.dictionaries(TEXT, values(arguments[1]), max_size=3)
    if typing.get_origin(hint) is types.UnionType:
        return st.one_of(*(st.none() if argument is types.NoneType else values(argument) for argument in arguments))
    hints = typing.get_type_hints(hint)
    return st.builds(hint, **{field.name: values(hints[field.name]) for field in dataclasses.fields(hint)})


@given(st.lists(values(Segment), max_size=4), values(JournalKey))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_every_field_of_every_segment_comes_back(
    tmp_path_factory: pytest.TempPathFactory, drawn: list[Segment], key: JournalKey
) -> None:
    path = tmp_path_factory.mktemp("journal") / "journal.jsonl"
    segments = [replace(each, window=window) for window, each in enumerate(drawn)]
    write(path, segments, key)
    with opened(path, key) as journal:
        assert journal.committed == as_kept(segments)


def test_a_resumed_run_goes_on_where_the_other_broke_off(path: Path) -> None:
    write(path, SEGMENTS[:1])
    with opened(path) as journal:
        assert journal.committed == as_kept(SEGMENTS[:1])
        for each in SEGMENTS:  # the first one is there already
            journal.append(each)
    assert committed(path) == as_kept(SEGMENTS)


def test_every_line_is_one_json_object_that_people_can_read(path: Path) -> None:
    content = write(path)
    lines = content.decode("utf-8").split("\n")
    header, *segments = map(json.loads, lines[:-1])
    assert lines[-1] == ""
    assert (header["journal"], header["source"], header["options"]["prompt"]) == (1, KEY.source, KEY.options.prompt)
    assert [each["text"] for each in segments] == [each.text for each in SEGMENTS]
    assert "Grüße, 世界".encode() in content
    assert not any({"job", "seq"} & each.keys() for each in segments)


def test_a_window_cannot_be_left_out(path: Path) -> None:
    with opened(path) as journal, pytest.raises(ValueError, match="window 1 cannot follow 0"):
        journal.append(SEGMENTS[1])


def test_a_segment_that_could_not_be_read_back_is_refused(path: Path) -> None:
    with opened(path) as journal:
        with pytest.raises(JournalError, match=r"journal\.jsonl: a segment of \d+ bytes does not fit"):
            journal.append(segment(0, "x" * MAX_LINE_BYTES))
        journal.append(SEGMENTS[0])
    assert committed(path) == as_kept(SEGMENTS[:1])


def test_fields_that_a_newer_version_added_are_ignored_and_missing_ones_have_their_defaults(path: Path) -> None:
    header, first, *_ = write(path).splitlines(keepends=True)
    known = json.loads(first)
    del known["crc32"], known["memory"]
    refill(path, header + line(**known, later={"a": [None]}))
    assert committed(path) == as_kept([replace(SEGMENTS[0], memory="")])


def test_a_finished_journal_is_gone_and_an_unfinished_one_stays(path: Path) -> None:
    journal = Journal.open(path, KEY)
    journal.close()
    journal.close(finished=True)
    assert path.exists()
    journal = Journal.open(path, KEY)
    journal.close(finished=True)
    journal.close(finished=True)
    assert not path.exists()
    with pytest.raises(JournalError, match="cannot be written"):
        journal.append(SEGMENTS[0])


def test_a_file_that_took_the_place_of_a_finished_journal_is_left_alone(path: Path) -> None:
    journal = Journal.open(path, KEY)
    path.unlink()
    path.write_text("other")
    journal.close(finished=True)
    assert path.read_text() == "other"


# --- what is not whole is not there -------------------------------------------------------------------------------


def test_a_journal_cut_short_anywhere_has_the_segments_whose_lines_are_whole(path: Path) -> None:
    content = write(path)
    ends = [index + 1 for index, byte in enumerate(content) if byte == ord("\n")]
    for size in range(len(content)):
        refill(path, content[:size])
        whole = sum(end <= size for end in ends)
        assert committed(path) == as_kept(SEGMENTS[: max(0, whole - 1)]), size
        # and what was cut short is off: the next line starts a line
        assert path.read_bytes() == content[: ends[max(1, whole) - 1]], size


def test_a_line_is_written_over_what_was_cut_short(path: Path) -> None:
    content = write(path)
    refill(path, content[:-5])
    write(path)
    assert path.read_bytes() == content


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_a_flipped_bit_costs_its_line_and_what_follows(tmp_path_factory: pytest.TempPathFactory, data: Any) -> None:
    path = tmp_path_factory.mktemp("flip") / "journal.jsonl"
    content = bytearray(write(path))
    position = data.draw(st.integers(0, len(content) - 1))
    content[position] ^= 1 << data.draw(st.integers(0, 7))
    refill(path, bytes(content))
    before = bytes(content[:position]).count(b"\n")
    if before:
        assert committed(path) == as_kept(SEGMENTS[: before - 1])
    else:  # in the line that says what all of it is about
        with pytest.raises(JournalError, match="first line is damaged: "):
            committed(path)
        assert path.read_bytes() == content


@pytest.mark.parametrize(
    "make",
    [
        lambda good: line(**good | {"start": float("nan")}),
        lambda good: line(**good | {"start": float("inf")}),
        lambda good: line(**good | {"start": "0"}),
        lambda good: line(**good | {"text": "\ud800"}),
        lambda good: line(**good | {"text": "x" * (1024 * 1024)}),
        lambda good: line(**good | {"tokens": [-1]}),
        lambda good: line(**good | {"cues": [[]]}),
        lambda good: line(**good | {"window": 0}),
        lambda good: line(**good | {"window": 2}),
        lambda _good: line(),
        lambda _good: b"[]\n",
        lambda _good: b"\n",
        lambda _good: b"0}\n",
        lambda _good: b"\0" * 4096,
        lambda _good: b'{"a":' * 100_000 + b"\n",
        lambda _good: b'{"a":%b,"crc32":%d}\n' % (b"[" * 100_000, zlib.crc32(b'{"a":' + b"[" * 100_000)),
        lambda _good: b'{"a":%b,"crc32":%d}\n' % (b"9" * 9999, zlib.crc32(b'{"a":' + b"9" * 9999)),
        lambda good: line(**good | {"later": "x" * MAX_LINE_BYTES}),
        lambda _good: b"x" * (3 * MAX_LINE_BYTES),
    ],
)
def test_hostile_lines_end_a_journal(path: Path, make: Callable[[dict[str, Any]], bytes]) -> None:
    header, first, second, *_ = write(path).splitlines(keepends=True)
    good = json.loads(second)
    del good["crc32"]
    refill(path, header + first + line(**good) + line(**good | {"window": 2}))
    assert committed(path) == as_kept([*SEGMENTS[:2], replace(SEGMENTS[1], window=2)])
    refill(path, header + first + make(good) + line(**good))
    assert committed(path) == as_kept(SEGMENTS[:1])
    assert path.read_bytes() == header + first


def test_damage_is_logged_as_a_warning_and_a_torn_end_is_not(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, module.log.name)
    content = write(path)
    refill(path, content[:-1])
    committed(path)
    assert [record.levelname for record in caplog.records] == ["INFO"]
    refill(path, content.replace(b"Gr\xc3\xbc\xc3\x9fe, ", b"gr\xc3\xbc\xc3\x9fe, "))
    committed(path)
    assert [record.levelname for record in caplog.records] == ["INFO", "WARNING"]
    assert "世界" not in caplog.text


@pytest.mark.parametrize("content", [b"dear diary", b"dear diary\n", b"{}\n", b"\xff", b"{]", line(journal=2)])
def test_a_file_that_is_no_journal_is_left_alone(path: Path, content: bytes) -> None:
    refill(path, content)
    with pytest.raises(JournalError, match=r"journal\.jsonl: not a journal"):
        committed(path)
    assert path.read_bytes() == content


# --- whose journal it is ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("source", "/talks/2.wav"),
        ("size", 1235),
        ("mtime_ns", 1),
        ("model", "1f" * 32),
        ("precision", "float32"),
        ("version", "0.2.0"),
    ],
)
def test_a_journal_of_something_else_is_refused_with_what_differs(path: Path, field: str, value: Any) -> None:
    content = write(path)
    with pytest.raises(JournalError, match=rf"journal\.jsonl: .* another {field}: remove it") as raised:
        Journal.open(path, replace(KEY, **{field: value}))
    assert "\n" not in str(raised.value)
    assert path.read_bytes() == content


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(TranscribeOptions)])
def test_other_options_are_named_and_not_shown(path: Path, name: str) -> None:
    write(path)
    others: dict[str, Any] = {name: object()}
    options = replace(KEY.options, **others)
    with pytest.raises(JournalError, match=f"another option {name}: ") as raised:
        Journal.open(path, replace(KEY, options=options))
    assert "Grüße" not in str(raised.value)


def test_all_that_differs_is_named(path: Path) -> None:
    write(path)
    options = replace(KEY.options, beam_size=5, vad=False)
    with pytest.raises(JournalError, match="another size, mtime_ns, option beam_size, option vad: "):
        Journal.open(path, replace(KEY, size=0, mtime_ns=0, options=options))


def test_a_key_tells_recordings_models_and_options_apart(tmp_path: Path) -> None:
    source, model = tmp_path / "a.wav", tmp_path / "model"
    model.mkdir()
    (model / "manifest.json").write_text("{}")
    source.write_bytes(b"abc")
    key = JournalKey.of(str(source), model, "int8", KEY.options)
    assert key == JournalKey.of(str(source), model, "int8", KEY.options)
    assert (key.source, key.size, key.mtime_ns) == (str(source), 3, source.stat().st_mtime_ns)
    (model / "manifest.json").write_text("{ }")
    assert JournalKey.of(str(source), model, "int8", KEY.options).model != key.model
    (model / "manifest.json").unlink()
    without = JournalKey.of(str(source), model, "int8", KEY.options).model
    (model / "decoder.onnx").write_bytes(b"1")
    assert JournalKey.of(str(source), model, "int8", KEY.options).model != without


def test_a_recording_that_cannot_be_looked_at_has_no_key(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for source in ("missing.wav", "pipe", "."):
        with pytest.raises(AudioError, match="cannot be read") as raised:
            JournalKey.of(str(tmp_path / source), tmp_path, "int8", KEY.options)
        assert str(tmp_path) in str(raised.value)
    with pytest.raises(AudioError, match=r"^-: cannot be read a second time"):
        JournalKey.of("-", tmp_path, "int8", KEY.options)
    with pytest.raises(AudioError, match="null byte"):
        JournalKey.of("\0", tmp_path, "int8", KEY.options)


def test_a_model_that_cannot_be_looked_at_has_no_key(tmp_path: Path) -> None:
    source = tmp_path / "a.wav"
    source.touch()
    (tmp_path / "manifest.json").mkdir()
    with pytest.raises(ModelError, match=r"manifest\.json cannot be read"):
        JournalKey.of(str(source), tmp_path, "int8", KEY.options)


def test_names_that_are_no_utf_8_and_dates_before_1970_are_kept(tmp_path: Path, path: Path) -> None:
    source = tmp_path / os.fsdecode(b"\xff\n.wav")
    source.touch()
    os.utime(source, ns=(-5, -5))
    key = JournalKey.of(str(source), tmp_path, "int8", KEY.options)
    write(path, key=key)
    path.read_bytes().decode("utf-8")
    with opened(path, key) as journal:
        assert journal.committed == as_kept(SEGMENTS)


# --- where it is --------------------------------------------------------------------------------------------------


def test_a_journal_is_in_the_users_state_folder_or_where_the_variable_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SUSURRUS_STATE", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    first = default_path("/talks/Tag 1/Begrüßung & mehr.wav")
    assert first.parent == tmp_path / "state" / "susurrus" / "journals"
    assert first.name[16:] == "-Begrüßung_mehr.wav.jsonl"
    monkeypatch.setenv("SUSURRUS_STATE", str(tmp_path / "other"))
    assert default_path("/talks/Tag 1/Begrüßung & mehr.wav") == tmp_path / "other" / "journals" / first.name


def test_every_recording_has_a_journal_of_its_own_that_can_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUSURRUS_STATE", str(tmp_path))
    sources = ["/a/b.wav", "/b/b.wav", "/a/" + "界" * 80, "/a/" + "界" * 81, os.fsdecode(b"/\xff"), "/\n", "b.wav"]
    paths = [default_path(source) for source in sources]
    assert len(set(paths)) == len(paths)
    for each in paths:
        write(each)
    assert default_path("b.wav") == default_path(str(Path.cwd() / "b.wav"))


# --- nobody else gets in ------------------------------------------------------------------------------------------


def test_file_and_folders_are_the_users_alone(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        write(tmp_path / "a" / "b" / "journal.jsonl")
    finally:
        os.umask(old)
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("a", "a/b", "a/b/journal.jsonl")]
    assert modes == [0o700, 0o700, 0o600]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o644])
def test_a_file_that_is_open_to_others_is_refused(path: Path, mode: int) -> None:
    write(path)
    path.chmod(mode)
    with pytest.raises(JournalError, match=rf"open to other users \(mode {mode:04o}\): run `chmod 600`"):
        Journal.open(path, KEY)


def test_a_file_of_another_user_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(path)
    monkeypatch.setattr(os, "geteuid", lambda: path.stat().st_uid + 1)
    with pytest.raises(JournalError, match="belongs to user"):
        Journal.open(path, KEY)


def test_links_pipes_and_folders_are_refused(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = write(tmp_path / "real")
    path.symlink_to(tmp_path / "real")
    with pytest.raises(JournalError, match="a link"):
        Journal.open(path, KEY)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "is_symlink", lambda _path: False)  # it becomes one just after it was looked at
        with pytest.raises(JournalError, match="cannot be written"):
            Journal.open(path, KEY)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(JournalError, match="not a regular file"):
        Journal.open(tmp_path / "pipe", KEY)
    for place in (tmp_path, tmp_path / "real" / "below", tmp_path / "\0", tmp_path / ("x" * 300)):
        with pytest.raises(JournalError, match="cannot be written") as raised:
            Journal.open(place, KEY)
        assert str(place) in str(raised.value)
    assert (tmp_path / "real").read_bytes() == content


def test_two_runs_never_write_one_journal(path: Path) -> None:
    with opened(path) as journal:
        journal.append(SEGMENTS[0])
        with pytest.raises(JournalError, match="in use by another run"):
            Journal.open(path, KEY)
        journal.append(SEGMENTS[1])
    assert committed(path) == as_kept(SEGMENTS[:2])


def test_a_run_killed_outright_leaves_a_journal_that_can_be_gone_on_with(path: Path) -> None:
    script = """
import os, signal, sys
from pathlib import Path
from tests.actors.test_journal import KEY, SEGMENTS, Journal, opened
journal = Journal.open(Path(sys.argv[1]), KEY)
journal.append(SEGMENTS[0])
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = child(script, path)
    assert done.returncode == -9, done.stderr
    assert committed(path) == as_kept(SEGMENTS[:1])


def test_a_journal_that_its_run_removed_while_another_waited_at_the_door_is_not_used(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Journal.open(path, KEY)
    real = os.open

    def open_then_finish(*arguments: Any) -> int:
        descriptor = real(*arguments)
        first.close(finished=True)
        return descriptor

    monkeypatch.setattr(os, "open", open_then_finish)
    with pytest.raises(JournalError, match="in use by another run"):
        open_private(path)


# --- the disk -----------------------------------------------------------------------------------------------------


def child(script: str, path: Path) -> subprocess.CompletedProcess[str]:
    """A process of its own, which may be killed or limited."""
    root = Path(__file__).parents[2]
    command = [sys.executable, "-c", script, str(path)]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=60, check=False)


def test_every_segment_is_on_the_disk_when_append_returns(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[tuple[bool, int]] = []
    real = os.fsync

    def count(descriptor: int) -> None:
        status = os.fstat(descriptor)
        synced.append((stat.S_ISDIR(status.st_mode), 0 if stat.S_ISDIR(status.st_mode) else status.st_size))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", count)
    with opened(path) as journal:
        header = path.stat().st_size
        assert synced == [(False, header), (True, 0)]  # its first line, then its name
        synced.clear()
        sizes = []
        for each in SEGMENTS:
            journal.append(each)
            sizes.append(path.stat().st_size)
    assert synced == [(False, size) for size in sizes]


def test_lines_are_written_whole_even_when_the_system_takes_little_at_a_time(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = write(path)
    path.unlink()
    real = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: real(descriptor, data[:7]))
    assert write(path) == whole


@pytest.mark.parametrize("at", ["write", "fsync"])
def test_a_full_disk_is_one_line_and_loses_nothing(path: Path, monkeypatch: pytest.MonkeyPatch, at: str) -> None:
    real = os.write
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def write_some(descriptor: int, data: bytes) -> int:
        if len(data) < 100:
            raise full
        return real(descriptor, data[:100])

    def fail(_descriptor: int) -> None:
        raise full

    with opened(path) as journal:
        journal.append(SEGMENTS[0])
        before = path.read_bytes()
        with monkeypatch.context() as patch:
            patch.setattr(os, at, {"write": write_some, "fsync": fail}[at])
            with pytest.raises(
                JournalError, match=r"journal\.jsonl: cannot be written: No space left on device: "
            ) as raised:
                journal.append(SEGMENTS[1])
        assert "\n" not in str(raised.value)
        assert path.read_bytes() == before
        journal.append(SEGMENTS[1])  # there is room again
    assert committed(path) == as_kept(SEGMENTS[:2])


def test_a_disk_that_is_full_from_the_start_is_one_line(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_descriptor: int, _data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", fail)
        with pytest.raises(JournalError, match="No space left"):
            Journal.open(path, KEY)
    assert committed(path) == ()


def test_what_a_limit_of_the_system_cuts_off_is_off(path: Path) -> None:
    script = """
import resource, sys
from pathlib import Path
from tests.actors.test_journal import KEY, SEGMENTS, Journal, JournalError
path = Path(sys.argv[1])
journal = Journal.open(path, KEY)
journal.append(SEGMENTS[0])
size = path.stat().st_size
resource.setrlimit(resource.RLIMIT_FSIZE, (size + 50, size + 50))
try:
    journal.append(SEGMENTS[1])
except JournalError as error:
    print(error)
assert path.stat().st_size == size
"""
    done = child(script, path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{path}: cannot be written: File too large: ")
    assert committed(path) == as_kept(SEGMENTS[:1])
