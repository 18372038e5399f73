"""Audio of any format, rate and number of channels as blocks of mono samples, in memory that does not grow.

Plain WAV is read by `wav`, FLAC, OGG, AIFF and other files by libsndfile, the rest (MP3, compressed WAV, MP4,
WebM, and everything else that comes through a pipe) by FFmpeg; see `decoders`. Where the rate differs,
libsoxr resamples.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Self

import numpy as np

from susurrus.models.audio.decoded import Broken, Decoded, Undecodable
from susurrus.models.audio.decoders import is_mpeg, open_pyav, open_soundfile
from susurrus.models.audio.sources import open_path, open_stream, shown_name
from susurrus.models.audio.wav import is_wav, open_wav
from susurrus.models.errors import AudioError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from types import TracebackType

    from numpy.typing import NDArray

__all__ = ["AudioReader", "shown_name"]

_RATES = range(1_000, 1_000_001)  # Hz; outside of it a header is damaged, and resampling could need any memory
_ABSURD = 1e6  # times full scale; beyond it, and at NaN and infinity, a float sample is damage
_CANCELLED = 0.1  # of the mean's power, against independent channels: below it the channels cancel
_AUDIBLE = 1e-8  # mean square (-80 dBFS) from which a block may decide how channels are mixed
_HEAD = 64  # bytes that tell what a file is

_MAGIC = (
    (b"\xff\xd8\xff", "a JPEG picture"),
    (b"\x89PNG", "a PNG picture"),
    (b"GIF8", "a GIF picture"),
    (b"%PDF", "a PDF document"),
    (b"PK\x03\x04", "a ZIP archive"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"\x7fELF", "a program"),
    (b"MZ", "a program"),
)
_AUDIO_MAGIC = frozenset({b"RIFF", b"RF64", b"BW64", b"RIFX", b"OggS", b"fLaC", b"FORM", b".snd", b"\x1aE\xdf\xa3"})


class AudioReader:
    """Iterates over the blocks of one input: float32 mono (n,), about a second each, at `sample_rate`.

    Channels are averaged. Where that cancels them (opposite phase), the loudest channel is taken instead,
    from that block to the end. A mono input of the wanted rate is not touched: 16-bit samples are exactly
    n / 32768.

    Damage ends an input, or leaves a hole where the format allows to go on: the good part is given and
    `warnings` says where it broke.

    Args:
        source: A path, or a binary stream that need not be seekable (standard input) and is not closed here.
        sample_rate: Of the blocks, in Hz.
        name: How messages name the input; the path by default.

    Raises:
        AudioError: The input is missing or not audio. Iteration raises it too, where not one sample could be
            read.
    """

    duration: float | None
    """Seconds by the header, None where that is not known (a pipe, a streaming encoder)."""
    warnings: list[str]
    """One line for each kind of damage met so far, with its time."""

    def __init__(self, source: str | Path | BinaryIO, sample_rate: int, *, name: str | None = None) -> None:
        if isinstance(source, str | Path):
            self.name = shown_name(source if name is None else name)
            self._stream = open_path(Path(source), self.name)
        else:
            self.name = shown_name("standard input" if name is None else name)
            self._stream = open_stream(source)
        self.warnings = []
        self._sample_rate = sample_rate
        self._warned: set[str] = set()
        self._frames = 0  # decoded so far
        self._loudest: int | None = None
        try:
            self._decoded = self._open()
        except BaseException:
            self._stream.close()
            raise
        self.duration = self._decoded.duration
        self._blocks = self._resampled()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[NDArray[np.float32]]:
        return self

    def __next__(self) -> NDArray[np.float32]:
        return next(self._blocks)

    def close(self) -> None:
        """Ends the iteration and closes the file."""
        self._blocks.close()
        self._stream.close()

    def _open(self) -> Decoded:
        try:
            self._start = self._stream.tell() if self._stream.seekable() else 0
            decoded = self._open_decoder(self._stream.peek(_HEAD))
        except OSError as error:
            raise AudioError(f"{self.name}: cannot be read: {error.strerror or error}") from error
        if decoded.rate not in _RATES:
            raise AudioError(f"{self.name}: its header says {decoded.rate} Hz, so the header is damaged")
        return decoded

    def _open_decoder(self, head: bytes) -> Decoded:
        if not head:
            raise AudioError(f"{self.name}: empty (0 bytes)")
        if is_wav(head):
            try:
                return open_wav(self._stream)
            except Undecodable as error:
                if error.final:
                    raise AudioError(f"{self.name}: {error}") from error
        elif self._stream.seekable() and not is_mpeg(head):
            try:
                return open_soundfile(self._stream)
            except Undecodable:
                pass  # FFmpeg may know it
        try:
            return open_pyav(self._stream, self._damage)
        except Undecodable as error:
            if head[4:8] == b"ftyp" and not self._stream.seekable():
                raise AudioError(
                    f"{self.name}: an MP4 whose index comes last cannot be read from a pipe: name the file instead"
                ) from error
            raise AudioError(f"{self.name}: {_refusal(head, shown_name(str(error)))}") from error

    def _resampled(self) -> Generator[NDArray[np.float32], None, None]:
        if self._decoded.rate == self._sample_rate:
            yield from self._mono()
            return
        import soxr  # noqa: PLC0415  lazy: not needed for what already has the rate

        resampler = soxr.ResampleStream(self._decoded.rate, self._sample_rate, 1, dtype="float32", quality="HQ")
        for block in self._mono():
            if len(resampled := resampler.resample_chunk(block)):
                yield resampled
        if len(resampled := resampler.resample_chunk(np.empty(0, np.float32), last=True)):
            yield resampled

    def _mono(self) -> Iterator[NDArray[np.float32]]:
        for block in self._decode():
            mono = self._mix(self._clean(block))
            self._frames += len(mono)
            if len(mono):
                yield mono

    def _decode(self) -> Iterator[NDArray[np.floating]]:
        """The decoder's blocks; after damage the rest that FFmpeg, which finds its way back, can get."""
        try:
            yield from self._decoded.blocks
        except (Broken, OSError) as error:
            reason = shown_name(str(error))
        else:
            return
        if self._frames:
            self._damage(self._frames / self._decoded.rate, reason)
        if self._decoded.resumable:
            try:
                self._stream.seek(self._start)
                yield from open_pyav(self._stream, self._damage, skip=self._frames).blocks
            except (Undecodable, Broken, OSError):
                pass  # the damage has been reported
        if not self._frames:
            raise AudioError(f"{self.name}: {reason}")

    def _clean(self, block: NDArray[np.floating]) -> NDArray[np.float32]:
        bad = ~(np.abs(block) <= _ABSURD)  # NaN compares as false
        if bad.any():
            first = self._frames + int(bad.any(axis=1).argmax())
            self._warn("numbers", first / self._decoded.rate, "samples that are not numbers are read as silence")
            block = np.where(bad, 0, block)
        return block.astype(np.float32, copy=False)

    def _mix(self, block: NDArray[np.float32]) -> NDArray[np.float32]:
        n, channels = block.shape
        if channels > 1 and self._loudest is None:
            mean: NDArray[np.float32] = block.mean(axis=1, dtype=np.float32)
            power = np.einsum("ij,ij->j", block, block) / max(n, 1)  # (channels,)
            independent = power.sum() / channels**2  # the mean's power if the channels had nothing in common
            cancels = mean @ mean / max(n, 1) < _CANCELLED * independent
            # A few samples may cancel by chance.
            if not cancels or power.max() < _AUDIBLE or n < self._decoded.rate // 20:
                return mean
            self._loudest = int(power.argmax())
        return np.ascontiguousarray(block[:, min(self._loudest or 0, channels - 1)])

    def _damage(self, seconds: float, text: str) -> None:
        self._warn("damage", seconds, text)

    def _warn(self, kind: str, seconds: float, text: str) -> None:
        """Notes the first trouble of a kind: a hole, say, also makes a file shorter than its header says."""
        if kind not in self._warned:
            self._warned.add(kind)
            self.warnings.append(f"{self.name}: at {seconds:.2f} s: {text}")


def _refusal(head: bytes, reason: str) -> str:
    """What an unreadable file is, by its first bytes, and what to do about it."""
    for magic, what in _MAGIC:
        if head.startswith(magic):
            return f"{what}, not audio: name an audio file"
    if is_mpeg(head) or head[:4] in _AUDIO_MAGIC or head[4:8] == b"ftyp":
        return f"damaged, cut off or not audio ({reason}): take another copy, or convert it to WAV or FLAC"
    text = head.decode("utf-8", "ignore")
    if text and all(char.isprintable() or char.isspace() for char in text) and b"\0" not in head:
        return "text, not audio: name an audio file"
    return (
        f"no known audio format ({reason}): raw samples need a header first, "
        "e.g. ffmpeg -f s16le -ar 16000 -ac 1 -i IN OUT.wav"
    )
