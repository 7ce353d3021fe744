"""Converts token ids to text that can be shown. The text contains only whole characters, and ends before a stop
string."""

from __future__ import annotations

from collections.abc import Callable, Sequence

UNFINISHED = "\ufffd"
LONGEST_CHARACTER = 4
"""Length of the longest UTF-8 character in bytes. A replacement character that remains after so many tokens is not an
unfinished character: the model wrote it."""
WINDOW = 8
"""Number of the newest tokens that are decoded again with each new token."""


class TextStream:
    """Converts the ids that the caller passes to ``push``, and returns the text that they complete. ``stopped`` is the
    stop string that was found, empty if none was.

    Each push decodes only a window of the newest tokens again, not the whole answer.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str], stop: Sequence[str] = ()) -> None:
        self._decode = decode
        self._stop = [text for text in stop if text]
        self._window: list[int] = []
        self._read = 0
        self._before = ""
        self._held = ""
        self.text = ""
        """The text that was returned so far, without the stop string."""
        self.stopped = ""

    @property
    def seen(self) -> str:
        """The returned text, followed by the text that is held back because it could become a stop string."""
        return self.text + self._held

    def push(self, ids: Sequence[int]) -> str:
        self._window.extend(ids)
        return self._release(self._held + self._decode_new(), last=False)

    def finish(self) -> str:
        """Return the text that was held back because it could have become a stop string, or because its last character
        was unfinished."""
        return self._release(self._held + self._decode_new(last=True), last=True)

    def _decode_new(self, last: bool = False) -> str:
        before, now = self._before, self._decode(self._window)
        waiting = len(self._window) - self._read
        if now.endswith(UNFINISHED) and waiting < LONGEST_CHARACTER and not last:
            return ""
        if len(now) <= len(before):
            return ""
        self._read, self._before = len(self._window), now
        if self._read > WINDOW:
            # Some earlier tokens stay in the window, because some vocabularies join words only in context.
            del self._window[:-LONGEST_CHARACTER]
            self._read, self._before = len(self._window), self._decode(self._window)
        return now[len(before) :]

    def _release(self, text: str, last: bool) -> str:
        self._held = ""
        if self.stopped:
            return ""
        first = min(((at, stop) for stop in self._stop if (at := text.find(stop)) >= 0), default=None)
        if first is not None:
            text, self.stopped = text[: first[0]], first[1]
        elif not last:
            keep = max((overlap(text, stop) for stop in self._stop), default=0)
            self._held, text = text[len(text) - keep :], text[: len(text) - keep]
        self.text += text
        return text


def overlap(text: str, stop: str) -> int:
    """Return the length of the longest end of ``text`` that is a beginning of ``stop``, but not the whole of it; 0 if
    there is none."""
    return next((size for size in range(min(len(text), len(stop) - 1), 0, -1) if stop.startswith(text[-size:])), 0)
