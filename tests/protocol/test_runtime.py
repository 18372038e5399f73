"""The private folder: private, short, locked while its pipeline lives, gone afterwards."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from susurrus.protocol import (
    HubLine,
    HubPort,
    Identity,
    Pong,
    RuntimeFolder,
    RuntimeFolderError,
    Transport,
    runtime,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    import zmq

WAIT = 50  # seconds; a limit for failures
HOLDER = (
    "import sys; from susurrus.protocol import RuntimeFolder\n"
    "print(RuntimeFolder.create().path, flush=True)\n"
    "sys.stdin.read()\n"
)


@contextmanager
def another_pipeline() -> Iterator[tuple[Path, subprocess.Popen[str]]]:
    """A process that holds a runtime folder until it is killed."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            yield Path(process.stdout.readline().rstrip("\n")), process
        finally:
            process.kill()


def test_the_folder_is_private_and_vanishes_at_close(short_folder: Path) -> None:
    with RuntimeFolder.create() as folder:
        assert folder.path.parent == short_folder
        assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700
        assert runtime.is_live(folder.path)
        (folder.path / "hub").touch()
    assert list(short_folder.iterdir()) == []
    folder.close()
    assert not runtime.is_live(folder.path)


def test_two_pipelines_have_two_folders(short_folder: Path) -> None:
    with RuntimeFolder.create() as one, RuntimeFolder.create() as two:
        assert one.path != two.path
        assert sorted(short_folder.iterdir()) == sorted([one.path, two.path])


def test_a_killed_run_leaves_a_folder_that_the_next_start_removes(short_folder: Path) -> None:
    with another_pipeline() as (abandoned, process):
        (abandoned / "hub").touch()
        with RuntimeFolder.create():
            assert abandoned.exists(), "it lives"
        assert runtime.is_live(abandoned)
        process.send_signal(signal.SIGKILL)
        process.wait(WAIT)
        assert not runtime.is_live(abandoned)
        assert abandoned.exists()
        with RuntimeFolder.create() as mine:
            assert list(short_folder.iterdir()) == [mine.path]


def test_a_run_killed_before_it_had_a_lock_is_cleaned_up_too(short_folder: Path) -> None:
    (short_folder / "susurrus-aaaaaaaa").mkdir(mode=0o700)
    with RuntimeFolder.create() as mine:
        assert list(short_folder.iterdir()) == [mine.path]


