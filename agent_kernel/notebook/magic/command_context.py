"""Holds the objects that all ``%agent`` commands share: the server, the session of this notebook, questions to the
user, and outputs."""

from __future__ import annotations

import html
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from agent_kernel.notebook.display.render import Bundle, json_bundle, line_bundle, table_bundle
from agent_kernel.notebook.display.terminal_escape import printable
from agent_kernel.notebook.kernel.input_prompt import Person
from agent_kernel.notebook.kernel.one_line_errors import AgentError
from agent_kernel.notebook.magic.command_arguments import CommandArguments
from agent_kernel.notebook.magic.embedded_server import EmbeddedServer
from agent_kernel.notebook.server_client import NO_SERVER, ServerClient, route
from agent_kernel.notebook.turn.session_permissions import Consent

POLL_S = 0.5
ON_HUB = " at the address of your JupyterHub"
UNCONFIRMED = {
    "denied": "nothing changed: you refused the request.",
    "expired": "nothing changed: the request was not confirmed in time. Run the cell again to ask once more.",
}

Json: TypeAlias = Mapping[str, Any]


@dataclass(slots=True)
class CommandContext:
    """Gives the ``%agent`` commands access to the kernel, the server and the session of this notebook.

    ``started_by`` is the server that started this kernel, or None. ``show`` displays a stored answer. ``last_turn`` is
    the id of the last turn that a cell of this kernel ran, or "" if the conversation has changed since."""

    shell: Any
    person: Person
    consent: Consent
    started_by: ServerClient | None
    embedded: EmbeddedServer
    show: Callable[[Json], None]
    last_turn: str = ""

    # ------------------------------------------------------------------------------------------- server

    @property
    def known_server(self) -> ServerClient | None:
        """The server that started this kernel, or the server that ``%agent start`` started for it; None if there is
        neither."""
        return self.started_by or self.embedded.server

    @property
    def server(self) -> ServerClient:
        """The server of this kernel. Raises ServerUnreachable when no server started this kernel and ``%agent
        start`` has not started one."""
        if (server := self.known_server) is None:
            raise NO_SERVER
        return server

    # ------------------------------------------------------------------------------------------- session

    def find_session(self) -> Json | None:
        """Return the session of this notebook, or None if it has none yet."""
        session: Json | None = self.server.call("GET", "binding")["session"]
        return session

    def require_session(self) -> Json:
        """Return the session of this notebook. Raises AgentError if it has none yet."""
        if (session := self.find_session()) is None:
            raise AgentError("this notebook has no session yet; the first %%agent cell starts one.")
        return session

    def begin_session(self, title: str = "") -> str:
        """Create a session, bind it to this notebook and return its id."""
        return str(self.server.call("POST", "sessions", {"title": title, "bind": True})["id"])

    def list_turns(self, session: Json) -> list[Json]:
        """Return the turns of the session's current branch, oldest first."""
        return list(self.server.call("GET", f"{session_path(session, 'items')}?limit=0")["turns"])

    def find_turn(self, number: int | None = None) -> str:
        """Return the id of turn ``number`` of this conversation; without a number, that of its last turn. Raises
        AgentError if there is no such turn."""
        turns = self.list_turns(self.require_session())
        if not turns:
            raise AgentError("this session has no turn yet; an %%agent cell runs the first one.")
        if number is not None and not 1 <= number <= len(turns):
            raise AgentError(
                f"there is no turn {number}; the turns of this conversation have the numbers 1 to {len(turns)}."
            )
        return str(turns[-1 if number is None else number - 1]["id"])

    def show_version(self, answer: Json, version: Json) -> None:
        """Display the answer number ``version`` of a cell. ``answer`` is the server's list of all answers to
        that cell.
        """
        position = {"number": version["version"], "count": len(answer["versions"]), "replaces": ""}
        answered = version["closed"] or version["opened"]
        self.show({**version, **position, "session": answer["session"], "answered": answered})

    # ------------------------------------------------------------------------------------------- user

    def publish(self, bundle: Bundle) -> None:
        """Display ``bundle``. In a terminal, control characters are removed, because titles and names may come from
        other people or the model."""
        if getattr(self.shell, "kernel", None) is None:
            bundle = {**bundle, "text/plain": printable(str(bundle["text/plain"]))}
        self.shell.display_pub.publish(bundle)

    def print_line(self, text: str) -> None:
        self.publish(line_bundle(text))

    def list(
        self,
        arguments: CommandArguments,
        value: Any,
        head: Sequence[str],
        rows: Sequence[Sequence[object]],
        none: str = "",
    ) -> None:
        """Display ``rows`` as a table with the column titles ``head``, or ``value`` as JSON if the arguments have
        ``--json``. ``none`` is the line that is displayed if there are no rows."""
        if "--json" in arguments.flags:
            self.publish(json_bundle(value))
        elif rows:
            self.publish(table_bundle(head, rows))
        else:
            self.print_line(none or f"There is no {head[0]} yet.")

    def confirm(self, arguments: CommandArguments, question: str, refused: str = "nothing changed") -> None:
        """Ask the user to confirm, unless the arguments have ``--yes``. If the user does not agree, raises AgentError,
        whose message begins with ``refused``."""
        if "--yes" not in arguments.flags and not self.person.agrees(question):
            raise AgentError(f"{refused}: you have not confirmed it. The option --yes confirms without a question.")

    def await_confirmation(self, answer: Json, why: str, link_text: str) -> None:
        """Show a link and wait until the user has confirmed the request in the browser, if ``answer`` says that the
        server requires a confirmation. A kernel cannot confirm a request itself, because code of the model may run in
        the kernel. ``why`` is the reason, and ``link_text`` the text of the link. Raises AgentError if the user
        refuses."""
        if "pending" not in answer:
            return
        url = html.escape(answer["url"], quote=True)
        self.publish(
            {
                "text/html": f"<div>{html.escape(why)} "
                f"<a href='{url}' target='_blank' rel='noopener'>{html.escape(link_text)}</a>; "
                "this cell waits until you confirm; stop the cell to change nothing.</div>",
                "text/plain": f"{why} {link_text}: open {answer['url']}"
                f"{ON_HUB if answer['url'].startswith('/') else ''}",
            }
        )
        while (status := self.server.call("GET", route("binds", answer["pending"]))["status"]) != "confirmed":
            if status != "waiting":
                raise AgentError(UNCONFIRMED.get(status, f"nothing changed: the request is {status}."))
            time.sleep(POLL_S)


def session_path(session: Json, *more: str) -> str:
    """Return the server's path of a session. ``more`` are further segments of the path, which name a part of the
    session."""
    return route("sessions", str(session["id"]), *more)


class CommandGroup:
    """Base class of the classes that implement ``%agent`` commands, with one method for each command."""

    def __init__(self, context: CommandContext) -> None:
        self._context = context
        self._print_line = context.print_line
