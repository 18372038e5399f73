"""A log-mel as a picture: time to the right, frequency upwards, speech marked below.

PNG is a header, zlib and checksums (W3C "Portable Network Graphics", section 5): with a palette that is less than it
takes to install a plotting library, and the picture is the same on every machine.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]

MAX_WIDTH = 1500
"""Pixels; more frames share a column, which shows the loudest."""
BIN_HEIGHT = 3
"""Pixels of a mel bin."""
MARK_HEIGHT, TICK_HEIGHT, LABEL_HEIGHT, MARGIN = 8, 5, 12, 4
SCALE = 2
"""Pixels of a digit's dot."""

_STOPS = ((0, 0, 4), (60, 15, 110), (145, 40, 125), (225, 75, 90), (252, 160, 90), (252, 253, 191))
"""From the floor to the loudest: dark to light, so that it reads in grey as well."""
SHADES = 240
BACKGROUND, INK, SPEECH, NO_SPEECH = range(SHADES, SHADES + 4)
_OTHERS = ((255, 255, 255), (40, 40, 40), (30, 160, 70), (215, 215, 215))

_FONT = {
    "0": (7, 5, 5, 5, 7),
    "1": (2, 6, 2, 2, 7),
    "2": (7, 1, 7, 4, 7),
    "3": (7, 1, 7, 1, 7),
    "4": (5, 5, 7, 1, 1),
    "5": (7, 4, 7, 1, 7),
    "6": (7, 4, 7, 5, 7),
    "7": (7, 1, 1, 2, 2),
    "8": (7, 5, 7, 5, 7),
    "9": (7, 5, 7, 1, 7),
    ".": (0, 0, 0, 0, 2),
    "s": (0, 7, 4, 3, 7),
    " ": (0, 0, 0, 0, 0),
}
"""Five rows of three dots each, the leftmost worth 4."""


def mel_picture(
    mel: NDArray[np.float32], start: float, end: float, speech: Sequence[tuple[float, float]], *, floor: float
) -> bytes:
    """The PNG file of a window.

    Args:
        mel: float32 (n_mels, n_frames).
        start: of the window in the recording, in seconds.
        end: of the window, in seconds.
        speech: stretches in which somebody speaks, in seconds of the recording; green below the picture.
        floor: value shown darkest, as NaN is; the largest one is shown lightest.
    """
    columns = _columns(mel)
    width = columns.shape[1]
    top = float(np.nanmax(columns, initial=floor))
    shades = np.nan_to_num((columns - floor) / max(top - floor, 1e-6)).clip(0, 1) * (SHADES - 1)
    body = np.repeat(shades[::-1].astype(np.uint8), BIN_HEIGHT, axis=0)
    axis = _axis(width, start, end, speech)
    image = np.full((len(body) + len(axis) + 2 * MARGIN, width + 2 * MARGIN), BACKGROUND, np.uint8)
    image[MARGIN : MARGIN + len(body), MARGIN:-MARGIN] = body
    image[MARGIN + len(body) : -MARGIN, MARGIN:-MARGIN] = axis
    return png(image, _palette())


def png(image: Bytes, palette: Bytes) -> bytes:
    """A PNG file.

    Args:
        image: uint8 (height, width), indices into the palette.
        palette: uint8 (n, 3), red, green and blue; n at most 256.
    """
    height, width = image.shape
    lines = np.zeros((height, width + 1), np.uint8)  # each line begins with its filter: 0, none
    lines[:, 1:] = image
    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)  # 8 bits, palette
    data = zlib.compress(lines.tobytes())
    chunks = ((b"IHDR", header), (b"PLTE", palette.tobytes()), (b"IDAT", data), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
        for name, content in chunks
    )


def _columns(mel: NDArray[np.float32]) -> NDArray[np.float32]:
    """The loudest of every few frames, so that the picture is not wider than it may be."""
    step = -(-mel.shape[1] // MAX_WIDTH)
    return np.asarray(np.fmax.reduceat(mel, np.arange(0, mel.shape[1], step), axis=1))


def _palette() -> Bytes:
    places = np.linspace(0, len(_STOPS) - 1, SHADES)
    shades = [np.interp(places, range(len(_STOPS)), channel) for channel in zip(*_STOPS, strict=True)]
    return np.vstack([np.stack(shades, axis=1).round(), _OTHERS]).astype(np.uint8)


def _axis(width: int, start: float, end: float, speech: Sequence[tuple[float, float]]) -> Bytes:
    """Speech marks, ticks every second (longer ones where there is a label), and the labels."""
    strip = np.full((MARK_HEIGHT + TICK_HEIGHT + LABEL_HEIGHT, width), BACKGROUND, np.uint8)
    per_second = width / max(end - start, 1e-6)

    def at(seconds: float) -> int:
        return min(max(round((seconds - start) * per_second), 0), width - 1)

    strip[1 : MARK_HEIGHT - 1] = NO_SPEECH
    for begin, stop in speech:
        strip[1 : MARK_HEIGHT - 1, at(begin) : at(stop) + 1] = SPEECH
    room = 1.5 * _label_width(f"{end:.0f} s")
    every = next((step for step in (1, 2, 5, 10) if step * per_second >= room), 60)
    for second in range(int(-(-start // 1)), int(end) + 1):
        labelled = second % every == 0
        strip[MARK_HEIGHT : MARK_HEIGHT + (TICK_HEIGHT if labelled else 2), at(second)] = INK
        if labelled:
            _write(strip[MARK_HEIGHT + TICK_HEIGHT + 1 :], f"{second} s", at(second))
    return strip


def _label_width(text: str) -> int:
    return len(text) * 4 * SCALE


def _write(strip: Bytes, text: str, centre: int) -> None:
    """Put text onto a strip around a column; what does not fit is moved inside."""
    bits = (3, 2, 1, 0)  # of three dots and a gap
    dots = np.array([[_FONT[letter][row] << 1 >> bit & 1 for letter in text for bit in bits] for row in range(5)])
    pixels = np.kron(dots, np.ones((SCALE, SCALE), np.uint8)).astype(bool)
    left = min(max(centre - pixels.shape[1] // 2, 0), strip.shape[1] - pixels.shape[1])
    if left >= 0:
        strip[: len(pixels), left : left + pixels.shape[1]][pixels] = INK
