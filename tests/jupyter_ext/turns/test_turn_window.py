"""Tests windows into a session: a page that opens it later shows the same as a page that watched the turns."""

from __future__ import annotations

import asyncio
import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_kernel.core.errors import TurnNotFound
from agent_kernel.core.events import EventBody
from agent_kernel.core.files import ProducedFile
from agent_kernel.core.messages import Media, assistant, user
from agent_kernel.core.protocols import ToolContext, ToolOutput, ToolSpec
from agent_kernel.core.session import Owner, SessionKey, Turn
from agent_kernel.engines.scripted import ScriptedEngine
from agent_kernel.permissions import Approvals, Gate
from agent_kernel.permissions.approval_answer import Answer
from agent_kernel.sessions.file_registry import FileRegistry
from agent_kernel.sessions.store.memory import MemoryStore
from agent_kernel.turn.agent import Agent, Note, TurnRequest
from agent_kernel.turn.agent_options import TurnServices
from jupyter_ext.turns.event_log import EventLog
from jupyter_ext.turns.stored_events import read_window
from jupyter_ext.turns.turns import LiveTurn, TurnSpec
from tests.waiting import until

KEY = SessionKey("local", "s")
SCHEMA: Mapping[str, Any] = {"type": "object", "properties": {"say": {"type": "string"}}}
PNG = Media.of("image/png", b"a picture")


class Told:
    """A tool whose result is its argument."""

    def __init__(self, name: str, kind: str = "python.sandbox", *, shared: bool = True) -> None:
        self.spec = ToolSpec(name, "", SCHEMA, kind, where="sandbox" if shared else "server", shared_state=shared)

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        say = str(arguments.get("say", ""))
        if say == "raise":
            raise ValueError("no")
        if say == "details":
            return ToolOutput("", details={"exit_code": 1, "sources": [{"url": "https://a.example"}]})
        if say == "too many details":
            return ToolOutput("", details={"rows": ["x"] * 5_000})
        if say == "media":
            return ToolOutput("drawn", media=(PNG,))
        return ToolOutput(say, "timeout" if say == "timeout" else "success")


SAYS = st.sampled_from(["hello", "raise", "details", "media", "timeout", ""])
CALL = st.fixed_dictionaries(
    {"name": st.sampled_from(["one", "two", "none"]), "arguments": st.fixed_dictionaries({"say": SAYS})}
)
ROUND = st.fixed_dictionaries(
    {"text": st.sampled_from(["", "Words. ", "1 + 1"]), "reasoning": st.sampled_from(["", "Hm."])},
    optional={"deltas": st.integers(1, 4)},
)
ROUNDS = st.lists(st.tuples(ROUND, st.lists(CALL, min_size=1, max_size=3)), max_size=4)
END = st.sampled_from([{"text": "Done."}, {"text": "", "reasoning": "Nothing."}, {"fault": "no luck"}])


