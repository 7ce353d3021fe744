"""One notebook task by smolagents' CodeAgent, run with an interpreter that has smolagents, pandas and matplotlib.

Speaks JSON lines on standard input and output: the first line in is the task; ``{"messages", "stop"}`` out asks for a
completion, which the next line in brings; ``{"answers", ...}`` out is the end. Whoever starts it owns the model, so
that both agents are measured on the same weights and the same decoder.
"""

from __future__ import annotations

import ast
import datetime
import importlib
import json
import math
import os
import re
import sys
from pathlib import Path
from typing import Any

import smolagents  # type: ignore[import-not-found]  # lives in an environment of its own

ROOT = Path(__file__).parents[2]
ALLOWED = [
    "numpy.*",
    "pandas.*",
    "matplotlib.*",
    "json",
    "csv",
    "math",
    "datetime",
    "os",
    "re",
    "pathlib",
    "io",
    "glob",
]


class Served(smolagents.Model):
    """The model of the process that started this one, reached over the pipe: greedy, with its own chat template."""

    def __init__(self, ask: Any) -> None:
        super().__init__(flatten_messages_as_text=True, model_id="served")
        self._ask = ask
        self.tokens = [0, 0]

    def generate(self, messages: Any, stop_sequences: Any = None, **kwargs: Any) -> smolagents.ChatMessage:
        given = self._prepare_completion_kwargs(messages=messages, stop_sequences=stop_sequences)
        chat = [{"role": str(item["role"].value), "content": item["content"]} for item in given["messages"]]
        reply = self._ask({"messages": chat, "stop": given.get("stop", [])})
        self.tokens = [self.tokens[0] + reply["prompt_tokens"], self.tokens[1] + reply["completion_tokens"]]
        usage = smolagents.TokenUsage(reply["prompt_tokens"], reply["completion_tokens"])
        return smolagents.ChatMessage("assistant", reply["text"], token_usage=usage)


def main() -> None:
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the library prints must not mix with the answers

    def ask(body: dict[str, Any]) -> dict[str, Any]:
        out.write(json.dumps(body) + "\n")
        out.flush()
        reply: dict[str, Any] = json.loads(sys.stdin.readline())
        return reply

    task = json.loads(sys.stdin.readline())
    os.environ["MPLBACKEND"] = "Agg"
    figures = _module("agent_kernel/evaluation/figure_data.py")
    variables = _module("agent_kernel/notebook/kernel/variable_summary.py")
    namespace: dict[str, Any] = {}
    exec(task["setup"], namespace)
    model = Served(ask)
    agent = _agent(model, task["max_steps"], task["tags"])
    told, answers = [], []
    for number, prompt in enumerate(task["prompts"]):
        _close_figures()
        known = namespace if not number else agent.python_executor.state
        named = variables.named_in_braces(prompt, known)
        tables = [name for name in variables.tables_mentioned(prompt, known) if name not in named]
        said = variables.without_braces(prompt, named)
        facts = "\n".join(variables.summary(name, known[name]) for name in [*named, *tables])
        text = f"Variables: {facts}\n\n{said}" if facts else said
        # From the second turn on its variables are in its executor; sent again they would be as they were before.
        agent.state.clear()
        given = {name: value for name, value in namespace.items() if _is_data(name, value)} if not number else None
        answer = str(agent.run(text, reset=not number, additional_args=given or None))
        answers.append(answer)
        told.append(f"> {prompt}\n{_steps(agent)}\nanswer: {answer}")
    state = {**_modules(), **namespace, **agent.python_executor.state}
    body = {
        "answers": answers,
        "steps": sum(type(step).__name__ == "ActionStep" for step in agent.memory.steps),
        "tokens": model.tokens,
        "turns": told,
        "holds": _holds(task["holds"], state) if task["holds"] else None,
        "draws": _draws(task["draws"], _open_figures(figures), state) if task["draws"] else None,
    }
    out.write(json.dumps(body) + "\n")
    out.flush()


def _agent(model: Served, max_steps: int, tags: str) -> smolagents.CodeAgent:
    """Return a CodeAgent with the options of smolagents' documentation that may also call ``open``, which it may not by
    default.
    """
    return smolagents.CodeAgent(
        tools=[],
        model=model,
        additional_authorized_imports=ALLOWED,
        executor_kwargs={"additional_functions": {"open": open}},
        max_steps=max_steps,
        code_block_tags=tags or None,
        verbosity_level=smolagents.LogLevel.OFF,
    )


def _is_data(name: str, value: Any) -> bool:
    return not name.startswith("_") and type(value).__name__ not in ("module", "function")


def _steps(agent: smolagents.CodeAgent) -> str:
    lines = []
    for step in agent.memory.steps:
        if type(step).__name__ == "ActionStep":
            lines += [f"code: {step.code_action}", f"output: {step.observations or ''} {step.error or ''}"]
    return "\n".join(lines)


def _holds(expression: str, state: dict[str, Any]) -> bool:
    try:
        return bool(eval(compile(ast.parse(expression, mode="eval"), "<check>", "eval"), dict(state)))
    except Exception:  # noqa: BLE001  a name that is not there is a wrong answer
        return False


def _draws(expression: str, figures: list[dict[str, Any]], state: dict[str, Any]) -> bool:
    return any(_holds(expression, {**state, "figure": figure}) for figure in figures)


def _modules() -> dict[str, Any]:
    return {
        "json": json,
        "math": math,
        "re": re,
        "os": os,
        "datetime": datetime,
        "pd": importlib.import_module("pandas"),
    }


def _open_figures(figure_data: Any) -> list[dict[str, Any]]:
    pyplot = sys.modules.get("matplotlib.pyplot")
    return [figure_data.describe(pyplot.figure(number)) for number in pyplot.get_fignums()] if pyplot else []


def _close_figures() -> None:
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")


def _module(path: str) -> Any:
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)  # type: ignore[attr-defined]
    module = importlib.util.module_from_spec(spec)  # type: ignore[attr-defined]
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    main()
