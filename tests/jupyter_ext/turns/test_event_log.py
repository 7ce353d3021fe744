from __future__ import annotations

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from agent_kernel.core.events import (
    CallFinished,
    CallOutput,
    ContextBuilt,
    Event,
    EventBody,
    FileProduced,
    Notice,
    TextDelta,
    TurnFinished,
)
from jupyter_ext.turns.event_log import EventLog
from tests.turns import text_of

END = TurnFinished("committed", "", 0, {})


async def collect(log: EventLog, after: int = 0) -> list[Event]:
    return [event async for event in log.follow(after)]


async def test_events_are_numbered_from_one_and_the_round_grows_with_each_context() -> None:
    log = EventLog("t", "s")
    bodies: list[EventBody] = [ContextBuilt(1, 0), Notice("info", "a"), ContextBuilt(2, 0), END]
    for body in bodies:
        log.append(body)
    assert [(event.seq, event.round) for event in await collect(log)] == [(1, 1), (2, 1), (3, 2), (4, 2)]


async def test_two_readers_that_come_at_different_times_see_the_same_numbering() -> None:
    log = EventLog("t", "s")
    early = asyncio.create_task(collect(log))
    for number in range(50):
        log.append(TextDelta(f"{number} "))
        await asyncio.sleep(0.002 if number % 7 == 0 else 0)
    late = asyncio.create_task(collect(log))
    log.append(END)
    assert await early == await late


async def test_a_reader_gets_the_events_that_exist_in_lists_of_at_most_a_hundred() -> None:
    log = EventLog("t", "s")
    for number in range(250):
        log.append(Notice("info", str(number)))
    batches = log.follow_batches(20)
    assert [len(await anext(batches)) for _ in range(3)] == [100, 100, 30]
    waiting = asyncio.ensure_future(anext(batches))
    await asyncio.sleep(0)
    log.append(Notice("info", "250"))
    log.append(END)
    assert [event.seq for event in await waiting] == [251, 252]
    assert [batch async for batch in batches] == []


async def test_nothing_comes_after_the_end_of_a_turn() -> None:
    log = EventLog("t", "s")
    log.append(END)
    log.append(Notice("info", "late"))
    log.append(TextDelta("late"))
    assert [event.body for event in await collect(log)] == [END]


async def test_a_reader_that_has_all_of_a_finished_turn_gets_nothing_and_does_not_wait() -> None:
    log = EventLog("t", "s")
    log.append(END)
    assert await asyncio.wait_for(collect(log, after=99), 10) == []


async def test_a_full_log_joins_old_deltas_and_a_late_reader_still_gets_all_the_text() -> None:
    log = EventLog("t", "s", max_events=100)
    said = [f"word{number} " for number in range(1000)]
    for word in said:
        log.append(TextDelta(word))
        await asyncio.sleep(0)
    log.append(END)
    events = await collect(log)
    assert text_of(events) == "".join(said)
    assert len(events) <= 101
    assert events[-1].seq == 1001


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text("ab", min_size=1, max_size=5), min_size=1, max_size=80), st.data())
def test_a_reader_resumes_inside_joined_deltas_without_a_gap_or_a_repeat(words: list[str], data: st.DataObject) -> None:
    async def check() -> None:
        log = EventLog("t", "s", max_events=8)
        seen: list[Event] = []
        stop = data.draw(st.integers(0, len(words)))
        for index, word in enumerate(words):
            log.append(TextDelta(word))
            if index + 1 == stop:
                seen = list(log.since(0))
        log.append(END)
        rest = list(log.since(seen[-1].seq if seen else 0))
        assert text_of(seen) + text_of(rest) == "".join(words)

    asyncio.run(check())


async def test_a_log_over_its_bytes_drops_the_output_of_old_calls_and_the_data_of_old_images_but_no_answer() -> None:
    log = EventLog("t", "s", max_bytes=50_000)
    log.append(TextDelta("the answer"))
    for number in range(20):
        log.append(CallOutput(f"c{number}", "x" * 2000))
        log.append(
            CallFinished(
                f"c{number}", "python", "success", "ok", 0.1, ({"mime": "image/png", "hash": "h", "data": "y" * 2000},)
            )
        )
    log.append(END)
    events = await collect(log)
    assert sum(len(str(event.to_json())) for event in events) < 50_000
    assert text_of(events) == "the answer"
    finished = [event.body for event in events if isinstance(event.body, CallFinished)]
    assert [body.call for body in finished] == [f"c{number}" for number in range(20)]
    assert "data" not in finished[0].media[0]
    assert finished[-1].media[0]["data"]


async def test_bodies_of_files_are_left_out_first_and_their_facts_stay() -> None:
    log = EventLog("t", "s", max_bytes=1000)
    for number in range(5):
        log.append(FileProduced("c", {"id": f"file-{number}", "name": "a.txt", "text": "x" * 900}))
    files = [event.body.file for event in log.since(0) if isinstance(event.body, FileProduced)]
    assert [file["id"] for file in files] == [f"file-{number}" for number in range(5)]
    assert [file["name"] for file in files] == ["a.txt"] * 5
    assert sum("text" in file for file in files) <= 1
