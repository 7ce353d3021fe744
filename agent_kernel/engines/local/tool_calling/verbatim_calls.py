"""What a model wrote itself for messages with calls, where its chat template would write them differently.

A cache of this process, like the ids behind it: without it the template's own form is used, and the prefix of that
turn is computed again.
"""

from __future__ import annotations

from collections import OrderedDict

from agent_kernel.core.messages import Message

ENTRIES = 1024
CHARS = 4_000_000


class Written:
    """By the ids of the calls, which nobody else gives; least recently used messages go first."""

    def __init__(self) -> None:
        self._texts: OrderedDict[str, tuple[Message, str]] = OrderedDict()
        self._chars = 0

    def of(self, message: Message) -> str | None:
        """None where nothing is known of this message, or it was changed since."""
        if not message.calls or message.calls[0].id not in self._texts:
            return None
        said, text = self._texts[message.calls[0].id]
        self._texts.move_to_end(message.calls[0].id)
        return text if (said.text, said.calls) == (message.text, message.calls) else None

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
