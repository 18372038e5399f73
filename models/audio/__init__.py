"""Audio in: a path or a stream becomes blocks of float32 mono samples at the model's rate."""

from susurrus.models.audio.reader import AudioReader, shown_name

__all__ = ["AudioReader", "shown_name"]
