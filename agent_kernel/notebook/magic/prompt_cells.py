"""An IPython extension that makes prompt cells run as turns. The kernelspec "Agent prompts (Python)" loads it, for
notebooks that are conversations.

The extension loads the magics. Prompt cells are cells that begin with ``>``, and cells that the user switched to "Ask".
Every other cell runs as in any IPython kernel, and its text is not sent to a model.
"""

from __future__ import annotations

from typing import Any

from agent_kernel.core.wire.agent_cells import METADATA_KEY, prompt_of
from agent_kernel.notebook.display.render import line_bundle
from agent_kernel.notebook.kernel.cell_identity import metadata_of_code
from agent_kernel.notebook.kernel.prose_detection import reads_like_prose
from agent_kernel.notebook.magic import magic

OFFER = "This cell reads like text, not like Python. To ask the agent, begin the cell with >"
OFFER_METADATA = {METADATA_KEY: {"offer": "ask"}}
"""Metadata of the output that contains OFFER. The front end shows a button below this output."""


class PromptCells:
    """Runs prompt cells as turns in one shell. If the user ran a sentence as Python, tells the user how to ask the
    agent.
    """

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        # This transformer must run first, because those of IPython would remove prompts like >>> from the text of the
        # user.
        shell.input_transformers_cleanup.insert(0, self.transform)
        shell.events.register("post_run_cell", self.offer_to_ask)

    def close(self) -> None:
        self._shell.input_transformers_cleanup.remove(self.transform)
        self._shell.events.unregister("post_run_cell", self.offer_to_ask)

    def transform(self, lines: list[str]) -> list[str]:
        """Convert a prompt cell to a call of the magic; return any other code unchanged. The prompt becomes the body of
        the magic, because words on the line of the magic would be read as options."""
        source = "".join(lines)
        prompt = prompt_of(source, self._metadata(source))
        if prompt is None:
            return lines
        return [f"get_ipython().run_cell_magic('agent', '', {prompt.rstrip() + chr(10)!r})\n"]

    def _metadata(self, source: str) -> dict[str, Any]:
        """Return the metadata of the cell that is being executed. Return {} for code that a turn runs, even if this
        code is the same text as the prompt of the turn."""
        magics = self._shell.magics_manager.registry.get("AgentMagics")
        return {} if magics is not None and magics.in_turn else metadata_of_code(self._shell, source)

    def offer_to_ask(self, result: Any) -> None:
        """Tell the user how to ask the agent, if the cell that ran is a sentence. IPython calls this after a cell."""
        source = str(result.info.raw_cell or "")
        failed = isinstance(result.error_before_exec, SyntaxError)
        if failed and result.info.store_history and reads_like_prose(source):
            self._shell.display_pub.publish(line_bundle(OFFER), metadata=OFFER_METADATA)


def load_ipython_extension(shell: Any) -> None:
    """Run by ``%load_ext agent_kernel.notebook.magic.prompt_cells``. Loading the extension twice has no further
    effect."""
    magic.load(shell)
    if not any(
        isinstance(getattr(transformer, "__self__", None), PromptCells)
        for transformer in shell.input_transformers_cleanup
    ):
        PromptCells(shell)
        shell.magics_manager.registry["AgentMagics"].has_prompt_cells = True


def unload_ipython_extension(shell: Any) -> None:
    """Stop treating cells that begin with ``>`` as prompts. ``%unload_ext agent_kernel.notebook.magic.prompt_cells``
    calls this. The magics, ``%%agent`` for example, stay registered."""
    for transformer in list(shell.input_transformers_cleanup):
        if isinstance(cells := getattr(transformer, "__self__", None), PromptCells):
            cells.close()
