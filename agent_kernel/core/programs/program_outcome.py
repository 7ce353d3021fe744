"""Defines the outcome of a trial run of a program, as a kernel reports it to the server. Also finds, in a traceback,
the line of a program that failed."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from agent_kernel.core.messages import Status

TRIAL_TOOL = "python_trials"
"""Name of the tool with which the server lets a kernel run programs on trial. Models do not see this tool."""
MAX_VARIABLES = 20
"""Maximum number of variables of which an outcome has digests."""
MAX_CHARS = 200
"""Maximum characters of the name of a variable, and of a digest."""
FRAME = re.compile(r"^ +(?:File \"[^\"\n]*\", )?line (\d+), in .*\n    (.*)$", re.MULTILINE)
"""Matches one frame in a traceback as models read it. Its groups are the line number and the line of code."""


@dataclass(frozen=True, slots=True)
class ProgramOutcome:
    """The outcome of a trial run of one program.

    ``text`` is its output as a model would read it, and ``figures`` the number of pictures that it showed.
    ``variables`` maps the variables that it created or changed to digests of their contents (empty if no digest can be
    computed).
    """

    status: Status
    text: str = ""
    figures: int = 0
    variables: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, body: Any) -> ProgramOutcome:
        """Read an outcome that a draft or a kernel sent. It is not trusted: values of another type and texts that are
        too long are left out."""
        values = body if isinstance(body, Mapping) else {}
        status, text, figures, variables = (values.get(name) for name in ("status", "text", "figures", "variables"))
        named = variables.items() if isinstance(variables, Mapping) else ()
        listed = dict(itertools.islice(named, MAX_VARIABLES))
        return cls(
            "success" if status == "success" else "error",
            text if isinstance(text, str) else "",
            figures if isinstance(figures, int) else 0,
            {name: digest for name, digest in listed.items() if _is_short(name) and _is_short(digest)},
        )


def failed_line(result: str) -> str:
    """Return the line of the program that failed, as the traceback in ``result`` shows it; empty if there is no
    traceback."""
    frame = FRAME.search(result)
    return frame[2].strip() if frame else ""


def _is_short(text: object) -> bool:
    return isinstance(text, str) and len(text) <= MAX_CHARS
