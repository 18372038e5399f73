"""The committed text of a job as it is handed out: every character once, and how the hypothesis goes on from it."""

from __future__ import annotations

from susurrus.actors.view import JobView
from susurrus.protocol import Done, Partial


class CommittedText:
    """Hands out the committed text of one job, every character once, in the order of the windows.

    Args:
        skip: the first so many characters were handed out already, by another.
    """

    def __init__(self, skip: int = 0) -> None:
        self._skip = skip
        self._window = 0
        self._given = ""
        self._begun = False
        self._partial: Partial | None = None

    def take(self, job: JobView) -> str:
        """What was committed since the last call."""
        pieces = []
        for window in sorted(window for window in job.segments if window >= self._window):
            # The hub commits in order: a window that is missing below was left out of a snapshot of very much text.
            pieces.append(job.segments[window].text)
            self._window = window + 1
        # The end of a job drops its hypothesis; `take_rest` may still want it.
        if job.end is None or (self._partial is not None and self._partial.window < self._window):
            self._partial = job.partial
        return self._give("".join(pieces))

    def take_rest(self, job: JobView) -> str:
        """All that is left when nothing more will come.

        Of a job that did not get to its end that includes what could not change of the last hypothesis.
        """
        rest = self.take(job)
        if isinstance(job.end, Done):  # its text has more than the segments when events were lost for good
            return rest + self._give(job.end.text[len(self._given) :] if job.end.text.startswith(self._given) else "")
        return rest + self._give(self._partial.text[: self._partial.stable] if self._partial else "")

    @property
    def characters(self) -> int:
        """How many were handed out."""
        return len(self._given)

    def preview(self, partial: Partial) -> tuple[str, str]:
        """The hypothesis as it would go on from the text given so far: (what cannot change, what can)."""
        cut = 0 if self._begun or not partial.text.startswith(" ") else 1
        return partial.text[cut : partial.stable], partial.text[max(cut, partial.stable) :]

    def _give(self, text: str) -> str:
        if text and not self._begun:
            self._begun = True
            text = text.removeprefix(" ")
        known = max(0, self._skip - len(self._given))
        self._given += text
        return text[known:]
