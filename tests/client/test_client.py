"""The async client against a real server: turns, streams, callbacks, files, sessions, errors."""

from __future__ import annotations

import asyncio
import io
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from pydantic import BaseModel

from agent_kernel import Client, Decision, InputFile, tool
from agent_kernel.client.discovery import TOKEN as TOKEN_NAME
from agent_kernel.client.discovery import URL
from agent_kernel.client.file import File
from agent_kernel.client.turn import Turn
from agent_kernel.core.api_tokens import ApiTokenStore
from agent_kernel.core.errors import (
    EngineError,
    FileNotFound,
    FileNotProduced,
    Forbidden,
    InvalidRequest,
    NotFound,
    OutputInvalid,
    ServerUnreachable,
    SessionBusy,
    SessionNotFound,
    UnknownModel,
)
from agent_kernel.core.events import (
    ApprovalRequired,
    ApprovalResolved,
    CallFinished,
    CallOutput,
    CallStarted,
    Event,
    ReasoningDelta,
    TextDelta,
    TurnFinished,
    TurnStarted,
)
from tests.narrowing import instance_of, not_none
from tests.scripted import call, python
from tests.server import TOKEN, AgentServer

PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010806000000" + "1f15c4890000000d49444154789c626001000000050001"
)


SCRIPT = [
    {"text": "It begins", "fault": "hang", "when": "hang", "loop": True},
    {"text": "word " * 40, "deltas": 40, "delay": 0.02, "when": "slow", "loop": True},
    {"text": "It ends later.", "deltas": 2, "gate": "later", "when": "be busy"},
    {"text": "Before.", "reasoning": "Hm.", "calls": [python("print('out'); 6 * 7")], "when": "compute"},
    {"text": "It is 42.", "when": "compute"},
    {"text": "Let me see.", "reasoning": "Hm.", "calls": [python("2 + 2")], "when": "think aloud"},
    {"text": "It is 4.", "when": "think aloud"},
    {"calls": [call("add", a=2, b=3), call("later", word="x")], "when": "own"},
    {"text": "Both said.", "when": "own"},
    {"calls": [call("meet", name="a"), call("meet", name="b")], "when": "both at once"},
    {"text": "They met.", "when": "both at once"},
    {"calls": [call("broken"), call("slowly"), call("add", a="no")], "when": "failing"},
    {"text": "All failed.", "when": "failing"},
    {"calls": [call("picture"), call("table")], "when": "shows"},
    {"text": "Shown.", "when": "shows"},
    {"calls": [call("danger", what="x")], "when": "approve me"},
    {"text": "Decided.", "when": "approve me", "loop": True},
    {"calls": [call("danger", what="n")], "when": "with nobody to ask"},
    {"text": "Decided.", "when": "with nobody to ask"},
    {"calls": [call("danger", what="y")], "when": "deny me"},
    {"text": "Decided.", "when": "deny me"},
    {"calls": [call("danger", what="z")], "when": "fail to decide"},
    {"text": "Decided.", "when": "fail to decide"},
    {"calls": [call("danger", what="r")], "when": "remember it"},
    {"text": "Once.", "when": "remember it"},
    {"calls": [call("danger", what="s")], "when": "remembered now"},
    {"text": "Twice.", "when": "remembered now"},
    {"calls": [call("danger", what="w")], "when": "not like that"},
    {"text": "Decided.", "when": "not like that"},
    {"calls": [call("danger", what="v")], "when": "no decision"},
    {"text": "Decided.", "when": "no decision"},
    {"calls": [call("danger", what="t")], "when": "two see it"},
    {"text": "Seen.", "when": "two see it"},
    {"calls": [call("danger", what="e")], "when": "reader decides"},
    {"text": "Read.", "when": "reader decides"},
    {"calls": [python("print(open('in.txt').read()); open('out.csv','w').write('a,b\\n1,2\\n')")], "when": "files"},
    {"text": "Done.", "when": "files"},
    {"calls": [python("open('big.bin', 'wb').write(bytes(range(256)) * 40_000)")], "when": "big"},
    {"text": "Done.", "when": "big"},
    {"calls": [python("1")], "when": "missing"},
    {"text": "Nothing.", "when": "missing"},
    {"text": '{"name": "Ada", "age": 36}', "when": "person", "loop": True},
    {"text": "yes", "when": "choose", "loop": True},
    {"fault": "it broke", "when": "breaks", "loop": True},
    {"text": "Hello.", "loop": True},
]


