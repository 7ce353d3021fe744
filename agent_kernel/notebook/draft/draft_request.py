"""The line magic that the server sends to a kernel to run code in a draft (a copy of the kernel's process), and the
MIME type of the answer.

Imports nothing of this package, because every server loads it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence

OUTCOME = "application/vnd.agent-kernel.outcome+json"
"""MIME type of the output with the result: status, text for the model, and variables changed in the draft."""


def draft_request(turn: str, code: str) -> str:
    """Return the line magic that runs ``code`` for ``turn`` in a draft of the kernel."""
    return f"%agent_draft {base64.b64encode(json.dumps([turn, code]).encode()).decode()}"


def trial_request(programs: Sequence[str], names: Sequence[str]) -> str:
    """Return the line magic that tries each of the programs in a draft of the kernel. ``names`` are the variables whose
    contents the outcomes describe if a program creates them."""
    return f"%agent_draft {base64.b64encode(json.dumps([[*programs], [*names]]).encode()).decode()}"


def read_request(line: str) -> tuple[str, str] | tuple[list[str], list[str]]:
    """Parse ``line``, the argument of the magic that ``draft_request`` or ``trial_request`` returned. Returns (turn,
    code) for a ``draft_request``, and (programs, names) for a ``trial_request``."""
    first, second = json.loads(base64.b64decode(line))
    return first, second
