"""Makes Python functions of the user available as tools: functions that ``@agent_kernel.tool`` marks, in a module that
the server names or in a cell."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, overload

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.core.protocols import Tool, ToolContext, ToolOutput, ToolSpec
from agent_kernel.tools.base.signature import Signature
from agent_kernel.tools.base.time_limited_call import TIMEOUT_S, TimeLimitedFunction
from agent_kernel.tools.base.tool_source import OfferedTools, ToolSourceContext

NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
ATTRIBUTE = "__agent_tool__"
F = TypeVar("F", bound=Callable[..., Any])


@overload
def tool(function: F) -> F: ...


@overload
def tool(
    *, name: str = "", description: str = "", effects: bool = False, timeout_s: float = TIMEOUT_S
) -> Callable[[F], F]: ...


def tool(
    function: F | None = None,
    *,
    name: str = "",
    description: str = "",
    effects: bool = False,
    timeout_s: float = TIMEOUT_S,
) -> F | Callable[[F], F]:
    """Make a typed function, sync or async, available as a tool. The function itself is returned unchanged.

    The model reads its name, docstring and type hints. ``effects`` means that the function changes something outside of
    the program, so that the user is asked before each call. A call may take ``timeout_s`` seconds; after that, the
    thread of a sync function continues, because a thread cannot be stopped. Raises InvalidRequest for parameters
    without a name (``*args``) and for types that JSON cannot represent.
    """

    def mark(function: F) -> F:
        function_tool = PythonFunctionTool(
            function, name=name, description=description, effects=effects, timeout_s=timeout_s
        )
        setattr(function, ATTRIBUTE, function_tool)
        return function

    return mark if function is None else mark(function)


class PythonFunctionTool:
    """A tool that calls the Python function ``function`` of the user."""

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str = "",
        description: str = "",
        effects: bool = False,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self._function = function
        self._signature = Signature.of(function)
        name = name or getattr(function, "__name__", type(function).__name__)
        if not NAME.fullmatch(name):
            raise InvalidRequest(f"{name!r} is not a valid tool name: use letters, digits, _ and -, at most 64.")
        self._call = TimeLimitedFunction(function, name, timeout_s)
        self.spec = ToolSpec(
            name,
            description or self._signature.description,
            self._signature.parameters,
            kind="function.effects" if effects else "function",
            source="user",
        )

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        converted = self._signature.arguments(arguments)
        if self._signature.context:
            converted[self._signature.context] = context
        return await self._call(**converted)

    def invoke(self, **arguments: Any) -> Any:
        """Call the function directly, as a cell does, and return its value; awaitable if the function is async. Raises
        InvalidRequest, and what the function raises."""
        if self._signature.context:
            raise InvalidRequest(f"{self.spec.name} needs a ToolContext, which exists only in a server.")
        return self._function(**self._signature.arguments(arguments))


class FunctionTools:
    """Offers the functions that the server's configuration names."""

    def __init__(self, tools: Sequence[Tool]) -> None:
        self._tools = tuple(tools)

    async def offer(self, occasion: ToolSourceContext) -> OfferedTools:
        return OfferedTools(tuple(tool for tool in self._tools if occasion.wants("functions", tool.spec.name)))


def as_tool(candidate: Tool | Callable[..., Any]) -> Tool:
    """Return ``candidate`` as a tool. A tool is returned unchanged; a function is converted, whether ``tool`` has
    marked it or not. Raises InvalidRequest for any other object."""
    if isinstance(getattr(candidate, "spec", None), ToolSpec):
        return candidate  # type: ignore[return-value]  # what has a spec is a tool
    marked = getattr(candidate, ATTRIBUTE, None)
    if isinstance(marked, PythonFunctionTool):
        return marked
    if not callable(candidate) or inspect.isclass(candidate):
        raise InvalidRequest(f"{candidate!r} is neither a function nor a tool.")
    return PythonFunctionTool(candidate)
