"""The fifty faults by name, and a pytest plugin that prints what became of each."""

from __future__ import annotations

from collections import defaultdict

import pytest

FAULTS = {
    1: "frontend killed before it is ready",
    2: "frontend killed amid a window",
    3: "frontend killed behind its result",
    4: "encoder killed before it is ready",
    5: "encoder killed amid a window",
    6: "encoder killed behind its result",
    7: "decoder killed before it is ready",
    8: "decoder killed amid a window",
    9: "decoder killed behind its result",
    10: "console killed before it is ready",
    11: "console killed amid the text",
    12: "console killed behind its output",
    13: "hub killed",
    14: "all actors killed at once",
    15: "decoder killed after each token",
    16: "an actor that dies at every start",
    17: "a job that kills its worker each time",
    18: "actors stopped, and woken after their replacement",
    19: "console stopped",
    20: "hub stopped",
    21: "compute stuck though pings are answered",
    22: "out of memory, abort",
    23: "truncated frames",
    24: "bit flips and random frames",
    25: "other versions, unknown fields",
    26: "oversized, deep, hostile frames",
    27: "arrays that are not what they say",
    28: "unknown message types",
    29: "replayed and foreign messages",
    30: "emoji, right to left, control characters, halves of characters",
    31: "attaching at every event",
    32: "a subscriber that never reads",
    33: "the last event lost",
    34: "attaching after the end, to the dead, a hundred times",
    35: "a thousand jobs queued",
    36: "a slow decoder",
    37: "the same job submitted twice",
    38: "cancel in every state, deadlines",
    39: "disk full, read-only",
    40: "bad models and recordings",
    41: "unusable runtime folders, several pipelines",
    42: "bad connection files",
    43: "strangers who connect",
    44: "64 descriptors, no output, no terminal, 20 columns",
    45: "Ctrl-C at any moment",
    46: "Ctrl-C twice, SIGTERM, SIGHUP",
    47: "hosts of every kind",
    48: "a host that raises",
    49: "a host that exits with its pipeline open",
    50: "the wall clock jumps",
}


class Table:
    """Adds up the reports of each number. Lives where the tests are counted, not where they run."""

    def __init__(self) -> None:
        self._seconds: dict[int, float] = defaultdict(float)
        self._outcomes: dict[int, dict[str, str]] = defaultdict(dict)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """One phase of one test has ended."""
        numbers = {value for name, value in report.user_properties if name == "fault"}
        for number in map(int, map(str, numbers)):
            self._seconds[number] += report.duration / len(numbers)
            if report.outcome != "passed" or report.nodeid not in self._outcomes[number]:
                self._outcomes[number][report.nodeid] = report.outcome

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the table."""
        terminalreporter.section("the fifty faults")
        terminalreporter.write_line(f"{'':>3} {'what':64} {'result':24} seconds")
        for number, what in FAULTS.items():
            result, seconds = self._result(number), self._seconds[number]
            terminalreporter.write_line(f"{number:3} {what:64} {result:24} {seconds:7.1f}")

    def _result(self, number: int) -> str:
        outcomes = list(self._outcomes[number].values())
        counts = ((outcomes.count(kind), kind) for kind in ("passed", "failed", "skipped"))
        return ", ".join(f"{count} {kind}" for count, kind in counts if count) or "not run"
