"""Keys for pipelines that listen on the network: `python -m susurrus.protocol.keys --help`.

The machine that listens has one CURVE key pair, `server.key`, and the list of the clients it lets in, `authorized`:
one line each, the client's public key and its name, as ssh has it. Both are in one folder and their owner's alone. A
client's pair is made on its own machine, inside the connection file that it attaches with; its secret half never
leaves that file. Keys are written as 64 hexadecimal digits: nothing in them that a shell would take for its own.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import platformdirs
import zmq
from zmq.utils import z85

from susurrus.protocol.connection import Connection
from susurrus.protocol.errors import KeyFileError, WireError
from susurrus.protocol.private import read_private, write_private
from susurrus.protocol.transport import Security

FOLDER_VARIABLE = "SUSURRUS_KEYS"
"""Environment variable: the folder of keys, instead of `susurrus` in the user's folder of settings."""
SERVER_FILE = "server.key"
AUTHORIZED_FILE = "authorized"
MOST_CLIENTS = 500  # lines that a private file of 64 KiB can hold, names included

_KEY = re.compile(r"[0-9a-f]{64}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,31}")


def keys_folder() -> Path:
    """Where this user's keys are."""
    return Path(os.environ.get(FOLDER_VARIABLE) or platformdirs.user_config_path("susurrus"))


# --- the server's key -------------------------------------------------------------------------------------------


def make_server_key(folder: Path) -> Security:
    """Make the key pair of this machine.

    Raises:
        KeyFileError: There is one already, or it cannot be written.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise KeyFileError(f"{folder}: cannot be made ({error.strerror})") from None
    security = Security.generate()
    text = json.dumps({"public": to_hex(security.public), "secret": to_hex(security.secret)}, indent=2)
    write_private(folder / SERVER_FILE, text + "\n", KeyFileError, replace=False)
    return security


def read_server_key(folder: Path) -> Security:
    """The key pair of this machine.

    Raises:
        KeyFileError: It is missing, damaged, another user's, or open to others.
    """
    path = folder / SERVER_FILE
    data = read_private(path, KeyFileError, missing="no server key; make it: python -m susurrus.protocol.keys server")
    try:
        value = json.loads(data)
        security = Security(from_hex(value["public"]), from_hex(value["secret"]))
        matches = zmq.curve_public(security.secret) == security.public
    except (ValueError, TypeError, KeyError, RecursionError, KeyFileError):
        matches = False
    if not matches:
        raise KeyFileError(f"{path}: damaged or half-written; delete it and make a new one")
    return security


# --- clients that are let in ------------------------------------------------------------------------------------


def read_authorized(folder: Path) -> dict[bytes, str]:
    """Names of the clients that are let in, by public key (32 bytes); empty while there is no list.

    Raises:
        KeyFileError: The list is damaged, another user's, or open to others.
    """
    path = folder / AUTHORIZED_FILE
    if not os.path.lexists(path):
        return {}
    lines = read_private(path, KeyFileError, missing="is gone").decode(errors="replace").splitlines()
    clients = {}
    for number, line in enumerate(lines, 1):
        words = line.split()
        if not words:
            continue
        if len(words) != 2 or not _KEY.fullmatch(words[0]) or not _NAME.fullmatch(words[1]):
            raise KeyFileError(f"{path}: line {number} is not a public key and a name")
        clients[bytes.fromhex(words[0])] = words[1]
    return clients


def authorize(folder: Path, public: str, name: str) -> None:
    """Add a client to the list. It holds for connections made from now on; a pipeline need not be restarted.

    Raises:
        KeyFileError: The key or the name is none, the name is taken, or the list cannot be read or written.
    """
    clients = read_authorized(folder)
    key = z85.decode(from_hex(public))
    _check_name(name)
    if name in clients.values():
        raise KeyFileError(f"{folder / AUTHORIZED_FILE}: has a {name} already; revoke it first")
    if len(clients) >= MOST_CLIENTS:
        raise KeyFileError(f"{folder / AUTHORIZED_FILE}: has {MOST_CLIENTS} clients; revoke one first")
    _write_authorized(folder, clients | {key: name})


def revoke(folder: Path, name: str) -> None:
    """Take a client from the list. A connection that it has already lasts until the pipeline ends.

    Raises:
        KeyFileError: There is no such client, or the list cannot be read or written.
    """
    clients = read_authorized(folder)
    if name not in clients.values():
        raise KeyFileError(f"{folder / AUTHORIZED_FILE}: has no {name}")
    _write_authorized(folder, {key: client for key, client in clients.items() if client != name})


def _write_authorized(folder: Path, clients: dict[bytes, str]) -> None:
    text = "".join(f"{key.hex()} {name}\n" for key, name in clients.items())
    write_private(folder / AUTHORIZED_FILE, text, KeyFileError)


# --- a client's connection file ---------------------------------------------------------------------------------


def make_client(path: Path, address: str, server: str) -> Security:
    """Make a client's key pair and, with it, the connection file that `run.py --attach` takes.

    Args:
        path: The file to be made.
        address: `tcp://HOST:PORT` as this machine reaches it; the events are at the next port.
        server: Public key of the machine that listens.

    Raises:
        KeyFileError: The server's key is none.
        WireError: The address is none, or the file is there already or cannot be written.
    """
    security = Security.generate()
    connection = Connection.to_remote(address, Security(from_hex(server)), security)
    connection.write(path, replace=False)
    return replace(security, secret=b"")


def to_hex(key: bytes) -> str:
    """A key for people: the 64 digits for the 40 characters of Z85."""
    return z85.decode(key).hex()


def from_hex(text: str) -> bytes:
    """The Z85 form of a key.

    Raises:
        KeyFileError: It is not 64 hexadecimal digits.
    """
    if not isinstance(text, str) or not _KEY.fullmatch(text):
        raise KeyFileError("a key is 64 hexadecimal digits; the text given is not")
    return z85.encode(bytes.fromhex(text))


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise KeyFileError(f"{name!r}: a client's name has 1 to 32 letters, digits, dots and dashes")


# --- the command ------------------------------------------------------------------------------------------------


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; the public keys it makes go to standard output, which is all that has to be passed on."""
    arguments = _parser().parse_args(argv)
    folder: Path = arguments.folder or keys_folder()
    try:
        match arguments.command:
            case "server":
                _print_server_key(folder)
            case "client":
                _check_name(arguments.name)
                path = arguments.out or Path(f"{arguments.name}.json")
                security = make_client(path, arguments.to, arguments.server)
                print(to_hex(security.public), arguments.name)  # noqa: T201 - the command's result
                _say(f"{path}: made; on the machine that listens: keys authorize, with the line above")
            case "authorize":
                authorize(folder, arguments.key, arguments.name)
                _say(f"{folder / AUTHORIZED_FILE}: {arguments.name} is let in")
            case _:
                revoke(folder, arguments.name)
                _say(f"{folder / AUTHORIZED_FILE}: {arguments.name} is let in no more; it keeps a connection it has")
    except WireError as error:
        _say(f"error: {error}")
        return 2
    return 0


