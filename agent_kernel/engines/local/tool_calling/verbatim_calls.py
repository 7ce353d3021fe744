"""Stores the text that the model wrote for messages with calls, if the chat template would write them differently.

The texts are lost when this process ends. The template's form is then used, so that the next prompt differs from the
cached one at that message, and the model computes the prompt from there again.
"""

from __future__ import annotations

from collections import OrderedDict

from agent_kernel.core.messages import Message

ENTRIES = 1024
CHARS = 4_000_000


class VerbatimCalls:
    """Stores the original texts of messages by the id of the message's first call. The least recently used texts are
    dropped first."""

    def __init__(self) -> None:
        self._texts: OrderedDict[str, tuple[Message, str]] = OrderedDict()
        self._chars = 0

    def of(self, message: Message) -> str | None:
        """Return the text that the model generated for a message, word for word; None if no text was stored, or if the
        message has changed since then."""
        if not message.calls or message.calls[0].id not in self._texts:
            return None
        original, text = self._texts[message.calls[0].id]
        self._texts.move_to_end(message.calls[0].id)
        return text if (original.text, original.calls) == (message.text, message.calls) else None

    def add(self, message: Message, text: str) -> None:
        self.forget(message)
        self._texts[message.calls[0].id] = (message, text)
        self._chars += len(text)
        while len(self._texts) > ENTRIES or (self._chars > CHARS and len(self._texts) > 1):
            _, (_, oldest) = self._texts.popitem(last=False)
            self._chars -= len(oldest)

    def forget(self, message: Message) -> None:
        _, text = self._texts.pop(message.calls[0].id, (message, ""))
        self._chars -= len(text)
