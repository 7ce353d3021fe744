"""The route that lists the variables of a notebook's kernel, for a person to choose from: names and one-line summaries,
never values."""

from __future__ import annotations

from jupyter_ext.api.http.handler import AgentHandler, guard
from jupyter_ext.api.schemas.operation import KERNEL, Parameter, operation
from jupyter_ext.api.schemas.turns import KernelVariables
from jupyter_ext.notebooks.attached_notebook import LOOK_WITHIN_S, inspection_expression

MODULES = "modules: "
BUSY = "The kernel is busy, or does not answer."
OTHER = "This kernel does not run Python."


def parse_inspection(text: str) -> list[dict[str, str]]:
    """Parse the lines of an inspection, ``name: summary``. Skips the lines about modules and about omitted
    variables."""
    lines = [line for line in text.splitlines() if not line.startswith(MODULES)]
    parts = [line.partition(": ") for line in lines]
    return [{"name": name, "summary": line} for line, (name, _, _) in zip(lines, parts, strict=True) if _is_name(name)]


def _is_name(text: str) -> bool:
    return text.isidentifier() and len(text) <= 200


class KernelVariablesHandler(AgentHandler):
    @guard("execute", kernels=False)
    @operation(
        KernelVariables,
        query=(KERNEL, Parameter("name", "Describe only this variable, in more detail.")),
        errors=(404,),
    )
    async def get(self) -> None:
        """List the variables of a notebook's kernel.

        ``kernel`` is required. If the kernel is busy or cannot be inspected, the list is empty and ``problem`` has the
        reason.
        """
        kernel = self.services.access.kernel(self.caller, self.get_argument("kernel", ""))
        name = self.get_argument("name", "")
        if kernel is None or (name and not _is_name(name)):
            self.reply({"variables": [], "problem": ""})
            return
        if not self.services.kernels.runs_ipykernel(kernel.id):
            self.reply({"variables": [], "problem": OTHER})
            return
        expression = inspection_expression("variables", {"name": name} if name else {})
        result = await self.services.kernel_jobs.evaluate(kernel.id, expression, LOOK_WITHIN_S)
        if result.status != "success":
            self.reply({"variables": [], "problem": BUSY})
        elif name:
            exists = not result.text.startswith("There is no variable ")
            self.reply({"variables": [{"name": name, "summary": result.text}] if exists else [], "problem": ""})
        else:
            self.reply({"variables": parse_inspection(result.text), "problem": ""})
