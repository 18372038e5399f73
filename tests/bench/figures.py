"""`results.json` as pictures, for the documentation."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.bench.corpus import optional
from tests.bench.roster import OURS

OWN, OTHERS = "tab:orange", "tab:blue"
DPI = 110

Tasks = Mapping[str, Any]


def draw(tasks: Tasks, folder: Path, prefix: str = "") -> dict[str, Path]:
    """Draw what was measured, into files named PREFIX and the picture's name; the files by that name.

    Raises:
        BenchError: matplotlib is not installed.
    """
    optional("matplotlib", "matplotlib").use("Agg")
    pyplot = optional("matplotlib.pyplot", "matplotlib")
    made = {}
    bars = {
        "short": (_medians(tasks, "short", "total_s"), "11 s of speech, warm: seconds to the whole text"),
        "first": (_medians(tasks, "short", "first_s"), "11 s of speech, warm: seconds to the first text"),
        "cold": (_medians(tasks, "cold", "total_s"), "11 s of speech: seconds from process start to exit"),
        "long": (_medians(tasks, "long", "total_s"), "a long recording: seconds to the whole text"),
    }
    for name, (values, title) in bars.items():
        if values:
            made[name] = _bars(pyplot, values, title, folder / f"{prefix}{name}.png")
    for name, title in (("long", "a long recording"), ("clips", "short recordings")):
        if points := _points(tasks, name):
            made[f"{name}-wer"] = _scatter(pyplot, points, title, folder / f"{prefix}{name}-wer.png")
    if len(lengths := tasks.get("growth", {}).get("points", ())) > 1:
        made["growth"] = _growth(pyplot, lengths, folder / f"{prefix}growth.png")
    return made


def _medians(tasks: Tasks, task: str, field: str) -> dict[str, float]:
    rows = tasks.get(task, {}).get("rows", {})
    return {label: statistics.median(row[field]) for label, row in rows.items() if row.get(field)}


def _points(tasks: Tasks, task: str) -> dict[str, tuple[float, float]]:
    """Mean seconds and word error rate in percent, by engine."""
    rows = tasks.get(task, {}).get("rows", {})
    return {
        label: (statistics.fmean(row["total_s"]), 100 * row["edits"] / row["words"])
        for label, row in rows.items()
        if row.get("words") and row.get("total_s")
    }


def _bars(pyplot: Any, values: Mapping[str, float], title: str, path: Path) -> Path:
    figure, axes = pyplot.subplots(figsize=(7, 0.6 + 0.32 * len(values)), layout="constrained")
    labels = sorted(values, key=lambda label: values[label], reverse=True)
    drawn = axes.barh(labels, [values[label] for label in labels], color=[_color(label) for label in labels])
    axes.bar_label(drawn, [f"{values[label]:.3g}" for label in labels], padding=3, fontsize=8)
    axes.set_title(title, fontsize=10, loc="left")
    axes.set_xlim(right=1.12 * max(values.values()))
    return _save(pyplot, figure, axes, path)


def _scatter(pyplot: Any, points: Mapping[str, tuple[float, float]], title: str, path: Path) -> Path:
    figure, axes = pyplot.subplots(figsize=(7, 4), layout="constrained")
    for label, (time, rate) in points.items():
        axes.plot(time, rate, "o", color=_color(label))
        axes.annotate(label, (time, rate), xytext=(4, 4), textcoords="offset points", fontsize=8, rotation=35)
    axes.set_xlim(0, 1.3 * max(time for time, _ in points.values()))
    axes.set_ylim(0, 1.25 * max(rate for _, rate in points.values()))
    axes.set_xlabel("seconds")
    axes.set_ylabel("word error rate, %")
    axes.set_title(f"{title}: left and low is better", fontsize=10, loc="left")
    return _save(pyplot, figure, axes, path)


def _growth(pyplot: Any, points: Any, path: Path) -> Path:
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(8, 3), layout="constrained")
    minutes = [point["minutes"] for point in points]
    left.plot(minutes, [point["total_s"][0] / point["minutes"] for point in points], "o-", color=OWN)
    right.plot(minutes, [point["peak_mb"] for point in points], "o-", color=OWN)
    for axes, label in ((left, "seconds for a minute"), (right, "memory of all processes, MB")):
        axes.set_xscale("log")
        axes.set_xticks(minutes, labels=[f"{length:g}" for length in minutes])
        axes.minorticks_off()
        axes.set_ylim(0, 1.15 * axes.get_ylim()[1])
        axes.set_xlabel("minutes of audio")
        axes.set_ylabel(label)
    right.spines[["top", "right"]].set_visible(False)
    return _save(pyplot, figure, left, path)


def _save(pyplot: Any, figure: Any, axes: Any, path: Path) -> Path:
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=DPI)
    pyplot.close(figure)
    return path


def _color(label: str) -> str:
    return OWN if label.startswith(OURS) else OTHERS
