"""Functions of this process that a model can call. The client offers them with the turn, claims their calls, runs them
here, and sends the results."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import dataclasses
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agent_kernel.client.file import File
from agent_kernel.client.http import PAUSES_S, ServerConnection, json_of
from agent_kernel.client.input_file import InputFile
from agent_kernel.client.multipart_form import MultipartForm
from agent_kernel.core.errors import AgentKernelError, Conflict, InvalidRequest, NotFound, ServerUnreachable
from agent_kernel.core.events import CallOffered, CallOutput, Event, EventBody
from agent_kernel.core.files import ProducedFile
from agent_kernel.core.messages import ToolCall
from agent_kernel.core.protocols import Tool, ToolContext, ToolOutput
from agent_kernel.core.session import SessionKey
from agent_kernel.notebook.server_client import route
from agent_kernel.tools.base.functions import as_tool

log = logging.getLogger(__name__)
EFFECTS = "function.effects"


class ClientFunctions:
    """The functions of this process that a model may call, by name. ``client`` is the name that users see
    next to the calls that this process runs."""

    def __init__(self, functions: Sequence[Tool | Callable[..., Any]], client: str) -> None:
        tools = [as_tool(function) for function in functions]
        self._tools = {tool.spec.name: tool for tool in tools}
        self._client = client
        if len(self._tools) < len(tools):
            raise InvalidRequest("Two of the functions have the same name.", hint="Rename one of the functions.")

    def to_json(self) -> list[dict[str, Any]]:
        """Return the functions for the ``functions`` field of a turn. They are marked as parallel: calls of one round
        may run concurrently, because the functions share no state with the server's tools."""
        return [
            {
                "name": tool.spec.name,
                "description": tool.spec.description,
                "parameters": tool.spec.schema,
                "effects": tool.spec.kind == EFFECTS,
                "parallel": True,
            }
            for tool in self._tools.values()
        ]

    def has(self, name: str) -> bool:
        return name in self._tools

    async def run(self, connection: ServerConnection, event: Event, offered: CallOffered) -> None:
        """Claim, run and answer a call; an exception becomes an error result. Does nothing if another client has
        claimed it."""
        turn = route("turns", event.turn, "claims")
        try:
            claim = await connection.call("POST", turn, {"call": offered.call, "client": self._client})
        except (NotFound, Conflict):
            return
        except AgentKernelError as error:
            log.warning("a call of a function of this program could not be claimed: %s", error)
            return
        held = ClaimedCall(connection, f"{turn}/{route(offered.call)}", str(claim["token"]), event.session)
        beat = asyncio.create_task(held.renew(float(claim["renew_s"])))
        try:
            await held.finish(await self._output(event, offered, held))
        finally:
            beat.cancel()

    async def _output(self, event: Event, offered: CallOffered, held: ClaimedCall) -> ToolOutput:
        loop = asyncio.get_running_loop()

        def emit(body: EventBody) -> None:
            if isinstance(body, CallOutput):
                loop.call_soon_threadsafe(held.say, body)

        call = ToolCall(offered.call, offered.name, offered.arguments)
        context = ToolContext(SessionKey("client", event.session or "-"), event.turn, event.round, call, emit)
        try:
            return await self._tools[offered.name].call(offered.arguments, context)
        except Exception as error:  # noqa: BLE001  a function of the caller may raise anything; the model reads it
            return ToolOutput(f"{type(error).__name__}: {error}", "error")


class ClaimedCall:
    """A call that this client has claimed. Renews the claim while the function runs, and sends its output and
    result."""

    def __init__(self, connection: ServerConnection, path: str, token: str, session: str) -> None:
        self._connection = connection
        self._path = path
        self._token = token
        self._session = session
        self._outputs: asyncio.Queue[CallOutput] = asyncio.Queue()
        self._sending: asyncio.Task[None] | None = None

    def say(self, output: CallOutput) -> None:
        self._outputs.put_nowait(output)
        if self._sending is None or self._sending.done():
            self._sending = asyncio.create_task(self._send_outputs())

    async def renew(self, every_s: float) -> None:
        while True:
            await asyncio.sleep(every_s)
            with contextlib.suppress(AgentKernelError):
                await self._post({"action": "renew"})

    async def finish(self, output: ToolOutput) -> None:
        """Send the result. Tries again after a lost connection, which is safe because the server accepts only one
        result of a call."""
        if self._sending is not None:
            await self._sending
        body = await self._body(output)
        for pause in (*PAUSES_S, None):
            try:
                await self._post(body)
            except ServerUnreachable as error:
                if pause is None:
                    log.warning("the result of a call could not be sent to the server: %s", error)
                    return
                await asyncio.sleep(pause)
            except (NotFound, Conflict):
                return  # the turn was stopped, or the server already has the result
            except AgentKernelError as error:
                if "media" not in body and body["status"] == "error":
                    log.warning("the server refused the result of a call: %s", error)
                    return
                body = {"action": "finish", "status": "error", "text": f"The server refused its result: {error}"}
            else:
                return

    async def _body(self, output: ToolOutput) -> dict[str, Any]:
        media = [
            {"mime": medium.mime, "data": base64.b64encode(medium.data).decode("ascii")}
            for medium in output.media
            if medium.data
        ]
        lines = [output.text, *[await self._upload(file) for file in output.files]]
        body: dict[str, Any] = {"action": "finish", "status": output.status, "text": "\n".join(lines)}
        body |= {"details": dict(output.details)} if output.details else {}
        return body | ({"media": media} if media else {})

    async def _upload(self, produced: ProducedFile) -> str:
        """Upload a file to the session and return the line about it that the model reads."""
        content = InputFile(produced.name, produced.data)
        try:
            file = await upload_file(self._connection, content, self._session, "agent_output")
        except (AgentKernelError, OSError) as error:
            return f"- {produced.name}: not stored: {error}"
        return f"- {file.name} ({file.mime_type}, {file.size} bytes, id {file.id})"

    async def _send_outputs(self) -> None:
        while not self._outputs.empty():
            output = self._outputs.get_nowait()
            with contextlib.suppress(AgentKernelError):
                await self._post({"action": "output", "stream": output.stream, "text": output.text})

    async def _post(self, body: Mapping[str, Any]) -> None:
        await self._connection.call("POST", self._path, {**body, "token": self._token})


async def upload_file(connection: ServerConnection, file: InputFile, session: str, purpose: str) -> File:
    """Upload a file. Raises FileTooLarge, QuotaExceeded, and OSError if it cannot be read."""
    fields = {"purpose": purpose, **({"session": session} if session else {})}
    form = MultipartForm(fields, file)
    headers = await asyncio.to_thread(lambda: form.headers)
    response = await connection.send("POST", "files", form.pieces(), headers=headers)
    return dataclasses.replace(File.from_json(json_of(response)), connection=connection)
