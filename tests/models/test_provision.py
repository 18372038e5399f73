"""A model appears whole or not at all, is built once, mended when damaged, and otherwise left alone."""

import errno
import hashlib
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from susurrus.models.errors import ModelError, OptionError
from susurrus.models.provision import ensure_model, main, models_directory, resolve_model, terminal_progress
from susurrus.models.provisioning import install, places, sources
from susurrus.models.provisioning.manifest import BUILDER_VERSION, Manifest, Progress, verify
from susurrus.models.provisioning.places import Kind, examine
from susurrus.models.provisioning.sources import Weights, known_models

CHECKPOINT = {
    "model.bin": b"weights" * 1000,
    "config.json": b"{}",
    "tokenizer.json": b"{}",
    "vocabulary.txt": b"a\n",
}
BUILT = ("model.json", "int8/encoder.onnx", "int8/weights.bin")


def fake_build(weights: Weights, directory: Path, name: str, precisions: Sequence[str], progress: Progress) -> None:
    """Write what follows from the weights alone, as the real builder does."""
    content = b"".join(part.read_bytes() for part in weights.files["model.bin"])
    directory.mkdir()
    (directory / "model.json").write_text(json.dumps({"name": name}))
    for precision in precisions:
        progress(f"building {name}", 1, 2)
        (directory / precision).mkdir()
        (directory / precision / "encoder.onnx").write_bytes(precision.encode() + content[:100])
        (directory / precision / "weights.bin").write_bytes(content[::-1])


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    for name, content in CHECKPOINT.items():
        (folder / name).write_bytes(content)
    return folder


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, checkpoint: Path) -> Iterator[Path]:
    """A models folder where "base" and "tiny.en" are a few kilobytes, and a builder that takes no time."""
    files = {
        name: {
            "size": len(content),
            "sha256": hashlib.sha256(content).hexdigest(),
            "packaged": [f"absent/{name}"],
        }
        for name, content in CHECKPOINT.items()
    }
    entry = {"repository": "owner/name", "revision": "0" * 40, "extra": "weights", "files": files}
    (tmp_path / "pinned.json").write_text(json.dumps({"format": 1, "models": {"base": entry, "tiny.en": entry}}))
    monkeypatch.setattr(sources, "PINNED", tmp_path / "pinned.json")
    monkeypatch.setattr(sources, "_packaged", lambda part: checkpoint / part.partition("/")[2])
    monkeypatch.setattr(sources, "from_hub", no_hub)
    monkeypatch.setattr(install, "build", fake_build)
    monkeypatch.setenv("SUSURRUS_MODELS", str(tmp_path / "модели é"))
    known_models.cache_clear()
    yield tmp_path / "модели é"
    known_models.cache_clear()


def no_hub(*_args: Any, **_options: Any) -> Weights:
    raise ModelError("no hub in this test")


def snapshot(folder: Path) -> dict[str, tuple[int, int, int]]:
    stats = {str(path.relative_to(folder)): path.stat() for path in (folder, *folder.rglob("*"))}
    return {name: (stat.st_ino, stat.st_mtime_ns, stat.st_size) for name, stat in stats.items()}


def remarks(told: list[str]) -> Progress:
    def progress(what: str, _done: int, total: int) -> None:
        if not total:
            told.append(what)

    return progress


def idle(what: str, _done: int, _total: int) -> None:
    pytest.fail(f"nothing was to be done, and yet: {what}")


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size * 7 // 10)


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


DAMAGE = pytest.mark.parametrize("damage", [truncate, flip, Path.unlink])


def test_a_model_is_built_into_its_place_and_nothing_is_left_beside_it(models: Path) -> None:
    path = ensure_model("base")
    assert path == models / "base"
    assert verify(path) == []
    assert {p.name for p in models.iterdir()} == {"base", ".base.lock"}
    assert set(BUILT) <= Manifest.read(path).files.keys()


