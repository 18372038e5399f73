"""What leaves the machine, and who is let in: real runs, watched on the wire and by system calls, and offline."""

from __future__ import annotations

import re
import shutil
import socket as sockets
import subprocess
import sys
import tempfile
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import zmq
from zmq.utils import z85

from susurrus.actors import exits
from susurrus.actors.client import Client, PipelineError
from susurrus.protocol import (
    Connection,
    Done,
    Hello,
    HubLine,
    Identity,
    Rejected,
    SnapshotRequest,
    TranscribeOptions,
    keys,
)
from tests.eavesdropper import Eavesdropper
from tests.run.conftest import DEADLINE_S, ROOT, RUN, Cli, Running

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

JFK = ROOT / "samples" / "jfk.wav"
SIX = ROOT / "samples" / "six.wav"
SENTENCE = "ask what you can do for your country"
WAIT_MS = round(DEADLINE_S * 1000)
ENGLISH = TranscribeOptions(language="en", temperatures=(0.0,))

SERVE = """
import argparse, sys
from susurrus.actors.logs import configure_logs
from susurrus.actors.pipeline import Pipeline
from susurrus.protocol.listen import Listener

configure_logs(argparse.Namespace(verbose=1, log_format="console"), "hub")
with Pipeline(sys.argv[1], threads=1, listener=Listener.parse("tcp://127.0.0.1:0")) as pipeline:
    sys.stdin.read()
"""
"""A host that embeds a pipeline and keeps it until its standard input ends."""


class Site:
    """A machine that listens, and clients elsewhere with their own files."""

    def __init__(self, cli: Cli, folder: Path) -> None:
        self.cli = cli
        self.keys = folder / "keys"
        self.folder = folder
        self.security = keys.make_server_key(self.keys)
        cli.environment["SUSURRUS_KEYS"] = str(self.keys)

    def start(self, model: Path) -> Running:
        """A pipeline that listens on two free ports until `end`."""
        run = self.cli.start(model, command=(sys.executable, "-c", SERVE), stdin=subprocess.PIPE)
        for _ in ("frontend", "encoder", "decoder"):
            run.wait_for_log("actor ready")
        (path,) = self.cli.runtime.glob("*/connection.json")
        self.local = Connection.read(path)
        assert self.local.listens.startswith("tcp://127.0.0.1:")
        return run

    def client(self, name: str, *, known: bool = True) -> Path:
        """The connection file of a client elsewhere."""
        path = self.folder / f"{name}.json"
        security = keys.make_client(path, self.local.listens, keys.to_hex(self.security.public))
        if known:
            keys.authorize(self.keys, keys.to_hex(security.public), name)
        return path


@pytest.fixture
def cli(base: Path) -> Iterator[Cli]:
    """A command line with a runtime folder of its own (short: a socket's path has 107 bytes at most)."""
    with tempfile.TemporaryDirectory(prefix="run-") as folder:
        runtime = Path(folder, "0")
        runtime.mkdir(mode=0o700)
        made = Cli(base.parent, runtime)
        yield made
        made.close()
        assert made.leftovers() == []


@pytest.fixture
def site(cli: Cli, tmp_path: Path) -> Site:
    """A machine with a key."""
    return Site(cli, tmp_path)


def end(run: Running) -> str:
    """End a pipeline in order; return its log."""
    done = run.finish()
    assert done.code == 0, done.err
    assert "Traceback" not in done.err
    return done.err


def hears(address: str, send: Callable[[zmq.Socket[Any]], None]) -> bytes:
    """What an eavesdropper hears of frames that are sent without CURVE."""
    with zmq.Context() as context, context.socket(zmq.PULL) as inbox, context.socket(zmq.PUSH) as out:
        out.linger = 0
        inbox.bind(address)
        with Eavesdropper(inbox.getsockopt_string(zmq.LAST_ENDPOINT)) as ear:
            out.connect(ear.endpoint)
            send(out)
            while inbox.poll(WAIT_MS) and inbox.recv_multipart() != [b"end"]:
                pass
            return bytes(ear.heard)


# --- the wire ---------------------------------------------------------------------------------------------------


