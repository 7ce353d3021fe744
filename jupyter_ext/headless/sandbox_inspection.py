"""A server extension that runs code in the sandbox of a session without a model. Only servers that
``server_process.jupyter_server`` starts with OPTIONS load it: its route is not part of agent-kernel's API.

``agent-kernel eval`` runs code with it before a turn, to prepare the sandbox, and after the turn, to check the
variables and files that the turn left.
"""

from __future__ import annotations

from typing import Any

from agent_kernel.core.protocols import Work
from jupyter_ext.api.http.handler import AgentHandler, guard
from jupyter_ext.api.native.request_schemas import Body

ROUTE = "agent-kernel-inspection/sandbox"
OPTIONS = (f"--ServerApp.jpserver_extensions={{'jupyter_ext': True, '{__name__}': True}}",)
"""Command line options that load this extension in addition to agent-kernel's own."""
CODE_S = 60.0


class CodeBody(Body):
    """The code to run in a sandbox.

    ``notebook``: path of the notebook to whose session the sandbox belongs; the session is made if there is none.
    """

    notebook: str
    code: str


class SandboxCodeHandler(AgentHandler):
    @guard("execute", kernels=False)
    async def post(self) -> None:
        """Run the code in the sandbox that the notebook's next turn would use. Reply with its status, standard output
        and error."""
        body = self.parse(CodeBody)
        notebooks, runtime = self.services.notebooks, self.services.runtime
        place = await self.services.access.place(self.caller, "", body.notebook)
        assert place is not None
        key, _ = await notebooks.ensure_session(self.caller.namespace, place)
        directory = notebooks.directory(place)
        # The code gets the same readable paths as a turn of this notebook, so that the pool uses the same process for
        # both.
        read = [directory] if directory else []
        result = await runtime.sandbox.run(key, Work(body.code, timeout_s=CODE_S), read=read)
        self.reply({"status": result.status, "stdout": result.stdout, "error": result.error})


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    return [{"module": __name__}]


def _load_jupyter_server_extension(serverapp: Any) -> None:
    serverapp.web_app.add_handlers(".*$", [(f"{serverapp.base_url}{ROUTE}", SandboxCodeHandler)])
