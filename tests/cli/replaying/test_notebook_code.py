from __future__ import annotations

import json
from pathlib import Path

from agent_kernel.cli.replaying.notebook_code import NotebookCode


def test_the_users_own_code_above_a_cell_has_no_prompts_and_no_magics(tmp_path: Path) -> None:
    asked = {"agent_kernel": {"ask": True}}
    sources = [("x = 1\n%matplotlib inline", {}), ("> hello", {}), ("hello", asked), ("%%agent\nhello", {}), ("x", {})]
    cells = [
        {"id": f"c{number}", "cell_type": "code", "source": source, "metadata": metadata}
        for number, (source, metadata) in enumerate(sources)
    ]
    path = tmp_path / "a.ipynb"
    path.write_text(json.dumps({"cells": cells}))
    code = NotebookCode.read(path)
    assert code is not None
    assert list(code.take_above("c4")) == [(1, "x = 1")]
