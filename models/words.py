"""From token times to words: cutting a text into words, joining marks to them, correcting times that cannot be.

Written from openai/whisper's `tokenizer.py` (`split_to_word_tokens`) and `timing.py` (`add_word_timestamps`,
`merge_punctuations`). Differences: no word crosses from one cue into the next, no character is parted from its
marks, times keep off silence, and words neither overlap nor have no length.
"""

# ruff: noqa: RUF001  (marks of other scripts look like ASCII)

from __future__ import annotations

import codecs
import string
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from math import exp
from statistics import fmean, median

from susurrus.models.graphemes import cuts
from susurrus.models.results import Cue, Span, Word

UNSPACED = frozenset({"zh", "ja", "th", "lo", "my", "yue"})
"""Languages written without spaces between words: there a word is what a token holds in whole characters."""

OPENING = "\"'“¿([{-"
"""Marks that belong to the word behind them."""
CLOSING = "\"'.。,，!！?？:：”)]}、"
"""Marks that belong to the word before them."""
SENTENCE_END = ".。!！?？"

MIN_WORD_SECONDS = 0.02
"""One step of Whisper's clock."""
LONGEST_MEDIAN = 0.7
"""Seconds: most that the median word is taken to last when judging whether another one lasts too long."""
FAR_OFF = 0.5
"""Seconds between a cue's time and its word's from which the cue is believed."""
SYLLABLE_SECONDS = 0.1
"""Least speech behind a pause that a word is looked for in."""


@dataclass(slots=True)
class Piece:
    """A word in the making."""

    text: str
    first: int
    """Index of its first token among the window's text tokens; joined marks do not count."""
    stop: int
    """One more than that of its last."""
    start: float = 0.0
    """Seconds."""
    end: float = 0.0
    """Seconds."""

    @property
    def duration(self) -> float:
        """Seconds."""
        return self.end - self.start


def split_cues(cues: Iterable[Cue], token_bytes: Callable[[int], bytes], *, spaced: bool) -> list[list[Piece]]:
    """Cuts each cue into words, most marks apart. The texts of a cue's pieces join to its text.

    Args:
        cues: Of one window, in order; half a character at the end of one is in the text of the next.
        token_bytes: Gives the UTF-8 of a token, often a part of a character.
        spaced: Whether the language has spaces between words.
    """
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    first = stop = 0
    split = []
    for cue in cues:
        characters: list[Piece] = []
        text = ""
        for token in cue.tokens:
            text += decoder.decode(token_bytes(token))
            stop += 1
            if text and not decoder.getstate()[0]:  # nothing but whole characters so far
                characters.append(Piece(text, first, stop))
                first, text = stop, ""
        if text:
            characters.append(Piece(text, first, stop))
            first = stop
        split.append(list(_grouped(characters, cuts(cue.text), spaced=spaced)))
    return split


def _grouped(characters: Iterable[Piece], may_cut: AbstractSet[int], *, spaced: bool) -> Iterator[Piece]:
    """Joins what is one word; `may_cut` are the places in their text where one may end."""
    word: Piece | None = None
    length = 0
    for piece in characters:
        mark = piece.text.strip() in string.punctuation  # a space alone too
        if word is not None and (length not in may_cut or (spaced and not (mark or piece.text.startswith(" ")))):
            word.text += piece.text
            word.stop = piece.stop
        else:
            if word is not None:
                yield word
            word = piece
        length += len(piece.text)
    if word is not None:
        yield word


def timed_cues(
    cues: Sequence[Cue],
    split: Sequence[list[Piece]],
    logprobs: Sequence[float],
    speech: Sequence[Span],
    duration: float,
) -> tuple[Cue, ...]:
    """Gives cues their words. A cue keeps its times as far as its words and those of the next cue let it.

    Args:
        cues: Of one window, in order.
        split: The words of each, at least one, with the times that attention gives them; changed.
        logprobs: Of each of the window's text tokens.
        speech: Where somebody speaks, in order; may be empty.
        duration: Seconds of audio in the window: every word ends by then.
    """
    joined = corrected(cues, split)
    pieces = list(chain.from_iterable(joined))
    keep_off_silence(pieces, speech)
    put_in_order(pieces, duration)
    timed: list[Cue] = []
    followers = [*(words[0].start for words in joined[1:]), duration]
    for cue, words, follower in zip(cues, joined, followers, strict=True):
        earliest = timed[-1].end if timed else 0.0
        start = max(earliest, min(cue.start, words[0].start))
        end = max(words[-1].end, min(cue.end, follower))
        timed.append(replace(cue, start=start, end=end, words=tuple(_word(piece, logprobs) for piece in words)))
    return tuple(timed)


