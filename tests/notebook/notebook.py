"""A notebook as a front end sees it: cells run in a real kernel, and their outputs are collected as a saved notebook
would contain them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any

from jupyter_client.asynchronous.client import AsyncKernelClient

from tests.server import AgentServer

CELL_S = 60.0
CONNECT_TRIES = 5
LAB_APART = timedelta(milliseconds=2)
"""Between the requests of JupyterLab's Run All."""
SILENCE = "..."
"""As an answer: the person does not answer."""
Json = dict[str, Any]
EXECUTED: Json = {
    "silent": False,
    "store_history": True,
    "user_expressions": {},
    "allow_stdin": False,
    "stop_on_error": True,
}


@dataclass
class Ran:
    """The result of one cell. ``outputs`` are its nbformat outputs after all updates. ``history`` has every
    text/markdown and text/html that was shown, in order. ``asked`` are the questions of its input, ``payload`` the
    proposed cells in the reply.
    """

    status: str = ""
    outputs: list[Json] = field(default_factory=list)
    history: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    payload: list[Json] = field(default_factory=list)
    by_display_id: dict[str, Json] = field(default_factory=dict)
    request: str = ""

    def take(self, message: Json) -> None:
        kind, content = message["msg_type"], message["content"]
        if kind == "display_data":
            output = {"output_type": "display_data", "data": content["data"], "metadata": content["metadata"]}
            self.outputs.append(output)
            if display_id := content.get("transient", {}).get("display_id"):
                self.by_display_id[display_id] = output
        elif kind == "update_display_data":
            self.by_display_id[content["transient"]["display_id"]]["data"] = content["data"]
        elif kind == "stream":
            self.outputs.append({"output_type": "stream", "name": content["name"], "text": content["text"]})
        elif kind == "error":
            self.outputs.append({"output_type": "error", **content})
        elif kind == "execute_result":
            self.outputs.append({"output_type": "execute_result", "data": content["data"], "metadata": {}})
        if kind.endswith("display_data"):
            self.history.append(content["data"].get("text/markdown") or content["data"].get("text/html") or "")

    def of(self, mime: str) -> list[Any]:
        return [output["data"][mime] for output in self.outputs if mime in output.get("data", {})]

    @property
    def text(self) -> str:
        """The text that the agent wrote."""
        return "\n".join(self.of("text/markdown"))

    @property
    def error(self) -> str:
        """The one error as a front end shows it; empty if there is none."""
        errors = ["\n".join(output["traceback"]) for output in self.outputs if output["output_type"] == "error"]
        assert len(errors) <= 1
        return errors[0] if errors else ""

    @property
    def printed(self) -> str:
        return "".join(output["text"] for output in self.outputs if output["output_type"] == "stream")

    @property
    def cards(self) -> list[str]:
        return [html for html in self.of("text/html") if html.startswith("<details")]

    @property
    def plain(self) -> str:
        return "\n".join(self.of("text/plain"))

    @property
    def all(self) -> str:
        return "\n".join([self.plain, self.printed, self.error])

    @property
    def turn(self) -> Json:
        record: Json = self.of("application/vnd.agent-kernel.turn+json")[-1]
        return record


class Window:
    """Another window on a kernel, used with ``async with``: it collects the outputs of each cell, even after the cell
    has ended.
    """

    def __init__(self, connection: Path) -> None:
        self._client = AsyncKernelClient(connection_file=str(connection))
        self._cells: dict[str, Ran] = {}
        self._reading: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Window:
        self._client.load_connection_file()
        self._client.start_channels()
        await self._client.wait_for_ready(timeout=CELL_S)
        self._reading = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._reading is not None
        self._reading.cancel()
        await asyncio.wait([self._reading])
        self._client.stop_channels()

    def of(self, ran: Ran) -> Ran:
        """Return the current outputs of the cell."""
        return self._cells.setdefault(ran.request, Ran())

    async def until(self, *words: tuple[Ran, str]) -> None:
        """Wait until each of these cells shows its text."""
        for _ in range(int(CELL_S / 0.05)):
            if all(expected in self.of(ran).all for ran, expected in words):
                return
            await asyncio.sleep(0.05)
        raise AssertionError("\n---\n".join(self.of(ran).all for ran, _ in words))

    async def _read(self) -> None:
        while True:
            message = await self._client.get_iopub_msg()
            self._cells.setdefault(message["parent_header"].get("msg_id", ""), Ran()).take(message)


