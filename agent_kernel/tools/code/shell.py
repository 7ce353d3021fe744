"""Offers the ``shell`` tool, which runs an ``sh`` script in the session's sandbox, in the same work directory as the
``python`` tool."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from agent_kernel.core.messages import shorten
from agent_kernel.core.protocols import RunResult, ToolContext, ToolOutput, ToolSpec, Work
from agent_kernel.tools.base.parameter_schema import parameters
from agent_kernel.tools.base.tool_source import OfferedTools, ToolSourceContext
from agent_kernel.tools.code.sandbox_environment import (
    TEXT_CHARS,
    RunOutcome,
    SandboxEnvironment,
)
from agent_kernel.tools.code.workdir_changes import OUTPUTS, requested_outputs

DETAIL_CHARS = 20_000
"""Maximum characters of each stream in the details of a result, which programs read, unless the call sets another
limit."""
STDERR_CHARS = 1_600
"""Maximum characters of stderr that the model reads if stdout is long too."""
SHELL = ToolSpec(
    "shell",
    "Run shell commands (sh) in an isolated session: no network, files only in its work directory, which Python "
    "shares. The commands are the lines of one script, which ends at the first that fails; directory and variables are "
    "not kept for the next call, files are. Output and exit code come back.",
    parameters(
        ["commands"],
        commands={"type": "array", "items": {"type": "string"}, "minItems": 1, "description": "Lines to run"},
        timeout_ms={"type": "integer", "minimum": 1},
        max_output_length={"type": "integer", "minimum": 1, "description": "Characters of each stream"},
        outputs=OUTPUTS,
    ),
    kind="shell",
    where="sandbox",
)


class SandboxShell:
    """Runs the scripts of the ``shell`` tool. ``timeout_s`` is the default and the maximum timeout of a call."""

    def __init__(self, environment: SandboxEnvironment, timeout_s: float = 600.0) -> None:
        self._environment = environment
        self._timeout_s = timeout_s
        self.spec = replace(SHELL, description=environment.description(SHELL.description), fetches=environment.fetches)

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        timeout_s = min(arguments.get("timeout_ms", self._timeout_s * 1000) / 1000, self._timeout_s)
        work = Work("\n".join(arguments["commands"]), "shell", timeout_s=timeout_s)
        ran = await self._environment.run(work, context, requested_outputs(arguments))
        limit = arguments.get("max_output_length")
        details = self._details(ran.result, list(arguments["commands"]), context, limit or DETAIL_CHARS)
        text, status = _describe(ran, timeout_s, limit), ran.result.status
        return ToolOutput(text, status, files=ran.files, details=details, keep_s=ran.keep_s)

    def _details(self, result: RunResult, commands: list[str], context: ToolContext, limit: int) -> dict[str, Any]:
        details = {
            "status": result.status,
            "commands": commands,
            "stdout": shorten(result.stdout, limit),
            "stderr": shorten(result.stderr, limit),
            "exit_code": result.exit_code,
            "timed_out": result.status == "timeout",
            "working_directory": str(self._environment.sandbox.workdir(context.key)),
            "seconds": round(result.seconds, 4),
        }
        return details | ({"less": result.less} if result.less else {})


class ShellTools:
    """Offers the ``shell`` tool to each turn."""

    def __init__(self, environment: SandboxEnvironment, timeout_s: float) -> None:
        self._environment = environment
        self._timeout_s = timeout_s

    async def offer(self, occasion: ToolSourceContext) -> OfferedTools:
        if not occasion.wants("shell"):
            return OfferedTools()
        return OfferedTools((SandboxShell(self._environment.for_turn(occasion), self._timeout_s),))


def _describe(outcome: RunOutcome, timeout_s: float, limit: int | None) -> str:
    """Return the text for the model: each output stream and, if the script failed, how it ended."""
    result = outcome.result
    most = min(limit or TEXT_CHARS, TEXT_CHARS)
    stderr = shorten(result.stderr.rstrip(), min(most, max(STDERR_CHARS, TEXT_CHARS - len(result.stdout))))
    stdout = shorten(result.stdout.rstrip(), min(most, max(STDERR_CHARS, TEXT_CHARS - len(stderr))))
    end = ""
    if result.status == "timeout":
        end = f"[stopped after {timeout_s:g} s; what it printed is above]"
    elif result.exit_code:
        end = f"[exit code {result.exit_code}: it ended at the first line that failed]"
    elif result.error:
        end = result.error
    labelled = f"[stderr]\n{stderr}" if stderr and stdout else stderr
    return "\n".join(part for part in (stdout, labelled, end, *outcome.notes) if part) or "(no output)"
