"""The engine against llama.cpp on the same Q8_0 file, both on this machine's cores.

    AGENT_KERNEL_LLAMA_PYTHON=...   an interpreter with llama-cpp-python, built for this processor
    AGENT_KERNEL_LLAMA_USUAL=...    optional: the file people usually run (Q4_K_M), shown beside it without a bound

Our figures go through ``LocalEngine``: worker, frames and chat template included.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from agent_kernel.core.messages import Message, assistant, user
from agent_kernel.core.protocols import EndChunk, EngineRequest, Sampling, TextChunk
from agent_kernel.core.settings import Settings
from agent_kernel.engines.local.catalog import catalog
from agent_kernel.engines.local.worker.local_engine import LocalEngine
from tests.benchmarks.conftest import Record

MODEL = os.environ.get("AGENT_KERNEL_BENCH_MODEL", "coder-0.5b")
PEER = Path(__file__).with_name("llama_peer.py")
SENTENCE = "The mean of column a is 12.5 and the maximum of column b is 99, and both were checked twice. "
NEW, RUNS, SESSIONS = 48, 3, 8
DECODE, NEXT_TURN, TOGETHER = 0.95, 2.5, 3.5


def conversation() -> list[Message]:
    """Return a conversation of about 3,900 tokens, including its last answer."""
    messages: list[Message] = []
    for turn in range(20):
        messages += [user(f"Turn {turn}: {SENTENCE * 7}"), assistant("Noted. " + SENTENCE)]
    return messages


def chatml(messages: list[Message]) -> str:
    """Render the conversation as the chat templates of both catalog models do."""
    system = "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
    said = "".join(f"<|im_start|>{message.role}\n{message.text}<|im_end|>\n" for message in messages)
    return f"{system}{said}<|im_start|>assistant\n"


async def send_request(
    engine: LocalEngine, messages: list[Message], tokens: int = NEW, session: str = ""
) -> tuple[str, EndChunk]:
    request = EngineRequest(tuple(messages), sampling=Sampling(max_tokens=tokens), session=session)
    text, end = "", None
    async with aclosing(engine.stream(request)) as chunks:
        async for chunk in chunks:
            match chunk:
                case TextChunk(piece):
                    text += piece
                case EndChunk():
                    end = chunk
    assert end is not None
    return text, end


async def ours() -> dict[str, float]:
    async with aclosing(LocalEngine(MODEL, Settings.from_env().cache_dir)) as engine:
        return await _decoding(engine) | await _next_turn(engine) | await _together(engine)


async def _decoding(engine: LocalEngine) -> dict[str, float]:
    rates: dict[str, float] = {}
    for size in (512, 2048):
        seen = []
        for run in range(RUNS):
            words = SENTENCE * (size // 22)
            _, end = await send_request(
                engine, [user(f"{run}. {words} Now write a long story about a fox and a river.")]
            )
            # The first token is the prompt's, so one less was decoded in decode_s.
            seen.append((end.usage.completion_tokens - 1) / end.usage.decode_s)
        rates[f"decode_{size}"] = max(seen)
    return rates


async def _next_turn(engine: LocalEngine) -> dict[str, float]:
    seconds = []
    for run in range(RUNS):
        messages = [user(f"Conversation {run}."), assistant("Yes."), *conversation()]
        messages.append(user("And now, what is the mean of a?"))
        text, _ = await send_request(engine, messages, 16)
        messages += [assistant(text), user("And the maximum of b?")]
        _, end = await send_request(engine, messages, 4)
        seconds.append(end.usage.first_token_s)
    return {"next_turn_s": min(seconds)}


async def _together(engine: LocalEngine) -> dict[str, float]:
    """Return the tokens per second of SESSIONS concurrent conversations, for as long as all of them run."""
    seen = []
    for run in range(RUNS):
        prompts = [[user(f"{run}.{session}: tell a long story about a fox.")] for session in range(SESSIONS)]
        started = asyncio.get_running_loop().time()
        ends = await asyncio.gather(*(send_request(engine, prompt, NEW, str(at)) for at, prompt in enumerate(prompts)))
        took = asyncio.get_running_loop().time() - started
        seen.append(sum(end.usage.completion_tokens for _, end in ends) / took)
    return {"together": max(seen)}


def theirs(python: str, file: Path, tmp_path: Path) -> dict[str, Any]:
    messages = [*conversation(), user("And now, what is the mean of a?")]
    after = [*messages, assistant("The mean of a is 12.5, as noted."), user("And the maximum of b?")]
    talk = tmp_path / "talk.json"
    talk.write_text(json.dumps({"turns": [chatml(messages), chatml(after)], "filler": SENTENCE * 150}))
    done = subprocess.run([python, str(PEER), str(file), str(talk)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return result


@pytest.mark.model("coder-0.5b")
@pytest.mark.slow
@pytest.mark.timeout(1800)
async def test_the_engine_keeps_up_with_llama_cpp(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], record: Record
) -> None:
    python = os.environ.get("AGENT_KERNEL_LLAMA_PYTHON")
    if not python:
        pytest.skip("no llama.cpp here; name an interpreter with it in AGENT_KERNEL_LLAMA_PYTHON")
    file = catalog.resolve(MODEL, Settings.from_env().cache_dir).path
    peer = await asyncio.to_thread(theirs, python, file, tmp_path)
    mine = await ours()
    best = peer["best"]
    single = best["decode_512"]
    lines = [
        f"{MODEL}, the same Q8_0 file; llama.cpp built with: {peer['build']}",
        *(
            f"  {name}: {json.dumps({key: round(value, 3) for key, value in run.items()})}"
            for name, run in peer["runs"].items()
        ),
        *(
            f"{name}: {mine[name]:.1f} tok/s, llama.cpp {best[name]:.1f}: {mine[name] / best[name]:.2f}x (>= {DECODE})"
            for name in ("decode_512", "decode_2048")
        ),
        f"next turn: {mine['next_turn_s']:.3f} s, llama.cpp {best['next_turn_s']:.3f} s: "
        f"{best['next_turn_s'] / mine['next_turn_s']:.2f}x better (>= {NEXT_TURN})",
        f"{SESSIONS} sessions: {mine['together']:.1f} tok/s, llama.cpp's one {single:.1f}: "
        f"{mine['together'] / single:.2f}x (>= {TOGETHER})",
    ]
    if usual := os.environ.get("AGENT_KERNEL_LLAMA_USUAL"):
        other = (await asyncio.to_thread(theirs, python, Path(usual), tmp_path))["best"]
        lines.append(
            f"beside it, no bound: {Path(usual).name} in llama.cpp "
            + json.dumps({name: round(value, 3) for name, value in other.items()})
        )
    with capsys.disabled():
        print("\n" + "\n".join(lines))

    record("decoding at 512 tokens of context", mine["decode_512"], best["decode_512"], "tokens/s")
    record("decoding at 2,048 tokens of context", mine["decode_2048"], best["decode_2048"], "tokens/s")
    record("first token of the next turn", mine["next_turn_s"], best["next_turn_s"], "s")
    assert mine["decode_512"] >= DECODE * best["decode_512"]
    assert mine["decode_2048"] >= DECODE * best["decode_2048"]
    assert best["next_turn_s"] >= NEXT_TURN * mine["next_turn_s"]
    assert mine["together"] >= TOGETHER * single