def _word(piece: Piece, logprobs: Sequence[float]) -> Word:
    return Word(piece.start, piece.end, piece.text, fmean(map(exp, logprobs[piece.first : piece.stop])))


def corrected(cues: Sequence[Cue], split: Sequence[list[Piece]]) -> list[list[Piece]]:
    """Joins marks to words, and shortens words that hold a pause, as openai-whisper's `add_word_timestamps` does."""
    pieces = list(chain.from_iterable(split))
    typical = typical_duration(pieces)
    shorten_at_sentence_ends(pieces, 2 * typical)
    joined = [join_marks(words) for words in split]
    spoken_until = 0.0
    for cue, words in zip(cues, joined, strict=True):
        fit_to_cue(words, cue, typical, spoken_until)
        spoken_until = words[-1].end
    return joined


def typical_duration(pieces: Iterable[Piece]) -> float:
    """Median duration, in seconds, of the words that have one; 0.7 at most, and 0.0 without any."""
    durations = [piece.duration for piece in pieces if piece.duration]
    return min(LONGEST_MEDIAN, median(durations)) if durations else 0.0


def shorten_at_sentence_ends(pieces: Sequence[Piece], longest: float) -> None:
    """Takes the pause off the mark that ends a sentence, or else off the word behind it. Marks are still apart.

    Args:
        pieces: In order; changed.
        longest: Seconds that such a mark or word may last.
    """
    for before, piece in pairwise(pieces):
        if piece.duration > longest:
            if piece.text in SENTENCE_END:
                piece.end = piece.start + longest
            elif before.text in SENTENCE_END:
                piece.start = piece.end - longest


def join_marks(pieces: Iterable[Piece]) -> list[Piece]:
    """Joins marks to the words they belong to. Times stay those of the words alone."""
    opened: list[Piece] = []  # the last word first
    for piece in reversed(list(pieces)):
        if opened and piece.text.startswith(" ") and piece.text.strip() in OPENING:
            opened[-1].text = piece.text + opened[-1].text
        else:
            opened.append(piece)
    closed: list[Piece] = []
    for piece in reversed(opened):
        if closed and piece.text in CLOSING and not closed[-1].text.endswith(" "):
            closed[-1].text += piece.text
        else:
            closed.append(piece)
    return closed


def fit_to_cue(words: Sequence[Piece], cue: Cue, typical: float, spoken_until: float) -> None:
    """Shortens first and last words that hold a pause, by their cue's times or the typical duration.

    Args:
        words: Of the cue; changed.
        cue: With the times the decoder gave it.
        typical: Seconds that a word lasts.
        spoken_until: Second at which the cue before ended.
    """
    first, last, longest = words[0], words[-1], 2 * typical
    second = words[1] if len(words) > 1 else None
    too_long = first.duration > longest or (second is not None and second.end - first.start > 2 * longest)
    if first.end - spoken_until > 2 * longest and too_long:
        if second is not None and second.duration > longest:
            first.end = second.start = second.end - longest
        first.start = first.end - longest
    if first.start + FAR_OFF < cue.start < first.end:
        first.start = min(first.end - typical, cue.start)
    if last.start < cue.end < last.end - FAR_OFF:
        last.end = max(last.start + typical, cue.end)


def keep_off_silence(words: Iterable[Piece], speech: Sequence[Span]) -> None:
    """Cuts words that reach into a pause down to the speech behind it, or else to the most of it that they have.

    Attention gives a pause to the word that follows.

    Args:
        words: Changed.
        speech: With a margin, so that the closure of a plosive is no pause.
    """
    for word in words:
        heard = [Span(max(each.start, word.start), min(each.end, word.end)) for each in speech]
        heard = [span for span in heard if span.end > span.start]
        syllables = [span for span in heard if span.end - span.start >= SYLLABLE_SECONDS]
        if heard:
            span = syllables[-1] if syllables else max(heard, key=lambda span: span.end - span.start)
            word.start, word.end = span.start, span.end


def put_in_order(words: Sequence[Piece], duration: float) -> None:
    """Moves times as little as it takes for words to follow each other, last a moment each, and end with the audio."""
    least = min(MIN_WORD_SECONDS, duration / max(1, len(words)))
    earliest = 0.0
    for word in words:
        word.start = max(word.start, earliest)
        earliest = word.end = max(word.end, word.start + least)
    latest = duration
    for word in reversed(words):
        word.end = min(word.end, latest)
        latest = word.start = max(0.0, min(word.start, word.end - least))  # no rounding below 0
