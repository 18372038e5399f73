"""Thin processes around `susurrus.models`, the hub that wires them, and what other programs use of them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from susurrus.actors.client import Client, PipelineError
    from susurrus.actors.decoder import DecoderBehaviour
    from susurrus.actors.embed import EmbeddedActor
    from susurrus.actors.encoder import EncoderBehaviour
    from susurrus.actors.frontend import FrontendBehaviour
    from susurrus.actors.pipeline import Pipeline

__all__ = [
    "Client",
    "DecoderBehaviour",
    "EmbeddedActor",
    "EncoderBehaviour",
    "FrontendBehaviour",
    "Pipeline",
    "PipelineError",
]

_HOME = {
    "Client": "susurrus.actors.client",
    "DecoderBehaviour": "susurrus.actors.decoder",
    "EmbeddedActor": "susurrus.actors.embed",
    "EncoderBehaviour": "susurrus.actors.encoder",
    "FrontendBehaviour": "susurrus.actors.frontend",
    "Pipeline": "susurrus.actors.pipeline",
    "PipelineError": "susurrus.actors.client",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: an actor's process starts without what it does not need."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
