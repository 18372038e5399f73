"""Compressed audio by two libraries: libsndfile (soundfile), and FFmpeg (PyAV) for what that one cannot open.

Both are imported when they are needed: a plain WAV needs neither, and PyAV takes 80 ms to import.

MP3 and compressed WAV (which may hold MP3) go to FFmpeg, although libsndfile reads them: its libmpg123 writes notes
about damaged, and some sound, files straight onto stderr, and tells nobody where a file broke.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from susurrus.models.audio.decoded import Broken, Decoded, Undecodable, block_frames, to_float

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from susurrus.models.audio.sources import ByteStream

_UNKNOWN_FRAMES = 1 << 62  # libsndfile says 2^63 - 1 where it does not know
# What a header may promise too much without a file being cut off, in seconds.
_MISSING_SECONDS = 0.5  # FFmpeg's may count the codec's own delay (AAC at 8 kHz: 0.4 s)
_MISSING_EXACT = 0.05  # libsndfile's
_MISSING_SHARE = 0.05  # of a compressed WAV: without a `fact` chunk its length is a guess from the bytes per second
_AV_BUFFER = 8192  # bytes FFmpeg asks for at once: on a pipe it waits for them
# Containers whose duration is written down, not guessed from the bit rate.
_EXACT_CONTAINERS = frozenset({"mov", "matroska", "ogg", "flac", "aiff", "mp3", "wav"})


def is_mpeg(head: bytes) -> bool:
    """Whether a file that starts like this may be MP3 (or another MPEG audio stream)."""
    return head[:3] == b"ID3" or (len(head) > 1 and head[0] == 0xFF and head[1] & 0xE0 == 0xE0)


def open_soundfile(stream: ByteStream) -> Decoded:
    """Opens a seekable input with libsndfile.

    Raises:
        Undecodable: libsndfile does not know the format, or it is better read by FFmpeg.
    """
    import soundfile  # noqa: PLC0415  lazy: see above

    start = stream.tell()
    stream.seek(start)  # the library does not see what was put back
    descriptor = stream.descriptor()
    # By descriptor: the library then neither guesses headerless formats from the file's extension nor calls
    # back into Python, where an interrupt would be swallowed.
    try:
        file = soundfile.SoundFile(stream if descriptor is None else descriptor, closefd=False)
    except (RuntimeError, TypeError, ValueError, OSError) as error:
        stream.seek(start)
        raise Undecodable(str(error)) from error
    if file.format == "MP3" or not 0 < file.frames < _UNKNOWN_FRAMES:
        file.close()
        stream.seek(start)
        raise Undecodable("better read by FFmpeg")
    blocks = _soundfile_blocks(file)
    return Decoded(file.samplerate, file.frames / file.samplerate, blocks, resumable=True)


def _soundfile_blocks(file: Any) -> Iterator[NDArray[np.floating]]:
    done = 0
    with file:
        while True:
            buffer = np.empty((block_frames(file.samplerate, file.channels), file.channels), np.float32)
            try:
                block = file.read(out=buffer)
            except RuntimeError as error:
                yield buffer[: max(0, file.tell() - done)]
                detail = str(error).removeprefix("Error : ").rstrip(".")
                raise Broken(f"the file is damaged or cut off ({detail})") from error
            if not len(block):
                break
            done += len(block)
            yield block
        _check_complete(done / file.samplerate, file.frames / file.samplerate, _MISSING_EXACT)


def open_pyav(stream: ByteStream, warn: Callable[[float, str], None], skip: int = 0) -> Decoded:
    """Opens any input with FFmpeg.

    Args:
        stream: The input; a pipe is read as it arrives.
        warn: Gets the time in seconds and half a sentence when a part cannot be decoded and the rest can.
        skip: Samples at the start that are not wanted.

    Raises:
        Undecodable: FFmpeg does not know the format, or there is no sound in it.
    """
    import av  # noqa: PLC0415  lazy: see above

    try:
        # A playlist must not make FFmpeg open other files or addresses: no protocol is called "none".
        container = av.open(
            stream,
            mode="r",
            metadata_errors="ignore",
            options={"protocol_whitelist": "none"},
            buffer_size=_AV_BUFFER,
        )
    except (av.FFmpegError, ValueError, RuntimeError) as error:
        raise Undecodable(_text(error)) from error
    try:
        return _open_audio_stream(container, warn, skip)
    except BaseException:
        container.close()
        raise


def _open_audio_stream(container: Any, warn: Callable[[float, str], None], skip: int) -> Decoded:
    if not container.streams.audio:
        raise Undecodable(f"no sound in it (FFmpeg takes it for {container.format.name})")
    packets = _packets(container, warn)
    try:
        first = next(packets, None)
    except Broken as error:
        raise Undecodable(str(error)) from error
    if first is None:
        return Decoded(container.streams.audio[0].rate or 1, 0.0, iter(()))
    rate = first.sample_rate
    if rate < 1:
        raise Undecodable("its header says 0 Hz")
    duration = container.duration / 1e6 if container.duration and container.duration > 0 else None
    frames = _arrays(chain([first], packets), rate)
    return Decoded(rate, duration, _pyav_blocks(container, frames, rate, duration, skip))


def _packets(container: Any, warn: Callable[[float, str], None]) -> Iterator[Any]:
    """Decoded frames of the first audio stream; undecodable packets are left out, with a warning."""
    import av  # noqa: PLC0415  lazy: see above

    packets = container.demux(container.streams.audio[0])
    seconds, damage = 0.0, None
    while True:
        try:
            packet = next(packets, None)
        except (av.FFmpegError, ValueError) as error:
            raise Broken(f"the file is damaged ({_text(error)})") from error
        if packet is None:
            break
        try:
            frames = packet.decode()
        except (av.FFmpegError, ValueError) as error:
            damage = error
            if seconds:  # the first packets of a cut stream refer to what is not there
                warn(seconds, "a part of the file is damaged and left out")
            continue
        for frame in frames:
            seconds += frame.samples / max(frame.sample_rate, 1)
            yield frame
    if damage and not seconds:
        raise Broken(f"nothing in it can be decoded ({_text(damage)})")


def _text(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


def _arrays(frames: Iterator[Any], rate: int) -> Iterator[NDArray[np.floating]]:
    """FFmpeg's frames as (n, channels) arrays."""
    for frame in frames:
        if frame.sample_rate != rate:
            raise Broken(f"the sampling rate changes from {rate} to {frame.sample_rate} Hz")
        try:
            array = frame.to_ndarray()
        except ValueError as error:  # 64-bit integers, which numpy has and PyAV does not map
            raise Broken(f"samples of type {frame.format.name} are not read") from error
        yield to_float(array.T if frame.format.is_planar else array.reshape(-1, frame.layout.nb_channels))


