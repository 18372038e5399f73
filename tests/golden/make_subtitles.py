"""Writes subtitles.json: the files that openai-whisper makes of made-up results.

Run by hand with openai-whisper installed, which is no dependency of this project:

    python tests/golden/make_subtitles.py

"results" has openai-whisper's results by name; "files" has [result, extension, options of its writer, content].
"""

from __future__ import annotations

import io
import json
import random
from importlib import import_module
from pathlib import Path
from typing import Any

ENGLISH = """
It is a truth universally acknowledged, that a single man in possession of a good fortune, must be in want of a wife.
However little known the feelings or views of such a man may be on his first entering a neighbourhood, this truth is so
well fixed in the minds of the surrounding families, that he is considered as the rightful property of someone.
"""
JAPANESE = "気象庁は雪や路面の凍結による交通への影響、暴風雪や高波に警戒するよう呼びかけています"

OPTIONS: list[dict[str, Any]] = [
    {},
    {"max_line_width": 20},
    {"max_line_width": 1},
    {"max_line_width": 24, "max_line_count": 1},
    {"max_line_width": 24, "max_line_count": 2},
    {"max_line_width": 42, "max_line_count": 3},
    {"max_line_count": 2},
    {"max_words_per_line": 1},
    {"max_words_per_line": 4},
    {"max_words_per_line": 5, "max_line_width": 16},
    {"max_words_per_line": 3, "max_line_width": 30, "max_line_count": 2},
]


def made_up(words: list[str], seed: int, start: float, *, per_segment: int) -> dict[str, Any]:
    """A result whose words touch, are apart, or are more than 3 s apart; times in hundredths as in openai-whisper."""
    dice = random.Random(seed)  # noqa: S311 - times, not secrets
    now = start
    timed: list[dict[str, Any]] = []
    for word in words:
        now += dice.choice([0, 0, 0, 0.05, 0.4, 1.1, 3.5])
        end = now + dice.choice([0.02, 0.1, 0.24, 0.5])
        probability = round(dice.random(), 3)
        timed.append({"word": word, "start": round(now, 2), "end": round(end, 2), "probability": probability})
        now = end
    groups = [timed[i : i + per_segment] for i in range(0, len(timed), per_segment)]
    segments = []
    for group in groups:
        text = "".join(word["word"] for word in group)
        segments.append({"text": text, "start": group[0]["start"], "end": group[-1]["end"], "words": group})
    return {"text": "".join(words), "segments": segments, "language": "en"}


def results() -> dict[str, dict[str, Any]]:
    """The results by name."""
    english = [f" {word}" for word in ENGLISH.split()]
    plain = made_up(english, 3, 0.0, per_segment=11)
    for segment in plain["segments"]:
        del segment["words"]
    return {
        "english": made_up(english, 1, 0.0, per_segment=9),
        "english, after an hour": made_up(english[:12], 2, 3597.5, per_segment=5),
        "japanese": made_up(list(JAPANESE), 4, 12.25, per_segment=13),
        "without words": plain,
        "empty": {"text": "", "segments": [], "language": "en"},
    }


def main() -> None:
    """Writes subtitles.json beside this file."""
    writers = import_module("whisper.utils")  # by name: the tests do without it
    made = results()
    files = []
    for name, result in made.items():
        with_words = bool(result["segments"]) and "words" in result["segments"][0]
        cases: list[tuple[str, dict[str, Any]]] = [("txt", {}), ("tsv", {}), ("vtt", {}), ("srt", {})]
        if with_words:
            cases += [("srt", options) for options in OPTIONS[1:]] + [("vtt", OPTIONS[4])]
            cases += [("vtt", {"highlight_words": True, "max_words_per_line": 4})] if "hour" in name else []
        for extension, options in cases:
            file = io.StringIO()
            writers.get_writer(extension, ".").write_result(result, file, options)
            files.append([name, extension, options, file.getvalue()])
    lines = ",\n".join(json.dumps(file, ensure_ascii=False) for file in files)
    content = f'{{"results": {json.dumps(made, ensure_ascii=False)},\n"files": [\n{lines}\n]}}\n'
    Path(__file__).with_name("subtitles.json").write_text(content, encoding="utf-8")


if __name__ == "__main__":
    main()
