"""Every kind of input that people give to run.py: formats, streams, silence, fragments, damage, names."""

from __future__ import annotations

import os
import pty
import re
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import soundfile
import soxr

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tests.run.conftest import Cli, Finished

RATE = 16000


def words(text: str) -> list[str]:
    return re.findall(r"[a-z']+", text.lower())


def wavs(*paths: str | Path) -> list[str]:
    return [word for path in paths for word in ("--wav", str(path))]


def write(path: Path, samples: NDArray[np.int16]) -> Path:
    soundfile.write(path, samples, RATE, subtype="PCM_16")
    return path


# --- formats ---------------------------------------------------------------------------------------------------

FORMATS = {  # name: (WAV flavour, sample format, Hz, channels)
    "u8": ("WAV", "PCM_U8", 16000, 1),
    "s16-stereo-44100": ("WAV", "PCM_16", 44100, 2),
    "s24-11025": ("WAV", "PCM_24", 11025, 1),
    "s32-6ch-48000": ("WAV", "PCM_32", 48000, 6),
    "f32-8ch-96000": ("WAV", "FLOAT", 96000, 8),
    "extensible-s24-192000": ("WAVEX", "PCM_24", 192000, 2),
    "s16-8000": ("WAV", "PCM_16", 8000, 1),
}


