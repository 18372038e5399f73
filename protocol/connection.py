"""The connection file: all that an actor or a console needs to reach a pipeline.

JSON, mode 0600, in the pipeline's runtime folder; written under another name and renamed once the hub is
ready, so whoever sees it sees all of it. Actors are started as `python -m susurrus.actors.<name>
--connection FILE`; a console attaches to a FILE or to the newest living pipeline. A client on another machine
has a file of its own that outlives any pipeline: the endpoints, the server's public key, its own key pair.
"""

from __future__ import annotations

import json
import math
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from susurrus.protocol.checks import ID_BYTES
from susurrus.protocol.codec import MAJOR, VERSION
from susurrus.protocol.errors import ConnectionFileError, EndpointError
from susurrus.protocol.private import read_private, write_private
from susurrus.protocol.records import record
from susurrus.protocol.runtime import candidates, is_live, runtime_folders
from susurrus.protocol.transport import Security, Transport, parse_tcp

if TYPE_CHECKING:
    from susurrus.protocol.lines import HubLine

FILE_NAME = "connection.json"
REMOTE_SILENCE_S = 10.0
"""A remote pipeline beats every second: after this silence it is given up."""
REMOTE_TROUBLE_S = 3.0
"""The same, when the socket can tell why."""
KEY_CHARACTERS = 40
"""Of a key in Z85."""


@record
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


@record
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
    listens: str = ""
    """Endpoint of the hub's lines for clients on other machines; empty when there is none."""
    resident: bool = False
    """Whether it stays for others' jobs, and does not end with those of its owner."""

    @classmethod
    def to_remote(cls, address: str, server: Security, client: Security) -> Self:
        """How a client on another machine reaches a pipeline that listens.

        Args:
            address: `tcp://HOST:PORT`, as the client's machine sees it; the events are at the next port.
            server: The public key of the machine that listens.
            client: The client's own pair.

        Raises:
            EndpointError: The address is none.
        """
        host, port = parse_tcp(address)
        transport = Transport("remote", Path(), Security(server.public), client)
        events = f"tcp://{host}:{port + 1}"
        parse_tcp(events)
        return cls(0, bytes(ID_BYTES), address, events, transport, 0.0)

    @property
    def is_local(self) -> bool:
        """Whether the pipeline runs on this machine: then the lock in its folder tells whether it lives."""
        return self.transport.scheme != "remote"

    @property
    def folder(self) -> Path:
        """The pipeline's runtime folder; of no use for a remote one."""
        return self.transport.folder

    @property
    def is_live(self) -> bool:
        """Whether the pipeline's process lives, judged by the lock in its folder; always true of a remote one."""
        return not self.is_local or is_live(self.folder)

    def why_lost(self, line: HubLine, heard: float, patience: float) -> str:
        """Why a client that has heard nothing for too long should give up, in one sentence; empty while it should not.

        Args:
            line: The client's line to the hub.
            heard: When something was heard last, or the waiting began, seconds of `time.monotonic`.
            patience: Seconds of silence after which to look whether a local pipeline lives.
        """
        silent_s = time.monotonic() - heard
        if self.is_local:
            gone = silent_s > patience and not self.is_live
            return "the pipeline ended without a word: its process was killed" if gone else ""
        trouble = line.trouble()
        if silent_s > (REMOTE_TROUBLE_S if trouble else REMOTE_SILENCE_S):
            return f"{self.hub}: {trouble or f'nothing was heard of it for {REMOTE_SILENCE_S:.0f} s'}"
        return ""

    def write(self, path: Path | None = None, *, replace: bool = True) -> Path:
        """Write the file and return its path, by default FILE_NAME in the runtime folder.

        Args:
            path: Where to.
            replace: Whether a file that is there already may be replaced.

        Raises:
            ConnectionFileError: It cannot be written, or is there already.
        """
        target = path or self.folder / FILE_NAME
        write_private(target, json.dumps(self._to_json(), indent=2) + "\n", ConnectionFileError, replace=replace)
        return target

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a connection file.

        Raises:
            ConnectionFileError: It is missing, belongs to another user, can be read by others, is damaged, or
                speaks another major version of the protocol.
        """
        try:
            missing = "no such connection file; does the pipeline run?"
            value = json.loads(read_private(path, ConnectionFileError, missing=missing))
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
        except (KeyError, TypeError, ValueError, EndpointError) as error:
            raise ConnectionFileError(f"{path}: not a connection file ({error})") from None

    def _to_json(self) -> dict[str, Any]:
        security, client = self.transport.security, self.transport.client
        if not self.is_local:
            return {
                "protocol": self.protocol,
                "hub": self.hub,
                "events": self.events,
                "transport": self.transport.scheme,
                "curve": {"public": security.public.decode()},
                "client": {"public": client.public.decode(), "secret": client.secret.decode()},
            }
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
            "resident": self.resident,
            "listens": self.listens,
        }

    @classmethod
    def _from_json(cls, value: Any) -> Self:
        if value["transport"] == "remote":
            return cls._remote_from_json(value)
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
            started=_finite(value, "started"),
            settings=_settings(_typed(value, "settings", dict)),
            protocol=_typed(value, "protocol", str),
            resident=value.get("resident") is True,
            listens=_typed({"listens": ""} | value, "listens", str),
        )

    @classmethod
    def _remote_from_json(cls, value: Any) -> Self:
        hub, events, protocol = (_typed(value, name, str) for name in ("hub", "events", "protocol"))
        parse_tcp(hub)
        parse_tcp(events)
        curve, client = _typed(value, "curve", dict), _typed(value, "client", dict)
        own = Security(_key(client, "public"), _key(client, "secret"))
        transport = Transport("remote", Path(), Security(_key(curve, "public")), own)
        return cls(0, bytes(ID_BYTES), hub, events, transport, 0.0, protocol=protocol)


def _settings(value: dict[str, Any]) -> ActorSettings:
    return ActorSettings(
        _typed(value, "model", str),
        _typed(value, "precision", str),
        _typed(value, "threads", int),
        _typed({"provider": "cpu"} | value, "provider", str),
    )


def newest_live(*, resident: bool = False) -> Connection | None:
    """The connection of the pipeline started last among those that live; None when none lives.

    Args:
        resident: only those that stay for others' jobs count.

    Looks wherever a runtime folder may be. Damaged and foreign files are passed over; nothing is changed.
    """
    found = []
    for parent in candidates():
        for folder in runtime_folders(parent):
            try:
                connection = Connection.read(folder / FILE_NAME)
            except ConnectionFileError:
                continue
            if connection.is_live and connection.resident >= resident:
                found.append(connection)
    return max(found, key=lambda connection: connection.started, default=None)


def _typed(value: Any, name: str, kind: type | tuple[type, ...]) -> Any:
    found = value[name]
    if not isinstance(found, kind) or isinstance(found, bool):
        raise TypeError(name)
    return found


def _key(value: dict[str, Any], name: str) -> bytes:
    found = _typed(value, name, str).encode("ascii")
    if len(found) != KEY_CHARACTERS:
        raise ValueError(f"{name} key")
    return bytes(found)


def _finite(value: Any, name: str) -> float:
    number = float(_typed(value, name, (int, float)))
    if not math.isfinite(number):
        raise ValueError(name)
    return number
