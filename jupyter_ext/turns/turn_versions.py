"""Handles a cell that is run again: returns its stored answer, or asks again on a new branch.

The turns of a session form a tree. If a cell is run again and its turn is on the current branch, a new branch is
created that ends before that turn. The old branch stays as it is, with the turns that follow. A cell without a turn on
the current branch continues at the end of that branch.
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
from agent_kernel.core.messages import DRAFT_VARIABLES, Message
from agent_kernel.core.seams.session_store import SessionStore
from agent_kernel.core.session import Branch, SessionKey, Turn, new_id
from agent_kernel.core.shielded_await import await_uncancelled
from agent_kernel.core.turn_request import TurnRequest
from agent_kernel.notebook.kernel.variable_summary import UNNAMED
from agent_kernel.sessions import message_comparison

log = logging.getLogger(__name__)
NOT_COMPARED = (*UNNAMED, DRAFT_VARIABLES)
"""Titles of the notes that do not count when two requests are compared."""
ASKED = "asked"
"""Key in a turn's record: the ``fingerprint`` of its request."""
ASKED_PARTS = "asked_parts"
"""Key in a turn's record: the ``fingerprints`` of the parts of its request."""
COPY_OF = "copy_of"
"""Key in the record of a turn without a cell: the turn of another branch that it repeats."""
TRIES = 3
NAME_CHARS = 40
PARTS = {
    "prompt": "the prompt changed",
    "notes": "the variables that the model sees changed",
    "model": "the model changed",
    "instructions": "the instructions of the server, the folder, the conversation or the request changed",
}
OPTIONS = "its options changed"
BEFORE = "the earlier part of the conversation changed"
NOT_ANSWERED = "its last turn was {state}"
VARIABLES = "variables"
"""Reason for asking again: the kernel's variables are not those that the cell's code left. Only the kernel can say
which variables differ."""


def fingerprint(request: TurnRequest, model: str) -> str:
    """Return a hash that is equal for two requests that ask the same model the same thing.

    It covers the prompt, media, notes about variables and files, and every option. It does not cover who can answer
    approvals, the kernel's epoch (a restart of the kernel changes it), or the topic of the previous question.
    """
    counted = {
        "model": [request.model, model],
        "prompt": request.prompt,
        "media": [(medium.mime, medium.hash) for medium in request.media],
        "notes": [(note.title, note.text) for note in request.notes if note.title not in NOT_COMPARED],
        "where": request.where,
        "permission": request.permission,
        "sampling": dataclasses.asdict(request.sampling),
        "rounds": request.max_tool_rounds,
        "calls": [request.tool_choice, request.parallel_calls],
        "output": dataclasses.asdict(request.output) if request.output else None,
    }
    if request.instructions:
        counted["instructions"] = request.instructions
    if request.effort:
        counted["effort"] = request.effort
    if request.page:
        counted["page"] = request.page
    if request.skills:
        counted["skills"] = list(request.skills)
    if request.inputs or request.outputs:
        counted["files"] = [list(request.inputs), [(output.path, output.format) for output in request.outputs]]
    if request.messages:
        counted["carried"] = [message_comparison.hash_chain(request.messages)[-1], request.history]
    return hashlib.sha256(json.dumps(counted, sort_keys=True, default=str).encode()).hexdigest()


def fingerprints(request: TurnRequest, model: str) -> dict[str, str]:
    """Return a short digest for each part of a request that ``PARTS`` names. If all digests of two requests are equal
    but their fingerprints differ, their options differ."""
    parts = {
        "prompt": [request.prompt, [(medium.mime, medium.hash) for medium in request.media]],
        "notes": [(note.title, note.text) for note in request.notes if note.title not in NOT_COMPARED],
        "model": [request.model, model],
    }
    if request.instructions:
        parts["instructions"] = [request.instructions]
    return {name: hashlib.sha256(json.dumps(part).encode()).hexdigest()[:16] for name, part in parts.items()}


def branch_name(prompt: str) -> str:
    """Return a branch name made of the first words of a prompt, joined with hyphens so that a person can type the name;
    empty if the prompt has no words."""
    words = re.findall(r"\w+", prompt)
    name = ""
    for word in words:
        longer = f"{name}-{word}" if name else word[:NAME_CHARS]
        if len(longer) > NAME_CHARS:
            break
        name = longer
    return name


