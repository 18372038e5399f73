"""Reading audio of every kind, whole, damaged or no audio at all."""

import io
import os
import struct
import threading
import tracemalloc
import wave
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import av
import numpy as np
import pytest
import soundfile
import soxr
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from susurrus.models.audio import AudioReader, shown_name
from susurrus.models.audio import sources as audio_input
from susurrus.models.errors import AudioError

RATE = 16000
STEP = 1 / 32768


def tone(seconds: float = 1.0, rate: int = RATE, hz: float = 440.0) -> NDArray[np.float64]:
    return 0.5 * np.sin(2 * np.pi * hz * np.arange(round(seconds * rate)) / rate)


def read(source: str | Path | BinaryIO, rate: int = RATE) -> tuple[NDArray[np.float32], list[str]]:
    with AudioReader(source, rate) as reader:
        blocks = list(reader)
        assert all(block.dtype == np.float32 and block.ndim == 1 and len(block) for block in blocks)
        return np.concatenate([np.empty(0, np.float32), *blocks]), reader.warnings


def refusal(source: str | Path | BinaryIO) -> str:
    with pytest.raises(AudioError) as caught:
        read(source)
    assert str(caught.value).isprintable()  # one line among other things
    return str(caught.value)


def chunk(name: bytes, body: bytes, size: int | None = None) -> bytes:
    return name + struct.pack("<I", len(body) if size is None else size) + body + b"\0" * (len(body) % 2)


def wav(
    data: bytes,
    *,
    tag: int = 1,
    channels: int = 1,
    rate: int = RATE,
    width: int = 2,
    align: int | None = None,
    before: bytes = b"",
    size: int | None = None,
) -> bytes:
    """A WAV file made by hand, so that anything in it can be wrong."""
    align = channels * width if align is None else align
    form = struct.pack("<HHIIHH", tag, channels, rate, rate * align & 0xFFFFFFFF, align, 8 * width)
    body = b"WAVE" + chunk(b"fmt ", form) + before + chunk(b"data", data, size)
    return b"RIFF" + struct.pack("<I", len(body)) + body


def encoded(samples: NDArray[np.floating], rate: int, container: str, subtype: str | None = None) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, samples, rate, format=container, subtype=subtype)
    return file.getvalue()


def ffmpeg(samples: NDArray[np.float64], container: str, codec: str, rate: int = 48000) -> bytes:
    file = io.BytesIO()
    with av.open(file, "w", format=container) as output:
        stream: Any = output.add_stream(codec, rate=rate, layout="mono")
        frame = av.AudioFrame.from_ndarray(samples.astype(np.float32)[None], format="fltp", layout="mono")
        frame.sample_rate = rate
        for packet in [*stream.encode(frame), *stream.encode(None)]:
            output.mux(packet)
    return file.getvalue()


def pcm16(samples: NDArray[np.floating]) -> bytes:
    return np.round(samples * 32767).astype("<i2").tobytes()


class Pipe(io.RawIOBase):
    """A non-seekable stream that gives `piece` bytes at a time and notes how much has been taken."""

    def __init__(self, data: bytes, piece: int = 1000) -> None:
        super().__init__()
        self._data, self._piece, self.taken = data, piece, 0

    def readable(self) -> bool:
        """Yes."""
        return True

    def seekable(self) -> bool:
        """No."""
        return False

    def read(self, size: int = -1) -> bytes:
        """At most `piece` bytes."""
        size = self._piece if size < 0 else min(size, self._piece)
        data = self._data[self.taken : self.taken + size]
        self.taken += len(data)
        return data


def pipe(data: bytes, piece: int = 1000) -> Any:
    return Pipe(data, piece)


@pytest.fixture
def noise() -> NDArray[np.float64]:
    return np.random.default_rng(0).uniform(-0.5, 0.5, (RATE, 8))


# What is read


def test_16_bit_mono_of_the_models_rate_is_not_touched(tmp_path: Path) -> None:
    samples = np.random.default_rng(0).integers(-32768, 32768, 40000).astype("<i2")
    (tmp_path / "a.wav").write_bytes(wav(samples.tobytes()))
    ours, warnings = read(tmp_path / "a.wav")
    assert np.array_equal(ours, samples / np.float32(32768))
    assert warnings == []


