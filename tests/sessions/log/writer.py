"""Writes to the store of its first argument until somebody kills it, and prints what was acknowledged."""

from __future__ import annotations

import asyncio
import sys

from agent_kernel.core.messages import user
from agent_kernel.core.session import SessionKey
from agent_kernel.sessions.store.store_url import open_store


async def main() -> None:
    store = open_store(sys.argv[1])
    for number in range(100_000):
        await store.add_messages(SessionKey("local", "s"), [user(f"{sys.argv[2]} {number}")])
        print(number, flush=True)


if __name__ == "__main__":
    asyncio.run(main())
