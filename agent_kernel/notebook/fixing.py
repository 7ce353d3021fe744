"""``%agent fix``: the last cell that failed, as a question for a corrected one."""

from __future__ import annotations

from typing import Any

from agent_kernel.notebook import inspection
from agent_kernel.notebook.executions import Executions
from agent_kernel.notebook.oneline import AgentError

CHARS = 6_000
"""Of source and traceback together; of more, the head and the tail of each."""
FIX = "Correct the cell In[{number}], which failed with {error}. Give the whole cell as it should be."


def question(shell: Any, executions: Executions, words: str) -> tuple[str, dict[str, str]]:
    """(the prompt, what the model is told besides). ``words`` is what the person adds. Raises AgentError when no cell
    has failed in this life of the kernel."""
    failure = executions.failure
    if failure is None:
        raise AgentError("no cell has failed since this kernel was started; run the one that fails, then ask again.")
    number, _, _, told = failure
    raised = told.strip().splitlines()[-1] if told.strip() else "an error"
    error = raised if len(raised) <= 200 else f"{raised[:200]} ..."
    prompt = FIX.format(number=number, error=error) + (f"\n{words}" if words else "")
    return prompt, {"title": "The cell that failed", "text": inspection.last_error(shell, executions, CHARS)}