class Notebook:
    """Runs cells as a client of the kernel, as a front end does. Use it with ``async with``."""

    def __init__(self, server: AgentServer, kernel: str) -> None:
        self.server = server
        self.kernel = kernel
        self._running = Ran()
        self._client = AsyncKernelClient()

    async def __aenter__(self) -> Notebook:
        await self._connect()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._client.stop_channels()

    def window(self) -> Window:
        return Window(self._connection)

    @property
    def _connection(self) -> Path:
        return self.server.directory / "runtime" / f"kernel-{self.kernel}.json"

    async def _connect(self) -> None:
        """Connect to the kernel. A starting kernel may miss heartbeats and appear to be dead, so this is tried several
        times.
        """
        for attempt in range(CONNECT_TRIES):
            self._client = AsyncKernelClient(connection_file=str(self._connection))
            self._client.load_connection_file()
            self._client.start_channels()
            try:
                await self._client.wait_for_ready(timeout=CELL_S)
                return
            except RuntimeError:
                self._client.stop_channels()
                await asyncio.sleep(attempt)
        raise AssertionError("the kernel did not come up")

    @property
    def shown(self) -> list[str]:
        """Return what the current or most recent cell has shown."""
        return self._running.history

    async def until_shown(self, words: str) -> None:
        """Wait until the running cell shows this text."""
        for _ in range(int(CELL_S / 0.05)):
            if any(words in shown for shown in self._running.history):
                return
            await asyncio.sleep(0.05)
        raise AssertionError(f"{words!r} was not shown; there is {self._running.history}")

    async def run(
        self,
        code: str,
        answers: Sequence[str] | None = None,
        cell: str = "",
        *,
        thinks_s: float = 0.0,
        metadata: Mapping[str, Any] = MappingProxyType({}),
    ) -> Ran:
        """Run a cell and return its result.

        ``answers`` are what a user types, in order, each after ``thinks_s`` seconds; None stands for a front end
        without input. ``metadata`` are those of the cell.
        """
        ran = self._running = Ran()
        typed = list(answers or [])

        def answer(message: Json) -> None:
            ran.asked.append(message["content"]["prompt"])
            answer = typed.pop(0) if typed else ""
            time.sleep(thinks_s)
            if answer != SILENCE:
                self._client.input(answer)

        self._client.session.metadata = {**metadata, **({"cellId": cell} if cell else {})}
        reply = await asyncio.wait_for(
            self._client.execute_interactive(
                code, output_hook=ran.take, stdin_hook=answer, allow_stdin=answers is not None
            ),
            CELL_S,
        )
        ran.status, ran.request = reply["content"]["status"], reply["parent_header"]["msg_id"]
        ran.payload = reply["content"].get("payload", [])
        return ran

    async def run_all(self, cells: Mapping[str, str], apart_s: float = 0.0) -> dict[str, Ran]:
        """Run cells (source by id) as JupyterLab's Run All does: one request for each cell, all sent before the first
        is answered. ``apart_s`` is the time between two requests, in seconds; without it they have the dates that
        JupyterLab's requests have, however slow this machine is.
        """
        ran: dict[str, Ran] = {}
        requests: list[Json] = []
        for cell, source in cells.items():
            self._client.session.metadata = {"cellId": cell}
            requests.append(self._client.session.msg("execute_request", {**EXECUTED, "code": source}))
        began = datetime.now(UTC)
        for number, request in enumerate(requests):
            request["header"]["date"] = datetime.now(UTC) if apart_s else began + number * LAB_APART
            ran[request["header"]["msg_id"]] = Ran()
            self._client.shell_channel.send(request)
            if apart_s:
                await asyncio.sleep(apart_s)
        waiting = set(ran)
        while waiting:
            message = await asyncio.wait_for(self._client.get_iopub_msg(), CELL_S)
            parent = message["parent_header"].get("msg_id")
            if parent in ran:
                ran[parent].take(message)
                if message["msg_type"] == "status" and message["content"]["execution_state"] == "idle":
                    waiting.discard(parent)
        unanswered = set(ran)
        while unanswered:
            reply = await asyncio.wait_for(self._client.get_shell_msg(), CELL_S)
            parent = reply["parent_header"]["msg_id"]
            if parent in unanswered:  # not one that is left from connecting
                unanswered.discard(parent)
                ran[parent].status = reply["content"]["status"]
        return dict(zip(cells, ran.values(), strict=True))

    async def until_asked(self) -> None:
        """Wait until the running cell waits for input."""
        while not self._running.asked:
            await asyncio.sleep(0.05)

    async def complete(self, code: str) -> list[str]:
        reply = await self._client.complete(code, reply=True, timeout=CELL_S)
        matches: list[str] = reply["content"]["matches"]
        return matches

    async def inspect(self, code: str) -> str:
        reply = await self._client.inspect(code, reply=True, timeout=CELL_S)
        return str(reply["content"]["data"].get("text/plain", ""))

    async def interrupt(self) -> None:
        async with self.server.client() as http:
            (await http.post(f"api/kernels/{self.kernel}/interrupt")).raise_for_status()

    async def messages(self) -> list[Json]:
        """Return the stored messages of this notebook's session, including hidden context."""
        async with self.server.client() as http:
            binding = (await http.get("agent/v1/binding", params={"kernel": self.kernel})).json()
            items = await http.get(f"agent/v1/sessions/{binding['session']['id']}/items")
        return [item["message"] for item in items.json()["items"]]

    async def tool_results(self) -> list[Any]:
        return [message["content"] for message in await self.messages() if message["role"] == "tool"]

    async def shut_down(self) -> None:
        async with self.server.client() as http:
            await http.delete(f"api/kernels/{self.kernel}")

    async def restart(self) -> None:
        self._client.stop_channels()
        async with self.server.client() as http:
            (await http.post(f"api/kernels/{self.kernel}/restart")).raise_for_status()
        await self._connect()
