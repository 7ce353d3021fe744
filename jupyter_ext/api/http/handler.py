"""Base class of all handlers: authorization, request bodies, error responses and streams."""

from __future__ import annotations

import asyncio
import functools
import json
import math
import re
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Any, ClassVar, Literal, TypeAlias, TypeVar, cast

from jupyter_core.utils import ensure_async
from jupyter_server.auth.decorator import allow_unauthenticated
from pydantic import BaseModel
from tornado import web

from agent_kernel.core.api_tokens import TOKEN_NAMESPACE_MARK, ApiToken
from agent_kernel.core.errors import (
    AgentKernelError,
    Forbidden,
    InvalidRequest,
    KeyReused,
    StoreError,
    TokenInvalid,
    TurnStopped,
    Unauthenticated,
)
from jupyter_ext.api.http import json_body, request_log, sse
from jupyter_ext.api.http.body_buffer import DROPPED, BodyBuffer, read_form
from jupyter_ext.api.http.cross_origin import GUARD, CrossOriginHandler, allow_header
from jupyter_ext.api.http.error_status import CODES, status_of
from jupyter_ext.api.http.stream_writer import StreamWriter
from jupyter_ext.api.http.token_check import token_check
from jupyter_ext.api.schemas.errors import Error
from jupyter_ext.api.schemas.operation import takes_json
from jupyter_ext.auth import request_token
from jupyter_ext.auth.callers import Caller, TokenUser, namespace_of
from jupyter_ext.auth.page_check import check_page, page_may_call
from jupyter_ext.auth.route_scopes import RouteScopes, check_shared_user
from jupyter_ext.notebooks.kernels import Kernel
from jupyter_ext.services import SETTING, Services

KERNEL_HEADER = "X-Agent-Kernel-Token"
UNLIMITED = 1 << 50
"""The body limit that is set in tornado, which would answer a larger body in its own error format. ``BodyBuffer``
enforces the real limit."""
WORTH_WAITING_S = 60.0
BODY_HEADERS = {"Content-Length", "Transfer-Encoding"}
REQUEST_ID = re.compile(r"[\w.:-]{1,64}")

Action: TypeAlias = Literal["read", "write", "execute"]
M = TypeVar("M", bound=BaseModel)
V = TypeVar("V", bound=Callable[..., Awaitable[None]])


