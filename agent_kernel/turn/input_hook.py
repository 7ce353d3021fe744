"""A caller's own say in what the model sees of a session and in what is kept: one call, two results. Pure but for it.

The hook gets deep copies of the history and of what is new, and returns what the model shall see. Whatever of that is
new is stored; history is stored already. Which is which is told by identity first, then by counting equal contents;
what is neither is new. So a hook may reorder, leave out, repeat and rebuild.
"""

from __future__ import annotations

import copy
import inspect
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.core.messages import Message

InputHook: TypeAlias = Callable[[list[Message], list[Message]], "list[Message] | Awaitable[list[Message]]"]


@dataclass(frozen=True, slots=True)
class ShapedInput:
    """``seen``: all that the model sees, in order. ``said``: what of it is to be stored. ``before``: how many of
    ``seen`` come before the first that is new."""

    seen: tuple[Message, ...]
    said: tuple[Message, ...]
    before: int


def check_hook(hook: Any) -> InputHook | None:
    """Raises InvalidRequest for what can not be called."""
    if hook is not None and not callable(hook):
        raise InvalidRequest(f"An input hook is a function of (history, new), not {type(hook).__name__}.")
    return hook  # type: ignore[no-any-return]  # what it takes and gives is seen when it is called


async def apply_hook(hook: InputHook, history: Sequence[Message], new: Sequence[Message]) -> ShapedInput:
    """Raises InvalidRequest when the hook does not return a list of messages, and whatever the hook raises."""
    given_history, given_new = list(map(_copied, history)), list(map(_copied, new))
    owners = _Owners(given_history, given_new)
    answer: Any = hook(given_history, given_new)
    seen = await answer if inspect.isawaitable(answer) else answer
    if not isinstance(seen, list) or not all(isinstance(message, Message) for message in seen):
        raise InvalidRequest("An input hook returns a list of messages.")
    is_new = owners.new(seen, given_history)
    said = tuple(message for message, fresh in zip(seen, is_new, strict=True) if fresh)
    return ShapedInput(tuple(seen), said, is_new.index(True) if said else len(seen))


class _Owners:
    """Remembers the copies as they were given; they are kept alive, so that no id is another's."""

    def __init__(self, history: Sequence[Message], new: Sequence[Message]) -> None:
        self._alive = (*history, *new)
        self._history = {id(message): _content(message) for message in history}
        self._new = {id(message) for message in new}

    def new(self, seen: Sequence[Message], left_in_history: Sequence[Message]) -> list[bool]:
        """For each message whether it is new. ``left_in_history``: the list that the hook was given, as it left it;
        what it put there is history too."""
        put_there = {id(message) for message in left_in_history}
        unused = Counter(self._history.values())

        def is_history(message: Message) -> bool:
            content = self._history.get(id(message))
            known = content is not None or id(message) in put_there
            content = content or _content(message)
            unused[content] -= 1
            return known or unused[content] >= 0

        return [id(message) in self._new or not is_history(message) for message in seen]


def _copied(message: Message) -> Message:
    """Each on its own: two places with one message get two copies."""
    return copy.deepcopy(message)


def _content(message: Message) -> str:
    return json.dumps(message.to_json(), sort_keys=True, default=str)