@pytest.mark.fault(43)
def test_an_eavesdropper_between_client_and_pipeline_learns_neither_text_nor_names_nor_keys(
    site: Site, base: Path, tmp_path: Path
) -> None:
    """The same frames, sent without CURVE through the same proxy, do show what was said."""
    recording = tmp_path / "minutes of the board.wav"
    shutil.copy(JFK, recording)
    run = site.start(base)
    host, port = site.local.listens.rsplit(":", 1)
    with ExitStack() as resources:
        lines = resources.enter_context(Eavesdropper(site.local.listens))
        events = resources.enter_context(Eavesdropper(f"{host}:{int(port) + 1}"))
        file = site.client("laptop")
        remote = replace(Connection.read(file), hub=lines.endpoint, events=events.endpoint)
        remote.write(file)
        context = resources.enter_context(zmq.Context())
        insider = resources.enter_context(context.socket(zmq.SUB))
        insider.subscribe(b"")
        insider.connect(site.local.events)
        assert insider.poll(WAIT_MS)
        console = site.cli.start("--attach", file, "--json")
        with Client(remote) as client:
            done = list(client.follow(client.submit(str(recording), options=ENGLISH)))[-1]
        assert isinstance(done, Done)
        assert SENTENCE in done.text
        assert console.out is not None
        console.out.wait_for(lambda line: SENTENCE in line and '"done"' in line)
        heard = bytes(lines.heard + events.heard)
        err = end(run)
        assert console.finish().code == exits.OK
        frames = []
        while insider.poll(0):
            frames.append(insider.recv_multipart())
    secrets = ["minutes", "board", "country", "SUSU", "laptop", *SENTENCE.split(" can ")]
    assert heard.count(b"CURVE") >= 4, "greetings of both sides of both connections"
    for secret in map(str.encode, secrets):
        assert secret not in heard
    assert remote.transport.client.secret
    for security in (site.security, remote.transport.client):
        for key in filter(None, (security.public, security.secret)):
            for form in (key, z85.decode(key), keys.to_hex(key).encode()):
                assert form not in heard
                assert form.decode("latin-1") not in err

    def send(out: zmq.Socket[Any]) -> None:
        for parts in [*frames, [b"end"]]:
            out.send_multipart(parts)

    plain = hears("tcp://127.0.0.1:*", send)
    for shown in ("minutes of the board", SENTENCE, "SUSU"):
        assert shown.encode() in plain


# --- who is let in ----------------------------------------------------------------------------------------------


@pytest.mark.fault(43)
def test_strangers_are_refused_and_logged_and_the_pipeline_goes_on(site: Site, tiny: Path, tmp_path: Path) -> None:
    run = site.start(tiny)
    unknown = site.cli.start("--attach", site.client("stranger", known=False))
    elsewhere = replace(Connection.read(site.client("lost")).transport, security=keys.make_server_key(tmp_path / "k2"))
    misled = tmp_path / "misled.json"
    replace(Connection.read(tmp_path / "lost.json"), transport=elsewhere).write(misled)
    wrong = site.cli.start("--attach", misled)
    with zmq.Context() as context, context.socket(zmq.DEALER) as keyless:
        keyless.linger = 0
        keyless.connect(site.local.listens)
        keyless.send(b"let me in")
        for reason in ("it has no key", "it does not know the server's key", "its key is not authorized"):
            assert run.err is not None
            if reason not in run.err.text:
                run.wait_for_log(reason)
    for refused, why in ((unknown, "does not know this client's key"), (wrong, "its key is not the one")):
        done = refused.finish()
        assert (done.code, done.out) == (exits.PIPELINE, "")
        assert why in done.err
        assert done.err.count("\n") == 1
    with Client(Connection.read(site.client("laptop"))) as client:
        assert isinstance(list(client.follow(client.submit(str(SIX), options=ENGLISH)))[-1], Done)
    refusals = [line for line in end(run).splitlines() if "connection refused" in line]
    for line in refusals:
        assert re.search(r"count=\d+", line)
        assert re.search(r"address=(127\.0\.0\.1|'gone already')", line)
    assert len(refusals) < 40, "counted, not repeated"


