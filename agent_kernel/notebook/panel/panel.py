"""``ChatPanel()``: the chat panel of this kernel's notebook in a cell output, for every front end that supports
anywidget.

The widget's script runs in the browser page that shows the notebook. If the Jupyter server that delivered the page is
also this kernel's server, the script connects to it. Otherwise it connects to this kernel, which relays its requests to
the server.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import anywidget
import traitlets
from IPython.core.getipython import get_ipython

from agent_kernel.notebook.panel.server_relay import Relay
from agent_kernel.notebook.server_client import ServerClient, server_of_this_kernel

STATIC = Path(__file__).parent / "static"
"""The directory with the built script of the panel. It is built from ``ui/``."""
WAYS = ("auto", "server", "kernel")


class ChatPanel(anywidget.AnyWidget):  # type: ignore[misc]  # anywidget's bases have no types
    """The chat panel as a widget.

    ``way`` selects how the page that displays the widget connects: ``server`` (only to the Jupyter server that
    delivered the page), ``kernel`` (only to this kernel, which relays), or ``auto`` (to that server if it is also this
    kernel's server, else to the kernel). With ``kernel``, requests of the page wait while a cell runs, but answers
    still arrive. ``height`` is in pixels. The server's credential stays in the kernel; the page only gets the kernel's
    id."""

    _esm = STATIC / "widget.js"
    _css = STATIC / "widget.css"

    kernel = traitlets.Unicode().tag(sync=True)
    way = traitlets.Enum(WAYS, "auto").tag(sync=True)
    height = traitlets.Int(520, min=240, max=4000).tag(sync=True)

    def __init__(self, *, server: ServerClient | None = None, **traits: Any) -> None:
        known = known_server if server is None else lambda: server
        self._relay = Relay(known, self._say)
        server_now = known()
        super().__init__(**{"kernel": server_now.kernel if server_now else "", **traits})
        self.on_msg(self._on_message)

    def close(self) -> None:
        self._relay.close()
        super().close()

    def _on_message(self, widget: Any, content: Any, buffers: Any) -> None:
        self._relay.hear(content)

    def _say(self, content: Mapping[str, Any], buffers: Sequence[bytes] = ()) -> None:
        self.send(dict(content), list(buffers) or None)


def known_server() -> ServerClient | None:
    """Return the server that started this kernel, or the server that ``%agent start`` started for it; None if there is
    neither."""
    shell = get_ipython()
    magics = shell and shell.magics_manager.registry.get("AgentMagics")
    server: ServerClient | None = magics.server if magics else server_of_this_kernel()
    return server
