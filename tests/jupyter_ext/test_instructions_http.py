"""AGENTS.md beside a notebook, through a real server and a kernel's credential."""

from __future__ import annotations

from agent_kernel.core.trusted_folders import TrustStore
from tests.server import AgentServer, Json, followed

CHANGED = "the instructions of the server or the folder changed"


async def test_a_cell_is_asked_again_when_agents_md_of_a_trusted_folder_changes(server: AgentServer) -> None:
    folder = server.root / "project"
    folder.mkdir()
    (folder / "AGENTS.md").write_text("Use polars.")
    kernel = await server.start_kernel("project/a.ipynb")
    async with server.kernel_client(await server.kernel_token(kernel)) as notebook:

        async def ask() -> Json:
            body = {"prompt": "hello", "cell": "a", "rerun": "show"}
            started: Json = (await notebook.post("agent/v1/turns", json=body)).json()
            if not started["stored"]:
                await followed(notebook, started["turn"])
            return started

        assert (await ask())["stored"] is False
        assert (await ask())["stored"] is True
        TrustStore(server.directory / "data" / "trusted.json").add(folder)
        assert (await ask())["asked_again"]["reason"] == CHANGED
        assert (await ask())["stored"] is True
        (folder / "AGENTS.md").write_text("Use pandas.")
        assert (await ask())["asked_again"]["reason"] == CHANGED
        (folder / "AGENTS.md").unlink()
        assert (await ask())["asked_again"]["reason"] == CHANGED
