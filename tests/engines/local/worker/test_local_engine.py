"""The local engine with a real, very small model in a real worker process."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from pathlib import Path

import pytest
import pytest_asyncio

from agent_kernel.core.errors import ContextOverflow, EngineCrashed, EngineError, ModelBroken, UnknownModel
from agent_kernel.core.messages import Message, assistant, user
from agent_kernel.core.protocols import (
    CallChunk,
    Chunk,
    EndChunk,
    EngineInfo,
    EngineRequest,
    Sampling,
    TextChunk,
    ToolSpec,
    WaitChunk,
)
from agent_kernel.core.settings import Settings
from agent_kernel.engines.local.backend import LoadOptions
from agent_kernel.engines.local.catalog import measured_speed
from agent_kernel.engines.local.catalog.catalog import entry_here
from agent_kernel.engines.local.catalog.measured_speed import read_speeds
from agent_kernel.engines.local.worker.local_engine import LocalEngine
from agent_kernel.engines.local.worker.pipe_framing import encode_frame
from tests.narrowing import instance_of, not_none

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.model("tiny")]
CACHE = Settings.from_env().cache_dir
STORY = user("Tell a long story about a fox.")
PYTHON = ToolSpec("python", "", {}, kind="python.sandbox")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine() -> AsyncGenerator[LocalEngine, None]:
    made = LocalEngine("tiny", CACHE)
    yield made
    await made.aclose()


async def chunks_of(engine: LocalEngine, *messages: Message, sampling: Sampling | None = None) -> list[Chunk]:
    request = EngineRequest(messages, sampling=sampling or Sampling(max_tokens=24))
    async with aclosing(engine.stream(request)) as chunks:
        return [chunk async for chunk in chunks]


async def answer(engine: LocalEngine, *messages: Message, sampling: Sampling | None = None) -> tuple[str, EndChunk]:
    chunks = await chunks_of(engine, *messages, sampling=sampling)
    end = instance_of(EndChunk, chunks[-1])
    return "".join(chunk.text for chunk in chunks if isinstance(chunk, TextChunk)), end


async def load_model(engine: LocalEngine) -> EngineInfo:
    await answer(engine, user("Hello"))
    return engine.info()


async def decoding(engine: LocalEngine) -> AsyncGenerator[Chunk, None]:
    """Start a long answer and return its stream after the first text."""
    stream = engine.stream(EngineRequest((STORY,), sampling=Sampling(max_tokens=2000)))
    async for chunk in stream:
        if isinstance(chunk, TextChunk):
            break
    return stream


async def test_loading_is_told_stage_by_stage(engine: LocalEngine) -> None:
    stages = [chunk.stage for chunk in await chunks_of(engine, user("Hi")) if isinstance(chunk, WaitChunk)]

    assert "loading the weights" in stages
    assert stages[-1] == "thinking", "a turn shows the last stage until the first text, which can take minutes"
    assert engine.info().state == "ready"


async def test_max_tokens_ends_with_length(engine: LocalEngine) -> None:
    _, end = await answer(engine, STORY, sampling=Sampling(max_tokens=5))

    assert (end.reason, end.usage.completion_tokens) == ("length", 5)


async def test_the_speed_of_an_answer_that_was_decoded_alone_is_kept(
    engine: LocalEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measured_speed, "SPEEDS_FILE", str(tmp_path / "speeds.json"))  # nothing was measured before

    _, end = await answer(engine, STORY, sampling=Sampling(max_tokens=40))

    assert end.usage.completion_tokens == 40
    assert read_speeds(CACHE)["tiny"] == pytest.approx(end.usage.tokens_per_s, abs=0.01)


async def test_a_call_cut_by_max_tokens_is_shown_and_not_made(engine: LocalEngine) -> None:
    asked = user("Print the numbers from 1 to 100, each on its own line, with print.")
    request = EngineRequest((asked,), (PYTHON,), Sampling(max_tokens=4))
    async with aclosing(engine.stream(request)) as stream:
        chunks = [chunk async for chunk in stream]

    assert not any(isinstance(chunk, CallChunk) for chunk in chunks)
    assert isinstance(chunks[-1], EndChunk)
    assert chunks[-1].reason == "length"


async def test_a_stop_string_ends_the_answer_before_it(engine: LocalEngine) -> None:
    whole, _ = await answer(engine, STORY, sampling=Sampling(max_tokens=40))
    stop = whole[20:29]

    text, end = await answer(engine, STORY, sampling=Sampling(max_tokens=40, stop=(stop,)))

    assert text == whole[: whole.index(stop)]
    assert end.reason == "stop"


async def test_a_seed_repeats_a_sampled_answer(engine: LocalEngine) -> None:
    def hot(seed: int) -> Sampling:
        return Sampling(temperature=1.5, top_p=0.95, seed=seed, max_tokens=16)

    await answer(engine, STORY)  # both runs find the same prefix in the cache
    first, again, other = [(await answer(engine, STORY, sampling=hot(seed)))[0] for seed in (3, 3, 4)]

    assert first == again
    assert first != other


async def test_greedy_answers_repeat(engine: LocalEngine) -> None:
    assert (await answer(engine, STORY))[0] == (await answer(engine, STORY))[0]


async def test_requests_are_decoded_in_one_batch(engine: LocalEngine) -> None:
    streams = [await decoding(engine) for _ in range(4)]

    assert (await engine.stats())["running"] == 4
    for stream in streams:
        await stream.aclose()


async def test_a_later_turn_reuses_the_generated_tokens_too(engine: LocalEngine) -> None:
    text, first = await answer(engine, STORY, sampling=Sampling(max_tokens=64))
    _, second = await answer(engine, STORY, assistant(text), user("Go on."))

    assert second.usage.reused_tokens > first.usage.prompt_tokens


async def test_a_cancelled_request_leaves_the_batch_at_once(engine: LocalEngine) -> None:
    stream = await decoding(engine)
    assert (await engine.stats())["running"] == 1

    await stream.aclose()
    _, end = await answer(engine, user("Hello"), sampling=Sampling(max_tokens=1))

    assert (await engine.stats())["running"] == 0
    assert end.usage.first_token_s < 10.0


async def test_a_conversation_that_does_not_fit_is_refused(engine: LocalEngine) -> None:
    clients = "prompt is too long: .*, and this model's maximum context length is 8192 tokens"
    with pytest.raises(ContextOverflow, match=clients) as raised:  # clients recognize both phrases
        await answer(engine, user("word " * 9000))

    assert raised.value.details["prompt_tokens"] > 9000
    assert raised.value.details["context_length"] == 8192
    assert (await answer(engine, user("Hello")))[0]


async def test_a_killed_worker_fails_its_requests_and_the_next_one_gets_another(engine: LocalEngine) -> None:
    stream = await decoding(engine)
    pid = not_none(engine.worker_pid)

    os.kill(pid, signal.SIGKILL)
    with pytest.raises(EngineCrashed, match="SIGKILL"):
        async for _ in stream:
            pass

    assert (await answer(engine, user("Hello")))[0]
    assert engine.worker_pid not in (None, pid)


async def test_the_worker_comes_after_the_persons_programs(engine: LocalEngine) -> None:
    await answer(engine, user("Hello"))
    pid = not_none(engine.worker_pid)

    assert os.getpriority(os.PRIO_PROCESS, pid) > os.getpriority(os.PRIO_PROCESS, 0)
    if sys.platform == "linux":
        assert int(Path(f"/proc/{pid}/oom_score_adj").read_text()) > 0


async def test_a_worker_that_hangs_is_stopped(engine: LocalEngine) -> None:
    async with aclosing(LocalEngine("tiny", CACHE, silent_s=5.0)) as hasty:
        stream = await decoding(hasty)
        pid = not_none(hasty.worker_pid)
        os.kill(pid, signal.SIGSTOP)
        with pytest.raises(EngineCrashed, match="did not answer"):
            async for _ in stream:
                pass
    assert has_ended(pid)


async def test_closing_ends_the_worker_and_the_engine_can_start_again() -> None:
    engine = LocalEngine("tiny", CACHE)
    await answer(engine, user("Hello"))
    pid = not_none(engine.worker_pid)

    await engine.aclose()
    assert has_ended(pid)
    assert (await answer(engine, user("Hello")))[0]
    await engine.aclose()


async def test_the_worker_does_not_outlive_a_killed_server() -> None:
    code = (
        "import asyncio, sys\nfrom pathlib import Path\n"
        "from agent_kernel.engines.local.worker.local_engine import LocalEngine\n"
        "from agent_kernel.core.messages import user\n"
        "from agent_kernel.core.protocols import EngineRequest, TextChunk\n"
        "async def main():\n"
        "    engine = LocalEngine('tiny', Path(sys.argv[1]))\n"
        "    async for chunk in engine.stream(EngineRequest((user('Tell a long story.'),))):\n"
        "        if isinstance(chunk, TextChunk):\n"
        "            print(engine.worker_pid, flush=True)\n"
        "            await asyncio.sleep(60)\n"
        "asyncio.run(main())\n"
    )
    command = [sys.executable, "-c", code, str(CACHE)]
    server = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[4])
    pid = int(await asyncio.wait_for(not_none(server.stdout).readline(), 120))

    server.kill()
    await server.wait()
    deadline = time.monotonic() + 20.0  # the promise is two seconds, on a machine that does nothing else
    while not has_ended(pid) and time.monotonic() < deadline:
        await asyncio.sleep(0.05)

    assert has_ended(pid)


async def test_what_was_said_before_is_reused_on_appends_and_up_to_an_edit(engine: LocalEngine) -> None:
    chosen = random.Random(3)
    turns: list[list[Message]] = [[]]
    """Every state a conversation was in: each ends with an answer."""
    costs = [0]
    block = (await load_model(engine)).details["cache_block"]
    for number in range(14):
        # The newest state goes on as an append, an older one is edited or forked.
        at = chosen.choice([len(turns) - 1, chosen.randrange(len(turns))])
        asked = user(f"{number}. " + " ".join(chosen.choice(("fox", "river", "night")) for _ in range(60)))
        text, end = await answer(engine, *turns[at], asked, sampling=Sampling(max_tokens=12))
        turns.append([*turns[at], asked, assistant(text)])
        costs.append(end.usage.prompt_tokens + end.usage.completion_tokens)

        assert end.usage.reused_tokens >= costs[at] - 2 * block
        assert end.usage.reused_tokens < end.usage.prompt_tokens


async def test_the_state_of_the_cache_is_told(engine: LocalEngine) -> None:
    details = (await load_model(engine)).details
    assert details["cache_tokens"] > 1000 * details["cache_block"] > 0
    assert details["requests_at_once"] > 1

    stream = await decoding(engine)
    stats = await engine.stats()
    await stream.aclose()

    assert (stats["running"], stats["queued"]) == (1, 0)
    assert 0 < stats["cache_used"] < 1
    assert stats["kept_chains"] > 0
    while (await engine.stats())["cache_used"]:
        await asyncio.sleep(0.05)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def narrow() -> AsyncGenerator[LocalEngine, None]:
    """An engine that decodes one request at a time."""
    made = LocalEngine("tiny", CACHE, options=LoadOptions(at_once=1))
    await answer(made, user("Hello"))
    yield made
    await made.aclose()


async def wait_in_queue(engine: LocalEngine, session: str, order: list[str]) -> list[int]:
    """Return the positions at which a request waited. Append its session to ``order`` when its text begins.

    The answer is so long that the frames of two answers do not arrive together; otherwise either one could be read
    first.
    """
    request = EngineRequest((user(f"Count to {session}."),), sampling=Sampling(max_tokens=24), session=session)
    positions: list[int] = []
    async with aclosing(engine.stream(request)) as chunks:
        async for chunk in chunks:
            if isinstance(chunk, WaitChunk) and chunk.stage == "queued":
                positions.append(chunk.position)
            elif isinstance(chunk, TextChunk) and session not in order:
                order.append(session)
    return positions


async def waiting(engine: LocalEngine, requests: int) -> None:
    while (await engine.stats())["queued"] < requests:
        await asyncio.sleep(0.02)


async def test_who_waits_hears_its_position_until_its_turn_comes(narrow: LocalEngine) -> None:
    first, order = await decoding(narrow), list[str]()
    tasks = []
    for number, session in enumerate("abc", 1):
        tasks.append(asyncio.create_task(wait_in_queue(narrow, session, order)))
        await waiting(narrow, number)
    tasks[1].cancel()
    await asyncio.wait([tasks[1]])
    await first.aclose()

    assert await tasks[0] == [1]
    assert await tasks[2] == [3, 2, 1]
    assert order == ["a", "c"]
    assert (await narrow.stats())["queued"] == 0


async def test_requests_that_wait_when_the_worker_dies_are_answered_by_the_next(narrow: LocalEngine) -> None:
    first, order = await decoding(narrow), list[str]()
    tasks = [asyncio.create_task(wait_in_queue(narrow, session, order)) for session in ("a", "b")]
    await waiting(narrow, 2)
    pid = not_none(narrow.worker_pid)
    os.kill(pid, signal.SIGKILL)

    with pytest.raises(EngineCrashed, match="SIGKILL"):
        async for _ in first:
            pass
    await asyncio.gather(*tasks)
    assert sorted(order) == ["a", "b"]
    assert narrow.worker_pid not in (None, pid)


async def test_requests_that_wait_are_not_asked_again_of_an_engine_that_was_closed() -> None:
    engine = LocalEngine("tiny", CACHE, options=LoadOptions(at_once=1))
    first = await decoding(engine)
    task = asyncio.create_task(wait_in_queue(engine, "a", []))
    await waiting(engine, 1)
    await engine.aclose()

    with pytest.raises(EngineCrashed):
        await task
    with pytest.raises(EngineCrashed):
        async for _ in first:
            pass
    assert engine.worker_pid is None


@pytest.mark.parametrize(
    "sent", [{"no": "type"}, {"type": "chunks"}, {"type": "beat", "running": []}, {"type": "ready"}]
)
async def test_a_worker_that_talks_nonsense_has_crashed(tmp_path: Path, sent: dict[str, object]) -> None:
    python = tmp_path / "python"
    frame = encode_frame(sent)
    python.write_text(
        f"#!{sys.executable}\nimport os, sys, time\n"
        f"os.write(int(sys.argv[sys.argv.index('--write') + 1]), {frame!r})\ntime.sleep(60)\n"
    )
    python.chmod(0o755)
    engine = LocalEngine("tiny", CACHE, python=str(python))

    with pytest.raises(EngineCrashed, match="not a frame"):
        await answer(engine, user("Hello"))
    await engine.aclose()


async def test_a_model_that_is_not_in_the_catalog_is_named() -> None:
    with pytest.raises(UnknownModel):
        await answer(LocalEngine("tinny", CACHE), user("Hello"))


async def test_a_file_that_is_no_model_is_broken(tmp_path: Path) -> None:
    (tmp_path / "bad.gguf").write_bytes(b"GGUF" + bytes(100))
    engine = LocalEngine(str(tmp_path / "bad.gguf"), tmp_path)

    with pytest.raises(ModelBroken):
        await answer(engine, user("Hello"))
    assert engine.info().state == "failed"
    await engine.aclose()


async def test_an_interpreter_that_does_not_exist_is_an_engine_error() -> None:
    engine = LocalEngine("tiny", CACHE, python="/no/such/python")

    with pytest.raises(EngineError, match="/no/such/python"):
        await answer(engine, user("Hello"))


async def test_an_interpreter_without_the_package_says_what_is_missing(tmp_path: Path) -> None:
    engine = LocalEngine("tiny", CACHE, python="/bin/false")

    with pytest.raises(EngineCrashed, match="exited with code 1"):
        await answer(engine, user("Hello"))
    await engine.aclose()


async def test_the_server_never_imports_what_runs_models() -> None:
    heavy = "{'torch', 'openvino', 'openvino_genai', 'transformers', 'numpy', 'gguf'}"
    code = f"import sys, agent_kernel.engines.local.worker.local_engine; print({heavy} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "set()"


def has_ended(pid: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        # A child of this process that nobody has waited for yet is no longer running.
        state = Path(f"/proc/{pid}/stat")
        return state.exists() and state.read_text().rpartition(")")[2].split()[0] == "Z"
    return True


async def test_the_default_model_has_its_own_name(tmp_path: Path) -> None:
    here, nothing = LocalEngine("default", CACHE), LocalEngine("default", tmp_path)
    assert here.info().model == entry_here("default", CACHE).name
    assert nothing.info().model == entry_here("default", tmp_path).name
