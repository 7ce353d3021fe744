"""Implements the IPython magics ``%%agent`` (one turn in a cell) and ``%agent`` (commands), and registers them in a
shell."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import re
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from IPython.core.completer import CompletionContext, SimpleMatcherResult, context_matcher
from IPython.core.magic import Magics, cell_magic, line_magic, magics_class

from agent_kernel.core.errors import AgentKernelError
from agent_kernel.core.version import __version__
from agent_kernel.notebook.draft.apply_draft import DraftApplier
from agent_kernel.notebook.draft.draft import Drafts
from agent_kernel.notebook.kernel.cell_identity import CellIdentity
from agent_kernel.notebook.kernel.input_prompt import Person
from agent_kernel.notebook.kernel.live_execution import LiveCode
from agent_kernel.notebook.kernel.one_line_errors import AgentError, AgentInterrupted, to_short_error
from agent_kernel.notebook.kernel.variable_fingerprints import VariableTracker
from agent_kernel.notebook.magic.command_context import CommandContext
from agent_kernel.notebook.magic.embedded_server import EmbeddedServer
from agent_kernel.notebook.server_client import ServerClient, server_of_this_kernel
from agent_kernel.notebook.turn.cell_options import CellOptions, parse_options, usage
from agent_kernel.notebook.turn.client_tool_registry import ClientTools
from agent_kernel.notebook.turn.execution_history import ExecutionHistory
from agent_kernel.notebook.turn.execution_target import run_request
from agent_kernel.notebook.turn.kernel_parts import KernelParts
from agent_kernel.notebook.turn.request_builder import RequestBuilder
from agent_kernel.notebook.turn.session_permissions import LIVE, Consent
from agent_kernel.notebook.turn.user_functions import UserFunctions

if TYPE_CHECKING:
    from agent_kernel.notebook.magic.cell_turns import CellTurns
    from agent_kernel.notebook.magic.fix_explain_improve import CellTask

QUESTION = re.compile(r"\s*%agent\s+\S+\s.*\?\s*$")
"""Matches an ``%agent`` line of at least two words that ends with a question mark."""
VARIABLE = "AGENT_KERNEL_VERSION"
"""The environment variable in which a server gives its version to its kernels."""


@magics_class
class AgentMagics(Magics):
    """The magics of one kernel and their state: consents, drafts, turns and the connection to the server.

    ``in_turn`` is true while a turn of a cell runs. ``has_prompt_cells``: the kernel runs prompt cells, and if it has
    no server, its first turn starts one, as ``%agent start`` does."""

    def __init__(self, shell: Any, server: ServerClient | None) -> None:
        super().__init__(shell)
        self._shell = shell
        self._code = LiveCode(shell)
        self._parts = self._build_parts()
        self.executions, self.functions = self._parts.executions, self._parts.functions
        self._drafts = self._parts.drafts
        self.in_turn = False
        self.has_prompt_cells = False
        self._version_notice = version_notice()
        self._cells = CellIdentity(shell)
        self._requests = RequestBuilder(self._parts, self._session_id)
        self._context = CommandContext(
            shell,
            self._parts.person,
            self._parts.consent,
            server,
            EmbeddedServer(shell),
            lambda version: self._turns.show_stored(version),
        )

    @functools.cached_property
    def _turns(self) -> CellTurns:
        """The turns and commands. Imported at the first use, because they need most of this package, and a kernel that
        loads this extension may run neither."""
        from agent_kernel.notebook.magic.cell_turns import CellTurns

        return CellTurns(self._parts, self._context, self._requests, self._cells, self._one_turn)

    def _build_parts(self) -> KernelParts:
        shell, person, drafts = self._shell, Person(self._shell), Drafts(self._shell)
        executions, functions, variables = ExecutionHistory(shell), UserFunctions(shell.user_ns), VariableTracker(shell)
        tools = ClientTools(shell, self._code, executions, functions)
        applier = DraftApplier(shell, drafts, person, self._code, variables, self._live_is_denied)
        return KernelParts(shell, person, Consent(), executions, functions, tools, variables, drafts, applier)

    @line_magic("agent")  # type: ignore[arg-type]  # IPython annotates the decorator without a name
    def command(self, line: str) -> None:
        """Run an %agent command: status | sessions | search WORDS | use ID | new | branches | undo | stop | model |
        in | keep | help"""
        with _one_line(interrupted="stopped; nothing changed."):
            self._turns.commands.run(line)

    @line_magic("agent_draft")  # type: ignore[arg-type]
    def draft(self, line: str) -> None:
        """Run code in a draft for a turn that was not started by a cell. The server sends this line; users do not
        type it."""
        run_request(self._shell, self._drafts, line)

    def unfit_for_drafts(self) -> str:
        """Return why this kernel cannot fork a draft, or "" if it can; the server calls this.

        This method may fork the first draft. IPython's display hook must be in place then, so that values are displayed
        in this draft as in a draft that is forked while a cell runs."""
        with self._shell.display_trap:
            return self._drafts.unfit()

    def describe_draft(self, prompt: str, **options: bool) -> str:
        """Describe the data that the prompt names in the draft, with the title of the note as the first line. Returns
        "" if the draft does not differ from the kernel; the server calls this. ``options`` are those of
        ``describe_data``."""
        return self._drafts.describe_data(prompt, options)

    def describe_files(self, prompt: str) -> str:
        """Describe the files that the prompt names, or return "" if it names no files; the server calls this for a turn
        that no cell started."""
        from agent_kernel.notebook.turn.file_previews import describe_files

        return describe_files(prompt)

    @cell_magic("agent")  # type: ignore[arg-type]
    def turn(self, line: str, cell: str) -> None:
        """Run one turn of this notebook's conversation: %%agent [options] [prompt]. %%agent --help lists the
        options."""
        with _one_line():
            request = parse_options(line)
            if request.help:
                self._shell.display_pub.publish({"text/plain": usage()})
                return
            prompt = "\n".join(part for part in (request.words, cell.strip("\n")) if part.strip())
            if not prompt.strip():
                raise AgentError(
                    f"the prompt is missing. Write it {'after >' if self.has_prompt_cells else 'below %%agent'}."
                )
            self._one_turn(request, prompt, self._cells.id_of(f"{line}\n{cell}"))

    @context_matcher(priority=100)  # type: ignore[untyped-decorator]  # of IPython
    def complete(self, context: CompletionContext) -> SimpleMatcherResult:
        return self._turns.completion.match(context)

    @contextlib.contextmanager
    def _one_at_a_time(self) -> Iterator[None]:
        """Context manager that refuses to begin a turn inside another turn, because each would wait for the end of the
        other."""
        if self.in_turn:
            raise AgentError("an agent cell cannot be run from inside an agent cell. Run it in a cell of its own.")
        self.in_turn = True
        try:
            yield
        finally:
            self.in_turn = False

    def _one_turn(self, options: CellOptions, text: str, cell: str, task: CellTask | None = None) -> None:
        with self._one_at_a_time():
            if self._version_notice:
                self._shell.display_pub.publish({"text/plain": self._version_notice})
                self._version_notice = ""  # the notice is shown once in a kernel
            self._turns.run(options, text, cell, task, starts_server=self.has_prompt_cells)

    @property
    def server(self) -> ServerClient | None:
        """The server that started this kernel, or the server that this kernel started; None if there is neither."""
        return self._context.known_server

    def close(self) -> None:
        self._requests.run_all.close()
        self.executions.close()
        self._drafts.close()
        self._code.close()
        self._context.embedded.close()

    def _live_is_denied(self) -> str:
        """Return why the code of a draft may not run in the kernel now, or "" if it may."""
        if self._parts.consent and self._parts.consent.refuses(self._session_id(), LIVE):
            return "you have denied live code in this session; %agent allow live revokes that"
        try:
            rule = self._context.server.call("GET", "agent/permissions")["policy"].get(LIVE, {})
        except AgentKernelError as error:
            return str(error)
        return f"live code is denied by {rule['because']}" if rule.get("permission") == "deny" else ""

    def _session_id(self) -> str:
        """Return the id of this notebook's session, or "" if it has none yet."""
        session = self._context.find_session()
        return str(session["id"]) if session else ""