@pytest.mark.parametrize("channels", range(1, 9))
@pytest.mark.parametrize("subtype", ["PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE", "ALAW", "ULAW"])
@pytest.mark.parametrize("container", ["WAV", "WAVEX"])
def test_every_wav_sample_format_is_what_libsndfile_reads(
    container: str, subtype: str, channels: int, noise: NDArray[np.float64]
) -> None:
    data = encoded(noise[:, :channels], RATE, container, subtype)
    expected, _ = soundfile.read(io.BytesIO(data), dtype="float32", always_2d=True)
    for source in (io.BytesIO(data), pipe(data)):
        np.testing.assert_allclose(read(source)[0], expected.mean(axis=1), atol=2e-7)


@pytest.mark.parametrize("subtype", ["MS_ADPCM", "IMA_ADPCM"])
def test_compressed_wav_is_read_too(subtype: str) -> None:
    data = encoded(tone(), RATE, "WAV", subtype)
    for source in (io.BytesIO(data), pipe(data)):
        ours, warnings = read(source)
        assert len(ours) == pytest.approx(RATE, abs=2048)  # whole blocks
        assert loudest_frequency(ours) == pytest.approx(440, abs=1)
        assert warnings == []


@pytest.mark.parametrize(
    ("container", "subtype"),
    [("FLAC", "PCM_24"), ("OGG", "VORBIS"), ("OGG", "OPUS"), ("MP3", None), ("AIFF", None),
     ("AU", None), ("W64", None), ("RF64", None), ("NIST", None)],
)  # fmt: skip
def test_other_formats_are_read_from_files_and_pipes(tmp_path: Path, container: str, subtype: str | None) -> None:
    data = encoded(tone(3), RATE, container, subtype)
    path = tmp_path / "a.wav"  # the name says nothing
    path.write_bytes(data)
    for source in (path, io.BytesIO(data), pipe(data)):
        ours, warnings = read(source)
        assert abs(len(ours) - 3 * RATE) <= 0.1 * RATE
        assert loudest_frequency(ours) == pytest.approx(440, abs=1)
        assert warnings == []


@pytest.mark.parametrize(
    ("container", "codec"), [("ipod", "aac"), ("mp4", "aac"), ("webm", "libopus"), ("adts", "aac")]
)  # fmt: skip
def test_video_containers_are_read_with_ffmpeg(tmp_path: Path, container: str, codec: str) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(ffmpeg(tone(3, 48000), container, codec))
    ours, warnings = read(path)
    assert abs(len(ours) - 3 * RATE) <= 0.1 * RATE
    assert loudest_frequency(ours) == pytest.approx(440, abs=1)
    assert warnings == []


@pytest.mark.parametrize(
    "before",
    [
        chunk(b"LIST", b"INFOISFT\x06\0\0\0Lavf60"),
        chunk(b"junk", b"odd"),
        chunk(b"bext", bytes(70_000)),
        chunk(b"junk", b"data\x10\0\0\0"),
    ],
)
def test_chunks_before_the_samples_are_skipped(before: bytes) -> None:
    data = wav(pcm16(tone()), before=before) + chunk(b"LIST", b"after")
    for source in (io.BytesIO(data), pipe(data)):
        assert len(read(source)[0]) == RATE


@pytest.mark.parametrize("size", [0, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x7FFFF000])
def test_a_streaming_encoders_size_means_to_the_end(size: int) -> None:
    data = wav(pcm16(tone()), size=size)
    for source in (io.BytesIO(data), pipe(data)):
        ours, warnings = read(source)
        assert len(ours) == RATE
        assert warnings == []


def test_the_size_of_a_long_rf64_is_in_its_first_chunk() -> None:
    data = pcm16(tone())
    body = wav(data, before=b"", size=0xFFFFFFFF)[12:]
    sizes = chunk(b"ds64", struct.pack("<QQQI", 0, len(data), RATE, 0))
    ours, _ = read(io.BytesIO(b"RF64\xff\xff\xff\xffWAVE" + sizes + body + chunk(b"LIST", bytes(1000))))
    assert len(ours) == RATE


def test_a_header_without_samples_is_empty_audio(tmp_path: Path) -> None:
    (tmp_path / "a.wav").write_bytes(wav(b""))
    assert len((tmp_path / "a.wav").read_bytes()) == 44
    for source in (tmp_path / "a.wav", pipe(wav(b""))):
        ours, warnings = read(source)
        assert len(ours) == 0
        assert warnings == []