@pytest.mark.parametrize("kind", ["loose", "foreign", "link", "file", "without a lock but not empty"])
def test_what_is_not_surely_ours_is_left_alone(kind: str, short_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = short_folder / "susurrus-bbbbbbbb"
    if kind == "link":
        real = short_folder / "precious"
        real.mkdir(mode=0o700)
        (real / "lock").touch()
        other.symlink_to(real)
    elif kind == "file":
        other.touch(mode=0o600)
    else:
        other.mkdir(mode=0o755 if kind == "loose" else 0o700)
        (other / ("work" if kind.startswith("without") else "lock")).touch()
    if kind == "foreign":
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    runtime.remove_abandoned(short_folder)
    assert other.exists()
    assert other.is_file() or len(list(other.iterdir())) == 1


def test_a_start_whose_new_folder_is_swept_makes_another(short_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make = tempfile.mkdtemp
    made: list[str] = []

    def swept(**options: Any) -> str:
        made.append(make(**options))
        if len(made) == 1:
            runtime.remove_abandoned(short_folder)
        return made[-1]

    monkeypatch.setattr(tempfile, "mkdtemp", swept)
    with RuntimeFolder.create() as folder:
        assert len(made) == 2
        assert list(short_folder.iterdir()) == [folder.path]


def test_a_start_that_is_swept_while_it_locks_makes_another(
    short_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    take = runtime._take
    sweeps: list[int] = []

    def late(lock: int, *, shared: bool = False) -> bool:
        if not sweeps:
            sweeps.append(lock)
            runtime.remove_abandoned(short_folder)
        return take(lock, shared=shared)

    monkeypatch.setattr(runtime, "_take", late)
    with RuntimeFolder.create() as folder:
        assert list(short_folder.iterdir()) == [folder.path]
        assert runtime.is_live(folder.path)


def test_looking_whether_a_pipeline_lives_changes_nothing(short_folder: Path) -> None:
    with another_pipeline() as (folder, process):
        for alive in (True, False):
            before = sorted(folder.iterdir())
            assert runtime.is_live(folder) is alive
            assert sorted(folder.iterdir()) == before
            process.kill()
            process.wait(WAIT)
    assert list(short_folder.iterdir()) == [folder]


def test_a_forked_copy_does_not_remove_its_parents_folder(short_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = RuntimeFolder.create()
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: 1)
        folder.close()
    assert list(short_folder.iterdir()) == [folder.path]
    folder.close()
    assert list(short_folder.iterdir()) == []


# --- where --------------------------------------------------------------------------------------------------


def test_a_runtime_directory_that_others_can_enter_is_passed_over(short_folder: Path) -> None:
    short_folder.chmod(0o755)
    with RuntimeFolder.create() as folder:
        assert folder.path.parent != short_folder


def test_a_runtime_directory_of_another_user_is_passed_over(
    short_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert runtime.unusable(short_folder) == "not yours alone (mode 0700)"


def test_a_shared_folder_must_be_sticky_and_the_systems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr(runtime, "SOCKET_PATH_LIMIT", 1000)
    tmp_path.chmod(0o777)
    assert runtime.unusable(tmp_path) == "others could replace folders in it"
    tmp_path.chmod(0o1777)
    assert runtime.unusable(tmp_path) is None
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert (runtime.unusable(tmp_path) is None) == (os.getuid() == 0)


def test_a_deep_temporary_folder_with_spaces_and_umlauts_still_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, context: zmq.Context[Any], hub: Identity, actor: Identity
) -> None:
    deep = tmp_path / ("é and spaces " * 8).strip() / "more"
    deep.mkdir(parents=True)
    assert len(os.fsencode(deep)) >= 120
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    with RuntimeFolder.create() as folder:
        transport = Transport.choose(folder.path)
        with (
            HubPort(context, transport, hub) as port,
            HubLine(context, transport, actor, port.endpoint) as line,
        ):
            line.send(Pong(1))
            assert port.receive(WAIT) is not None


def test_a_short_temporary_folder_with_spaces_and_umlauts_is_used(
    short_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    context: zmq.Context[Any],
    hub: Identity,
    actor: Identity,
) -> None:
    odd = short_folder / "é à"
    odd.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(odd))
    with RuntimeFolder.create() as folder:
        assert folder.path.parent == odd
        transport = Transport("ipc", folder.path)
        with (
            HubPort(context, transport, hub) as port,
            HubLine(context, transport, actor, port.endpoint) as line,
        ):
            line.send(Pong(1))
            assert port.receive(WAIT) is not None


def test_without_any_place_the_error_names_each_and_the_fix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone, loose = tmp_path / "gone", tmp_path / "loose"
    loose.mkdir(mode=0o777)
    loose.chmod(0o777)
    monkeypatch.setattr(runtime, "candidates", lambda: [gone, loose])
    monkeypatch.setattr(runtime, "SOCKET_PATH_LIMIT", 1000)
    with pytest.raises(RuntimeFolderError, match="set XDG_RUNTIME_DIR") as caught:
        RuntimeFolder.create()
    assert f"{gone}: No such file" in str(caught.value)
    assert f"{loose}: others could replace" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_full_disk_is_told_and_the_next_place_tried(short_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make = tempfile.mkdtemp

    def full(*, prefix: str, dir: Path) -> str:  # noqa: A002  mkdtemp's own name for it
        if dir == short_folder:
            raise OSError(28, "No space left on device")
        return make(prefix=prefix, dir=dir)

    monkeypatch.setattr(tempfile, "mkdtemp", full)
    with RuntimeFolder.create() as folder:
        assert folder.path.parent != short_folder
    monkeypatch.setattr(runtime, "candidates", lambda: [short_folder])
    with pytest.raises(RuntimeFolderError, match="No space left on device"):
        RuntimeFolder.create()
