"""Tests limits from the settings to the running server."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_kernel.core.errors import InvalidRequest, QuotaExceeded
from agent_kernel.core.session import Session, SessionKey
from agent_kernel.core.settings import Settings
from agent_kernel.sessions.retention.limited_store import LimitedStore
from agent_kernel.turn.observers import SessionObserver
from agent_kernel.turn.server_runtime import Runtime
from jupyter_ext.api.http.error_status import status_of

KEY = SessionKey("local", "s")
told: list[str] = []


class Noting(SessionObserver):
    def on_session_expire(self, session: Session) -> None:
        told.append(session.key.id)


class Forgetful:
    """A store that does not know which sessions are unused."""

    def __init__(self, settings: Settings) -> None: ...


def settings(tmp_path: Path, **more: object) -> Settings:
    return Settings.from_env({}, data_dir=str(tmp_path), store="memory", **more)


async def test_a_server_without_limits_has_the_store_as_it_is(tmp_path: Path) -> None:
    runtime = Runtime.build(settings(tmp_path))
    assert not isinstance(runtime.store, LimitedStore)
    await runtime.aclose()


async def test_a_server_applies_its_limits_and_tells_its_observers(tmp_path: Path) -> None:
    told.clear()
    runtime = Runtime.build(settings(tmp_path, max_sessions="1", observers=f"{__name__}:Noting"))
    await runtime.start()
    await runtime.store.create(KEY)
    await runtime.store.create(SessionKey("local", "newer"))
    assert await runtime.store.info(KEY) is None
    assert told == ["s"]
    await runtime.aclose()
    assert told == ["s", "newer"]


async def test_a_quota_reaches_the_store_and_is_507_over_http(tmp_path: Path) -> None:
    runtime = Runtime.build(settings(tmp_path, quota_sessions="1"))
    await runtime.store.create(KEY)
    with pytest.raises(QuotaExceeded) as caught:
        await runtime.store.create(SessionKey("local", "other"))
    assert status_of(caught.value) == 507
    await runtime.aclose()


@pytest.mark.parametrize(
    "wrong", [{"ttl": "soon"}, {"limits": "other"}, {"ttl": "1h", "store": f"{__name__}:Forgetful"}]
)
async def test_limits_that_make_no_sense_end_the_start(tmp_path: Path, wrong: dict[str, str]) -> None:
    with pytest.raises(InvalidRequest, match=r"ttl|limits"):
        Runtime.build(Settings.from_env({}, data_dir=str(tmp_path), **wrong))
