from __future__ import annotations

from typing import Any

import agent_kernel
from agent_kernel.notebook.turn.user_functions import UserFunctions


@agent_kernel.tool
def area(width: float, height: float = 1.0) -> float:
    """The area of a rectangle."""
    return width * height


@agent_kernel.tool(effects=True, name="pay")
async def pay_it(amount: int) -> str:
    """Pays."""
    return f"paid {amount}"


class Touchy:
    """A value that raises an error whenever an attribute is read."""

    def __getattribute__(self, name: str) -> Any:
        raise AssertionError(f"{name} was looked at")


async def test_marked_functions_of_the_notebook_are_declared_as_they_are_now() -> None:
    namespace: dict[str, Any] = {"area": area, "again": area, "pay_it": pay_it, "touchy": Touchy(), "plain": len}
    functions = UserFunctions(namespace)
    assert [(each["name"], each["effects"]) for each in functions.to_json()] == [("area", False), ("pay", True)]
    assert functions.to_json()[0]["parameters"]["required"] == ["width"]
    assert functions.registered["area"].function(width=2, height="3") == 6.0
    assert await functions.registered["pay"].function(amount=5) == "paid 5"
    del namespace["area"], namespace["again"]
    assert list(functions.registered) == ["pay"]
