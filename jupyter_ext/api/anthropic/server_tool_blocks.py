"""Converts calls of the server's tools into Anthropic's blocks, and blocks that a client sends back into text. The
functions have no side effects.

python becomes ``code_execution``, shell becomes ``bash_code_execution``, web_search becomes ``web_search`` and
fetch_page becomes ``web_fetch``. Anthropic has no block for other tools; their calls are listed in
``agentic_tool_calls``.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeAlias

from agent_kernel.core.events import CallFinished
from agent_kernel.tools.web.web_search import FOREIGN

Block: TypeAlias = dict[str, Any]
NAMES: Mapping[str, str] = MappingProxyType(
    {"python": "code_execution", "shell": "bash_code_execution", "web_search": "web_search", "fetch_page": "web_fetch"}
)
"""Anthropic's name of each server tool that has one."""
OURS: Mapping[str, str] = MappingProxyType({theirs: ours for ours, theirs in NAMES.items()})
IN_CONTAINER = frozenset({"python", "shell"})
"""Tools that run in the session's sandbox; Anthropic's API calls the sandbox a container."""


def call_block(id: str, name: str, arguments: Mapping[str, Any]) -> Block:
    """Return the block that announces a call of one of the tools in NAMES."""
    call_input = dict(arguments)
    if name == "shell" and isinstance(call_input.get("commands"), list):
        call_input["command"] = "\n".join(map(str, call_input.pop("commands")))
    return {"type": "server_tool_use", "id": id, "name": NAMES[name], "input": call_input}


def result(id: str, name: str, end: CallFinished) -> Block:
    """Return the block with the result of a call."""
    return {"type": f"{NAMES[name]}_tool_result", "tool_use_id": id, "content": _CONTENT[name](end)}


def _code(end: CallFinished) -> Block:
    """Return the printed text and the value of the last expression, or the reason why the call failed."""
    well = end.status == "success"
    return {
        "type": "code_execution_result",
        "stdout": end.text if well else "",
        "stderr": "" if well else end.text,
        "return_code": 0 if well else 1,
        "content": [{"type": "code_execution_output", "file_id": id} for id in end.files],
    }


def _bash(end: CallFinished) -> Block:
    ran = end.details if "stdout" in end.details else {}
    code = ran.get("exit_code")
    well = end.status == "success"
    return {
        "type": "bash_code_execution_result",
        "stdout": str(ran.get("stdout", end.text if well else "")),
        "stderr": str(ran.get("stderr", "" if well else end.text)),
        "return_code": code if isinstance(code, int) else 0 if well else 1,
        "content": [{"type": "bash_code_execution_output", "file_id": id} for id in end.files],
    }


def _search_content(end: CallFinished) -> Block | list[Block]:
    pages = _output(end)
    if pages is None:
        return {"type": "web_search_tool_result_error", "error_code": "unavailable"}
    return [
        {
            "type": "web_search_result",
            "url": str(page.get("url", "")),
            "title": str(page.get("title", "")),
            "encrypted_content": _seal(page),
            "page_age": None,
        }
        for page in pages
    ]


def _fetch_content(end: CallFinished) -> Block:
    pages = _output(end)
    if not pages:
        return {"type": "web_fetch_tool_result_error", "error_code": "url_not_accessible"}
    source = {"type": "text", "media_type": "text/plain", "data": str(pages[0].get("content", ""))}
    document = {"type": "document", "source": source, "title": str(pages[0].get("title", ""))}
    return {"type": "web_fetch_result", "url": str(pages[0].get("url", "")), "content": document, "retrieved_at": None}


_CONTENT: Mapping[str, Callable[[CallFinished], Any]] = MappingProxyType(
    {"python": _code, "shell": _bash, "web_search": _search_content, "fetch_page": _fetch_content}
)


def _output(end: CallFinished) -> list[Mapping[str, Any]] | None:
    """Parse the JSON text that a web tool returned. Return its search results or its page; None if the text contains
    neither."""
    if end.status != "success":
        return None
    try:
        output = json.loads(end.text)["output"]
    except (ValueError, KeyError, TypeError):
        return None
    entries = output if isinstance(output, list) else [output]
    return entries if all(isinstance(entry, dict) for entry in entries) else None


def _seal(result: Mapping[str, Any]) -> str:
    """Encode a result that the model read. The result is not encrypted, although the name of the field, which comes
    from Anthropic's API, suggests so."""
    content = {"description": result.get("description", ""), "content": result.get("content", "")}
    return base64.b64encode(json.dumps(content, ensure_ascii=False).encode("utf-8", "backslashreplace")).decode()


# -------------------------------------------------------------------------------------- blocks that a client sends back


def arguments_of(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call that a client sends back under Anthropic's name of the tool."""
    arguments = dict(given)
    if OURS.get(name) == "shell" and isinstance(arguments.get("command"), str):
        arguments["commands"] = arguments.pop("command").split("\n")
    return arguments


def result_text(content: Any) -> str:
    """Return the text of a result block for the model. The block can come from this server or another."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return _restore_results(content)
    kind = content.get("type", "") if isinstance(content, dict) else ""
    if kind in ("code_execution_result", "bash_code_execution_result"):
        return _ran(content)
    if kind == "web_fetch_result":
        return _page(content)
    return json.dumps(content, ensure_ascii=False)


def is_failed(content: Any) -> bool:
    if not isinstance(content, dict):
        return False
    return str(content.get("type", "")).endswith("_error") or bool(content.get("return_code"))


def _ran(content: Mapping[str, Any]) -> str:
    stdout, stderr, code = (content.get(key) for key in ("stdout", "stderr", "return_code"))
    parts = [str(stdout or "").rstrip()]
    parts.append(f"[stderr]\n{stderr}" if stdout and stderr else str(stderr or ""))
    if content.get("type") == "bash_code_execution_result" and code:
        parts.append(f"[exit code {code}: it ended at the first line that failed]")
    return "\n".join(part for part in parts if part) or "(no output)"


def _page(content: Mapping[str, Any]) -> str:
    document = content.get("content")
    source = document.get("source") if isinstance(document, dict) else None
    text = source.get("data") if isinstance(source, dict) and source.get("type") == "text" else None
    title = document.get("title") if isinstance(document, dict) else None
    output = {"url": content.get("url", ""), "title": title or "", "content": text or ""}
    return json.dumps({"note": FOREIGN, "output": output}, ensure_ascii=False)


def _restore_results(results: Sequence[Any]) -> str:
    """Convert search results, or parts of text, into text."""
    texts = [
        str(result.get("text", "")) for result in results if isinstance(result, dict) and result.get("type") == "text"
    ]
    if texts:
        return "\n".join(texts)
    output = [
        {"title": result.get("title", ""), "url": result.get("url", ""), **_unseal(result.get("encrypted_content"))}
        for result in results
        if isinstance(result, dict)
    ]
    return json.dumps({"note": FOREIGN, "output": output}, ensure_ascii=False)


def _unseal(sealed: Any) -> dict[str, Any]:
    """Return the content of a result that this server encoded; empty if another server encoded it."""
    try:
        content = json.loads(base64.b64decode(str(sealed), validate=True))
    except (ValueError, binascii.Error):
        return {}
    return (
        {key: str(content[key]) for key in ("description", "content") if key in content}
        if isinstance(content, dict)
        else {}
    )
