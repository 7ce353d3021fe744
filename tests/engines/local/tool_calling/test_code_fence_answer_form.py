"""Tests that a program prints the values of a question in the form that the question demands."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from agent_kernel.core.messages import user
from agent_kernel.core.protocols import CallChunk, EngineRequest, ToolSpec
from agent_kernel.engines.local.tool_calling.code_fence_protocol import Fence
from tests.engines.local.scripted_backend import ScriptedBackend, chunks_of
from tests.engines.local.tool_calling import chat_templates

PYTHON = ToolSpec("python", "Runs code.", {}, kind="test")
FORM = "The mean? Answer in the form @mean[value] @count[n]."


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (
            "m = 3\n@mean[m] @count[len(t['a'])]\n",
            "m = 3\nprint('@mean[', m, ']', ' @count[', len(t['a']), ']', sep='')\n",
        ),
        ("mean = 3\nprint(f'@mean[{value:.1f}]')\n", "mean = 3\nprint(f'@mean[{mean:.1f}]')\n"),
        ("value = 3\nprint(f'@mean[{value:.1f}]')\n", "value = 3\nprint(f'@mean[{value:.1f}]')\n"),
        ('value = 3\nprint(f"@mean[value]")\n', 'value = 3\nprint(f"@mean[{value}]")\n'),
        ("value = 3\nprint('@mean[value]')\n", "value = 3\nprint(f'@mean[{value}]')\n"),
        ("print('@mean[other]')\n", "print('@mean[other]')\n"),
    ],
)
async def test_code_prints_the_values_in_the_demanded_form(written: str, meant: str) -> None:
    question = FORM if "count" in written else FORM.removesuffix(" @count[n].")
    assert await code_for(question, f"{written}```") == meant


async def code_for(question: str, *answers: str) -> str:
    """Return the code of the call for a question, in which the model writes ``answers``."""
    backend = ScriptedBackend(chat_templates.PLAIN, answers)
    chunks = await chunks_of(
        Fence(), backend.completer(), EngineRequest((user(question),), (PYTHON,), tool_choice="python")
    )
    (call,) = [chunk.call for chunk in chunks if isinstance(chunk, CallChunk)]
    return str(call.arguments["code"])


PRINTED = "print(f'@mean[{value}] @count[{n}]')\n"


@pytest.mark.parametrize(
    ("answers", "meant"),
    [
        ((f"n = 3\n{PRINTED}", " n / 2\n"), f"n = 3\nvalue = n / 2\n{PRINTED}"),
        ((f"n = 3\n{PRINTED}", " (1,\n"), f"n = 3\n{PRINTED}"),
        ((PRINTED, " 4\n", " 3\n"), f"value = 4\nn = 3\n{PRINTED}"),
        (
            ("n = 3\nprint('@count[', n, ']', sep='')\nprint('@mean[', m, ']', sep='')\n", " n\n"),
            "n = 3\nm = n\nprint('@count[', n, ']', sep='')\nprint('@mean[', m, ']', sep='')\n",
        ),
        (
            ("n = 4\n@mean[value] @count[n] where n is a number.\n", " 2\n", " n\n"),
            'n = 4\nmean = 2\ncount = n\nprint(f"@mean[{mean}] @count[{count}]")\n',
        ),
        (
            ("mean = 2\nprint('mean', mean)\n", " 4\n"),
            "mean = 2\nprint('mean', mean)\ncount = 4\nprint(f\"@mean[{mean}] @count[{count}]\")\n",
        ),
        (("print(2, 4)\n",), "print(2, 4)\n"),
        (
            ("@mean = 2\n@count = 4\nprint(f'@mean[{mean}] @count[{count}]')\n",),
            "mean = 2\ncount = 4\nprint(f'@mean[{mean}] @count[{count}]')\n",
        ),
        (
            ("mean = 2\ncount = 4\nprint(f'@{mean[0]}')\nprint(f'@{count}')\n",),
            'mean = 2\ncount = 4\nprint(f"@mean[{mean}] @count[{count}]")\n',
        ),
        (
            ("m = 3\nprint('@mean[', 900, ']', '@count[', 2.5, ']', sep='')\n", " m\n", " 4\n"),
            "m = 3\nmean = m\ncount = 4\nprint('@mean[', mean, ']', '@count[', count, ']', sep='')\n",
        ),
        (
            ("m = 3\nprint('@mean[12.5] @count[4]')\n", " m\n", " 4\n"),
            "m = 3\nmean = m\ncount = 4\nprint(f'@mean[{mean}] @count[{count}]')\n",
        ),
        (
            ("mean = 3\ncount = 4\nprint(mean[0.2f], count)\n",),
            'mean = 3\ncount = 4\nprint(f"@mean[{mean}] @count[{count}]")\n',
        ),
    ],
)
async def test_the_model_writes_the_printed_values_that_its_program_does_not_set(
    answers: Sequence[str], meant: str
) -> None:
    program, *values = answers
    assert await code_for(FORM, f"{program}```", *values) == meant


async def test_a_printed_variable_of_the_notebook_is_not_set_again() -> None:
    backend = ScriptedBackend(chat_templates.PLAIN, [f"n = 3\n{PRINTED}```"])
    facts = user("Variables: value: float 2.5", hidden=True)
    request = EngineRequest((facts, user(FORM)), (PYTHON,), tool_choice="python")
    chunks = await chunks_of(Fence(), backend.completer(), request)
    (call,) = [chunk.call for chunk in chunks if isinstance(chunk, CallChunk)]
    assert call.arguments["code"] == f"n = 3\n{PRINTED}"