# Rate and channels


def loudest_frequency(samples: NDArray[np.float32]) -> float:
    spectrum = np.abs(np.fft.rfft(samples * np.hanning(len(samples))))
    return float(spectrum.argmax()) * RATE / len(samples)


@pytest.mark.parametrize("channels", [1, 2, 6, 8])
@pytest.mark.parametrize("rate", [8000, 11025, 22050, 44100, 48000, 96000, 192000])
def test_pitch_and_length_survive_any_rate_and_number_of_channels(rate: int, channels: int) -> None:
    samples = np.repeat(tone(2.5, rate)[:, None], channels, axis=1)
    ours, _ = read(io.BytesIO(wav(pcm16(samples), rate=rate, channels=channels)))
    assert abs(len(ours) - 2.5 * RATE) <= 1
    assert loudest_frequency(ours) == pytest.approx(440, abs=0.5)
    assert np.abs(ours).max() == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize("rate", [8000, 44100, 48000])
def test_resampling_in_blocks_is_resampling_at_once(rate: int) -> None:
    samples = np.random.default_rng(0).uniform(-0.5, 0.5, 5 * rate).astype(np.float32)
    ours, _ = read(pipe(wav(samples.tobytes(), tag=3, width=4, rate=rate), piece=3001))
    expected = soxr.resample(samples, rate, RATE, quality="HQ")
    assert abs(len(ours) - len(expected)) <= 1
    n = min(len(ours), len(expected))
    np.testing.assert_allclose(ours[:n], expected[:n], atol=1e-5)


def test_channels_are_averaged() -> None:
    left, right = tone(hz=440), tone(hz=1000)
    ours, _ = read(io.BytesIO(wav(pcm16(np.stack([left, right], axis=1)), channels=2)))
    np.testing.assert_allclose(ours, (left + right) / 2, atol=2 * STEP)


@pytest.mark.parametrize("gains", [(1, 0), (0, 1), (1, 1), (1, 0.1), (0, 0, 1, 0, 0, 0)])
def test_a_channel_alone_is_heard(gains: tuple[float, ...]) -> None:
    ours, _ = read(io.BytesIO(wav(pcm16(tone()[:, None] * gains), channels=len(gains))))
    np.testing.assert_allclose(ours, tone() * np.mean(gains), atol=2 * STEP)


def test_channels_in_opposite_phase_do_not_cancel() -> None:
    ours, _ = read(io.BytesIO(wav(pcm16(tone(3)[:, None] * [0.8, -1]), channels=2)))
    np.testing.assert_allclose(np.abs(ours), np.abs(tone(3)), atol=2 * STEP)


def test_the_choice_of_a_channel_stays() -> None:
    opposite = tone(1)[:, None] * [-0.8, 1]
    alone = tone(2)[:, None] * [1, 0.5]
    ours, _ = read(io.BytesIO(wav(pcm16(np.concatenate([opposite, alone])), channels=2)))
    np.testing.assert_allclose(ours[RATE:], alone[:, 1], atol=2 * STEP)


# Pipes and memory


@pytest.mark.parametrize("rate", [16000, 44100])
@pytest.mark.parametrize("size", [None, 0, 0xFFFFFFFF])
def test_a_wav_in_a_pipe_is_given_as_it_arrives(rate: int, size: int | None) -> None:
    source = pipe(wav(pcm16(tone(20, rate)), rate=rate, size=size), piece=4096)
    with AudioReader(source, RATE) as reader:
        assert len(next(reader))
        assert source.taken < 20 * rate * 2 * 0.1


@pytest.mark.parametrize(("container", "subtype"), [("FLAC", "PCM_16"), ("OGG", "VORBIS"), ("MP3", None)])
def test_compressed_audio_in_a_pipe_is_given_before_its_end(container: str, subtype: str | None) -> None:
    samples = np.random.default_rng(0).uniform(-0.5, 0.5, 60 * RATE)
    data = encoded(samples, RATE, container, subtype)
    source = pipe(data, piece=4096)
    with AudioReader(source, RATE) as reader:
        assert len(next(reader))
        assert source.taken < len(data) / 2


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "hour.wav"
    size = 3600 * 48000 * 4
    with path.open("wb") as file:
        file.write(wav(b"", rate=48000, channels=2, size=size))
        file.truncate(44 + size)  # sparse
    with AudioReader(path, RATE) as reader:
        assert reader.duration == 3600
        next(reader)  # imports the resampler
        tracemalloc.start()
        total = sum(len(next(reader)) for _ in range(120))
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert total == pytest.approx(120 * RATE, abs=RATE)
    assert peak < 8e6


