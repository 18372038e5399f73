"""Errors that a user can cause. Every message is one line that names the file or setting and the fix.

SusurrusError
├── ModelError    a model's files are missing, damaged, or not what the code expects
├── AudioError    an input cannot be read
├── OptionError   a setting has a value that does not exist
└── OutputError   a result cannot be written
"""

REPAIR = "provision the model again: python -m susurrus.models.provision"
"""The fix for files that the builder writes."""
COPY = "take another copy of the checkpoint"
"""The fix for files that came with the checkpoint."""


class SusurrusError(Exception):
    """Base of every error that is reported as one line, without a traceback."""


class ModelError(SusurrusError):
    """A model's files are missing, damaged, or not what the code expects."""


class AudioError(SusurrusError):
    """An input cannot be read as audio."""


class OptionError(SusurrusError):
    """A setting has a value that does not exist."""


class OutputError(SusurrusError):
    """A result cannot be written."""


def reason(error: Exception) -> str:
    """One line for an exception of Python's own."""
    if isinstance(error, KeyError):
        return f"{error.args[0]} is missing"
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)
