"""Offers the download of a missing model in the cell that needs it, and shows its progress."""

from __future__ import annotations

import html
import http.client
import json
from collections.abc import Mapping
from typing import Any

from agent_kernel.core.errors import AgentKernelError, PullFailed, from_json
from agent_kernel.notebook.display.render import QUIET, Bundle
from agent_kernel.notebook.display.screen import OutputSegment
from agent_kernel.notebook.display.terminal_escape import printable
from agent_kernel.notebook.kernel.input_prompt import Person
from agent_kernel.notebook.server_client import ServerClient, route

MB = 1_000_000


class ModelDownload:
    """One model to download. ``offer`` is the description that the server sends of the model: name, size, sources,
    licence."""

    def __init__(self, server: ServerClient, shell: Any, offer: Mapping[str, Any]) -> None:
        self._server = server
        self._shell = shell
        self.name = str(offer.get("name", ""))
        self._offer = offer

    @property
    def described(self) -> str:
        """The text displayed before a download: size, source and licence. The text lists every source, because the
        first one may be unreachable."""
        offer = self._offer
        first, *others = offer.get("sources") or [offer]
        lines = [
            f"The model {self.name} ({offer.get('title') or self.name}) is not on this machine yet: "
            f"{_describe_source(first)}, licence {offer.get('licence', 'unknown')}."
        ]
        for other in others:
            lines.append(
                f"If this source cannot be reached: {_describe_source(other)}. {other.get('why', '')}".rstrip()
            )
        return printable("\n".join(lines))

    def offer_download(self, person: Person) -> bool:
        """Ask the user and download the model. Returns True if the model is now on this machine, False if the user
        refuses or nobody can answer. Raises PullFailed."""
        if not self.name or not person.is_there:
            return False
        self._shell.display_pub.publish({"text/plain": self.described})
        if not person.agrees("Download it now?"):
            return False
        self.run()
        return True

    def run(self) -> None:
        """Download and show progress. Stopping the cell does not stop the download: the server continues it. Raises
        AgentKernelError."""
        segment = OutputSegment(self._shell.display_pub, lambda: _bar(self.name, {"stage": "starting"}))
        segment.touch()
        path = route("models", self.name, "pull")
        try:
            with self._server.stream("POST", path, {"consent": True}) as (_, events):
                for event in events:
                    line = json.loads(event.data)
                    if line.get("stage") == "failed":
                        raise from_json(line["error"])
                    segment.bundle = lambda line=line: _bar(self.name, line)  # type: ignore[misc]
                    segment.touch(force=line.get("stage") == "done")
        except (OSError, http.client.HTTPException) as error:
            raise PullFailed(
                f"The connection was lost during the download ({error}).",
                hint="Run the cell again: the download continues.",
            ) from error


def missing_model(error: AgentKernelError) -> Mapping[str, Any] | None:
    """Return the offer of a download from a ``model_missing`` error; None for other errors."""
    return error.details if error.code == "model_missing" and error.details.get("name") else None


def _describe_source(source: Mapping[str, Any]) -> str:
    size = source.get("download_bytes") or 0
    place = source.get("label") or source.get("source") or "its source"
    return f"{size / MB:,.0f} MB from {place}, published by {source.get('publisher', 'unknown')}"


def _bar(name: str, line: Mapping[str, Any]) -> Bundle:
    stage, done, total = str(line.get("stage", "")), line.get("done") or 0, line.get("total") or 0
    words = str(line.get("message") or line.get("note") or "")
    if stage == "done":
        text, bar = f"{name} is ready.", ""
    elif total:
        share = min(1.0, done / total)
        text = f"{name}: {stage} {share:.0%}" + (f", {done / MB:,.0f} of {total / MB:,.0f} MB" if total > MB else "")
        bar = f"<progress max='1' value='{share:.4f}' style='width:24em;max-width:60%'></progress> "
    else:
        text, bar = f"{name}: {stage} {words}".rstrip(), ""
    text = printable(text)
    return {"text/html": f"<div style='{QUIET}'>{bar}{html.escape(text)}</div>", "text/plain": text}
