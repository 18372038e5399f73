"""From the files that the processes wrote to one trace: names, tables, summaries, one file of all events."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from susurrus.actors.lanes import FRONTEND, KINDS
from susurrus.actors.terminal import neutralise
from susurrus.actors.trace_journal import EVENTS, Event, make_private, write_private
from susurrus.models.errors import OutputError
from susurrus.models.tracing import Story, WindowTrace, summary, token_table, token_text

PROCESSES = ("run", FRONTEND, *KINDS)
"""In the order in which a viewer shows them; those of further lanes come next, the console last."""
LAST = 10_000
LONGEST_NAME = 80
"""Characters of a recording's folder."""

Json = dict[str, Any]


def put_together(folder: Path) -> list[Path]:
    """Name the folders after their recordings, write tables, summaries and `trace.json`; return the summaries.

    It can be done again.

    Raises:
        OutputError: there is no trace in the folder, or nothing can be written there.
    """
    try:
        events = read_events(folder)
        if not events:
            raise OutputError(f"{folder}: there is no trace in it: name the folder that --trace was given")
        write_private(folder / "trace.json", _chrome(events))
        return [_report(folder, events, job, *names) for job, names in recordings(events).items()]
    except OSError as error:
        raise OutputError(f"{error.filename or folder}: cannot be written: {error.strerror}") from error


def read_events(folder: Path) -> list[Event]:
    """The events of all processes in order of time, those that name processes and threads first."""
    events: list[Event] = []
    for path in sorted((folder / EVENTS).glob("*.jsonl")):
        events += read_lines(path)
    return sorted(events, key=lambda event: (event.get("ts", -1.0), -event.get("dur", 0.0)))


def read_lines(path: Path) -> list[Json]:
    """The JSON objects of a file, a line each; a last line that was not finished is left out, and so is no file."""
    if not path.is_file():
        return []
    found: list[Json] = []
    for line in path.read_bytes().splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            break
    return found


def _chrome(events: list[Event]) -> bytes:
    """The file for a viewer. Time begins with the first event."""
    first = next((event["ts"] for event in events if "ts" in event), 0.0)
    moved = [{**event, "ts": round(event["ts"] - first, 3)} if "ts" in event else event for event in events]
    order = [
        {
            "ph": "M",
            "name": "process_sort_index",
            "pid": event["pid"],
            "tid": event["tid"],
            "args": {"sort_index": rank},
        }
        for event in events
        if event["name"] == "process_name"
        for rank in [_rank(event["args"]["name"])]
    ]
    return json.dumps({"traceEvents": [*order, *moved], "displayTimeUnit": "ms"}, indent=None).encode()


def _rank(process: str) -> int:
    kind, _, lane = process.partition("-")
    return PROCESSES.index(kind) + len(KINDS) * (int(lane or 1) - 1) if kind in PROCESSES else LAST


# --- recordings -------------------------------------------------------------------------------------------------


def recordings(events: Iterable[Event]) -> dict[str, tuple[str, str]]:
    """Job -> what the user calls its recording, and its folder's name, in the order in which they came."""
    names: dict[str, str] = {}
    for event in events:
        args = event.get("args", {})
        if "job" in args and "name" in args:
            names.setdefault(args["job"], args["name"])
    found: dict[str, tuple[str, str]] = {}
    taken = {EVENTS, "trace.json"}
    for job, name in names.items():
        safe = unique = safe_name(name)
        number = 1
        while unique.casefold() in taken:
            number += 1
            unique = f"{safe}-{number}"
        taken.add(unique.casefold())
        found[job] = (name, unique)
    return found


def safe_name(name: str) -> str:
    """A folder's name for a recording: its file's, without folders and ending, and without what a path may not hold."""
    stem = Path(name.replace("\\", "/")).stem
    return re.sub(r"[^\w.()-]+", "_", stem).strip("._")[:LONGEST_NAME] or "recording"


