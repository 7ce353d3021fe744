"""Routes that bind a notebook to a session, and the page on which a person confirms a kernel's request."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tornado.escape import xhtml_escape
from tornado.httputil import url_concat
from tornado.web import RequestHandler

from agent_kernel.core.errors import AgentKernelError, Conflict, InvalidRequest, NotFound
from agent_kernel.core.session import Session, SessionKey
from agent_kernel.core.trusted_folders import file_digest
from agent_kernel.core.version import __version__
from agent_kernel.engines.openai_api.endpoint import Endpoint
from agent_kernel.sessions.store.private_store import is_private
from agent_kernel.tools.mcp.config import BESIDE, read
from jupyter_ext.api.http.handler import AgentHandler, guard
from jupyter_ext.api.native.models import current_engine
from jupyter_ext.api.native.request_schemas import BindingBody
from jupyter_ext.api.native.sessions import session_to_json
from jupyter_ext.api.schemas import server as shapes
from jupyter_ext.api.schemas.operation import NOTEBOOK_NAMED, PLACE, WHICH_NOTEBOOK, Raw, operation
from jupyter_ext.api.schemas.sessions import Session as SessionShape
from jupyter_ext.auth.confirmation_requests import BindRequest
from jupyter_ext.notebooks.bindings import KERNEL
from jupyter_ext.notebooks.sidecar_import import sidecar_note

CLEARED = (
    "{cells} agent cell(s) of this notebook have no outputs, but the conversation still contains what their tools "
    'printed. To remove that too, run the magic command "agent clear outputs" in a cell.'
)
PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{heading}</title></head>
<body><h1>{heading}</h1>
<p>{asked}</p>
{rest}</body></html>"""
SESSION = (
    "The notebook <b>{notebook}</b> asks to continue the conversation <b>{title}</b> ({turns} turns). "
    "Code in that notebook will be able to read it and to add to it."
)
ENGINE = (
    "The notebook <b>{notebook}</b> asks to send its conversation <b>{title}</b> ({turns} turns so far), and all that "
    "follows, to the {where} server <b>{host}</b> ({engine})."
)
SEARCH = (
    "The notebook <b>{notebook}</b> asks to search all conversations of <b>{namespace}</b>. Code in that notebook will "
    "be able to read what it finds, until its kernel is shut down."
)
TRUST = (
    "The notebook <b>{notebook}</b> asks that its folder <b>{folder}</b> be trusted. Turns of notebooks there, and "
    "below, will then follow its instructions (AGENTS.md), use its skills (.agents/skills) and start the MCP servers "
    "of its .mcp.json as it is now: {commands}."
)
DECISION = Raw(
    ("application/x-www-form-urlencoded",),
    {"type": "object", "properties": {"decision": {"enum": ["confirmed", "denied"]}}, "required": ["decision"]},
)
FORM = """<form method="post">{xsrf}<button name="decision" value="confirmed">Let it</button>
<button name="decision" value="denied">Refuse</button></form>"""


def commands_of(folder: Path) -> str:
    """Return the commands of the servers in ``.mcp.json``, without arguments, which may contain keys."""
    path = folder / BESIDE
    if not path.is_file():
        return "there is no such file"
    try:
        commands = [f"{server.name} ({server.public_address})" for server in read(path).servers]
    except InvalidRequest as error:
        return f"it cannot be used: {error.message}"
    return ", ".join(commands) or "it names no servers"