def _pyav_blocks(
    container: Any, arrays: Iterator[NDArray[np.floating]], rate: int, duration: float | None, skip: int
) -> Iterator[NDArray[np.floating]]:
    done, held = 0, 0
    parts: list[NDArray[np.floating]] = []
    broken = None
    try:
        for array in arrays:
            wanted = array[max(0, skip - done) :]
            done += len(array)
            if parts and parts[0].shape[1] != wanted.shape[1]:  # the number of channels changes
                yield np.concatenate(parts)
                parts, held = [], 0
            if len(wanted):
                parts.append(wanted)
                held += len(wanted)
            if held >= block_frames(rate, array.shape[1]):
                yield np.concatenate(parts)
                parts, held = [], 0
    except Broken as error:
        broken = error  # after what it gave so far
    finally:
        name = container.format.name.split(",")[0]
        container.close()
    if parts:
        yield np.concatenate(parts)
    if broken:
        raise broken
    if duration is not None and name in _EXACT_CONTAINERS:
        share = _MISSING_SHARE if name == "wav" else 0.0
        _check_complete(done / rate, duration, max(_MISSING_SECONDS, share * duration))


def _check_complete(seconds: float, claimed: float, tolerance: float) -> None:
    if claimed - seconds > tolerance:
        raise Broken(f"the file is cut off or damaged (its header says {claimed:.2f} s)")
