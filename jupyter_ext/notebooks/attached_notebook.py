"""Gives the server access to the notebook of a turn: to the file through the contents manager, and to the kernel
through jobs."""

from __future__ import annotations

import ast
import inspect
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache, partial
from types import ModuleType
from typing import Any

from jupyter_core.utils import ensure_async
from tornado.web import HTTPError

from agent_kernel.core.errors import AgentKernelError, InvalidRequest, NotFound
from agent_kernel.core.file_facts import computed_columns, text_columns
from agent_kernel.core.programs.program_outcome import TRIAL_TOOL
from agent_kernel.core.protocols import ToolContext, ToolOutput
from agent_kernel.core.turn_request import Note
from agent_kernel.notebook.draft.draft_request import draft_request, trial_request
from agent_kernel.notebook.kernel import inspection, variable_summary
from agent_kernel.notebook.kernel.python_syntax import modified_in_place
from agent_kernel.tools.base.notebook_access import SavedNotebook
from jupyter_ext.notebooks.bindings import KERNEL, Notebooks
from jupyter_ext.notebooks.kernel_jobs import KernelJobs
from jupyter_ext.notebooks.kernels import Kernel, Kernels

MAX_NOTEBOOK_BYTES = 50 << 20
LOOK_WITHIN_S = 15.0
DATA_WITHIN_S = 2.0
"""Maximum time that a turn waits for the description of the data that its prompt names."""
ANSWER = """
def _answer(what, arguments):
    from IPython import get_ipython
    shell = get_ipython()
    magics = shell.magics_manager.registry.get("AgentMagics")
    ran = getattr(magics, "executions", None)
    if what == "variables":
        return variables(shell, str(arguments.get("name", "")))
    if what == "last_error":
        return last_error(shell, ran)
    if what == "data":
        import json
        prompt = arguments["prompt"]
        describe_files = getattr(magics, "describe_files", None)
        files = describe_files(prompt) if describe_files else ""
        options = {"newest": False} if files else {}
        describe_draft = getattr(magics, "describe_draft", None) if arguments["in_draft"] else None
        text = describe_draft(prompt, **options) if describe_draft else ""
        data = text or "\\n".join(describe_data(prompt, shell.user_ns, **options))
        return json.dumps([note for note in (data, files and "Files\\n" + files) if note])
    return executions(shell, ran, tuple(int(number) for number in arguments.get("numbers") or ()))
"""
"""Code that answers an inspection in the kernel. If the kernel has loaded the AgentMagics extension, its inspection is
used, which knows more than the IPython shell."""


UNFIT = """
def _unfit():
    import sys
    from IPython import get_ipython
    magics = get_ipython().magics_manager.registry.get("AgentMagics")
    if magics is None:
        return (
            "the magics of agent-kernel are not loaded in this kernel (to install them in its environment: "
            f"{sys.executable} -m pip install agent-kernel-magic; then restart the kernel)"
        )
    unfit = getattr(magics, "unfit_for_drafts", None)
    return unfit() if unfit else "the kernel has another version of agent-kernel than its server"
"""
MOST_VARIABLES = 2_000
SIZES = f"""
def _sizes():
    import json
    from IPython import get_ipython
    shell = get_ipython()
    return json.dumps({{
        name: [id(value), str(value.shape) if type(value).__name__ in ("DataFrame", "Series", "ndarray")
               else len(value) if type(value) in (list, dict, set) else 0]
        for name, value in list(shell.user_ns.items())[-{MOST_VARIABLES}:]
        if not name.startswith("_") and name not in shell.user_ns_hidden and type(value).__name__ != "module"
    }})
"""
"""Code that lists the person's newest variables. Of each value it reads the identity and the size, never the
content."""


class _KernelSide:
    """Base class of the parts that act on one kernel through its jobs."""

    def __init__(self, jobs: KernelJobs, kernel: str) -> None:
        self._jobs = jobs
        self._kernel = kernel


class LiveKernel(_KernelSide):
    """Runs the tool calls of a turn in one kernel."""

    async def offer(self, context: ToolContext) -> ToolOutput:
        name, arguments = context.call.name, context.call.arguments
        if name in ("python", "run_cell"):
            return await self._run(str(arguments["code"]), context)
        if name in ("variables", "last_error", "executions"):
            try:
                return await self._jobs.evaluate(self._kernel, inspection_expression(name, arguments), LOOK_WITHIN_S)
            except AgentKernelError as error:
                return ToolOutput(str(error), "error")
        return ToolOutput(f"This server runs no {name} in a kernel.", "error")

    async def _run(self, code: str, context: ToolContext) -> ToolOutput:
        """Run the code. If the kernel reports its variables, add to the result the names of those that the code created
        or changed."""
        before = await self._variables()
        if before is not None and before.status == "error":
            return before  # the kernel is busy or gone, so another query would fail as well
        output = await self._jobs.run(self._kernel, code, context)
        changed = _changed_names(before, await self._variables(), code) if before else []
        return replace(output, details={**output.details, "variables": changed}) if changed else output

    async def _variables(self) -> ToolOutput | None:
        try:
            return await self._jobs.evaluate(self._kernel, isolated_call(SIZES, "_sizes"), LOOK_WITHIN_S)
        except AgentKernelError:
            return None


class DraftKernel(_KernelSide):
    """Runs the code of a turn in a draft of one kernel, through the magic of that kernel."""

    async def offer(self, context: ToolContext) -> ToolOutput:
        arguments = context.call.arguments
        if context.call.name == TRIAL_TOOL:
            line = trial_request(arguments["programs"], arguments["names"])
            return await self._jobs.run(self._kernel, line, context, title="trying programs")
        code = str(arguments["code"])
        return await self._jobs.run(self._kernel, draft_request(context.turn, code), context, title=code)

    async def unfit(self) -> str:
        try:
            result = await self._jobs.evaluate(self._kernel, isolated_call(UNFIT, "_unfit"), LOOK_WITHIN_S)
        except AgentKernelError as error:
            return error.message
        return result.text if result.status == "success" else ""


