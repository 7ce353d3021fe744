"""Events of turns for the tests of all codecs: some common ones, and strategies that draw any event."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

from agent_kernel.core.events import (
    AnswerLogprobs,
    ApprovalRequired,
    ApprovalResolved,
    CallFinished,
    CallOutput,
    CallReturned,
    CallStarted,
    ContextBuilt,
    EventBody,
    FileProduced,
    ModelLoading,
    Notice,
    Queued,
    ReasoningDelta,
    StateLost,
    TextDelta,
    TurnFinished,
    TurnStarted,
)
from agent_kernel.core.messages import Usage

USAGE = Usage(10, 4, 6, 0.5, 2.0, 1.0).to_json()
BEGIN = (TurnStarted("scripted", True, "sandbox"), ContextBuilt(1, 0))
END = TurnFinished("committed", "", 0, USAGE, finish="stop")
OURS = ("agentic_tool_call_progress", "agentic_tool_approval_required", "file_produced", "agentic_notice")
"""Names of the events that no house's dialect has."""
PYTHON = CallStarted("c1", "python", {"code": "print(1)"}, "sandbox")
PYTHON_DONE = CallFinished("c1", "python", "success", "1", 0.25, details={"seconds": 0.2}, files=("file_1",))
FILE = FileProduced("c1", {"id": "file_1", "name": "a.txt", "bytes": 2, "text": "hi", "source": {"tool": "python"}})
FOUND = [{"title": "A", "description": "about a", "url": "https://a.org/", "content": "words"}]
"""What a search gives."""

# ---------------------------------------------------------------------------------------------------- any events

WORDS = st.text(max_size=20)
CALLS = st.sampled_from(["c1", "c2", "c3"])
NAMES = st.sampled_from(
    [
        "python",
        "reset_python",
        "shell",
        "web_search",
        "fetch_page",
        "read_file",
        "surface_outputs",
        "mcp_x",
        "f",
        "ns.f",
    ]
)
STATUSES = st.sampled_from(["success", "error", "denied", "timeout", "interrupted"])
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=5,
)
ARGUMENTS = st.dictionaries(
    WORDS | st.sampled_from(["code", "commands", "command", "query", "url", "_raw"]), JSON, max_size=3
)
RESULT = WORDS | st.builds(lambda output: json.dumps({"output": output}), JSON) | st.just(json.dumps({"output": FOUND}))
DETAILS = st.fixed_dictionaries(
    {},
    optional={
        "stdout": JSON,
        "stderr": JSON,
        "exit_code": JSON,
        "timed_out": JSON,
        "commands": JSON,
        "results_count": JSON,
        "sources": st.lists(WORDS, max_size=2),
        "exception": WORDS,
        "seconds": st.floats(0, 9),
    },
)
FILES = st.fixed_dictionaries(
    {"id": WORDS, "name": WORDS},
    optional={"bytes": st.integers(0, 9), "mime_type": st.just("text/csv"), "code": st.just("not_produced")},
)


def any_event(returned: st.SearchStrategy[str] = CALLS) -> st.SearchStrategy[EventBody]:
    """Draw any event but the last of a turn; ``returned`` are ids of calls that the caller runs."""
    return st.one_of(
        st.builds(TextDelta, WORDS),
        st.builds(ReasoningDelta, WORDS),
        st.builds(CallStarted, CALLS, NAMES, ARGUMENTS, st.sampled_from(["sandbox", "server"])),
        st.builds(CallOutput, CALLS, WORDS, st.sampled_from(["stdout", "stderr"])),
        st.builds(
            CallFinished,
            CALLS,
            NAMES,
            STATUSES,
            RESULT,
            st.floats(0, 10),
            st.just(()),
            DETAILS,
            st.lists(WORDS, max_size=2).map(tuple),
        ),
        st.builds(CallReturned, returned, NAMES | WORDS, ARGUMENTS),
        st.builds(FileProduced, CALLS, FILES),
        st.builds(
            ApprovalRequired,
            CALLS,
            CALLS,
            NAMES,
            st.sampled_from(["python.sandbox", "shell", "mcp", "path"]),
            WORDS,
            WORDS,
        ),
        st.builds(ApprovalResolved, CALLS, CALLS, st.sampled_from(["approve", "deny"]), WORDS),
        st.builds(
            AnswerLogprobs,
            st.lists(st.fixed_dictionaries({"text": WORDS, "logprob": st.just(-0.5)}), max_size=3).map(tuple),
        ),
        st.just(TurnStarted("m", True, "sandbox")),
        st.just(ContextBuilt(1, 0)),
        st.builds(Notice, st.just("warning"), WORDS),
        st.builds(Queued, st.integers(1, 3), WORDS),
        st.builds(ModelLoading, WORDS, WORDS, st.none() | st.just(0.5)),
        st.builds(StateLost, WORDS),
    )


def any_end(*states: str) -> st.SearchStrategy[TurnFinished]:
    """Draw the last event of a turn in one of these states, with or without an error."""
    return st.builds(
        TurnFinished,
        st.sampled_from(states),
        WORDS,
        st.integers(0, 9),
        st.sampled_from([USAGE, {}]),
        st.none() | st.builds(lambda said: {"code": "engine_error", "message": said, "hint": "", "details": {}}, WORDS),
        st.sampled_from(["", "stop", "length", "calls"]),
    )