@pytest.fixture
async def client(server: AgentServer) -> AsyncIterator[Client]:
    async with Client(server.url, token=TOKEN) as client:
        yield client


def kinds(events: list[Event]) -> list[type]:
    return [type(event.body) for event in events]


async def until(turn: Turn, kind: type) -> Event:
    async for event in turn:
        if isinstance(event.body, kind):
            return event
    raise AssertionError(kind)


# ------------------------------------------------------------------------------------------------ turns


async def test_a_turn_is_a_result_and_its_session_goes_on(client: Client) -> None:
    first = await client.run("hello")
    second = await client.run("again", session=first.session)
    assert (first.text, first.state, first.finish, first.model) == ("Hello.", "committed", "stop", "scripted")
    assert first.usage.completion_tokens == 1
    assert second.session == first.session
    assert [line.message.role for line in await client.sessions.items(first.session)] == ["user", "assistant"] * 2


async def test_a_stream_has_the_whole_timeline_in_order(client: Client) -> None:
    turn = client.stream("compute")
    events = [event async for event in turn]
    told = [kind for kind in kinds(events) if kind in (ReasoningDelta, CallStarted, CallFinished, TurnFinished)]
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert told == [ReasoningDelta, CallStarted, CallFinished, TurnFinished]
    assert any(isinstance(event.body, CallOutput) and event.body.text == "out\n" for event in events)
    assert kinds(events)[0] is TurnStarted
    assert turn.finished is events[-1].body


async def test_what_was_said_before_a_call_is_no_part_of_the_closing_answer(client: Client) -> None:
    result = await client.run("think aloud")
    assert (result.text, result.reasoning, result.rounds) == ("It is 4.", "Hm.", 1)
    assert [(made.name, made.status) for made in result.calls] == [("python", "success")]


async def test_texts_are_only_what_the_model_says(client: Client) -> None:
    assert "".join([text async for text in client.stream("slow").texts()]) == "word " * 40


async def test_who_breaks_off_stops_the_turn(client: Client) -> None:
    turn = client.stream("hang")
    await until(turn, TextDelta)
    for _ in range(1_200):
        if (await client.sessions.turns(turn.session))[0]["state"] == "cancelled":
            return
        await asyncio.sleep(0.05)
    raise AssertionError("the turn still runs")


async def test_who_leaves_it_running_can_come_back_for_the_rest(client: Client) -> None:
    seen: list[Event] = []
    async with client.stream("slow", leave_running=True) as turn:
        async for event in turn:
            seen.append(event)
            if isinstance(event.body, TextDelta):
                break
    rest = [event async for event in client.follow(turn.id, after=seen[-1].seq)]
    assert [event.seq for event in (*seen, *rest)] == list(range(1, rest[-1].seq + 1))
    text = "".join(event.body.text for event in (*seen, *rest) if isinstance(event.body, TextDelta))
    assert text == "word " * 40
    assert instance_of(TurnFinished, rest[-1].body).state == "committed"


async def test_streams_that_are_left_leave_no_task_behind(client: Client) -> None:
    async def look(number: int) -> None:
        async with client.stream("slow" if number % 2 else "hang") as turn:
            async for event in turn:
                if isinstance(event.body, TextDelta):
                    return

    before = len(asyncio.all_tasks())
    await asyncio.gather(*[look(number) for number in range(12)])
    assert len(asyncio.all_tasks()) == before


async def test_a_cancelled_task_stops_its_turn(client: Client) -> None:
    session = (await client.sessions.create()).id
    task = asyncio.create_task(client.run("hang", session=session))
    while not (turns := await client.sessions.turns(session)) or turns[0]["state"] != "open":
        await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await client.sessions.turns(session))[0]["state"] == "cancelled"


async def test_a_turn_that_another_stops_is_a_result_that_says_so(client: Client) -> None:
    async with client.stream("hang") as turn:
        await asyncio.sleep(0)
        assert await client.cancel(turn.id, "enough") == "cancelled"
        result = await turn.result()
    assert (result.state, result.reason) == ("cancelled", "enough")


async def test_a_failed_turn_raises_its_own_error_and_says_which_turn_it_was(client: Client) -> None:
    with pytest.raises(EngineError, match="it broke") as caught:
        await client.run("breaks")
    assert caught.value.details["turn"].startswith("turn")
    assert (await client.stream("breaks").result()).error is not None


