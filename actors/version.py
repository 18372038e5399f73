"""The package's version, for what must start quickly: `importlib.metadata` reads it too, and takes 20 ms to import.

A test holds it against the package's metadata.
"""

VERSION = "0.1.0"