class BindingHandler(AgentHandler):
    @guard("read")
    @operation(shapes.Binding, query=PLACE, errors=(404,))
    async def get(self) -> None:
        """Get the session that a notebook is bound to."""
        place = await self.find_queried_place()
        key = await self.services.notebooks.bound_session(self.caller.namespace, place) if place else None
        session = await self.services.runtime.store.info(key) if key else None
        kernel = self.services.access.kernel(self.caller, self.get_argument("kernel", ""))
        self.reply(
            {
                "session": session_to_json(session) if session else None,
                "notebook": None if place is None or place.startswith(KERNEL) else place,
                "kernel": kernel.id if kernel else None,
                "namespace": self.caller.namespace,
                "server": {"version": __version__, "url": self.services.url()},
                "model": await current_engine(self.services, self.caller, key),
                "notes": await self._notes(key, place),
                "open": bool(kernel and self.services.page_tools.tools(self.caller.namespace, kernel.id)),
                "environment": dict(self.services.kernel_environment) if kernel and kernel.starts_server else {},
            }
        )

    async def _notes(self, key: SessionKey | None, place: str | None) -> list[str]:
        """Return messages for the person about the files of this notebook, one line each."""
        if place is None or place.startswith(KERNEL):
            return []
        sidecar = await self.services.sidecar_imports.inspect(self.caller.namespace, place)
        beside = self.services.sidecars.file(place)
        notes = [
            sidecar_note(sidecar, beside.main.name if beside else ""),
            self.services.sidecars.problem(self.caller.namespace, place),
        ]
        cleared = await self.services.cleared_outputs.find_cells(key, place) if key else []
        if cleared:
            notes.append(CLEARED.format(cells=len(cleared)))
        return [note for note in notes if note]

    @guard("write")
    @operation(
        SessionShape,
        body=BindingBody,
        query=PLACE,
        also={202: shapes.Pending},
        errors=(404, 507),
        conditions=NOTEBOOK_NAMED,
    )
    async def put(self) -> None:
        """Bind a notebook to a session."""
        body = self.parse(BindingBody)
        place = await self.find_queried_place()
        if place is None:
            raise InvalidRequest("The request does not name the notebook for the session.", hint=WHICH_NOTEBOOK)
        session = await self.services.runtime.store.info(SessionKey(self.caller.namespace, body.session))
        kernel = self.caller.kernel
        if kernel and not await self.services.access.may_use(self.caller, body.session):
            key = SessionKey(self.caller.namespace, body.session)
            if session is None:
                raise NotFound(f"There is no session {body.session}.")
            bind = self.services.bind_requests.add(kernel.id, key, place)
            self.reply(self.services.bind_requests.pending(bind), 202)
            return
        session = await self.services.access.session(self.caller, body.session)
        await self.services.notebooks.bind(session.key, place)
        self.reply(session_to_json(session))

    @guard("write")
    @operation(shapes.Unbound, query=PLACE, errors=(404,), conditions=NOTEBOOK_NAMED)
    async def delete(self) -> None:
        """Unbind a notebook from its session.

        After a private session, the notebook is bound to the session that it had before. A private session is deleted;
        every other session stays in the store.
        """
        notebooks = self.services.notebooks
        place = await self.find_queried_place()
        if place is None:
            raise InvalidRequest("The request does not name the notebook to unbind.", hint=WHICH_NOTEBOOK)
        key = await notebooks.bound_session(self.caller.namespace, place)
        unbound = key is not None and await notebooks.unbind(self.caller.namespace, place)
        if key is not None and is_private(key.id) and not await notebooks.paths(key):
            await self.services.private_sessions.forget(key)
        now = await notebooks.bound_session(self.caller.namespace, place)
        self.reply({"unbound": key.id if unbound and key else None, "session": now.id if now else None})


class BindHandler(AgentHandler):
    @guard("read")
    @operation(shapes.BindState, errors=(404,))
    async def get(self, bind_id: str) -> None:
        """Get the state of a kernel's request for confirmation."""
        bind = self.services.bind_requests.get(bind_id)
        kernel = self.caller.kernel
        if bind.key.namespace != self.caller.namespace or (kernel and bind.kernel != kernel.id):
            raise NotFound("There is no request for confirmation with this id.")
        self.reply({"status": self.services.bind_requests.state(bind)})


