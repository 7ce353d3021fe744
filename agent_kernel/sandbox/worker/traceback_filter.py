"""Formats exceptions for the user: frames of the user's code, without those of libraries. Standard library only."""

from __future__ import annotations

import os
import traceback

from agent_kernel.sandbox.worker.cpu_limit import ProcessorTimeUsedUp
from agent_kernel.sandbox.worker.error_hints import describe_error
from agent_kernel.sandbox.worker.library_warnings import short_text

MAX_ERROR = 20_000


def outcome(problem: BaseException) -> tuple[str, str | None]:
    """Return (status, text for the user and the model). The text has the hints about the error (``error_hints``),
    followed by its traceback."""
    if isinstance(problem, SystemExit):
        if problem.code in (None, 0):
            return "success", None
        return "error", f"SystemExit: {problem.code} (the session goes on)"
    try:
        text = "\n".join(filter(None, (describe_error(problem), _traceback(problem))))
    except Exception:  # noqa: BLE001 - the exception's own repr fails, or no stack is left to format it
        text = type(problem).__name__
    kinds = {KeyboardInterrupt: "interrupted", ProcessorTimeUsedUp: "timeout"}
    status = next((kinds[kind] for kind in type(problem).__mro__ if kind in kinds), "error")
    return status, cut(text, MAX_ERROR)


def cut(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n... {len(text) - 2 * half:,} characters left out ...\n{text[-half:]}"


def _traceback(problem: BaseException) -> str:
    if isinstance(problem, Warning):
        problem = type(problem)(short_text(str(problem))).with_traceback(problem.__traceback__)
    formatted = traceback.TracebackException.from_exception(problem, compact=True)
    _remove_library_frames(formatted, set())
    # The module is removed from the names of our own exceptions, because the user's code cannot import it.
    return "".join(formatted.format()).rstrip().replace(f"{ProcessorTimeUsedUp.__module__}.", "")


def _remove_library_frames(formatted: traceback.TracebackException, seen: set[int]) -> None:
    """Keep only the frames of the code itself and of modules in the work directory. ``seen`` are the ids of exceptions
    that have been processed, because exceptions can refer to each other."""
    if id(formatted) in seen:
        return
    seen.add(id(formatted))
    workdir = os.environ.get("HOME", "") + os.sep
    frames = [frame for frame in formatted.stack if frame.filename.startswith(("<run ", workdir))]
    formatted.stack = traceback.StackSummary.from_list(frames)
    for other in (formatted.__cause__, formatted.__context__, *(getattr(formatted, "exceptions", None) or ())):
        if other is not None:
            _remove_library_frames(other, seen)
