"""Routes that list, test, save and remove the model servers that a user adds. Only a person may use these routes,
because such a server receives conversations. A key is stored in the key store and is never part of a response.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Annotated, Any

from pydantic import Field, SecretStr

from agent_kernel.core.errors import AgentKernelError, NotFound
from agent_kernel.engines.added_servers import AddedServer
from agent_kernel.engines.capability_probe import Finding, Probe, missing
from agent_kernel.engines.openai_api.api_keys import without_key
from agent_kernel.engines.openai_api.endpoint import Endpoint
from agent_kernel.engines.openai_api.engine import OpenAIEngine
from jupyter_ext.api.http.handler import AgentHandler, guard
from jupyter_ext.api.native.request_schemas import Body
from jupyter_ext.api.schemas import server as shapes
from jupyter_ext.api.schemas.operation import operation

FIRST_TOKEN_S = 60.0
"""Maximum number of seconds that a test waits for the first token of an answer."""
MAX_MODELS = 500
VALID_URL = "The url must be an address such as http://HOST/v1, without a user name, a password or a query."


class ModelServerBody(Body):
    """A model server with OpenAI's API. If ``key`` is null, the key that is stored for this name and address stays. A
    response never contains the key.
    """

    url: Annotated[str, Field(min_length=1, max_length=2_000)]
    model: Annotated[str, Field(max_length=500)] = ""
    key: Annotated[SecretStr, Field(max_length=4_096)] | None = None

    def endpoint(self) -> Endpoint:
        """Return the endpoint with the address and the model, without a key. Raises InvalidRequest."""
        return Endpoint(self.url, self.model)

    @property
    def secret(self) -> str | None:
        return None if self.key is None else self.key.get_secret_value().strip()


def server_to_json(server: AddedServer) -> dict[str, Any]:
    endpoint = server.endpoint
    facts = {"url": endpoint.url, "model": endpoint.model, "local": endpoint.local, "host": endpoint.host}
    return {"name": server.name, **facts, "key": server.key_place}


async def probe(endpoint: Endpoint) -> dict[str, Any]:
    """Test a server as ``agent-kernel doctor --model`` does, and list its models. If no model is named and the server
    has several, only the list is requested.
    """
    engine = OpenAIEngine(replace(endpoint, first_token_s=FIRST_TOKEN_S, tries=1))
    vision_engine = engine.with_vision()
    try:
        models, problem = await _models(engine)
        tests_model = bool(endpoint.model) or len(models) == 1 or bool(problem)
        findings: list[Finding] = await Probe(engine, vision_engine).findings() if tests_model else []
        info = engine.info()
    finally:
        await vision_engine.aclose()
        await engine.aclose()
    rows = [{"feature": finding.feature, "state": finding.state, "detail": finding.detail} for finding in findings]
    about = {"model": info.model, "local": info.local, "host": info.host, "context_length": info.context_length}
    return {**about, "models": models[:MAX_MODELS], "problem": problem, "findings": rows, "missing": missing(findings)}


async def _models(engine: OpenAIEngine) -> tuple[list[str], str]:
    """Return the models that the server lists, or the reason why it lists none."""
    try:
        return await engine.models(), ""
    except AgentKernelError as error:
        return [], error.message


class ModelServersHandler(AgentHandler):
    @guard("read", kernels=False)
    @operation(shapes.ModelServers)
    async def get(self) -> None:
        """List the model servers that you added."""
        servers = self.services.runtime.engines.servers_of(self.caller.namespace)
        self.reply({"servers": [server_to_json(server) for server in servers]})


class ModelServerProbeHandler(AgentHandler):
    @guard("execute", kernels=False)
    @operation(shapes.ProbeReport, body=ModelServerBody, errors=(403,), conditions=VALID_URL)
    async def post(self) -> None:
        """Test a model server before you add it.

        The report has the models of the server, and what the model does with a few short questions. The key is not
        kept. An error of the server is part of the report.
        """
        body = self.parse(ModelServerBody)
        endpoint = body.endpoint()
        self.services.runtime.engines.check_egress(endpoint)
        key = body.secret or ""
        tried = self.services.runtime.engines.stored.trying(endpoint, key)
        with_key = await asyncio.to_thread(tried.__enter__)
        try:
            report = await probe(with_key)
        finally:
            await asyncio.to_thread(tried.__exit__, None, None, None)
        self.reply(json.loads(without_key(json.dumps(report), key)))


class ModelServerHandler(AgentHandler):
    @guard("write", kernels=False)
    @operation(shapes.ModelServer, body=ModelServerBody, errors=(403, 409), conditions=VALID_URL)
    async def put(self, name: str) -> None:
        """Add or change a model server.

        No conversation uses it until somebody chooses it.
        """
        body, engines = self.parse(ModelServerBody), self.services.runtime.engines
        endpoint = body.endpoint()
        engines.check_name(name)
        engines.check_egress(endpoint)
        server = await asyncio.to_thread(engines.stored.save, name, self.caller.namespace, endpoint, body.secret)
        engines.add(server)
        self.reply(server_to_json(server))

    @guard("write", kernels=False)
    @operation(shapes.Removed, errors=(404,))
    async def delete(self, name: str) -> None:
        """Remove a model server that you added, with its key."""
        engines = self.services.runtime.engines
        if not await asyncio.to_thread(engines.stored.remove, name, self.caller.namespace):
            raise NotFound(f"You have added no model server {name[:100]!r}.")
        engines.remove(name)
        self.reply({"removed": True})
