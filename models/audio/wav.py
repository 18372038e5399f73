"""WAV as it arrives: the RIFF header and its samples, from a file or from a pipe that is still being written.

libsndfile has to seek and takes a header's sizes for granted; here the sizes may be missing (streaming
encoders write 0 or 0xFFFFFFFF) or too large (a file cut off), and the first samples are given when they are
there.

References: "Multimedia Programming Interface and Data Specifications 1.0" (IBM, Microsoft 1991); "Multiple
channel audio data and WAVE files" (Microsoft, WAVE_FORMAT_EXTENSIBLE); EBU Tech 3306 (RF64); ITU-T G.711
(A-law, mu-law).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from susurrus.models.audio.decoded import Broken, Decoded, Undecodable, block_frames, to_float

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from susurrus.models.audio.sources import ByteStream

_PCM, _FLOAT, _ALAW, _MULAW, _EXTENSIBLE = 1, 3, 6, 7, 0xFFFE
_GUID_TAIL = bytes.fromhex("000000001000800000aa00389b71")  # of every extensible format that has a plain tag
_UNKNOWN_SIZE = 0x7FFFF000  # sox writes this into a pipe, other encoders 0x7FFFFFFF or 0xFFFFFFFF
_MOST_HEADER = 1 << 20  # bytes kept to be put back when another decoder has to try, and cannot seek
_MOST_CHUNKS = 10_000  # before the samples; a gigabyte of zeros would be 134 million empty ones


@dataclass(frozen=True, slots=True)
class WavFormat:
    """What the `fmt ` chunk says."""

    rate: int
    """Hertz."""
    channels: int
    width: int
    """Bytes of one sample of one channel."""
    decode: Callable[[bytes], NDArray[np.floating]]
    """Bytes of whole samples -> (n,), full scale +-1."""

    @property
    def frame_bytes(self) -> int:
        """Bytes of one sample of all channels."""
        return self.channels * self.width


def is_wav(head: bytes) -> bool:
    """Whether a file that starts with these 12 bytes is a (little-endian) WAV."""
    return head[:4] in {b"RIFF", b"RF64", b"BW64"} and head[8:12] == b"WAVE"


def open_wav(stream: ByteStream) -> Decoded:
    """Reads the header up to the first sample.

    Raises:
        Undecodable: The header is damaged (`final`), or names a compression that is not read here; then the
            stream stands where it stood.
    """
    start = stream.tell() if stream.seekable() else None
    head = bytearray(stream.read_exactly(12))
    long_size, wav_format = None, None
    for _ in range(_MOST_CHUNKS):
        chunk = stream.read_exactly(8)
        if len(chunk) < 8:
            break
        name, size = chunk[:4], struct.unpack("<I", chunk[4:])[0]
        if name == b"data":
            if wav_format is None:
                break
            return _samples(stream, wav_format, long_size if size == 0xFFFFFFFF and long_size else size)
        body = stream.read_exactly(min(size + size % 2, _MOST_HEADER))
        _skip(stream, size + size % 2 - len(body))
        if len(head) <= _MOST_HEADER:
            head += chunk + body
        if name == b"ds64" and len(body) >= 16:
            long_size = struct.unpack("<8xQ", body[:16])[0]
        elif name == b"fmt ":
            try:
                wav_format = _parse_format(body)
            except Undecodable as error:
                if not error.final:
                    _go_back(stream, start, bytes(head))
                raise
    raise Undecodable("a WAV header without audio data after it: the file is cut off or damaged", final=True)


def _go_back(stream: ByteStream, start: int | None, head: bytes) -> None:
    """Lets another decoder read the file from where it starts.

    Args:
        stream: Stands somewhere behind the header.
        start: Position of the header, None in a pipe.
        head: All of the header, unless that was too large to be kept.
    """
    if start is not None:
        stream.seek(start)
    elif len(head) <= _MOST_HEADER:
        stream.push_back(head)
    else:
        reason = f"a compressed WAV whose header has more than {_MOST_HEADER >> 20} MiB: name the file, do not pipe it"
        raise Undecodable(reason, final=True)


def _skip(stream: ByteStream, size: int) -> None:
    while size > 0 and (data := stream.read(min(size, 1 << 20))):
        size -= len(data)


def _parse_format(body: bytes) -> WavFormat:
    """The format.

    Raises:
        Undecodable: The header is damaged (`final`), or the samples need another decoder.
    """
    if len(body) < 16:
        raise Undecodable("its WAV header is cut off or damaged", final=True)
    tag, channels, rate, _, align, bits = struct.unpack("<HHIIHH", body[:16])
    for value, what in ((channels, "channels"), (rate, "Hz"), (align, "bytes per sample (block align)")):
        if value == 0:
            raise Undecodable(f"its WAV header says 0 {what}: the header is damaged", final=True)
    if tag == _EXTENSIBLE and len(body) >= 40 and body[26:40] == _GUID_TAIL:
        tag = struct.unpack("<H", body[24:26])[0]
    width = align // channels
    decode = _DECODERS.get((tag, width))
    if decode is None or align % channels or bits > 8 * width:
        raise Undecodable("a compressed WAV")
    return WavFormat(rate, channels, width, decode)


def _samples(stream: ByteStream, wav: WavFormat, claimed: int) -> Decoded:
    """The decoded data chunk.

    Args:
        stream: Stands at the first sample.
        wav: The format.
        claimed: Size of the chunk in bytes, as the header says it.
    """
    there = stream.remaining()
    size: int | None = claimed
    if claimed == 0 or (claimed >= _UNKNOWN_SIZE and (there is None or there < claimed)):
        size = None  # a streaming encoder: to the end of the input
    known = there if size is None else size if there is None else min(size, there)
    duration = None if known is None else known // wav.frame_bytes / wav.rate
    return Decoded(wav.rate, duration, _blocks(stream, wav, size))


def _blocks(stream: ByteStream, wav: WavFormat, size: int | None) -> Iterator[NDArray[np.floating]]:
    most = block_frames(wav.rate, wav.channels) * wav.frame_bytes
    rest, read, ended = b"", 0, False
    failure = None
    while not ended:
        try:
            data = stream.read(most if size is None else min(most, size - read))
        except OSError as error:
            data, failure = b"", error
        ended = not data
        read += len(data)
        rest += data
        # A pipe may give a few bytes at a time; a quarter of a block is enough to tell how channels relate.
        if rest and (ended or len(rest) >= most // 4):
            whole = len(rest) - len(rest) % wav.frame_bytes
            yield wav.decode(rest[:whole]).reshape(-1, wav.channels)
            rest = rest[whole:]
    if failure:
        raise failure
    if size is not None and read < size - size % wav.frame_bytes:
        claimed = size // wav.frame_bytes / wav.rate
        raise Broken(f"the file is cut off (its header says {claimed:.2f} s)")


def _decode_int24(data: bytes) -> NDArray[np.floating]:
    padded = np.zeros((len(data) // 3, 4), np.uint8)
    padded[:, 1:] = np.frombuffer(data, np.uint8).reshape(-1, 3)
    return to_float(padded.view("<i4")[:, 0])


def _decode_as(dtype: str) -> Callable[[bytes], NDArray[np.floating]]:
    return lambda data: to_float(np.frombuffer(data, dtype))


def _decode_table(table: NDArray[np.int64]) -> Callable[[bytes], NDArray[np.float32]]:
    levels = (table / 32768).astype(np.float32)  # (256,)
    return lambda data: levels[np.frombuffer(data, np.uint8)]


def _alaw_table() -> NDArray[np.int64]:
    """16-bit level of each of the 256 codes (G.711 table 1a)."""
    code = np.arange(256) ^ 0x55
    exponent, mantissa = (code >> 4) & 7, code & 15
    level = np.where(exponent == 0, mantissa * 16 + 8, (mantissa * 16 + 264) << np.maximum(exponent - 1, 0))
    return np.where(code & 0x80, level, -level)


def _mulaw_table() -> NDArray[np.int64]:
    """16-bit level of each of the 256 codes (G.711 table 2a)."""
    code = ~np.arange(256)
    level = (((code & 15) * 8 + 132) << ((code >> 4) & 7)) - 132
    return np.where(code & 0x80, -level, level)


_DECODERS: dict[tuple[int, int], Callable[[bytes], NDArray[np.floating]]] = {
    (_PCM, 1): _decode_as("u1"),
    (_PCM, 2): _decode_as("<i2"),
    (_PCM, 3): _decode_int24,
    (_PCM, 4): _decode_as("<i4"),
    (_FLOAT, 4): _decode_as("<f4"),
    (_FLOAT, 8): _decode_as("<f8"),
    (_ALAW, 1): _decode_table(_alaw_table()),
    (_MULAW, 1): _decode_table(_mulaw_table()),
}
