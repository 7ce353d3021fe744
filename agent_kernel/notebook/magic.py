"""``%%agent`` and ``%agent``: a turn in a cell, and what is around it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from IPython.core.magic import Magics, cell_magic, line_magic, magics_class

from agent_kernel.errors import AgentKernelError, from_json
from agent_kernel.events import TurnFinished
from agent_kernel.notebook.abilities import Abilities
from agent_kernel.notebook.arrivals import Arrivals
from agent_kernel.notebook.cell import Cells
from agent_kernel.notebook.client import Server, server_of_this_kernel
from agent_kernel.notebook.commands import Commands, interrupted
from agent_kernel.notebook.completion import Completion
from agent_kernel.notebook.consent import LIVE, Consent, answers
from agent_kernel.notebook.conversation import Say
from agent_kernel.notebook.copies import Given, given
from agent_kernel.notebook.draft import Drafts
from agent_kernel.notebook.executions import Executions
from agent_kernel.notebook.functions import Functions
from agent_kernel.notebook.images import attached
from agent_kernel.notebook.keep import Keep
from agent_kernel.notebook.live import LiveCode
from agent_kernel.notebook.oneline import AgentError, AgentInterrupted, line_of
from agent_kernel.notebook.options import Request, parsed, usage
from agent_kernel.notebook.person import Person
from agent_kernel.notebook.place import Place
from agent_kernel.notebook.pull import ModelPull, missing_model
from agent_kernel.notebook.python import Python
from agent_kernel.notebook.render import Summary, Version, line_bundle
from agent_kernel.notebook.screen import Screen, screen_for
from agent_kernel.notebook.touched import Touched
from agent_kernel.notebook.turn import CellTurn, Surroundings
from agent_kernel.notebook.variables import named_in_braces, summary, tables_mentioned, without_braces


@magics_class
class AgentMagics(Magics):
    """State of one kernel: what was allowed, which cells were met."""

    def __init__(self, shell: Any, server: Server | None) -> None:
        super().__init__(shell)
        self._shell = shell
        self._person = Person(shell)
        self._consent = Consent()
        self._code = LiveCode(shell)
        self.executions = Executions(shell)
        self.functions = Functions(shell.user_ns)
        self._abilities = Abilities(shell, self._code, self.executions, self.functions)
        self._in_turn = False
        self._cells = Cells(shell)
        self._arrivals = Arrivals(shell)
        self._touched = Touched(shell)
        self._drafts = Drafts(shell)
        self._keep = Keep(shell, self._drafts, self._person, self._code, self._touched, self._live_is_denied)
        self._place = Place(shell, self._drafts)
        self._commands = Commands(
            shell, server, self._person, self._consent, self._show, python=self._python, declared=self._declared
        )
        self.completion = Completion(server)

    @line_magic("agent")  # type: ignore[arg-type]  # IPython annotates the decorator without a name
    def command(self, line: str) -> None:
        """%agent status | sessions | search WORDS | use ID | new | branches | undo | stop | model | in | keep | help"""
        with _one_line():
            try:
                self._commands.run(line)
            except KeyboardInterrupt:
                raise interrupted() from None

    @cell_magic("agent")  # type: ignore[arg-type]
    def turn(self, line: str, cell: str) -> None:
        """%%agent [options] [prompt]: one turn of this notebook's conversation; %%agent --help has the options."""
        with _one_line():
            request = parsed(line)
            if request.help:
                self._shell.display_pub.publish({"text/plain": usage()})
                return
            prompt = "\n".join(part for part in (request.words, cell.strip("\n")) if part.strip())
            if not prompt.strip():
                raise AgentError("what shall I do? Write the prompt below %%agent.")
            with self._one_at_a_time():
                self._turn(request, prompt, self._cells.id_of(f"{line}\n{cell}"))

    @contextlib.contextmanager
    def _one_at_a_time(self) -> Iterator[None]:
        """A turn that code of a turn asks for would wait for its own end."""
        if self._in_turn:
            raise AgentError("an agent cell can not be run from inside an agent cell.")
        self._in_turn = True
        try:
            yield
        finally:
            self._in_turn = False

    def close(self) -> None:
        self._arrivals.close()
        self.executions.close()
        self._drafts.close()
        self._code.close()

    def _turn(self, request: Request, prompt: str, cell: str) -> None:
        server = self._commands.server
        session = request.session or (self._commands.begin() if request.new else "")
        body = self._body(request, prompt, cell, session)
        end = self._followed(request, body, cell)
        error = from_json(end.error) if end.error else None
        offer = missing_model(error) if error else None
        if offer and ModelPull(server, self._shell, offer).offered(self._person):
            end = self._followed(request, {**body, "rerun": "append"}, cell)  # the first try is no version
            error = from_json(end.error) if end.error else None
        if error is not None:
            raise error
        if end.state != "committed":
            raise AgentError(f"the turn was {end.state}: {end.reason}." if end.reason else f"the turn was {end.state}.")

    def _followed(self, request: Request, body: dict[str, Any], cell: str) -> TurnFinished:
        server = self._commands.server
        screen = screen_for(self._shell)
        started = server.call("POST", "turns", body)
        self._commands.last_turn = started["turn"]
        allowed = frozenset({LIVE}) if request.where == "live" and request.permission != "ask" else frozenset()
        around = self._around(screen, allowed, ask=request.permission == "ask")
        summary = Summary(started["turn"], started["session"], cell=cell, private=started["private"])
        if started["stored"]:
            summary.stored, summary.version = started["answered"], _version(started["version"])
        end = CellTurn(around, summary).follow()
        if end.state == "committed" and not started["stored"]:
            self._keep.after(started["turn"], body["prompt"], screen)
        return end

    def _around(self, screen: Screen, allowed: frozenset[str] = frozenset(), *, ask: bool = False) -> Surroundings:
        return Surroundings(
            self._commands.server,
            screen,
            self._person,
            self._consent,
            self._abilities,
            self._touched,
            self._keep,
            allowed,
            ask,
        )

    def _show(self, told: Mapping[str, Any]) -> None:
        """An earlier answer, as it was kept."""
        summary = Summary(told["turn"], told["session"], stored=told["answered"], version=_version(told))
        CellTurn(self._around(screen_for(self._shell)), summary).follow()

    def _body(self, request: Request, prompt: str, cell: str, session: str) -> dict[str, Any]:
        named = named_in_braces(prompt, self._shell.user_ns)
        self._drafts.begin()
        place = self._place.of(request.where, live_is_allowed=self._is_allowed(session))
        copies = self._given(request, prompt, named, place)
        body: dict[str, Any] = {
            "prompt": without_braces(prompt, named),
            "context": self._notes(request, prompt, named, copies),
            "cell": cell,
            "rerun": "show" if not request.fresh and self._arrivals.together() else "ask",
            "alive": self._touched.intact(),
            "answers": self._answers(request, session),
            **self._runs(),
            "remembered": request.permission != "ask",
            "denied": sorted(self._consent.refused(session or self._bound())) if self._consent else [],
            "sampling": request.sampling,
        }
        optional = {
            "session": session,
            "where": place,
            "given": copies.variables,
            "permission": request.permission,
            "model": request.model,
            "media": attached(request.images, self._shell.user_ns),
            "skills": list(request.skills),
        }
        body |= {name: value for name, value in optional.items() if value}
        return body if request.rounds is None else {**body, "max_tool_rounds": request.rounds}

    def _runs(self) -> dict[str, Any]:
        """What this kernel can run of a turn's calls."""
        return {"client_tools": self._abilities.names, "functions": self.functions.to_json()}

    def _declared(self) -> dict[str, Any]:
        """The part of a turn's body that decides what may be called in it."""
        place = self._place.of("", live_is_allowed=self._is_allowed(""))
        return {**self._runs(), **({"where": place} if place else {})}

    def _given(self, request: Request, prompt: str, named: list[str], place: str) -> Given:
        """Copies for the sandbox of what the person named; where it stands in for a draft, of tables as well."""
        namespace = self._shell.user_ns
        for name in request.variables:
            if name not in namespace:
                raise AgentError(f"there is no variable {name!r} in this kernel.")
        if place != "sandbox":
            return Given()
        tables = tables_mentioned(prompt, namespace) if request.where == "draft" else []
        copies = given(dict.fromkeys([*request.variables, *named, *tables]), namespace)
        for name, reason in copies.left_out.items():
            text = f"{name} is not in the sandbox, only what it looks like: {reason}."
            self._shell.display_pub.publish(line_bundle(text))
        return copies

    def _notes(self, request: Request, prompt: str, named: list[str], copies: Given) -> list[dict[str, str]]:
        namespace = self._shell.user_ns
        names = dict.fromkeys([*request.variables, *named, *tables_mentioned(prompt, namespace)])
        lines = [summary(name, namespace[name]) for name in names]
        lines += [f"{name} is not in the sandbox: {reason}." for name, reason in copies.left_out.items()]
        facts = "\n".join(lines)
        return [{"title": "Variables", "text": facts}] if facts else []

    def _python(self, server: Callable[[], Server], say: Say) -> Python:
        return Python(self._shell, self._place, self._keep, server, say)

    def _is_allowed(self, session: str) -> bool:
        """Whether the person lets code of this session run in their kernel unasked."""
        return bool(self._consent) and self._consent.allows(session or self._bound())

    def _live_is_denied(self) -> str:
        """Why what a draft made may not be run for real, by this person or by the server."""
        if self._consent and self._consent.refuses(self._bound(), LIVE):
            return "you have denied live code in this session, and %agent allow live takes that back"
        try:
            rule = self._commands.server.call("GET", "agent/permissions")["policy"].get(LIVE, {})
        except AgentKernelError as error:
            return str(error)
        return f"live code is denied here, by {rule['because']}" if rule.get("permission") == "deny" else ""

    def _bound(self) -> str:
        return str((self._commands.bound() or {}).get("id", ""))

    def _answers(self, request: Request, session: str) -> list[str]:
        """Without a person only what was allowed beforehand can be answered."""
        if self._person.is_there or request.permission == "ask":
            return answers(self._person.is_there, ())
        kinds = {LIVE} if request.where == "live" else set()
        if self._consent:
            kinds |= self._consent.kinds(session or self._bound())
        return answers(False, kinds)


