"""Skills and trusted folders over HTTP, with a real server."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI

from tests.server import TOKEN, AgentServer, Json, followed, start_turn, text_of

HEAD = "---\nname: Charts\ndescription: Draws charts\n---\nUse matplotlib.\n"
SCRIPT: list[Json] = [
    {"text": "", "calls": [{"name": "read_skill", "arguments": {"skill": "Charts"}}], "when": "chart"},
    {"text": "drawn", "loop": True},
]


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[AgentServer]:
    with AgentServer(tmp_path / "server", SCRIPT, {"tools": "skills,mcp"}) as made:
        yield await made.start()
        await made.stop()


def pack_skill(text: str = HEAD) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("charts/SKILL.md", text)
        archive.writestr("charts/scripts/draw.py", "print(1)")
    return made.getvalue()


async def test_a_skill_from_its_upload_to_a_turn_that_reads_it(api: httpx.AsyncClient) -> None:
    made = (await api.post("agent/v1/skills", files={"files": ("charts.zip", pack_skill())})).json()
    assert (made["object"], made["name"], made["latest_version"]) == ("skill", "Charts", "1")
    parts = [("files[]", ("c/SKILL.md", HEAD.replace("Draws", "Still draws"))), ("files[]", ("c/a/b.txt", "b"))]
    second = (await api.post(f"agent/v1/skills/{made['id']}/versions", files=parts)).json()
    assert (second["id"], second["version"], second["files"]) == (f"{made['id']}_v2", "2", ["SKILL.md", "a/b.txt"])
    listed = (await api.get("agent/v1/skills")).json()
    assert [skill["description"] for skill in listed["data"]] == ["Still draws charts"]
    versions = (await api.get(f"agent/v1/skills/{made['id']}/versions")).json()["data"]
    assert [version["version"] for version in versions] == ["2", "1"]
    custom = (await api.get("agent/v1/skills", params={"source": "custom"})).json()
    assert custom["data"][0]["latest_version"] == "2"
    assert (custom["has_more"], custom["next_page"]) == (False, None)
    assert (await api.get("agent/v1/skills", params={"source": "anthropic"})).json()["data"] == []

    turn = await start_turn(api, "make a chart", skills=[f"{made['id']}@1"])
    events = await followed(api, turn["turn"])
    finished = next(event["data"] for event in events if event["type"] == "call.finished")
    assert (finished["status"], "Use matplotlib." in finished["text"]) == ("success", True)
    assert text_of(events) == "drawn"
    items = (await api.get(f"agent/v1/sessions/{turn['session']}/items")).json()["items"]
    assert not [item for item in items if item["message"]["role"] == "system"], "it is a note of that turn"

    lost = await start_turn(api, "again", skills=["skill_" + "0" * 32])
    end = (await followed(api, lost["turn"]))[-1]["data"]
    assert (end["state"], end["error"]["code"]) == ("failed", "not_found")
    assert (await api.delete(f"agent/v1/skills/{made['id']}")).json()["deleted"] is True
    assert (await api.get(f"agent/v1/skills/{made['id']}")).status_code == 404


NO_SKILLS: list[Json] = [
    {},
    {"files": ("x.zip", b"PK\x03\x04 broken")},
    {"files": ("SKILL.md", "no head")},
    {"files": ("../SKILL.md", HEAD)},
    {"other": ("SKILL.md", HEAD)},
]


async def test_the_official_clients_bring_list_and_delete_skills(server: AgentServer) -> None:
    url, zipped = server.agent_url.rstrip("/"), ("charts.zip", pack_skill())
    async with AsyncOpenAI(base_url=url, api_key=TOKEN, max_retries=0) as openai:
        made = await openai.skills.create(files=[zipped])
        assert [skill.id async for skill in openai.skills.list()] == [made.id]
        assert [version.version async for version in openai.skills.versions.list(made.id)] == ["1"]
        assert (await openai.skills.delete(made.id)).deleted
    async with AsyncAnthropic(base_url=url.removesuffix("/v1"), api_key=TOKEN, max_retries=0) as anthropic:
        brought = await anthropic.beta.skills.create(files=[zipped])
        assert (brought.display_name, brought.source.type) == ("Charts", "custom")
        assert [skill.latest_version_id async for skill in anthropic.beta.skills.list(source="custom")] == [
            f"{brought.id}_v1"
        ]
        assert [skill async for skill in anthropic.beta.skills.list(source="anthropic")] == []
        assert (await anthropic.beta.skills.delete(brought.id)).type == "skill_deleted"


async def test_the_first_form_of_anthropic_s_skills_has_words_for_source_and_version(api: httpx.AsyncClient) -> None:
    await api.post("agent/v1/skills", files={"files": ("charts.zip", pack_skill())})
    for headers, query in (({}, {"source": "custom"}), ({"anthropic-beta": "skills-2025-10-02"}, {})):
        listed = (await api.get("agent/v1/skills", headers=headers, params=query)).json()
        assert (listed["data"][0]["source"], listed["data"][0]["latest_version"]) == ("custom", "1")
        assert (listed["has_more"], listed["next_page"]) == (False, None)


async def test_an_upload_that_is_no_skill_is_refused(api: httpx.AsyncClient) -> None:
    for files in NO_SKILLS:
        reply = await api.post("agent/v1/skills", files=files or None)
        assert (reply.status_code, reply.json()["error"]["code"]) == (400, "invalid_request")
    assert (await api.get("agent/v1/skills")).json()["data"] == []


async def test_a_notebook_asks_and_a_person_trusts_its_folder(server: AgentServer) -> None:
    folder = server.root / "project"
    (folder / ".agents" / "skills" / "charts").mkdir(parents=True)
    (folder / ".agents" / "skills" / "charts" / "SKILL.md").write_text(HEAD)
    (folder / ".mcp.json").write_text('{"mcpServers": {"files": {"command": "no-such-server", "args": ["sk-12345"]}}}')
    kernel = await server.start_kernel("project/a.ipynb")
    async with server.kernel_client(await server.kernel_token(kernel)) as notebook, server.client() as person:
        before = await start_turn(notebook, "hello")
        events = await followed(notebook, before["turn"])
        notices = [event["data"]["text"] for event in events if event["type"] == "notice"]
        assert len([text for text in notices if "folder that you trust" in text]) == 2
        asked = (await notebook.post("agent/v1/trust", json={})).json()
        page = httpx.URL(asked["url"]).path
        shown = (await person.get(page)).text
        assert str(folder) in shown
        assert "files (no-such-server)" in shown
        assert "sk-12345" not in shown
        assert (await notebook.get("agent/v1/trust")).json()["trusted"] is False
        (folder / ".mcp.json").write_text('{"mcpServers": {"evil": {"command": "evil"}}}')
        xsrf = re.search(r'name="_xsrf" type="hidden" value="([^"]+)"', shown) or re.search(r'value="([^"]+)"', shown)
        assert xsrf
        body = {"decision": "confirmed", "_xsrf": xsrf.group(1)}
        assert (await person.post(page, data=body)).status_code == 409, "the page showed something else"
        asked = (await notebook.post("agent/v1/trust", json={})).json()
        page = httpx.URL(asked["url"]).path
        await person.get(page)
        assert (await person.post(page, data=body)).status_code == 200
        assert (await notebook.get("agent/v1/trust")).json()["trusted"] is True
        after = await start_turn(notebook, "make a chart")
        events = await followed(notebook, after["turn"])
        finished = next(event["data"] for event in events if event["type"] == "call.finished")
        assert "Use matplotlib." in finished["text"]
        notices = [event["data"]["text"] for event in events if event["type"] == "notice"]
        assert [text for text in notices if "MCP server evil cannot be used" in text]
        known = (await person.get("agent/v1/trust", params={"path": "project/a.ipynb"})).json()
        assert [one["path"] for one in known["folders"]] == [str(folder)]
        assert (await notebook.delete("agent/v1/trust")).json()["removed"] is True
        assert (await person.get("agent/v1/trust")).json()["folders"] == []
