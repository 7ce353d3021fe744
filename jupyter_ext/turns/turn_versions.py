"""A cell that is run again: its answer of before, or a branch on which it is asked again.

The turns of a session are a tree. A cell whose turn is on the current branch is asked again on a new branch that ends
before that turn; the old one, and what followed it, stay where they are. A cell that has no turn on the current branch
goes on at its end.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import hashlib
import json
import logging
import re
from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import dataclass

from agent_kernel.core.errors import AgentKernelError, Conflict, TurnNotFound
from agent_kernel.core.events import TurnVersion
from agent_kernel.core.messages import Message
from agent_kernel.core.request import TurnRequest
from agent_kernel.core.seams.session_store import SessionStore
from agent_kernel.core.session import Branch, SessionKey, Turn, new_id
from agent_kernel.notebook.kernel.variables import EARLIER
from agent_kernel.sessions import message_hash
from agent_kernel.turn.turn_writer import await_uncancelled

log = logging.getLogger(__name__)
ASKED = "asked"
"""In the record of a turn: what it asked, as ``fingerprint`` tells it."""
ASKED_PARTS = "asked_parts"
"""In the record of a turn: a digest of each part of what it asked, as ``fingerprints`` tells them."""
COPY_OF = "copy_of"
"""In the record of a turn without a cell: the turn of another branch that it repeats."""
TRIES = 3
NAME_CHARS = 40
PARTS = {
    "prompt": "the prompt changed",
    "notes": "the variables that the model is told of changed",
    "model": "the model is another one",
}
OPTIONS = "its options changed"
BEFORE = "what came before it in the conversation changed"
NOT_ANSWERED = "its last turn was {state}"
VARIABLES = "variables"
"""Why a cell is asked again: variables of the kernel are not what its code left. The kernel knows which."""


def fingerprint(request: TurnRequest, model: str) -> str:
    """The same for two requests that ask the same of the same model: prompt, pictures, what the model is told of
    variables and files, and every option. Not who can answer a question, nor the life of the kernel, nor what the
    question before it was about."""
    counted = {
        "model": [request.model, model],
        "prompt": request.prompt,
        "media": [(medium.mime, medium.hash) for medium in request.media],
        "notes": [(note.title, note.text) for note in request.notes if note.title != EARLIER],
        "where": request.where,
        "permission": request.permission,
        "sampling": dataclasses.asdict(request.sampling),
        "rounds": request.max_tool_rounds,
        "calls": [request.tool_choice, request.parallel_calls],
        "output": dataclasses.asdict(request.output) if request.output else None,
    }
    if request.page:
        counted["page"] = request.page
    if request.skills:
        counted["skills"] = list(request.skills)
    if request.inputs or request.outputs:
        counted["files"] = [list(request.inputs), [(one.path, one.format) for one in request.outputs]]
    if request.messages:
        counted["carried"] = [message_hash.hash_chain(request.messages)[-1], request.history]
    return hashlib.sha256(json.dumps(counted, sort_keys=True, default=str).encode()).hexdigest()


def fingerprints(request: TurnRequest, model: str) -> dict[str, str]:
    """A short digest of the parts of a question that ``PARTS`` names. Of two questions with equal ones and another
    fingerprint, the options differ."""
    parts = {
        "prompt": [request.prompt, [(medium.mime, medium.hash) for medium in request.media]],
        "notes": [(note.title, note.text) for note in request.notes if note.title != EARLIER],
        "model": [request.model, model],
    }
    return {name: hashlib.sha256(json.dumps(part).encode()).hexdigest()[:16] for name, part in parts.items()}


def branch_name(prompt: str) -> str:
    """The first words of a prompt, as one word that can be typed; empty: it has none."""
    words = re.findall(r"\w+", prompt)
    name = ""
    for word in words:
        longer = f"{name}-{word}" if name else word[:NAME_CHARS]
        if len(longer) > NAME_CHARS:
            break
        name = longer
    return name


@dataclass(frozen=True, slots=True)
class Place:
    """The newest turn of a cell on the current branch, and the turns that follow it there."""

    turn: Turn
    following: tuple[Turn, ...]


class Versions:
    def __init__(self, store: SessionStore) -> None:
        self._store = store

    async def find(self, key: SessionKey, cell: str, id: str = "") -> Place | None:
        """The turn ``id``, where one is named, else the newest of the cell; None if the current branch has none."""
        if not id and (not cell or not await self._store.of_cell(key, cell, 1)):
            return None
        shown = await self._store.turns(key)
        for at, turn in reversed(list(enumerate(shown))):
            if turn.id == id if id else turn.cell == cell:
                return Place(turn, tuple(shown[at + 1 :]))
        return None

    async def stored(self, key: SessionKey, cell: str, asked: str, alive: Collection[str] = ()) -> Turn | None:
        """The turn whose answer still holds: committed, on the current branch, of the same ``asked``. What came before
        it is then what came before it at the time. A turn that ran code in the kernel, or in a draft that may have been
        kept there, holds only while its id is in ``alive``: the variables it made are still there."""
        place = await self.find(key, cell)
        if place is None or place.turn.state != "committed" or place.turn.record.get(ASKED) != asked:
            return None
        turn = place.turn
        if turn.where in ("live", "draft") and turn.id not in alive and any(map(ran, await self.said(turn))):
            return None
        return turn

    async def why_again(self, key: SessionKey, cell: str, asked: str, parts: dict[str, str]) -> tuple[str, str] | None:
        """Why the newest turn of the cell does not stand for its answer, in words or VARIABLES, and that turn; None:
        the cell was never asked. To be asked when ``stored`` gave nothing."""
        known = await self._store.of_cell(key, cell, 1)
        if not known:
            return None
        place = await self.find(key, cell)
        turn = place.turn if place else known[-1]
        if turn.record.get(ASKED) != asked:
            before = turn.record.get(ASKED_PARTS) or {}
            changed = [words for part, words in PARTS.items() if before and before.get(part) != parts[part]]
            return changed[0] if changed else OPTIONS, turn.id
        if place is None:
            return BEFORE, turn.id
        return (VARIABLES if turn.state == "committed" else NOT_ANSWERED.format(state=turn.state)), turn.id

    async def said(self, turn: Turn) -> list[Message]:
        """The messages of a turn, of whichever branch."""
        return [item.message for item in await self._store.of_turn(turn)]

    async def of(self, turn: Turn) -> list[tuple[str, str]]:
        """(turn, branch) of all versions of a turn, itself included, in the order they were asked: the turns of its
        cell that stand in its place, or those there that belong to no cell."""
        pairs = await self._store.siblings(turn.key, turn.id)
        if len(pairs) < 2:
            return pairs
        if turn.cell:
            mine = {other.id for other in await self._store.of_cell(turn.key, turn.cell)}
        else:
            others = [await self._store.turn(turn.key.namespace, id) for id, _ in pairs]
            mine = {turn.id} | {other.id for other in others if other is not None and not other.cell}
        return [pair for pair in pairs if pair[0] in mine]

    async def told(self, turn: Turn) -> TurnVersion | None:
        """Of a turn that was stored; None for one without other versions."""
        versions = await self.of(turn)
        ids = [id for id, _ in versions]
        if len(ids) < 2 or turn.id not in ids:
            return None
        place = ids.index(turn.id)
        before = versions[place - 1] if place else ("", "")
        return TurnVersion(versions[place][1], place + 1, len(ids), before[0], before[1])

    @contextlib.asynccontextmanager
    async def opened(
        self, key: SessionKey, cell: str, asked: str, replaces: str = "", name: str = ""
    ) -> AsyncIterator[TurnVersion | None]:
        """Around a turn that asks a cell, or the turn ``replaces``, again: on a branch of its own, called ``name`` if
        that is free, which is taken back if the turn saved nothing. None, and no branch, for a cell that has no turn on
        the current branch. Turns without a cell that followed the cell's turn (messages of the panel) are repeated
        behind the new one, so that they stay in the conversation that is shown. Raises SessionBusy, TurnNotFound for a
        ``replaces`` that is not there."""
        begun = await self._begun(key, cell, asked, replaces, name)
        if begun is None:
            yield None
            return
        version, messages = begun
        try:
            yield version
        finally:
            await await_uncancelled(self._take_back(key, version.branch, version.kept_on))
            await await_uncancelled(self._repeat(key, version.branch, messages))

    async def _begun(
        self, key: SessionKey, cell: str, asked: str, replaces: str, name: str
    ) -> tuple[TurnVersion, Sequence[Turn]] | None:
        """On a branch that was made for it, with the turns to be repeated there. Another server may go to another
        branch in between: then it is looked at again."""
        for attempt in range(TRIES):
            place, session = await self.find(key, cell, replaces), await self._store.info(key)
            if replaces and place is None:
                raise TurnNotFound("The turn to be asked again is not on the current branch.")
            if place is None or session is None:
                return None
            count = len(await self.of(place.turn)) + 1
            try:
                made = await self._branched(key, place.turn.id, session.branch, name)
            except TurnNotFound:
                if attempt == TRIES - 1:
                    raise
                continue
            changed = place.turn.record.get(ASKED, asked) != asked
            repeated = [] if replaces else [turn for turn in place.following if not turn.cell]
            later = len(place.following) - len(repeated)
            version = TurnVersion(made.name, count, count, place.turn.id, session.branch, later, changed)
            return version, [turn for turn in repeated if turn.state == "committed"]
        raise AssertionError("unreachable")

    async def _repeat(self, key: SessionKey, branch: str, turns: Sequence[Turn]) -> None:
        """On the branch, if it still is there and is the current one; a turn that cannot be repeated stays where it
        is."""
        try:
            session = await self._store.info(key)
            for turn in turns if session is not None and session.branch == branch else ():
                copy = dataclasses.replace(
                    turn,
                    id=new_id("turn"),
                    usage={},
                    record={**turn.record, COPY_OF: turn.record.get(COPY_OF, turn.id)},
                )
                await self._store.add_turn(copy, await self.said(turn))
        except AgentKernelError as error:
            log.warning("messages of session %s stay on their branch: %s", key.id, error)

    async def _branched(self, key: SessionKey, before: str, current: str, name: str) -> Branch:
        """A branch that was made when the cancellation came is taken back."""
        making = asyncio.ensure_future(self._made(key, before, name))
        try:
            return await await_uncancelled(making)
        except asyncio.CancelledError:
            if not making.cancelled() and making.exception() is None:
                await await_uncancelled(self._take_back(key, making.result().name, current))
            raise

    async def _made(self, key: SessionKey, before: str, name: str) -> Branch:
        """Called ``name``, or that with a number where there is or was such a branch; else as the store likes."""
        known = {branch.name for branch in await self._store.branches(key)} if name else set()
        for number in range(2, len(known) + 2 + TRIES) if name else ():
            free = name if number == 2 and name not in known else f"{name}-{number}"
            if free not in known:
                try:
                    return await self._store.branch(key, before=before, name=free)
                except Conflict as taken:  # the name of a dropped branch
                    if "branch" not in taken.details:
                        raise
        return await self._store.branch(key, before=before)

    async def _take_back(self, key: SessionKey, name: str, current: str) -> None:
        """Unless something was saved on it. What can not be taken back now is an empty branch, which harms nothing."""
        try:
            made = next((branch for branch in await self._store.branches(key) if branch.name == name), None)
            if made is None or made.head > made.since:
                return
            if made.current:
                await self._store.switch(key, current)
            await self._store.drop_branch(key, name)
        except AgentKernelError as error:
            log.warning("the empty branch %s of session %s stays: %s", name, key.id, error)


def ran(message: Message) -> bool:
    """The result of a call that was not refused."""
    return message.role == "tool" and message.status != "denied"
