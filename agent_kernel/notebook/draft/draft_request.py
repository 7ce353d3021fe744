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
    """Return the line magic that tries programs in a draft of the kernel."""
    return f"%agent_draft {base64.b64encode(json.dumps([[*programs], [*names]]).encode()).decode()}"


def read_request(line: str) -> tuple[str, str] | tuple[list[str], list[str]]:
    """Return (turn, code), or (programs, names) for programs to try, from ``line``, the argument of a magic that
    ``draft_request`` or ``trial_request`` returned."""
    first, second = json.loads(base64.b64decode(line))
    return first, second
