"""Whisper as plain functions and small classes on numpy arrays: no sockets, no processes, no printing."""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from susurrus.models.audio import AudioReader
    from susurrus.models.config import ModelConfig
    from susurrus.models.errors import AudioError, ModelError, OptionError, SusurrusError
    from susurrus.models.mel import LogMel
    from susurrus.models.options import DecodingOptions
    from susurrus.models.provision import ensure_model
    from susurrus.models.results import Cue, Partial, Segment, Transcript, Word
    from susurrus.models.sessions import Decoder, Encoder
    from susurrus.models.tokenizer import Tokenizer
    from susurrus.models.whisper import Whisper

# ONNX Runtime (1.32) keeps a device id in the user's cache, writes a session id into the temporary folder and has a
# client that uploads, from its import on. What runs offline does not. Whoever imports it here has imported this first.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

__all__ = [
    "AudioError",
    "AudioReader",
    "Cue",
    "Decoder",
    "DecodingOptions",
    "Encoder",
    "LogMel",
    "ModelConfig",
    "ModelError",
    "OptionError",
    "Partial",
    "Segment",
    "SusurrusError",
    "Tokenizer",
    "Transcript",
    "Whisper",
    "Word",
    "ensure_model",
]

_HOME = {
    "AudioError": "susurrus.models.errors",
    "AudioReader": "susurrus.models.audio",
    "Cue": "susurrus.models.results",
    "Decoder": "susurrus.models.sessions",
    "DecodingOptions": "susurrus.models.options",
    "Encoder": "susurrus.models.sessions",
    "LogMel": "susurrus.models.mel",
    "ModelConfig": "susurrus.models.config",
    "ModelError": "susurrus.models.errors",
    "OptionError": "susurrus.models.errors",
    "Partial": "susurrus.models.results",
    "Segment": "susurrus.models.results",
    "SusurrusError": "susurrus.models.errors",
    "Tokenizer": "susurrus.models.tokenizer",
    "Transcript": "susurrus.models.results",
    "Whisper": "susurrus.models.whisper",
    "Word": "susurrus.models.results",
    "ensure_model": "susurrus.models.provision",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: the frontend's process starts without ONNX Runtime."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
