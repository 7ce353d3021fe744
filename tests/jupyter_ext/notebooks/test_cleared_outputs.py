from __future__ import annotations

from typing import Any

from jupyter_ext.notebooks.cleared_outputs import bare_cells


def cell(id: str, source: Any, metadata: Any = None, **more: Any) -> dict[str, Any]:
    empty: dict[str, Any] = {"cell_type": "code", "outputs": [], "execution_count": None, "metadata": metadata or {}}
    return {**empty, "id": id, "source": source, **more}


def test_only_agent_cells_without_outputs_count_however_they_ask() -> None:
    cells = [
        cell("magic", ["%%agent\n", "hello"]),
        cell("quoted", "> hello"),
        cell("asked", "hello", {"agent_kernel": {"ask": True}}),
        cell("code", "x = 1"),
        cell("has-output", "> hello", outputs=[{}]),
        cell("has-run", "> hello", execution_count=1),
        cell("text", "> a quotation", cell_type="markdown"),
        "junk",
    ]
    assert bare_cells({"cells": cells}) == ("magic", "quoted", "asked")
    assert bare_cells({"cells": "junk"}) == bare_cells(None) == ()
