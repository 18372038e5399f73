"""`results.json` as Markdown: a table for each task, the goals, the budget."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

from tests.bench.goals import Goal, goals
from tests.bench.roster import OURS
from tests.bench.spread import Spread, ratio
from tests.bench.tables import markdown

Tasks = Mapping[str, Any]

TIMES = {
    "short": "11 s, warm",
    "small": "3 s, warm",
    "cold": "11 s, a new process",
    "long": "A long recording",
    "clips": "Short recordings, one after another",
    "many": "Short recordings, given at once",
}
"""Tasks that are tables of times, with their titles."""

PLOTS = {
    "short": ("short", "first"),
    "cold": ("cold",),
    "long": ("long", "long-wer"),
    "clips": ("clips-wer",),
    "growth": ("growth",),
}
"""Pictures of `figures.py` that belong to a part."""


def parts(results: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """Title and text of all that was measured, by name."""
    tasks = results["tasks"]
    found = {"goals": ("Goals", goals_table(list(goals({**tasks, "disk": results["disk"]}))))}
    found |= {name: (title, times_table(tasks[name])) for name, title in TIMES.items() if name in tasks}
    found["costs"] = ("Memory, files, idling", costs_table(results))
    if "budget" in tasks:
        found["budget"] = ("Where the time of the 11 s goes", budget_table(tasks["budget"]))
    if "growth" in tasks:
        found["growth"] = ("Longer recordings", growth_table(tasks["growth"]))
    found["run"] = ("The run", "\n".join(_about(results)))
    return found


def page(results: Mapping[str, Any]) -> str:
    """Everything that was measured."""
    return "\n\n".join(f"## {title}\n\n{text}" for title, text in parts(results).values()) + "\n"


def fill(document: str, results: Mapping[str, Any], plots: Mapping[str, str]) -> str:
    """A document with what stands between `<!-- results: NAME -->` and `<!-- end -->` made anew.

    Args:
        document: Markdown.
        results: as in `results.json`; parts that were not measured stay as they are.
        plots: names of picture files, by the names of `PLOTS`.
    """
    found = parts(results)

    def part(match: re.Match[str]) -> str:
        name = match["name"]
        if name not in found:
            return match[0]
        pictures = [f"![{found[name][0]}]({plots[plot]})" for plot in PLOTS.get(name, ()) if plot in plots]
        return "\n\n".join([f"<!-- results: {name} -->", found[name][1], *pictures, "<!-- end -->"])

    return re.sub(r"<!-- results: (?P<name>\w+) -->.*?<!-- end -->", part, document, flags=re.DOTALL)


def times_table(part: Mapping[str, Any]) -> str:
    """A row for each engine: time, its spread, the first text, processor time, ours over its, and the error rate."""
    rows = part["rows"]
    own = rows.get(OURS, {}).get("total_s", ())
    middle = "mean" if _is_one_by_one(part) else "median"
    columns = ["engine", middle, "least", "quartiles", "ours / its", "first text", "CPU", "WER", "turns"]
    lines = [
        [label, *_times(row, own, part, is_ours=label == OURS)]
        if row.get("total_s")
        else [label, *["-"] * (len(columns) - 1)]
        for label, row in rows.items()
    ]
    notes = [f"{label}: {row['note']}." for label, row in rows.items() if row.get("note")]
    return "\n".join([_heard(part), "", markdown(columns, lines), *(["", *notes] if notes else ())])


def _times(row: Mapping[str, Any], own: Sequence[float], part: Mapping[str, Any], *, is_ours: bool) -> list[str]:
    n = part["clips"] if part.get("together") else 1
    times, found = row["total_s"], Spread.of([value / n for value in row["total_s"]])
    if _is_one_by_one(part):
        middle, share = fmean(times), fmean(own[: len(times)]) / fmean(times) if own else None
    else:
        middle, share = found.median, ratio(own, times)
    first = Spread.of(row["first_s"]).median if row.get("first_s") else None
    return [
        *(seconds(middle), seconds(found.least)),
        f"{seconds(found.lower)} to {seconds(found.upper)}" if found.n > 1 else "-",
        "1" if is_ours else _number(share),
        *(seconds(first), seconds(fmean(row["cpu_s"]) / n if row.get("cpu_s") else None)),
        *(_rate(row), str(found.n)),
    ]


def _is_one_by_one(part: Mapping[str, Any]) -> bool:
    """Whether every turn heard another recording: they are not repetitions then, and the mean says more."""
    return "clips" in part and not part.get("together")


def _heard(part: Mapping[str, Any]) -> str:
    count = f"{part['clips']} recordings, " if "clips" in part else ""
    each = "; times are of one recording" if "clips" in part else ""
    return f"{count}{part['audio_s']:.0f} s of audio{each}."


def costs_table(results: Mapping[str, Any]) -> str:
    """Memory of all processes together, model files, processor time of an engine that nobody asks."""
    tasks = results["tasks"]
    short, long, idle = (tasks.get(name, {}).get("rows", {}) for name in ("short", "long", "idle"))
    labels = list(dict.fromkeys([*short, *long, *results["disk"]]))
    lines = [
        [
            label,
            _size(short.get(label, {}).get("peak_mb")),
            _size(long.get(label, {}).get("peak_mb")),
            _size(results["disk"].get(label)),
            "-" if label not in idle else f"{100 * idle[label]['cpu_share']:.2f} %",
            seconds(results["load_s"].get(label)),
        ]
        for label in labels
    ]
    columns = ["engine", "11 s, MB", "long, MB", "model files, MB", "one processor while idle", "loading"]
    return markdown(columns, lines)


def goals_table(found: Sequence[Goal]) -> str:
    """Bound, measurement, yes or no."""
    words = {True: "yes", False: "no", None: "not measured"}
    lines = [[goal.what, f"{goal.bound:g} {goal.unit}", _number(goal.measured), words[goal.is_met]] for goal in found]
    return markdown(["what", "at most", "measured", "reached"], lines)


def budget_table(part: Mapping[str, Any]) -> str:
    """Milliseconds of each stage, and what the machine could do at best."""
    lines = [
        [
            stage["stage"],
            f"{stage['ms']:.1f}",
            "-" if stage["floor_ms"] is None else f"{stage['floor_ms']:.1f}",
            stage["floor"],
        ]
        for stage in part["stages"]
    ]
    lines.append(["together", f"{sum(stage['ms'] for stage in part['stages']):.1f}", "", ""])
    ceilings = ", ".join(f"{name} {value:.0f}" for name, value in part["ceilings"].items())
    return f"{markdown(['stage', 'ms', 'floor, ms', 'what bounds it'], lines)}\n\nMeasured ceilings: {ceilings}."


def growth_table(part: Mapping[str, Any]) -> str:
    """Time and memory by length."""
    lines = [
        [
            f"{point['minutes']:g} min",
            f"{point['total_s'][0]:.1f} s",
            f"{point['total_s'][0] / point['minutes']:.3f} s",
            f"{60 * point['minutes'] / point['total_s'][0]:.0f}",
            _size(point["peak_mb"]),
        ]
        for point in part["points"]
    ]
    return markdown(["recording", "time", "for a minute", "times real time", "memory, MB"], lines)


def _about(results: Mapping[str, Any]) -> Iterator[str]:
    yield from (f"- {name}: {value}" for name, value in results["about"].items())
    commands: dict[str, list[str]] = {}
    for name, task in results["tasks"].items():
        if "command" in task:
            when = f"{name} ({task['time']}, load {task['load_before']})"
            commands.setdefault(task["command"], []).append(when)
    yield from (f"- `{command}`: {', '.join(names)}" for command, names in commands.items())
    yield from (f"- {name} did not take part" for name in results["skipped"])
    for label, share in results.get("restless", {}).items():
        yield f"- {label} used {share:.1f} s of a processor while it was another's turn"


def seconds(value: float | None) -> str:
    """Milliseconds below a second, else seconds; as many digits as mean something."""
    if value is None:
        return "-"
    return f"{1000 * value:.0f} ms" if value < 1 else f"{value:.2f} s"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def _size(value: float | None) -> str:
    return f"{value:.0f}" if value else "-"


def _rate(row: Mapping[str, Any]) -> str:
    return f"{100 * row['edits'] / row['words']:.1f} %" if row.get("words") else "-"
