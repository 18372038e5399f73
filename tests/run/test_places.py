"""Where run.py is started, by whom, and with what around it: only the runtime folder is written, nothing is fetched."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.run.conftest import Cli


def words(text: str) -> list[str]:
    return re.findall(r"[a-z']+", text.lower())


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A folder with names that must not become our imports."""
    for name in ("susurrus", "models", "actors", "protocol"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(f"raise SystemExit('the {name} of the user was imported')\n")
    for name in ("numpy", "zmq", "rich", "run", "logging", "onnxruntime"):
        (tmp_path / f"{name}.py").write_text(f"raise SystemExit('the {name} of the user was imported')\n")
    return tmp_path


@pytest.mark.parametrize("installed", [False, True], ids=["run.py", "susurrus"])
def test_the_folder_it_is_started_in_does_not_matter(
    cli: Cli, austen: Path, elsewhere: Path, texts: dict[str, str], *, installed: bool
) -> None:
    command = cli.installed_command if installed else cli.command
    shutil.copy(austen, elsewhere / "clip.wav")
    # Without HOME, and with a temporary folder too deep for sockets.
    deep = elsewhere / ("temporary é " * 10)
    deep.mkdir()
    surroundings = {"HOME": None, "TMPDIR": str(deep), "XDG_RUNTIME_DIR": None}
    done = cli("--wav", "clip.wav", command=command, cwd=elsewhere, env=surroundings)
    assert (done.code, done.err) == (0, "")
    assert words(done.out) == words(texts["austen.wav"])


@pytest.fixture
def read_only_models(base: Path) -> Iterator[None]:
    """Nobody may write into the models folder."""
    paths = [base.parent, *base.parent.rglob("*")]
    modes = {path: path.stat().st_mode for path in paths}
    for path in paths:
        path.chmod(path.stat().st_mode & ~0o222)
    yield
    for path, mode in modes.items():
        path.chmod(mode)


@pytest.mark.usefixtures("read_only_models")
def test_a_user_without_home_or_name_runs_from_a_read_only_models_folder(
    cli: Cli, austen: Path, texts: dict[str, str], base: Path
) -> None:
    # Root ignores modes; in this namespace even root is nobody: uid 12345, without capabilities or a passwd entry.
    become = ("unshare", "--user", "--map-user=12345", "--map-group=12345", *cli.command)
    before = snapshot(base.parent)
    done = cli("--wav", austen, command=become, env={"HOME": "/nonexistent", "USER": None, "LOGNAME": None})
    if done.err.startswith("unshare"):
        pytest.skip(done.err)
    assert (done.code, done.err) == (0, "")
    assert words(done.out) == words(texts["austen.wav"])
    assert snapshot(base.parent) == before


def snapshot(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*")}


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_no_network_is_needed_and_none_is_tried(cli: Cli, austen: Path, texts: dict[str, str], tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    watched = ("strace", "-f", "-qq", "-e", "trace=connect,sendto,bind", "-o", str(trace))
    done = cli("--wav", austen, command=("unshare", "-rn", *watched, *cli.command))
    if "unshare" in done.err or "strace:" in done.err:
        pytest.skip(done.err)
    assert (done.code, done.err) == (0, "")
    assert words(done.out) == words(texts["austen.wav"])
    assert "AF_UNIX" in trace.read_text()
    assert re.findall(r".*AF_INET.*", trace.read_text()) == []


def test_a_temporary_folder_of_a_killed_run_is_removed_by_the_next(cli: Cli, broken: Path) -> None:
    left = cli.runtime / "susurrus-12345678"
    left.mkdir(mode=0o700)
    (left / "lock").touch(mode=0o600)
    cli("--wav", broken)
    assert not left.exists()


def test_runs_at_the_same_moment_do_not_clash(cli: Cli, broken: Path) -> None:
    runs = [cli.start("--wav", broken) for _ in range(3)]
    assert {run.finish()[:2] for run in runs} == {(2, "")}
