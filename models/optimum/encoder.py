"""The encoder of an Optimum export, with the call of our own (`models/sessions.py`)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from susurrus.models.config import ModelConfig
from susurrus.models.context import AudioContext
from susurrus.models.optimum.contract import open_encoder
from susurrus.models.optimum.files import find_export
from susurrus.models.providers import CPU

FloatArray = NDArray[np.float32]


class ExportedEncoder:
    """Log-mel to hidden states.

    Args:
        directory: The model directory.
        precision: See `find_export`.
        threads: Of the session; 0 takes the CPUs this process may use.
        provider: That runs the graph, a name of `models/providers.py`.

    Raises:
        ModelError: The file is missing, damaged, or another kind of graph.
    """

    def __init__(self, directory: Path, *, precision: str | None = None, threads: int = 0, provider: str = CPU) -> None:
        dimensions = ModelConfig.from_directory(directory).dimensions
        self._shape = (dimensions.n_mels, 2 * dimensions.n_audio_ctx)
        self._graph = open_encoder(find_export(directory, precision).encoder, dimensions, threads, provider)

    def __call__(self, mel: FloatArray) -> FloatArray:
        """Encodes one window.

        Args:
            mel: float32 (n_mels, 2 n_audio_ctx): exported encoders take nothing shorter than a full window.

        Returns:
            float32 (n_audio_ctx, n_audio_state).

        Raises:
            ValueError: `mel` has another shape.
        """
        if mel.shape != self._shape:
            raise ValueError(f"mel has shape {mel.shape}, an exported encoder wants {self._shape}")
        inputs = {self._graph.inputs["mel"]: mel[np.newaxis].astype(np.float32, copy=False)}
        hidden_states: FloatArray = self._graph.session.run([self._graph.outputs["hidden_states"]], inputs)[0][0]
        return hidden_states

    def encode_window(
        self,
        mel: FloatArray,
        silence: float,
        *,
        full: bool = True,  # noqa: ARG002 - as in sessions.Encoder
    ) -> tuple[FloatArray, AudioContext]:
        """Encodes a window: always every position of it.

        Args:
            mel: float32 (n_mels, n_frames), the frames that hold audio.
            silence: Value of all frames behind them.
            full: Exported graphs know nothing else.

        Returns:
            Hidden states, float32 (n_audio_ctx, n_audio_state), and the full context.

        Raises:
            ValueError: `mel` has another shape.
        """
        total = self._shape[1] // 2
        context = AudioContext(total, total)
        return self(context.frames(mel, silence)), context