@contextlib.contextmanager
def _one_line(interrupted: str = "stopped.") -> Iterator[None]:
    """Display errors of this package as one line, without a traceback. ``interrupted`` is the line that is displayed
    after Ctrl-C."""
    try:
        yield
    except AgentKernelError as error:
        raise to_short_error(error) from None
    except KeyboardInterrupt as stop:
        if isinstance(stop, AgentInterrupted):
            raise
        raise AgentInterrupted(interrupted) from None


def with_body(lines: list[str]) -> list[str]:
    """Add an empty body to a one-line ``%%agent PROMPT`` cell, because IPython refuses a cell magic without a body."""
    return [*lines, "\n"] if len(lines) == 1 and lines[0].startswith("%%agent") else lines


def protect_questions(lines: list[str]) -> list[str]:
    """Add a space at the end of ``%agent`` lines that end with a question mark. Without it, IPython would show the
    documentation of the last word. The lines ``%agent?`` and ``%agent NAME?`` are not changed and still show
    documentation."""
    if lines and lines[0].startswith("%%"):
        return lines
    return [f"{line.rstrip()} \n" if QUESTION.match(line) else line for line in lines]


CLEANUPS = (with_body, protect_questions)


def load(shell: Any) -> None:
    """Register both magics and their completion. Loading twice has no further effect."""
    if isinstance(shell.magics_manager.registry.get("AgentMagics"), AgentMagics):
        return
    magics = AgentMagics(shell, server_of_this_kernel())
    shell.register_magics(magics)
    shell.Completer.custom_matchers.append(magics.complete)
    shell.input_transformers_cleanup.extend(CLEANUPS)


def unload(shell: Any) -> None:
    magics = shell.magics_manager.registry.pop("AgentMagics", None)
    if magics is None:
        return
    magics.close()
    for kind in ("line", "cell"):
        shell.magics_manager.magics[kind].pop("agent", None)
    shell.Completer.custom_matchers.remove(magics.complete)
    for cleanup in CLEANUPS:
        shell.input_transformers_cleanup.remove(cleanup)


def version_notice(environment: Mapping[str, str] = os.environ, own: str = __version__) -> str:
    """Return a notice for the user if this kernel and its server have different versions of this package; "" if the
    first two numbers of the versions are the same, or if the server did not state its version. The versions differ if
    the kernel has an environment of its own, and only one of the two environments was updated."""
    server = environment.get(VARIABLE, "")
    if not server or _series(server) == _series(own):
        return ""
    name = "agent-kernel" if importlib.util.find_spec("jupyter_ext") else "agent-kernel-magic"
    return (
        f"This kernel has agent-kernel {own}, and its server has {server}. Some of %%agent may not work. To install "
        f"the server's version here: {sys.executable} -m pip install '{name}=={server}'. Then restart the kernel."
    )


def _series(version: str) -> list[str]:
    return version.split(".")[:2]
