"""Opens the parts of a server that store data other than sessions: tokens, limits, choices of engines, and keys of
requests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from agent_kernel.core.api_tokens import ApiTokenStore
from agent_kernel.sessions.log.message_bus import MessageBus
from agent_kernel.sessions.store.database import Database
from agent_kernel.sessions.store.schema_migration import migration_scripts
from agent_kernel.sessions.store.shared_tokens import SharedTokens
from agent_kernel.turn.server_runtime import Runtime
from jupyter_ext.quotas.limits import Limits
from jupyter_ext.quotas.request_rates import LocalRates, SharedRates
from jupyter_ext.quotas.spending_rows import DatabaseSpending, SharedSpending
from jupyter_ext.quotas.token_spending import TokenSpending
from jupyter_ext.quotas.turn_slots import LocalSlots, SharedSlots
from jupyter_ext.turns.chosen_engines import EngineChoices
from jupyter_ext.turns.idempotency_rows import DatabaseRows, IdempotencyRows, SharedRows
from jupyter_ext.turns.server_link import ServerLink


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerState:
    """The data that a server stores in addition to its sessions. Servers that share a store share this data; ``link``
    is then the connection to the others, otherwise None."""

    server_db: Database
    link: ServerLink | None
    tokens: ApiTokenStore
    user_limits: Limits
    engine_choices: EngineChoices
    idempotency_rows: IdempotencyRows


def open_server_state(runtime: Runtime) -> ServerState:
    """Create the stores of a server's data other than sessions, and the link to other servers. Nothing connects to a
    database before its first use."""
    settings = runtime.settings
    server_db = open_server_db(None if settings.store == "memory" else settings.data_dir / "requests.db")
    # Only a store that several servers share may have a bus. Without a bus, no link is created.
    open_bus: Callable[[], MessageBus | None] = getattr(runtime.store, "bus", lambda: None)
    bus, tokens_bus = open_bus(), open_bus()
    link = None if bus is None else ServerLink(bus)
    spending = TokenSpending(DatabaseSpending(server_db) if link is None else SharedSpending(link))
    rates = LocalRates() if link is None else SharedRates(link)
    slots = LocalSlots() if link is None else SharedSlots(link)
    return ServerState(
        server_db=server_db,
        link=link,
        tokens=ApiTokenStore(settings.tokens_path, None if tokens_bus is None else SharedTokens(tokens_bus)),
        user_limits=Limits(settings, spending, rates, slots),
        engine_choices=EngineChoices(
            settings.data_dir / "engines" if settings.store in ("sqlite", "files") else None, link
        ),
        idempotency_rows=DatabaseRows(server_db) if link is None else SharedRows(link),
    )


# Opens the database for data that outlives this server but belongs to no session: tokens spent and idempotency keys.
# Servers that share a data directory share it.


def open_server_db(path: Path | None) -> Database:
    """Return the database at ``path``, in memory for None. The file is opened at first use."""
    return Database(path, migration_scripts("jupyter_ext.quotas"), name=str(path or "The record of requests"))
