"""The page around a widget in place of a front end: it exchanges messages with a ChatPanel in a real kernel over the
comm.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable
from typing import Any

from jupyter_client.asynchronous.client import AsyncKernelClient

WAIT_S = 60.0
Json = dict[str, Any]


class Page:
    """One view of the panel. ``told`` are all messages over the comm, ``wire`` all messages that any client of the
    kernel could read.
    """

    def __init__(self, client: AsyncKernelClient, to: str = "view-1") -> None:
        self._client = client
        self._to = to
        self._ids = itertools.count(1)
        self.comm = ""
        self.state: Json = {}
        self.told: list[Json] = []
        self.buffers: list[bytes] = []
        self.wire = ""

    async def open(self, code: str = "from agent_kernel import ChatPanel\nChatPanel(way='kernel')") -> None:
        request = self.execute(code)
        await self.until(lambda: bool(self.comm) and f'"{request}": "idle"' in self.wire)

    def execute(self, code: str) -> str:
        return str(self._client.execute(code, allow_stdin=False))

    def say(self, **content: Any) -> None:
        data = {"method": "custom", "content": {"to": self._to, **content}}
        message = self._client.session.msg("comm_msg", {"comm_id": self.comm, "data": data})
        self._client.shell_channel.send(message)

    def ask(self, method: str, path: str, body: Json | None = None) -> int:
        """Send a request and return its id, which the reply will have."""
        id = next(self._ids)
        self.say(do="request", id=id, method=method, path=path, body=body)
        return id

    def follow(self, turn: str) -> int:
        """Follow a turn and return the number that its messages will have."""
        number = next(self._ids)
        self.say(do="follow", turn=turn, after=0, number=number)
        return number

    async def asked(self, method: str, path: str, body: Json | None = None) -> Json:
        return await self.answer(self.ask(method, path, body))

    async def answer(self, id: int) -> Json:
        return await self.first(lambda said: said.get("id") == id)

    async def first(self, fits: Callable[[Json], bool]) -> Json:
        await self.until(lambda: any(map(fits, self.told)))
        return next(filter(fits, self.told))

    def events(self, turn: str) -> list[Json]:
        return [said["event"] for said in self.told if "event" in said and said["event"]["turn"] == turn]

    async def until(self, true: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT_S):
            while not true():
                self._hear(await self._client.get_iopub_msg(timeout=WAIT_S))

    def _hear(self, message: Json) -> None:
        content = message["content"]
        self.wire += json.dumps(content, default=str)
        assert message["msg_type"] != "error", content["evalue"]
        if message["msg_type"] == "comm_open" and "kernel" in content["data"].get("state", {}):
            self.comm, self.state = content["comm_id"], content["data"]["state"]
        elif message["msg_type"] == "comm_msg" and content["comm_id"] == self.comm:
            if content["data"]["method"] == "custom" and content["data"]["content"]["to"] == self._to:
                self.told.append(content["data"]["content"])
                self.buffers += [bytes(buffer) for buffer in message["buffers"]]
        elif message["msg_type"] == "status":
            self.wire += json.dumps({message["parent_header"].get("msg_id"): content["execution_state"]})
