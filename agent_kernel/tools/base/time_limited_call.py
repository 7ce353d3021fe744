"""Calls a user's function with a time limit, so that it blocks neither the event loop, nor the turn, nor the server."""

from __future__ import annotations

import asyncio
import dataclasses
import enum
import inspect
import io
import threading
from collections.abc import Callable, Mapping
from typing import Any

from agent_kernel.core.files import ProducedFile, picture_type
from agent_kernel.core.messages import Media, figures_note
from agent_kernel.core.protocols import ToolOutput
from agent_kernel.core.thread_offload import run_in_own_thread

TIMEOUT_S = 60.0
HUNG = 4
"""Maximum number of calls of one function that have exceeded their time and still run. At this number the function is
not called any more."""
NOTHING = "(it returned nothing)"


class TimeLimitedFunction:
    """Calls ``function``, sync or async, for the tool ``name``.

    After ``timeout_s`` seconds the call returns a timeout result. An async function is then cancelled. A sync function
    runs in a thread of its own; a thread cannot be stopped, so the function continues.
    """

    def __init__(self, function: Callable[..., Any], name: str, timeout_s: float = TIMEOUT_S) -> None:
        self._function = function
        self._name = name
        self._timeout_s = timeout_s
        self._late: list[threading.Event] = []

    async def __call__(self, *args: Any, **kwargs: Any) -> ToolOutput:
        """Call the function with these arguments and return its result as a ToolOutput. Raises what the function
        raises."""
        self._late = [ended for ended in self._late if not ended.is_set()]
        if len(self._late) >= HUNG:
            return ToolOutput(f"{HUNG} earlier calls of it did not end and still run; it is not called.", "error")
        ended = threading.Event()
        work = asyncio.create_task(self._output(ended, *args, **kwargs))
        # The exception is retrieved here, because the caller may have been cancelled, and asyncio would log an
        # exception that nobody retrieves.
        work.add_done_callback(lambda work: work.cancelled() or work.exception())
        try:
            done, _ = await asyncio.wait([work], timeout=self._timeout_s)
        finally:
            work.cancel()
        if done:
            return work.result()
        self._late.append(ended)
        return ToolOutput(f"It did not end within {self._timeout_s:g} s, and may still run.", "timeout")

    async def _output(self, ended: threading.Event, *args: Any, **kwargs: Any) -> ToolOutput:
        """Run the call, return its output, and set ``ended`` when no part of the call runs any more."""
        if _is_async(self._function):
            try:
                return output_of(await self._function(*args, **kwargs), self._name)
            finally:
                ended.set()

        def call() -> Any:
            try:
                value = self._function(*args, **kwargs)
                return value if inspect.isawaitable(value) else output_of(value, self._name)
            finally:
                ended.set()

        value = await run_in_own_thread(call, f"tool {self._name}")
        return output_of(await value, self._name) if inspect.isawaitable(value) else value


def _is_async(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


# Converts the return value of a user's function into a tool result: text, JSON, images, files.


def output_of(value: Any, name: str) -> ToolOutput:
    """Convert the value that the function of the tool ``name`` returned.

    Text is returned unchanged. Images (PIL, matplotlib, image bytes) become media, and other bytes a file. Dicts,
    lists, dataclasses and pydantic models become JSON, and anything else its repr. A list or tuple may contain values
    of different kinds. Raises whatever the value's own methods raise."""
    if isinstance(value, ToolOutput):
        return value
    if isinstance(value, (list, tuple)) and any(_to_media(item) or isinstance(item, bytes) for item in value):
        parts = [output_of(item, f"{name}-{number}") for number, item in enumerate(value, start=1)]
        text = "\n".join(part.text for part in parts)
        media = tuple(medium for part in parts for medium in part.media)
        return ToolOutput(text, media=media, files=tuple(file for part in parts for file in part.files))
    if isinstance(value, bytes) and not picture_type(value):
        file = ProducedFile(f"{name}.bin", value)
        return ToolOutput(f"[{len(value)} bytes]", files=(file,))
    if drawn := _to_media(value):
        return ToolOutput(figures_note(1), media=(drawn,))
    return ToolOutput(_text(value) or NOTHING)


def _to_media(value: Any) -> Media | None:
    if isinstance(value, Media):
        return value
    if isinstance(value, bytes):
        mime = picture_type(value)
        return Media.of(mime, value) if mime else None
    if callable(getattr(value, "savefig", None)):  # a figure of matplotlib
        drawn = io.BytesIO()
        value.savefig(drawn, format="png")
        return Media.of("image/png", drawn.getvalue())
    picture = getattr(value, "_repr_png_", None)  # PIL images, and other objects with the same method
    data = picture() if callable(picture) and not isinstance(value, type) else None
    return Media.of("image/png", data) if isinstance(data, bytes) else None


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    plain = isinstance(value, (Mapping, list, tuple, set, frozenset, bool, int, float, enum.Enum))
    if plain or dataclasses.is_dataclass(value) or hasattr(value, "model_dump_json"):
        import pydantic_core

        json = pydantic_core.to_json(value, fallback=repr, bytes_mode="base64", inf_nan_mode="constants")
        return json.decode("utf-8", "replace")
    return repr(value)
