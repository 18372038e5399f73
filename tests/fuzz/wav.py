"""WAV files that lie, and compressed ones that are damaged: samples come out, or an AudioError of one line.

An input is a file's bytes. It is read from a buffer and through a pipe that gives a few bytes at a time.
"""

from __future__ import annotations

import io
import math
import struct
import tracemalloc
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

from susurrus.models.audio import AudioReader
from susurrus.models.audio.decoded import Undecodable
from susurrus.models.audio.sources import open_stream
from susurrus.models.audio.wav import is_wav, open_wav
from susurrus.models.errors import AudioError
from tests.fuzz.mutations import EDGES, mutate

if TYPE_CHECKING:
    from random import Random

    from numpy.typing import NDArray

RATE = 16_000
LOWEST_RATE = 1_000
"""Hertz that a header may say at least."""
MOST_MEMORY = 64 << 20
"""Bytes that may be allocated beside the file, whatever its header says: a block, its mean, its resampling."""
LONGEST_REASON = 400


class Pipe(io.RawIOBase):
    """A stream that cannot seek and gives at most `piece` bytes at a time."""

    def __init__(self, data: bytes, piece: int) -> None:
        super().__init__()
        self._data, self._piece, self._taken = data, piece, 0

    def readable(self) -> bool:
        """Yes."""
        return True

    def seekable(self) -> bool:
        """No."""
        return False

    def read(self, size: int = -1) -> bytes:
        """At most `piece` bytes."""
        size = self._piece if size < 0 else min(size, self._piece)
        data = self._data[self._taken : self._taken + size]
        self._taken += len(data)
        return data


# --- the rules ----------------------------------------------------------------------------------------------


