"""Fields that the dialects have beside those of the houses they come from: rounds of calls, and files that a turn is to
make. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from agent_kernel.errors import AgentKernelError, Unprocessable
from agent_kernel.files import Wanted
from jupyter_ext.dialects.asked import Asked
from jupyter_ext.dialects.functions import Words

MAX_ROUNDS = 1_000_000
Rounds = Annotated[int, Field(ge=0, le=MAX_ROUNDS)]
CODE_HINT = "Use the model agent/NAME, or code_interpreter among the tools."
OF_FILES = {"param": "files"}


class WantedFile(Words):
    """A file that the turn is to make, by its name in the work directory."""

    name: Annotated[str, Field(min_length=1, max_length=200)]
    format: Annotated[str, Field(max_length=40)] | None = None
    description: Annotated[str, Field(max_length=1_000)] | None = None

    @property
    def wanted(self) -> Wanted:
        return Wanted(self.name, self.format or "", self.description or "")


def makeable(
    asked: Asked,
    refusal: type[AgentKernelError] = Unprocessable,
    *,
    hint: str = CODE_HINT,
    details: Mapping[str, Any] | None = OF_FILES,
) -> Asked:
    """What is asked, once it has tools for the files that it wants. Raises the ``refusal``."""
    if asked.request.outputs and (asked.engaged == () or asked.request.max_tool_rounds == 0):
        raise refusal(
            "files asks for files that a tool makes, and this request has no tools of the server.",
            hint=hint,
            details=details,
        )
    return asked
