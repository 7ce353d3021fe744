"""Checks which sessions, turns, notebooks, kernels and engines a caller may use.

A user may use every session of their namespace. A kernel may use the sessions bound to its notebook, those it created,
and those that a person allowed it to use.
"""

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
from jupyter_ext.turns.chosen_engines import ADDRESS_ELSEWHERE, EngineChoices
from jupyter_ext.turns.remote_turns import RemoteTurns
from jupyter_ext.turns.stored_events import find_turn
from jupyter_ext.turns.turns import LiveTurn, Turns


@dataclass(frozen=True, slots=True)
class Access:
    """Checks what a caller may use on this server.

    The lookup methods raise NotFound, or an error derived from it. They do so also for an object that exists in another
    namespace, so that a caller cannot find out which ids other users have.
    """

    store: SessionStore
    kernels: Kernels
    notebooks: Notebooks
    turns: Turns
    remote_turns: RemoteTurns
    choices: EngineChoices
    private: PrivateSessions
    engines: NamedEngines
    allow_urls: bool

    def kernel(self, caller: Caller, kernel: str = "") -> Kernel | None:
        """Return the kernel that a request is about: the calling kernel, or for other callers the kernel with the id
        ``kernel`` (None if ``kernel`` is empty). Raises NotFound, Forbidden."""
        if caller.is_confined and kernel:
            raise Forbidden(CONFINED)
        if caller.kernel:
            if kernel not in ("", caller.kernel.id):
                raise Forbidden("A request with the token of a kernel can only name that kernel.")
            return caller.kernel
        known_kernel = self.kernels.get(kernel)
        if kernel and (known_kernel is None or known_kernel.namespace != caller.namespace):
            raise NotFound("There is no kernel with this id.")
        return known_kernel

    async def kernel_of(self, caller: Caller, notebook: str) -> Kernel | None:
        """Return the kernel that runs the notebook now; None if no kernel of the caller's namespace runs it. Raises
        Forbidden if the caller is a kernel or a confined token, which may not name notebooks."""
        if caller.kernel or caller.is_confined:
            raise Forbidden(CONFINED)
        kernel = self.kernels.get(await self.notebooks.kernel_id(notebook))
        return kernel if kernel and kernel.namespace == caller.namespace else None

    async def place(self, caller: Caller, kernel: str = "", path: str = "") -> str | None:
        """Return the place that a request is about: the place of the calling kernel or of the kernel with the id
        ``kernel``, else the notebook at ``path``; None if the request names none of these. A place is the path of a
        notebook, or ``kernel:ID`` for a kernel without a notebook. Raises InvalidRequest, NotFound, Forbidden."""
        if calling_kernel := self.kernel(caller, kernel):
            return await self.notebooks.place(calling_kernel.id)
        path = path.strip("/")
        if caller.is_confined and path:
            raise Forbidden(CONFINED)
        if path and not is_notebook(path):
            raise InvalidRequest("path must be the path of a notebook below the contents root.")
        return path or None

    async def may_use(self, caller: Caller, session: str) -> bool:
        """Return whether the caller may read and write the session. The session need not exist."""
        if caller.kernel is None or caller.kernel.starts_server or session in caller.kernel.sessions:
            return True
        if session not in (await self.own(caller) or ()):
            return False
        caller.kernel.sessions.add(session)
        return True

    async def readable(self, caller: Caller) -> frozenset[str] | None:
        """Return the ids of the sessions whose text the caller may read; None means every session of the namespace."""
        if caller.kernel is not None and caller.kernel.may_search:
            return None
        return await self.own(caller)

    async def own(self, caller: Caller) -> frozenset[str] | None:
        """Return the ids of the sessions that a calling kernel uses: the sessions that it has created or was allowed to
        use, and the session of its notebook. None for a user, who may use every session of the namespace."""
        if caller.kernel is None:
            return None
        bound = await self.notebooks.bound_session(caller.namespace, await self.notebooks.place(caller.kernel.id))
        return frozenset(caller.kernel.sessions) | ({bound.id} if bound else set())

    async def session(self, caller: Caller, session: str) -> Session:
        """Return the session. Raises SessionNotFound, Forbidden."""
        key = SessionKey(caller.namespace, session)
        stored = await self.store.info(key)
        if stored is None:
            raise SessionNotFound(f"There is no session {session}.")
        if not await self.may_use(caller, session):
            raise session_forbidden(session)
        return stored

    async def claim_id(self, caller: Caller, session: str) -> bool:
        """Check that the caller may create or use a session with this id; return True if it does not exist yet.
        Raises Forbidden."""
        exists = await self.store.info(SessionKey(caller.namespace, session)) is not None
        if not await self.may_use(caller, session):
            if exists:
                raise session_forbidden(session)
            assert caller.kernel is not None, "a user may use every session of the namespace"
            caller.kernel.sessions.add(session)
        self.private.add(SessionKey(caller.namespace, session))
        return not exists

    async def turn(self, caller: Caller, turn: str) -> LiveTurn:
        """Return a turn whose event log is still held by this server, or by another one that shares the store. Raises
        TurnNotFound, also where the caller may not use the turn's session."""
        live = await self._live_turn(caller, turn)
        is_own = caller.kernel is not None and live.spec.kernel == caller.kernel.id
        if not is_own and not await self.may_use(caller, live.spec.key.id):
            raise TurnNotFound("There is no such turn.")
        return live

    async def stored_turn(self, caller: Caller, turn: str, session: str | None) -> Turn:
        """Return a turn from the store. Raises TurnNotFound, also where the caller may not use the turn's session."""
        stored = await find_turn(self.store, caller.namespace, turn, session)
        if not await self.may_use(caller, stored.key.id):
            raise TurnNotFound("There is no such turn.")
        return stored

    async def engine(self, caller: Caller, key: SessionKey, model: str | None = None) -> str:
        """Return the name of the engine for a turn of the session: ``model`` if given, else the session's choice,
        else the server's default (empty). Raises UnknownModel, Forbidden, StoreError."""
        chosen = await self.choices.get(key)
        name = model or chosen
        if name == ADDRESS_ELSEWHERE:
            raise UnknownModel(
                "This conversation uses a model server whose address is known only on the server where it was chosen.",
                hint="Choose another model, or name the model server in the configuration of all servers.",
            )
        if name != chosen and not self.may_choose(caller, name):
            subject, hint = (
                ("A token, or a user who shares this server,", "")
                if caller.is_confined
                else ("A notebook", "To use another engine, choose its URL; a person must confirm it in the browser.")
            )
            raise Forbidden(f"{subject} may only choose engines that the server's configuration names.", hint=hint)
        self.check_visible(caller, name)
        try:
            self.engines.get(name)
        except UnknownModel as error:
            if model:
                raise
            raise UnknownModel(
                f"This conversation uses {chosen}, which is not in the configuration any more.",
                hint="Choose another model, or the server's default.",
            ) from error
        return name

    def check_visible(self, caller: Caller, engine: str) -> None:
        """Raise UnknownModel if another user added this model server. The error is the same as for a server that does
        not exist."""
        if self.engines.hides(engine, caller.namespace):
            raise UnknownModel(f"There is no engine or model {engine[:100]!r} here.")

    def may_choose(self, caller: Caller, engine: str) -> bool:
        """Return whether the caller may choose this engine without a confirmation.

        An engine that is a URL can receive a whole conversation, so code in a kernel needs a person's confirmation for
        it, and a token with less than the scope ``all`` cannot choose one at all.
        """
        if self.allow_urls or not is_url(engine):
            return True
        return caller.kernel.starts_server if caller.kernel else not caller.is_confined

    async def find_own_turn(self, caller: Caller, turn: str) -> LiveTurn:
        """Return a live turn whose client-side calls the caller may run. A kernel may run those of its own turns, a
        token those of the turns that it started, and a user those of every turn. The turn may run on another server.
        Raises TurnNotFound."""
        live = await self._live_turn(caller, turn)
        of_another_kernel = caller.kernel is not None and live.spec.kernel != caller.kernel.id
        if of_another_kernel or (caller.is_confined and live.spec.started_by != caller.started_by):
            raise TurnNotFound("There is no such turn.")
        return live

    async def _live_turn(self, caller: Caller, turn: str) -> LiveTurn:
        live = self.turns.get(turn) or await self.remote_turns.find(caller.namespace, turn)
        if live is None or live.spec.key.namespace != caller.namespace:
            raise TurnNotFound("There is no such turn.")
        return live


CONFINED = "A request about a notebook or a kernel needs a token with the scope all."


def session_forbidden(session: str) -> Forbidden:
    return Forbidden(
        f"This notebook may not use session {session}.", hint="Bind the notebook to it; a person has to confirm."
    )
