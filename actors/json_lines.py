"""Events as JSON, one a line, for programs: what `--json` writes."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from susurrus.actors.terminal import Output
from susurrus.actors.view import Change, TranscriptView
from susurrus.protocol import Message

# json.dumps escapes what is below U+0020. What else would act on a terminal or is no UTF-8 is escaped here;
# outside of strings JSON has no such characters.
_ESCAPED = {
    code: f"\\u{code:04x}"
    for code in (
        *range(0x7F, 0xA0),
        0x2028,
        0x2029,
        *range(0x202A, 0x202F),
        *range(0x2066, 0x206A),
        *range(0xD800, 0xE000),
    )
}


class JsonRenderer:
    """Every event that took effect as a line of JSON: `type` and the message's fields, bytes as hexadecimal.

    A viewer that comes late or missed something first gets a `snapshot` of the jobs concerned. `welcome` and
    `beat` are about subscriptions and left out.
    """

    def __init__(self, out: Output, err: Output) -> None:
        self._out = out
        self._err = err

    def on_change(self, view: TranscriptView, changes: Sequence[Change]) -> None:  # noqa: ARG002 - events say it all
        """Write the changes, in order."""
        for change in changes:
            self._out.write(to_json(change) + "\n")
        if changes:
            self._out.flush()

    def timeout(self) -> float | None:
        """Nothing waits."""
        return None

    def error(self, text: str) -> None:
        """One line on standard error."""
        self._err.say(f"error: {text}")

    def close(self) -> None:
        """Nothing is left to write."""


def to_json(message: Message) -> str:
    """One line of strict JSON: UTF-8 text unescaped, numbers that are none become null."""
    return json.dumps(_plain(message), ensure_ascii=False, allow_nan=False).translate(_ESCAPED)


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        kind: dict[str, Any] = {"type": value.TYPE} if isinstance(value, Message) else {}
        return kind | {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    match value:
        case bytes():
            return value.hex()
        case float() if not math.isfinite(value):
            return None
        case tuple() | list():
            return [_plain(item) for item in value]
        case Mapping():
            return {str(key): _plain(item) for key, item in value.items()}
        case _:
            return value