@web.stream_request_body
class AgentHandler(CrossOriginHandler):
    """Base class of all handlers. It accepts three kinds of callers: a kernel with its credential, a program with a
    long-lived API token whose scopes include the route, and a user whom the authorizer allows the action on
    ``agent``."""

    auth_resource = "agent"
    error_shape: ClassVar[Any] = Error
    """The schema of all errors of the handler, for the OpenAPI document."""
    max_body = json_body.MAX_BODY
    """The maximum bytes of a body that is stored in memory."""
    caller: Caller
    request_id: str
    route = ""
    """The name of the route: its path below ``agent/v1``, as in the log."""
    scopes = RouteScopes()
    keep_alive = sse.KEEP_ALIVE
    """The bytes that a stream sends if it had no other data for KEEP_ALIVE_S seconds."""
    lasting = ""
    """The long-lived API token (``agent-kernel token new``) of the request, whether valid or not; empty if there is
    none."""
    token_in_address = False
    refusal: web.HTTPError | AgentKernelError | None = None
    """An error that is known before the body is read. It is sent after the body, because a client that is still sending
    may not see an earlier answer."""
    gathered: BodyBuffer | None = None
    _writer: StreamWriter | None = None
    _noted = False

    @property
    def services(self) -> Services:
        services: Services = self.settings[SETTING]
        return services

    @functools.cached_property
    def kernel(self) -> Kernel | None:
        """The kernel whose valid credential came with the request."""
        token = self.request.headers.get(KERNEL_HEADER)
        return self.services.kernels.find_by_token(token) if token else None

    def initialize(self, **kwargs: Any) -> None:
        request_id = self.request.headers.get("X-Request-ID", "")
        self.request_id = request_id if REQUEST_ID.fullmatch(request_id) else f"req_{secrets.token_hex(8)}"
        self.route, self.scopes = kwargs.get("route", ""), kwargs.get("scopes", self.scopes)

    async def prepare(self) -> None:  # type: ignore[override]  # as APIHandler itself does
        self.begin()
        self.services.requests.began(self)
        self.request.connection.set_max_body_size(UNLIMITED)  # type: ignore[union-attr]  # it is HTTP/1
        self.gathered = BodyBuffer(self.max_body)
        if self.announced_bytes > self.max_accepted + DROPPED:
            raise web.HTTPError(413, f"A body can have at most {self.max_accepted >> 20} MiB.")
        await self.identify(super().prepare)
        if self.refusal is not None or not page_may_call(self) or not await self._knows_sender():
            self.gathered.most = 0  # a body whose sender is not authenticated is not stored

    @property
    def announced_bytes(self) -> int:
        """The length of the body by its header; 0 if the request has none."""
        length = self.request.headers.get("Content-Length", "")
        return int(length[:20]) if length.isdecimal() else 0

    @property
    def max_accepted(self) -> int:
        """The maximum bytes of a body, in memory or elsewhere."""
        return self.max_body

    async def identify(self, prepare: Callable[[], Awaitable[Any]]) -> None:
        """Run Jupyter's ``prepare``, which identifies the caller. If Jupyter refuses a known user, or the identity
        provider raises an error of its own, the refusal is stored for ``check_page``. Callers whom Jupyter does not
        know are refused later by ``admit``, with an error that fits the credential that was sent."""
        try:
            await prepare()
        except AgentKernelError as error:
            self.refusal, self.current_user = error, None
        except web.HTTPError as error:
            if self.refusal is None and self.current_user:
                self.refusal = error

    def check_host(self) -> bool:
        allow_header = super().check_host()
        if not allow_header:
            self.refusal = Forbidden(
                "This server does not accept the name in the Host header of this request.",
                hint="Add the name with c.ServerApp.local_hostnames, or agent-kernel serve --allow-host NAME.",
            )
        return allow_header

    async def _knows_sender(self) -> bool:
        """Return whether the sender of the body is authenticated, so that the body may be stored. A request with a
        long-lived API token but without a body returns False; ``admit`` checks it later."""
        if not self.lasting and not isinstance(self.current_user, TokenUser):
            return bool(self.current_user or self.kernel)
        if not self.request.headers.keys() & BODY_HEADERS:
            return False
        try:
            await asyncio.to_thread(self._read_token)
        except (TokenInvalid, StoreError):  # ``admit`` raises it again
            return False
        return True

    def _read_token(self) -> ApiToken:
        """Return the long-lived API token in the headers of the request, or of the login of its browser. Blocking.
        Raises TokenInvalid, StoreError."""
        if self.lasting or not isinstance(self.current_user, TokenUser):
            return self.services.state.tokens.holder(self.lasting)
        return self.services.state.tokens.find(self.current_user.token_id)

    def decode_argument(self, value: bytes, name: str | None = None) -> str:
        try:
            return super().decode_argument(value, name)
        except web.HTTPError:
            error = web.HTTPError(400, "The URL is not valid UTF-8.")  # tornado's message repeats what was sent
            if name is not None:
                raise error from None
            self.refusal = error  # the error is sent after the body was read (see ``refusal``)
            return ""

    async def data_received(self, chunk: bytes) -> None:
        if self.gathered is not None:
            self.gathered.take(chunk)
            if self.gathered.endless:
                self.send_error(413)

    def receive(self) -> None:
        """Store the received body in the request, and parse it if it is a form. Raises HTTPError with the status 413 if
        it is too large."""
        if self.gathered is None:
            return
        if self.gathered.too_large:
            raise web.HTTPError(413, f"A body can have at most {self.max_body >> 20} MiB.")
        self.request.body, self.gathered = self.gathered.whole(), None
        if self.request.body:
            read_form(self.request)

    @allow_unauthenticated
    async def head(self, *args: str) -> None:
        answer = self.get(*args) if hasattr(self.get, GUARD) else None
        if answer is None:
            raise web.HTTPError(405)
        await answer

    def on_finish(self) -> None:
        super().on_finish()
        self.services.requests.on_end(self)
        self._note(self.get_status())

    def _note(self, status: int) -> None:
        if not self._noted:
            self._noted = True
            caller: Caller | None = getattr(self, "caller", None)
            request_log.write(
                self.log, self.request, status, route=self.route, request_id=self.request_id, caller=caller
            )

    def _log(self) -> None:
        self._hide_address()
        super()._log()

    def log_exception(self, *error: Any) -> None:
        self._hide_address()
        super().log_exception(*error)

    def _hide_address(self) -> None:
        """Put the name of the route in place of the address, which Jupyter and tornado log for refused requests: it may
        contain ids, and text of a person."""
        self.request.uri = f"{self.base_url}agent/v1/{self.route}"

    def begin(self) -> None:
        """Read the request's token, also from ``x-api-key``, the header of other vendors' SDKs."""
        headers = self.request.headers
        self.token_in_address = request_token.drop_from_address(self.request)
        self.lasting = request_token.take_token(headers)
        if "x-api-key" in headers and "Authorization" not in headers:
            headers["Authorization"] = f"token {headers['x-api-key']}"
        self.set_header("X-Request-ID", self.request_id)

    def check_xsrf_cookie(self) -> None:
        """Skip the XSRF check for a request with a credential in a header, because a page of another site cannot send
        one. ``admit`` refuses a header whose credential is not valid, even if cookies came with it."""
        if KERNEL_HEADER not in self.request.headers and not self.lasting:
            super().check_xsrf_cookie()

    async def admit(self, action: Action, *, kernels: bool) -> Caller:
        """Return the caller if it may do the action. Raises Forbidden, Unauthenticated, TokenInvalid."""
        configured = self.services.runtime.settings.namespace
        if KERNEL_HEADER in self.request.headers:
            if self.kernel is None:
                raise Unauthenticated("The credential of this kernel is not valid.", hint="Restart the kernel.")
            if not kernels:
                raise Forbidden("Code in a kernel may not do this; only a person can, in the browser.")
            return Caller(self.kernel.namespace, kernel=self.kernel)
        if self.lasting or isinstance(self.current_user, TokenUser):
            return await self._holder()
        user = self.current_user
        if not user:
            raise request_token.unauthenticated_error(self.request.headers, in_address=self.token_in_address)
        if TOKEN_NAMESPACE_MARK in user.username:
            raise Forbidden(f"The name of a user cannot contain {TOKEN_NAMESPACE_MARK}.")
        if not await ensure_async(self.authorizer.is_authorized(self, user, action, self.auth_resource)):
            raise Forbidden(f"You may not {action} agents on this server.")
        check_shared_user(self.scopes.for_verb(self.request.method or ""), user)
        return Caller(namespace_of(configured, user), user=user)

    async def _holder(self) -> Caller:
        """Return the holder of the long-lived API token. This runs after the body was read, because the token may have
        been revoked meanwhile. Raises TokenInvalid, Forbidden."""
        token = await asyncio.to_thread(self._read_token)
        self.current_user = None  # the token identifies the caller, whatever cookies the request has
        enough = self.scopes.for_verb(self.request.method or "")
        if not enough:
            raise Forbidden("No token allows this; only a person can do it, in the browser.")
        if not token.has_any_scope(enough):
            scopes = " or ".join(sorted(enough | {"all"}))
            raise Forbidden(
                "The scopes of this token do not allow this request.", hint=f"Use a token with the scope {scopes}."
            )
        return Caller(token.namespace(namespace_of(self.services.runtime.settings.namespace, None)), token=token)

    def parse(self, model: type[M]) -> M:
        """Parse the body. Raises InvalidRequest, and the errors of ``json_body``."""
        return json_body.parse(model, self.json_body(), self.max_body)

    def json_body(self) -> bytes:
        """Return the body. Raises HTTPError 415 if it is not JSON, or compressed, as its headers say."""
        if self.request.body and (problem := json_body.header_problem(self.request.headers)):
            raise web.HTTPError(415, problem)
        return self.request.body

    def number(self, name: str, default: int | None = None) -> int | None:
        """Return a whole number of 0 or more from the query. Raises InvalidRequest."""
        raw = self.get_argument(name, None)
        if raw is None:
            return default
        whole = raw.removesuffix(".0")  # JSON may write a whole number with .0
        if not (whole.isascii() and whole.isdecimal() and len(whole) < 16):
            raise InvalidRequest(f"{name} must be a whole number of 0 or more, of at most 15 digits, not {raw[:40]!r}.")
        return int(whole)

    async def find_queried_place(self) -> str | None:
        """Return the place of the calling kernel, or else the place that the query parameter ``kernel`` or ``path``
        names; None if there is none. A place is the path of a notebook, or ``kernel:ID`` for a kernel without a
        notebook.

        Raises NotFound, Forbidden, InvalidRequest.
        """
        kernel, path = self.get_argument("kernel", ""), self.get_argument("path", "")
        return await self.services.access.place(self.caller, kernel, path)

    def reply(self, body: Mapping[str, Any], status: int = 200) -> None:
        self.set_status(status)
        if status == 401:
            self.set_header("WWW-Authenticate", 'Bearer error="invalid_token"' if self.lasting else "Bearer")
        self.finish(json.dumps(body, ensure_ascii=False).encode("utf-8", "backslashreplace"))

    def refuse(self, error: AgentKernelError, status: int) -> None:
        wait = error.details.get("retry_after_s")
        if isinstance(wait, int | float):
            self.set_header("Retry-After", str(math.ceil(wait)))
        if isinstance(error, KeyReused | TurnStopped) or (isinstance(wait, int | float) and wait > WORTH_WAITING_S):
            # Without this header, OpenAI's and Anthropic's clients repeat the request twice at once.
            self.set_header("X-Should-Retry", "false")
        self.reply(self.error_body(status, error.to_json()), status)

    def error_body(self, status: int, error: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the body of an error response. ``error`` is ``{code, message, hint, details}``. Every error of a
        handler is formatted here, also those that Jupyter and tornado raise."""
        return {"error": {**error, "request_id": self.request_id}}

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Send errors of Jupyter and tornado in the format of this API. The response to an unexpected error contains no
        internal details."""
        error = kwargs.get("exc_info", (None, None))[1]
        message = error.log_message if isinstance(error, web.HTTPError) else None
        code = CODES.get(status_code, "agent_kernel_error" if status_code >= 500 else "invalid_request")
        body = {"code": code, "message": message or self._reason, "hint": "", "details": {}}
        self.set_header("X-Request-ID", self.request_id)
        if status_code == 405:
            body["message"] = f"This URL does not support {self.request.method}, only {allow_header(type(self))}."
            self.set_header("Allow", allow_header(type(self)))
        if self.gathered is None and not hasattr(self, "caller"):
            # The connection is closed, because tornado does not read the rest of a body after such an early answer.
            self.set_header("Connection", "close")
        self.reply(self.error_body(status_code, body), status_code)

    async def stream(self, frames: AsyncGenerator[bytes, None]) -> None:
        """Write ``frames`` as they arrive, and ``keep_alive`` after KEEP_ALIVE_S seconds without a frame. Ends when the
        client disconnects."""
        self.set_header("Cache-Control", "no-cache, no-store")
        self.set_header("X-Accel-Buffering", "no")
        self.set_header("Content-Type", sse.CONTENT_TYPE)
        if self.request.method == "HEAD":
            self.finish(set_content_type=sse.CONTENT_TYPE)
            return
        # Without this option, the second small piece waits 40 ms for the delayed acknowledgement of the first.
        if (socket := getattr(self.request.connection, "stream", None)) is not None:
            socket.set_nodelay(True)
        self._writer = StreamWriter(self, frames, self.keep_alive, token_check(self))
        with self.services.requests.streaming():
            in_order = await self._writer.has_ended_in_order()
        if in_order:
            self.finish(set_content_type=sse.CONTENT_TYPE)

    def on_connection_close(self) -> None:
        super().on_connection_close()
        self.services.requests.on_disconnect(self)
        self._note(request_log.LEFT)
        if self._writer is not None:
            self._writer.stop()


def guard(action: Action, *, kernels: bool = True) -> Callable[[V], V]:
    """Return a decorator for a method of a handler. The decorator authorizes the caller for ``action``; with
    ``kernels`` False it refuses kernels. It is also the only place that converts errors into responses."""

    def decorate(method: V) -> V:
        wants_json = takes_json(method)

        @allow_unauthenticated  # the authorization follows below, because Jupyter's check only knows users
        @functools.wraps(method)
        async def guarded_method(self: AgentHandler, *args: str) -> None:
            try:
                check_page(self, self.refusal)
                self.caller = await self.admit(action, kernels=kernels)
                self.receive()
                if wants_json:
                    self.json_body()
                await method(self, *args)
            except AgentKernelError as error:
                status = status_of(error)
                if status >= 500:
                    self.log.error("%s %s, request %s: %s", self.request.method, self.route, self.request_id, error)
                self.refuse(error, status)

        setattr(guarded_method, GUARD, (action, kernels))
        return cast("V", guarded_method)

    return decorate
