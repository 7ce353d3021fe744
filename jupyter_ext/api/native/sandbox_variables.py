"""Routes that list and copy the variables of a session's sandbox, and rebuild them after they were lost."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path

from agent_kernel.core.errors import Forbidden
from agent_kernel.core.session import SessionKey
from agent_kernel.tools.code.python import SANDBOXED
from agent_kernel.tools.code.rebuild_variables import RebuildResult, find_lost, find_rebuild_steps, rebuild
from jupyter_ext.api.http.handler import AgentHandler, guard
from jupyter_ext.api.native.request_schemas import Body
from jupyter_ext.api.schemas import turns as shapes
from jupyter_ext.api.schemas.operation import Raw, operation
from jupyter_ext.notebooks.bindings import KERNEL
from jupyter_ext.turns.turns import session_busy

NAMED = "The name must be a valid name of a Python variable."


class RebuildBody(Body):
    """The body of a request to rebuild lost variables. ``dry_run``: only list the code that would run."""

    dry_run: bool = False


class VariablesHandler(AgentHandler):
    @guard("read")
    @operation(shapes.Variables, errors=(404,))
    async def get(self, session_id: str) -> None:
        """List the variables of a session's sandbox.

        ``lost`` says why earlier variables no longer exist; it is empty if none were lost.
        """
        key = (await self.services.access.session(self.caller, session_id)).key
        sandbox = self.services.runtime.sandbox
        variables = await sandbox.variables(key)
        listed = [
            {"name": variable.name, "type": variable.type, "shape": list(variable.shape)} for variable in variables
        ]
        lost = await find_lost(sandbox, self.services.runtime.store, key)
        self.reply({"variables": listed, "lost": lost})


class VariableHandler(AgentHandler):
    @guard("read")
    @operation(Raw(("application/octet-stream",)), errors=(404, 413, 503), conditions=NAMED)
    async def get(self, session_id: str, name: str) -> None:
        """Copy a variable of a session's sandbox.

        The response has the bytes of the copy; ``X-Variable-Encoding`` (json, npy or arrow) and ``X-Variable-Type``
        describe them. Code in the sandbox produced the bytes: read them as data and never execute them.
        """
        key = (await self.services.access.session(self.caller, session_id)).key
        copy = await self.services.runtime.sandbox.take(key, name)
        self.set_header("X-Variable-Encoding", copy.encoding)
        self.set_header("X-Variable-Type", "".join(letter for letter in copy.type if "!" <= letter <= "~"))
        self.set_header("Content-Disposition", "attachment")
        self.finish(copy.data, set_content_type="application/octet-stream")


class RebuildHandler(AgentHandler):
    _running: asyncio.Task[RebuildResult] | None = None

    @guard("execute")
    @operation(shapes.RebuiltSession, body=RebuildBody, errors=(404, 409, 503))
    async def post(self, session_id: str) -> None:
        """Rebuild the lost variables of a session's sandbox.

        The code of the current branch that succeeded in the sandbox runs again. With ``dry_run``, the code and its side
        effects are only listed. The response is sent when the code has ended; closing the connection stops the code.
        """
        body = self.parse(RebuildBody)
        key = (await self.services.access.session(self.caller, session_id)).key
        runtime = self.services.runtime
        steps = await find_rebuild_steps(runtime.store, key)
        plan = {"session": key.id, "pieces": [dataclasses.asdict(piece) for piece in steps]}
        if body.dry_run:
            self.reply({**plan, "ran": 0, "status": "shown", "error": ""})
            return
        if running := self.services.turns.find_unfinished(key):
            raise session_busy(running.id)
        self._check_permission()
        timeout_s = runtime.settings.run_timeout_s
        work = rebuild(runtime.sandbox, key, steps, timeout_s=timeout_s, read=await self._read(key))
        self._running = asyncio.create_task(work, name=f"rebuilding {key.id}")
        await asyncio.wait([self._running])
        if not self._running.cancelled():
            self.reply({**plan, **dataclasses.asdict(self._running.result())})

    def on_connection_close(self) -> None:
        """Stop the code when the client disconnects."""
        super().on_connection_close()
        if self._running is not None:
            self._running.cancel()

    def _check_permission(self) -> None:
        """Check that the caller may rebuild variables. The request of a person counts as approval; code in a kernel
        needs the permission of the policy."""
        permission = self.services.runtime.policy.ruling(SANDBOXED).permission
        if permission == "deny" or (permission == "ask" and self.caller.kernel is not None):
            raise Forbidden(
                "The permission policy of this server does not allow this code to run.",
                hint="A person can rebuild the variables in the browser.",
            )

    async def _read(self, key: SessionKey) -> list[Path]:
        """Return the folders that code of turns of the session's notebook may read. With the same folders, the next
        turn uses the same sandbox process."""
        kernel = self.caller.kernel
        place = await self.services.notebooks.place(kernel.id) if kernel else None
        paths = [place] if place else await self.services.notebooks.paths(key)
        notebook = next((path for path in paths if not path.startswith(KERNEL)), None)
        directory = self.services.notebooks.directory(notebook) if notebook else None
        return [directory] if directory else []
