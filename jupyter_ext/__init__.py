"""The Jupyter server extension of agent-kernel."""

from __future__ import annotations

from jupyter_ext.app import AgentKernel

__all__ = ["AgentKernel"]


def _jupyter_server_extension_points() -> list[dict[str, object]]:
    return [{"module": "jupyter_ext.app", "app": AgentKernel}]
