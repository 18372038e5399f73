"""WAV headers that lie and compressed audio that is damaged end in samples or in one sentence, in bounded memory."""

from __future__ import annotations

import io
import random
import struct
import tracemalloc
from typing import TYPE_CHECKING, Any

import av
import numpy as np
import pytest
import soundfile

from susurrus.models.audio import AudioReader
from susurrus.models.audio.sources import open_stream
from susurrus.models.audio.wav import open_wav
from susurrus.models.errors import AudioError
from tests.fuzz import formats, wav
from tests.fuzz.mutations import edge

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PARTS = 4


@pytest.fixture(autouse=True)
def quiet(capfd: pytest.CaptureFixture[str]) -> Iterator[None]:
    """No library writes to the terminal."""
    yield
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("part", range(PARTS))
def test_a_wav_that_lies_ends_in_samples_or_in_one_sentence(part: int) -> None:
    dice = random.Random(part)  # noqa: S311  seeded on purpose
    outcomes = {wav.check(wav.generate(dice)) for _ in range(300)}
    assert outcomes == {"samples", "damaged", "refused"}


def test_any_number_at_any_place_of_a_header_ends_in_samples_or_in_one_sentence() -> None:
    (clean,) = wav.SEEDS
    dice = random.Random(7)  # noqa: S311  seeded on purpose
    for at in range(len(clean)):
        for _ in range(8):
            value = edge(dice)
            wav.check(clean[:at] + value + clean[at + len(value) :])


def test_every_truncation_of_a_wav_ends_in_samples_or_in_one_sentence() -> None:
    (clean,) = wav.SEEDS
    for size in range(len(clean)):
        wav.check(clean[:size])


@pytest.mark.parametrize("part", range(PARTS))
def test_damaged_compressed_audio_ends_in_samples_or_in_one_sentence(part: int) -> None:
    dice = random.Random(part)  # noqa: S311  seeded on purpose
    for _ in range(40):
        formats.check(formats.generate(dice))


@pytest.mark.parametrize("generate", [wav.generate, formats.generate], ids=["wav", "formats"])
def test_memory_does_not_depend_on_what_a_header_claims(generate: Callable[[random.Random], bytes]) -> None:
    dice = random.Random(11)  # noqa: S311  seeded on purpose
    for _ in range(40):
        wav.check_memory(generate(dice))


# What was found, each under its rule

FORMAT = struct.pack("<HHIIHH", 1, 1, 16000, 32000, 2, 16)


def form(*chunks: bytes) -> bytes:
    return b"RIFF\xff\xff\xff\xffWAVE" + b"".join(chunks)


def form_of(tag: int, width: int, samples: bytes, *before: bytes) -> bytes:
    fields = struct.pack("<HHIIHH", tag, 1, 16000, 16000 * width, width, 8 * width)
    return form(*before, wav.chunk(b"fmt ", fields), wav.chunk(b"data", samples))


def refusal(source: object) -> str:
    with pytest.raises(AudioError) as caught, AudioReader(source, wav.RATE) as reader:  # type: ignore[arg-type]
        list(reader)
    wav.check_line(str(caught.value))
    return str(caught.value)


def test_64_bit_integers_are_refused_by_their_type() -> None:
    data = form_of(1, 8, bytes(800))
    assert "s64" in refusal(io.BytesIO(data))
    assert "s64" in refusal(wav.Pipe(data, 100))


def mp3_in_a_wav() -> bytes:
    file = io.BytesIO()
    with av.open(file, "w", format="wav") as output:
        stream: Any = output.add_stream("libmp3lame", rate=16000, layout="mono")
        tone = (0.5 * np.sin(np.arange(32000) / 5)).astype(np.float32)
        frame = av.AudioFrame.from_ndarray(tone[None], format="fltp", layout="mono")
        frame.sample_rate = 16000
        for packet in [*stream.encode(frame), *stream.encode(None)]:
            output.mux(packet)
    return file.getvalue()


def test_mp3_in_a_wav_is_read_without_a_word_on_the_terminal() -> None:
    """libmpg123 tells the terminal, and nobody else, what it does not like."""
    data = mp3_in_a_wav()
    for size in (120, 200, 1000, len(data)):
        for source in (io.BytesIO(data[:size]), wav.Pipe(data[:size], 100)):
            samples, _ = wav.read(source)
            assert samples is not None
            assert len(samples)


def adpcm_in_a_wav(seconds: int) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, np.zeros(seconds * 16000), 16000, format="WAV", subtype="MS_ADPCM")
    return file.getvalue()


@pytest.mark.parametrize("data", [mp3_in_a_wav(), adpcm_in_a_wav(2)], ids=["mp3", "adpcm"])
@pytest.mark.parametrize("share", [1, 2])
def test_a_compressed_wav_that_is_cut_off_is_noticed(data: bytes, share: int) -> None:
    for source in (io.BytesIO(data[: len(data) // share]), wav.Pipe(data[: len(data) // share], 100)):
        samples, warnings = wav.read(source)
        assert samples is not None
        assert len(samples) == pytest.approx(32000 / share, abs=2000)
        assert ["cut off" in warning for warning in warnings] == [True] * (share - 1)


def test_a_compressed_wav_that_does_not_tell_its_length_is_not_taken_for_one_that_is_cut_off() -> None:
    """Without a `fact` chunk FFmpeg guesses from the bytes per second, here 1.8 % too much."""
    data = adpcm_in_a_wav(60)
    at = data.index(b"fact")
    _, warnings = wav.read(io.BytesIO(data[:at] + data[at + 12 :]))
    assert warnings == []


def test_a_wav_of_empty_chunks_is_refused_before_it_is_read_through() -> None:
    source = wav.Pipe(form(bytes(8 << 20)), 4096)
    assert "cut off or damaged" in refusal(source)
    assert len(source.read(1)) == 1


def test_a_header_of_many_large_chunks_costs_no_memory() -> None:
    with io.BytesIO(form(*[wav.chunk(b"junk", bytes(1 << 20))] * 24, wav.chunk(b"fmt ", FORMAT))) as file:
        stream = open_stream(file)
        file.seek(0, io.SEEK_END)
        file.write(b"data\0\0\0\0" + bytes(2000))
        file.seek(0)
        tracemalloc.start()
        decoded = open_wav(stream)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert decoded.rate == 16000
    assert peak < 6 << 20


def test_a_compressed_wav_behind_a_large_chunk_is_read_from_a_file_and_refused_in_a_pipe() -> None:
    """All that came before its format would have to be put back."""
    data = form_of(2, 256, bytes(2560), wav.chunk(b"id3 ", bytes(3 << 20)))
    assert "name the file" in refusal(wav.Pipe(data, 1 << 16))
    data = mp3_in_a_wav()
    large = data[:12] + wav.chunk(b"id3 ", bytes(3 << 20)) + data[12:]
    samples, _ = wav.read(io.BytesIO(large))
    assert samples is not None
    assert len(samples) > 30_000
