import asyncio

import pytest

from agent_kernel.core.errors import Conflict, NotFound
from agent_kernel.core.events import CallClaimed, CallOffered, CallOutput, EventBody
from agent_kernel.core.messages import ToolCall
from agent_kernel.core.protocols import ToolContext, ToolOutput
from agent_kernel.tools.base.client_call_broker import MAX_OUTPUT, ClientCallBroker
from tests.turns import KEY

CALL = ToolCall("c1", "python", {"code": "1"})


async def offer_call(broker: ClientCallBroker) -> tuple[asyncio.Task[ToolOutput], list[EventBody]]:
    events: list[EventBody] = []
    waiting = asyncio.create_task(broker.offer(ToolContext(KEY, "t1", 1, CALL, events.append)))
    await asyncio.sleep(0)
    return waiting, events


async def test_the_first_claim_wins_and_its_answer_is_the_result() -> None:
    broker = ClientCallBroker()
    waiting, events = await offer_call(broker)
    token, call = broker.claim("t1", "c1", "magic")
    assert call == CALL
    with pytest.raises(Conflict):
        broker.claim("t1", "c1", "panel")
    broker.output("t1", "c1", token, "stdout", "hi\n")
    broker.finish("t1", "c1", token, ToolOutput("1"))
    assert await waiting == ToolOutput("1")
    assert [type(body) for body in events] == [CallOffered, CallClaimed, CallOutput]


async def test_an_answer_needs_the_claims_token() -> None:
    broker = ClientCallBroker()
    waiting, _ = await offer_call(broker)
    with pytest.raises(Conflict):
        broker.finish("t1", "c1", "", ToolOutput("forged"))
    broker.claim("t1", "c1", "magic")
    with pytest.raises(Conflict):
        broker.finish("t1", "c1", "guess", ToolOutput("forged"))
    assert not waiting.done()
    waiting.cancel()


async def test_a_call_is_answered_once() -> None:
    broker = ClientCallBroker()
    waiting, _ = await offer_call(broker)
    token, _ = broker.claim("t1", "c1", "magic")
    broker.finish("t1", "c1", token, ToolOutput("1"))
    with pytest.raises(Conflict):
        broker.finish("t1", "c1", token, ToolOutput("2"))
    assert (await waiting).text == "1"
    with pytest.raises(NotFound):
        broker.finish("t1", "c1", token, ToolOutput("3"))


async def test_nobody_claiming_is_told_as_no_client_attached() -> None:
    waiting, _ = await offer_call(ClientCallBroker(claim_within_s=0.01))
    output = await waiting
    assert output.status == "error"
    assert "no client attached" in output.text


async def test_a_claimer_that_lapses_is_answered_for_and_nobody_else_gets_the_call() -> None:
    broker = ClientCallBroker(lease_s=0.05)
    waiting, _ = await offer_call(broker)
    broker.claim("t1", "c1", "magic")
    output = await waiting
    assert (output.status, output.text) == ("interrupted", "the client left; it may have run")
    with pytest.raises(NotFound):
        broker.claim("t1", "c1", "panel")


async def test_renewing_keeps_a_claim() -> None:
    broker = ClientCallBroker(lease_s=0.5)
    waiting, _ = await offer_call(broker)
    token, _ = broker.claim("t1", "c1", "magic")
    for _ in range(6):
        await asyncio.sleep(0.1)
        broker.renew("t1", "c1", token)
    assert not waiting.done()
    broker.finish("t1", "c1", token, ToolOutput("late"))
    assert (await waiting).text == "late"


async def test_a_stopped_turn_takes_its_offer_back() -> None:
    broker = ClientCallBroker()
    waiting, _ = await offer_call(broker)
    waiting.cancel()
    await asyncio.wait([waiting])
    with pytest.raises(NotFound):
        broker.claim("t1", "c1", "magic")


async def test_a_declined_call_waits_for_the_others_only_briefly_and_the_reason_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("agent_kernel.tools.base.client_call_broker.OTHERS_WITHIN_S", 0.01)
    broker = ClientCallBroker(claim_within_s=3600.0)
    waiting, _ = await offer_call(broker)
    broker.decline("t1", "c1", "magic", "it has no tool python")
    output = await waiting
    assert output.status == "error"
    assert "it did not run; magic declined: it has no tool python" in output.text


async def test_another_client_may_claim_what_one_has_declined() -> None:
    broker = ClientCallBroker()
    waiting, _ = await offer_call(broker)
    broker.decline("t1", "c1", "magic", "no")
    await asyncio.sleep(0)
    token, _ = broker.claim("t1", "c1", "panel")
    with pytest.raises(Conflict):
        broker.decline("t1", "c1", "magic", "no")
    broker.finish("t1", "c1", token, ToolOutput("1"))
    assert (await waiting).text == "1"


async def test_of_a_very_long_output_the_clients_get_the_beginning_and_the_end() -> None:
    broker = ClientCallBroker()
    waiting, events = await offer_call(broker)
    token, _ = broker.claim("t1", "c1", "magic")
    broker.output("t1", "c1", token, "stdout", "first " + "y " * (8 << 20) + "last")
    shown = events[-1]
    assert isinstance(shown, CallOutput)
    assert len(shown.text) < MAX_OUTPUT + 100
    assert (shown.text[:5], shown.text[-4:], "characters left out" in shown.text) == ("first", "last", True)
    waiting.cancel()