def test_the_callers_stream_stays_open() -> None:
    stream = io.BytesIO(wav(pcm16(tone())))
    read(stream)
    assert not stream.closed


def test_a_reader_that_is_left_early_closes_its_file(tmp_path: Path) -> None:
    for container in ("WAV", "FLAC", "MP3"):
        path = tmp_path / container
        path.write_bytes(encoded(tone(5), RATE, container))
        with AudioReader(path, RATE) as reader:
            next(reader)
            descriptor = reader._stream._raw.fileno()
            os.fstat(descriptor)
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)


def test_the_header_tells_the_duration() -> None:
    for data in (wav(pcm16(tone(2))), encoded(tone(2), RATE, "FLAC"), encoded(tone(2), RATE, "AIFF")):
        with AudioReader(io.BytesIO(data), RATE) as reader:
            assert reader.duration == pytest.approx(2)
    with AudioReader(pipe(wav(pcm16(tone(2)), size=0)), RATE) as reader:
        assert reader.duration is None


# Damage


def broken_at(warnings: list[str]) -> float:
    (warning,) = warnings
    assert warning.isprintable()
    return float(warning.partition(": at ")[2].partition(" s:")[0])


@pytest.mark.parametrize(("container", "subtype"), [("WAV", "PCM_16"), ("FLAC", "PCM_16"), ("MP3", None)])
def test_the_good_part_of_a_file_that_is_cut_off_is_kept(tmp_path: Path, container: str, subtype: str | None) -> None:
    samples = np.random.default_rng(0).uniform(-0.5, 0.5, 10 * RATE)
    data = encoded(samples, RATE, container, subtype)
    path = tmp_path / "cut"
    path.write_bytes(data[: round(0.6 * len(data))])
    ours, warnings = read(path)
    assert len(ours) / RATE == pytest.approx(6, abs=0.5)
    assert broken_at(warnings) == pytest.approx(len(ours) / RATE, abs=0.01)
    assert str(path) in warnings[0]


def test_a_pipe_that_ends_early_is_noticed() -> None:
    ours, warnings = read(pipe(wav(pcm16(tone(2)))[: 44 + 2 * RATE + 1]))
    assert len(ours) == RATE
    assert broken_at(warnings) == 1


@pytest.mark.parametrize("container", ["FLAC", "MP3"])
def test_garbage_in_the_middle_costs_only_what_it_covers(container: str) -> None:
    samples = np.random.default_rng(0).uniform(-0.5, 0.5, 20 * RATE)
    data = bytearray(encoded(samples, RATE, container))
    middle = len(data) // 2
    data[middle : middle + 4096] = np.random.default_rng(1).bytes(4096)
    ours, warnings = read(io.BytesIO(data))
    assert len(ours) / RATE > 17
    assert broken_at(warnings) == pytest.approx(10, abs=1)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e30])
@pytest.mark.parametrize("width", [4, 8])
def test_samples_that_are_not_numbers_are_silence_with_one_warning(value: float, width: int) -> None:
    samples = tone(3)
    samples[[24000, 40000]] = value
    ours, warnings = read(io.BytesIO(wav(samples.astype(f"<f{width}").tobytes(), tag=3, width=width)))
    assert ours[24000] == ours[40000] == 0
    assert np.isfinite(ours).all()
    assert broken_at(warnings) == 1.5


