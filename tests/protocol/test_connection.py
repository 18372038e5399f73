"""The connection file: whole or not there, its owner's alone, and of this protocol."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import stat
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from susurrus.protocol import (
    VERSION,
    Connection,
    ConnectionFileError,
    RuntimeFolder,
    Security,
    Transport,
    new_id,
    newest_live,
)
from susurrus.protocol import connection as connection_module

if TYPE_CHECKING:
    from pathlib import Path


def connection_in(folder: Path, *, started: float = 1.5, scheme: str = "tcp") -> Connection:
    transport = Transport.choose(folder, scheme)
    return Connection(os.getpid(), new_id(), f"ipc://{folder}/hub", f"ipc://{folder}/events", transport, started)


@pytest.fixture(params=["ipc", "tcp"])
def connection(request: pytest.FixtureRequest, runtime_folder: Path) -> Connection:
    """A connection of either transport."""
    return connection_in(runtime_folder, scheme=request.param)


def refusal(path: Path) -> str:
    with pytest.raises(ConnectionFileError) as caught:
        Connection.read(path)
    text = str(caught.value)
    assert text.startswith(f"{path}: ")
    assert "\n" not in text
    return text


def test_what_is_written_is_read(connection: Connection) -> None:
    path = connection.write()
    assert path == connection.folder / "connection.json"
    assert Connection.read(path) == connection


def test_the_file_is_its_owners_alone_whatever_the_umask(connection: Connection) -> None:
    before = os.umask(0)
    try:
        path = connection.write()
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_writing_leaves_nothing_but_the_file(connection: Connection, tmp_path: Path) -> None:
    connection.write(tmp_path / "elsewhere.json")
    connection.write(tmp_path / "elsewhere.json")
    assert [path.name for path in tmp_path.iterdir()] == ["elsewhere.json"]


def test_the_file_appears_only_when_it_is_whole(
    connection: Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class FullDisk(io.StringIO):
        def write(self, text: str) -> int:
            super().write(text[:20])
            raise OSError(28, "No space left on device")

    def opens(path: Path, *_: Any, **__: Any) -> FullDisk:
        path.touch()
        return FullDisk()

    monkeypatch.setattr("builtins.open", opens)
    with pytest.raises(ConnectionFileError, match="No space left"):
        connection.write(tmp_path / "connection.json")
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_is_named(connection: Connection, tmp_path: Path) -> None:
    with pytest.raises(ConnectionFileError, match=r"gone/c\.json: cannot be written"):
        connection.write(tmp_path / "gone" / "c.json")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o666, 0o644, 0o610])
def test_a_file_open_to_others_is_refused(mode: int, connection: Connection) -> None:
    path = connection.write()
    path.chmod(mode)
    assert "open to other users" in refusal(path)


def test_a_file_of_another_user_is_refused(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    path = connection.write()
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert "not to you" in refusal(path)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    assert "does the pipeline run?" in refusal(tmp_path / "connection.json")


def test_what_is_no_regular_file_is_refused(connection: Connection, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(connection.write())
    refusal(tmp_path / "link")
    refusal(tmp_path)
    os.mkfifo(tmp_path / "pipe", 0o600)
    assert "not a regular file" in refusal(tmp_path / "pipe")


def test_a_half_written_file_is_refused_at_every_length(connection: Connection, tmp_path: Path) -> None:
    whole = connection.write().read_bytes().rstrip(b"\n")
    path = tmp_path / "connection.json"
    path.touch(mode=0o600)
    for size in range(0, len(whole), 7):
        path.write_bytes(whole[:size])
        assert "half-written" in refusal(path)
    for damaged in (b"\xff\xfe", b"[" * 60_000):
        path.write_bytes(damaged)
        assert "half-written" in refusal(path)


def test_another_major_version_is_refused_with_both_versions(connection: Connection) -> None:
    path = dataclasses.replace(connection, protocol="2.1").write()
    text = refusal(path)
    assert "2.1" in text
    assert VERSION in text


def test_a_newer_minor_version_is_read(connection: Connection) -> None:
    path = dataclasses.replace(connection, protocol="1.9").write()
    value = json.loads(path.read_text())
    path.write_text(json.dumps(value | {"more": [1]}))
    assert Connection.read(path).protocol == "1.9"


def test_every_missing_or_wrong_field_is_refused(connection: Connection) -> None:
    path = connection.write()
    value = json.loads(path.read_text())
    for name in value.keys() - {"resident"}:  # nothing but true means that it is
        odd: list[Any] = ["xx" if name in ("instance", "transport", "pid", "started") else 0]
        for wrong in [None, [], True, {}, *odd]:
            path.write_text(json.dumps(value | {name: wrong}))
            refusal(path)
        if name != "listens":  # an older pipeline does not say
            path.write_text(json.dumps({key: value[key] for key in value if key != name}))
            refusal(path)
    for number in ("NaN", "Infinity", "-Infinity"):
        path.write_text(json.dumps(value | {"started": float(number)}))
        refusal(path)
    for text in ("[]", "1", "null", '"x"'):
        path.write_text(text)
        assert "not a connection file" in refusal(path)


def test_keys_are_in_the_file_but_not_in_the_repr(connection: Connection) -> None:
    text = connection.write().read_text()
    public = connection.transport.security.public.decode()
    assert public in text
    assert not public or public not in repr(connection)


def test_a_file_in_a_folder_where_everybody_may_replace_it_is_refused(connection: Connection, tmp_path: Path) -> None:
    loose = tmp_path / "loose"
    loose.mkdir()
    path = connection.write(loose / "c.json")
    loose.chmod(0o777)
    assert "others could replace it" in refusal(path)
    loose.chmod(0o1777)  # as /tmp is
    assert Connection.read(path) == connection


def test_a_file_with_a_nul_in_its_name_is_refused(tmp_path: Path) -> None:
    refusal(tmp_path / "a\0b")


# --- of a remote client -------------------------------------------------------------------------------------


@pytest.fixture
def remote() -> Connection:
    """What a client on another machine attaches with."""
    return Connection.to_remote("tcp://host.example:7000", Security.generate(), Security.generate())


def test_a_remote_clients_file_holds_its_own_key_and_the_servers_public_one(remote: Connection, tmp_path: Path) -> None:
    path = remote.write(tmp_path / "c.json")
    assert Connection.read(path) == remote
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert (remote.hub, remote.events) == ("tcp://host.example:7000", "tcp://host.example:7001")
    assert remote.transport.security.secret == b""
    path.chmod(0o640)
    assert "open to other users" in refusal(path)


def test_every_missing_or_wrong_field_of_a_remote_clients_file_is_refused(remote: Connection, tmp_path: Path) -> None:
    path = remote.write(tmp_path / "c.json")
    value = json.loads(path.read_text())
    short = {"public": "x" * 39, "secret": "x" * 40}
    odd: dict[str, list[Any]] = {
        "hub": ["tcp://h:1;tcp://g:2", "ipc:///tmp/x", "tcp://h"],
        "events": ["tcp://h:99999", "inproc://x"],
        "curve": [{}, short],
        "client": [{}, short, {"public": "é" * 40, "secret": "x" * 40}],
    }
    for name in value:
        for wrong in [None, [], True, 0, "", *odd.get(name, [])]:
            path.write_text(json.dumps(value | {name: wrong}))
            refusal(path)
        path.write_text(json.dumps({key: value[key] for key in value if key != name}))
        refusal(path)


def test_a_remote_pipeline_is_given_up_by_its_silence_and_never_by_a_lock(
    remote: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Line:
        def __init__(self, trouble: str) -> None:
            self.trouble = lambda: trouble

    def verdict(silent_s: float, trouble: str = "") -> str:
        return remote.why_lost(Line(trouble), 100.0 - silent_s, 0.2)  # type: ignore[arg-type]

    monkeypatch.setattr(connection_module, "time", SimpleNamespace(monotonic=lambda: 100.0))
    assert remote.is_live
    assert not remote.is_local
    assert verdict(5) == ""
    assert verdict(11) == "tcp://host.example:7000: nothing was heard of it for 10 s"
    assert verdict(1, "nobody listens there") == ""
    assert verdict(4, "nobody listens there") == "tcp://host.example:7000: nobody listens there"


def test_a_local_pipeline_is_given_up_when_its_lock_is_free_and_not_before(short_folder: Path) -> None:
    line: Any = None
    with RuntimeFolder.create() as folder:
        connection = connection_in(folder.path)
        assert connection.why_lost(line, time.monotonic() - 100, 0.2) == ""
    assert list(short_folder.iterdir()) == []
    assert connection.why_lost(line, time.monotonic(), 1000) == ""
    assert "was killed" in connection.why_lost(line, time.monotonic() - 1, 0.2)


# --- the newest living one ----------------------------------------------------------------------------------


def test_the_newest_living_pipeline_is_found(short_folder: Path) -> None:
    with RuntimeFolder.create() as old, RuntimeFolder.create() as new, RuntimeFolder.create() as silent:
        connection_in(old.path, started=1e10).write()
        newest = connection_in(new.path, started=2e10)
        newest.write()
        dead = short_folder / "susurrus-dead0000"
        dead.mkdir(mode=0o700)
        (dead / "lock").touch()
        connection_in(dead, started=3e10).write()
        (silent.path / "connection.json").touch(mode=0o600)
        assert newest_live() == newest
        assert newest.is_live
        assert not Connection.read(dead / "connection.json").is_live
        assert len(list(short_folder.iterdir())) == 4, "nothing is removed"


def test_a_planted_connection_file_is_passed_over(short_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "candidates", lambda: [short_folder])
    with RuntimeFolder.create() as folder:
        path = connection_in(folder.path).write()
        assert newest_live() is not None
        path.chmod(0o644)
        assert newest_live() is None
        path.chmod(0o600)
        folder.path.chmod(0o755)
        assert newest_live() is None


def test_without_a_living_pipeline_there_is_none(short_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "candidates", lambda: [short_folder, short_folder / "gone"])
    assert newest_live() is None


def test_security_survives_the_file(runtime_folder: Path) -> None:
    connection = connection_in(runtime_folder, scheme="tcp")
    security = Connection.read(connection.write()).transport.security
    assert security == connection.transport.security != Security()
