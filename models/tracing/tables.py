"""The decoder's tokens as tables: `tokens.tsv` for programs, `tokens.txt` for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from susurrus.models.tracing.search import TOP, Record
from susurrus.models.tracing.story import Story

COLUMNS = ("attempt", "temperature", "resumed", "row", "step", "position", "id", "text", "logprob", "ms")
HEADER = (
    *COLUMNS,
    *(f"{what}_{rank}" for rank in range(1, TOP + 1) for what in ("id", "text", "p")),
    "raw_id",
    "raw_text",
    "raw_p",
    "forbidden_by",
)

_ESCAPES = str.maketrans({"\\": r"\\", "\t": r"\t", "\n": r"\n", "\r": r"\r"})


def token_table(story: Story) -> str:
    r"""All tokens as tab-separated values, a header first.

    In texts `\t`, `\n`, `\r` and `\\` stand for the characters.
    """
    lines = [HEADER, *map(_row, story.tokens)]
    return "".join("\t".join(map(_cell, line)) + "\n" for line in lines)


def _row(token: Record) -> list[Any]:
    top = [*token["top"], *[("", "", "")] * (TOP - len(token["top"]))]
    ranked = [value for entry in top for value in entry]
    return [*(token[name] for name in COLUMNS), *ranked, *token["raw"], token["forbidden_by"] or ""]


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(int(value) if isinstance(value, bool) else value).translate(_ESCAPES)


def token_text(story: Story) -> str:
    """All that the decoder did, to be read from top to bottom."""
    return "".join(f"{line}\n" for line in _lines(story))


def _lines(story: Story) -> Iterator[str]:
    yield from heard_lines(story)
    for number in sorted({token["attempt"] for token in story.tokens}):
        tokens = story.of_attempt(number)
        yield ""
        going_on = ", going on to the end of the speech" if tokens[0]["resumed"] else ""
        yield f"attempt {number}, temperature {tokens[0]['temperature']:g}{going_on}"
        yield from _attempt_table(tokens)
        attempt = next((each for each in story.attempts if each["number"] == number), None)
        yield attempt_line(attempt) if attempt else "  broken off"
    if story.chosen:
        yield ""
        yield from (f"{head:12} {text}" for head, text in outcome(story))


def outcome(story: Story) -> Iterator[tuple[str, str]]:
    """What was taken and why, and what was done to reach the end of the speech: heads and texts."""
    if story.chosen:
        yield "taken", f"attempt {story.chosen['attempt']}, {story.chosen['why']}"
    if story.timed:
        yield "end", f"asked afterwards when the text ends: {story.timed['closing']}"
    if story.resumed:
        taken = story.resumed["taken"]
        found = f"attempt {taken} is taken instead" if taken else "nothing that is believed"
        yield "went on", f"since somebody still speaks, in {story.resumed['runs']} more attempts: {found}"


def heard_lines(story: Story) -> Iterator[str]:
    """What the first step says, and the prompt."""
    if story.heard:
        languages = ", ".join(f"{code} {share:.1%}" for code, share in story.heard["languages"].items())
        yield f"first step   no speech {story.heard['no_speech_prob']:.1%}; languages {languages or 'not asked'}"
    if story.prompt:
        yield "prompt       " + "  ".join(f"{token} {spelling}" for token, spelling in story.prompt["tokens"])


def attempt_line(attempt: Record) -> str:
    """How an attempt ended, and what is wrong with it."""
    verdict = "; ".join(attempt["reasons"]) or ("believed" if attempt["resumed"] else "good enough")
    return (
        f"  {len(attempt['ids'])} tokens, {'ended' if attempt['ended'] else 'cut off'}; mean log-probability "
        f"{attempt['avg_logprob']:.2f}, compression ratio {attempt['compression_ratio']:.2f}: {verdict}"
    )


def _attempt_table(tokens: Sequence[Record]) -> Iterator[str]:
    several = len({token["row"] for token in tokens}) > 1
    samples = several and tokens[0]["temperature"] > 0  # each is a text of its own; beams take from one another
    ordered = sorted(tokens, key=lambda token: token["row"]) if samples else tokens
    yield f"  {'row ' if several else ''}step  pos     id  {'token':18} logprob     ms  most probable"
    for token in ordered:
        row = f"{token['row']:3} " if several else ""
        ranked = "  ".join(f"{text!r} {share:.1%}" for _, text, share in token["top"])
        forbidden = token["forbidden_by"]
        before = f"  before the rules {token['raw'][1]!r} {token['raw'][2]:.1%} ({forbidden})" if forbidden else ""
        yield (
            f"  {row}{token['step']:4} {token['position']:4} {token['id']:6}  {token['text']!r:18} "
            f"{token['logprob']:7.2f} {token['ms']:6.1f}  {ranked}{before}"
        )
