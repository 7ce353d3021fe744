"""Starts the model worker in an interpreter, in which agent-kernel does not have to be installed: ``python -P
bootstrap.py ...``.

The program makes only the package agent_kernel importable, from the location of this file. If it added the package's
parent directory to the path, the notebook's packages would be importable too, but a private environment must be
separate from them.
"""

import importlib
import importlib.util
import runpy
import sys
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[3]
WORKER = f"{PACKAGE.name}.engines.local.worker.worker"
DEFERRED = f"{PACKAGE.name}.core.net.deferred_iri_grammar"


def add_package(root: Path) -> None:
    """Make the package in the directory ``root`` importable by the directory's name. It takes precedence over an
    installed package of that name."""
    spec = importlib.util.spec_from_file_location(
        root.name, root / "__init__.py", submodule_search_locations=[str(root)]
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[root.name] = module
    spec.loader.exec_module(module)


def defer_grammar() -> None:
    """Postpone the import of a library that takes a second. The worker needs it only for rare schemas."""
    importlib.import_module(DEFERRED).defer_iri_grammar()


if __name__ == "__main__":
    add_package(PACKAGE)
    defer_grammar()
    runpy.run_module(WORKER, run_name="__main__", alter_sys=True)
