"""Whether a text is good enough, and which of several is best: openai-whisper's fallback without its loop.

References: `decode_with_fallback` in whisper/transcribe.py (openai-whisper) and "Robust Speech Recognition via
Large-Scale Weak Supervision" (arXiv 2212.04356), section 4.5; for the choice when no temperature is good enough,
`generate_with_fallback` of faster-whisper.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from susurrus.models.cues import Timed, seconds
from susurrus.models.options import DecodingOptions
from susurrus.models.search import Candidate

SPARSE_TOKENS = 1.5
"""Tokens for a second of speech; slow English has three."""
SPARSE_SECONDS = 3.0
"""Of less speech a word may be all there is."""
MAX_STEPS_FACTOR = 3
"""No further temperature is tried once a window has taken so many times the steps that one try may take."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """What one temperature gave."""

    temperature: float
    candidate: Candidate
    text: str
    loops: bool
    """It ends in a loop, which was cut off `text`."""

    @property
    def compression_ratio(self) -> float:
        """See the function."""
        return compression_ratio(self.text)


def compression_ratio(text: str) -> float:
    """Bytes of the text in UTF-8 over its bytes compressed by zlib: high when it repeats itself (whisper/utils.py)."""
    data = text.encode()
    return len(data) / len(zlib.compress(data))


def is_good(attempt: Attempt, options: DecodingOptions, no_speech_prob: float) -> bool:
    """Whether no other temperature need be tried."""
    if is_silence(attempt, options, no_speech_prob):
        return True
    threshold = options.compression_ratio_threshold
    if attempt.loops or (threshold is not None and attempt.compression_ratio > threshold):
        return False
    return options.logprob_threshold is None or attempt.candidate.avg_logprob >= options.logprob_threshold


def is_sound(attempt: Attempt, options: DecodingOptions, no_speech_prob: float, speech: Sequence[Timed] = ()) -> bool:
    """Whether a text that was understood with sampled silence may stand.

    It is good, it came to an end, and there is enough of it for the speech that was heard: of three sentences that are
    the same the decoder may write one.
    """
    if is_silence(attempt, options, no_speech_prob):
        return True
    spoken = seconds(speech)
    enough = spoken < SPARSE_SECONDS or len(attempt.candidate.tokens) >= SPARSE_TOKENS * spoken
    return attempt.candidate.ended and enough and is_good(attempt, options, no_speech_prob)


def is_silence(attempt: Attempt, options: DecodingOptions, no_speech_prob: float) -> bool:
    """Whether the text is no text: nobody seems to speak, and the decoder does not believe in what it says either."""
    if options.no_speech_threshold is None or no_speech_prob <= options.no_speech_threshold:
        return False
    return options.logprob_threshold is None or attempt.candidate.avg_logprob < options.logprob_threshold


def best_of(attempts: Sequence[Attempt], options: DecodingOptions) -> Attempt:
    """The most probable of several that are not good enough; one that does not repeat itself if there is any."""
    threshold = options.compression_ratio_threshold
    steady = [
        attempt
        for attempt in attempts
        if not attempt.loops and (threshold is None or attempt.compression_ratio <= threshold)
    ]
    return max(steady or attempts, key=lambda attempt: attempt.candidate.avg_logprob)
