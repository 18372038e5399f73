"""Errors that a user can cause. Every message is one line that names the file or setting and the fix.

SusurrusError
├── ModelError    a model's files are missing, damaged, or not what the code expects
├── AudioError    an input cannot be read
├── OptionError   a setting has a value that does not exist
└── OutputError   a result cannot be written
"""


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