# What is refused


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "empty (0 bytes)"),
        (wav(pcm16(tone()), channels=0, align=2), "0 channels"),
        (wav(pcm16(tone()), rate=0), "0 Hz"),
        (wav(pcm16(tone()), align=0), "block align"),
        (wav(pcm16(tone()), rate=7), "7 Hz"),
        (wav(pcm16(tone()), rate=4_000_000_000), "4000000000 Hz"),
        (wav(b"")[:40], "without audio data"),
        (wav(b"")[:30], "cut off or damaged"),
        (b"\xff\xd8\xff\xe0\x00\x10JFIF" + bytes(2000), "a JPEG picture"),
        (b"%PDF-1.7\n" + bytes(2000), "a PDF document"),
        (b"This is only text.\n" * 50, "text, not audio"),
        (b"<!DOCTYPE html><html>404</html>", "text, not audio"),
        (pcm16(tone(2)), "raw samples need a header"),
        (bytes(50000), "raw samples need a header"),
        (b"fLaC" + bytes(500), "damaged"),
        (b"\0\0\0\x18ftypM4A " + bytes(500), "damaged"),
        (b"#EXTM3U\n#EXTINF:10,\n/etc/passwd\n#EXT-X-ENDLIST\n", "text, not audio"),
    ],
)
def test_what_is_no_audio_is_refused_by_name_and_reason(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "clip.wav"
    path.write_bytes(content)
    assert refusal(path).startswith(f"{path}: ")
    assert reason in refusal(path)
    assert refusal(pipe(content)).startswith("standard input: ")


def test_a_playlist_does_not_make_other_files_be_read(tmp_path: Path) -> None:
    (tmp_path / "secret.wav").write_bytes(wav(pcm16(tone())))
    for name, text in (
        ("a.ffconcat", "ffconcat version 1.0\nfile '{}'\n"),
        ("a.m3u8", "#EXTM3U\n#EXTINF:1,\n{}\n"),
    ):
        (tmp_path / name).write_text(text.format(tmp_path / "secret.wav"))
        refusal(tmp_path / name)


def test_a_picture_without_sound_is_refused() -> None:
    file = io.BytesIO()
    with av.open(file, "w", format="mp4") as output:
        stream = output.add_stream("mpeg4", rate=10)
        stream.width, stream.height, stream.pix_fmt = 64, 64, "yuv420p"
        frame = av.VideoFrame.from_ndarray(np.zeros((96, 64), np.uint8), format="yuv420p")
        for packet in [*stream.encode(frame), *stream.encode(None)]:
            output.mux(packet)
    assert "no sound in it" in refusal(io.BytesIO(file.getvalue()))


@pytest.mark.parametrize("name", ["missing.wav", "x" * 300, "null\0byte", "file/below.wav"])
def test_what_is_not_there_is_refused_by_name(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_bytes(b"x")
    assert shown_name(tmp_path / name) in refusal(str(tmp_path / name))


def test_a_folder_and_a_device_are_refused(tmp_path: Path) -> None:
    assert "a folder" in refusal(tmp_path)
    if Path("/dev/zero").exists():
        assert "a device" in refusal("/dev/zero")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.wav").write_bytes(wav(pcm16(tone())))
    (tmp_path / "a.wav").chmod(0)
    assert "no permission" in refusal(tmp_path / "a.wav")


def test_the_systems_refusal_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    (tmp_path / "a.wav").write_bytes(wav(pcm16(tone())))
    monkeypatch.setattr(os, "open", refuse)
    assert "no permission to read it" in refusal(tmp_path / "a.wav")


@pytest.mark.parametrize("error", [OSError(5, "Input/output error"), AudioError("x")])
def test_a_stream_that_fails_at_once_is_refused(error: Exception) -> None:
    class Failing(Pipe):
        def read(self, _size: int = -1) -> bytes:
            raise error

    refusal(Failing(b""))  # type: ignore[arg-type]  # a raw stream is all that is needed


def test_a_stream_that_fails_later_keeps_what_came() -> None:
    class Failing(Pipe):
        def read(self, size: int = -1) -> bytes:
            if data := super().read(size):
                return data
            raise OSError(5, "Input/output error")

    ours, warnings = read(Failing(wav(pcm16(tone()), size=0)))  # type: ignore[arg-type]  # as above
    assert len(ours) == RATE
    assert "Input/output error" in warnings[0]


def test_text_streams_are_refused() -> None:
    assert "binary" in refusal(io.StringIO("text"))  # type: ignore[arg-type]  # that is the point


def test_an_mp4_whose_index_comes_last_is_refused_in_a_pipe() -> None:
    assert "cannot be read from a pipe" in refusal(pipe(ffmpeg(tone(3, 48000), "mp4", "aac")))


# Named pipes

fifos = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no FIFOs here")


@fifos
def test_a_fifo_nobody_writes_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audio_input, "FIFO_SECONDS", 0.05)
    os.mkfifo(tmp_path / "fifo")
    assert "nobody writes" in refusal(tmp_path / "fifo")


@fifos
@pytest.mark.parametrize("container", ["WAV", "FLAC"])
def test_a_fifo_somebody_writes_is_read(tmp_path: Path, container: str) -> None:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=[encoded(tone(3), RATE, container)])
    writer.start()
    ours, warnings = read(path)
    writer.join()
    assert len(ours) == 3 * RATE
    assert warnings == []