class BindConfirmHandler(AgentHandler):
    """A page without scripts. No page may embed it in a frame, so that a click on it is intended."""

    @property
    def content_security_policy(self) -> str:
        policy = super().content_security_policy.replace("frame-ancestors 'self'", "frame-ancestors 'none'")
        return f"{policy}; form-action 'self'"

    def get_login_url(self) -> str:
        """Return the address of the login page. Other API handlers have none, but a person opens this page in a
        browser."""
        return RequestHandler.get_login_url(self)

    def refuse(self, error: AgentKernelError, status: int) -> None:
        """Send a browser that is not logged in to the login page, which leads back here."""
        is_browser = "text/html" in self.request.headers.get("Accept", "")
        if status != 401 or self.request.method != "GET" or not is_browser:
            super().refuse(error, status)
            return
        url = self.get_login_url()  # JupyterHub's URL has parameters, and one of them leads back here
        self.redirect(url if "?" in url else url_concat(url, {"next": self.request.uri}))

    def check_xsrf_cookie(self) -> None:
        """Do nothing: the XSRF token is in the form, and ``post`` checks it."""

    @guard("read", kernels=False)
    @operation(Raw(("text/html",)), errors=(404,))
    async def get(self, bind_id: str) -> None:
        """Get the page on which a person confirms or denies a kernel's request."""
        bind, session = await self._find_request(bind_id)
        if bind.folder:
            bind.digest = await asyncio.to_thread(file_digest, Path(bind.folder) / BESIDE)
        waiting = self.services.bind_requests.state(bind) == "waiting"
        xsrf = self.xsrf_form_html()
        rest = (
            FORM.format(xsrf=xsrf) if waiting else f"<p>This request is {self.services.bind_requests.state(bind)}.</p>"
        )
        self._page(bind, session, rest)

    @guard("write", kernels=False)
    @operation(Raw(("text/html",)), body=DECISION, errors=(404, 409))
    async def post(self, bind_id: str) -> None:
        """Confirm or deny a kernel's request."""
        super().check_xsrf_cookie()
        bind, session = await self._find_request(bind_id)
        decision = self.get_body_argument("decision", "")
        if decision == "confirmed":
            self.services.bind_requests.decide(bind, "confirmed")
            await self._grant(bind)
        elif decision == "denied":
            self.services.bind_requests.decide(bind, "denied")
        else:
            raise InvalidRequest("decision must be 'confirmed' or 'denied'.")
        self._page(bind, session, f"<p>{decision.capitalize()}. You can close this page.</p>")

    async def _grant(self, bind: BindRequest) -> None:
        kernel = self.services.kernels.get(bind.kernel)
        if bind.folder:
            if await asyncio.to_thread(file_digest, Path(bind.folder) / BESIDE) != bind.digest:
                raise Conflict(
                    f"{BESIDE} was changed since this page showed it.", hint="Ask for it again in the notebook."
                )
            await asyncio.to_thread(self.services.runtime.trust.add, Path(bind.folder))
            return
        if bind.search:
            if kernel:
                kernel.may_search = True
            return
        if kernel:
            kernel.sessions.add(bind.key.id)
        if bind.engine:
            await self.services.state.engine_choices.set(bind.key, bind.engine)
        else:
            await self.services.notebooks.bind(bind.key, bind.place)

    async def _find_request(self, bind_id: str) -> tuple[BindRequest, Session]:
        bind = self.services.bind_requests.get(bind_id)
        of_none = Session(bind.key) if bind.search or bind.folder else None
        session = of_none or await self.services.runtime.store.info(bind.key)
        if bind.key.namespace != self.caller.namespace or session is None:
            raise NotFound("There is no request for confirmation with this id.")
        return bind, session

    def _page(self, bind: BindRequest, session: Session, rest: str) -> None:
        words = {"notebook": bind.place, "title": session.title or session.key.id, "turns": str(session.turn_count)}
        words |= {"namespace": bind.key.namespace}
        if bind.engine:
            endpoint = Endpoint.of_url(bind.engine)
            words |= {"engine": bind.engine, "host": endpoint.host, "where": "local" if endpoint.local else "remote"}
        if bind.folder:
            words |= {"folder": bind.folder, "commands": commands_of(Path(bind.folder))}
        escaped = {name: xhtml_escape(word) for name, word in words.items()}
        heading, question = (
            ("Trust a folder", TRUST)
            if bind.folder
            else ("Search all conversations", SEARCH)
            if bind.search
            else ("Send a conversation to a server", ENGINE)
            if bind.engine
            else ("Use another conversation", SESSION)
        )
        question = question.format(**escaped)
        html = PAGE.format(heading=heading, asked=question, rest=rest)
        self.finish(html, set_content_type="text/html; charset=utf-8")