def _report(folder: Path, events: list[Event], job: str, name: str, safe: str) -> Path:
    """Write the files of one recording; return the summary's path."""
    home = make_private(folder / safe)
    _move(folder / job, home)
    own = [event for event in events if event.get("args", {}).get("job") == job]
    first = next((event["ts"] for event in events if "ts" in event), 0.0)
    waits = list(_waits(own, _process_names(events), first))
    write_private(home / "queues.tsv", _table(waits))
    windows = [_window(path, *key, waits) for key, path in sorted((_key(path), path) for path in home.glob("window-*"))]
    path = home / "summary.txt"
    models = {event["args"]["model"] for event in events if event["name"] == "ready" and event["args"].get("model")}
    remarks = [f"model {', '.join(sorted(models))}", *_remarks(own)] if models else list(_remarks(own))
    write_private(path, summary(neutralise(name), windows, remarks).encode("utf-8", "backslashreplace"))
    return path


def _move(unnamed: Path, home: Path) -> None:
    """Move what actors have put into the folder of a job, file by file: some may have been moved before."""
    for path in sorted(unnamed.rglob("*"), reverse=True):
        if path.is_dir():
            path.rmdir()
        else:
            path.replace(make_private(home / path.parent.relative_to(unnamed)) / path.name)
    if unnamed.is_dir():
        unnamed.rmdir()


def _key(folder: Path) -> tuple[int, int]:
    """Window and attempt of a window's folder."""
    window, _, attempt = folder.name.removeprefix("window-").partition(".attempt-")
    return int(window), int(attempt or 1)


def _window(folder: Path, window: int, attempt: int, waits: list[Json]) -> WindowTrace:
    """Write the tables of one window; return what its files say."""
    story = Story.from_records(read_lines(folder / "decoding.jsonl"))
    if story.window:
        write_private(folder / "tokens.tsv", token_table(story).encode())
        write_private(folder / "tokens.txt", token_text(story).encode())
    own = [wait for wait in waits if (wait["window"], wait["attempt"]) == (window, attempt)]
    return WindowTrace(
        name=f"window {window}" + (f", attempt {attempt}" if attempt > 1 else ""),
        mel=_read_facts(folder / "mel.json"),
        hidden=_read_facts(folder / "hidden_states.json"),
        story=story,
        times=[_wait_in_words(wait) for wait in own],
    )


def _read_facts(path: Path) -> Mapping[str, Any]:
    """What a process wrote of a window; nothing if it did not come so far."""
    try:
        facts: Json = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return facts


def _remarks(events: Iterable[Event]) -> Iterator[str]:
    """About the recording as a whole: what the frontend said of it, and how it ended."""
    for event in events:
        args, name = event["args"], event["name"]
        sent = event.get("cat") == "sent"
        if sent and name == "audio_end":
            yield f"{args['duration']:.2f} s of audio in {args['windows']} windows"
            yield from (f"warning: {warning}" for warning in args.get("warnings", ()))
        elif name.startswith("prepare window") and not args["speech"]:
            yield f"window {args['window']}, {args['start']:.2f}-{args['end']:.2f} s: nobody speaks"
        elif sent and name in ("failed", "error"):
            yield f"failed: {args.get('text', '')}"


# --- waiting ----------------------------------------------------------------------------------------------------


WAIT_COLUMNS = ("process", "window", "attempt", "at_s", "waited_ms", "worked_ms", "credit_ms")


def _waits(events: Iterable[Event], processes: Mapping[int, str], first: float) -> Iterator[Json]:
    """How long each window waited in each inbox, was worked on, and waited for credit to go on.

    Args:
        events: of one recording.
        processes: process id -> name.
        first: time of the trace's first event, in microseconds.
    """
    for event in events:
        args = event["args"]
        if event["ph"] == "X" and event["cat"] == "window":
            times = {name: args[name] for name in ("window", "attempt", "waited_ms", "worked_ms", "credit_ms")}
            yield {"process": processes.get(event["pid"], "?"), "at_s": (event["ts"] - first) / 1e6, **times}


def _process_names(events: Iterable[Event]) -> dict[int, str]:
    return {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}


def _table(waits: list[Json]) -> bytes:
    rows = ([f"{wait[name]:.3f}" if "_" in name else str(wait[name]) for name in WAIT_COLUMNS] for wait in waits)
    return "".join("\t".join(row) + "\n" for row in [WAIT_COLUMNS, *rows]).encode()


def _wait_in_words(wait: Json) -> str:
    return (
        f"{wait['process']}: waited {wait['waited_ms']:.1f} ms in the inbox, worked {wait['worked_ms']:.1f} ms, "
        f"waited {wait['credit_ms']:.1f} ms for credit"
    )
