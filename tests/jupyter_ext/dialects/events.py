"""Events of turns that the tests of all codecs feed."""

from __future__ import annotations

from agent_kernel.events import CallFinished, CallStarted, ContextBuilt, FileProduced, TurnFinished, TurnStarted
from agent_kernel.messages import Usage

USAGE = Usage(10, 4, 6, 0.5, 2.0, 1.0).to_json()
BEGIN = (TurnStarted("scripted", True, "sandbox"), ContextBuilt(1, 0))
END = TurnFinished("committed", "", 0, USAGE, finish="stop")
OURS = ("agentic_tool_call_progress", "agentic_tool_approval_required", "file_produced")
"""Names of the events that no house's dialect has."""
PYTHON = CallStarted("c1", "python", {"code": "print(1)"}, "sandbox")
PYTHON_DONE = CallFinished("c1", "python", "success", "1", 0.25, details={"seconds": 0.2}, files=("file_1",))
FILE = FileProduced("c1", {"id": "file_1", "name": "a.txt", "bytes": 2, "text": "hi", "source": {"tool": "python"}})
