"""Offers calls that must run in the notebook to the clients of the notebook. One of the clients claims each call and
runs it once."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from agent_kernel.core.errors import Conflict, NotFound
from agent_kernel.core.events import CallClaimed, CallOffered, CallOutput
from agent_kernel.core.messages import ToolCall, shorten
from agent_kernel.core.protocols import ToolContext, ToolOutput

CLAIM_WITHIN_S = 10.0
OTHERS_WITHIN_S = 2.0
"""Seconds in which another client may still claim a call after one client has declined it."""
RENEW_S = 15.0
LEASE_S = 90.0
MAX_OUTPUT = 256 << 10
"""Maximum number of characters of one piece of output. The search for secrets in a piece blocks the event loop."""
MAX_DECLINED = 8
"""Maximum number of clients for each call whose reasons for declining are kept."""


@dataclass(slots=True)
class OfferedCall:
    """A call that clients can claim. ``declined`` maps clients that cannot run it to their reasons; ``news`` is set
    when a client claims or declines it."""

    context: ToolContext
    result: asyncio.Future[ToolOutput]
    token: str = ""
    renewed: float = 0.0
    claimed: CallClaimed | None = None
    declined: dict[str, str] = field(default_factory=dict)
    news: asyncio.Event = field(default_factory=asyncio.Event)


class ClientCallBroker:
    """The calls in this process that wait for a client of the notebook. The first claim wins; its token authorises
    everything that follows.

    A client renews its claim every RENEW_S seconds. If it has not renewed it for LEASE_S seconds, the broker ends the
    call with a result of its own: the client may have run the code, so no other client receives the call.
    """

    def __init__(self, *, claim_within_s: float = CLAIM_WITHIN_S, lease_s: float = LEASE_S) -> None:
        self._offers: dict[tuple[str, str], OfferedCall] = {}
        self._claim_within_s = claim_within_s
        self._lease_s = lease_s

    async def offer(self, context: ToolContext) -> ToolOutput:
        """Offer a call, wait until a client has claimed and run it, and return the client's result."""
        loop = asyncio.get_running_loop()
        key = (context.turn, context.call.id)
        offer = self._offers[key] = OfferedCall(context, loop.create_future())
        context.emit(CallOffered(context.call.id, context.call.name, context.call.arguments))
        try:
            return await self._answer(offer, loop.time)
        finally:
            del self._offers[key]

    async def _answer(self, offer: OfferedCall, now: Callable[[], float]) -> ToolOutput:
        if not await self._await_claim(offer, now):
            reasons = "".join(f"; {client} declined: {reason}" for client, reason in offer.declined.items())
            return ToolOutput(f"no client attached: nobody claimed this call, so it did not run{reasons}", "error")
        while True:
            remaining = offer.renewed + self._lease_s - now()
            if remaining <= 0:
                return ToolOutput("the client left; it may have run", "interrupted")
            finished, _ = await asyncio.wait([offer.result], timeout=remaining)
            if finished:
                return offer.result.result()

    async def _await_claim(self, offer: OfferedCall, now: Callable[[], float]) -> bool:
        until = now() + self._claim_within_s
        while not offer.token and (remaining := until - now()) > 0:
            offer.news.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(offer.news.wait(), remaining)
            if offer.declined:
                until = min(until, now() + OTHERS_WITHIN_S)
        return bool(offer.token)

    def claim(self, turn: str, call: str, client: str) -> tuple[str, ToolCall]:
        """Claim a call for ``client``. Return the token of the claim, and the call. Raises NotFound if the call is not
        offered, Conflict if another client has claimed it."""
        offer = self._find(turn, call)
        if offer.token:
            raise Conflict("Another client runs this call.")
        offer.token = secrets.token_urlsafe(16)
        offer.renewed = asyncio.get_running_loop().time()
        offer.news.set()
        offer.claimed = CallClaimed(call, client)
        offer.context.emit(offer.claimed)
        return offer.token, offer.context.call

    def decline(self, turn: str, call: str, client: str, reason: str) -> None:
        """Record that this client cannot run the call; another client may still claim the call. Raises NotFound if the
        call is not offered, Conflict if a client has claimed it."""
        offer = self._find(turn, call)
        if offer.token:
            raise Conflict("Another client runs this call.")
        if len(offer.declined) < MAX_DECLINED:
            offer.declined[client] = reason
            offer.news.set()

    def renew(self, turn: str, call: str, token: str, where: str = "", state: str = "running") -> None:
        """Renew the claim. If ``where`` or ``state`` has changed, announce the change to the clients that follow the
        turn."""
        offer = self._find_claimed(turn, call, token)
        assert offer.claimed is not None, "its token was given out"
        claimed = replace(offer.claimed, where=where, state=state)
        if claimed != offer.claimed:
            offer.claimed = claimed
            offer.context.emit(claimed)

    def output(self, turn: str, call: str, token: str, stream: str, text: str) -> None:
        """Announce output of the call to the clients that follow the turn. Each call of this method announces at most
        MAX_OUTPUT characters; the result of the call has limits of its own."""
        self._find_claimed(turn, call, token).context.emit(CallOutput(call, shorten(text, MAX_OUTPUT), stream))

    def finish(self, turn: str, call: str, token: str, output: ToolOutput) -> None:
        """Set the result of a claimed call. Raises NotFound if the turn no longer waits for the result (because the
        turn was stopped, or the claim expired), Conflict if the call already has a result."""
        offer = self._find_claimed(turn, call, token)
        if offer.result.done():
            raise Conflict("This call already has a result.")
        offer.result.set_result(output)

    def _find(self, turn: str, call: str) -> OfferedCall:
        offer = self._offers.get((turn, call))
        if offer is None:
            raise NotFound(
                "No client can claim or answer this call: it has ended, or it was never offered.",
                hint="Discard the result.",
            )
        return offer

    def _find_claimed(self, turn: str, call: str, token: str) -> OfferedCall:
        offer = self._find(turn, call)
        if not offer.token or not hmac.compare_digest(offer.token.encode(), token.encode()):
            raise Conflict("Another client runs this call.")
        offer.renewed = asyncio.get_running_loop().time()
        return offer
