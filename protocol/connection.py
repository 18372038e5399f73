"""The connection file: all that an actor or a console needs to reach a pipeline.

JSON, mode 0600, in the pipeline's runtime folder; written under another name and renamed once the hub is
ready, so whoever sees it sees all of it. Actors are started as `python -m susurrus.actors.<name>
--connection FILE`; a console attaches to a FILE or to the newest living pipeline.
"""

from __future__ import annotations

import json
import os
import secrets
import stat
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from susurrus.protocol.codec import MAJOR, VERSION
from susurrus.protocol.errors import ConnectionFileError
from susurrus.protocol.runtime import candidates, is_live, runtime_folders
from susurrus.protocol.schema import ID_BYTES
from susurrus.protocol.transport import Security, Transport

FILE_NAME = "connection.json"
_MAX_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class ActorSettings:
    """What an actor must know to load its model, so that a connection file is all it needs."""

    model: str = ""
    """Model directory."""
    precision: str = "int8"
    """`int8` or `float32`."""
    threads: int = 1
    """Intra-op threads of a session."""
    provider: str = "cpu"
    """Execution provider of the sessions."""


@dataclass(frozen=True, slots=True)
class Connection:
    """What the connection file says."""

    pid: int
    """Process that runs the hub."""
    instance: bytes
    """The hub's 16 bytes."""
    hub: str
    """Endpoint of the hub's lines."""
    events: str
    """Endpoint of the published events."""
    transport: Transport
    """Scheme, runtime folder and CURVE keys."""
    started: float
    """Wall clock, seconds since 1970."""
    settings: ActorSettings = ActorSettings()
    """For the actors of the pipeline."""
    protocol: str = VERSION
    """Version of the protocol, major.minor."""

    @property
    def folder(self) -> Path:
        """The pipeline's runtime folder."""
        return self.transport.folder

    @property
    def is_live(self) -> bool:
        """Whether the pipeline's process lives, judged by the lock in its folder."""
        return is_live(self.folder)

    def write(self, path: Path | None = None) -> Path:
        """Write the file and return its path, by default FILE_NAME in the runtime folder.

        Raises:
            ConnectionFileError: It cannot be written.
        """
        target = path or self.folder / FILE_NAME
        temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
        try:
            with open(temporary, "x", encoding="utf-8", opener=_private) as file:
                json.dump(self._to_json(), file, indent=2)
                file.write("\n")
            temporary.replace(target)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            raise ConnectionFileError(f"{target}: cannot be written ({error.strerror})") from None
        return target

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a connection file.

        Raises:
            ConnectionFileError: It is missing, belongs to another user, can be read by others, is damaged, or
                speaks another major version of the protocol.
        """
        try:
            value = json.loads(_read_private(path))
        except (ValueError, RecursionError):
            raise ConnectionFileError(f"{path}: damaged or half-written; start the pipeline again") from None
        version = value.get("protocol") if isinstance(value, dict) else None
        if isinstance(version, str) and version.partition(".")[0] != str(MAJOR):
            raise ConnectionFileError(
                f"{path}: speaks protocol {version[:16]}, this program {VERSION}; "
                "use the same version of susurrus on both sides"
            )
        try:
            return cls._from_json(value)
        except (KeyError, TypeError, ValueError) as error:
            raise ConnectionFileError(f"{path}: not a connection file ({error})") from None

    def _to_json(self) -> dict[str, Any]:
        security = self.transport.security
        return {
            "protocol": self.protocol,
            "pid": self.pid,
            "instance": self.instance.hex(),
            "hub": self.hub,
            "events": self.events,
            "transport": self.transport.scheme,
            "folder": str(self.folder),
            "curve": {"public": security.public.decode(), "secret": security.secret.decode()},
            "started": self.started,
            "settings": asdict(self.settings),
        }

    @classmethod
    def _from_json(cls, value: Any) -> Self:
        instance = bytes.fromhex(_typed(value, "instance", str))
        scheme = _typed(value, "transport", str)
        if len(instance) != ID_BYTES or scheme not in ("ipc", "tcp"):
            raise ValueError("instance or transport")
        curve = _typed(value, "curve", dict)
        security = Security(_typed(curve, "public", str).encode(), _typed(curve, "secret", str).encode())
        return cls(
            pid=_typed(value, "pid", int),
            instance=instance,
            hub=_typed(value, "hub", str),
            events=_typed(value, "events", str),
            transport=Transport(scheme, Path(_typed(value, "folder", str)), security),
            started=float(_typed(value, "started", (int, float))),
            settings=_settings(_typed(value, "settings", dict)),
            protocol=_typed(value, "protocol", str),
        )


def _settings(value: dict[str, Any]) -> ActorSettings:
    return ActorSettings(
        _typed(value, "model", str),
        _typed(value, "precision", str),
        _typed(value, "threads", int),
        _typed({"provider": "cpu"} | value, "provider", str),
    )


def newest_live() -> Connection | None:
    """The connection of the pipeline started last among those that live; None when none lives.

    Looks wherever a runtime folder may be. Damaged and foreign files are passed over; nothing is changed.
    """
    found = []
    for parent in candidates():
        for folder in runtime_folders(parent):
            try:
                connection = Connection.read(folder / FILE_NAME)
            except ConnectionFileError:
                continue
            if connection.is_live:
                found.append(connection)
    return max(found, key=lambda connection: connection.started, default=None)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _read_private(path: Path) -> bytes:
    """The file's bytes, refused before they are read unless the file is this user's alone."""
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except FileNotFoundError:
        raise ConnectionFileError(f"{path}: no such connection file; does the pipeline run?") from None
    except OSError as error:
        raise ConnectionFileError(f"{path}: cannot be read ({error.strerror})") from None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise ConnectionFileError(f"{path}: not a regular file")
        if sys.platform != "win32":
            _refuse_foreign(path, status)
        return os.read(descriptor, _MAX_BYTES)
    finally:
        os.close(descriptor)


def _refuse_foreign(path: Path, status: os.stat_result) -> None:
    if status.st_uid != os.geteuid():
        raise ConnectionFileError(f"{path}: belongs to user {status.st_uid}, not to you; not used")
    if status.st_mode & 0o077:
        mode = stat.S_IMODE(status.st_mode)
        raise ConnectionFileError(f"{path}: open to other users (mode {mode:04o}); run `chmod 600` on it")


def _typed(value: Any, name: str, kind: type | tuple[type, ...]) -> Any:
    found = value[name]
    if not isinstance(found, kind) or isinstance(found, bool):
        raise TypeError(name)
    return found
