"""The line by which a server has a kernel run code of a turn in a draft, and the type of what the kernel answers.

Imports nothing of ours, because every server loads it.
"""

from __future__ import annotations

import base64
import json

OUTCOME = "application/vnd.agent-kernel.outcome+json"
"""MIME type of the output in which the kernel publishes what came of the code: status, text for the model, and the
variables that it made or changed in the draft."""


def draft_request(turn: str, code: str) -> str:
    """Return the line magic that runs ``code`` for ``turn`` in a draft of the kernel."""
    return f"%agent_draft {base64.b64encode(json.dumps([turn, code]).encode()).decode()}"


def read_request(line: str) -> tuple[str, str]:
    """Return turn and code of the argument of a line that ``draft_request`` made."""
    turn, code = json.loads(base64.b64decode(line))
    return turn, code
