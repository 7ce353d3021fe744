"""A user's own module with functions, as a server's configuration may name it."""

from __future__ import annotations

from typing import Any

import agent_kernel


@agent_kernel.tool
def double(n: int) -> int:
    """Twice a number."""
    return 2 * n


@agent_kernel.tool(effects=True)
async def order(item: str) -> str:
    """Orders something."""
    return f"ordered {item}"


def plain(words: str = "hello") -> dict[str, Any]:
    return {"words": words}


def search(query: str) -> list[dict[str, str]]:
    return [{"title": query, "url": "https://shelf.example/1", "content": f"All of {query}."}]
