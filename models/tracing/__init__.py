"""What a pipeline did with one recording, written down step by step: for `--trace`.

    TracedDecoder ─records─> Story ─┬─> token_table, token_text   what was said, token by token
    mel, hidden states ──> facts ───┴─> summary                   in words, with what looks suspicious

Pure: nothing here opens a file; `susurrus.actors.trace` does.
"""

from __future__ import annotations

from susurrus.models.tracing.decoder import Record, TracedDecoder
from susurrus.models.tracing.facts import hidden_state_facts, mel_facts, position_norms
from susurrus.models.tracing.picture import mel_picture
from susurrus.models.tracing.story import Story
from susurrus.models.tracing.summary import WindowTrace, summary
from susurrus.models.tracing.tables import token_table, token_text

__all__ = [
    "Record",
    "Story",
    "TracedDecoder",
    "WindowTrace",
    "hidden_state_facts",
    "mel_facts",
    "mel_picture",
    "position_norms",
    "summary",
    "token_table",
    "token_text",
]