@pytest.mark.fault(43)
def test_a_client_elsewhere_is_a_client_and_nothing_else(site: Site, tiny: Path, tmp_path: Path) -> None:
    """It cannot take an actor's place, have the pipeline's standard input read, or have a file written."""
    run = site.start(tiny)
    connection = Connection.read(site.client("laptop"))
    with (
        zmq.Context() as context,
        HubLine(context, connection.transport, Identity.new("decoder"), connection.hub) as line,
    ):
        line.send(Hello(name="decoder", package="0", pid=1))
        line.send(SnapshotRequest())
        answer = line.receive(DEADLINE_S)
        assert answer is not None
        assert not isinstance(answer.message, Rejected), "a decoder of this machine is told that there is one"
    written = tmp_path / "written"
    for source, journal in (("-", ""), (str(SIX), str(written))):
        with Client(connection) as client, pytest.raises(PipelineError) as caught:
            list(client.follow(client.submit(source, journal=journal)))
        assert caught.value.code == "not_allowed"
    assert not written.exists()
    with Client(connection) as client:
        done = list(client.follow(client.submit(str(SIX), options=ENGLISH)))[-1]
    assert isinstance(done, Done)
    end(run)


@pytest.mark.fault(43)
@pytest.mark.usefixtures("site")
def test_without_a_key_or_a_free_port_it_does_not_start(cli: Cli, tmp_path: Path) -> None:
    with sockets.create_server(("127.0.0.1", 0)) as taken:
        address = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        attempts = [cli.start("--listen", address, SIX)]
        attempts.append(cli.start("--listen", "tcp://127.0.0.1:0", SIX, env={"SUSURRUS_KEYS": str(tmp_path / "none")}))
        attempts.append(cli.start("--listen", "127.0.0.1", SIX))
        ended = [attempt.finish() for attempt in attempts]
    for done, why in zip(ended, ("in use", "susurrus.protocol.keys server", "tcp://HOST:PORT"), strict=True):
        assert (done.code, done.out) == (exits.PIPELINE, "")
        assert why in done.err
        assert done.err.count("\n") == 1


# --- no network at run time -------------------------------------------------------------------------------------


def works(*command: str) -> bool:
    """Whether a command is here and allowed."""
    with suppress(OSError):
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    return False


@pytest.mark.fault(43)
@pytest.mark.skipif(not works("unshare", "-rn", "true"), reason="no network namespaces here")
def test_a_run_without_any_network_gives_the_same_text(cli: Cli) -> None:
    offline = ("unshare", "-rn", sys.executable, str(RUN))
    ask = "import socket; socket.create_connection(('127.0.0.1', 9))"
    alone = subprocess.run(["unshare", "-rn", sys.executable, "-c", ask], capture_output=True, text=True, check=False)
    assert "Network is unreachable" in alone.stderr, "not even the loopback"
    here, there = cli(SIX, "--language", "en"), cli(SIX, "--language", "en", command=offline)
    assert here.code == there.code == exits.OK
    assert here.out == there.out != ""


STRACE = ("strace", "-f", "-qq", "-e", "trace=socket,connect,bind")
INTERNET = re.compile(r"AF_INET6?\b|sa_family=AF_INET")


@pytest.mark.fault(43)
@pytest.mark.skipif(not works(*STRACE, "-o", "/dev/null", "true"), reason="no strace here, or not allowed")
def test_no_process_of_a_run_ever_opens_an_internet_socket(cli: Cli, tmp_path: Path) -> None:
    """A playlist is among the inputs: what it names is an address that FFmpeg would fetch if it were let."""
    control, trace, playlist = tmp_path / "control", tmp_path / "trace", tmp_path / "list.m3u8"
    playlist.write_text("#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\nhttp://127.0.0.1:9/a.ts\n#EXT-X-ENDLIST\n")
    open_one = "import socket; socket.socket().close()"
    subprocess.run([*STRACE, "-o", str(control), sys.executable, "-c", open_one], check=True)
    assert INTERNET.search(control.read_text()), "the trace would show it"
    traced = (*STRACE, "-o", str(trace), sys.executable, str(RUN))
    done = cli(SIX, playlist, "--language", "en", command=traced)
    assert done.code == exits.INPUT, "the playlist is no audio"
    assert done.out.strip(), "the other one is"
    calls = trace.read_text().splitlines()
    assert [line for line in calls if INTERNET.search(line)] == []
    processes = {line.split()[0] for line in calls if "AF_UNIX" in line}
    assert len(processes) >= 5, "hub, frontend, encoder, decoder and console were all watched"
