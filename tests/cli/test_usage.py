"""``agent-kernel sessions usage``."""

from __future__ import annotations

from agent_kernel.core.messages import Usage, assistant, user
from agent_kernel.core.session import SessionKey, Turn
from agent_kernel.sessions.store.sqlite import SqliteStore
from tests.cli.conftest import Command

CALLS = {"calls": {"python": {"count": 2, "seconds": 0.5, "outcomes": {"error": 1, "success": 1}}}}


async def fill_store(store: SqliteStore) -> None:
    for namespace, id, tokens in (("local", "rain", 100), ("local", "sun", 20), ("ann", "rain", 3)):
        turn = Turn(f"t-{id}", SessionKey(namespace, id), model="small", record=CALLS if tokens == 100 else {})
        await store.add_turn(turn, [user("q"), assistant("a")], usage=Usage(tokens, 1_000, seconds=1.5))


def test_usage_tells_what_turns_cost_in_all_in_a_namespace_or_in_one_session(command: Command) -> None:
    command.on_store(fill_store)
    assert command("sessions", "usage", "--json").json["total"]["prompt_tokens"] == 123
    assert command("sessions", "usage", "--namespace", "ann", "--json").json["total"]["prompt_tokens"] == 3
    assert command("sessions", "usage", "sun", "--json").json["total"]["prompt_tokens"] == 20
    shown = command("sessions", "usage").out
    assert "3,000" in shown
    assert "model  small" in shown
    assert "1 error, 1 success" in shown
    missing = command("sessions", "usage", "nothing")
    assert (missing.status, "There is no session 'nothing'" in missing.err) == (1, True)
