"""``ChatPanel()``: the chat panel of this kernel's notebook in a cell's output, in every front end that has anywidget.

Its script finds its own way: to the Jupyter server of its page where that is the one of this kernel, else to this
kernel, which then speaks with the server.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import anywidget
import traitlets
from IPython.core.getipython import get_ipython

from agent_kernel.notebook.panel.relay import Relay
from agent_kernel.notebook.server_client import ServerClient, server_of_this_kernel

STATIC = Path(__file__).parent / "static"
"""Built from ``ui/``."""
WAYS = ("auto", "server", "kernel")


class ChatPanel(anywidget.AnyWidget):  # type: ignore[misc]  # anywidget's bases have no types
    """``way``: ``auto``, or only the page's ``server``, or only the ``kernel``, through which everything the page asks
    waits while a cell runs (what comes back does not). ``height`` in pixels. The server's credential stays in the
    kernel: the page gets this kernel's id and nothing else."""

    _esm = STATIC / "widget.js"
    _css = STATIC / "widget.css"

    kernel = traitlets.Unicode().tag(sync=True)
    way = traitlets.Enum(WAYS, "auto").tag(sync=True)
    height = traitlets.Int(520, min=240, max=4000).tag(sync=True)

    def __init__(self, *, server: ServerClient | None = None, **traits: Any) -> None:
        known = known_server if server is None else lambda: server
        self._relay = Relay(known, self._say)
        found = known()
        super().__init__(**{"kernel": found.kernel if found else "", **traits})
        self.on_msg(self._heard)

    def close(self) -> None:
        self._relay.close()
        super().close()

    def _heard(self, widget: Any, content: Any, buffers: Any) -> None:
        self._relay.hear(content)

    def _say(self, content: Mapping[str, Any], buffers: Sequence[bytes] = ()) -> None:
        self.send(dict(content), list(buffers) or None)


def known_server() -> ServerClient | None:
    """The one that started this kernel, or that ``%agent start`` began for it."""
    shell = get_ipython()
    magics = shell and shell.magics_manager.registry.get("AgentMagics")
    found: ServerClient | None = magics.server if magics else server_of_this_kernel()
    return found
