"""Uses a store that cannot be opened, and collects the texts that a person may see of the failure."""

from __future__ import annotations

import traceback
from contextlib import aclosing

import pytest

from agent_kernel.core.errors import InvalidRequest, StoreError
from agent_kernel.sessions.store.store_url import open_store
from tests.sessions.talk import KEY


async def text_of_failed_use(url: str) -> str:
    """Open the store at ``url`` and read from it, which has to fail with a hint. Return the fields of the store, if
    it was created, and the error's message, hint, details and traceback, as one text."""
    shown = ""

    async def use() -> None:
        nonlocal shown
        store = open_store(url)
        shown = repr(store.__dict__)
        async with aclosing(store):
            await store.info(KEY)

    with pytest.raises((InvalidRequest, StoreError)) as raised:
        await use()
    assert raised.value.hint
    shown += f"{raised.value} {raised.value.hint} {raised.value.details}"
    # The source lines of this function are part of the traceback, the URL is not.
    return shown + "".join(traceback.format_exception(raised.value, chain=True))
