from __future__ import annotations

import importlib
import os
import subprocess
import sys

import pytest

import agent_kernel

PROMPTS = """
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
name = "agent_kernel.notebook.magic.prompt_cells"
for command in ("load_ext", "load_ext", "reload_ext", "unload_ext"):
    shell.run_line_magic(command, name)
    print(repr(shell.transform_cell("> hello")))
print("agent" in shell.magics_manager.magics["cell"])
"""
OFF = """
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.run_line_magic("load_ext", "agent_kernel.notebook.magic.prompt_cells")
shell.run_cell("> hello")
"""
HEAVY = {"pydantic", "httpx", "numpy", "pandas", "matplotlib", "tornado", "jupyter_server", "transformers", "openvino"}
TERMINAL = """
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.run_line_magic("load_ext", "agent_kernel")
shell.run_line_magic("reload_ext", "agent_kernel")
result = shell.run_cell("%%agent\\nhello")
print(type(result.error_in_exec).__name__)
shell.run_line_magic("unload_ext", "agent_kernel")
import sys
print(*sorted(name for name in sys.modules if "." not in name))
"""


def test_the_extension_loads_in_plain_ipython_and_brings_no_library() -> None:
    done = subprocess.run([sys.executable, "-c", TERMINAL], capture_output=True, text=True, check=True)
    *said, modules = done.stdout.strip().splitlines()
    assert said[0].startswith("Agent: This kernel was not started by a Jupyter server with agent-kernel.")
    assert said[1:] == ["AgentError"], done.stdout
    assert not HEAVY & set(modules.split())


def test_prompt_cells_are_loaded_once_and_unloaded_without_the_magics() -> None:
    done = subprocess.run([sys.executable, "-c", PROMPTS], capture_output=True, text=True, check=True)
    *cells, there = [line for line in done.stdout.splitlines() if line.startswith(('"', "'", "True", "False"))]
    turn = repr("get_ipython().run_cell_magic('agent', '', 'hello\\n')\n")
    assert cells == [turn, turn, turn, repr("> hello\n")], done.stdout
    assert there == "True"


def test_where_agent_cells_are_off_a_prompt_cell_starts_no_server() -> None:
    environment = {**os.environ, "AGENT_KERNEL_MODE": "off"}
    done = subprocess.run([sys.executable, "-c", OFF], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.strip() == "Agent cells are off (AGENT_KERNEL_MODE=off): no model was asked."


@pytest.mark.parametrize(
    "name", [name for name in agent_kernel.__all__ if not name.endswith(("extension", "__version__"))]
)
def test_every_public_name_is_where_it_is_said_to_be(name: str) -> None:
    value = getattr(agent_kernel, name)
    assert value.__name__ == name
    assert getattr(importlib.import_module(value.__module__), name) is value


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nothing_like_this"):
        _ = agent_kernel.nothing_like_this
