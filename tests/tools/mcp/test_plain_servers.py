"""Tests misbehaving servers of the older protocol, one at a time: each call has one clear result, and turns
continue.
"""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest

from agent_kernel.core.events import CallOutput
from agent_kernel.core.messages import ToolCall
from agent_kernel.core.protocols import ToolContext
from agent_kernel.core.trusted_folders import TrustStore
from agent_kernel.permissions import Approvals, Gate
from agent_kernel.turn.tool_executor import RoundPosition, Toolbox
from tests.tools.mcp.conftest import Client, Made
from tests.turns import KEY
from tests.waiting import until


@pytest.fixture
def client(made: Made) -> Client:
    return made({"mcpServers": {"p": made.plain()}})


async def test_names_are_safe_for_models_and_all_different(made: Made) -> None:
    client = made({"mcpServers": {"my server": made.plain()}})
    names = list(await client.tools())
    assert "my_server_hold" in names
    assert all(len(name) <= 64 and name.replace("_", "a").replace("-", "a").isalnum() for name in names)
    assert len([name for name in names if name.startswith("my_server_same_name")]) == 2
    assert len([name for name in names if name.startswith("my_server_xxx")]) == 1
    assert "my_server_broken" not in names
    assert "broken (its schema is not valid)" in client.notices[0]
    assert list(await client.tools()) == names, "names stay from one turn to the next"
    assert len(client.notices) == 1, "a session is told once"


async def test_a_tool_is_shown_as_the_servers_own_and_asks(client: Client) -> None:
    spec = (await client.tools())["p_hold"].spec
    assert (spec.kind, spec.source, spec.where, spec.label) == ("mcp", "mcp", "server", "p: hold")
    toolbox = Toolbox(list((await client.tools()).values()), Gate(Approvals()))
    results = [
        result
        async for result in toolbox.run(
            [ToolCall("c", "p_unasked", {"n": 1})], RoundPosition(KEY, "t", 1), client.said.append
        )
    ]
    assert results[0].status == "denied"
    assert not [line for line in client.heard if line.startswith("tools/call")]


async def test_arguments_are_checked_before_the_server_hears_of_them(client: Client) -> None:
    toolbox = Toolbox(list((await client.tools()).values()), Gate(Approvals(), policy={"mcp": "auto"}))
    calls = [ToolCall("c", "p_unasked", {"n": "seven"}), ToolCall("d", "p_unasked", {"n": 7})]
    results = [result async for result in toolbox.run(calls, RoundPosition(KEY, "t", 1), client.said.append)]
    assert [result.status for result in results] == ["error", "success"]
    assert client.heard.count("tools/call unasked") == 1


async def test_a_crash_in_a_call_is_one_result_and_the_call_is_not_sent_again(client: Client) -> None:
    output = await client.call("p_crash")
    assert output.status == "error"
    assert "ended during the call; its last output: last words" in output.text
    assert "may have run, and was not tried again" in output.text
    again = await client.call("p_unasked", n=1)
    assert again.text == 'unasked {"n": 1}', "it is connected again when the next call needs it"
    assert client.heard.count("tools/call crash") == 1
    assert len(client.processes) == 2


async def test_who_crashes_again_and_again_is_left_alone_for_a_while(client: Client) -> None:
    for _ in range(2):
        await client.call("p_crash")
    output = await client.call("p_unasked")
    assert "It is tried again in" in output.text
    assert "p_unasked" in await client.tools(), "its tools stay"


async def test_a_call_that_takes_too_long_ends_and_the_server_hears_of_it(made: Made) -> None:
    client = made({"mcpServers": {"p": made.plain()}, "tool_timeout_secs": 0.3})
    output = await client.call("p_hold")
    assert output.status == "timeout"
    assert "did not answer within 0.3 seconds" in output.text
    await until(lambda: any(line.startswith("notifications/cancelled") for line in client.heard))
    assert (await client.call("p_unasked")).status == "success", "the connection is still good"


async def test_stopping_a_turn_reaches_the_server(client: Client) -> None:
    task = asyncio.create_task(client.call("p_hold"))
    await until(lambda: "tools/call hold" in client.heard)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: any(line.startswith("notifications/cancelled") for line in client.heard))


async def test_an_answer_of_100_mb_fails_that_call_and_no_other(client: Client) -> None:
    output = await client.call("p_flood", n=100)
    assert (output.status, output.text) == ("error", "MCP server p: the answer has more than 16 MiB")
    assert (await client.call("p_flood", n=1)).status == "success"
    assert len(client.processes) == 1


async def test_a_line_that_is_no_message_is_passed_over(client: Client) -> None:
    assert (await client.call("p_junk")).text == "after junk"


async def test_text_that_is_none_has_a_result_at_once(client: Client) -> None:
    assert (await client.call("p_odd", n=0)).text == "caf\ufffd"
    assert (await client.call("p_odd", n=1)).text == "half ?"
    torn = await client.call("p_odd", n=2)
    assert (torn.status, torn.text) == ("error", "MCP server p: the answer is not a valid message")


