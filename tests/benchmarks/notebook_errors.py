"""Loads the failing cells of ``notebook_errors.toml`` and runs each of them in a fresh namespace, before and after its
fix.

``python notebook_errors.py`` runs every failing cell and every solution in an IPython shell and prints a JSON list.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

ERRORS = Path(__file__).with_name("notebook_errors.toml")


@dataclass(frozen=True, slots=True)
class NotebookError:
    """A failing cell: ``cell`` raises ``error`` after ``setup`` ran. The expression ``holds`` and the pattern
    ``prints`` decide whether a fix is right, as the head of the TOML file explains.
    """

    name: str
    setup: str
    cell: str
    error: str
    holds: str
    solution: str
    held_out: bool = False
    prints: str = ""


def notebook_errors(path: Path = ERRORS) -> list[NotebookError]:
    """Return the failing cells of the TOML file. Raises TypeError if an entry has an unknown field."""
    return [NotebookError(**entry) for entry in tomllib.loads(path.read_text(encoding="utf-8"))["error"]]


def run_cell(shell: Any, case: NotebookError, cell: str) -> dict[str, Any]:
    """Run ``cell`` after the setup of ``case`` in an empty namespace and directory.

    In the result ``raised`` is the class of its error, or empty. ``right`` is True if the namespace and the output are
    as the cell's author intended, even if the cell raised an error.
    """
    shell.reset(new_session=False)
    with tempfile.TemporaryDirectory() as directory:
        os.chdir(directory)
        with capture_output():
            shell.run_cell(case.setup).raise_error()
        with capture_output() as output:
            ran = shell.run_cell(cell)
        raised = ran.error_before_exec or ran.error_in_exec
        right = _holds(shell, case.holds) and bool(re.search(case.prints, output.stdout, re.IGNORECASE))
        os.chdir("/")
    return {"raised": type(raised).__name__ if raised else "", "right": right, "printed": output.stdout}


def _holds(shell: Any, expression: str) -> bool:
    """Return True if the expression is true, and False if it is false or raises an error. The authors of the errors
    wrote it.
    """
    try:
        return bool(eval(expression, shell.user_ns))
    except Exception:  # noqa: BLE001  a name that the cell did not bind, or a value of another type
        return False


def main() -> None:
    shell: Any = InteractiveShell.instance()
    found = [
        {
            "name": case.name,
            "failing": run_cell(shell, case, case.cell),
            "fixed": run_cell(shell, case, case.solution),
        }
        for case in notebook_errors()
    ]
    sys.stdout.write("\n" + json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
