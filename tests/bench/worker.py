"""One engine in a process of its own, told what to do by JSON lines on stdin; answers are JSON lines on stdout.

    {"do": "load", "kind": "openvino", "model": "FOLDER", "threads": 2, "options": {}}
    {"do": "hear", "audio": "clip.wav", "language": "en", "options": {"return_timestamps": false}}
    {"do": "hear_all", "audio": ["one.wav", "two.wav"], "language": "en", "options": {}}

Times are taken here, from the path to the text. What the engines themselves print goes to stderr.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from tests.bench.adapters import ENGINES
from tests.bench.hearing import Engine

Request = dict[str, Any]


class Worker:
    """Answers requests."""

    def __init__(self) -> None:
        self._engine: Engine | None = None

    def load(self, request: Request) -> Request:
        """Load an engine; how long it took."""
        started = time.perf_counter()
        load = ENGINES[request["kind"]]
        self._engine = load(request["model"], request["threads"], dict(request["options"]))
        return {"total_s": time.perf_counter() - started}

    def hear(self, request: Request) -> Request:
        """Text of one recording, seconds to its first part and to all of it, and times that the engine tells."""
        assert self._engine is not None
        times: list[float] = []

        def on_text() -> None:
            times.append(time.perf_counter() - started)

        started = time.perf_counter()
        found = self._engine.hear(request["audio"], request["language"], dict(request["options"]), on_text)
        total = time.perf_counter() - started
        return {
            "text": found["text"],
            "first_s": times[0] if times else total,
            "total_s": total,
            "timings": found.get("timings", {}),
        }

    def hear_all(self, request: Request) -> Request:
        """Texts of many recordings, seconds to the last."""
        assert self._engine is not None
        language, options = request["language"], request["options"]
        started = time.perf_counter()
        if self._engine.hear_all is not None:
            texts = self._engine.hear_all(request["audio"], language, dict(options))
        else:
            texts = [
                self._engine.hear(audio, language, dict(options), lambda: None)["text"] for audio in request["audio"]
            ]
        return {"texts": texts, "total_s": time.perf_counter() - started}

    def answer(self, request: Request) -> Request:
        """What was asked for, or `error`."""
        tasks: dict[str, Callable[[Request], Request]] = {
            "load": self.load,
            "hear": self.hear,
            "hear_all": self.hear_all,
        }
        try:
            return tasks[request["do"]](request)
        except Exception as error:  # noqa: BLE001 - an engine that fails is a finding
            return {"error": f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"}


def main() -> int:
    """Answer until stdin ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # engines that print to stdout
    worker = Worker()
    for line in sys.stdin:
        answers.write(json.dumps(worker.answer(json.loads(line)), ensure_ascii=False) + "\n")
        answers.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
