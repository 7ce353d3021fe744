"""Offers the ``python`` tool in one of three environments: the notebook's kernel, a draft of it, or the session's
sandbox."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from agent_kernel.core.events import Notice, StateLost
from agent_kernel.core.messages import VARIABLES, ToolCall, shorten
from agent_kernel.core.programs.program_outcome import TRIAL_TOOL, ProgramOutcome
from agent_kernel.core.protocols import Tool, ToolContext, ToolOutput, ToolSpec, Variable, Work
from agent_kernel.core.session import SessionKey, new_id
from agent_kernel.core.turn_request import Note
from agent_kernel.tools.base.client_call_broker import ClientCallBroker
from agent_kernel.tools.base.notebook_access import NotebookCallTool
from agent_kernel.tools.base.parameter_schema import parameters
from agent_kernel.tools.base.tool_source import OfferedTools, ToolSourceContext, runner_for
from agent_kernel.tools.code.sandbox_environment import SandboxEnvironment, format_result
from agent_kernel.tools.code.workdir_changes import OUTPUTS, requested_outputs

CODE = {"type": "string", "description": "Python code to run"}
"""JSON schema of the tool parameter ``code``."""
NO_DRAFT = "No draft can be made: {reason}. Python runs in your kernel instead, after asking you."
EXCEPTION_CHARS = 4_000
VALUE_CHARS = 4_000
"""Maximum characters of the exception and of the value in the details of a result, which programs read. For the text
that the model reads, other limits apply."""
PARAMETERS = parameters(["code"], code=CODE)
LIVE = ToolSpec(
    "python",
    "Run Python code in the person's notebook kernel: it sees and changes their variables. Printed text, the value of "
    "the last expression and figures come back.",
    PARAMETERS,
    kind="python.live",
    where="live",
    editable="code",
)
DRAFT = ToolSpec(
    "python",
    "Run Python code on a copy of the person's notebook kernel: it sees their variables. What it changes stays in the "
    "copy until they keep it. Printed text, the value of the last expression and figures come back.",
    PARAMETERS,
    kind="python.draft",
    where="draft",
    editable="code",
)
SANDBOXED = ToolSpec(
    "python",
    "Run Python code in an isolated session: no network, files only in its work directory. Variables persist between "
    "calls. Printed text, the value of the last expression and figures come back. packages('name') lists what is "
    "installed.",
    parameters(["code"], code=CODE, outputs=OUTPUTS),
    kind="python.sandbox",
    where="sandbox",
    editable="code",
)
RESET = ToolSpec(
    "reset_python",
    "Start Python again: all its variables and imports go, files in its work directory stay.",
    parameters(),
    kind="python.sandbox",
    where="sandbox",
)


class DraftPython(NotebookCallTool):
    """Runs code in a draft, a copy of the kernel that only the kernel itself can make. For the turn of a cell, the
    magic in the kernel makes the draft; for other turns, the server requests it from the kernel."""

    async def try_programs(
        self, programs: Sequence[str], names: Sequence[str], context: ToolContext
    ) -> list[ProgramOutcome]:
        """Try the programs in the draft without changing it: each starts from the state that the draft has now.
        ``names`` are the variables whose content is part of the outcome."""
        call = ToolCall(new_id("trial"), TRIAL_TOOL, {"programs": list(programs), "names": list(names)})
        output = await self._runner.offer(replace(context, call=call))
        tried = output.details.get("tried") if output.status == "success" else None
        return (
            [ProgramOutcome.from_json(outcome) for outcome in tried[: len(programs)]] if isinstance(tried, list) else []
        )


class SandboxPython:
    """Runs code in the session's sandbox."""

    def __init__(self, environment: SandboxEnvironment, timeout_s: float = 60.0) -> None:
        self._environment = environment
        self._timeout_s = timeout_s
        self.spec = replace(
            SANDBOXED, description=environment.description(SANDBOXED.description), fetches=environment.fetches
        )

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        work = Work(arguments["code"], timeout_s=self._timeout_s, given=self._environment.take_given())
        ran = await self._environment.run(work, context, requested_outputs(arguments))
        result = ran.result
        details = {"seconds": round(result.seconds, 4), "less": result.less, "lost": result.lost}
        details |= {"interpreter": result.interpreter, "denied": result.denied}
        details |= {"exception": shorten(result.error or "", EXCEPTION_CHARS)}
        details |= {"result": shorten(result.value or "", VALUE_CHARS)}
        details |= {"working_directory": str(self._environment.sandbox.workdir(context.key))}
        return ToolOutput(
            format_result(result, ran.notes),
            result.status,
            result.media,
            files=ran.files,
            details={key: value for key, value in details.items() if value},
            keep_s=ran.keep_s,
        )


