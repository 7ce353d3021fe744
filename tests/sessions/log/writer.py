"""Writes records to one session of the store ``argv[1]`` until it is killed, and prints the number of each record that
was acknowledged.

A record has five messages that contain the name of the writer (``argv[2]``) and the number. Every second record is
stored by one call, as programs and other frameworks do; the others are written as a server does: open a turn, append
three times, close it.
"""

from __future__ import annotations

import asyncio
import itertools
import sys

from agent_kernel.core.errors import SessionBusy
from agent_kernel.core.messages import Media, Message, assistant, user
from agent_kernel.core.seams.session_store import SessionStore
from agent_kernel.core.session import Owner, SessionKey, Turn
from agent_kernel.sessions.contract_tests.fixtures import calls, result
from agent_kernel.sessions.store.store_url import open_store

KEY = SessionKey("local", "s")


def record(text: str) -> list[Message]:
    picture = Media.of("image/png", text.encode() * 50)
    answers = [result("a", f"{text} a"), result("b", f"{text} b")]
    return [user(text, [picture]), calls("a", "b"), *answers, assistant(f"{text} done")]


async def run_turn(store: SessionStore, owner: Owner, text: str) -> None:
    turn = await store.open_turn(Turn(text, KEY), owner)
    messages = record(text)
    session = await store.info(KEY)
    assert session is not None
    seq = session.head
    for batch in (messages[:2], messages[2:3], messages[3:]):
        seq = (await store.append(turn, owner, batch, seq))[-1].seq
    assert await store.close_turn(turn, owner, "committed")


async def write(store: SessionStore, owner: Owner, number: int) -> None:
    text = f"{sys.argv[2]} {number}"
    if number % 2:
        await run_turn(store, owner, text)
    else:
        await store.add_messages(KEY, record(text))


async def main() -> None:
    store, owner = open_store(sys.argv[1]), Owner.here()
    await store.create(KEY)
    for number in itertools.count():
        while True:
            try:
                await write(store, owner, number)
                break
            except SessionBusy:  # another writer has a turn open; it may have been killed
                await store.recover()
                await asyncio.sleep(0.002)
        print(number, flush=True)


if __name__ == "__main__":
    asyncio.run(main())