def _version(told: Mapping[str, Any]) -> Version:
    return Version(told["branch"], told["number"], told["count"], told["replaces"])


@contextlib.contextmanager
def _one_line() -> Iterator[None]:
    """Errors of ours reach the person as a line, without our frames."""
    try:
        yield
    except AgentKernelError as error:
        raise line_of(error) from None
    except KeyboardInterrupt as stop:
        if isinstance(stop, AgentInterrupted):
            raise
        raise AgentInterrupted("stopped.") from None


def with_body(lines: list[str]) -> list[str]:
    """IPython refuses a cell magic without a body; a prompt may stand in the first line alone."""
    return [*lines, "\n"] if len(lines) == 1 and lines[0].startswith("%%agent") else lines


def load(shell: Any) -> None:
    """Registers both magics and their completion; loading twice does nothing more."""
    if isinstance(shell.magics_manager.registry.get("AgentMagics"), AgentMagics):
        return
    magics = AgentMagics(shell, server_of_this_kernel())
    shell.register_magics(magics)
    shell.Completer.custom_matchers.append(magics.completion.match)
    shell.input_transformers_cleanup.append(with_body)


def unload(shell: Any) -> None:
    magics = shell.magics_manager.registry.pop("AgentMagics", None)
    if magics is None:
        return
    magics.close()
    for kind in ("line", "cell"):
        shell.magics_manager.magics[kind].pop("agent", None)
    shell.Completer.custom_matchers.remove(magics.completion.match)
    shell.input_transformers_cleanup.remove(with_body)
