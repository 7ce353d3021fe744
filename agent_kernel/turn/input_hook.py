"""Calls the input hook: a caller's function that decides what the model sees of a session and what is stored.

The hook receives deep copies of the history and of the new messages, and returns the messages that the model sees. The
new messages among these are stored; messages of the history are stored already. A returned message is matched with the
copies by identity first, then by equal content, counting duplicates; a message without a match is new. A hook may
therefore reorder, leave out, repeat and rebuild messages.
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
    """The messages that a hook returned.

    ``seen`` is everything that the model sees, in order; ``to_store`` is the part of it that is stored. ``before`` is
    the number of messages in ``seen`` before the first new one.
    """

    seen: tuple[Message, ...]
    to_store: tuple[Message, ...]
    before: int


def check_hook(hook: Any) -> InputHook | None:
    """Return the hook. Raises InvalidRequest if it is not callable."""
    if hook is not None and not callable(hook):
        raise InvalidRequest(f"An input hook must be a function of (history, new), not {type(hook).__name__}.")
    return hook  # type: ignore[no-any-return]  # its parameters and its result are checked when it is called


async def apply_hook(hook: InputHook, history: Sequence[Message], new: Sequence[Message]) -> ShapedInput:
    """Call the hook. Raises InvalidRequest if it does not return a list of messages, and whatever the hook raises."""
    # The parts are copied separately, so that a message that occurs in both has two copies.
    given_history, given_new = ([copy.deepcopy(message) for message in part] for part in (history, new))
    owners = _Owners(given_history, given_new)
    answer: Any = hook(given_history, given_new)
    seen = await answer if inspect.isawaitable(answer) else answer
    if not isinstance(seen, list) or not all(isinstance(message, Message) for message in seen):
        raise InvalidRequest("An input hook must return a list of messages.")
    is_new = owners.new(seen, given_history)
    to_store = tuple(message for message, fresh in zip(seen, is_new, strict=True) if fresh)
    return ShapedInput(tuple(seen), to_store, is_new.index(True) if to_store else len(seen))


class _Owners:
    """Remembers which of the copies given to the hook belong to the history and which are new. It keeps references to
    the copies, so that Python does not reuse their ids."""

    def __init__(self, history: Sequence[Message], new: Sequence[Message]) -> None:
        self._alive = (*history, *new)
        self._history = {id(message): _content(message) for message in history}
        self._new = {id(message) for message in new}

    def new(self, seen: Sequence[Message], left_in_history: Sequence[Message]) -> list[bool]:
        """Return for each message of ``seen`` whether it is new. ``left_in_history`` is the history list after the
        hook ran; messages that the hook added to it count as history too."""
        put_there = {id(message) for message in left_in_history}
        unused = Counter(self._history.values())

        def is_history(message: Message) -> bool:
            content = self._history.get(id(message))
            known = content is not None or id(message) in put_there
            content = content or _content(message)
            unused[content] -= 1
            return known or unused[content] >= 0

        return [id(message) in self._new or not is_history(message) for message in seen]


def _content(message: Message) -> str:
    return json.dumps(message.to_json(), sort_keys=True, default=str)
