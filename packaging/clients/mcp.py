# install: mcp
import asyncio
import os

import httpx2
from mcp import ClientSession, MCPError
from mcp.client.streamable_http import streamable_http_client


async def main() -> None:
    headers = {"Authorization": f"Bearer {os.environ['TOKEN']}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=60) as http,
        streamable_http_client(os.environ["URL"] + "/v1/mcp", http_client=http) as (reads, writes, *_),
        ClientSession(reads, writes) as session,
    ):
        assert (await session.initialize()).server_info.name == "agent-kernel"
        assert "agent" in [tool.name for tool in (await session.list_tools()).tools]
        print((await session.call_tool("agent", {"prompt": "Say hello."})).content[0].text)
        try:
            await session.call_tool("no-such-tool", {})
            raise AssertionError("a tool that does not exist answers")
        except MCPError as error:
            assert "list_sessions" in str(error), error


asyncio.run(main())
print("good")