@dataclass(frozen=True, slots=True)
class TurnPosition:
    """The newest turn of a cell on the current branch, and the turns that follow it there."""

    turn: Turn
    following: tuple[Turn, ...]


class TurnVersions:
    def __init__(self, store: SessionStore) -> None:
        self._store = store

    async def find(self, key: SessionKey, cell: str, id: str = "") -> TurnPosition | None:
        """Return the position of the turn ``id`` if given, else of the newest turn of the cell; None if the current
        branch has no such turn."""
        if not id and (not cell or not await self._store.of_cell(key, cell, 1)):
            return None
        turns = await self._store.turns(key)
        for at, turn in reversed(list(enumerate(turns))):
            if turn.id == id if id else turn.cell == cell:
                return TurnPosition(turn, tuple(turns[at + 1 :]))
        return None

    async def find_valid_answer(
        self, key: SessionKey, cell: str, request_hash: str, alive: Collection[str] = ()
    ) -> Turn | None:
        """Return the turn whose answer is still valid, or None. A valid turn is committed, is on the current branch,
        and has the fingerprint ``request_hash``. The turns before it are then the same as when it ran.

        A turn that ran code in the kernel, or in a draft that may have been kept there, is valid only while its id is
        in ``alive``: the ids of the turns whose variables still exist.
        """
        place = await self.find(key, cell)
        if place is None or place.turn.state != "committed" or place.turn.record.get(ASKED) != request_hash:
            return None
        turn = place.turn
        if turn.where in ("live", "draft") and turn.id not in alive and any(map(did_run, await self.messages(turn))):
            return None
        return turn

    async def explain_rerun(
        self, key: SessionKey, cell: str, request_hash: str, parts: dict[str, str]
    ) -> tuple[str, str] | None:
        """Return why the newest turn of the cell cannot be reused, as text or VARIABLES, and that turn's id; None if
        the cell has never been run. Call this after ``find_valid_answer`` returned None."""
        newest = await self._store.of_cell(key, cell, 1)
        if not newest:
            return None
        place = await self.find(key, cell)
        turn = place.turn if place else newest[-1]
        if turn.record.get(ASKED) != request_hash:
            before = turn.record.get(ASKED_PARTS) or {}
            changed = [words for part, words in PARTS.items() if before and before.get(part) != parts.get(part)]
            return changed[0] if changed else OPTIONS, turn.id
        if place is None:
            return BEFORE, turn.id
        return (VARIABLES if turn.state == "committed" else NOT_ANSWERED.format(state=turn.state)), turn.id

    async def messages(self, turn: Turn) -> list[Message]:
        """Return the messages of a turn, on whichever branch it is."""
        return [item.message for item in await self._store.of_turn(turn)]

    async def list_versions(self, turn: Turn) -> list[tuple[str, str]]:
        """Return (turn, branch) for all versions of a turn, including the turn itself, in the order in which they were
        asked. The versions of a cell's turn are the turns of the same cell that follow the same turn. The versions of a
        turn without a cell are the turns without a cell that follow the same turn."""
        pairs = await self._store.siblings(turn.key, turn.id)
        if len(pairs) < 2:
            return pairs
        if turn.cell:
            version_ids = {other.id for other in await self._store.of_cell(turn.key, turn.cell)}
        else:
            others = [await self._store.turn(turn.key.namespace, id) for id, _ in pairs]
            version_ids = {turn.id} | {other.id for other in others if other is not None and not other.cell}
        return [pair for pair in pairs if pair[0] in version_ids]

    async def describe(self, turn: Turn) -> TurnVersion | None:
        """Return the event that states which version of an answer a stored turn is; None if its question has only one
        answer."""
        versions = await self.list_versions(turn)
        ids = [id for id, _ in versions]
        if len(ids) < 2 or turn.id not in ids:
            return None
        place = ids.index(turn.id)
        before = versions[place - 1] if place else ("", "")
        return TurnVersion(versions[place][1], place + 1, len(ids), before[0], before[1])

    @contextlib.asynccontextmanager
    async def open_branch(
        self, key: SessionKey, cell: str, request_hash: str, replaces: str = "", name: str = ""
    ) -> AsyncIterator[TurnVersion | None]:
        """Run the body of the ``with`` statement, which runs one turn, on a new branch if the turn asks a cell or the
        turn ``replaces`` again. Yield the version of the turn, or None if no branch was created.

        The branch gets the name ``name`` if that is free, and is dropped again if the turn saved nothing. Turns without
        a cell that followed the old turn (panel messages) are repeated after the new turn, so that they stay visible in
        the conversation. Raises SessionBusy, and TurnNotFound if ``replaces`` is not on the current branch.
        """
        begun = await self._begin_branch(key, cell, request_hash, replaces, name)
        if begun is None:
            yield None
            return
        version, messages = begun
        try:
            yield version
        finally:
            await await_uncancelled(self._take_back(key, version.branch, version.kept_on))
            await await_uncancelled(self._repeat_turns(key, version.branch, messages))

    async def _begin_branch(
        self, key: SessionKey, cell: str, request_hash: str, replaces: str, name: str
    ) -> tuple[TurnVersion, Sequence[Turn]] | None:
        """Create the branch; return its version event and the turns to repeat there. Another server may switch
        branches in the meantime, so the position is looked up again up to TRIES times."""
        for attempt in range(TRIES):
            place, session = await self.find(key, cell, replaces), await self._store.info(key)
            if replaces and place is None:
                raise TurnNotFound("The turn to be asked again is not on the current branch.")
            if place is None or session is None:
                return None
            count = len(await self.list_versions(place.turn)) + 1
            try:
                branch = await self._branch_or_take_back(key, place.turn.id, session.branch, name)
            except TurnNotFound:
                if attempt == TRIES - 1:
                    raise
                continue
            changed = place.turn.record.get(ASKED, request_hash) != request_hash
            repeated = [] if replaces else [turn for turn in place.following if not turn.cell]
            later = len(place.following) - len(repeated)
            version = TurnVersion(branch.name, count, count, place.turn.id, session.branch, later, changed)
            return version, [turn for turn in repeated if turn.state == "committed"]
        raise AssertionError("unreachable")

    async def _repeat_turns(self, key: SessionKey, branch: str, turns: Sequence[Turn]) -> None:
        """Copy the turns to the branch if it still exists and is current. A turn that cannot be copied stays where
        it is."""
        try:
            session = await self._store.info(key)
            for turn in turns if session is not None and session.branch == branch else ():
                copy = dataclasses.replace(
                    turn,
                    id=new_id("turn"),
                    usage={},
                    record={**turn.record, COPY_OF: turn.record.get(COPY_OF, turn.id)},
                )
                await self._store.add_turn(copy, await self.messages(turn))
        except AgentKernelError as error:
            log.warning("turns of session %s could not be copied to its new branch: %s", key.id, error)

    async def _branch_or_take_back(self, key: SessionKey, before: str, current: str, name: str) -> Branch:
        """Create a branch; if the task is cancelled meanwhile, drop the branch again and raise the cancellation."""
        making = asyncio.ensure_future(self._create_branch(key, before, name))
        try:
            return await await_uncancelled(making)
        except asyncio.CancelledError:
            if not making.cancelled() and making.exception() is None:
                await await_uncancelled(self._take_back(key, making.result().name, current))
            raise

    async def _create_branch(self, key: SessionKey, before: str, name: str) -> Branch:
        """Create a branch called ``name``. If a branch of that name exists or existed, a number is appended to the
        name. With an empty name the store chooses one."""
        branch_names = {branch.name for branch in await self._store.branches(key)} if name else set()
        for number in range(2, len(branch_names) + 2 + TRIES) if name else ():
            free = name if number == 2 and name not in branch_names else f"{name}-{number}"
            if free not in branch_names:
                try:
                    return await self._store.branch(key, before=before, name=free)
                except Conflict as taken:  # a dropped branch had this name
                    if "branch" not in taken.details:
                        raise
        return await self._store.branch(key, before=before)

    async def _take_back(self, key: SessionKey, name: str, current: str) -> None:
        """Drop the branch ``name`` if nothing was saved on it, and make ``current`` the current branch again. If
        dropping fails, the empty branch stays, which is harmless."""
        try:
            new_branch = next((branch for branch in await self._store.branches(key) if branch.name == name), None)
            if new_branch is None or new_branch.head > new_branch.since:
                return
            if new_branch.current:
                await self._store.switch(key, current)
            await self._store.drop_branch(key, name)
        except AgentKernelError as error:
            log.warning("the empty branch %s of session %s could not be deleted: %s", name, key.id, error)


def did_run(message: Message) -> bool:
    """Return whether the message is the result of a call that was not refused."""
    return message.role == "tool" and message.status != "denied"