class ResetPython:
    """Deletes the variables of the session's sandbox."""

    spec = RESET

    def __init__(self, environment: SandboxEnvironment) -> None:
        self._environment = environment

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        await self._environment.sandbox.reset(context.key)
        self._environment.known_lost = self._environment.sandbox.lost(context.key)
        return ToolOutput("Python starts again with the next call: variables are gone, files remain.")


class PythonTools:
    """Offers the ``python`` tool of a turn. The ``where`` of the turn's request selects where its code runs: in the
    notebook's kernel (``live``), in a draft, which is a copy of that kernel's process (``draft``), or in the session's
    sandbox (``sandbox``). ``find_lost`` returns why the variables of a session are not in its sandbox; without it, the
    sandbox does."""

    def __init__(
        self,
        environment: SandboxEnvironment,
        client_calls: ClientCallBroker,
        timeout_s: float,
        find_lost: Callable[[SessionKey], Awaitable[str]] | None = None,
    ) -> None:
        self._environment = environment
        self._client_calls = client_calls
        self._timeout_s = timeout_s
        self._find_lost = find_lost

    async def offer(self, occasion: ToolSourceContext) -> OfferedTools:
        request = occasion.request
        if not occasion.wants("python"):
            return OfferedTools()
        if request.where == "live":
            live = NotebookCallTool(LIVE, runner_for(occasion, "python", self._client_calls) or self._client_calls)
            return OfferedTools((live,), await _data_notes(occasion))
        if request.where == "draft":
            return OfferedTools((await self._draft(occasion),), await _data_notes(occasion))
        find_lost, sandbox = self._find_lost, self._environment.sandbox
        lost = await find_lost(occasion.key) if find_lost else sandbox.lost(occasion.key)
        environment = self._environment.for_turn(occasion, given=request.given, lost=lost)
        if lost:
            occasion.emit(StateLost(lost))
        tools: tuple[Tool, ...] = (SandboxPython(environment, self._timeout_s), ResetPython(environment))
        return OfferedTools(tools, tuple(_notes(lost, request.given)))

    async def _draft(self, occasion: ToolSourceContext) -> Tool:
        """Return the draft tool; if no draft can be made, return the tool that runs in the kernel itself after asking
        the user."""
        notebook = occasion.notebook
        drafts = None if notebook is None or "python" in occasion.request.client_tools else notebook.drafts
        if notebook is None or drafts is None:
            return DraftPython(DRAFT, self._client_calls)
        if reason := await drafts.unfit():
            occasion.emit(Notice("info", NO_DRAFT.format(reason=reason)))
            return NotebookCallTool(LIVE, notebook.kernel or self._client_calls)
        return DraftPython(DRAFT, drafts)


async def _data_notes(occasion: ToolSourceContext) -> tuple[Note, ...]:
    """Describe the data and the files that the prompt names. Return no notes if the client has described variables
    itself, or if the client runs the code."""
    request, notebook = occasion.request, occasion.notebook
    if notebook is None or "python" in request.client_tools or any(note.title == VARIABLES for note in request.notes):
        return ()
    prompt = request.last_user_text
    return await notebook.describe_data(prompt, in_draft=request.where == "draft") if prompt else ()


def _notes(lost: str, variables: tuple[Variable, ...]) -> list[Note]:
    notes = [Note(VARIABLES, lost)] if lost else []
    if variables:
        names = ", ".join(
            f"{variable.name} ({variable.type})" if variable.type else variable.name for variable in variables
        )
        notes.append(Note(VARIABLES, f"Python has copies of these variables of the notebook: {names}."))
    return notes