def test_what_is_in_place_is_left_alone(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ensure_model("base")
    (models / ".base.lock").unlink()
    before = snapshot(models)
    monkeypatch.setattr(install.Installation, "run", None)
    assert ensure_model("base") == models / "base"
    assert ensure_model("base", verify=False) == models / "base"
    assert snapshot(models) == before


WATCHED = """
import errno, os, sys
from susurrus.models import provision
def watch(event, args):
    if event.startswith("socket.") and event != "socket.__new__":
        raise RuntimeError(f"the network was touched: {event}")
    writing = event == "open" and args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
    changing = event in ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.truncate")
    if (writing or changing) and "models" in str(args[0]):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), args[0])
sys.addaudithook(watch)
sys.exit(provision.main(sys.argv[1:]))
"""


def run_watched(models: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command line where nothing below a folder "models" can be written and no socket connected."""
    command = [sys.executable, "-c", WATCHED, *arguments, "--model-dir", str(models)]
    environment = {**os.environ, "HF_ENDPOINT": "http://127.0.0.1:9"}
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


@pytest.fixture
def read_only(tmp_path: Path, checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A models folder with the model "mine"."""
    monkeypatch.setattr(install, "build", fake_build)
    ensure_model("mine", directory=tmp_path / "models", source=checkpoint)
    (tmp_path / "models" / ".mine.lock").unlink()
    return tmp_path / "models"


def test_a_whole_model_is_used_from_a_read_only_folder_without_network(read_only: Path) -> None:
    before = snapshot(read_only)
    result = run_watched(read_only, "mine")
    assert (result.returncode, result.stdout, result.stderr) == (0, f"{read_only / 'mine'}\n", "")
    assert run_watched(read_only, "--list").returncode == 0
    assert snapshot(read_only) == before


def test_a_damaged_model_in_a_read_only_folder_is_refused_with_file_hashes_and_fix(read_only: Path) -> None:
    wanted = Manifest.read(read_only / "mine").files["int8/weights.bin"].sha256
    flip(read_only / "mine/int8/weights.bin")
    found = hashlib.sha256((read_only / "mine/int8/weights.bin").read_bytes()).hexdigest()
    result = run_watched(read_only, "mine")
    assert (result.returncode, result.stdout) == (3, "")
    assert result.stderr.count("\n") == 1
    for part in ("int8/weights.bin", wanted[:12], found[:12], "Read-only file system", "SUSURRUS_MODELS"):
        assert part in result.stderr


@DAMAGE
@pytest.mark.parametrize("name", [*BUILT, "manifest.json"])
def test_a_damaged_model_is_built_again_with_a_remark_that_names_the_file(
    models: Path, damage: Callable[[Path], None], name: str
) -> None:
    path = ensure_model("base")
    before = {p: p.read_bytes() for p in path.rglob("*") if p.is_file()}
    damage(path / name)
    told: list[str] = []
    ensure_model("base", progress=remarks(told))
    assert {p: p.read_bytes() for p in path.rglob("*") if p.is_file()} == before
    assert len(told) == 1
    assert name in told[0]
    assert {p.name for p in models.iterdir()} == {"base", ".base.lock"}


def test_a_damaged_model_without_a_source_is_refused_with_file_hashes_and_fix(models: Path, checkpoint: Path) -> None:
    path = ensure_model("base")
    wanted = Manifest.read(path).files["int8/weights.bin"].sha256
    flip(path / "int8/weights.bin")
    found = hashlib.sha256((path / "int8/weights.bin").read_bytes()).hexdigest()
    (checkpoint / "model.bin").unlink()
    with pytest.raises(ModelError) as caught:
        ensure_model("base")
    for part in (str(models), "int8/weights.bin", wanted[:12], found[:12], "--from DIR", ".[weights]"):
        assert part in str(caught.value)
    assert path.is_dir()


def test_a_second_precision_keeps_the_first(models: Path) -> None:
    path = ensure_model("base")
    before = snapshot(path / "int8")
    ensure_model("base", precisions=("float32",))
    assert snapshot(path / "int8") == before
    assert Manifest.read(path).precisions == ("int8", "float32")
    assert verify(path) == []
    assert models / "base" == path


def test_a_rebuild_keeps_every_precision(models: Path) -> None:
    path = ensure_model("base", precisions=("int8", "float32"))
    flip(path / "int8/weights.bin")
    assert ensure_model("base") == models / "base"
    assert Manifest.read(path).precisions == ("int8", "float32")


def test_damage_in_a_precision_that_is_not_asked_for_is_left_for_later(models: Path) -> None:
    path = ensure_model("base", precisions=("int8", "float32"))
    flip(path / "float32/weights.bin")
    before = snapshot(models)
    ensure_model("base")
    assert snapshot(models) == before
    ensure_model("base", precisions=("float32",))
    assert verify(path) == []


def test_another_builder_builds_again(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ensure_model("base")
    before = snapshot(models / "base")
    monkeypatch.setattr(places, "BUILDER_VERSION", BUILDER_VERSION + 1)
    monkeypatch.setattr("susurrus.models.provisioning.manifest.BUILDER_VERSION", BUILDER_VERSION + 1)
    told: list[str] = []
    ensure_model("base", progress=remarks(told))
    assert "another builder" in told[0]
    assert snapshot(models / "base") != before
    ensure_model("base", progress=idle)


def test_a_known_name_stands_for_the_pinned_weights_only(models: Path, checkpoint: Path) -> None:
    ensure_model("mine", source=checkpoint)
    (models / "mine").rename(models / "base")
    assert ensure_model("base", progress=idle) == models / "base"  # the very same weights
    manifest = json.loads((models / "base/manifest.json").read_text())
    manifest["source"]["model.bin"] = "00"
    (models / "base/manifest.json").write_text(json.dumps(manifest))
    told: list[str] = []
    ensure_model("base", progress=remarks(told))
    assert "other weights than base's" in told[0]


def test_weights_of_your_own_are_taken_with_a_remark_and_built_again_when_they_change(
    models: Path, checkpoint: Path
) -> None:
    told: list[str] = []
    path = ensure_model("mine", source=checkpoint, progress=remarks(told))
    assert told == [f"no hashes are known for mine: the folder {checkpoint} is taken as it is"]
    before = snapshot(path)
    ensure_model("mine", source=checkpoint)
    assert snapshot(path) == before
    flip(checkpoint / "model.bin")
    ensure_model("mine", source=checkpoint)
    assert (
        Manifest.read(path).source["model.bin"] == hashlib.sha256((checkpoint / "model.bin").read_bytes()).hexdigest()
    )
    assert ensure_model("mine") == models / "mine"


def test_a_folder_that_is_no_model_is_not_touched(models: Path) -> None:
    (models / "base").mkdir(parents=True)
    (models / "base" / "thesis.txt").write_text("years of work")
    with pytest.raises(ModelError, match="something else than a model"):
        ensure_model("base")
    assert (models / "base" / "thesis.txt").read_text() == "years of work"
    assert {p.name for p in models.iterdir()} == {"base", ".base.lock"}


def test_a_link_to_another_disk_stays_a_link(models: Path, tmp_path: Path) -> None:
    models.mkdir()
    (tmp_path / "big").mkdir()
    (models / "base").symlink_to(tmp_path / "big" / "base")
    ensure_model("base")
    assert (models / "base").is_symlink()
    assert verify(tmp_path / "big" / "base") == []
    flip(models / "base" / "model.json")
    ensure_model("base")
    assert (models / "base").is_symlink()


def test_a_full_disk_leaves_nothing_half_built(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def build(weights: Weights, directory: Path, *_rest: Any) -> None:
        directory.mkdir()
        (directory / "model.json").write_text("{}")
        assert weights.files
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(install, "build", build)
    with pytest.raises(ModelError, match=r"No space left on device.*SUSURRUS_MODELS"):
        ensure_model("base")
    assert [p.name for p in models.iterdir()] == [".base.lock"]


class Killer:
    """Ends the process at its n-th change below a folder, as SIGKILL would: no handler, no finally."""

    def __init__(self, folder: Path, count: int) -> None:
        self.folder, self.count = str(folder), count

    def __call__(self, event: str, args: tuple[Any, ...]) -> None:
        """Hear of one event of the interpreter."""
        changes = event in {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir"}
        if changes and str(args[0]).startswith(self.folder):
            self.count -= 1
            if self.count < 0:
                os.kill(os.getpid(), 9)


def kill_at(count: int, models: Path, precisions: Sequence[str]) -> bool:
    """Provision in a child that is killed at its n-th change of a file; return whether it came that far."""
    child = os.fork()
    if child == 0:
        sys.addaudithook(Killer(models, count))
        try:
            ensure_model("base", precisions=precisions)
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -9


@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills a forked child at every step")
@pytest.mark.parametrize("before", ["nothing", "damaged", "int8"])
def test_killed_at_any_step_the_model_is_whole_or_absent_and_the_next_run_completes_it(
    models: Path, before: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda _file: None)  # a killed process loses nothing that it has written
    models.mkdir()
    precisions = ("int8", "float32") if before == "int8" else ("int8",)
    for count in range(1000):
        if before != "nothing":
            ensure_model("base")
        if before == "damaged":
            truncate(models / "base/int8/weights.bin")
        reached = kill_at(count, models, precisions)
        kind = examine(models / "base", "base", precisions).kind
        if before == "int8":
            assert examine(models / "base", "base", ("int8",)).kind is Kind.READY
        else:
            assert kind in {Kind.READY, Kind.ABSENT if before == "nothing" else Kind.DAMAGED, Kind.ABSENT}
        told: list[str] = []
        ensure_model("base", precisions=precisions, progress=remarks(told))
        assert examine(models / "base", "base").kind is Kind.READY
        if kind is not Kind.READY:  # else a leftover waits for the next run that has something to do
            assert {p.name for p in models.iterdir()} == {"base", ".base.lock"}
        if not reached:
            assert count > 20
            return
        for path in sorted(models.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
    pytest.fail("the child never finished")


SLOW_BUILD = """
import sys
from pathlib import Path
from susurrus.models import provision
from susurrus.models.provisioning import install
def build(weights, directory, name, precisions, progress):
    with open(marker, "a") as file:
        file.write("built\\n")
    sys.stdout.write("building\\n")
    sys.stdout.flush()
    sys.stdin.read()
    (directory / "int8").mkdir(parents=True)
    (directory / "int8" / "encoder.onnx").write_text("graph")
install.build = build
marker = sys.argv.pop(1)
sys.exit(provision.main(sys.argv[1:]))
"""


def start(tmp_path: Path, checkpoint: Path) -> subprocess.Popen[str]:
    arguments = ["mine", "--from", str(checkpoint), "--model-dir", str(tmp_path / "models")]
    return subprocess.Popen(
        [sys.executable, "-c", SLOW_BUILD, str(tmp_path / "marker"), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for_line(stream: Any, text: str) -> None:
    for line in stream:
        if text in line:
            return
    pytest.fail(f"no line with {text!r}")


def test_of_two_processes_at_once_one_builds_and_the_other_says_that_it_waits(tmp_path: Path, checkpoint: Path) -> None:
    with start(tmp_path, checkpoint) as first:
        wait_for_line(first.stdout, "building")
        with start(tmp_path, checkpoint) as second:
            wait_for_line(second.stderr, "waiting for another process")
            results = [first.communicate(), second.communicate()]
    assert (first.returncode, second.returncode) == (0, 0)
    assert (tmp_path / "marker").read_text() == "built\n"
    assert all(output.endswith("models/mine\n") for output, _ in results)


def test_the_one_that_waits_takes_over_from_one_that_is_killed(tmp_path: Path, checkpoint: Path) -> None:
    with start(tmp_path, checkpoint) as first:
        wait_for_line(first.stdout, "building")
        with start(tmp_path, checkpoint) as second:
            wait_for_line(second.stderr, "waiting for another process")
            first.kill()
            second.communicate()
    assert second.returncode == 0
    assert (tmp_path / "marker").read_text() == "built\n" * 2
    assert {p.name for p in (tmp_path / "models").iterdir()} == {"mine", ".mine.lock"}


def test_option_goes_before_variable_goes_before_the_users_data_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUSURRUS_MODELS", str(tmp_path / "variable"))
    assert models_directory(tmp_path / "option") == tmp_path / "option"
    assert models_directory() == tmp_path / "variable"
    monkeypatch.delenv("SUSURRUS_MODELS")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert models_directory().parts[-2:] == ("susurrus", "models")


def homeless(_uid: int) -> Any:
    raise KeyError("no passwd entry")


@pytest.mark.skipif(sys.platform != "linux", reason="homes are found in other ways elsewhere")
def test_a_user_without_any_home_is_told_the_variable_to_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("HOME", "XDG_DATA_HOME", "SUSURRUS_MODELS"):
        monkeypatch.delenv(variable, raising=False)
    assert models_directory().is_absolute()  # from the passwd entry
    monkeypatch.setattr("pwd.getpwuid", homeless)
    with pytest.raises(ModelError, match="set SUSURRUS_MODELS"):
        ensure_model("base")
    monkeypatch.setenv("SUSURRUS_MODELS", str(tmp_path))
    assert models_directory() == tmp_path


@pytest.mark.usefixtures("models")
def test_a_home_that_cannot_be_written_is_named_with_the_variable_to_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("SUSURRUS_MODELS", str(tmp_path / "file" / "models"))
    with pytest.raises(ModelError, match=r"file.*cannot be written \(Not a directory\).*SUSURRUS_MODELS"):
        ensure_model("base")


@pytest.mark.usefixtures("models")
def test_an_unknown_name_is_refused_with_the_names_and_the_nearest_one() -> None:
    with pytest.raises(ModelError, match=r"'tiny'.*did you mean tiny\.en\?.*base, tiny\.en"):
        resolve_model("tiny")
    with pytest.raises(ModelError, match=r"'whisper-large'.*there are base, tiny\.en"):
        ensure_model("whisper-large")


@pytest.mark.parametrize("name", ["", ".", "..", "../up", "a/b", "-x", ".hidden", "a\nb", "x" * 200])
def test_a_name_that_is_no_plain_folder_name_is_refused(models: Path, checkpoint: Path, name: str) -> None:
    with pytest.raises(OptionError, match="cannot name a model"):
        ensure_model(name, source=checkpoint)
    assert not models.exists()


def test_an_unknown_precision_is_refused(models: Path) -> None:
    with pytest.raises(OptionError, match="int4"):
        ensure_model("base", precisions=("int4",))
    assert not models.exists()


def test_a_path_means_the_model_in_that_folder(models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "-я \n" / "mine"
    place.parent.mkdir()
    ensure_model("base").rename(place)
    assert ensure_model(place) == place
    assert ensure_model(str(place)) == place
    monkeypatch.chdir(place.parent)
    assert ensure_model("mine") == Path("mine")
    assert models.is_dir()


def test_a_known_name_is_not_a_folder_of_that_name_in_the_working_directory(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "base").mkdir()
    assert resolve_model("base") == models / "base"


@DAMAGE
def test_a_damaged_model_given_by_its_path_is_refused_and_not_changed(
    models: Path, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    place = ensure_model("base").rename(tmp_path / "mine")
    damage(place / "int8/weights.bin")
    before = snapshot(place)
    with pytest.raises(ModelError, match=r"int8/weights\.bin.*susurrus\.models\.provision base"):
        ensure_model(place)
    assert snapshot(place) == before
    assert models.is_dir()


def test_a_checkpoint_given_as_a_model_is_refused_with_the_command_that_makes_a_model_of_it(
    checkpoint: Path,
) -> None:
    with pytest.raises(ModelError, match=r"is a checkpoint: python -m susurrus\.models\.provision NAME --from"):
        ensure_model(checkpoint)
    with pytest.raises(ModelError, match="does not exist"):
        ensure_model(checkpoint / "absent")


def test_the_command_line_prints_the_folder_and_nothing_else(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert main(["base", "tiny.en"]) == 0
    output = capsys.readouterr()
    assert output.out.splitlines() == [str(models / name) for name in ("base", "base", "tiny.en")]
    assert main([]) == 0
    assert capsys.readouterr().err == ""


def test_verify_reports_damage_and_changes_nothing(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["base", "tiny.en"])
    assert main(["--verify"]) == 0
    flip(models / "base/int8/weights.bin")
    before = snapshot(models)
    capsys.readouterr()
    assert main(["--verify"]) == 3
    assert main(["--verify", "tiny.en"]) == 0
    assert re.search(r"^base\t.*int8/weights\.bin has SHA-256", capsys.readouterr().out)
    assert snapshot(models) == before


def test_list_tells_what_is_there_and_what_could_be(
    models: Path, checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["mine", "--from", str(checkpoint), "--precision", "int8", "--precision", "float32"]) == 0
    capsys.readouterr()
    assert main(["--list"]) == 0
    lines = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert [(name, Path(path)) for name, _, path in lines] == [(n, models / n) for n in ("base", "mine", "tiny.en")]
    assert [state.partition(";")[0] for _, state, _ in lines] == [
        "not provisioned",
        "int8, float32",
        "not provisioned",
    ]


@pytest.mark.usefixtures("models")
@pytest.mark.parametrize(
    ("arguments", "code"),
    [(["absent"], 3), (["a", "b", "--from", "."], 2), (["--from", "."], 2), (["bad/name", "--from", "."], 2)],
)
def test_errors_are_one_line_on_stderr_and_an_exit_code(
    arguments: list[str], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == code
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.count("\n") == 1


def test_an_interrupt_is_one_line_and_code_130(
    models: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_arguments: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(install, "build", interrupted)
    assert main([]) == 130
    assert capsys.readouterr().err.endswith("provision: interrupted\n")
    assert [p.name for p in models.iterdir()] == [".base.lock"]


def test_progress_away_from_a_terminal_is_a_line_a_step() -> None:
    stream = io.StringIO()
    with terminal_progress(stream) as progress:
        for done in range(3):
            progress("building base", done, 2)
        progress("a remark", 0, 0)
    assert stream.getvalue() == "building base\na remark\n"


class Terminal(io.StringIO):
    """A stream that calls itself a terminal."""

    def isatty(self) -> bool:
        """Lie."""
        return True


def test_progress_on_a_terminal_is_a_bar_and_remarks_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    with terminal_progress(stream):
        pass
    assert stream.getvalue() == ""
    with terminal_progress(stream) as progress:
        progress("reading [/b]model.bin", 1, 2)
        progress("a [/b] remark", 0, 0)
        progress("building base", 2, 2)
    assert "a [/b] remark" in stream.getvalue()
    assert "building base" in stream.getvalue()
    assert "100%" in stream.getvalue()
