"""Builds the command line and the environment of a process that will become a jail."""

from __future__ import annotations

import os
from pathlib import Path

from agent_kernel.sandbox.host import sandbox_profiles
from agent_kernel.sandbox.host.policy import SandboxPolicy

_START = """
import sys, types
package, *channels = sys.argv[1:]
for name, path in (("agent_kernel", package), ("agent_kernel.sandbox", package + "/sandbox")):
    module = sys.modules[name] = types.ModuleType(name)
    module.__path__ = [path]
from agent_kernel.sandbox.worker.supervisor import main
main(*map(int, channels))
"""
"""The program that the interpreter starts with. It imports only our sandbox modules, because the interpreter may belong
to another environment, which does not have this package."""
DEFAULT = SandboxPolicy()


def command(interpreter: Path, *channels: int) -> list[str]:
    """Return the command that runs ``supervisor.main`` on the inherited channels."""
    package = str(Path(__file__).parents[2])
    return [str(interpreter), "-E", "-c", _START, package, *map(str, channels)]


def environment(interpreter: Path, policy: SandboxPolicy = DEFAULT) -> dict[str, str]:
    """Return the complete environment of jailed code. Starts from nothing, so no secret of the server is inherited."""
    locale = {name: os.environ[name] for name in ("LANG", "LC_ALL", "LC_CTYPE", "TZ") if name in os.environ}
    # HOME tells the interpreter where the user's own packages are; the worker's HOME is its work directory instead.
    start = {"PATH": sandbox_profiles.path(policy, interpreter), "HOME": str(Path.home())}
    return start | locale | sandbox_profiles.variables(policy)
