"""``%agent export``, ``import`` and ``clear outputs``: the conversation of this notebook as a document."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from agent_kernel.notebook.display.render import line_bundle, table_bundle
from agent_kernel.notebook.kernel.input_prompt import Person
from agent_kernel.notebook.kernel.short_errors import AgentError
from agent_kernel.notebook.magic.conversation_commands import CommandArguments, Say
from agent_kernel.notebook.server_client import ServerClient, quote_segment

HELP = {
    "export": "[PATH] [--format agent-kernel|jsonl|openai|mistralrs|markdown|notebook]: save this conversation",
    "import": "[PATH] [--use]: read a conversation from a file, or the one stored beside this notebook; shows it first",
}
SUFFIXES = {".json": "agent-kernel", ".jsonl": "jsonl", ".md": "markdown", ".ipynb": "notebook"}
"""Export format by file suffix."""
TIMEOUT_S = 300.0


class ExportCommands:
    def __init__(self, server: Callable[[], ServerClient], person: Person, say: Say) -> None:
        self._server = server
        self._person = person
        self._say = say

    def export(self, rest: str) -> None:
        """Write the conversation to a file. An existing file is replaced only with --yes."""
        words = CommandArguments(rest, "--format")
        path = Path(words.text).expanduser() if words.rest else None
        format = words.option or (SUFFIXES.get(path.suffix, "agent-kernel") if path else "agent-kernel")
        session = self._require_session()
        where = f"sessions/{quote_segment(session['id'])}/export?{urlencode({'format': format})}"
        document, suffix, left_out = self._server().fetch(where, timeout=TIMEOUT_S)
        target = path or Path(_file_name(session["title"] or session["id"]) + suffix)
        try:
            with target.open("wb" if "--yes" in words.flags else "xb") as file:
                file.write(document)
        except FileExistsError:
            raise AgentError(f"{target} exists already; choose another name, or --yes to replace it.") from None
        except OSError as error:
            raise AgentError(f"{target} cannot be written: {error.strerror}.") from None
        self._tell(f"Wrote {len(document):,} bytes to {target} ({format}).{_without(left_out)}")

    def bring_in(self, rest: str) -> None:
        """Preview a document, ask the user, and import it as a new session."""
        words = CommandArguments(rest)
        query: dict[str, Any] = {} if words.rest else {"beside": 1}
        document = self._read(Path(words.text).expanduser()) if words.rest else b""
        seen = self._send({**query, "preview": 1}, document)["preview"]
        self._show(seen)
        if "--yes" not in words.flags and not self._person.agrees("Import it as a new session?"):
            raise AgentError("nothing was imported: it was not confirmed (--yes confirms it beforehand).")
        bind = not words.rest or "--use" in words.flags
        imported = self._send({**query, **({"bind": 1} if bind else {})}, document)
        then = "this notebook continues it" if imported["bound"] else f"%agent use {imported['id']} continues it"
        self._tell(f"Imported as session {imported['id']}; {then}.")

    def clear_outputs(self) -> None:
        """Remove tool outputs from the conversation for cells whose outputs were cleared in the saved notebook."""
        session = self._require_session()
        cleared = self._server().call("POST", f"sessions/{quote_segment(session['id'])}/clear-outputs", {})
        if not cleared["results"]:
            self._tell("Nothing to clear: save the notebook after its outputs were cleared, then try again.")
            return
        self._tell(
            f"Removed {cleared['results']} tool output(s) of {cleared['cells']} cell(s) from the conversation. The "
            "model's answers about them are kept."
        )

    def _require_session(self) -> Mapping[str, Any]:
        session: Mapping[str, Any] | None = self._server().call("GET", "binding")["session"]
        if session is None:
            raise AgentError("this notebook has no session yet; the first %%agent cell starts one.")
        return session

    def _send(self, query: Mapping[str, Any], document: bytes) -> dict[str, Any]:
        return self._server().call("POST", f"sessions/import?{urlencode(query)}", document, timeout=TIMEOUT_S)

    def _read(self, path: Path) -> bytes:
        try:
            return path.read_bytes()
        except OSError as error:
            raise AgentError(f"{path} cannot be read: {error.strerror}.") from None

    def _show(self, seen: Mapping[str, Any]) -> None:
        rows = [
            ("title", seen["title"]),
            ("starts", seen["begins"]),
            ("turns", f"{seen['turns']} on {seen['branches']} branch(es), {seen['messages']} messages"),
            ("media", f"{seen['media']}, {seen['media_bytes']:,} bytes"),
            ("left out", ", ".join(f"{count} {what}" for what, count in seen["left_out"].items()) or "nothing"),
        ]
        self._say(table_bundle((f"a conversation ({seen['format']})", ""), rows))

    def _tell(self, text: str) -> None:
        self._say(line_bundle(text))


def _file_name(title: str) -> str:
    return re.sub(r"[^\w.-]+", "-", title).strip("-.")[:80] or "session"


def _without(left_out: Mapping[str, int]) -> str:
    parts = ", ".join(f"{count} {what}" for what, count in left_out.items())
    return f" The format has no place for: {parts}." if parts else ""
