"""Runs an MCP server on standard input and output for tasks of the set ``tools``. Its tools manage the stock of a shop.

It runs as a separate program (``python shop_server.py``) and needs the package ``mcp``. It keeps no state: the same
order always gets the same number, so that tasks that run at the same time do not affect each other. The docstrings of
the tools are texts that the model reads.
"""

from __future__ import annotations

import zlib
from typing import Any

GOODS: dict[str, dict[str, Any]] = {
    "lamp": {"stock": 17, "price": 24.5, "place": "aisle 4"},
    "kettle": {"stock": 6, "price": 39.9, "place": "aisle 2"},
    "rug": {"stock": 3, "price": 118.0, "place": "aisle 9"},
    "clock": {"stock": 11, "price": 32.25, "place": "aisle 4"},
    "vase": {"stock": 28, "price": 15.75, "place": "aisle 7"},
}
"""The goods of the shop by name: number of pieces, price of one piece in EUR, and location."""


def list_goods() -> str:
    """List the names of all goods."""
    return ", ".join(GOODS)


def look_up(item: str) -> dict[str, Any]:
    """Return the stock in pieces, the price of one piece in EUR, and the place of an item."""
    return GOODS[item]


def order(item: str, pieces: int) -> str:
    """Order pieces of an item. Returns the number of the order."""
    if pieces > GOODS[item]["stock"]:
        raise ValueError(f"There are only {GOODS[item]['stock']} pieces of {item}.")
    return order_number(item, pieces)


def remove_item(item: str) -> str:
    """Remove an item from the shop for good."""
    return f"{item} is removed."


def change_price(item: str, price: float) -> str:
    """Change the price of an item for all customers."""
    return f"{item} costs {price} EUR."


def order_number(item: str, pieces: int) -> str:
    return f"A{zlib.crc32(f'{item} {pieces}'.encode()) % 9000 + 1000}"


def serve() -> None:
    """Answer requests on standard input until it is closed."""
    from mcp.server import MCPServer

    shop = MCPServer("shop")
    for tool in (list_goods, look_up, order, remove_item, change_price):
        shop.add_tool(tool)
    shop.run("stdio")


if __name__ == "__main__":
    serve()
