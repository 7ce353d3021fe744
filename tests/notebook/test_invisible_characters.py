"""Tests how each surface with an approval shows code with invisible characters: cell, terminal, API, dialects, MCP. The
panel has the same cards (``ui/tests/view/Approve.test.tsx``).
"""

from __future__ import annotations

import html
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from mcp_types import ElicitResult
from rich.console import Console

from agent_kernel.core.invisible_characters import INVISIBLE, find_invisible, mark_invisible
from agent_kernel.notebook.display.render import Card
from agent_kernel.notebook.display.rich_screen import RichScreen
from agent_kernel.notebook.display.screen import TerminalScreen
from agent_kernel.notebook.display.terminal_escape import printable
from tests.jupyter_ext.api.mcp.test_endpoint import client
from tests.notebook.notebook import Notebook
from tests.server import AgentServer, follow, start_turn

CARDS: list[dict[str, str]] = json.loads((Path(__file__).parents[1] / "corpus" / "unseen.json").read_text())
PER_TURN = 30
CHUNKS = [CARDS[start : start + PER_TURN] for start in range(0, len(CARDS), PER_TURN)]
SURFACES = ("cell", "API", "MCP", "chat")


def _rounds(surface: str, number: int) -> list[dict[str, Any]]:
    when = f"cards {number} by {surface}"
    calls = [{"name": "python", "arguments": {"code": card["code"]}} for card in CHUNKS[number]]
    return [{"when": when, "calls": calls}, {"when": when, "text": "none ran"}]


SCRIPT = [one for surface in SURFACES for number in range(len(CHUNKS)) for one in _rounds(surface, number)]
TRAITS = {"permission": "ask", "approval_timeout_s": 30.0}
chunks = pytest.mark.parametrize("number", range(len(CHUNKS)))


def check(shown: str, card: dict[str, str]) -> None:
    assert card["shown"] in shown
    assert not INVISIBLE.search(shown.replace("\r\n", "\n"))


def test_there_are_sixty_cards_and_what_is_shown_tells_what_runs() -> None:
    assert len(CARDS) >= 60
    for card in CARDS:
        assert mark_invisible(card["code"]) == card["shown"]
        assert find_invisible(card["code"])
        back = re.sub(r"\[U\+([0-9A-F]{4,6})\]", lambda found: chr(int(found[1], 16)), card["shown"])
        assert back == card["code"]


@pytest.mark.parametrize(
    "code", ["a\tb\nc", "caf\u00e9 e\u0301", "\u2764\ufe0f", "\U0001f600", "\u65e5\u672c", "\u0634\u0643\u0631\u0627"]
)
def test_what_is_seen_stays_as_it_is(code: str) -> None:
    assert (mark_invisible(code), find_invisible(code)) == (code, ())


@pytest.mark.parametrize("card", CARDS)
def test_on_a_terminal_nothing_of_the_code_is_left_out(
    card: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    asked = Card("c", "python", "live", card["code"], "waiting for your answer")
    TerminalScreen().card(asked)
    plain = capsys.readouterr().out.replace(">>> ", "")
    written = io.StringIO()
    RichScreen(Console(file=written, width=200, color_system=None), markdown=True).card(asked)
    for shown in (plain, written.getvalue()):
        check(strip_lines(shown), {"shown": strip_lines(card["shown"])})
        assert printable(shown) == shown


def strip_lines(text: str) -> str:
    """Return the text without the indentation of its lines, which a card increases."""
    return "\n".join(line.strip() for line in text.split("\n"))


@chunks
async def test_in_a_cell_the_card_shows_them(notebook: Notebook, number: int) -> None:
    ran = await notebook.run(f"%%agent\ncards {number} by cell", ["n"] * PER_TURN)
    assert len(ran.asked) == len(CHUNKS[number])
    for card, shown in zip(CHUNKS[number], ran.cards, strict=True):
        check(html.unescape(shown), card)
    for shown in ran.history:
        assert not INVISIBLE.search(html.unescape(shown))


@chunks
async def test_over_the_api_the_question_shows_them(server: AgentServer, number: int) -> None:
    left = list(CHUNKS[number])
    async with server.client() as api:
        turn = await start_turn(api, f"cards {number} by API", where="sandbox", answers=["*"])
        async for event in follow(api, turn["turn"]):
            if event["type"] == "approval.required":
                card, asked = left.pop(0), event["data"]
                listed = (await api.get("agent/v1/agent/approvals")).json()["approvals"]
                for one in (asked, *[one for one in listed if one["approval"] == asked["approval"]]):
                    assert (one["code"], one["unseen"]) == (card["shown"], list(find_invisible(card["code"])))
                    assert one["arguments"] == {"code": card["code"]}, "what runs is not changed"
                await api.post(f"agent/v1/agent/approvals/{asked['approval']}", json={"decision": "deny"})
    assert not left


@chunks
async def test_to_a_program_of_another_dialect_the_question_shows_them(server: AgentServer, number: int) -> None:
    left = list(CHUNKS[number])
    body = {
        "model": "agent/default",
        "stream": True,
        "messages": [{"role": "user", "content": f"cards {number} by chat"}],
        "agent_permission": "ask",
    }
    async with server.client() as api, api.stream("POST", "agent/v1/chat/completions", json=body) as reply:
        assert reply.status_code == 200, await reply.aread()
        async for line in reply.aiter_lines():
            if line.startswith("data: {") and "agentic_tool_approval_required" in line:
                asked = json.loads(line[6:])
                assert asked["code"] == left.pop(0)["shown"]
                await _deny(server, asked["approval_id"])
    assert not left


async def _deny(server: AgentServer, approval: str) -> None:
    async with server.client() as api:
        await api.post(f"agent/v1/agent/approvals/{approval}", json={"decision": "deny"})


@chunks
async def test_over_mcp_the_question_shows_them(server: AgentServer, number: int) -> None:
    asked: list[str] = []

    async def ask(context: Any, params: Any) -> ElicitResult:
        asked.append(params.message)
        return ElicitResult(action="accept", content={"decision": "deny"})

    async with client(server, "legacy", elicitation_callback=ask) as mcp:
        await mcp.call_tool("agent", {"prompt": f"cards {number} by MCP"})
    for card, shown in zip(CHUNKS[number], asked, strict=True):
        check(shown, card)