async def test_a_busy_session_is_waited_for_or_told(client: Client, server: AgentServer) -> None:
    async with client.stream("be busy") as turn:
        with pytest.raises(SessionBusy) as caught:
            await client.run("hello", session=turn.session, busy="raise")
        asyncio.get_running_loop().call_later(0.3, (server.directory / "later").touch)
        waited = await client.run("hello", session=turn.session)
        assert (await turn.result()).state == "committed"
    assert caught.value.request_id.startswith("req_")
    assert waited.text == "Hello."


async def test_private_sessions_are_in_no_list(client: Client) -> None:
    result = await client.run("hello", private=True)
    assert result.session not in await client.list_session_ids()
    assert (await client.sessions.get(result.session)).private


async def test_options_of_the_client_hold_for_all_its_turns(server: AgentServer) -> None:
    async with Client(server.url, token=TOKEN, session="defaults", max_tokens=5) as client:
        assert (await client.run("hello")).session == "defaults"
        assert (await client.run("hello", session="other")).session == "other"


async def test_an_unknown_option_is_a_type_error(client: Client) -> None:
    with pytest.raises(TypeError, match="tempreature"):
        client.stream("hello", tempreature=1)  # type: ignore[call-arg]


async def test_an_unknown_model_is_told_as_that(client: Client) -> None:
    with pytest.raises(UnknownModel):
        await client.run("hello", model="nobody")


# ------------------------------------------------------------------------------------------------ own functions


def add(a: int, b: int) -> int:
    """Adds."""
    return a + b


async def later(word: str) -> str:
    """Says it later."""
    await asyncio.sleep(0.01)
    return word * 2


async def test_functions_of_this_process_are_called_by_the_model(client: Client) -> None:
    result = await client.run("own", functions=[add, later])
    assert [(made.name, made.status, made.text) for made in result.calls] == [
        ("add", "success", "5"),
        ("later", "success", "xx"),
    ]
    assert result.text == "Both said."


async def test_calls_of_one_round_run_at_the_same_time(client: Client) -> None:
    """Each waits for the other: one after the other they would never end."""
    both = asyncio.Barrier(2)

    @tool(timeout_s=30)
    async def meet(name: str) -> str:
        """Meets."""
        await both.wait()
        return name

    result = await client.run("both at once", functions=[meet])
    assert sorted(made.text for made in result.calls) == ["a", "b"]


async def test_a_failure_is_a_result_that_the_model_reads(client: Client) -> None:
    def broken() -> None:
        """Fails."""
        raise ValueError("no such thing")

    @tool(timeout_s=0.05)
    async def slowly() -> None:
        """Never ends."""
        await asyncio.Event().wait()

    result = await client.run("failing", functions=[broken, slowly, add])
    by_name = {made.name: made for made in result.calls}
    assert (by_name["broken"].status, by_name["broken"].text) == ("error", "ValueError: no such thing")
    assert by_name["slowly"].status == "timeout"
    assert by_name["add"].status == "error"
    assert result.text == "All failed."


async def test_pictures_and_files_of_a_function_come_to_the_session(client: Client) -> None:
    def picture() -> bytes:
        """Draws."""
        return PNG

    def table() -> bytes:
        """Makes bytes."""
        return b"\x00\x01raw"

    turn = client.stream("shows", functions=[picture, table])
    ended = {event.body.name: event.body async for event in turn if isinstance(event.body, CallFinished)}
    assert ended["picture"].media[0]["mime"] == "image/png"
    assert "table.bin" in ended["table"].text, ended["table"].text
    [kept] = await client.files.list(turn.session)
    assert kept.id in ended["table"].text, ended["table"].text
    assert await kept.read() == b"\x00\x01raw"


async def test_two_functions_of_one_name_are_refused(client: Client) -> None:
    with pytest.raises(InvalidRequest, match="same name"):
        client.stream("own", functions=[add, add])


# ------------------------------------------------------------------------------------------------ approvals


@tool(effects=True)
def danger(what: str) -> str:
    """Changes something."""
    return f"did {what}"


async def test_a_callback_approves_what_it_was_shown(client: Client) -> None:
    asked: list[ApprovalRequired] = []

    def approve(approval: ApprovalRequired) -> bool:
        asked.append(approval)
        return True

    result = await client.run("approve me", functions=[danger], approve=approve)
    assert [(one.name, one.arguments) for one in asked] == [("danger", {"what": "x"})]
    assert result.calls[0].text == "did x"


async def test_a_text_is_a_no_that_the_model_reads(client: Client) -> None:
    async def approve(approval: ApprovalRequired) -> str:
        return "not on a Friday"

    result = await client.run("deny me", functions=[danger], approve=approve)
    assert result.calls[0].status == "denied"
    assert "not on a Friday" in result.calls[0].text


