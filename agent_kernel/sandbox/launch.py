"""The command line and the environment of a process that will become a jail."""

from __future__ import annotations

import os
from pathlib import Path

_START = """
import sys, types
package, protocol, control = sys.argv[1:4]
for name, path in (("agent_kernel", package), ("agent_kernel.sandbox", package + "/sandbox")):
    module = sys.modules[name] = types.ModuleType(name)
    module.__path__ = [path]
from agent_kernel.sandbox.supervisor import main
main(int(protocol), int(control))
"""
"""The interpreter may be that of another environment: it gets our sandbox modules without the package around them."""


def command(interpreter: Path, protocol_fd: int, control_fd: int) -> list[str]:
    """Starts ``supervisor.main`` on the two inherited channels."""
    package = str(Path(__file__).parents[1])
    return [str(interpreter), "-E", "-c", _START, package, str(protocol_fd), str(control_fd)]


def environment(interpreter: Path) -> dict[str, str]:
    """All that jailed code inherits of our environment: no secret has a way in."""
    kept = {name: os.environ[name] for name in ("LANG", "LC_ALL", "LC_CTYPE", "TZ") if name in os.environ}
    # HOME tells the interpreter where the person's own packages are; the worker has its work directory instead.
    return {"PATH": f"{interpreter.parent}:/usr/local/bin:/usr/bin:/bin", "HOME": str(Path.home())} | kept
