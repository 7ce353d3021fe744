"""Response bodies of ``usage``."""

from __future__ import annotations

from typing_extensions import TypedDict


class Limit(TypedDict):
    """One limit and how much of it is used. Without a limit, ``allowed`` is 0 and ``used`` is null, because nothing is
    counted then."""

    allowed: int
    used: int | None


class Account(TypedDict):
    """The limits of a user or a token, and how much of them is used. They count the requests of the last minute, the
    unfinished turns, and the tokens of the last hour and the last day."""

    requests_per_minute: Limit
    turns_at_once: Limit
    tokens_per_hour: Limit
    tokens_per_day: Limit


class TokenAccount(Account):
    """The limits of the scoped token with which the request came."""

    id: str


class Used(Account):
    """The limits of the user. The use of all tokens and kernels of the user is included."""

    user: str
    token: TokenAccount | None
