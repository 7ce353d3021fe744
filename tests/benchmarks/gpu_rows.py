"""The rows of the GPU in one command: ``make gpu MODEL=DIRECTORY``, or ``python -m tests.benchmarks.gpu_rows --help``.

It needs no network: the model is a directory with safetensors, or has random weights in the shape of a known model, and
the worker's environment was made from wheels. A row that cannot run says why and does not stop the others. With
``--dry-device cpu`` a small model with random weights takes the same way through the engine, to test the command where
there is no GPU; its figures mean nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import PIL.Image

from agent_kernel.core.errors import AgentKernelError
from agent_kernel.core.messages import Media, Message, assistant, user
from agent_kernel.core.protocols import EndChunk, EngineRequest, OutputFormat, Sampling
from agent_kernel.engines.local.backend import LoadOptions
from agent_kernel.engines.local.catalog.machine import read_machine
from agent_kernel.engines.local.worker.local_engine import LocalEngine

ROOT = Path(__file__).parents[2]
TINY = ROOT / "tests/engines/local/tiny_models.py"
PEER = Path(__file__).with_name("gpu_peer.py")
WORKER = ROOT / "build/torch/environments/gpu/bin/python"
PRECISIONS = ("bf16", "int8", "nf4")
SESSIONS = (1, 8, 64)
SHAPES = ("qwen_1_5b", "qwen_7b")
NEW_TOKENS = 128
LIMIT_S = 600.0
"""After this time no further row begins."""
DRY_CACHE_GB = 0.5
SENTENCE = "The mean of column a is 12.5 and the maximum of column b is 99, and both were checked twice. "
CHAT_SENTENCES = 80
"""About 2,000 tokens with a usual vocabulary."""


@dataclass(frozen=True, slots=True)
class Row:
    """One figure. ``value`` is None if the row did not run, for the reason ``why``."""

    name: str
    value: float | None
    unit: str
    why: str = ""


@dataclass(slots=True)
class Report:
    machine: dict[str, Any]
    model: str
    device: str
    rows: list[Row] = field(default_factory=list)

    def add(self, name: str, value: float | None, unit: str, why: str = "") -> None:
        self.rows.append(Row(name, value, unit, why))
        print(_line(self.rows[-1]), flush=True)

    def to_markdown(self) -> str:
        gpus = ", ".join(gpu["name"] for gpu in self.machine.get("gpus", [])) or "no GPU"
        head = f"{Path(self.model).name} on {self.device} ({gpus})"
        return "\n".join([head, "", "| row | figure |", "|---|---|", *map(_line, self.rows), ""])


def _line(row: Row) -> str:
    return f"| {row.name} | {f'{row.value:.4g} {row.unit}' if row.value is not None else f'not run: {row.why}'} |"


def _sessions(number: int) -> str:
    return f"{number} session{'s' if number > 1 else ''}"


async def answer(engine: LocalEngine, messages: Sequence[Message], tokens: int = NEW_TOKENS, **more: Any) -> EndChunk:
    sampling = more.pop("sampling", Sampling(max_tokens=tokens))
    async with aclosing(engine.stream(EngineRequest(tuple(messages), sampling=sampling, **more))) as chunks:
        async for chunk in chunks:
            if isinstance(chunk, EndChunk):
                return chunk
    raise AssertionError("the stream has no end")


async def rate(engine: LocalEngine, sessions: int, tokens: int, **more: Any) -> float:
    """Return the tokens per second of all sessions together, in the second of two rounds."""
    for _ in range(2):
        chats = [
            [user(f"Session {number}: tell a long story about the number {number}.")] for number in range(sessions)
        ]
        started = time.perf_counter()
        ends = await asyncio.gather(*(answer(engine, chat, tokens, **more) for chat in chats))
        seconds = time.perf_counter() - started
    return sum(end.usage.completion_tokens for end in ends) / seconds


@asynccontextmanager
async def running(model: Path, options: LoadOptions, worker: str, cache: Path) -> AsyncGenerator[LocalEngine, None]:
    async with aclosing(LocalEngine(str(model), cache, options=options, python=worker)) as engine:
        yield engine


async def measure(report: Report, engine: LocalEngine, precision: str, left: Callable[[], float], tokens: int) -> None:
    """Measure one precision: load time, first token with and without cached prefix, and throughput with 1, 8 and 64
    sessions, greedy, sampled and under a grammar. ``tokens`` is the length of an answer.
    """
    started = time.perf_counter()
    await answer(engine, [user("Hello")], 1)
    report.add(f"{precision}: load and first answer", time.perf_counter() - started, "s")
    cold, warm, reused = [], [], []
    for number in range(3):
        chat = [user(f"Chat {number}. {SENTENCE * CHAT_SENTENCES}What next?")]
        first = await answer(engine, chat, 8)
        second = await answer(engine, [*chat, assistant("Plot the histogram."), user("And then?")], 8)
        cold.append(first.usage.first_token_s)
        warm.append(second.usage.first_token_s)
        reused.append(second.usage.reused_tokens / second.usage.prompt_tokens)
    report.add(f"{precision}: first token, {first.usage.prompt_tokens:,} tokens", statistics.median(cold), "s")
    report.add(f"{precision}: first token of the next turn", statistics.median(warm), "s")
    report.add(f"{precision}: prompt tokens reused in the next turn", 100 * statistics.median(reused), "%")
    sampled = Sampling(max_tokens=tokens, temperature=0.8, top_p=0.95, logprobs=True)
    numbers = OutputFormat("regex", regex="[0-9 ]{200,400}")
    rounds: list[tuple[str, int, dict[str, Any]]] = [("", sessions, {}) for sessions in SESSIONS]
    rounds += [(", sampled", 8, {"sampling": sampled}), (", sampled", 64, {"sampling": sampled})]
    rounds += [(", under a grammar", 8, {"output": numbers})]
    for kind, sessions, more in rounds:
        name = f"{precision}: {_sessions(sessions)}{kind}"
        if left() <= 0:
            report.add(name, None, "", f"{LIMIT_S:.0f} s were over")
            continue
        report.add(name, await rate(engine, sessions, tokens, **more), "tokens/s")


def measure_peer(report: Report, model: Path, precision: str, worker: str, tokens: int) -> None:
    """Measure the library's own batching, as it is set without this package, on the same prompts."""
    done = subprocess.run(
        [worker, str(PEER), str(model), precision, report.device, str(tokens), *map(str, SESSIONS)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["it ended without a message"]
        report.add(f"{precision}: transformers alone", None, "", lines[-1][:200])
        return
    for sessions, value in json.loads(done.stdout.splitlines()[-1]).items():
        report.add(f"{precision}: {_sessions(int(sessions))}, transformers alone", value, "tokens/s")


async def look(report: Report, engine: LocalEngine) -> None:
    """Measure the time to answer a picture with a model of random weights. This tests the code path, not the answer."""
    out = io.BytesIO()
    PIL.Image.linear_gradient("L").resize((60, 40)).convert("RGB").save(out, "PNG")
    picture = Media.of("image/png", out.getvalue())
    await answer(engine, [user("Hello")], 1)
    started = time.perf_counter()
    await answer(engine, [user("What is it?", media=(picture,))], 8)
    report.add("vision, random weights: answer to a picture", time.perf_counter() - started, "s")


def make_model(kind: str, worker: str, directory: Path) -> Path:
    """Write a model of random weights with the interpreter ``worker``, which has torch. Return its directory."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "TQDM_DISABLE": "1"}
    subprocess.run(
        [worker, str(TINY), kind, str(directory / kind)], env=environment, check=True, stdout=subprocess.DEVNULL
    )
    return directory / kind


async def run(args: argparse.Namespace) -> Report:
    device = args.dry_device or args.device
    until = time.monotonic() + LIMIT_S
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        model = args.model or make_model(args.random or "llama", args.worker, directory)
        machine = read_machine().to_json() | {"python": platform.python_version(), "system": platform.platform()}
        report = Report(machine, str(model), device)
        for name, path, precision, work in _parts(args, model, directory):
            if time.monotonic() > until:
                report.add(name, None, "", f"{LIMIT_S:.0f} s were over")
                continue
            options = LoadOptions(
                backend="transformers",
                device=device,
                precision=precision,
                cache_gb=DRY_CACHE_GB if args.dry_device else 0.0,
                at_once=max(SESSIONS),
            )
            try:
                async with running(path, options, args.worker, directory / "cache") as engine:
                    await work(report, engine, lambda: until - time.monotonic())
            except AgentKernelError as error:
                report.add(name, None, "", " ".join(str(error).split())[:200])
            if name in args.precisions and time.monotonic() < until:
                measure_peer(report, path, precision, args.worker, args.tokens)
        return report


def _parts(args: argparse.Namespace, model: Path, directory: Path) -> Iterator[tuple[str, Path, str, Any]]:
    """Yield the parts of the run: name, model, precision, and the coroutine function that measures the part."""
    for precision in args.precisions:

        async def measured(
            report: Report, engine: LocalEngine, left: Callable[[], float], name: str = precision
        ) -> None:
            await measure(report, engine, name, left, args.tokens)

        yield precision, model, precision, measured

    async def looked(report: Report, engine: LocalEngine, left: Callable[[], float]) -> None:
        await look(report, engine)

    yield "vision", make_model("llava", args.worker, directory), "fp32" if args.dry_device else "bf16", looked


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="gpu_rows", description="Measure the local engine on a GPU.")
    parser.add_argument("--model", type=Path, help="directory of a model with safetensors")
    parser.add_argument("--random", choices=SHAPES, help="run random weights in the shape of this model")
    parser.add_argument("--tokens", type=int, default=NEW_TOKENS, help="length of an answer in tokens")
    parser.add_argument("--device", default="cuda", help="cuda, cuda:N or auto (default: cuda)")
    parser.add_argument("--dry-device", default="", choices=["", "cpu"], help="run small random models on this device")
    parser.add_argument("--precisions", nargs="+", default=list(PRECISIONS), choices=[*PRECISIONS, "fp16", "fp32"])
    parser.add_argument("--worker", default=str(WORKER), help="interpreter that has torch")
    parser.add_argument("--output", type=Path, default=ROOT / "build/gpu.json", help="result file")
    args = parser.parse_args(arguments)
    if not args.dry_device and args.model is None and args.random is None:
        parser.error("name the directory of a model: --model DIRECTORY, or a shape: --random SHAPE")
    report = asyncio.run(run(args))
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_text(json.dumps(asdict(report), indent=1) + "\n", encoding="utf-8")
    args.output.with_suffix(".md").write_text(report.to_markdown(), encoding="utf-8")
    print(f"\nThe figures are in {args.output}, the table in {args.output.with_suffix('.md')}.")
    return 0 if any(row.value is not None for row in report.rows) else 1


if __name__ == "__main__":
    sys.exit(main())
