"""Tests ``%agent allow``, ``deny`` and ``permissions``, and their effect on turns."""

from __future__ import annotations

import json
import re

from tests.notebook.notebook import Notebook
from tests.scripted import python_when
from tests.server import start_turn, wait_for_event

SCRIPT = [
    *python_when("no for good", "refused = 1"),
    *python_when("after that", "again = 1"),
    *python_when("in the box", "boxed = 1"),
    *python_when("in the browser", "kept = 1"),
    {"text": "Hello.", "loop": True},
]
TRAITS = {"policy": json.dumps({"mcp": "deny"}), "python_in": "live"}


async def test_never_holds_until_the_person_allows_it_again(notebook: Notebook) -> None:
    ran = await notebook.run("%%agent\nno for good", ["never"])
    assert "the person said no" in ran.cards[0]
    assert (await notebook.run("%agent allow live")).status == "ok"
    assert (await notebook.run("%%agent\nafter that", [])).status == "ok"
    assert (await notebook.run("again")).plain == "1"


async def test_a_kind_that_is_denied_does_not_run_even_where_nobody_is_asked(notebook: Notebook) -> None:
    await notebook.run("%agent deny sandbox")
    ran = await notebook.run("%%agent --in sandbox\nin the box")
    assert "denied by policy: this request" in ran.cards[0]


async def test_permissions_tell_what_holds_and_why(notebook: Notebook) -> None:
    await notebook.run("%agent allow shell")
    await notebook.run("%agent deny web")
    plain = await permissions(notebook)
    assert re.search(r"python\.live +asks +the defaults", plain)
    assert re.search(r"mcp +does not run +the setting policy for mcp", plain)
    assert re.search(r"shell +runs +you, until this kernel restarts", plain)
    assert re.search(r"web +does not run +you, until this kernel restarts", plain)
    assert "takes one of live, draft" in (await notebook.run("%agent allow everything")).error


async def test_deny_alone_forgets_what_was_allowed_here_and_in_the_browser(notebook: Notebook) -> None:
    session = (await notebook.run("%%agent\nhello")).turn["session"]
    async with notebook.server.client() as client:
        turn = await start_turn(client, "in the browser", session=session, where="live", answers=["*"])
        asked = await wait_for_event(client, turn["turn"], "approval.required")
        yes = {"decision": "approve", "remember": "session", "shown": asked["data"]["shown"]}
        await client.post(f"agent/v1/agent/approvals/{asked['data']['approval']}", json=yes)
        await client.post(f"agent/v1/turns/{turn['turn']}/cancel", json={})
        before = (await client.get(f"agent/v1/sessions/{session}/permissions")).json()["grants"]
        await notebook.run("%agent allow live")
        assert re.search(r"python\.live: python +runs +you, for this session", await permissions(notebook))
        await notebook.run("%agent deny")
        after = (await client.get(f"agent/v1/sessions/{session}/permissions")).json()["grants"]
    assert ([(grant["kind"], grant["decision"]) for grant in before], after) == ([("python.live", "approve")], [])
    assert re.search(r"your kernel +asks", (await notebook.run("%agent status")).plain)


async def permissions(notebook: Notebook) -> str:
    return (await notebook.run("%agent permissions")).all
