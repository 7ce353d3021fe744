"""The line by which the server asks a kernel to run code in a draft, and the MIME type of the answer.

Imports nothing of this package, because every server loads it.
"""

from __future__ import annotations

import base64
import json

OUTCOME = "application/vnd.agent-kernel.outcome+json"
"""MIME type of the output with the result: status, text for the model, and variables changed in the draft."""


def draft_request(turn: str, code: str) -> str:
    """Return the line magic that runs ``code`` for ``turn`` in a draft of the kernel."""
    return f"%agent_draft {base64.b64encode(json.dumps([turn, code]).encode()).decode()}"


def read_request(line: str) -> tuple[str, str]:
    """Return (turn, code) from ``line``, the argument of a magic that ``draft_request`` returned."""
    turn, code = json.loads(base64.b64decode(line))
    return turn, code
