"""What ``usage`` answers."""

from __future__ import annotations

from typing_extensions import TypedDict


class Limit(TypedDict):
    """``allowed`` 0: no limit. ``used`` is null where it is not counted, because there is none."""

    allowed: int
    used: int | None


class Account(TypedDict):
    """Requests of the last minute, turns that are not over, tokens of the last hour and the last day."""

    requests_per_minute: Limit
    turns_at_once: Limit
    tokens_per_hour: Limit
    tokens_per_day: Limit


class TokenAccount(Account):
    """The share of the scoped token that the request came with."""

    id: str


class Used(Account):
    """Of the user, whatever tokens and kernels asked."""

    user: str
    token: TokenAccount | None
