"""Response bodies of ``usage``."""

from __future__ import annotations

from typing_extensions import TypedDict


class Limit(TypedDict):
    """``allowed`` is 0 and ``used`` is null if there is no limit, because nothing is counted then."""

    allowed: int
    used: int | None


class Account(TypedDict):
    """The limits of a user or a token. They count the requests of the last minute, the unfinished turns, and the tokens
    of the last hour and the last day."""

    requests_per_minute: Limit
    turns_at_once: Limit
    tokens_per_hour: Limit
    tokens_per_day: Limit


class TokenAccount(Account):
    """What the scoped token of the request has used."""

    id: str


class Used(Account):
    """What the user has used, with all tokens and kernels."""

    user: str
    token: TokenAccount | None