@fifos
def test_a_fifos_silent_writer_is_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    reading = os.open(tmp_path / "fifo", os.O_RDONLY | os.O_NONBLOCK)
    with (tmp_path / "fifo").open("wb", buffering=0) as writer, os.fdopen(reading, "rb"):
        assert audio_input._await_writer(reading, deadline=0) == b""
        writer.write(b"data")
        assert audio_input._await_writer(reading, deadline=0) == b"data"


# Names


@pytest.mark.parametrize(
    "name",
    ["にっぽん é.wav", "-n.wav", "two\nlines.wav", "x" * 246 + ".wav", "http:a.wav", "a.raw", "\udcff.wav"],
)  # fmt: skip
@pytest.mark.parametrize("container", ["WAV", "FLAC", "MP3"])
def test_any_name_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, container: str) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).write_bytes(encoded(tone(), RATE, container))
    assert abs(len(read(name)[0]) - RATE) < 0.1 * RATE
    Path(name).write_bytes(b"\0")
    assert refusal(name).startswith(shown_name(name) + ": ")


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("にっぽん é.wav", "にっぽん é.wav"),
        ("a\nb\x1b[2J", "a\\nb\\x1b[2J"),
        ("\u202egnp.wav", "\\u202egnp.wav"),
        ("\udcff", "\\udcff"),
        (Path("a/b"), str(Path("a/b"))),
    ],
)
def test_a_shown_name_is_one_line_that_does_nothing_to_a_terminal(name: str | Path, shown: str) -> None:
    assert shown_name(name) == shown
    assert shown_name(name).isprintable()


# Rubbish


def seeds() -> Iterator[bytes]:
    voice = np.stack([tone(0.3), tone(0.3, hz=1000)], axis=1)
    yield wav(pcm16(voice), channels=2)
    yield wav(voice.astype("<f4").tobytes(), tag=3, width=4, channels=2, rate=44100)
    for container, subtype in (
        ("FLAC", None),
        ("OGG", "VORBIS"),
        ("MP3", None),
        ("AIFF", None),
        ("WAV", "IMA_ADPCM"),
    ):
        yield encoded(voice, RATE, container, subtype)
    yield ffmpeg(tone(0.3, 48000), "ipod", "aac")
    yield ffmpeg(tone(0.3, 48000), "webm", "libopus")


SEEDS = list(seeds())


def try_to_read(data: bytes) -> None:
    for source in (io.BytesIO(data), pipe(data)):
        with suppress(AudioError):
            ours, warnings = read(source)
            assert np.isfinite(ours).all()
            assert all(warning.isprintable() for warning in warnings)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(SEEDS), st.data())
def test_changed_bytes_end_in_audio_or_in_one_sentence(seed: bytes, data: st.DataObject) -> None:
    content = bytearray(seed[: data.draw(st.integers(1, len(seed)))])
    where = st.integers(0, min(len(content), 200) - 1) | st.integers(0, len(content) - 1)
    for at, value in data.draw(st.lists(st.tuples(where, st.integers(0, 255)), max_size=8)):
        content[at] = value
    try_to_read(bytes(content))


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([b"", b"RIFF\xff\xff\xff\xffWAVE", b"RIFF\0\0\0\0WAVEfmt ", b"fLaC", b"OggS", b"ID3", b"FORM"]),
    st.binary(max_size=300),
)
def test_random_bytes_end_in_audio_or_in_one_sentence(head: bytes, tail: bytes) -> None:
    try_to_read(head + tail)


def test_pythons_own_writer_is_read(tmp_path: Path) -> None:
    with wave.open(str(tmp_path / "a.wav"), "wb") as file:
        file.setparams((2, 3, 48000, 0, "NONE", ""))
        file.writeframes(bytes(6 * 48000))
    assert len(read(tmp_path / "a.wav")[0]) == RATE