def _print_server_key(folder: Path) -> None:
    try:
        security = make_server_key(folder)
        _say(f"{folder / SERVER_FILE}: made; its public key, for the clients:")
    except KeyFileError:
        security = read_server_key(folder)
        _say(f"{folder / SERVER_FILE}: was there already; its public key, for the clients:")
    print(to_hex(security.public))  # noqa: T201 - the command's result


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m susurrus.protocol.keys",
        description="Keys for `run.py --listen tcp://HOST:PORT` and for clients on other machines. "
        f"Kept in {keys_folder()} ({FOLDER_VARIABLE} names another folder).",
    )
    parser.add_argument("--folder", type=Path, metavar="FOLDER", help="where the server's key and its clients are kept")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    commands.add_parser("server", help="make this machine's key, if there is none, and show its public half")
    client = commands.add_parser("client", help="make a connection file for this machine, with a key of its own")
    client.add_argument("name", help="what the listening machine is to call this one")
    client.add_argument("--to", required=True, metavar="tcp://HOST:PORT", help="of the machine that listens")
    client.add_argument("--server", required=True, metavar="KEY", help="public key of the machine that listens")
    client.add_argument("--out", type=Path, metavar="FILE", help="to be made (default: NAME.json)")
    allow = commands.add_parser("authorize", help="let a client in")
    allow.add_argument("key", help="its public key")
    allow.add_argument("name", help="what to call it")
    commands.add_parser("revoke", help="let a client in no more").add_argument("name", help="what it is called")
    return parser


if __name__ == "__main__":
    sys.exit(main())
