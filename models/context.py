"""Which of the encoder's positions are computed: all that hold audio, and a sample of the silence behind it.

Whisper was trained on windows of 30 s. A shorter recording is filled up with silence, and the encoder spends most of
its time on that; leaving the silence out changes the answers, because in every softmax the silent keys had their share.
So the silence is *sampled and weighted*: its first second is kept position by position, and of the rest one position in
eight, the middle one of its block. Each of these keys is given the weight of the block it stands for: the logarithm of
the number of positions is added to its attention scores, in every encoder layer and in the decoder's cross-attention.

    position   0 ... audio ... | one second of silence | ...x....|...x....| ... 1499
    weight     1  1  1 1 1  1  |  1 1 1 1 1 1 1 1 1 1  |    8   |    8   | ...

Positions keep their place in the window, so timestamps mean what they always do. With a weight of one each, nothing is
left of all this but Whisper. This project's own; measured in docs/performance.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from susurrus.models.mel import pad_frames

KEPT_SECONDS = 1.0
"""Silence behind the audio that is computed position by position."""
BLOCK = 8
"""Positions of the silence behind that, of which one is computed."""

_EDGE = 3  # positions of silence that the convolutions are given: the first hears audio, the last the window's edge


@dataclass(frozen=True, slots=True)
class AudioContext:
    """The positions of one window that are computed."""

    kept: int
    """The first so many are computed one by one; the others are sampled."""
    total: int
    """Of the full window: the model's `n_audio_ctx`."""

    @classmethod
    def of_audio(cls, n_frames: int, total: int, seconds: float) -> AudioContext:
        """The context of a window.

        Args:
            n_frames: log-mel frames that hold audio; two are a position.
            total: positions of a full window.
            seconds: length of a full window.
        """
        kept = -(-n_frames // 2) + round(KEPT_SECONDS * total / seconds)
        return cls(min(kept, total), total) if total - kept > BLOCK else cls(total, total)

    @property
    def is_full(self) -> bool:
        """Whether all positions are computed."""
        return self.kept >= self.total

    @property
    def positions(self) -> NDArray[np.int64]:
        """Those that are computed, int64 (C,), ascending."""
        starts = self._starts
        return np.concatenate([np.arange(self.kept), starts + (self._sizes(starts) - 1) // 2]).astype(np.int64)

    @property
    def counts(self) -> NDArray[np.int64]:
        """How many positions each of them stands for, int64 (C,): their sum is `total`."""
        return np.concatenate([np.ones(self.kept, np.int64), self._sizes(self._starts)])

    @property
    def log_counts(self) -> NDArray[np.float32]:
        """What is added to the attention scores of each as a key, float32 (C,)."""
        return np.log(self.counts).astype(np.float32)

    @property
    def _starts(self) -> NDArray[np.int64]:
        return np.arange(self.kept, self.total, BLOCK, dtype=np.int64)

    def _sizes(self, starts: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.minimum(BLOCK, self.total - starts)

    def frames(self, mel: NDArray[np.float32], silence: float) -> NDArray[np.float32]:
        """The log-mel that the convolutions are given, float32 (n_mels, T), T even and at most 2 `total`.

        All silence sounds the same to the convolutions but at the end of the audio and at the window's edge, so that a
        few frames of it are enough: `rows` says which of the convolved positions stands for which.

        Args:
            mel: float32 (n_mels, n_frames), the frames that hold audio.
            silence: value of all frames behind them.
        """
        n_frames = 2 * self.total if self.is_full else min(2 * self.total, 2 * (-(-mel.shape[1] // 2) + _EDGE))
        return pad_frames(mel, silence, n_frames)

    def rows(self, n_frames: int) -> NDArray[np.int64]:
        """The convolved position of `frames`, of n_frames, that each of `positions` takes, int64 (C,)."""
        if n_frames >= 2 * self.total:
            return self.positions
        return np.minimum(self.positions, n_frames // 2 - 2)
