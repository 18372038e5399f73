"""One recording's trace on a page: for each window what went in, what came out, and what looks suspicious."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

from susurrus.models.options import DecodingOptions
from susurrus.models.tracing.story import Story
from susurrus.models.tracing.suspicions import suspicions
from susurrus.models.tracing.tables import attempt_line, heard_lines, outcome


@dataclass(frozen=True, slots=True)
class WindowTrace:
    """What the files of one window say; parts are empty when their process was stopped before them."""

    name: str
    """`window 3`, or `window 3, attempt 2`."""
    mel: Mapping[str, Any] = field(default_factory=dict)
    """`mel_facts`, with `start`, `end` and `speech` on the recording's time line."""
    hidden: Mapping[str, Any] = field(default_factory=dict)
    """`hidden_state_facts`."""
    story: Story = field(default_factory=Story)
    times: Sequence[str] = ()
    """A line for each process: how long the window waited there and was worked on."""


def summary(title: str, windows: Sequence[WindowTrace], remarks: Sequence[str] = ()) -> str:
    """The page.

    Args:
        title: the recording's name.
        windows: those that were sent to the encoder.
        remarks: lines about the recording as a whole.
    """
    return "".join(f"{line}\n" for line in _lines(title, windows, remarks))


def _lines(title: str, windows: Sequence[WindowTrace], remarks: Sequence[str]) -> Iterator[str]:
    yield title
    yield from (f"  {remark}" for remark in remarks)
    if not windows:
        yield "  no window reached the encoder: nobody speaks, or the recording could not be read"
    for window in windows:
        yield ""
        yield from _window(window)


def _window(window: WindowTrace) -> Iterator[str]:
    mel, hidden, story = window.mel, window.hidden, window.story
    yield window.name + (f", {mel['start']:.2f}-{mel['end']:.2f} s" if mel else "")
    if mel:
        spans = ", ".join(f"{start:.2f}-{end:.2f}" for start, end in mel["speech"])
        yield _row("speech", f"{sum(end - start for start, end in mel['speech']):.1f} s: {spans}")
        yield _row("mel", f"{_numbers(mel)}; {mel['floor_share']:.0%} at the floor")
    if hidden:
        yield _row("hidden", f"{_numbers(hidden)}; norms {_range(hidden['norm_min'], hidden['norm_max'])}")
    if asked := _asked(story):
        yield _row("asked for", asked)
    yield from (f"  {line}" for line in heard_lines(story))
    for attempt in story.attempts:
        kind = "going on" if attempt["resumed"] else f"at {attempt['temperature']:g}"
        yield _row(f"attempt {attempt['number']}", f"{kind}: {attempt_line(attempt).strip()}")
    yield from (_row(head, text) for head, text in outcome(story))
    yield from (_row("text", line) for line in _cues(story, mel.get("start", 0.0)))
    yield from (_row("time", line) for line in (*window.times, *_steps(story)))
    found = suspicions(dict(mel), dict(hidden), story)
    yield from (_row("SUSPICIOUS", line) for line in found)
    if not found:
        yield _row("suspicious", "nothing")


def _cues(story: Story, start: float) -> Iterator[str]:
    """The text, with times on the recording's time line."""
    if story.window and not story.result:
        yield "none: the decoder was stopped"
    elif story.result and not story.result["cues"]:
        yield "none"
    for begin, end, text in story.result.get("cues", ()):
        yield f"{start + begin:.2f}-{start + end:.2f} {text!r}"


def _steps(story: Story) -> Iterator[str]:
    """How long the decoder's runs took."""
    steps = [step["ms"] for step in story.steps if step["tokens"]]
    if steps:
        others: dict[str, float] = {}
        for step in story.steps:
            if not step["tokens"]:
                others[step["what"]] = others.get(step["what"], 0.0) + step["ms"]
        rest = "".join(f"; {what} {total:.0f} ms" for what, total in others.items())
        yield f"decoder: {len(steps)} steps, median {median(steps):.1f} ms, longest {max(steps):.1f} ms{rest}"


def _asked(story: Story) -> str:
    """The options that are not as by default."""
    defaults = json.loads(json.dumps(asdict(DecodingOptions())))  # as the records have them
    return ", ".join(f"{name} {value}" for name, value in story.options.items() if value != defaults.get(name))


def _row(head: str, text: str) -> str:
    return f"  {head:12} {text}"


def _numbers(facts: Mapping[str, Any]) -> str:
    shape = " x ".join(map(str, facts["shape"]))
    bad = f", {facts['nan']} NaN" if facts["nan"] else ""
    if facts["mean"] is None:
        return f"{shape}{bad}"
    spread = f"{_range(facts['min'], facts['max'])}, mean {facts['mean']:.2f}, std {facts['std']:.2f}"
    return f"{shape}, {spread}{bad}"


def _range(low: float | None, high: float | None) -> str:
    return f"{'NaN' if low is None else f'{low:.2f}'} to {'NaN' if high is None else f'{high:.2f}'}"