@pytest.fixture(scope="module")
def said(make_cli: Callable[[], Cli], austen: Path, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """The same three seconds as they are and in every format, in one run."""
    folder = tmp_path_factory.mktemp("formats")
    clip, _ = soundfile.read(austen, dtype="float32")
    for name, (flavour, subtype, rate, channels) in FORMATS.items():
        samples = soxr.resample(clip, RATE, rate).clip(-1, 1)
        soundfile.write(folder / name, np.tile(samples[:, None], channels), rate, format=flavour, subtype=subtype)
    return make_cli()("--json", *wavs(austen, *(folder / name for name in FORMATS)))


@pytest.mark.parametrize("name", FORMATS)
def test_the_same_words_in_any_sample_format_rate_and_number_of_channels(
    said: Finished, name: str, texts: dict[str, str]
) -> None:
    done = next(event for path, event in said.dones.items() if path.endswith(f"/{name}"))
    assert words(done["text"]) == words(texts["austen.wav"])
    assert done["duration"] == pytest.approx(2.99, abs=0.01)
    assert done["complete"]


# --- silence and fragments -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def quiet(make_cli: Callable[[], Cli], tmp_path_factory: pytest.TempPathFactory, six: Path) -> Finished:
    """Silence of many lengths, clips of less than a second, and one word, in one run."""
    folder = tmp_path_factory.mktemp("quiet")
    dice = np.random.default_rng(7)
    paths = []
    for seconds in (1.2, 5, 30, 65):
        n = int(seconds * RATE)
        paths += [
            write(folder / f"zeros {seconds}.wav", np.zeros(n, np.int16)),
            write(folder / f"dither {seconds}.wav", dice.integers(-1, 2, n, dtype=np.int16)),
        ]
    for n in (0, 1, 399, 1600):
        paths.append(write(folder / f"noise {n}.wav", dice.integers(-3000, 3000, n, dtype=np.int16)))
    word, _ = soundfile.read(six, dtype="int16")
    paths.append(write(folder / "word.wav", word[3200:8000]))
    return make_cli()("--json", *wavs(*paths))


@pytest.mark.parametrize("seconds", [1.2, 5, 30, 65])
@pytest.mark.parametrize("kind", ["zeros", "dither"])
def test_digital_silence_has_no_text_and_its_own_duration(quiet: Finished, kind: str, seconds: float) -> None:
    done = next(event for path, event in quiet.dones.items() if path.endswith(f"/{kind} {seconds}.wav"))
    assert (done["text"], done["language"], done["duration"]) == ("", "", pytest.approx(seconds, abs=1e-3))


def test_silence_and_fragments_are_no_failure(quiet: Finished) -> None:
    assert quiet.code == 0
    assert quiet.err == ""


@pytest.mark.parametrize("n", [1, 399])
def test_a_clip_that_is_too_short_to_hold_speech_says_so(quiet: Finished, n: int) -> None:
    done = next(event for path, event in quiet.dones.items() if path.endswith(f"/noise {n}.wav"))
    assert done["text"] == ""
    assert "too short" in done["warnings"][0]


def test_a_fraction_of_a_second_is_decoded(quiet: Finished) -> None:
    done = next(event for path, event in quiet.dones.items() if path.endswith("/word.wav"))
    assert done["warnings"] == []
    assert done["language"]


def test_a_moment_of_noise_is_not(quiet: Finished) -> None:
    done = next(event for path, event in quiet.dones.items() if path.endswith("/noise 1600.wav"))
    assert (done["text"], done["language"], done["warnings"]) == ("", "", [])


def test_a_word_of_less_than_a_second_is_heard(cli: Cli, six: Path) -> None:
    done = cli(*wavs(six), "--language", "en")
    assert set(words(done.out)) & {"six"} or "6" in done.out


# --- damage ------------------------------------------------------------------------------------------------------


def test_of_a_truncated_file_the_good_part_is_transcribed(cli: Cli, jfk: Path, tmp_path: Path) -> None:
    data = jfk.read_bytes()
    cut = tmp_path / "cut.wav"
    cut.write_bytes(data[: len(data) * 6 // 10])
    done = cli(*wavs(cut))
    assert done.code == 5
    assert words(done.out)[:6] == ["and", "so", "my", "fellow", "americans", "ask"]
    (warning,) = done.err.splitlines()
    assert warning.startswith(f"warning: {cut}: at 6.6")


def test_what_cannot_be_read_is_a_line_each_and_the_rest_goes_on(
    cli: Cli, austen: Path, tmp_path: Path, texts: dict[str, str]
) -> None:
    names = ("folder", "a.jpg.wav", "empty.wav", "fifo", "0 Hz.wav", "missing.wav")
    folder, jpeg, empty, fifo, rateless, missing = refused = [tmp_path / name for name in names]
    folder.mkdir()
    jpeg.write_bytes(b"\xff\xd8\xff\xe0" + b"\x10JFIF" * 100)
    empty.touch()
    os.mkfifo(fifo)
    header = struct.pack("<4sI4s4sIHHIIHH4sI", b"RIFF", 36, b"WAVE", b"fmt ", 16, 1, 1, 0, 0, 2, 16, b"data", 100)
    rateless.write_bytes(header + bytes(100))
    assert not missing.exists()
    done = cli(*wavs(*refused, austen))
    assert [line.split(": ")[:2] for line in done.err.splitlines()] == [["error", str(path)] for path in refused]
    assert words(done.out) == words(texts["austen.wav"])
    assert done.code == 2


# --- standard input --------------------------------------------------------------------------------------------------


def test_text_grows_while_standard_input_is_still_open(
    cli: Cli, halves: tuple[bytes, bytes], texts: dict[str, str]
) -> None:
    run = cli.start("--json", "--wav", "-", stdin=subprocess.PIPE)
    run.feed(halves[0])
    run.wait_for_event("partial")
    run.wait_for_event("segment")  # and the first window is whole though nobody knows how long the stream is
    run.feed(halves[1])
    done = run.finish()
    (end,) = done.of_type("done")
    assert end["duration"] == pytest.approx(66.0, abs=0.01)
    assert words(end["text"]) == 6 * words(texts["jfk.wav"])
    assert (done.code, done.err) == (0, "")


def test_an_empty_standard_input_is_refused_in_one_line(cli: Cli) -> None:
    done = cli("--wav", "-")
    assert (done.code, done.out) == (2, "")
    (complaint,) = done.err.splitlines()
    assert "0 bytes" in complaint


def test_a_terminal_as_standard_input_is_refused_at_once(cli: Cli) -> None:
    ours, theirs = pty.openpty()
    try:
        done = cli("--wav", "-", stdin=theirs)
    finally:
        os.close(ours)
        os.close(theirs)
    assert (done.code, done.out) == (2, "")
    assert "standard input is a terminal" in done.err
    assert done.err.count("\n") == 1


# --- names -----------------------------------------------------------------------------------------------------------


def test_files_with_awkward_names_are_opened_and_named_as_they_are(
    cli: Cli, base: Path, tmp_path: Path, six: Path
) -> None:
    names = ["にっぽん é e\u0301.wav", "two\nlines.wav", "-dash %s {0} [b].wav", "x" * 246 + ".wav"]
    for name in names:
        (tmp_path / name).write_bytes(six.read_bytes())
    model = tmp_path / "модель"
    model.symlink_to(base)
    inputs = [f"--wav={name}" for name in names]
    done = cli("--json", "--model", model, *inputs, cwd=tmp_path)
    assert done.err == ""
    assert list(done.dones) == names
    assert len({event["text"] for event in done.dones.values()}) == 1


def test_an_error_about_an_awkward_name_is_still_one_line(cli: Cli, tmp_path: Path) -> None:
    done = cli("--wav", tmp_path / "two\nlines\x1b[31m.wav")
    assert done.code == 2
    assert done.err.count("\n") == 1
    assert "\x1b" not in done.err