def blocks(bodies: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the blocks that the panel makes of events (``ui/src/turn``), without output that was streamed."""
    shown: list[dict[str, Any]] = []
    for body in bodies:
        data = dict(body["data"])
        match body["type"]:
            case "text.delta" | "reasoning.delta" as kind:
                if shown and shown[-1]["kind"] == kind and shown[-1]["open"]:
                    shown[-1]["text"] += data["text"]
                else:
                    shown.append({"kind": kind, "text": data["text"], "open": True})
                continue
            case "call.started":
                shown.append({"kind": "call", **data})
            case "approval.required":
                asked = {name: data[name] for name in ("approval", "kind", "target", "source", "label", "again")}
                _last(shown, data["call"])["asked"] = asked
            case "approval.resolved":
                _last(shown, data["call"])["answered"] = (data["decision"], data["reason"])
            case "call.finished":
                media = [{name: medium[name] for name in ("mime", "hash", "size")} for medium in data["media"]]
                _last(shown, data["call"])["result"] = {**data, "media": media}
            case "notice" | "state.lost":
                shown.append({"kind": "notice", **data})
        for block in shown:
            block["open"] = False
    return shown


def _last(shown: list[dict[str, Any]], call: str) -> dict[str, Any]:
    return [block for block in shown if block.get("call") == call][-1]


def wire(bodies: Sequence[EventBody]) -> list[dict[str, Any]]:
    return [
        {"type": body.type, "data": {item.name: getattr(body, item.name) for item in dataclasses.fields(body)}}
        for body in bodies
    ]


async def run_turn(
    script: Sequence[Mapping[str, Any]], store: MemoryStore, gate: Gate | None = None
) -> list[EventBody]:
    heard: list[EventBody] = []
    tools = [Told("one"), Told("two", shared=False), Told("live", "python.live")]
    agent = Agent(store, ScriptedEngine(script), KEY, tools, gate=gate or Gate(Approvals(), answers=frozenset("*")))
    await agent.turn(TurnRequest("Go on.", where="sandbox"), heard.append)
    return heard


async def read_turns(store: MemoryStore, limit: int = 20, before: str = "") -> dict[str, Any]:
    return await read_window(store, KEY, limit, before)


def same(live: Sequence[EventBody], stored: Sequence[Mapping[str, Any]]) -> None:
    ours, theirs = wire(live), list(stored)
    assert blocks(theirs) == blocks(ours)
    ends = ("turn.started", "turn.finished", "context")
    for kind in ends:
        assert [body["data"] for body in theirs if body["type"] == kind][-1:] == [
            body["data"] for body in ours if body["type"] == kind
        ][-1:]


@settings(max_examples=25)
@given(rounds=ROUNDS, end=END)
def test_blocks_of_a_stored_turn_are_those_that_were_shown(rounds: list[Any], end: Mapping[str, Any]) -> None:
    async def turn() -> None:
        store = MemoryStore()
        script = [{**said, "calls": calls} for said, calls in rounds] + [end]
        live = await run_turn(script, store)
        [listed] = (await read_turns(store))["turns"]
        same(live, listed["events"])
        assert listed["created"] <= listed["closed"]
        assert [listed["events"][0]["time"], listed["events"][-1]["time"]] == [
            pytest.approx(listed["created"], abs=1e-3),
            pytest.approx(listed["closed"], abs=1e-3),
        ]
        await store.aclose()

    asyncio.run(turn())


async def test_what_a_person_decided_is_shown_again_and_asked_nobody() -> None:
    store, approvals = MemoryStore(), Approvals()

    async def answer() -> None:
        await until(lambda: approvals.waiting)
        await approvals.answer("local", approvals.waiting[0].question.id, Answer("deny", message="not now"))

    call = {"name": "live", "arguments": {"say": "hello"}}
    answering = asyncio.create_task(answer())
    live = await run_turn(
        [{"calls": [call]}, {"text": "Well."}],
        store,
        Gate(approvals, answers=frozenset("*")),
    )
    await answering
    [listed] = (await read_turns(store))["turns"]
    same(live, listed["events"])
    assert {"approval.required", "approval.resolved"} <= {event["type"] for event in listed["events"]}


async def test_large_details_are_not_kept() -> None:
    store = MemoryStore()
    await run_turn([{"calls": [{"name": "one", "arguments": {"say": "too many details"}}]}, {"text": "."}], store)
    [listed] = (await read_turns(store))["turns"]
    [finished] = [event["data"] for event in listed["events"] if event["type"] == "call.finished"]
    assert finished["details"] == {}
    assert finished["seconds"] > 0


async def test_a_turn_says_what_went_along_and_not_what_the_model_read() -> None:
    store = MemoryStore()
    agent = Agent(store, ScriptedEngine([{"text": "Seen."}]), KEY)
    notes = (Note("cell 3", "x = 1"), Note("@prices", "a list"))
    await agent.run(TurnRequest("What is this?", media=(PNG,), notes=notes, permission="ask"))
    [listed] = (await read_turns(store))["turns"]
    assert (listed["prompt"], listed["context"]) == ("What is this?", ["cell 3", "@prices"])
    assert listed["media"] == [{"mime": "image/png", "hash": PNG.hash, "size": PNG.size}]
    assert listed["record"] == {"permission": "ask"}
    assert listed["usage"]["completion_tokens"] > 0


async def test_a_failed_turn_keeps_its_hint() -> None:
    store = MemoryStore()
    live = await run_turn([{"fault": "no luck"}], store)
    [listed] = (await read_turns(store))["turns"]
    same(live, listed["events"])
    assert listed["record"]["error"]["message"] == "no luck"


async def test_a_turn_that_runs_has_no_events_yet() -> None:
    store, owner = MemoryStore(), Owner.here()
    await store.create(KEY)
    turn = await store.open_turn(Turn("t1", KEY), owner)
    await store.append(turn, owner, [user("Go on.")], 0)
    for line in ([live("t1", "Go on.")], []):  # here, or at another server
        page = await read_window(store, KEY, 20, line=line)
        [listed] = page["turns"]
        assert (listed["running"], listed["prompt"], listed["events"]) == (True, "Go on.", [])
        assert page["waiting"] == []


async def test_turns_that_wait_are_described_by_their_requests() -> None:
    """A page that is loaded again shows what is queued, and can give it back to the person who wrote it."""
    store, owner = MemoryStore(), Owner.here()
    await store.create(KEY)
    await store.open_turn(Turn("t1", KEY), owner)  # it has no items yet
    line = [live("t1", "Go on."), live("t2", "And then?", media=(PNG,), notes=(Note("cell 3", "x"),))]
    page = await read_window(store, KEY, 20, line=line)
    assert [(one["turn"], one["prompt"], one["running"]) for one in page["turns"]] == [("t1", "Go on.", True)]
    [waiting] = page["waiting"]
    assert (waiting["turn"], waiting["prompt"], waiting["context"]) == ("t2", "And then?", ["cell 3"])
    assert waiting["media"] == [{"mime": PNG.mime, "hash": PNG.hash, "size": 9, "data": "YSBwaWN0dXJl"}]
    assert (await read_window(store, KEY, 20, "t1", line=line))["waiting"] == []


def live(id: str, prompt: str, **asked: Any) -> LiveTurn:
    return LiveTurn(id, TurnSpec(KEY, TurnRequest(prompt, **asked)), EventLog(id, KEY.id))


async def test_windows_go_backwards_through_the_branch_that_is_shown() -> None:
    store = await with_turns(7)
    page = await read_turns(store, 3)
    assert ([turn["prompt"] for turn in page["turns"]], page["older"]) == (["q5", "q6", "q7"], True)
    page = await read_turns(store, 3, "t5")
    assert ([turn["prompt"] for turn in page["turns"]], page["older"]) == (["q2", "q3", "q4"], True)
    page = await read_turns(store, 3, "t2")
    assert ([turn["prompt"] for turn in page["turns"]], page["older"]) == (["q1"], False)
    await store.branch(KEY, before="t4")
    assert [turn["turn"] for turn in (await read_turns(store, 2))["turns"]] == ["t2", "t3"]
    with pytest.raises(TurnNotFound):
        await read_turns(store, 2, "t5")


async def with_turns(count: int) -> MemoryStore:
    store = MemoryStore()
    for number in range(1, count + 1):
        await store.add_turn(Turn(f"t{number}", KEY), [user(f"q{number}"), assistant(f"a{number}")])
    return store


class Counting:
    """A store that counts its calls and the turns and items that it returned."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self.asked: Counter[str] = Counter()
        self.given: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)

        async def counted(*given: Any, **options: Any) -> Any:
            answer = await method(*given, **options)
            self.asked[name] += 1
            self.given[name] += len(answer) if isinstance(answer, list) else 1
            return answer

        return counted