class StartedJobs(_KernelSide):
    """The jobs, which are runs of code, that the agent started in one kernel."""

    async def offer(self, context: ToolContext) -> ToolOutput:
        return await self._jobs.inspect(self._kernel, context)


class AttachedNotebook:
    """The notebook of one turn: its file, and the kernel if the server may use it.

    ``path`` is empty for a kernel without a notebook. ``runs``: the server may run code in the kernel for this turn.
    This is so if a person started the turn (not the kernel's own credential) and the kernel runs IPython.
    """

    def __init__(
        self, path: str, kernel: str, jobs: KernelJobs, contents: Any, notebooks: Notebooks, *, runs: bool
    ) -> None:
        self._path = path
        self._contents = contents
        self._notebooks = notebooks
        self._inspect = partial(jobs.evaluate, kernel) if runs else None
        self.kernel = LiveKernel(jobs, kernel) if runs else None
        self.drafts = DraftKernel(jobs, kernel) if runs else None
        self.jobs = StartedJobs(jobs, kernel) if runs else None

    @property
    def path(self) -> str:
        """The present path of the notebook, also after a rename during the turn."""
        return self._notebooks.current_path(self._path) if self._path else ""

    async def describe_data(self, prompt: str, *, in_draft: bool) -> tuple[Note, ...]:
        if self._inspect is None:
            return ()
        try:
            result = await self._inspect(
                inspection_expression("data", {"prompt": prompt, "in_draft": in_draft}), DATA_WITHIN_S
            )
        except AgentKernelError:  # the kernel is busy or gone; the first call of the turn reports that
            return ()
        if result.status != "success":
            return ()
        parts = [note.partition("\n") for note in json.loads(result.text)]
        return tuple(Note(title, text) for title, _, text in parts if text)

    async def document(self) -> SavedNotebook:
        path = self.path
        try:
            model = await ensure_async(self._contents.get(path, content=False))
            if (model.get("size") or 0) > MAX_NOTEBOOK_BYTES:
                raise InvalidRequest(f"{path} is larger than {MAX_NOTEBOOK_BYTES >> 20} MiB.")
            model = await ensure_async(self._contents.get(path, content=True, type="notebook"))
        except HTTPError as error:
            raise NotFound(f"{path} cannot be read: {error.log_message or error.reason or error}.") from error
        saved = model.get("last_modified")
        return SavedNotebook(path, saved.timestamp() if isinstance(saved, datetime) else 0.0, model["content"])


@dataclass(frozen=True, slots=True)
class AttachedNotebooks:
    """Makes the AttachedNotebook of a turn. ``contents`` is the contents manager of the server."""

    notebooks: Notebooks
    kernels: Kernels
    jobs: KernelJobs
    contents: Any

    def of_turn(self, kernel: Kernel | None, place: str, *, by_user: bool) -> AttachedNotebook | None:
        """Return the notebook of a turn; None for a turn without a kernel. The server runs code in a kernel only for
        turns that a person started: a kernel's own turns run their code in the kernel themselves."""
        if kernel is None:
            return None
        path = "" if place.startswith(KERNEL) else place
        runs = by_user and self.kernels.runs_ipykernel(kernel.id)
        return AttachedNotebook(path, kernel.id, self.jobs, self.contents, self.notebooks, runs=runs)

    async def exists(self, path: str) -> bool:
        return bool(await ensure_async(self.contents.file_exists(path)))

    def open_file(self, path: str) -> AttachedNotebook:
        """Return the notebook in a file, without a kernel."""
        return AttachedNotebook(path, "", self.jobs, self.contents, self.notebooks, runs=False)


def _changed_names(before: ToolOutput, after: ToolOutput | None, code: str) -> list[str]:
    """Return the names of variables that are new, rebound or of a different size, and of those that ``code`` changes in
    place as far as its text shows."""
    if before.status != "success" or after is None or after.status != "success":
        return []
    try:
        was, is_now = json.loads(before.text), json.loads(after.text)
    except ValueError:  # the user's code may have redefined what the query uses
        return []
    touched = modified_in_place(code)
    return [name for name, fingerprint in is_now.items() if was.get(name) != fingerprint or name in touched]


def inspection_expression(function_name: str, arguments: Mapping[str, Any]) -> str:
    """Return an expression that evaluates to the result of an inspection. It works in a kernel in which agent-kernel is
    not installed."""
    return isolated_call(_source(), "_answer", function_name, dict(arguments))


def isolated_call(source: str, function: str, *arguments: object) -> str:
    """Return an expression that calls ``function``, which ``source`` defines, and evaluates to its result. The
    expression neither uses nor creates names in the person's namespace, where a name such as ``id`` may be
    redefined."""
    name = {"__name__": "agent_kernel_inspection"}
    return (
        f"(lambda names: (__import__('builtins').exec({source!r}, names), "
        f"names[{function!r}](*{arguments!r}))[1])({name!r})"
    )


@cache
def _source() -> str:
    """Return the inspection modules as one source text, without their imports of each other."""
    modules = (text_columns, computed_columns, variable_summary, inspection)
    return "\n".join(["from __future__ import annotations", *map(_portable, modules), ANSWER])


def _portable(module: ModuleType) -> str:
    lines = inspect.getsource(module).splitlines()
    for node in ast.parse("\n".join(lines)).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in ("__future__", "agent_kernel"):
            for number in range(node.lineno - 1, node.end_lineno or node.lineno):
                lines[number] = ""
    return "\n".join(lines)
