"""Tests servers of other projects. Building llama-cpp-python takes minutes, so its server is tested only if
AGENT_KERNEL_LLAMA_PYTHON names an interpreter that has it.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing

import pytest
import pytest_asyncio

from agent_kernel.core.errors import AgentKernelError
from agent_kernel.core.messages import ToolCall, assistant, system, tool_result, user
from agent_kernel.core.protocols import EngineRequest, OutputFormat, Sampling, TextChunk
from agent_kernel.core.settings import Settings
from agent_kernel.engines.local.catalog.catalog import resolve
from agent_kernel.engines.openai_api.endpoint import Endpoint
from agent_kernel.engines.openai_api.engine import OpenAIEngine
from tests.engines.openai_api.model_servers import ModelServer, llama_server
from tests.engines.openai_api.talk import PYTHON, ask, calls_of, end_of, text_of, waits_of

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(900)]
LLAMA_PYTHON = os.environ.get("AGENT_KERNEL_LLAMA_PYTHON", "")
SHORT = Sampling(max_tokens=8, temperature=0)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(model_server: ModelServer) -> AsyncGenerator[OpenAIEngine, None]:
    engine = OpenAIEngine(Endpoint(model_server.url, model_server.model))
    yield engine
    await engine.aclose()


async def test_transformers_serve_streams_and_counts(engine: OpenAIEngine) -> None:
    chunks = await ask(engine, user("Tell a story."), sampling=Sampling(max_tokens=24))
    assert sum(isinstance(chunk, TextChunk) for chunk in chunks) > 1
    end = end_of(chunks)
    assert (end.reason, end.usage.completion_tokens, end.usage.estimated) == ("length", 24, False)


async def test_transformers_serve_refuses_fields_it_does_not_know_once(engine: OpenAIEngine) -> None:
    sampling = Sampling(max_tokens=8, top_k=5, min_p=0.1, repetition_penalty=1.1)
    first, second = [await ask(engine, sampling=sampling) for _ in range(2)]
    assert "top_k" in waits_of(first)[0]
    assert waits_of(second) == []
    assert text_of(first)


async def test_transformers_serve_takes_a_whole_conversation_with_calls(engine: OpenAIEngine) -> None:
    call = ToolCall("call_0123456789abcdef", "python", {"code": "1 + 1"})
    story = (
        system("Be brief."),
        user("Add."),
        assistant("Well.", [call]),
        tool_result(call, "2", "success"),
        user("So?"),
    )
    assert text_of(await ask(engine, *story, tools=(PYTHON,), sampling=SHORT))


async def test_transformers_serve_goes_on_after_a_reader_left(engine: OpenAIEngine) -> None:
    request = EngineRequest((user("Count."),), sampling=Sampling(max_tokens=1500))
    async with aclosing(engine.stream(request)) as chunks:
        async for chunk in chunks:
            if isinstance(chunk, TextChunk):
                break
    assert text_of(await asyncio.wait_for(ask(engine, sampling=SHORT), 120))


async def test_transformers_serve_says_that_it_has_another_model(model_server: ModelServer) -> None:
    engine = OpenAIEngine(Endpoint(model_server.url, "no/such-model", tries=1))
    with pytest.raises(AgentKernelError, match="no model 'no/such-model'"):
        await ask(engine)
    await engine.aclose()


async def test_the_doctor_names_what_a_server_lacks_and_fails(model_server: ModelServer) -> None:
    command = [sys.executable, "-m", "agent_kernel", "doctor", "--model", f"{model_server.url}#{model_server.model}"]
    done = await asyncio.to_thread(subprocess.run, [*command, "--json"], capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    report = json.loads(done.stdout)
    states = {finding["feature"]: finding["state"] for finding in report["findings"]}
    assert {name: states[name] for name in ("answers", "streaming", "usage")} == dict.fromkeys(
        ("answers", "streaming", "usage"), "ok"
    )
    assert (states["tools"], states["tool_choice"], states["response_format"]) == ("lacks", "lacks", "lacks")
    assert report["missing"] == ["tools"]
    assert report["local"]


if LLAMA_PYTHON:

    @pytest.fixture(scope="module")
    def llama(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModelServer]:
        model = resolve("coder-0.5b", Settings.from_env().cache_dir).path
        with llama_server(LLAMA_PYTHON, str(model), tmp_path_factory.mktemp("llama")) as server:
            yield server

    @pytest.mark.model("coder-0.5b")
    @pytest.mark.timeout(900)
    async def test_llama_cpp_python_makes_a_call_and_reads_its_result(llama: ModelServer) -> None:
        engine = OpenAIEngine(Endpoint(llama.url, llama.model, context_length=2048))
        asked = user("Compute 17 * 23 with Python.")
        [call] = calls_of(
            await ask(
                engine, asked, tools=(PYTHON,), tool_choice="python", sampling=Sampling(max_tokens=200, temperature=0)
            )
        )
        assert "17" in call.arguments["code"]
        story = (asked, assistant("", [call]), tool_result(call, "391", "success"), user("So what is it?"))
        chunks = await ask(engine, *story, sampling=Sampling(max_tokens=40, temperature=0))
        assert text_of(chunks)  # what a small model makes of it is another matter
        assert end_of(chunks).usage.estimated
        await engine.aclose()

    @pytest.mark.model("coder-0.5b")
    @pytest.mark.timeout(900)
    async def test_llama_cpp_python_keeps_to_a_json_object(llama: ModelServer) -> None:
        engine = OpenAIEngine(Endpoint(llama.url, llama.model, context_length=2048))
        chunks = await ask(
            engine,
            user("Name a planet, as JSON."),
            output=OutputFormat("json_object"),
            sampling=Sampling(max_tokens=60, temperature=0),
        )
        assert isinstance(json.loads(text_of(chunks)), dict)
        await engine.aclose()
