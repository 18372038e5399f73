"""The console is killed and stopped, and text is strange: what is shown is complete, in order, and harmless."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
import soundfile

from susurrus.actors import Pipeline, exits
from susurrus.actors.audience import MAX_BEHIND
from susurrus.actors.ledger import MAX_FINISHED
from susurrus.actors.supervisor import Command
from susurrus.models import Whisper
from susurrus.models.provisioning.manifest import describe, write_manifest
from susurrus.protocol import Connection, Partial, Segment, Submit
from tests.actors.fakes import (
    PATIENCE_S,
    PLAIN,
    RATE,
    House,
    audio_end,
    partial,
    segment,
    settle,
    sounds,
    started,
    submit,
    window,
    write_tiny_model,
)
from tests.conftest import ROOT
from tests.faults.conftest import SECONDS, TinyCli, text_of, transcribe
from tests.faults.scripted import Fault, interpreter
from tests.faults.viewer import Viewer
from tests.run.conftest import Finished

MIB = 1024 * 1024


IN_STEP = (
    Fault("console", "shown", deed="count", nth=0),
    *(Fault("decoder", "begin", deed="follow", window=window, until=window) for window in (1, 2, 3)),
)
"""The decoder waits for the first texts to be shown: a console that is slow would show several of them at once."""


def run_with(fault: Fault, cli: TinyCli, clip: Path, folder: Path) -> Finished:
    """The command line on a pipe, with something planted in its console; the fault must have come about."""
    command = (sys.executable, "-m", "tests.faults.host", interpreter(folder / "faults", [*IN_STEP, fault]))
    done = cli(*cli.plain, clip, command=command)
    assert (folder / "faults" / "console-1-0").exists()
    return done


@pytest.mark.parametrize(
    "at",
    [
        pytest.param(("import", 1), marks=pytest.mark.fault(10)),
        pytest.param(("load", 1), marks=pytest.mark.fault(10)),
        pytest.param(("shown", 1), marks=pytest.mark.fault(11)),
        pytest.param(("shown", 4), marks=pytest.mark.fault(11)),
    ],
    ids=str,
)
def test_of_a_console_that_is_killed_the_next_one_goes_on_behind_what_was_shown(
    cli: TinyCli, clip: Path, undisturbed: str, tmp_path: Path, at: tuple[str, int]
) -> None:
    done = run_with(Fault("console", at[0], nth=at[1]), cli, clip, tmp_path)
    assert (done.code, done.out) == (exits.OK, undisturbed + "\n")
    warning, *more = done.err.splitlines()
    assert "actor=console" in warning
    assert more == []


@pytest.mark.fault(12)
def test_a_console_that_is_killed_between_showing_and_noting_loses_nothing(
    cli: TinyCli, tiny: Path, clip: Path, tmp_path: Path
) -> None:
    """Nobody can tell whether a piece written to a pipe just before a kill was written: that one comes twice."""
    done = run_with(Fault("console", "result", nth=3), cli, clip, tmp_path)
    pieces = [segment.text for segment in Whisper.load(tiny).transcribe(clip, **PLAIN).segments]
    assert done.code == 0
    assert done.out in {
        "".join([*pieces[:shown], *pieces[again:]]).removeprefix(" ") + "\n"
        for shown in range(3, len(pieces) + 1)
        for again in range(2, shown)
    }, "all there, in order, and what was written last perhaps twice"


@pytest.mark.fault(19)
def test_a_stopped_console_disturbs_nobody_and_catches_up(
    tiny: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """More events than its queue holds: what it lost is in a snapshot, for which the pipeline waits in the end."""
    jobs, clip = MAX_BEHIND - 1, tmp_path / "long.wav"
    soundfile.write(clip, sounds(2 * SECONDS), RATE, subtype="FLOAT")
    undisturbed = Whisper.load(tiny).transcribe(clip, **PLAIN).text
    with Pipeline(tiny, console=Command("console", ("--quiet",), owns_terminal=True), threads=1) as pipeline:
        transcribe(pipeline, clip)
        console = psutil.Process(pipeline.pids()["console"])
        console.suspend()
        n_events = 0
        for job in range(jobs):
            events = transcribe(pipeline, clip)
            assert text_of(events) == undisturbed
            n_events += len(events)
            if job == jobs // 2:
                before = psutil.Process().memory_info().rss
        grown = psutil.Process().memory_info().rss - before
        console.resume()
    assert n_events > 1500
    assert grown < 8 * MIB
    assert capfd.readouterr().out == f"{undisturbed}\n" * (jobs + 1)


@pytest.mark.fault(19)
def test_a_console_that_is_stopped_for_more_jobs_than_are_remembered_misses_none(
    cli: TinyCli, clip: Path, undisturbed: str, tmp_path: Path
) -> None:
    """As with a pager on page one: jobs begin no longer, until it reads on."""
    n_files = MAX_FINISHED + 8
    for number in range(n_files):
        shutil.copy(clip, tmp_path / f"{number:02}.wav")
    run = cli.start(*cli.plain, tmp_path, "-", stdin=subprocess.PIPE)  # it does not end before its standard input
    assert run.out is not None
    run.out.wait_for_text()
    console = run.actors()["console"]
    console.suspend()
    (path,) = cli.runtime.glob("*/connection.json")
    with Viewer(Connection.read(path)) as viewer:
        viewer.wait(lambda: viewer.is_live)
        viewer.wait(lambda: sum(job.end is not None for job in viewer.view.jobs.values()) > MAX_BEHIND)
        console.resume()
    run.feed(clip.read_bytes())
    assert run.finish() == (exits.OK, f"{undisturbed}\n" * (n_files + 1), "")


STRANGE = {
    "emoji": (" family \N{WOMAN}\u200d\N{GIRL} \N{THUMBS UP SIGN}\N{EMOJI MODIFIER FITZPATRICK TYPE-6}", None),
    "right to left": (" שלום \u200f\N{ARABIC LETTER SHEEN}\N{ARABIC LETTER MEEM}", None),
    "combining": (" e\u0301 n\u0303 क्षि", None),
    "escape": (" \x1b[31mred\x1b]0;title\x07", " ␛[31mred␛]0;title␇"),
    "one-character escape": (" \x9b2J", " \N{REPLACEMENT CHARACTER}2J"),
    "overrides": (" \u202eevil\u2066", " evil"),
    "line breaks": (" one\ntwo\u2028three\ttab", " one two three tab"),
    "null": (" a\0b", " a␀b"),
}


@pytest.mark.fault(30)
@pytest.mark.parametrize("kind", STRANGE)
def test_strange_text_reaches_a_pipe_whole_and_harmless(house: House, kind: str) -> None:
    """A real console process, fed by a hub and actors that say exactly this."""
    text, shown = STRANGE[kind]
    house.start_line()
    path = house.connection.write()
    command = [sys.executable, "-m", "susurrus.actors.console", "--connection", str(path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as console:
        try:
            say(house, text)
            assert console.stdout is not None
            line = console.stdout.readline()
            house.hub.stop()
            rest, err = console.communicate(timeout=PATIENCE_S)
        finally:
            console.kill()
    assert (console.returncode, rest, err) == (0, b"", b"")
    assert line.decode() == ((shown or text) * 2).removeprefix(" ") + "\n"


def say(house: House, text: str) -> None:
    """A job of two windows with this text in each, told in parts that end anywhere."""
    client, frontend, decoder = house.actor("client"), house.actors["frontend"], house.actors["decoder"]
    order = submit()
    client.say(order)
    frontend.hear(Submit)
    frontend.say(started(order.job), window(order.job, 0), window(order.job, 1))
    settle(frontend)
    for index in range(2):
        decoder.say(*(partial(order.job, index, text[:cut]) for cut in range(len(text))))
        decoder.say(segment(order.job, index, text))
    settle(decoder)
    frontend.say(audio_end(order.job, 2))
    settle(frontend)


@pytest.fixture(scope="module")
def halves(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose words are halves of emoji, Arabic and Japanese characters, in whatever order."""
    directory = write_tiny_model(tmp_path_factory.mktemp("halves"))
    path = directory / "vocabulary.txt"
    lines = path.read_text(encoding="utf-8").split("\n")
    spelled = bytes_to_characters()
    pieces = [character.encode()[part] for character in "😀ش語é" for part in (slice(0, 1), slice(1, None))]
    for index, line in enumerate(lines):
        if line.startswith("Ġw"):
            lines[index] = "".join(spelled[byte] for byte in pieces[index % len(pieces)])
    path.write_text("\n".join(lines), encoding="utf-8")
    write_manifest(directory, describe(directory, "tiny", {}))
    return directory


def bytes_to_characters() -> dict[int, str]:
    """How GPT-2's vocabularies spell a byte: `bytes_to_unicode` of its encoder.py."""
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {byte: chr(256 + index) for index, byte in enumerate(others)}


@pytest.mark.fault(30)
def test_halves_of_characters_never_show_before_they_are_whole(halves: Path) -> None:
    wanted = Whisper.load(halves, threads=1).transcribe(sounds(4.0), **PLAIN)
    with Pipeline(halves, threads=1) as pipeline:
        events = list(pipeline.transcribe(sounds(4.0), **PLAIN))
    assert text_of(events) == wanted.text != ""
    stable = ""
    for event in events:
        if isinstance(event, Partial | Segment):
            assert event.text.encode().decode() == event.text
            assert event.text.startswith(stable)
            stable = event.text[: event.stable] if isinstance(event, Partial) else ""
    assert os.linesep not in wanted.text
