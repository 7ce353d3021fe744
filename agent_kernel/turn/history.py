"""Prepares the input of a turn: messages of earlier turns, messages that the client carries, and the new prompt. Reads
the store and writes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from agent_kernel.core.errors import InvalidRequest, TurnNotFound
from agent_kernel.core.messages import DRAFT_VARIABLES, VARIABLES, Message, user
from agent_kernel.core.seams.session_store import SessionStore
from agent_kernel.core.session import Item, SessionKey, Summary
from agent_kernel.core.turn_request import PageCell, TurnRequest
from agent_kernel.sessions import history_merge, serialization
from agent_kernel.sessions.history_merge import MergePlan
from agent_kernel.turn import input_hook
from agent_kernel.turn.input_hook import InputHook
from agent_kernel.turn.lost_variables import LOST, has_lost_variables

CELLS = "Cells of the notebook, as they stand on its page:"
OF_CELL = 20
"""Number of newest turns of a cell that are searched for the last answered turn."""
AT_THE_END = 2
"""Number of newest turns that are read: the open turn and the turn before it."""
HISTORY_ITEMS = 1_000
HISTORY_STEP = 500
Clean: TypeAlias = Callable[[Sequence[Message]], Awaitable[Sequence[Message]]]
AT_ONCE = 300
"""Maximum number of messages that are compared on the event loop; more are compared in a thread."""


@dataclass(frozen=True, slots=True)
class PreparedTurn:
    """The prepared input of a turn.

    ``history`` are the earlier messages as the model sees them. ``current`` are the messages of this turn that the
    model sees before it answers.

    ``to_store`` are the messages that are stored as the first items of the turn. They are placed after the item with
    the seq ``behind`` (None: at the end of the current branch) and after ``earlier``, which are turns that the client
    sent along and that are not stored yet. ``instructions`` are the client's own, for this turn only. ``lost`` says
    that variables of earlier turns are lost, because the kernel was restarted or replaced; it is empty if none are.
    """

    history: Sequence[Message]
    current: Sequence[Message]
    to_store: Sequence[Message]
    behind: int | None = None
    earlier: Sequence[Sequence[Message]] = ()
    instructions: str = ""
    lost: str = ""
    summary: str = ""
    """Summary of the messages before ``history``."""


class ConversationHistory:
    """Prepares the input of turns of one session.

    ``limit`` is the maximum number of earlier items that the model sees if the request sets no limit (None: all that
    fit). ``clean`` returns messages in the form in which they are stored; messages that a client repeats are compared
    in that form. Raises InvalidRequest for a negative limit and for a hook that cannot be called.
    """

    def __init__(
        self,
        store: SessionStore,
        key: SessionKey,
        *,
        clean: Clean | None = None,
        hook: InputHook | None = None,
        limit: int | None = None,
    ) -> None:
        self._store = store
        self._key = key
        self._clean = clean
        self._hook = input_hook.check_hook(hook)
        self._limit = serialization.validate_limit(limit)

    async def prepare(self, request: TurnRequest, head: int, page: Sequence[PageCell] | None = None) -> PreparedTurn:
        """Prepare a turn that was opened when ``head`` was the last assigned seq of the session. ``page`` are notebook
        cells that replace the conversation; None if the conversation is used.

        Raises InvalidRequest if there is no prompt, and whatever the hook and the store raise.
        """
        instructions, incoming = history_merge.split_instructions(_incoming(request))
        if history_merge.first_added(incoming) == len(incoming):
            raise InvalidRequest("The request has no prompt.", hint="End the messages with a user message.")
        limit = serialization.validate_limit(self._limit if request.history_limit is None else request.history_limit)
        # The window moves in steps, so that the beginning of the prompt stays the same.
        window = HISTORY_ITEMS + head % HISTORY_STEP if limit is None else limit
        if request.after and not await self._is_newest(request.after):
            placed = await self._plan_continuation(request.after, incoming)
            summary = None
        elif not request.after and history_merge.mode(incoming, request.history) == "replay":
            placed = await self._plan_replay(incoming)
            summary = None
        elif page is not None:
            placed = history_merge.plan_append(await self._page_items(page), incoming)
            summary = None
        else:
            whole = limit is not None or self._hook is not None or _begins_with_results(incoming)
            summary = None if whole else await self._summary()
            placed = await self._plan_append(incoming, window, summary)
        lost = LOST if await has_lost_variables(self._store, self._key, request.epoch) else ""
        prepared = await self._apply_hook(placed, _notes(request, lost), window)
        instructions_text = "\n\n".join(message.text for message in instructions if message.text)
        return replace(prepared, instructions=instructions_text, lost=lost, summary=summary.text if summary else "")

    def prompt_messages(self, request: TurnRequest) -> Sequence[Message]:
        """Return the messages to store for a turn that ends before it was prepared: its prompt.

        Returns no messages if a hook decides what to store, or if the request has messages or names the turn to
        continue.
        """
        placed = bool(request.messages or request.after)
        return [] if self._hook is not None or placed else _incoming(request)

    async def _plan_append(self, incoming: Sequence[Message], window: int, summary: Summary | None) -> MergePlan:
        items = await self._store.latest(self._key, None if _begins_with_results(incoming) else window, failed=False)
        since = summary.last if summary else 0
        return history_merge.plan_append([item for item in items if item.seq > since], incoming)

    async def _is_newest(self, turn: str) -> bool:
        """Return whether ``turn`` is committed and is the last turn of the current branch, so that its continuation
        needs no new branch."""
        ended = [turn for turn in await self._store.turns(self._key, AT_THE_END) if turn.state != "open"]
        return bool(ended) and ended[-1].id == turn and ended[-1].state == "committed"

    async def _plan_continuation(self, turn: str, incoming: Sequence[Message]) -> MergePlan:
        """Plan to place the messages after an earlier turn. Raises TurnNotFound for an unknown turn, InvalidRequest for
        a turn that failed or has no messages."""
        whole = await self._store.whole(self._key)
        assert whole is not None, "a turn of it is open"
        before = whole.up_to(turn)
        if before is None:
            raise TurnNotFound("The session does not contain the turn that `after` names.")
        if not before or before[-1].turn != turn:
            raise InvalidRequest("The turn that `after` names has no messages, so it cannot be continued.")
        failed = {turn.id for turn in whole.turns if turn.state == "failed"}
        if turn in failed:
            raise InvalidRequest("The turn that `after` names failed, so it cannot be continued.")
        placed = history_merge.plan_append([item for item in before if item.turn not in failed], incoming)
        newest = whole.select_branch()[1][-1:]
        at_end = bool(newest) and newest[0].seq == before[-1].seq
        return placed if at_end or placed.behind is not None else replace(placed, behind=before[-1].seq)

    async def _page_items(self, page: Sequence[PageCell]) -> list[Item]:
        """Return the items for notebook cells that replace the conversation in this turn. A cell with answered turns
        becomes the items of the newest of these turns, on any branch. The text of every other cell becomes hidden
        context."""
        items: list[Item] = []
        texts: list[str] = []
        for cell in page:
            cell_turns = await self._store.of_cell(self._key, cell.id, OF_CELL) if cell.id else []
            turn = next((turn for turn in reversed(cell_turns) if turn.state == "committed"), None)
            if turn is None:
                texts += [cell.text] if cell.text else []
                continue
            items += [*_cells_to_items(texts), *await self._store.of_turn(turn)]
            texts = []
        return [*items, *_cells_to_items(texts)]

    async def _summary(self) -> Summary | None:
        """Return the newest summary. Return None if the caller selects the history itself, with a limit or a hook."""
        return next(reversed(await self._store.summaries(self._key)), None)

    async def _plan_replay(self, incoming: Sequence[Message]) -> MergePlan:
        whole = await self._store.whole(self._key)
        assert whole is not None, "a turn of it is open"
        clean = incoming if self._clean is None else await self._clean(incoming)
        if len(whole.items) + len(clean) > AT_ONCE:
            placed = await asyncio.to_thread(history_merge.plan_replay, whole, clean)
        else:
            placed = history_merge.plan_replay(whole, clean)
        as_said = {id(kept): message for kept, message in zip(clean, incoming, strict=True)}
        carried, added = (
            tuple(as_said.get(id(message), message) for message in part) for part in (placed.carried, placed.added)
        )
        return replace(placed, carried=carried, added=added)

    async def _apply_hook(self, placed: MergePlan, notes: Sequence[Message], window: int) -> PreparedTurn:
        """Apply the input hook, which decides what the model sees and what is stored. Return the prepared turn.

        Earlier exchanges that the client sent along are stored as separate turns, unless the hook changed them.
        """
        earlier, unanswered = history_merge.split_exchanges(placed.carried)
        to_store = [*unanswered, *notes, *placed.added]
        carried = [message for batch in earlier for message in batch]
        history = history_merge.newest_messages(placed.history, window)
        if self._hook is None:
            seen = history_merge.newest_messages([*placed.history, *carried], window)
            return PreparedTurn(seen, to_store, to_store, placed.behind, earlier)
        shaped = await input_hook.apply_hook(self._hook, history, [*carried, *to_store])
        before, now = (
            history_merge.drop_unpaired(part) for part in (shaped.seen[: shaped.before], shaped.seen[shaped.before :])
        )
        if shaped.to_store == (*carried, *to_store):
            return PreparedTurn(before, now, to_store, placed.behind, earlier)
        return PreparedTurn(before, now, history_merge.drop_unpaired(shaped.to_store), placed.behind)


def _cells_to_items(texts: Sequence[str]) -> list[Item]:
    """Wrap cell texts as an item that belongs to no turn: it is part of the notebook, not of the session."""
    return [Item(0, "", user("\n\n".join([CELLS, *texts]), hidden=True), 0.0)] if texts else []


def _begins_with_results(incoming: Sequence[Message]) -> bool:
    """Return whether the messages begin with tool results; their calls may be anywhere in the history."""
    return incoming[0].role == "tool"


def _incoming(request: TurnRequest) -> list[Message]:
    prompt = [user(request.prompt, request.media)] if request.prompt or request.media else []
    return [*request.messages, *prompt]


def _notes(request: TurnRequest, lost: str) -> list[Message]:
    """Return the hidden context of the turn, without duplicates. If a client repeats a turn, its request contains the
    notes of the first run again, so duplicates occur."""
    notes: list[str] = []
    in_draft = any(note.title == DRAFT_VARIABLES for note in request.notes)
    for note in request.notes:
        if in_draft and note.title == VARIABLES:
            continue
        text = note.text if note.title in ("", DRAFT_VARIABLES) else f"{note.title}: {note.text}"
        if not any(text in earlier for earlier in notes):
            notes.append(text)
    if lost:
        notes.insert(0, lost)
    return [user("\n".join(notes), hidden=True)] if notes else []
