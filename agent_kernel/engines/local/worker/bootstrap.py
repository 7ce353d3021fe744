"""Starts the model worker in an interpreter, in which agent-kernel does not have to be installed: ``python -P
bootstrap.py ...``.

Only this package is made importable, from the location of this file. Adding its parent directory to the path would also
make the notebook's packages importable, but a private environment must be separate from them.
"""

import importlib.util
import runpy
import sys
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[3]
WORKER = f"{PACKAGE.name}.engines.local.worker.worker"


def add_package(root: Path) -> None:
    """Make ``root`` importable under its name, before any other package of that name."""
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
