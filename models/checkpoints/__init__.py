"""Whisper checkpoints as tensors under one set of names, whichever layout they come in."""