async def test_a_callback_that_fails_denies(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    result = await client.run("fail to decide", functions=[danger], approve=lambda approval: None)  # type: ignore[arg-type, return-value]
    assert result.calls[0].status == "denied"
    assert "did z" not in result.calls[0].text


async def test_a_decision_may_hold_for_the_session(client: Client) -> None:
    asked: list[str] = []

    def approve(approval: ApprovalRequired) -> Decision:
        asked.append(approval.approval)
        return Decision.approve(remember="session")

    first = await client.run("remember it", functions=[danger], approve=approve)
    await client.run("remembered now", functions=[danger], approve=approve, session=first.session)
    assert len(asked) == 1
    assert [grant["tool"] for grant in (await client.sessions.permissions(first.session))["grants"]] == ["danger"]
    assert await client.sessions.revoke(first.session) == 1


async def test_a_decision_that_the_server_does_not_take_is_a_no(client: Client) -> None:
    decision = Decision("approve", remember="for ever")
    result = await client.run("not like that", functions=[danger], approve=lambda approval: decision)
    assert result.calls[0].text == "did w"  # the yes counts, once
    wrong = Decision("perhaps")  # type: ignore[arg-type]
    result = await client.run("no decision", functions=[danger], approve=lambda approval: wrong)
    assert result.calls[0].status == "denied"


async def test_who_comes_to_a_turn_later_may_decide_too_and_is_not_asked_what_was_answered(client: Client) -> None:
    asked: list[str] = []

    def approve(approval: ApprovalRequired) -> bool:
        asked.append(approval.approval)
        return True

    async with client.stream("two see it", functions=[danger], answers=True) as turn:
        while not await client.approvals():
            await asyncio.sleep(0.02)
        seen = await client.follow(turn.id, approve=approve).result()
        again = await client.follow(turn.id, approve=approve).result()
    assert (seen.text, again.text, len(asked)) == ("Seen.", "Seen.", 1)


async def test_a_reader_of_the_stream_may_decide_itself(client: Client) -> None:
    seen = []
    async with client.stream("reader decides", functions=[danger], answers=True) as turn:
        async for event in turn:
            if isinstance(event.body, ApprovalRequired):
                assert await turn.approve(event.body)
            if isinstance(event.body, ApprovalResolved | CallFinished):
                seen.append(type(event.body))
    assert seen == [ApprovalResolved, CallFinished]


async def test_without_anybody_to_ask_a_call_is_denied_at_once(client: Client) -> None:
    result = await client.run("with nobody to ask", functions=[danger])
    assert [made.status for made in result.calls] == ["denied"]


# ------------------------------------------------------------------------------------------------ files


async def test_files_go_in_and_declared_ones_come_out(client: Client, tmp_path: Path) -> None:
    given = tmp_path / "in.txt"
    given.write_text("from here")
    result = await client.run("files", files=[given], outputs=["out.csv"])
    assert "from here" in result.calls[0].text
    file = result.file("out.csv")
    assert (file.format, file.mime_type, file.as_text(), file.is_truncated()) == (
        "csv",
        "text/csv",
        "a,b\n1,2\n",
        False,
    )
    assert (await file.save(tmp_path)).read_text() == "a,b\n1,2\n"
    with pytest.raises(FileNotFound):
        result.file("other.csv")


async def test_a_large_file_comes_without_its_body_and_is_fetched(client: Client, tmp_path: Path) -> None:
    result = await client.run("big", outputs=["big.bin"])
    file = result.file("big.bin")
    assert (file.size, file.is_truncated(), file.as_bytes()) == (10_240_000, True, None)
    saved = await file.save(tmp_path / "copy.bin")
    assert saved.read_bytes() == await file.read() == bytes(range(256)) * 40_000
    assert [path.name for path in tmp_path.iterdir()] == ["copy.bin"]


async def test_a_file_that_was_not_made_says_why(client: Client) -> None:
    result = await client.run("missing", outputs=["report.pdf"])
    [file] = result.files
    assert isinstance(file.error, FileNotProduced)
    assert not file.is_truncated()
    with pytest.raises(FileNotProduced):
        result.file("report.pdf")


@pytest.mark.parametrize(
    "given",
    [
        InputFile.from_bytes(b"hello", "a.txt"),
        InputFile.from_text("hello", "a.txt"),
        InputFile.from_url("data:text/plain;base64,aGVsbG8=", "a.txt"),
        InputFile.from_file(io.BytesIO(b"hello"), "a.txt"),
    ],
    ids=["bytes", "text", "url", "file"],
)
async def test_a_file_is_uploaded_from_wherever_it_is(client: Client, given: InputFile) -> None:
    file = await client.files.upload(given)
    assert (file.name, file.size, file.mime_type, file.purpose) == ("a.txt", 5, "text/plain", "user_data")
    assert await file.read_text() == "hello"
    await client.files.delete(file.id)
    with pytest.raises(FileNotFound):
        await client.files.get(file.id)


async def test_a_skill_is_brought_as_a_folder_and_used_by_its_name(client: Client, tmp_path: Path) -> None:
    folder = tmp_path / "report"
    (folder / "tables").mkdir(parents=True)
    (folder / "SKILL.md").write_text("---\nname: Report\ndescription: How we report\n---\nWrite it.\n")
    (folder / "tables" / "rates.csv").write_text("a,b\n")
    (folder / "link").symlink_to("/etc/passwd")
    skill = await client.skills.add(folder)
    assert (skill.name, skill.latest_version) == ("Report", "1")
    assert (await client.skills.add(folder, version_of=skill.id)).latest_version == "2"
    assert (await client.run("hello", skills=["Report"])).text == "Hello."
    await client.skills.delete(skill.id)
    assert await client.skills.list() == []
    with pytest.raises(InvalidRequest, match=r"SKILL\.md"):
        await client.skills.add(tmp_path)


async def test_a_name_with_quotes_and_another_alphabet_arrives_as_it_is(client: Client) -> None:
    file = await client.files.upload(InputFile.from_text("x", 'die "Übersicht" 数.txt'))
    assert file.name == 'die "Übersicht" 数.txt'


async def test_a_file_of_one_session_is_given_to_another(client: Client) -> None:
    first = await client.files.upload(InputFile.from_text("shared", "s.txt"), "one-session")
    result = await client.run("hello", files=[first], session="another-session")
    assert [file.id for file in await client.files.list(result.session)] == [first.id]


# ------------------------------------------------------------------------------------------------ format of answers


class Person(BaseModel):
    name: str
    age: int


async def test_an_answer_is_an_instance_of_the_type_that_was_asked_for(client: Client) -> None:
    result = await client.run("person", output=Person)
    assert result.value == Person(name="Ada", age=36)
    assert (await client.run("person", output={"type": "object"})).value == {"name": "Ada", "age": 36}
    assert (await client.run("choose", output=["yes", "no"])).value == "yes"
    assert (await client.run("choose", output=re.compile("yes|no"))).value == "yes"


async def test_an_answer_of_another_form_is_an_error_with_its_text(client: Client) -> None:
    with pytest.raises(OutputInvalid) as caught:
        await client.run("choose", output=Person)
    assert caught.value.details["text"] == "yes"


# ------------------------------------------------------------------------------------------------ sessions


async def test_sessions_are_listed_renamed_searched_undone_and_deleted(client: Client) -> None:
    result = await client.run("a zebra and hello")
    session = result.session
    assert session in await client.list_session_ids()
    renamed = await client.sessions.rename(session, "Of zebras")
    assert (renamed.title, (await client.sessions.get(session)).title) == ("Of zebras", "Of zebras")
    assert [found.session.id for found in await client.sessions.search("zebra")] == [session]
    assert await client.sessions.undo(session)
    assert await client.sessions.items(session) == []
    assert await client.delete_session(session)
    assert not await client.delete_session(session)
    with pytest.raises(SessionNotFound):
        await client.sessions.get(session)


async def test_branches_are_made_and_switched(client: Client) -> None:
    first = await client.run("hello")
    second = await client.run("hello again", session=first.session)
    main = (await client.sessions.get(first.session)).branch
    made = await client.sessions.branch(first.session, before=second.turn, name="side")
    assert len(await client.sessions.items(first.session)) == 2
    await client.sessions.switch(first.session, main)
    assert len(await client.sessions.items(first.session)) == 4
    assert {branch.name for branch in await client.sessions.branches(first.session)} == {main, made.name}


async def test_a_fork_has_the_first_turns(client: Client) -> None:
    source = (await client.run("hello")).session
    await client.run("hello two", session=source)
    for number, into in ((0, "fork-none"), (1, "fork-one"), (9, "fork-all")):
        await client.fork_session(source, into, number)
    counts = [len(await client.sessions.items(id)) for id in ("fork-none", "fork-one", "fork-all")]
    assert counts == [0, 2, 4]
    with pytest.raises(SessionNotFound):
        await client.fork_session("nowhere", "fork-nothing", 1)


async def test_a_session_goes_out_and_comes_in_again(client: Client) -> None:
    session = (await client.run("hello there")).session
    document = not_none(await client.export_session(session))
    come = await client.sessions.import_document(document)
    assert come.id != session
    assert [line.message for line in await client.sessions.items(come.id)] == [
        line.message for line in await client.sessions.items(session)
    ]
    assert await client.export_session("nowhere") is None


async def test_what_the_server_is_and_has(client: Client) -> None:
    assert (await client.health())["status"] == "ok"
    assert await client.models()
    session = (await client.run("hello")).session
    assert (await client.usage(session))["context"]["tokens"] > 0


# ------------------------------------------------------------------------------------------------ who asks, and errors


async def test_a_wrong_token_is_forbidden(server: AgentServer) -> None:
    async with Client(server.url, token="wrong") as client:
        with pytest.raises(Forbidden):
            await client.run("hello")


async def test_no_server_is_told_after_a_few_tries() -> None:
    async with Client("http://127.0.0.1:9/", token="x", retries=1) as client:
        with pytest.raises(ServerUnreachable):
            await client.health()


async def test_a_server_without_the_extension_is_told(server: AgentServer) -> None:
    async with Client(server.url + "api/", token=TOKEN) as client:
        with pytest.raises(NotFound):
            await client.health()


async def test_the_environment_names_the_server(server: AgentServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(URL, server.url)
    monkeypatch.setenv(TOKEN_NAME, TOKEN)
    async with Client() as client:
        assert (await client.run("hello")).text == "Hello."


async def test_a_running_server_of_this_user_is_found(server: AgentServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(URL, raising=False)
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(server.directory / "runtime"))
    async with Client() as client:
        assert client.place.url == server.agent_url
        assert (await client.run("hello")).text == "Hello."


async def test_a_kernel_speaks_for_its_notebook(server: AgentServer) -> None:
    kernel = await server.start_kernel("of_a_kernel.ipynb")
    code = (
        "import agent_kernel\n"
        "async with agent_kernel.Client() as client:\n"
        "    print((await client.run('hello')).text, client.place.kernel)\n"
        "with agent_kernel.SyncClient() as client:\n"
        "    print(client.run('hello').text)\n"
    )
    assert await server.run_in_kernel(kernel, code) == "Hello. True\nHello.\n"


async def test_a_lasting_token_for_turns_and_files_does_what_it_says(server: AgentServer) -> None:
    _, text = ApiTokenStore(server.directory / "data" / "tokens").new(["turns", "files"])
    async with Client(server.url, token=text) as client:
        result = await client.run("hello", files=[InputFile.from_text("x", "x.txt")])
        assert [line.message.role for line in await client.sessions.items(result.session)][-1] == "assistant"
        assert (await client.run("hello", private=True)).text == "Hello."
        with pytest.raises(Forbidden):
            await client.sessions.list()


def test_a_url_with_a_token_in_it_is_refused() -> None:
    for url in ("http://u:p@host/", "http://host/?token=secret", "ftp://host/", "host:8888"):
        with pytest.raises(InvalidRequest):
            Client(url, token="x")


def test_a_token_is_in_no_repr() -> None:
    assert "secret-token" not in repr(Client("http://127.0.0.1:9/", token="secret-token").place)


async def test_files_are_values_that_can_be_compared(client: Client) -> None:
    file = instance_of(File, await client.files.upload(InputFile.from_text("x", "same.txt")))
    assert await client.files.get(file.id) == file


async def test_a_session_of_a_given_id_is_replaced_by_what_was_exported(client: Client) -> None:
    """As mistral.rs's SDK does; also with what mistral.rs wrote."""
    document = not_none(await client.export_session((await client.run("a whale and hello")).session))
    for _ in range(2):
        await client.import_session("given-id", document)
        said = [line.message.text for line in await client.sessions.items("given-id")]
        assert said == ["a whale and hello", "Hello."]
    theirs = '{"messages": [{"role": {"Left": "user"}, "content": {"Left": "from mistral.rs"}}]}'
    await client.import_session("given-id", theirs)
    assert [line.message.text for line in await client.sessions.items("given-id")] == ["from mistral.rs"]
    with pytest.raises(InvalidRequest):
        await client.import_session("given-id", "{}")
