"""Implements ``%agent export``, ``import`` and ``clear outputs``, which write the conversation of this notebook to a
file, read a conversation from a file, and remove the outputs of tool calls from it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from agent_kernel.core.wire.export_format import format_of_file
from agent_kernel.notebook.display.render import table_bundle
from agent_kernel.notebook.kernel.one_line_errors import AgentError
from agent_kernel.notebook.magic.command_arguments import CommandArguments
from agent_kernel.notebook.magic.command_context import CommandGroup, session_path
from agent_kernel.notebook.magic.written_file import write_file

HELP = {
    "export": "[PATH] [--format agent-kernel|jsonl|openai|mistralrs|markdown|notebook]: save this conversation",
    "import": "[PATH] [--use]: read a conversation from a file, or the one stored beside this notebook; shows it first",
}
TIMEOUT_S = 300.0


class ExportCommands(CommandGroup):
    """Implements the commands that HELP lists, with one method for each."""

    def export(self, line: str) -> None:
        """Write the conversation to a file. An existing file is replaced only with --yes."""
        arguments = CommandArguments(line, "--format")
        path = Path(arguments.text).expanduser() if arguments.words else None
        format = arguments.option or format_of_file(path)
        session = self._context.require_session()
        where = f"{session_path(session, 'export')}?{urlencode({'format': format})}"
        document, headers = self._context.server.raw(where, timeout=TIMEOUT_S)
        left_out = json.loads(headers.get("X-Agent-Left-Out", "{}"))
        suffix = Path(headers.get_filename("session.json")).suffix
        target = path or Path(_file_name(session["title"] or session["id"]) + suffix)
        write_file(target, document, replace="--yes" in arguments.flags)
        self._print_line(f"Wrote {len(document):,} bytes to {target} ({format}).{_describe_left_out(left_out)}")

    def import_(self, line: str) -> None:
        """Preview a document, ask the user, and import it as a new session."""
        arguments = CommandArguments(line)
        query: dict[str, Any] = {} if arguments.words else {"beside": 1}
        document = self._read(Path(arguments.text).expanduser()) if arguments.words else b""
        seen = self._send({**query, "preview": 1}, document)["preview"]
        self._show(seen)
        self._context.confirm(arguments, "Import it as a new session?", "nothing was imported")
        bind = not arguments.words or "--use" in arguments.flags
        imported = self._send({**query, **({"bind": 1} if bind else {})}, document)
        then = "this notebook continues it" if imported["bound"] else f"%agent use {imported['id']} continues it"
        self._print_line(f"Imported as session {imported['id']}; {then}.")

    def clear_outputs(self) -> None:
        """Remove the outputs of tool calls from the conversation, for those cells whose outputs are empty in the saved
        notebook."""
        path = session_path(self._context.require_session(), "clear-outputs")
        cleared = self._context.server.call("POST", path, {})
        if not cleared["results"]:
            self._print_line(
                "Nothing was removed: no cell of this conversation has cleared outputs in the saved notebook. "
                "Clear outputs, save the notebook, and try again."
            )
            return
        self._print_line(
            f"Removed {cleared['results']} tool output(s) of {cleared['cells']} cell(s) from the conversation. The "
            "model's answers about them are kept."
        )

    def _send(self, query: Mapping[str, Any], document: bytes) -> dict[str, Any]:
        return self._context.server.call("POST", f"sessions/import?{urlencode(query)}", document, timeout=TIMEOUT_S)

    def _read(self, path: Path) -> bytes:
        try:
            return path.read_bytes()
        except OSError as error:
            raise AgentError(f"{path} cannot be read: {error.strerror}.") from None

    def _show(self, preview: Mapping[str, Any]) -> None:
        rows = [
            ("title", preview["title"]),
            ("starts", preview["begins"]),
            ("turns", f"{preview['turns']} on {preview['branches']} branch(es), {preview['messages']} messages"),
            ("media", f"{preview['media']}, {preview['media_bytes']:,} bytes"),
            ("left out", ", ".join(f"{count} {what}" for what, count in preview["left_out"].items()) or "nothing"),
        ]
        self._context.publish(table_bundle((f"a conversation ({preview['format']})", ""), rows))


def _file_name(title: str) -> str:
    return re.sub(r"[^\w.-]+", "-", title).strip("-.")[:80] or "session"


def _describe_left_out(left_out: Mapping[str, int]) -> str:
    parts = ", ".join(f"{count} {what}" for what, count in left_out.items())
    return f" The format has no place for: {parts}." if parts else ""