async def test_a_window_costs_the_same_in_a_session_of_any_length() -> None:
    costs = []
    for turns in (40, 500):
        store: Any = Counting(await with_turns(turns))
        page = await read_window(store, KEY, 20, "t35")
        assert len(page["turns"]) == 20
        costs.append((dict(store.asked), dict(store.given)))
    assert costs[0] == costs[1]
    asked, given = costs[0]
    assert given["turns"] == 21
    assert given["of_turn"] == 2 * 20
    assert sum(asked.values()) <= 3 * 20


async def test_files_of_a_turn_stand_with_the_call_that_made_them(tmp_path: Path) -> None:
    class Writes:
        spec = ToolSpec("write", "", {"type": "object"}, "python.sandbox")

        async def call(self, arguments: object, context: ToolContext) -> ToolOutput:
            return ToolOutput("written", files=(ProducedFile("a.csv", b"1,2"),))

    store, heard = MemoryStore(), list[EventBody]()
    agent = Agent(
        store,
        ScriptedEngine([{"calls": [{"name": "write", "arguments": {}}]}, {"text": "."}]),
        KEY,
        [Writes()],
        gate=Gate(Approvals(), answers=frozenset("*")),
        services=TurnServices(files=FileRegistry(store, tmp_path, output_bytes=1 << 20, upload_bytes=1 << 20)),
    )
    await agent.turn(TurnRequest("Write."), heard.append)
    [listed] = (await read_turns(store))["turns"]
    [live] = [body for body in wire(heard) if body["type"] == "file.produced"]
    [kept] = [event for event in listed["events"] if event["type"] == "file.produced"]
    assert kept["data"]["call"] == live["data"]["call"] != ""
    assert kept["data"]["file"]["name"] == "a.csv"
