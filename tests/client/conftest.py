from __future__ import annotations

from tests.jupyter_ext.conftest import agent_server, server

__all__ = ["agent_server", "server"]
