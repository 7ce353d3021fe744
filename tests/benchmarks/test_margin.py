"""Finds the margin at which the fence protocol should run code: its errors on new prompts, for every margin.

The margin is how much less likely (natural log) the model's opening fence is than its most likely first token. Code
runs if this is at most the margin that the fence protocol uses for a model of this size (another one if the question
names a variable or a file, or follows code). AGENT_KERNEL_BENCH_MODEL chooses the model.
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from agent_kernel.core.messages import Message, ToolCall, assistant, system, tool_result, user
from agent_kernel.core.settings import Settings
from agent_kernel.engines.local.backend import LoadOptions
from agent_kernel.engines.local.catalog import catalog
from agent_kernel.engines.local.decoding.completion import Completer
from agent_kernel.engines.local.decoding.decoder import Decoder
from agent_kernel.engines.local.tool_calling import code_fence_prompt
from agent_kernel.engines.local.tool_calling.code_fence_protocol import Fence, code_margin
from agent_kernel.engines.local.tool_calling.tool_protocols import fence_for
from agent_kernel.engines.local.worker.backends import backend_for
from agent_kernel.turn.context import INSTRUCTIONS

PROMPTS = Path(__file__).with_name("margin_prompts.toml")
MODEL = os.environ.get("AGENT_KERNEL_BENCH_MODEL", "coder-0.5b")
BUILD = Path(__file__).parents[2] / "build" / "benchmarks"
TRIED = (0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 10.0, 12.0, 16.0)
NEAR = 3
"""So many errors more than the best margin's may the shipped margins make: greedy text is not the same on every
machine, and a prompt more or less says nothing."""
CALL = ToolCall("call_1", code_fence_prompt.TOOL, {"code": "print(12 * 12)\n"})
AFTER_CODE = (
    user("Compute 12 * 12."),
    assistant("", [CALL]),
    tool_result(CALL, "144", "success"),
    assistant("12 * 12 is 144."),
)


def conversation(prompt: Mapping[str, Any], facts: Mapping[str, str]) -> list[Message]:
    earlier = AFTER_CODE if prompt.get("after") == "code" else ()
    note = [user(f"Variables: {facts[prompt['facts']]}", hidden=True)] if "facts" in prompt else []
    return [system(INSTRUCTIONS), *earlier, *note, user(prompt["text"])]


@pytest.mark.model("coder-0.5b")
@pytest.mark.slow
@pytest.mark.timeout(1800)
async def test_the_margins_are_near_the_best_ones(capsys: pytest.CaptureFixture[str]) -> None:
    body = tomllib.loads(PROMPTS.read_text(encoding="utf-8"))
    prompts: list[dict[str, Any]] = body["prompt"]
    completer, fence = await load_model()
    for prompt in prompts:
        messages = conversation(prompt, body["facts"])
        text = await completer.render(code_fence_prompt.chat(messages, tools=True, examples=fence.examples))
        prompt["margin"], _ = await code_margin(text, completer)
        prompt["named"] = code_fence_prompt.leans_to_code(code_fence_prompt.exchanges(messages)[1])
    kept = BUILD / f"margins-{MODEL.replace('/', '_')}.json"
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps(prompts, indent=1, ensure_ascii=False), encoding="utf-8")
    plain, named = [[item for item in prompts if item["named"] is is_named] for is_named in (False, True)]
    with capsys.disabled():
        print(f"\n{MODEL}\n{spread(prompts)}\n")
        print(
            f"out of the blue\n{table(plain, fence.margin)}\n\nnamed, or after code\n{table(named, fence.named_margin)}"
        )

    assert sum(item["needs_code"] for item in prompts) >= 30
    assert sum(not item["needs_code"] for item in prompts) >= 30
    for those, margin in ((plain, fence.margin), (named, fence.named_margin)):
        assert sum(errors(those, margin)) <= min(sum(errors(those, tried)) for tried in TRIED) + NEAR


async def load_model() -> tuple[Completer, Fence]:
    """Load the model in this process and return it with its protocol, as the worker does."""
    cache = Settings.from_env().cache_dir
    model = catalog.resolve(MODEL, cache)
    backend = backend_for(model.path, LoadOptions(), cache)

    def failed(error: BaseException) -> None:
        raise error

    decoder = Decoder(backend, failed)
    found = await decoder.call(lambda: backend.load(model.path, LoadOptions(), lambda stage, fraction: None))
    return Completer(decoder, backend, found, model.context_length), fence_for(found)


def errors(prompts: Sequence[Mapping[str, Any]], margin: float) -> tuple[int, int]:
    """Return how many tasks get no code, and for how many chat prompts code runs."""
    missed = sum(item["needs_code"] and item["margin"] > margin for item in prompts)
    return missed, sum(not item["needs_code"] and item["margin"] <= margin for item in prompts)


def table(prompts: Sequence[Mapping[str, Any]], shipped: float) -> str:
    tasks = sum(item["needs_code"] for item in prompts)
    rows = [
        f"| margin | tasks without code (of {tasks}) | code for chat (of {len(prompts) - tasks}) |",
        "|---|---|---|",
    ]
    for margin in sorted({*TRIED, shipped}):
        missed, false = errors(prompts, margin)
        rows.append(f"| {margin:g}{' (shipped)' if margin == shipped else ''} | {missed} | {false} |")
    return "\n".join(rows)


def spread(prompts: Sequence[Mapping[str, Any]]) -> str:
    """Return one line for each prompt, ordered by margin."""
    lines = []
    for item in sorted(prompts, key=lambda item: float(item["margin"])):
        kind = ("task" if item["needs_code"] else "chat") + (", named" if item["named"] else "")
        lines.append(f"{item['margin']:6.2f}  {kind:12} {item['text']}")
    return "\n".join(lines)
