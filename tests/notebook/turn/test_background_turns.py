"""Tests turns that continue after their cell has ended and write to that cell's output."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.notebook.notebook import Notebook

SHELL = {"when": "may I", "calls": [{"name": "shell", "arguments": {"commands": ["echo ran by shell"]}}]}
SCRIPT: list[dict[str, Any]] = [
    {"when": "count slowly", "text": " ".join(map(str, range(60))), "deltas": 60, "delay": 0.05, "gate": "go"},
    {"when": "come second", "text": "I came second."},
    {"when": "never end", "text": "word " * 3000, "deltas": 3000, "delay": 0.02},
    {"when": "wait in line", "text": "Never said."},
    {"when": "look at the numbers", "calls": [{"name": "python", "arguments": {"code": "print(sum(numbers))"}}]},
    {"when": "look at the numbers", "text": "Six."},
    SHELL,
    {"when": "may I", "text": "Thank you."},
    {"when": "as I said", "calls": [{"name": "shell", "arguments": {"commands": ["echo unasked"]}}]},
    {"when": "as I said", "text": "Nobody was asked."},
    {"when": "ask me still", "calls": [{"name": "shell", "arguments": {"commands": ["echo asked"]}}]},
    {"when": "ask me still", "text": "You were asked."},
    {"when": "write it aside", "text": "```python\nx = 1\n```"},
    {"when": "break in the dark", "text": "I begin", "fault": "the engine broke"},
    {"when": "end with the kernel", "text": "word " * 3000, "deltas": 3000, "delay": 0.02},
    {"text": "Anything.", "loop": True},
]
TRAITS = {"policy": "{'shell': 'ask'}"}


async def test_the_kernel_is_free_meanwhile_and_the_answer_grows_in_the_first_cell(notebook: Notebook) -> None:
    async with notebook.window() as window:
        ran = await notebook.run("%%agent --background\ncount slowly", cell="slow")
        assert ran.status == "ok", ran.error
        assert "59" not in ran.text, "the cell is over before the answer"
        second = await notebook.run("%%agent --background\ncome second", cell="second")
        other = await notebook.run("1 + 1")
        assert other.plain == "2"
        await window.until((second, "in the queue"))
        (notebook.server.directory / "go").touch()
        await window.until((ran, "tokens read"), (second, "tokens read"))
        slow, queued = window.of(ran), window.of(second)
        assert window.of(other).all.strip() == "2", "nothing came to another cell"
    assert slow.text == " ".join(map(str, range(60)))
    assert len([words for words in slow.history if words.startswith("0 1")]) >= 3, "it grew"
    assert "Running in the background" not in slow.plain, "what was waited for is gone"
    assert slow.turn["state"] == "committed"
    assert queued.text == "I came second."
    assert any("in the queue" in words for words in queued.history)
    said = [message["content"] for message in await notebook.messages() if message["role"] == "user"]
    assert said == ["count slowly", "come second"]


async def test_stop_ends_the_one_that_runs_and_the_one_that_waits(notebook: Notebook) -> None:
    async with notebook.window() as window:
        first = await notebook.run("%%agent --background\nnever end")
        second = await notebook.run("%%agent --background\nwait in line")
        await window.until((first, "word word"))
        assert (await notebook.run("%agent stop")).plain == "Stopped 2 turns."
        await window.until((first, "cancelled"), (second, "cancelled"))
        assert window.of(first).text.endswith("*(cut short)*")
        for stopped in (first, second):
            await window.until((stopped, "You stopped this turn."))
            assert "by the person" not in window.of(stopped).all
    assert (await notebook.run("%agent stop")).plain == "No turn is running."


async def test_python_of_it_runs_in_the_sandbox_on_copies_never_in_the_kernel(notebook: Notebook) -> None:
    await notebook.run("numbers = [1, 2, 3]")
    async with notebook.window() as window:
        ran = await notebook.run("%%agent --background -v numbers\nlook at the numbers")
        await window.until((ran, "tokens read"))
        assert "python in the sandbox · done" in window.of(ran).cards[0]
        assert "6" in window.of(ran).cards[0]
    for options in ("--in live", "--auto", "--in draft"):
        refused = await notebook.run(f"%%agent --background {options}\nx")
        assert "runs Python in the sandbox" in refused.error


async def test_what_it_asks_waits_for_approve(notebook: Notebook) -> None:
    async with notebook.window() as window:
        ran = await notebook.run("%%agent --background\nmay I", [])
        await window.until((ran, "%agent approve"))
        asked = await notebook.run("%agent approve", ["y"])
        assert len(asked.asked) == 1
        assert "echo ran by shell" in asked.plain
        await window.until((ran, "tokens read"))
        assert window.of(ran).text == "Thank you."
        assert "ran by shell" in window.of(ran).cards[0]
    assert (await notebook.run("%agent approve")).plain == "No approval request waits for your answer."


async def test_what_was_allowed_or_refused_before_does_not_wait(notebook: Notebook) -> None:
    await notebook.run("%agent allow shell")
    async with notebook.window() as window:
        ran = await notebook.run("%%agent --background\nas I said", [])
        await window.until((ran, "tokens read"))
        assert "unasked" in window.of(ran).cards[0]
        assert window.of(ran).text == "Nobody was asked."
        ran = await notebook.run("%%agent --background --ask\nask me still", [])
        await window.until((ran, "%agent approve"))
        assert len((await notebook.run("%agent approve", ["n"])).asked) == 1, "--ask asks all the same"
        await window.until((ran, "tokens read"))


async def test_code_of_it_stays_in_the_answer_and_it_is_the_last_turn(notebook: Notebook) -> None:
    async with notebook.window() as window:
        ran = await notebook.run("%%agent --background -f code\nwrite it aside", [])
        await window.until((ran, "tokens read"))
        assert "the code is in the answer" in window.of(ran).plain
        assert (await notebook.run("%agent show")).turn["turn"] == window.of(ran).turn["turn"]


async def test_a_turn_that_fails_says_why_in_its_cell(notebook: Notebook) -> None:
    async with notebook.window() as window:
        ran = await notebook.run("%%agent --background\nbreak in the dark")
        await window.until((ran, "the engine broke"))
        assert window.of(ran).text == "I begin *(cut short)*"


async def test_a_restart_of_the_kernel_ends_it_on_the_server_too(fresh_notebook: Notebook) -> None:
    async with fresh_notebook.window() as window:
        ran = await fresh_notebook.run("%%agent --background\nend with the kernel")
        await window.until((ran, "word word"))
    await fresh_notebook.restart()
    for _ in range(600):
        stored = (await fresh_notebook.messages())[-1]
        if stored["role"] == "assistant":
            break
        await asyncio.sleep(0.1)
    assert stored["status"] == "interrupted"
    assert (await fresh_notebook.run("%%agent\nanything")).text == "Anything."
