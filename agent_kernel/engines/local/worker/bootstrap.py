"""Starts the model worker in an interpreter that need not have agent-kernel installed: ``python -P bootstrap.py ...``.

Only the package itself is made importable, from where this file lies. Putting its parent directory on the path instead
would bring the notebook's packages in with it, and a private environment is there to keep the two apart.
"""

import importlib.util
import runpy
import sys
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[3]
WORKER = f"{PACKAGE.name}.engines.local.worker.worker"


def add_package(root: Path) -> None:
    """Makes ``root`` importable as the package of its name, before any other of that name."""
    spec = importlib.util.spec_from_file_location(
        root.name, root / "__init__.py", submodule_search_locations=[str(root)]
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[root.name] = module
    spec.loader.exec_module(module)


if __name__ == "__main__":
    add_package(PACKAGE)
    runpy.run_module(WORKER, run_name="__main__", alter_sys=True)
