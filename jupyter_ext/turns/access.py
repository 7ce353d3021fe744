"""What a caller may use: a user all sessions of their namespace; a kernel those bound to its notebook, those it made,
and those a person let it use."""

from __future__ import annotations

from dataclasses import dataclass

from agent_kernel.core.errors import Forbidden, InvalidRequest, NotFound, SessionNotFound, TurnNotFound, UnknownModel
from agent_kernel.core.seams.session_store import SessionStore
from agent_kernel.core.session import Session, SessionKey, Turn
from agent_kernel.engines.openai_api.endpoint import is_url
from agent_kernel.engines.registry import NamedEngines
from jupyter_ext.auth.callers import Caller
from jupyter_ext.notebooks.bindings import Notebooks, is_notebook
from jupyter_ext.notebooks.kernels import Kernel, Kernels
from jupyter_ext.notebooks.private_sessions import PrivateSessions
from jupyter_ext.turns.engine_choices import Choices
from jupyter_ext.turns.stored_events import find_turn
from jupyter_ext.turns.turns import LiveTurn, Turns


@dataclass(frozen=True, slots=True)
class Access:
    store: SessionStore
    kernels: Kernels
    notebooks: Notebooks
    turns: Turns
    choices: Choices
    private: PrivateSessions
    engines: NamedEngines
    allow_urls: bool

    def kernel(self, caller: Caller, kernel: str = "") -> Kernel | None:
        """The kernel a request is about: the caller, or one a user names. Raises NotFound, Forbidden."""
        if caller.confined and kernel:
            raise Forbidden(CONFINED)
        if caller.kernel:
            if kernel not in ("", caller.kernel.id):
                raise Forbidden("A kernel speaks for itself only.")
            return caller.kernel
        found = self.kernels.get(kernel)
        if kernel and (found is None or found.namespace != caller.namespace):
            raise NotFound("There is no such kernel.")
        return found

    async def place(self, caller: Caller, kernel: str = "", path: str = "") -> str | None:
        """The notebook or kernel a request is about, if it is about one."""
        if found := self.kernel(caller, kernel):
            return await self.notebooks.place(found.id)
        path = path.strip("/")
        if caller.confined and path:
            raise Forbidden(CONFINED)
        if path and not is_notebook(path):
            raise InvalidRequest("path names a notebook below the contents root.")
        return path or None

    async def may_use(self, caller: Caller, session: str) -> bool:
        """Whether the caller may read and write the session, which need not exist."""
        if caller.kernel is None or caller.kernel.own or session in caller.kernel.sessions:
            return True
        bound = await self.notebooks.bound(caller.namespace, await self.notebooks.place(caller.kernel.id))
        if bound is None or bound.id != session:
            return False
        caller.kernel.sessions.add(session)
        return True

    async def readable(self, caller: Caller) -> frozenset[str] | None:
        """The sessions whose text the caller may read; None: all of the namespace."""
        if caller.kernel is None or caller.kernel.searches:
            return None
        bound = await self.notebooks.bound(caller.namespace, await self.notebooks.place(caller.kernel.id))
        return frozenset(caller.kernel.sessions) | ({bound.id} if bound else set())

    async def session(self, caller: Caller, session: str) -> Session:
        """Raises SessionNotFound, Forbidden."""
        key = SessionKey(caller.namespace, session)
        found = await self.store.info(key)
        if found is None:
            raise SessionNotFound(f"There is no session {session}.")
        if not await self.may_use(caller, session):
            raise foreign(session)
        return found

    async def claim_id(self, caller: Caller, session: str) -> bool:
        """A session with this id may be made or used by the caller; True if it has to be made. Raises Forbidden."""
        exists = await self.store.info(SessionKey(caller.namespace, session)) is not None
        if not await self.may_use(caller, session):
            if exists:
                raise foreign(session)
            assert caller.kernel is not None, "a user may use every session of the namespace"
            caller.kernel.sessions.add(session)
        self.private.add(SessionKey(caller.namespace, session))
        return not exists

    async def turn(self, caller: Caller, turn: str) -> LiveTurn:
        """A turn whose log is here. Raises TurnNotFound, also for a turn that the caller may not know of."""
        live = self.turns.get(turn)
        if live is None or live.order.key.namespace != caller.namespace:
            raise TurnNotFound("There is no such turn.")
        mine = caller.kernel is not None and live.order.kernel == caller.kernel.id
        if not mine and not await self.may_use(caller, live.order.key.id):
            raise TurnNotFound("There is no such turn.")
        return live

    async def stored_turn(self, caller: Caller, turn: str, session: str | None) -> Turn:
        """Raises TurnNotFound, also for a turn that the caller may not know of."""
        stored = await find_turn(self.store, caller.namespace, turn, session)
        if not await self.may_use(caller, stored.key.id):
            raise TurnNotFound("There is no such turn.")
        return stored

    async def engine(self, caller: Caller, key: SessionKey, model: str | None = None) -> str:
        """The name of the engine that a turn of the session goes to: the one it names, else the session's choice, else
        the server's own (empty). Raises UnknownModel, Forbidden."""
        chosen = await self.choices.get(key)
        name = model or chosen
        if name != chosen and not self.may_choose(caller, name):
            who, hint = (
                ("A token", "") if caller.token else ("A notebook", "A person has to confirm the address of another.")
            )
            raise Forbidden(f"{who} may only choose engines of the configuration.", hint=hint)
        try:
            self.engines.get(name)
        except UnknownModel as error:
            if model:
                raise
            raise UnknownModel(
                f"This conversation was given to {chosen}, which is not in the configuration any more.",
                hint="Choose another model, or go back to the server's own.",
            ) from error
        return name

    def may_choose(self, caller: Caller, engine: str) -> bool:
        """Code in a kernel could send a conversation anywhere by a URL, so there a person says yes first; a token with
        less than all names none."""
        if self.allow_urls or not is_url(engine):
            return True
        return caller.kernel.own if caller.kernel else not caller.confined

    def own_turn(self, caller: Caller, turn: str) -> LiveTurn:
        """A turn whose calls the caller may run: of its kernel, or its token, for a user any. Raises TurnNotFound."""
        live = self.turns.get(turn)
        if live is None or live.order.key.namespace != caller.namespace:
            raise TurnNotFound("There is no such turn.")
        if caller.kernel is not None and live.order.kernel != caller.kernel.id:
            raise TurnNotFound("There is no such turn.")
        if caller.confined and live.order.by != caller.by:
            raise TurnNotFound("There is no such turn.")
        return live


CONFINED = "Notebooks and kernels are for tokens with the scope all."


def foreign(session: str) -> Forbidden:
    return Forbidden(
        f"This notebook may not use session {session}.", hint="Bind the notebook to it; a person has to confirm."
    )
