from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from tests.notebook.notebook import Notebook
from tests.server import AgentServer


@pytest.fixture(scope="module")
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentServer]:
    """One server for the module, with its SCRIPT, TRAITS and ENV; Python code runs live unless the TRAITS say
    otherwise. The rounds of a script are played once, so each test has its own words.
    """
    module, directory = request.module, tmp_path_factory.mktemp("server")
    traits = {"python_in": "live", **getattr(module, "TRAITS", {})}
    with AgentServer(directory, module.SCRIPT, traits, env=getattr(module, "ENV", {})) as server:
        yield asyncio.run(server.start())


@pytest.fixture(scope="module")
def shared_kernel(server: AgentServer) -> str:
    return asyncio.run(server.start_kernel("shared.ipynb"))


@pytest.fixture
async def notebook(server: AgentServer, shared_kernel: str) -> AsyncIterator[Notebook]:
    """The module's kernel, with a new session for each test."""
    async with Notebook(server, shared_kernel) as notebook:
        assert (await notebook.run("%agent new")).status == "ok"
        yield notebook


@pytest.fixture
async def fresh_notebook(server: AgentServer, request: pytest.FixtureRequest) -> AsyncIterator[Notebook]:
    """A notebook with a new kernel and without a session."""
    kernel = await server.start_kernel(f"{request.node.name[:60]}.ipynb")
    async with Notebook(server, kernel) as notebook:
        yield notebook
        await notebook.shut_down()