async def test_a_server_gets_its_own_environment_and_no_more(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not for servers")
    client = made({"mcpServers": {"p": made.plain(env={"KEY": "${THE_KEY}"})}}, env={"THE_KEY": "hush-hush"})
    names = set((await client.call("p_environment")).text.split())
    assert {"KEY", "PATH"} <= names
    assert names <= {"KEY", "PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TMPDIR"}


async def test_a_secret_in_an_error_is_not_told(made: Made) -> None:
    client = made({"mcpServers": {"p": made.plain(env={"KEY": "${THE_KEY}"})}}, env={"THE_KEY": "hush-hush"})
    assert (await client.call("p_leak")).text == "MCP server p: wrong key [hidden]"


async def test_a_variable_that_is_not_set_is_named(made: Made) -> None:
    client = made({"mcpServers": {"p": made.plain(env={"KEY": "${NOT_SET}"})}})
    assert await client.tools() == {}
    assert client.notices == [
        "MCP server p cannot be used: The environment variable NOT_SET, which the MCP configuration names, is not set."
    ]
    assert client.processes == []


async def test_a_tool_that_comes_later_is_there_in_the_next_turn(client: Client) -> None:
    assert "p_later" not in await client.tools()
    await client.call("p_more")
    await until(lambda: client.heard.count("tools/list") == 2)
    connection = (await client.source.connections())[0]
    await until(lambda: any(tool.name == "later" for tool in (connection.listed.tools if connection.listed else ())))
    assert "p_later" in await client.tools()


async def test_a_server_that_never_answers_delays_one_turn_and_is_told_of_once(made: Made) -> None:
    client = made({"mcpServers": {"p": made.plain("deaf"), "q": made.plain()}}, start_s=10.0)
    assert "q_hold" in await client.tools(), "the others are there"
    late = "MCP server p did not start within 10 s; its tools are offered once it has started."
    assert client.notices.count(late) == 1
    await asyncio.wait_for(client.tools(), 8)  # the next turn does not wait for it
    assert client.notices.count(late) == 1


async def test_a_command_that_is_not_there_is_a_notice(made: Made) -> None:
    client = made({"mcpServers": {"p": {"command": "no-such-command"}}})
    assert await client.tools() == {}
    assert "no-such-command cannot be started: No such file" in client.notices[0]


async def test_no_server_starts_for_a_request_that_wants_other_tools(client: Client) -> None:
    assert await client.tools(tools=("python",)) == {}
    assert client.processes == []
    assert list(await client.tools(tools=("p_hold",))) == ["p_hold"]


async def test_tools_that_are_not_registered_come_only_when_they_are_named(made: Made) -> None:
    client = made({"mcpServers": {"p": made.plain()}, "auto_register_tools": False})
    assert await client.tools() == {}
    assert "p_hold" in await client.tools(tools=("mcp",))


async def test_only_as_many_calls_run_together_as_the_configuration_says(made: Made) -> None:
    client = made({"mcpServers": {"p": made.plain()}, "max_concurrent_calls": 2})
    tool = (await client.tools())["p_hold"]
    tasks = [
        asyncio.create_task(tool.call({}, ToolContext(KEY, "t", 1, ToolCall(str(n), "p_hold", {}), client.said.append)))
        for n in range(5)
    ]
    await until(lambda: client.heard.count("tools/call hold") == 2)
    await asyncio.sleep(0.2)
    assert client.heard.count("tools/call hold") == 2
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_nothing_is_left_when_the_source_is_closed(made: Made) -> None:
    client = made({"mcpServers": {"p": made.plain(), "q": made.plain("deaf")}}, start_s=0.5)
    await client.tools()
    await until(lambda: len(client.processes) == 2)
    await client.source.aclose()
    await until(lambda: not any(_lives(pid) for pid in client.processes))


async def test_the_file_beside_a_notebook_counts_only_as_it_was_when_it_was_trusted(made: Made, tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / ".mcp.json").write_text(json.dumps({"mcpServers": {"p": made.plain()}}))
    client = made({"servers": []})
    trust = TrustStore(tmp_path / "trusted.json")
    assert await client.tools(folder, trusted=False) == {}
    assert "is in no folder that you trust, so its MCP servers are not used" in client.notices[0]
    trust.add(folder)
    assert "p_hold" in await client.tools(folder, trusted=True)
    (folder / ".mcp.json").write_text((folder / ".mcp.json").read_text().replace('"p"', '"evil"'))
    changed = made({"servers": []})
    assert await changed.tools(folder, trusted=True) == {}
    assert "is not as it was when you trusted it" in changed.notices[0]


async def test_progress_is_told_while_a_call_runs(made: Made) -> None:
    client = made({"mcpServers": {"e": made.everything()}})
    assert (await client.call("e_slow", seconds=0)).text == "done"
    assert CallOutput("c1", "half way\n", "stderr") in client.said


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