def check(data: bytes) -> str:
    """Read an input both ways. Returns `samples`, `damaged` or `refused`."""
    piece = (1, 7, 1000, 1 << 20)[zlib.crc32(data) % 4] if len(data) < 10_000 else 4096
    there, warnings = read(io.BytesIO(data))
    piped, _ = read(Pipe(data, piece))
    if plain_wav(data):  # read by our own code, of which nothing is left to the way it comes
        assert (there is None) == (piped is None)
        if there is not None and piped is not None:
            assert len(there) == len(piped)
            # No file has more than one sample in a byte, none is stretched more than by the lowest rate.
            assert len(there) <= len(data) * (RATE // LOWEST_RATE) + RATE
    return "refused" if there is None else "damaged" if warnings else "samples"


def read(source: Any) -> tuple[NDArray[np.float32] | None, list[str]]:
    """All samples and warnings of an input, None when it was refused."""
    refusal = ""
    blocks: list[NDArray[np.float32]] = []
    try:
        with AudioReader(source, RATE) as reader:
            assert reader.duration is None or (math.isfinite(reader.duration) and reader.duration >= 0)
            blocks += reader
            warnings = reader.warnings
    except AudioError as error:
        refusal = str(error)
    if refusal:
        assert refusal.startswith("standard input: ")
        check_line(refusal)
        return None, []
    assert all(block.dtype == np.float32 and block.ndim == 1 and len(block) for block in blocks)
    samples = np.concatenate([np.empty(0, np.float32), *blocks])
    assert np.isfinite(samples).all()
    for warning in warnings:
        check_line(warning)
    return samples, warnings


def check_line(text: str) -> None:
    """A message is one line, and not a page of it."""
    assert text.isprintable(), text
    assert len(text) < LONGEST_REASON, text


def plain_wav(data: bytes) -> bool:
    """Whether this is a WAV whose samples are read here, not by a library."""
    if not is_wav(data[:12]):
        return False
    try:
        open_wav(open_stream(io.BytesIO(data)))
    except Undecodable as error:
        return error.final
    return True


def check_memory(data: bytes) -> None:
    """What is allocated while an input is read does not depend on what its header claims."""
    tracemalloc.start()
    try:
        for source in (io.BytesIO(data), Pipe(data, 4096)):
            read(source)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= MOST_MEMORY + 100 * len(data), f"{peak} bytes for {len(data)}"


# --- inputs -------------------------------------------------------------------------------------------------

_TAGS = (2, 6, 7, 0x11, 0x31, 0x55, 0, 0x161, 0xFFFF)
_RATES = (999, 1000, 1_000_000, 1_000_001, 0, 0xFFFFFFFF, 7, 192_000)
_NAMES = (b"LIST", b"junk", b"bext", b"fact", b"PEAK", b"cue ", b"id3 ", b"ds64", b"data", b"fmt ", b"\0\0\0\0")
_GUID = bytes.fromhex("000000001000800000aa00389b71")
_EXTENSIBLE = 0xFFFE


def generate(dice: Random) -> bytes:
    """A WAV in which any number may be wrong, now and then with damaged bytes on top."""
    tag, width = dice.choice(((1, 1), (1, 2), (1, 2), (1, 3), (1, 4), (1, 8), (3, 4), (3, 8), (6, 1), (7, 1)))
    channels = _or_else(dice, dice.choice((1, 1, 2, 6, 8)), 0, 255, 65535)
    others = [_other_chunk(dice) for _ in range(dice.choice((0, 0, 0, 1, 3)))]
    cut = dice.randint(0, len(others))
    chunks = [
        *others[:cut],
        chunk(b"fmt ", _format(dice, tag, channels, width), dice),
        *others[cut:],
        chunk(b"data", _samples(dice, channels * width), dice),
    ]
    if dice.random() < 0.1:
        dice.shuffle(chunks)
    body = b"WAVE" + b"".join(chunks)
    form = dice.choice((b"RIFF", b"RIFF", b"RIFF", b"RF64", b"BW64")) if dice.random() < 0.98 else b"RIFX"
    data = form + struct.pack("<I", _or_else(dice, len(body), *EDGES)) + body
    if dice.random() < 0.15:
        data = data[: dice.randint(0, len(data))]
    return mutate(data, dice) if dice.random() < 0.3 else data


def chunk(name: bytes, body: bytes, dice: Random | None = None) -> bytes:
    """A RIFF chunk; with dice its size may be a lie and its pad byte missing."""
    size, pad = len(body), b"\0" * (len(body) % 2)
    if dice is not None:
        size = _or_else(dice, size, *EDGES, size + 1, size * 2, size // 2)
        pad = pad if dice.random() < 0.95 else b""
    return name + struct.pack("<I", size) + body + pad


def _or_else(dice: Random, value: int, *others: int) -> int:
    """The value, in one of twelve cases another one."""
    return value if dice.random() < 11 / 12 else dice.choice(others)


def _format(dice: Random, tag: int, channels: int, width: int) -> bytes:
    rate = _or_else(dice, dice.choice((16_000, 8000, 44_100, 48_000, 11_025)), *_RATES, dice.getrandbits(32))
    align = _or_else(dice, channels * width & 0xFFFF, 0, 1, 65535, channels)
    bits = _or_else(dice, 8 * width, 0, 12, 20, 65535)
    tag = _or_else(dice, tag, *_TAGS, dice.getrandbits(16))
    extensible = dice.random() < 0.2
    head = struct.pack("<HHIIHH", _EXTENSIBLE if extensible else tag, channels, rate, rate * align % 2**32, align, bits)
    if extensible:
        guid = struct.pack("<H", tag) + (_GUID if dice.random() < 0.9 else dice.randbytes(14))
        head += struct.pack("<HHI", 22, bits, dice.getrandbits(32)) + guid
    elif dice.random() < 0.3:
        head += struct.pack("<H", dice.choice((0, 2, 22, 65535))) + dice.randbytes(dice.choice((0, 2, 32)))
    return head[: _or_else(dice, len(head), 16, 15, 0)]


def _samples(dice: Random, frame_bytes: int) -> bytes:
    size = min(dice.choice((0, 1, 2, 100, 800)) * frame_bytes, 1 << 16) + dice.choice((0, 0, 0, 1, 3))
    how = dice.random()
    if how < 0.2:
        return bytes(size)
    if how < 0.4:  # floats that are no numbers, and the largest integers
        return (dice.choice((b"\xff", b"\x7f\xf8", b"\0\0\xc0\x7f", b"\x7f\x80\0\0")) * size)[:size]
    return dice.randbytes(size)


def _other_chunk(dice: Random) -> bytes:
    return chunk(dice.choice(_NAMES), dice.randbytes(dice.choice((0, 1, 4, 16, 28, 40, 300))), dice)


SEEDS = [
    b"RIFF\xff\xff\xff\xffWAVE"
    + chunk(b"fmt ", struct.pack("<HHIIHH", 1, 1, RATE, 2 * RATE, 2, 16))
    + chunk(b"data", b"ab")
]
